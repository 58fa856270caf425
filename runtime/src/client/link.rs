//! The connection of a channel.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use super::{error::ConnectError, retry::NetworkPath};
use crate::{
    config::xid_seed,
    driver::{DriverCommand, DriverPort, PendingCall, ProbedProgram},
    engine::{CallFailure, CloseReason, IncomingReply, OutgoingCall},
    provider::DisconnectReason,
    session::ChannelInfo,
    transport::{Scheme, Transport},
};

/// The connection of a channel, with the state that the channel keeps for it.
pub(super) struct ChannelLink {
    /// `true` if the channel owns the connection. An owned connection is closed when the link is dropped.
    pub(super) is_owned: bool,
    pub(super) port: Arc<DriverPort>,
    pub(super) info: ChannelInfo,
    /// `true` if the peers negotiate the version, until the outcome has been read after the first reply.
    pub(super) negotiates: AtomicBool,
    /// XID of the next sealed call that has no XID from [`OutboundCall::xid`](super::call::OutboundCall::xid).
    pub(super) sealed_xid: AtomicU32,
    /// The rank of the connection's path among the paths of the channel. 0 is the best.
    rank: AtomicUsize,
    /// The scheme of the connection's URL, if it has one.
    pub(super) scheme: Option<Scheme>,
    opened: tokio::time::Instant,
    /// `true` once [`has_served`](Self::has_served) has returned `true`.
    has_served: AtomicBool,
    /// `true` once [`fate`](Self::fate) has been called after the end of the connection.
    is_fate_known: AtomicBool,
}

/// The outcome of a connection that has ended.
pub(super) enum LinkFate {
    /// The server had replied to a call before the connection ended.
    Served,
    /// The connection was closed before the first reply. The time is when the connection was made.
    Unserved(ConnectError, tokio::time::Instant),
}

impl ChannelLink {
    /// Creates the link of a connection that the channel does not own. `negotiates` is `true` if the peers negotiate
    /// the version of RPC-over-RDMA.
    pub(super) fn new(port: Arc<DriverPort>, info: ChannelInfo, negotiates: bool) -> Self {
        Self {
            is_owned: false,
            port,
            info,
            negotiates: negotiates.into(),
            sealed_xid: xid_seed().into(),
            rank: AtomicUsize::new(0),
            scheme: None,
            opened: tokio::time::Instant::now(),
            has_served: AtomicBool::new(false),
            is_fate_known: AtomicBool::new(false),
        }
    }

    /// Makes the channel the owner of the connection, which it has dialed.
    pub(super) fn dialed(mut self, scheme: Option<Scheme>) -> Self {
        (self.is_owned, self.scheme) = (true, scheme);
        self
    }

    /// Makes a call, and waits until the server has replied with any status. Fails if there is no reply within
    /// `timeout`, or if the connection is closed before the reply.
    pub(super) async fn answered(self: Arc<Self>, timeout: Duration) -> Result<Arc<Self>, ConnectError> {
        // A program that no server has is refused, which is an answer too.
        let mut call = ProbedProgram::default().null_call();
        call.deadline = tokio::time::Instant::now().into_std().checked_add(timeout);
        let deadline = call.deadline;
        let reason = match self.send(call, deadline).await {
            Err(CallFailure::DeadlineExceeded { .. }) => CloseReason::Silent(timeout),
            Err(CallFailure::Closed { reason, .. }) => reason,
            _ => return Ok(self),
        };
        Err(ConnectError::Closed { peer: self.info.peer_addr, reason, sent: false })
    }

    /// Returns the rank of the connection's path among the paths of the channel. 0 is the best.
    pub(super) fn rank(&self) -> usize {
        self.rank.load(Ordering::Relaxed)
    }

    /// Sets the rank of the connection's path among the paths of the channel.
    pub(super) fn set_rank(&self, rank: usize) {
        self.rank.store(rank, Ordering::Relaxed);
    }

    /// Creates the placeholder of a channel that has not connected yet: a connection that is already closed.
    pub(super) fn unconnected(transport: Transport) -> Self {
        let port = Arc::new(DriverPort::new(1));
        port.close(&CloseReason::Disconnected(DisconnectReason::Local));
        Self::new(port, ChannelInfo::unconnected(transport), false).dialed(None)
    }

    /// Returns the outcome of the connection once it has ended. Returns `None` while the connection is open, and if the
    /// outcome has already been returned. Also returns `None` for a connection without a reply if the channel closed
    /// it, or if the close reason explains enough by itself.
    pub(super) fn fate(&self) -> Option<LinkFate> {
        let reason = self.port.close_reason()?;
        if self.is_fate_known.swap(true, Ordering::Relaxed) {
            return None;
        }
        if self.has_served() {
            return Some(LinkFate::Served);
        }
        // The connection, and not a call, is what failed.
        Some(LinkFate::Unserved(self.closed(&reason, false)?, self.opened))
    }

    /// Returns `true` if the server has replied to a call.
    pub(super) fn has_served(&self) -> bool {
        // The counters are behind a lock.
        if self.has_served.load(Ordering::Relaxed) {
            return true;
        }
        let has_served = self.port.counters().replies_received > 0;
        self.has_served.store(has_served, Ordering::Relaxed);
        has_served
    }

    /// Returns the error of a connection that ended before the first reply. `None` if `reason` shows that the channel
    /// closed the connection, or explains enough by itself. `sent` is `true` if the call that failed was sent.
    fn closed(&self, reason: &CloseReason, sent: bool) -> Option<ConnectError> {
        match reason {
            CloseReason::Disconnected(DisconnectReason::Local)
            | CloseReason::Idle(_)
            | CloseReason::NegotiationFailed { versions: Some(_), .. } => None,
            reason => Some(ConnectError::Closed { peer: self.info.peer_addr, reason: reason.clone(), sent }),
        }
    }

    /// Returns the error of a call that failed because the server closed the connection, or the transport failed,
    /// before the first reply to any call. Returns `None` for other failures.
    pub(super) fn unserved(&self, failure: &CallFailure) -> Option<ConnectError> {
        match failure {
            CallFailure::Closed {
                reason: reason @ CloseReason::Disconnected(DisconnectReason::Remote | DisconnectReason::Transport(_)),
                sent,
            } if !self.has_served() => self.closed(reason, *sent),
            _ => None,
        }
    }

    /// Returns a nonzero XID for a sealed call.
    pub(super) fn sealed_xid(&self) -> u32 {
        match self.sealed_xid.fetch_add(1, Ordering::Relaxed) {
            0 => self.sealed_xid.fetch_add(1, Ordering::Relaxed),
            xid => xid,
        }
    }

    /// Returns the addresses by which a duplicate request cache recognizes a call on the connection.
    pub(super) fn path(&self) -> NetworkPath {
        NetworkPath { local: self.info.local_addr.ip(), peer: self.info.peer_addr }
    }

    /// Waits for a free slot until `deadline`, sends a call, and waits for its reply.
    pub(super) async fn send(
        &self,
        call: OutgoingCall,
        deadline: Option<Instant>,
    ) -> Result<IncomingReply, CallFailure> {
        let permit = match self.port.try_reserve() {
            Some(permit) => permit,
            None => match within(deadline, self.port.reserve()).await {
                Some(permit) => permit?,
                None => return Err(CallFailure::DeadlineExceeded { sent: false }),
            },
        };
        let mut parts = Some((permit, call));
        let started = poll_fn(|cx| match parts.take() {
            Some((permit, call)) => Poll::Ready(PendingCall::start(&self.port, permit, call, cx)),
            None => Poll::Pending,
        });
        started.await?.await
    }
}

impl Drop for ChannelLink {
    fn drop(&mut self) {
        if self.is_owned {
            self.port.send(DriverCommand::Disconnect);
        } else {
            self.port.let_go();
        }
    }
}

/// Returns the time until `deadline`, or zero if it has passed. `None` stands for no deadline.
pub(super) fn time_left(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|deadline| deadline.saturating_duration_since(tokio::time::Instant::now().into_std()))
}

/// Returns the output of `future`, or `None` if `deadline` passes first.
pub(super) async fn within<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline.into(), future).await.ok(),
        None => Some(future.await),
    }
}
