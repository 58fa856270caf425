//! An end of a connection by TCP, with a stream and a peer that do what a fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|octets: &[u8]| rpcrdma::fuzzing::tcp_stream(octets));
