//! ONC RPC over a byte stream, without I/O: record marking (RFC 5531 §11), and calls and replies in records.
//!
//! What TCP carries where there is no RDMA: MOUNT and rpcbind need it, and any generated service runs over it. Nothing is
//! reduced: eligible items go where they stand in the encoding. They are still sent from where they lie, as pieces of the
//! record, and what is received is a view of the record.
//!
//! | where | what |
//! | --- | --- |
//! | `record` | records from fragments, within limits |
//! | `output` | records that go out, piece by piece |
//! | `connection` | the engine: calls of both directions, timers, the end |
//! | `connection/receive` | what arrives: when it is wanted, and whose it is |
//!
//! A byte stream has no credits. What RFC 8166 §3.3 does for RDMA is done here by restraint: a client has no more calls
//! under way than it would ask credits for, and a server with as many calls unanswered as it grants credits stops
//! reading, so that TCP holds its client back. While it waits for a reply to a call of its own it reads on, and puts calls
//! by that come ahead of the reply: what keeps its handlers may be that reply.

mod connection;
mod output;
mod record;

use std::time::Duration;

pub use self::{connection::StreamConnection, record::RecordAssembler};

/// What connections over a byte stream are configured with, besides [`EngineConfig`](super::EngineConfig): of that,
/// `credits`, `reverse_credits`, `min_reduce`, `max_pulled`, `reply_timeout`, `abandon_grace`, `send_size` and `pool` count here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamConfig {
    /// Longest record taken from a peer, in octets, all fragments together. Memory is taken as octets arrive, never for
    /// what a fragment announces. Default 65 MiB: 64 MiB of data, and what is around it. A longer reply fails its call
    /// alone ([`CallFailure::BadReply`](super::CallFailure::BadReply)), and is read and dropped; any other record ends the
    /// connection.
    pub max_record: u64,
    /// Most fragments of one record taken from a peer, empty ones included. Default 16384.
    pub max_fragments: u32,
    /// How long one record may take, from its first octet to its last, in either direction. A peer that sends or takes
    /// an octet now and then holds memory no longer than that. Default 2 minutes.
    pub record_timeout: Duration,
    /// Longest fragment sent, from 1 to 2^31 - 1 octets. Default 2^31 - 1: a record is one fragment.
    pub fragment_size: u32,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            max_record: 65 << 20,
            max_fragments: 16384,
            record_timeout: Duration::from_secs(120),
            fragment_size: record::MAX_FRAGMENT,
        }
    }
}

#[cfg(test)]
mod tests;
