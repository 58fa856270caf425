//! The private data of RFC 8797.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::private_data(bytes));
