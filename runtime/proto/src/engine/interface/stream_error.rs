//! Errors of record marking (RFC 5531 §11): records that exceed a limit, are incomplete, are not RPC messages, or time
//! out.

use std::{fmt, time::Duration};

/// Error of record marking (RFC 5531 §11): a record of the peer exceeds a local limit, is incomplete, is not an RPC
/// message, or timed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The fragments of a record announce more bytes than the limit.
    #[error(
        "the peer announced an RPC record of at least {len} bytes, {max} are allowed; the fragment's marker is {}",
        Marker(*.marker)
    )]
    RecordTooLong {
        /// Number of bytes announced so far.
        len: u64,
        /// Maximum number of bytes in a record.
        max: u64,
        /// Marker of the fragment that exceeded the limit. It is often printable text if the peer speaks a protocol
        /// other than RPC.
        marker: [u8; 4],
    },
    /// A record has more fragments than the limit.
    #[error("the peer sent an RPC record of more than {max} fragments")]
    TooManyFragments {
        /// Maximum number of fragments in a record.
        max: u32,
    },
    /// A record is not an RPC message.
    #[error("the peer sent a record of {len} bytes that is not an RPC message")]
    NotAMessage {
        /// Length of the record in bytes.
        len: usize,
    },
    /// The stream ended within a record.
    #[error("the peer ended the stream within an RPC record, after {received} bytes of it")]
    EndedInRecord {
        /// Number of bytes of the record that were received, without markers.
        received: u64,
    },
    /// The peer did not complete a record in time.
    #[error("the peer did not complete an RPC record within {timeout:?}")]
    ReceiveTimedOut {
        /// Time limit for the record.
        timeout: Duration,
    },
    /// The peer did not accept a record in time.
    #[error("the peer did not accept an RPC record within {timeout:?}")]
    SendTimedOut {
        /// Time limit for the record.
        timeout: Duration,
    },
}

/// Marker of a fragment, as error messages display it.
struct Marker([u8; 4]);

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
            write!(f, "the text `{}`", self.0.escape_ascii())
        } else {
            write!(f, "{:#010x}", u32::from_be_bytes(self.0))
        }
    }
}
