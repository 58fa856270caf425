//! RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).
//!
//! | where | what | sections |
//! | --- | --- | --- |
//! | `wire` | the order in which things are sent, timers, the exchange of properties | §4.2.3, §5.2 |
//! | `receive` | whose a message is, and whether it may be there | §6.1, §6.2, §7 |
//! | `format` | the prefix, header types, chunk lists | §6.2, §6.3 |
//! | `credits` | two values of 16 bits; asynchronous grants | §4.2.1 |
//! | `outbox` | one message a credit; fragments of continued messages | §4.1, §4.4.2, §6.2.2.2 |
//! | `reassembly` | continued messages put together | §6.2.2.2, §7.1.3 |
//! | `handshake` | RDMA2_CONNPROP, RDMA2_F_TPMORE | §4.2.3, §6.2.2.3, §6.3.4 |
//! | `properties` | the properties of table 1, their values | §5 |
//! | `requester` | local calls: when they are sent, remote invalidation | §4.3, §4.4, §6.2.4 |
//! | `replies` | replies, errors, calls sent again | §6.4, §7.1.2, §7.3 |
//! | `responder` | replies to calls of the peer, remote invalidation | §4.3.6, §4.4, §6.4 |
//! | `errors` | RDMA2_ERROR | §6.3.3, §7 |
//! | `extension` | header types of extensions that the peer refuses | appendix B, §7.1.2 |
//!
//! The parent module has what versions share: format and chunks of a call (`plan`: §4.4, §6.4, §11.2.2.3), checks on the peer's
//! calls (`arrivals`: §4.5.4, §7.3, §11.1.4), replies (`responses`: §4.3.6, §6.4), host authentication (`host_auth`: §5.2.6).
//!
//! Both ends are requester and responder (§4.5). Whose calls a message belongs to, RDMA2_F_RESPONSE says; XIDs of the two
//! ends have nothing to do with one another.
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
