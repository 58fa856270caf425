//! A version 1 engine, as client or server, with messages and completions in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::engine(bytes));
