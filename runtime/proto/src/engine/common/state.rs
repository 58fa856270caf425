//! The stages of a connection from set-up to its end.

use crate::engine::CloseReason;

#[derive(Debug)]
pub(in crate::engine) enum ConnectionState {
    Open,
    /// The local peer closes the connection after queued output has been sent.
    Closing(CloseReason),
    /// The local peer has disconnected the queue pair, or has closed the write side of the byte stream.
    Disconnecting(CloseReason),
    /// The connection is lost, and memory is being deregistered.
    Gone(CloseReason),
    /// [`EngineEvent::Closed`](crate::engine::EngineEvent::Closed) has been queued.
    Closed(CloseReason),
}

impl ConnectionState {
    /// Returns the reason for closing, unless the connection is open.
    pub(in crate::engine) fn reason(&self) -> Option<&CloseReason> {
        match self {
            Self::Open => None,
            Self::Closing(reason) | Self::Disconnecting(reason) | Self::Gone(reason) | Self::Closed(reason) => {
                Some(reason)
            }
        }
    }
}
