//! The private data of a connection request or reply (RFC 8797), searched for in arbitrary bytes. Private data that is
//! found must survive encoding and decoding.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::private_data(bytes));
