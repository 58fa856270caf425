//! A client or server over TCP, with a stream and a peer that the input controls.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::tcp_stream(bytes));
