//! RPC messages, decoded from arbitrary bytes: the headers of calls and replies, and credentials.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::rpc_message(bytes));
