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
/// Deadlines move with every call, mostly later. The sleep is changed only if a deadline is earlier. A sleep that has become too
/// early wakes the driver once for nothing, and is then set again.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

impl Timer {
    /// Returns the time of the runtime's clock, which tests may pause.
    pub(crate) fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Wakes `task`, the driver's task, at `due` or earlier. Called in that task.
    pub(crate) fn arm(&mut self, due: Option<Instant>, now: Instant, task: &Waker) {
        let Some(due) = due else { return };
        // Set early enough, and not fired yet.
        if self.armed.is_some_and(|armed| armed <= due && armed > now) {
            return;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::ZERO)));
        sleep.as_mut().reset(due.into());
        self.armed = Some(due);
        // Unconstrained: a task that has spent its budget would set the sleep without being woken by it.
        let polled = std::pin::pin!(tokio::task::unconstrained(sleep.as_mut()));
        if polled.poll(&mut Context::from_waker(task)).is_ready() {
            task.wake_by_ref();
        }
    }
}
