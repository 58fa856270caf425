//! Messages of RPC-over-RDMA version 2.
