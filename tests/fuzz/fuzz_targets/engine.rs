//! An engine, at either end, to which messages and completions come in any order.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rpcrdma::fuzzing::engine(octets));
