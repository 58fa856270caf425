//! ONC RPC over a byte stream, without I/O: record marking (RFC 5531 §11), and calls and replies in records.
//!
//! The engine carries MOUNT and rpcbind, which run over TCP, and any generated service. No item is reduced: eligible
//! items stay in their places in the encoding. Items that are not short are still sent without a copy, as pieces of the
//! record. Received data is a view of the record.
//!
//! | module | content |
//! | --- | --- |
//! | `record` | records from fragments, within limits |
//! | `output` | outgoing records, piece by piece |
//! | `connection` | the engine: calls of both directions, timers, closing |
//! | `connection/receive` | incoming records: flow control, memory, dispatch |
//!
//! A byte stream has no credits, so the engine limits itself in place of RFC 8166 §3.3. A client has no more calls in
//! flight than it would request credits for, except for one more urgent call. A server with as many unanswered calls as
//! it would grant credits reads one more call, and then stops reading, so that TCP holds its client back. It delivers
//! that call at once only if it is a NULL call. While the server waits for a reply to a call of its own, it keeps
//! reading and parks the calls that arrive before that reply, because its handlers may be waiting for the reply.

mod connection;
mod output;
mod record;

use std::time::Duration;

pub use self::{connection::StreamConnection, record::RecordAssembler};

/// Configuration of connections over a byte stream, in addition to [`EngineConfig`](super::EngineConfig).
///
/// These fields of `EngineConfig` apply as well: `credits`, `keeps_credit`, `reverse_credits`, `min_reduce`,
/// `max_fetched`, `reply_timeout`, `abandoned_call_timeout`, `send_size` and `pool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamConfig {
    /// Maximum length in bytes of a record accepted from a peer, over all its fragments. Default 65 MiB: 64 MiB of data
    /// and the message around it.
    ///
    /// Memory is allocated as bytes arrive, never for the length that a fragment announces. A longer reply is read and
    /// dropped, and fails only its call, with [`CallFailure::BadReply`](super::CallFailure::BadReply). Any other longer
    /// record closes the connection.
    pub max_record: u64,
    /// Maximum number of fragments of one record accepted from a peer, empty ones included. Default 16384.
    pub max_fragments: u32,
    /// Maximum time for one record from its first byte to its last, in either direction. A peer that sends or accepts
    /// only a few bytes at a time cannot hold memory for longer. The time does not run while the engine does not read.
    /// Default 2 minutes.
    pub record_timeout: Duration,
    /// Maximum length in bytes of a fragment sent, from 1 to 2^31 - 1. Default 2^31 - 1: each record is one fragment.
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
