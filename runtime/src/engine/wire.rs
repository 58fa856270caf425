//! The wire version that a connection holds: headers, credits, the exchange before the first call, and errors.

use std::{fmt, time::Instant};

use super::{CallFailure, ConnectionCounters, ExtensionMessage, Properties, core::ConnectionCore, work::PostedFor};
use crate::{
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair},
};

/// What differs between the versions of RPC-over-RDMA.
///
/// A connection calls these methods while it is open; `core` is the rest of its state. Methods with a default are those of one
/// version only.
pub(super) trait Wire: fmt::Debug + Send {
    /// Returns the number of the version.
    fn version(&self) -> u32;

    /// Counts a Receive that a message has used, of whatever version.
    fn receive_used(&mut self);

    /// Returns the number of Receives that are posted.
    fn receives_posted(&self) -> usize;

    /// Handles a message of the peer's.
    fn receive(&mut self, message: MessageBuf, invalidated: Option<MemoryHandle>, core: &mut ConnectionCore);

    /// Handles the end of a Send.
    fn sent(&mut self, _work: PostedFor) {}

    /// Posts what is due.
    fn poll_work(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair, now: Instant);

    /// Returns the failure that local calls end with, if the connection does not support them.
    fn refuses_calls(&self, core: &ConnectionCore) -> Option<CallFailure>;

    /// Whether a call that waits could be sent.
    fn can_send(&self, core: &ConnectionCore) -> bool;

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Ends the connection if the peer has taken too long for something that only this version waits for.
    fn handle_timeout(&mut self, _core: &mut ConnectionCore, _now: Instant) {}

    /// Drops messages that have arrived in part.
    fn drop_partial(&mut self) {}

    /// Drops everything that waits to be sent or to arrive: the connection is gone.
    fn disconnected(&mut self) {}

    /// Whether a message of this version has arrived.
    fn is_heard(&self) -> bool {
        true
    }

    /// Returns the versions that the peer supports, lowest and highest, if `message` says that this one is not among them.
    fn other_versions(&self, _message: &[u8]) -> Option<(u32, u32)> {
        None
    }

    /// Adds the numbers that only this part of the connection knows.
    fn complete_counters(&self, counters: &mut ConnectionCounters);

    /// Sets the number of credits that the peer may have (version 2).
    fn set_credits(&mut self, _credits: u32) {}

    /// Returns the peer's properties, once the exchange is complete (version 2).
    fn peer_properties(&self) -> Option<&Properties> {
        None
    }

    /// Queues a message of an extension (version 2); `false` if it cannot be sent.
    fn send_extension(&mut self, _message: ExtensionMessage) -> bool {
        false
    }
}
