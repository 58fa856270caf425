//! The interface of an engine, which its driver and tests use.

use std::time::Instant;

use super::{
    CallId, CloseReason, ConnectionCounters, EngineEvent, OutgoingCall, OutgoingReply, Properties, ReplyToken,
};
use crate::{memory::MemoryShare, provider::DisconnectReason};

/// The limits that apply to a connection now, as far as both ends have agreed on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PeerLimits {
    /// Version of RPC-over-RDMA, once it is certain. A byte stream has none.
    pub version: Option<u32>,
    /// Whether both ends announced support for Send with Invalidate (RFC 8797 §4.1).
    pub remote_invalidation: bool,
    /// Properties of the peer, once the exchange is complete (RPC-over-RDMA v2 §5).
    pub properties: Option<Properties>,
    /// Longest message in bytes that is sent inline: 0 for a byte stream.
    pub send_threshold: u32,
    /// Longest message in bytes that the peer sends inline: 0 for a byte stream.
    pub receive_threshold: u32,
}

impl PeerLimits {
    /// Whether the limits will not change any more.
    pub(crate) fn is_final(&self) -> bool {
        match self.version {
            None => false,
            Some(1) => true,
            Some(_) => self.properties.is_some(),
        }
    }
}

/// One connection of a protocol that carries calls: a state machine without a socket, a clock or a thread.
///
/// [`Connection`](super::Connection) implements RPC-over-RDMA,
/// [`StreamConnection`](super::stream::StreamConnection) RPC over a byte stream.
///
/// Calls and replies, input from the network and the time go in. Work for the port, output for the network and [`EngineEvent`]s come
/// out. The order of calls is: any of [`start_call`](Self::start_call), [`cancel_call`](Self::cancel_call),
/// [`reply`](Self::reply), [`reply_error`](Self::reply_error), [`close_with`](Self::close_with),
/// [`handle_timeout`](Self::handle_timeout) and the engine's own input methods; then [`poll_work`](Self::poll_work), which does
/// what is due; then [`poll_event`](Self::poll_event) until `None`; then wait for input, until
/// [`poll_timeout`](Self::poll_timeout), or for a user, and start again.
pub trait Engine {
    /// The port that the engine posts its work to: a queue pair. A byte stream has none; its driver takes the output.
    type Port: ?Sized;

    /// Makes a call: in the forward direction at the end that connected, in the reverse direction at the other.
    ///
    /// Calls go out in the order of making, when the connection is ready for calls and there is a credit. An
    /// [`EngineEvent::CallFinished`] follows in any case.
    fn start_call(&mut self, call: OutgoingCall) -> CallId;

    /// Gives a call up, which then fails with [`CallFailure::Cancelled`](super::CallFailure::Cancelled). Does nothing if its
    /// outcome is known already.
    ///
    /// The engine keeps the memory of a call that was sent, and its place among the calls in flight, until the reply comes or
    /// [`EngineConfig::abandon_grace`](super::EngineConfig::abandon_grace) is over.
    fn cancel_call(&mut self, id: CallId, now: Instant);

    /// Replies to a call. An [`EngineEvent::ReplySent`] follows. Does nothing if the call has been answered already.
    fn reply(&mut self, token: ReplyToken, reply: OutgoingReply);

    /// Refuses a call by an error of the transport: its chunks stand for items that are not DDP-eligible (RFC 8166 §6.1). A byte
    /// stream has no such error, and does not answer. An [`EngineEvent::ReplySent`] follows.
    fn reply_error(&mut self, token: ReplyToken);

    /// Closes the connection in order, for this reason. [`EngineEvent::Closed`] comes last.
    fn close_with(&mut self, reason: CloseReason);

    /// Ends the connection at once: the network has lost it, or is not waited for.
    fn connection_lost(&mut self, reason: DisconnectReason);

    /// Returns why the connection is over, once it is. Memory may still be being taken back.
    fn close_reason(&self) -> Option<&CloseReason>;

    /// Acts on everything that is due at `now`: deadlines of calls, and limits on how long the peer may take.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Does the work that is due, and posts it to the port.
    fn poll_work(&mut self, port: &mut Self::Port, now: Instant);

    /// Returns the next event.
    fn poll_event(&mut self) -> Option<EngineEvent>;

    /// Returns the counters.
    fn counters(&self) -> ConnectionCounters;

    /// Returns the limits that apply now.
    fn peer_limits(&self) -> PeerLimits {
        PeerLimits::default()
    }

    /// Returns the connection's share of the memory of its server, which it may have to wait for.
    #[doc(hidden)]
    fn memory(&self) -> &MemoryShare;
}
