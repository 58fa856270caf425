//! RPC-over-RDMA version 1 (RFC 8166), with its private data (RFC 8797).
//!
//! | module | content |
//! | --- | --- |
//! | `wire` | credits, Receives, sending (RFC 8166 §3.3.1, §4.2 to §4.5) |
//! | `receive` | incoming messages: classification into calls, replies and errors; malformed messages (§4.2.4, §4.5) |
//! | `format` | decoding and encoding of headers (§4.2) |
//!
//! Both peers are requester and responder, so the reverse direction (RFC 8167) needs little of its own:
//!
//! | section | module | content |
//! | --- | --- | --- |
//! | §2.4 | `receive` | XIDs of the two directions are independent |
//! | §4.1 | `wire`, `receive` | credits of the two directions are independent; `msg_type` determines the direction, and so the meaning of the credit value |
//! | §4.2 | `wire` | the thresholds of the forward direction, swapped |
//! | §4.3 | `core/credits` | Receives for both directions |
//! | §5.1, §5.2 | `wire` | fields of calls and replies |
//! | §5.3 | `requester/plan`, `responder/arrivals` | no chunks: a local call that is too long fails, and a call of the peer with chunks gets ERR_CHUNK |
//! | §5.4 | `requester/calls` | an unanswered call does not affect the connection |
//! | §6 | `wire`, `receive` | calls are discarded without local support |
//!
//! The folders next to this one contain the code that all versions share: [table of folders](super).
//!
//! # Deviations from the RFCs
//!
//! | RFC | requirement | implementation | reason |
//! | --- | --- | --- | --- |
//! | 8166 §4.5 | a message shorter than 28 bytes is discarded | RDMA_ERROR is accepted from 20 bytes | ERR_CHUNK has 20 bytes, so no requester could ever receive one otherwise |
//! | 8166 §4.5 | a reply with a bad header is discarded | discarded as well; if only the chunks are invalid, the call with its XID fails with `BadReply` | no other reply will arrive, and the caller would wait forever |
//! | 8166 §3.4.6 | Write chunks are copied into the reply | a reply without a Write list used no chunk | older responders do this |
//! | 8166 §4.3.3 | the Reply chunk is copied into the reply | an RDMA_MSG reply may omit it | Linux's client accepts this as well |
//! | 8166 §3.3.1 | a grant of zero is not allowed | counts as a grant of one | the connection would deadlock |
//! | 8166 §4.2.1 | XIDs identify transactions | a call with the XID of a call in progress is discarded | the replies to the two calls could not be distinguished |
//! | 8797 §4.1 | any handle of the call may be invalidated | only if the call has no other handle | Linux's client also offers handles of memory that stays registered |
//! | 8166 §4.4.1 | memory of cancelled calls is protected from the responder | it stays registered and owned by the engine until the reply arrives or [`EngineConfig::abandoned_call_timeout`](super::EngineConfig::abandoned_call_timeout) expires | the memory is not reused meanwhile; deregistering it while the responder uses it would break the connection |
//! | 8797 §4.2 | Receives have the announced size | at least 4096 bytes | Linux's server sends 4096 bytes to every client |
//! | 8167 §6 | an endpoint may lack the reverse direction | if [`EngineConfig::reverse_credits`](super::EngineConfig::reverse_credits) is 0, messages of that direction are discarded, and their Receives are posted again | the connection survives them |

mod format;
pub mod header {
    //! The header of RFC 8166 §4.1.2 in XDR, generated from `specs/xdr/rpcrdma1.x`.
    crate::include_xdr!("xdr/rpcrdma1.x");
}
mod receive;
mod wire;

pub(super) use format::{MIN_LEN, VERSION, encode_error, supported_versions};
pub(super) use wire::WireV1;
