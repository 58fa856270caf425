//! MPA request and reply frames, decoded from arbitrary bytes. Accepted frames must survive encoding and decoding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::mpa_frames(bytes));
