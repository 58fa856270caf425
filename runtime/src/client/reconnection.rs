//! The attempts of a pool to reconnect its members. Calls wait for these attempts if no member is connected.

use std::sync::Arc;

use super::sync::{AtomicBool, Changes, Ordering};

/// The state of the attempts to connect one member again.
#[derive(Debug, Default)]
pub(super) struct ReconnectionState {
    is_running: AtomicBool,
}

impl ReconnectionState {
    /// Begins an attempt. Returns `None` if one is already running.
    pub(super) fn begin(self: &Arc<Self>, changes: &Arc<Changes>) -> Option<Reconnection> {
        let is_running = self.is_running.swap(true, Ordering::AcqRel);
        (!is_running).then(|| Reconnection { state: Arc::clone(self), changes: Arc::clone(changes) })
    }
}

/// A running attempt. Dropping it ends the attempt and wakes the calls that wait.
#[derive(Debug)]
pub(super) struct Reconnection {
    state: Arc<ReconnectionState>,
    changes: Arc<Changes>,
}

impl Drop for Reconnection {
    fn drop(&mut self) {
        // Before the calls are woken: one that finds the connection lost again begins the next attempt, or waits for
        // this wake.
        self.state.is_running.store(false, Ordering::Release);
        self.changes.notify();
    }
}
