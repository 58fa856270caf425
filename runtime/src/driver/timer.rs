//! A timer that is rearmed rarely.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Instant,
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

    /// Sees to it that `cx` is woken at `due` or before.
    pub(crate) fn arm(&mut self, due: Option<Instant>, now: Instant, cx: &mut Context<'_>) {
        let Some(due) = due else { return };
        // Still set to the right side, and not yet fired.
        if self.armed.is_some_and(|armed| armed <= due && armed > now) {
            return;
        }
        let at = tokio::time::Instant::from_std(due);
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                sleep.as_mut().reset(at);
                sleep
            }
            None => self.sleep.insert(Box::pin(tokio::time::sleep_until(at))),
        };
        self.armed = Some(due);
        if let Poll::Ready(()) = sleep.as_mut().poll(cx) {
            self.armed = None;
            cx.waker().wake_by_ref();
        }
    }
}
