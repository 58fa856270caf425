//! Closing of a connection: its causes, the waits, and the cleanup.

use std::{
    future::Future,
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::sleep;

use super::{
    connection::{VerbsPhase, VerbsQueuePair},
    device_events::DeviceEvent,
    ffi::rdma_cm_event_type as cm_event,
    queue::{PostedKind, VerbsOp},
    removed_devices::close_removed_devices,
};
use crate::provider::{Completion, DisconnectReason, QueuePair as _};

/// Time limit without progress for sending posted requests after a disconnect was requested.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit without progress for the device to flush a failed queue pair.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Time to wait for the cause after an iWARP queue pair has failed, because it is reported separately from the flushed
/// requests.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(200);

impl VerbsQueuePair {
    /// Starts to end the connection. Does nothing if the end has started before, so that only the first cause counts.
    pub(super) fn end(&mut self, reason: DisconnectReason) {
        if !self.is_open() {
            return;
        }
        // If the local side is already closing, it counts as the closing side.
        let reason = if self.phase == VerbsPhase::Draining && reason == DisconnectReason::Remote {
            DisconnectReason::Local
        } else {
            reason
        };
        tracing::debug!(%reason, "connection is ending");
        self.phase = VerbsPhase::Ending(reason);
        self.limit = None;
        if let Err(error) = self.id.disconnect() {
            tracing::debug!(%error, "failed to disconnect");
        }
        if let Some(qp) = &self.qp {
            qp.fail();
        }
    }

    /// Destroys the queue pair, after which the peer cannot access any memory, and completes all requests. Called when
    /// all requests are flushed, the time limit has expired, an invalidation has failed, or the completion queue has
    /// failed. Does nothing if the connection is not ending.
    pub(super) fn finish(&mut self) {
        let VerbsPhase::Ending(reason) = &self.phase else { return };
        let reason = reason.clone();
        self.phase = VerbsPhase::Closed;
        self.limit = None;
        self.device_events = None;
        self.exposures.free_windows();
        self.qp = None;
        self.queues.clear();
        self.queue.abandon();
        self.report_completions();
        self.done.push(Completion::Disconnected { reason });
    }

    /// Processes events of the connection manager and the device. Returns `true` if the state has changed.
    pub(super) fn poll_events(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(waker) = self.event_readiness.take_ready(cx) else { return false };
        let cx = &mut Context::from_waker(&waker);
        let mut changed = false;
        while let Some(Poll::Ready(event)) = self.device_events.as_ref().map(|events| events.poll(cx)) {
            let reason = match event {
                DeviceEvent::Fatal => {
                    DisconnectReason::Transport(format!("RDMA device {} failed", self.limits.name).into())
                }
                DeviceEvent::ReceivesDone => {
                    self.queues.set_receives_done();
                    changed = true;
                    continue;
                }
                DeviceEvent::ReceivesFailed => DisconnectReason::Transport("the shared receive queue failed".into()),
                DeviceEvent::CompletionsLost => DisconnectReason::Transport("the completion queue overflowed".into()),
                DeviceEvent::PeerViolation => {
                    DisconnectReason::PeerViolation("the device refused a request of the peer".into())
                }
                // `siw` reports this event if the header of an incoming segment is invalid.
                DeviceEvent::QueuePairFailed if self.limits.iwarp => {
                    DisconnectReason::PeerViolation("the device refused a request of the peer".into())
                }
                DeviceEvent::QueuePairFailed => DisconnectReason::Transport("the queue pair failed".into()),
            };
            // A completion may give a more precise cause.
            self.drain_earlier();
            self.end(reason);
            changed = true;
        }
        while let Poll::Ready(event) = self.events.poll(cx) {
            let reason = match event {
                Ok(event) => match event.kind {
                    cm_event::RDMA_CM_EVENT_DISCONNECTED => {
                        self.drain_earlier();
                        match &self.qp {
                            // An InfiniBand or RoCE queue pair fails on its own only if the peer requests a forbidden
                            // operation. The peer's disconnect does not change its state.
                            Some(qp) if !self.limits.iwarp && self.phase == VerbsPhase::Open && qp.is_in_error() => {
                                DisconnectReason::PeerViolation("the queue pair failed on a request of the peer".into())
                            }
                            _ => DisconnectReason::Remote,
                        }
                    }
                    cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                        close_removed_devices();
                        DisconnectReason::Transport(format!("RDMA device {} was removed", self.limits.name).into())
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

    /// Processes the completions that the device reported before an event, so that no message from before the end of
    /// the connection is lost.
    fn drain_earlier(&mut self) {
        self.queues.distribute_all();
        self.drain();
    }

    /// Advances the current phase. Returns `true` if the state has changed.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> bool {
        let limit = match self.phase {
            VerbsPhase::Open if self.awaits_cause => CAUSE_TIMEOUT,
            VerbsPhase::Draining => DRAIN_TIMEOUT,
            VerbsPhase::Ending(_) => FLUSH_TIMEOUT,
            VerbsPhase::Open | VerbsPhase::Closed => return false,
        };
        match self.phase {
            VerbsPhase::Draining if self.queue.is_posted() && self.queue.in_device() == 0 => {
                self.end(DisconnectReason::Local);
                return true;
            }
            VerbsPhase::Draining if self.queue.is_posted() && self.queue.has_unsignaled() => {
                self.queue.push(None, PostedKind::Own, VerbsOp::Marker);
                self.flush();
                return true;
            }
            VerbsPhase::Ending(_) if self.queue.in_device() == 0 && self.queues.are_receives_flushed() => {
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
            VerbsPhase::Open => self.end(DisconnectReason::Transport("the queue pair failed".into())),
            VerbsPhase::Draining => self.end(DisconnectReason::Local),
            VerbsPhase::Ending(_) => self.finish(),
            VerbsPhase::Closed => {}
        }
        true
    }
}
