//! Readiness of event sources that rarely have events, to avoid polling them without need.
//!
//! A connection is polled for each of its messages. The connection manager and the device report events only a few
//! times per connection, but polling them each time would cost as much as polling for completions.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// The record of whether one of several event sources had an event since they were last polled.
pub(super) struct EventReadiness {
    state: Arc<WakeState>,
    waker: Waker,
    /// A copy of the waker in `state`, which can be compared without a lock. Only this object changes the two wakers.
    task: Waker,
}

struct WakeState {
    is_woken: AtomicBool,
    /// The waker of the task that is woken whenever a source has an event.
    task: Mutex<Waker>,
}

impl EventReadiness {
    /// Creates a record for sources that have not been polled yet.
    pub(super) fn new() -> Self {
        let task = Waker::noop().clone();
        let state = Arc::new(WakeState { is_woken: AtomicBool::new(true), task: Mutex::new(task.clone()) });
        Self { waker: Waker::from(Arc::clone(&state)), state, task }
    }

    /// Returns the waker for polling the sources if one of them may have an event. The caller must then poll all of
    /// them until they are pending. From now on, the sources wake the task of `cx`.
    pub(super) fn take_ready(&mut self, cx: &Context<'_>) -> Option<Waker> {
        if !self.task.will_wake(cx.waker()) {
            self.task.clone_from(cx.waker());
            self.state.task().clone_from(cx.waker());
        }
        // This follows the update of the task: a source that wakes in between either wakes the new task or is seen
        // here. The load is cheaper than the swap, and the flag is rarely set.
        let woken = self.state.is_woken.load(Ordering::Acquire) && self.state.is_woken.swap(false, Ordering::AcqRel);
        woken.then(|| self.waker.clone())
    }
}

impl WakeState {
    fn task(&self) -> std::sync::MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for WakeState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        let task = self.task().clone();
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_the_last_task_that_polled() {
        let (first, last) = (Arc::new(WakeCount::default()), Arc::new(WakeCount::default()));
        let (one, other) = (Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&last)));
        let mut readiness = EventReadiness::new();
        let source = readiness.take_ready(&Context::from_waker(&one)).expect("the sources were not polled yet");
        assert!(readiness.take_ready(&Context::from_waker(&one)).is_none());
        assert!(readiness.take_ready(&Context::from_waker(&other)).is_none());
        source.wake_by_ref();
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
        assert!(readiness.take_ready(&Context::from_waker(&other)).is_some());
        assert!(readiness.take_ready(&Context::from_waker(&other)).is_none());
    }
}
