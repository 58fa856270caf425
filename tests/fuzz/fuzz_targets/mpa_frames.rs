//! MPA request and reply frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rpcrdma::fuzzing::mpa_frames(octets));
