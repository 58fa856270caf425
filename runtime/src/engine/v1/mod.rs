//! RPC-over-RDMA version 1 (RFC 8166), with its private data (RFC 8797).
//!
//! | where | what |
//! | --- | --- |
//! | `wire` | credits, Receives, what is sent and when (RFC 8166 §3.3.1, §4.2 to §4.5) |
//! | `receive` | messages: calls, replies and errors told apart, faulty ones answered or discarded (§4.2.4, §4.5) |
//! | `format` | decoding and writing headers (§4.2) |
//!
//! The reverse direction (RFC 8167) is the same requester and responder at the other ends:
//!
//! | section | where | what |
//! | --- | --- | --- |
//! | §2.4 | `receive` | XIDs of each direction are apart |
//! | §4.1 | `wire`, `receive` | credits are apart; `msg_type` tells the direction, and with it whose the credit value is |
//! | §4.2 | `wire` | the forward direction's thresholds, the other way round |
//! | §4.3 | `credits`, in the parent module | Receives for both |
//! | §5.1, §5.2 | `wire` | fields of calls and replies |
//! | §5.3 | `plan`, `arrivals`, in the parent module | no chunks: a call that is too long is an error here, chunks of the peer's are answered ERR_CHUNK |
//! | §5.4 | `calls`, in the parent module | an unanswered call costs the connection nothing |
//! | §6 | `wire`, `receive` | without support, calls are discarded |
//!
//! The parent module has what versions share: [its table](super).
//!
//! # Where it goes beyond the letter
//!
//! | RFC | letter | here | why |
//! | --- | --- | --- | --- |
//! | 8166 §4.5 | a message of less than 28 octets is discarded | RDMA_ERROR from 20 octets on is read | ERR_CHUNK takes 20; by the letter no requester would ever learn of it |
//! | 8166 §4.5 | a reply with a bad header is discarded | so it is; where the header can be parsed and matches a call, that call fails with `BadReply` | no other reply will come; the caller would wait for ever |
//! | 8166 §3.4.6 | Write chunks are copied into the reply | a reply without a Write list has used none | seen of older responders |
//! | 8166 §4.3.3 | the Reply chunk is copied into the reply | an RDMA_MSG reply may leave it out | Linux's client accepts it as well |
//! | 8166 §3.3.1 | a grant of zero is not allowed | counts as one | the alternative is deadlock |
//! | 8166 §4.2.1 | XIDs identify transactions | a call with the XID of one in progress is discarded | its reply could not be told from the other's |
//! | 8797 §4.1 | any handle of the call may be invalidated | only where the call names no other | Linux's client also offers one of memory that stays registered |
//! | 8166 §4.4.1 | memory of cancelled calls is protected from the responder | it stays registered, and the engine's own, until the reply comes or [`EngineConfig::abandon_grace`](super::EngineConfig::abandon_grace) is over | nobody gets it meanwhile; to take it away while the responder uses it would cost the connection |
//! | 8797 §3.1 | Receives are as large as this end says | at least 4096 octets | Linux's server sends 4096 octets to everyone |
//! | 8167 §6 | an endpoint may lack the reverse direction | with [`EngineConfig::reverse_credits`](super::EngineConfig::reverse_credits) of 0 its messages are discarded, and their Receives posted again | the connection outlives them |

mod format;
pub mod header {
    //! The header, XDR as RFC 8166 §4 says, of §4.1.2: generated from `specs/xdr/rpcrdma1.x`.
    crate::include_xdr!("xdr/rpcrdma1.x");
}
mod receive;
mod wire;

pub(super) use wire::WireV1;
