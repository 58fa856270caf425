//! The header of RPC-over-RDMA version 1, decoded from arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| rpcrdma::fuzzing::rpcrdma_header(bytes));
