//! Replies to a client with RPCSEC_GSS: to requests for a context, and to calls.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::gss_client(bytes));
