//! The timer of a driver.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use tokio::time::Sleep;

/// A timer that wakes the driver when its earliest deadline is due.
///
/// Most calls move the earliest deadline to a later time. The sleep is reset only if a deadline is earlier. A sleep
/// that has become too early causes one spurious wake-up, and is then set again.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    sleep: Option<Pin<Box<Sleep>>>,
    armed: Option<Instant>,
}

impl Timer {
    /// Returns the current time of the runtime's clock, which tests may pause.
    pub(crate) fn now() -> Instant {
        tokio::time::Instant::now().into_std()
    }

    /// Arms the timer to wake `task`, the driver's task, at `due` or earlier. Must be called in that task. Does nothing
    /// if `due` is `None`.
    pub(crate) fn arm(&mut self, due: Option<Instant>, now: Instant, task: &Waker) {
        let Some(due) = due else { return };
        // The sleep ends early enough, and has not fired yet.
        if self.armed.is_some_and(|armed| armed <= due && armed > now) {
            return;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::ZERO)));
        sleep.as_mut().reset(due.into());
        self.armed = Some(due);
        // Unconstrained: if the task has used up its budget, the poll would not register the waker.
        let polled = std::pin::pin!(tokio::task::unconstrained(sleep.as_mut()));
        if polled.poll(&mut Context::from_waker(task)).is_ready() {
            task.wake_by_ref();
        }
    }
}
