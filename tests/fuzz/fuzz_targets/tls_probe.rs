//! Data that a peer sends before a TLS handshake: the probe of a client, and the reply of a server.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::tls_probe(bytes));
