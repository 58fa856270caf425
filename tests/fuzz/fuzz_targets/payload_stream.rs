//! Payload streams with all kinds of XDR items, and with chunks to splice in.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::payload_stream(bytes));
