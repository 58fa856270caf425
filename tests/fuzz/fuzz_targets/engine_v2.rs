//! An engine between a peer and a provider that do what a fuzzer says, version 2 or what comes of it.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rpcrdma::fuzzing::engine_v2(octets));
