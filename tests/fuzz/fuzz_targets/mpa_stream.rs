//! MPA, DDP and RDMAP: the byte stream of an established iWARP connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::mpa_stream(bytes));
