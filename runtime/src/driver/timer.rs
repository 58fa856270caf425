//! A timer that is rearmed rarely.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

/// Wakes the driver when its earliest deadline is due.
///
/// Deadlines move with every call, mostly later. The sleep is touched only when a deadline is earlier than it: one that
/// has become too early wakes the driver once for nothing, and is then set anew.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

impl Timer {
    /// The time as the runtime has it, which tests may have paused.
    pub(crate) fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Must be called within the runtime, before [`arm`](Self::arm) may be called anywhere.
    pub(crate) fn prepare(&mut self) {
        self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::ZERO)));
    }

    /// Whether the time it is set to has come.
    pub(crate) fn is_due(&self) -> bool {
        self.armed.is_some_and(|armed| armed <= Self::now())
    }

    /// Sees to it that `task`, the same each time, is woken at `due` or before.
    pub(crate) fn arm(&mut self, due: Option<Instant>, now: Instant, task: &Waker) {
        let (Some(due), Some(sleep)) = (due, &mut self.sleep) else { return };
        // Still set to the right side, and not yet fired.
        if self.armed.is_some_and(|armed| armed <= due && armed > now) {
            return;
        }
        sleep.as_mut().reset(due.into());
        self.armed = Some(due);
        // Whatever is left of the budget of the task that polls: without any, the sleep would be set, and wake nobody.
        let polled = std::pin::pin!(tokio::task::unconstrained(sleep.as_mut()));
        if polled.poll(&mut Context::from_waker(task)).is_ready() {
            task.wake_by_ref();
        }
    }
}
