//! The headers of RPC-over-RDMA version 2.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::rpcrdma2_header(bytes));
