//! The interface between a protocol engine and its driver.

use std::time::Instant;

use super::{
    counters::ConnectionCounters,
    event::EngineEvent,
    failure::CloseReason,
    properties::Properties,
    transport_error::TransportError,
    types::{CallId, OutgoingCall, OutgoingReply, ReplyToken},
};
use crate::{memory::MemoryShare, provider::DisconnectReason};

/// Limits that apply to a connection, as far as they have been negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PeerLimits {
    /// Negotiated version of RPC-over-RDMA. `None` before the negotiation is complete, and for a byte stream.
    pub version: Option<u32>,
    /// `true` if both peers support Send with Invalidate (RFC 8797 §4.1).
    pub remote_invalidation: bool,
    /// Properties of the peer (RPC-over-RDMA v2 §5). `None` before the property exchange is complete, in version 1, and
    /// for a byte stream.
    pub properties: Option<Properties>,
    /// Longest message in bytes that is sent inline. 0 for a byte stream.
    pub send_threshold: u32,
    /// Longest message in bytes that the peer sends inline. 0 for a byte stream.
    pub receive_threshold: u32,
}

impl PeerLimits {
    /// Returns `true` if the version is negotiated and, in version 2, the property exchange is complete. Always `false`
    /// for a byte stream.
    #[doc(hidden)]
    pub fn is_final(&self) -> bool {
        match self.version {
            None => false,
            Some(1) => true,
            Some(_) => self.properties.is_some(),
        }
    }
}

/// State machine of one connection that carries RPC calls, without a socket, a clock or a thread.
///
/// [`Connection`](crate::engine::Connection) implements RPC-over-RDMA,
/// [`StreamConnection`](crate::engine::stream::StreamConnection) RPC over a byte stream.
///
/// A driver repeats these steps:
///
/// 1. Call any of [`start_call`](Self::start_call), [`cancel_call`](Self::cancel_call), [`reply`](Self::reply),
///    [`reply_error`](Self::reply_error), [`close_with`](Self::close_with), [`handle_timeout`](Self::handle_timeout)
///    and the engine's own input methods.
/// 2. Call [`poll_work`](Self::poll_work), which posts the pending work.
/// 3. Call [`poll_event`](Self::poll_event) until it returns `None`.
/// 4. Wait for network input, for a user request, or until [`poll_timeout`](Self::poll_timeout).
pub trait Engine {
    /// Port to which the engine posts work requests: a queue pair, or `()` for a byte stream, whose driver fetches the
    /// output from the engine.
    type Port: ?Sized;

    /// Starts a call, and returns its identifier.
    ///
    /// The call goes in the forward direction on a client connection, in the reverse direction on a server connection.
    /// Calls are sent in the order in which they were started, urgent calls first
    /// ([`CallPolicy::urgent`](crate::engine::CallPolicy::urgent)), when the connection is ready for calls and a credit
    /// is available. An [`EngineEvent::CallFinished`] always follows.
    fn start_call(&mut self, call: OutgoingCall) -> CallId;

    /// Cancels a call, which then fails with [`CallFailure::Cancelled`](crate::engine::CallFailure::Cancelled), unless
    /// it has already failed and only waits for its memory. Does nothing if the outcome of the call was already
    /// reported.
    ///
    /// If the call was sent, the engine keeps its memory registered until the reply arrives or
    /// [`EngineConfig::abandoned_call_timeout`](crate::engine::EngineConfig::abandoned_call_timeout) has passed. The
    /// call holds its credit until the peer replies.
    fn cancel_call(&mut self, id: CallId, now: Instant);

    /// Replies to a call. An [`EngineEvent::ReplySent`] follows. Does nothing if the call already has a reply.
    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply);

    /// Rejects a call with a transport error: [`TransportError::BadXdr`] if its chunks contain items that are not
    /// DDP-eligible (RFC 8166 §6.1), or [`TransportError::System`] if the call may have been executed but gets no RPC
    /// reply (RFC 2203 §5.3.3.1, §5.3.3.4). Version 1 reports both as ERR_CHUNK. A byte stream has no such error and
    /// sends no reply. An [`EngineEvent::ReplySent`] follows.
    fn reply_error(&mut self, token: ReplyToken, error: TransportError);

    /// Closes the connection gracefully for this reason. [`EngineEvent::Closed`] is the last event.
    fn close_with(&mut self, reason: CloseReason);

    /// Terminates the connection immediately, because the network lost it or the driver does not wait for a graceful
    /// close.
    fn connection_lost(&mut self, reason: DisconnectReason);

    /// Returns the reason why the connection was closed, or `None` while it is open. Memory may stay registered for a
    /// while after the connection was closed.
    fn close_reason(&self) -> Option<&CloseReason>;

    /// Handles all timeouts that have expired at `now`: deadlines of calls, and limits on the time that the peer may
    /// take.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) must be called, or `None` if no timeout is
    /// pending.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Processes pending work and posts it to the port.
    fn poll_work(&mut self, port: &mut Self::Port, now: Instant);

    /// Returns the next event, or `None` if there is none.
    fn poll_event(&mut self) -> Option<EngineEvent>;

    /// Returns the counters of the connection.
    fn counters(&self) -> ConnectionCounters {
        let mut counters = ConnectionCounters::default();
        self.copy_counters(&mut counters);
        counters
    }

    /// Copies the counters of the connection to `counters`.
    fn copy_counters(&self, counters: &mut ConnectionCounters);

    /// Returns the limits of the connection, as far as they have been negotiated.
    fn peer_limits(&self) -> PeerLimits {
        PeerLimits::default()
    }

    /// Returns `true` if a message of the peer has arrived in part: a call without the data of its Read chunks, a
    /// continued message, or a record of a byte stream. The rest is outstanding or waits for memory.
    #[doc(hidden)]
    fn is_receiving(&self) -> bool {
        false
    }

    /// Returns the connection's share of its server's memory budget. The connection may have to wait for memory from
    /// it.
    #[doc(hidden)]
    fn memory(&self) -> &MemoryShare;
}
