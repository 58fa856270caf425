//! RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).
//!
//! | where | what | sections |
//! | --- | --- | --- |
//! | [`connection`](Connection) | what goes in and comes out; its beginning and end | §4.2.3 |
//! | `receive` | whose a message is, and whether it may be there | §6.1, §6.2, §7 |
//! | `format` | the prefix, chunk lists, header lengths | §6.2, §6.3 |
//! | `credits` | two values of 16 bits; asynchronous grants | §4.2.1 |
//! | `outbox` | one message a credit; fragments of continued messages | §4.1, §4.4.2, §6.2.2.2 |
//! | `reassembly` | continued messages put together | §6.2.2.2, §7.1.3 |
//! | `handshake` | RDMA2_CONNPROP, RDMA2_F_TPMORE | §4.2.3, §6.2.2.3, §6.3.4 |
//! | `properties` | the properties of table 1, their values | §5 |
//! | `host_auth` | host authentication by an authenticator of the application's | §5.2.6, §11.4 |
//! | `requester`, `plan` | calls: format, chunks, remote invalidation | §4.3, §4.4, §6.2.4, §6.4, §11.2.2.3 |
//! | `replies` | replies, errors, calls sent again | §6.4, §7.3 |
//! | `responder/calls` | calls: what is checked, and refused | §7.1 to §7.3, §4.5.4, §11.1.4 |
//! | `responder/replies` | replies: format, chunks, remote invalidation | §4.3.6, §4.4, §6.4 |
//! | `errors` | RDMA2_ERROR | §6.3.3, §7 |
//! | `extension` | header types, properties and errors of the application's own | appendix B |
//!
//! Both ends are requester and responder (§4.5). Whose calls a message belongs to, RDMA2_F_RESPONSE says; XIDs of the two
//! ends have nothing to do with one another. What versions share is in the parent module.
//!
//! Where the draft contradicts itself, or leaves something open, the project's `DEVIATIONS.md` says what was chosen, and why.

mod credits;
mod errors;
mod extension;
mod format;
mod handshake;
pub mod header {
    //! The headers of §8: generated from `specs/xdr/rpcrdma2.x`.
    crate::include_xdr!("xdr/rpcrdma2.x");
}
mod outbox;
mod properties;
mod reassembly;
mod receive;
mod replies;
mod requester;
mod responder;
mod wire;

pub(super) use wire::WireV2;
