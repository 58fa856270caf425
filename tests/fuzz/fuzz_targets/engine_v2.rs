//! An engine that may negotiate version 2, with a peer and a provider that the input controls.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::engine_v2(bytes));
