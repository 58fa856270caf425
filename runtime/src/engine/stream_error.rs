//! Violations of record marking (RFC 5531 §11), and records that take too long.

use std::{fmt, time::Duration};

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
