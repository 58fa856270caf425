//! The XDR of ONC RPC and of RPC-over-RDMA: as files with their provenance, and as the types generated from them.
//!
//! The runtime generates the same types for itself; these are for tools and tests that look at the wire without it.
//! [`source`] has the files as text. How they come about is told in this crate's README, and in the head of each file.
#![forbid(unsafe_code)]

/// The files of `xdr/`.
pub mod source {
    /// `rpc.x`: ONC RPC version 2 (RFC 5531).
    pub const RPC: &str = include_str!("../xdr/rpc.x");
    /// `rpcrdma1.x`: the header of RPC-over-RDMA version 1 (RFC 8166).
    pub const RPCRDMA1: &str = include_str!("../xdr/rpcrdma1.x");
    /// `rpcrdma2.x`: the headers of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).
    pub const RPCRDMA2: &str = include_str!("../xdr/rpcrdma2.x");
}

/// ONC RPC version 2 (RFC 5531): generated from [`source::RPC`].
pub mod rpc {
    rpcrdma::include_xdr!("xdr/rpc.x");
}

/// The header of RPC-over-RDMA version 1 (RFC 8166): generated from [`source::RPCRDMA1`].
pub mod rpcrdma1 {
    rpcrdma::include_xdr!("xdr/rpcrdma1.x");
}

/// The headers of RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01): generated from
/// [`source::RPCRDMA2`].
pub mod rpcrdma2 {
    rpcrdma::include_xdr!("xdr/rpcrdma2.x");
}
