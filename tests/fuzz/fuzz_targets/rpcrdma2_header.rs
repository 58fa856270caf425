//! The headers of RPC-over-RDMA version 2, decoded from any bytes: the prefix, and each of the four types that follow
//! it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::rpcrdma2_header(bytes));
