//! Causes of closed connections, for statistics.

use super::failure::CloseReason;
use crate::provider::DisconnectReason;

/// The cause of a closed connection: its [`CloseReason`] without details. The enumeration is exhaustive, so that
/// statistics count each cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseCause {
    /// The local side closed the connection.
    Local,
    /// The peer closed the connection.
    Remote,
    /// The network or the provider failed.
    Transport,
    /// The peer stopped responding, delivering the data of its calls, or accepting replies.
    Stalled,
    /// The peer broke a rule of the protocol, exceeded a local limit, or did not complete or accept a record of a byte
    /// stream in time.
    PeerViolation,
    /// The peer reported that the local side broke a rule, or refused access to its memory.
    ReportedByPeer,
    /// Version and properties were not negotiated, or a peer rejected the other.
    Negotiation,
    /// No call was in flight for the idle timeout, or the first call did not arrive in time.
    Idle,
}

impl CloseReason {
    /// Returns the cause, without details such as durations and messages.
    #[must_use]
    pub fn cause(&self) -> CloseCause {
        match self {
            Self::Disconnected(DisconnectReason::Local) => CloseCause::Local,
            Self::Disconnected(DisconnectReason::Remote) => CloseCause::Remote,
            Self::Disconnected(DisconnectReason::Transport(_)) => CloseCause::Transport,
            Self::Disconnected(DisconnectReason::PeerViolation(_)) | Self::PeerViolation(_) | Self::Stream(_) => {
                CloseCause::PeerViolation
            }
            Self::Disconnected(DisconnectReason::ReportedByPeer(_) | DisconnectReason::RemoteAccess(_)) => {
                CloseCause::ReportedByPeer
            }
            Self::Unresponsive(_) | Self::Silent(_) | Self::ReadStalled(_) | Self::ReplyStalled(_) => {
                CloseCause::Stalled
            }
            Self::NegotiationFailed { .. } | Self::HostAuthentication(_) => CloseCause::Negotiation,
            Self::Idle(_) | Self::NoCall(_) => CloseCause::Idle,
        }
    }
}
