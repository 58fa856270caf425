//! The interface of a wire version: headers, credits, the exchange before the first call, and errors.

use std::{fmt, time::Instant};

use super::connection_core::ConnectionCore;
use crate::{
    engine::{CallFailure, ConnectionCounters, ExtensionMessage, Properties},
    memory::MessageBuf,
    provider::{MemoryHandle, QueuePair},
};

/// The part of a connection that depends on the version of RPC-over-RDMA.
///
/// `core` is the part of the connection that all versions share. Most methods that have a default implementation are
/// needed by only one version.
pub(in crate::engine) trait Wire: fmt::Debug + Send {
    /// Returns the version number.
    fn version(&self) -> u32;

    /// Counts a Receive that a message of any version has consumed.
    fn receive_used(&mut self);

    /// Returns the number of posted Receives.
    fn receives_posted(&self) -> usize;

    /// Handles a message from the peer.
    fn receive(&mut self, message: MessageBuf, invalidated: Option<MemoryHandle>, core: &mut ConnectionCore);

    /// Handles the end of `count` responses in flight.
    fn responses_ended(&mut self, _count: usize) {}

    /// Posts pending work.
    fn poll_work(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair, now: Instant);

    /// Returns the failure with which local calls end if the connection does not support them, and otherwise `None`.
    fn refuses_calls(&self, core: &ConnectionCore) -> Option<CallFailure>;

    /// Returns `true` if a queued call could be sent now.
    fn can_send(&self, core: &ConnectionCore) -> bool;

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called, or `None` if no timeout is
    /// pending.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Ends the connection if a timeout that is specific to this version has expired.
    fn handle_timeout(&mut self, _core: &mut ConnectionCore, _now: Instant) {}

    /// Returns `true` if a message has arrived in part.
    fn is_receiving(&self) -> bool {
        false
    }

    /// Drops partially received messages.
    fn drop_partial(&mut self) {}

    /// Drops all messages that wait to be sent or completed, after the connection was lost.
    fn disconnected(&mut self) {}

    /// Returns `true` if a message of this version has been received. Version 1 always returns `true`.
    fn has_received(&self) -> bool {
        true
    }

    /// Returns the XID of the messages by which a client negotiates, or `None` after a message of this version has been
    /// received.
    fn negotiation_xid(&self) -> Option<u32> {
        None
    }

    /// Fills in the counters that the wire version maintains.
    fn complete_counters(&self, counters: &mut ConnectionCounters);

    /// Sets the number of credits to grant to the peer (version 2).
    fn set_credits(&mut self, _credits: u32) {}

    /// Returns the peer's properties, or `None` before the exchange is complete (version 2).
    fn peer_properties(&self) -> Option<&Properties> {
        None
    }

    /// Queues a message of an extension (version 2). Returns `false` if it cannot be sent.
    fn send_extension(&mut self, _message: ExtensionMessage) -> bool {
        false
    }
}
