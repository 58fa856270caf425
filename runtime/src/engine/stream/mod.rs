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
//! | `connection` | calls, replies, XIDs, deadlines, the end |
//! | `connection/receive` | what arrives: when it is wanted, and whose it is |
//!
//! A byte stream has no credits. What RFC 8166 §3.3 does for RDMA is done here by restraint: a client has no more calls
//! under way than it would ask credits for, and a server with as many calls unanswered as it grants credits stops
//! reading, so that TCP holds its client back. While it waits for a reply to a call of its own it reads on, and puts calls
//! by that come ahead of the reply: what keeps its handlers may be that reply.

mod connection;
mod output;
mod record;

use std::{fmt, time::Duration};

pub use self::{connection::StreamConnection, record::Assembler};

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

/// How a peer broke record marking, or what is in the records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// Its fragments announce more octets than are allowed.
    #[error(
        "the peer announced an RPC record of at least {len} bytes, {max} are allowed; the fragment's marker is {}",
        Marker(*.marker)
    )]
    RecordTooLong {
        /// Octets announced so far.
        len: u64,
        /// Octets allowed.
        max: u64,
        /// The marker of the fragment with which it became too long: text, where something else answers than RPC.
        marker: [u8; 4],
    },
    /// A record comes in more fragments than are allowed.
    #[error("the peer sent an RPC record of more than {max} fragments")]
    TooManyFragments {
        /// Fragments allowed.
        max: u32,
    },
    /// A record is no RPC message.
    #[error("the peer sent a record of {len} bytes that is not an RPC message")]
    NotAMessage {
        /// Its octets.
        len: usize,
    },
    /// The stream ended within a record.
    #[error("the peer ended the stream within an RPC record, after {received} bytes of it")]
    EndedInRecord {
        /// Octets that had arrived, markers not counted.
        received: u64,
    },
    /// A record was begun, and not complete in time.
    #[error("the peer did not complete an RPC record within {timeout:?}")]
    ReceiveTimedOut {
        /// The time allowed.
        timeout: Duration,
    },
    /// The peer did not take a record in time.
    #[error("the peer did not accept an RPC record within {timeout:?}")]
    SendTimedOut {
        /// The time allowed.
        timeout: Duration,
    },
}

/// A fragment's marker, for messages.
struct Marker([u8; 4]);

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|octet| octet.is_ascii_graphic() || octet.is_ascii_whitespace()) {
            write!(f, "the text `{}`", self.0.escape_ascii())
        } else {
            write!(f, "{:#010x}", u32::from_be_bytes(self.0))
        }
    }
}

#[cfg(test)]
mod tests;
