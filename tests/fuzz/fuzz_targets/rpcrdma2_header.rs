//! The headers of RPC-over-RDMA version 2, decoded from arbitrary bytes: the prefix, and each of the four types that
//! follow the prefix.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::rpcrdma2_header(bytes));
