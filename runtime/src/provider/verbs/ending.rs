//! How a connection ends: what tells, what is waited for, and what is left.

use std::{
    future::Future,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    connection::{Phase, VerbsQueuePair},
    device_events::DeviceEvent,
    ffi::rdma_cm_event_type as cm_event,
    queue::{Kind, Op},
};
use crate::provider::{Completion, DisconnectReason, QueuePair as _};

/// How long what was posted may take to go out without progress, once the connection is to be closed.
const LINGER: Duration = Duration::from_secs(2);

/// How long the device may take to flush a queue pair that has failed.
const FLUSH: Duration = Duration::from_secs(1);

/// How long to wait for the reason why an iWARP queue pair failed: it comes apart from the flushed requests.
const REASON: Duration = Duration::from_millis(200);

impl VerbsQueuePair {
    /// The connection ends; only the first reason counts.
    pub(super) fn end(&mut self, reason: DisconnectReason) {
        if !self.is_open() {
            return;
        }
        // What this end was about to close anyway, it closed.
        let reason = if self.phase == Phase::Draining && reason == DisconnectReason::Remote {
            DisconnectReason::Local
        } else {
            reason
        };
        tracing::debug!(%reason, "the connection ends");
        self.phase = Phase::Ending(reason);
        self.limit = None;
        if let Err(error) = self.id.disconnect() {
            tracing::debug!(%error, "disconnect");
        }
        if let Some(qp) = &self.qp {
            qp.fail();
        }
    }

    /// Everything is flushed, or has had the time: the queue pair goes, and nobody can access anything any more.
    pub(super) fn finish(&mut self) {
        let Phase::Ending(reason) = &self.phase else { return };
        let reason = reason.clone();
        self.phase = Phase::Closed;
        self.limit = None;
        self.device_events = None;
        self.exposures.free_windows();
        self.qp = None;
        self.receives.clear();
        self.queue.abandon();
        self.tell();
        self.done.push(Completion::Disconnected { reason });
    }

    /// What comes by the connection manager, and from the device. `true` if it has changed something.
    pub(super) fn poll_events(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(waker) = self.rare.look(cx) else { return false };
        let cx = &mut Context::from_waker(&waker);
        let mut changed = false;
        while let Some(Poll::Ready(event)) = self.device_events.as_ref().map(|events| events.poll(cx)) {
            let reason = match event {
                DeviceEvent::Fatal => DisconnectReason::Transport(format!("device {} failed", self.limits.name).into()),
                DeviceEvent::CompletionsLost => DisconnectReason::Transport("completions were lost".into()),
                DeviceEvent::PeerViolation => DisconnectReason::PeerViolation("the device refused its request".into()),
                // `siw` says so where the header of what arrives is wrong.
                DeviceEvent::QueuePairFailed if self.limits.iwarp => {
                    DisconnectReason::PeerViolation("the device refused its request".into())
                }
                DeviceEvent::QueuePairFailed => DisconnectReason::Transport("the queue pair failed".into()),
            };
            // Messages that came before, and a better reason, if a request's completion has one.
            self.drain();
            self.end(reason);
            changed = true;
        }
        while let Poll::Ready(event) = self.events.poll(cx) {
            let reason = match event {
                Ok(event) => match event.kind {
                    cm_event::RDMA_CM_EVENT_DISCONNECTED => {
                        // Messages that came before.
                        self.drain();
                        match &self.qp {
                            // A fabric's queue pair fails by itself only where the peer asks for what it may not have; it is
                            // not touched by the peer's disconnecting.
                            Some(qp) if !self.limits.iwarp && self.phase == Phase::Open && qp.is_in_error() => {
                                DisconnectReason::PeerViolation("the queue pair failed at a request of its".into())
                            }
                            _ => DisconnectReason::Remote,
                        }
                    }
                    cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                        DisconnectReason::Transport(format!("device {} was removed", self.limits.name).into())
                    }
                    _ => continue,
                },
                Err(error) => DisconnectReason::Transport(error.into()),
            };
            self.end(reason);
            changed = true;
        }
        changed
    }

    /// What is due in the phase the connection is in. `true` if it has changed something.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = match self.phase {
            Phase::Open if self.suspect => REASON,
            Phase::Draining => LINGER,
            Phase::Ending(_) => FLUSH,
            Phase::Open | Phase::Closed => return false,
        };
        match self.phase {
            Phase::Draining if self.queue.is_posted() && self.queue.in_device() == 0 => {
                self.end(DisconnectReason::Local);
                return true;
            }
            Phase::Draining if self.queue.is_posted() && self.queue.is_untold() => {
                self.queue.push(None, Kind::Own, Op::Marker);
                self.flush();
                return true;
            }
            Phase::Ending(_) if self.queue.in_device() == 0 && self.receives.is_empty() => {
                self.finish();
                return true;
            }
            _ => {}
        }
        let fresh = self.limit.is_none();
        let timer = self.limit.get_or_insert_with(|| Box::pin(sleep(limit)));
        if fresh || self.progress != self.queue.retired() {
            self.progress = self.queue.retired();
            timer.as_mut().reset(tokio::time::Instant::now() + limit);
        }
        if timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.limit = None;
        match self.phase {
            Phase::Open => self.end(DisconnectReason::Transport("the queue pair failed".into())),
            Phase::Draining => self.end(DisconnectReason::Local),
            Phase::Ending(_) => self.finish(),
            Phase::Closed => {}
        }
        true
    }
}
