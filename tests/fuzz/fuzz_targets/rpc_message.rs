//! RPC messages: headers and credentials.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rpcrdma::fuzzing::rpc_message(octets));
