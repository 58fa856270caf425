//! Where a connection is between its set-up and its end.

use super::CloseReason;

#[derive(Debug)]
pub(super) enum ConnectionState {
    Open,
    /// To be closed locally, once what is queued has gone out.
    Closing(CloseReason),
    /// Closed locally: the queue pair has been told to disconnect, or the write side of the byte stream is closed.
    Disconnecting(CloseReason),
    /// The connection is gone; memory is being taken back.
    Gone(CloseReason),
    /// [`Event::Closed`](super::Event::Closed) has been given.
    Closed(CloseReason),
}

impl ConnectionState {
    /// Why the connection is over, once it is.
    pub(super) fn reason(&self) -> Option<&CloseReason> {
        match self {
            Self::Open => None,
            Self::Closing(reason) | Self::Disconnecting(reason) | Self::Gone(reason) | Self::Closed(reason) => {
                Some(reason)
            }
        }
    }
}
