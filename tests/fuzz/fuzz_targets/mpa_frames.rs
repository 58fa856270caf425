//! MPA request and reply frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::mpa_frames(bytes));
