//! The connection of a channel.

use std::{
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
    time::{Duration, Instant},
};

use super::retry::NetworkPath;
use crate::{
    driver::{DriverCommand, DriverPort, PendingCall},
    engine::{CallFailure, CloseReason, IncomingReply, OutgoingCall},
    provider::DisconnectReason,
    session::ChannelInfo,
    transport::Transport,
};

/// The connection of a channel.
pub(super) struct ChannelLink {
    /// `true` if the channel owns the connection. An owned connection is closed with its last link.
    pub(super) is_owned: bool,
    pub(super) port: Arc<DriverPort>,
    pub(super) info: ChannelInfo,
    /// `true` until the outcome of version negotiation has been read, after the first reply.
    pub(super) negotiates: AtomicBool,
    /// XID of the next sealed call.
    pub(super) sealed_xid: AtomicU32,
}

impl ChannelLink {
    /// Creates the placeholder of a channel that has not connected yet: a connection that is already closed.
    pub(super) fn unconnected(transport: Transport) -> Self {
        let port = Arc::new(DriverPort::new(1));
        port.close(&CloseReason::Disconnected(DisconnectReason::Local));
        Self {
            is_owned: true,
            port,
            info: ChannelInfo::unconnected(transport),
            negotiates: false.into(),
            sealed_xid: 0.into(),
        }
    }

    /// Returns an XID for a sealed call. It is not 0.
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

    /// Waits for a free slot, sends a call, and waits for its reply.
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

/// Returns the time until `deadline`.
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
