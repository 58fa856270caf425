//! Calls to a server with RPCSEC_GSS: credentials, verifiers, tokens and protected bodies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::gss_server(bytes));
