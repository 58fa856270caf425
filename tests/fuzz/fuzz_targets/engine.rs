//! A version 1 engine, as client or server, with messages and completions in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rpcrdma::fuzzing::engine(octets));
