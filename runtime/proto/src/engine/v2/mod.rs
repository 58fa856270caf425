//! RPC-over-RDMA version 2 (draft-ietf-nfsv4-rpcrdma-version-two-01).
//!
//! | module | content | sections |
//! | --- | --- | --- |
//! | `header` | the generated headers | §8 |
//! | `wire` | order of sending, timers, exchange of properties | §4.2.3, §5.2 |
//! | `receive` | incoming messages: validation and dispatch | §6.1, §6.2, §7 |
//! | `format` | the prefix, header types, chunk lists | §6.2, §6.3 |
//! | `credits` | credits for sent and for received messages, asynchronous grants | §4.2.1 |
//! | `outbox` | sending: one credit per message, continued messages | §4.1, §4.4.2, §6.2.2.2 |
//! | `reassembly` | reassembly of continued messages | §6.2.2.2, §7.1.3 |
//! | `handshake` | RDMA2_CONNPROP, RDMA2_F_TPMORE | §4.2.3, §6.2.2.3, §6.3.4 |
//! | `properties` | transport properties: local values, encoding, decoding | §5 |
//! | `requester` | sending of local calls, remote invalidation | §4.3, §4.4, §6.2.4 |
//! | `replies` | replies, errors, retries | §6.4, §7.1.2, §7.3 |
//! | `responder` | replies to calls of the peer, remote invalidation | §4.3.6, §4.4, §6.4 |
//! | `errors` | RDMA2_ERROR | §6.3.3, §7 |
//! | `extension` | extensions, and header types that the peer refused | appendix B, §7.1.2 |
//!
//! The folders next to this one contain the code that all versions share: format and chunks of a call
//! (`requester/plan`: §4.4, §6.4, §11.2.2.3), checks on calls of the peer (`responder/arrivals`: §4.5.4, §7.3,
//! §11.1.4), replies (`responder/responses`, `responder/results`: §4.3.6, §6.4), host authentication
//! (`interface/host_auth`: §5.2.6).
//!
//! Both peers are requester and responder (§4.5). RDMA2_F_RESPONSE determines whose call a message belongs to. The XIDs
//! of the two peers are independent.
//!
//! # Another draft
//!
//! To support a draft with another header, add a folder next to this one. It differs from a copy of this folder in
//! `header` and `specs/xdr/rpcrdma2.x` (the XDR), `format` (lengths and encoding), `errors` and `properties` (codes),
//! and in the files of the rules that changed. Such a draft also requires changes outside of the new folder:
//!
//! | file | change |
//! | --- | --- |
//! | `engine/mod.rs` | the module |
//! | `engine/interface/versions.rs` | a selection, if the draft has a number of its own |
//! | `engine/connection/connection.rs` | creation of its `Wire` |
//! | `engine/connection/negotiation.rs` | recognition of its first message and of its ERR_VERS |
//! | `engine/common/format.rs` | only if its fixed words or chunk lists differ |
//!
//! The test `layout_numbers_stand_in_format` finds unnamed offsets, lengths and codes of headers in other files.
//!
//! The project's `DEVIATIONS.md` documents the choices where the draft contradicts itself or leaves something open,
//! with their reasons.

mod credits;
mod errors;
mod extension;
mod format;
mod handshake;
pub mod header {
    //! The headers of §8, generated from `specs/xdr/rpcrdma2.x`.
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

pub(super) use errors::{encode_version_error, supported_versions};
pub(super) use format::{PREFIX_LEN, VERSION};
pub(super) use wire::WireV2;
