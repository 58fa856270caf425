//! Sources of events that hardly ever have one, and so are looked at only when they have said so.
//!
//! A connection is polled for each of its messages. What its connection manager and its device report comes a few times in
//! its life, but to ask costs as much each time as to ask for completions.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

/// Says whether one of the sources that were polled with its waker has woken since.
pub(super) struct Rare {
    woken: Arc<Woken>,
    waker: Waker,
    /// The `task` of `woken`, which changes here only.
    task: Waker,
}

struct Woken {
    is: AtomicBool,
    /// Who is woken in turn.
    task: Mutex<Waker>,
}

impl Rare {
    /// One whose sources have not been looked at yet.
    pub(super) fn new() -> Self {
        let task = Waker::noop().clone();
        let woken = Arc::new(Woken { is: AtomicBool::new(true), task: Mutex::new(task.clone()) });
        Self { waker: Waker::from(Arc::clone(&woken)), woken, task }
    }

    /// The waker to poll the sources with, all of them until they are pending, if one of them may have something. From now on
    /// they wake `cx`.
    pub(super) fn look(&mut self, cx: &Context<'_>) -> Option<Waker> {
        if !self.task.will_wake(cx.waker()) {
            self.task.clone_from(cx.waker());
            self.woken.task().clone_from(cx.waker());
        }
        // After that: what wakes in between wakes the one, or is seen here. It is mostly not set, and read for less than it is
        // exchanged for.
        let woken = self.woken.is.load(Ordering::Acquire) && self.woken.is.swap(false, Ordering::AcqRel);
        woken.then(|| self.waker.clone())
    }
}

impl Woken {
    fn task(&self) -> std::sync::MutexGuard<'_, Waker> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is.store(true, Ordering::Release);
        let task = self.task().clone();
        task.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn looked_at_when_woken_and_by_whoever_polls_last() {
        let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let (one, other) = (Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&last)));
        let mut rare = Rare::new();
        let source = rare.look(&Context::from_waker(&one)).expect("nobody has looked yet");
        assert!(rare.look(&Context::from_waker(&one)).is_none());
        assert!(rare.look(&Context::from_waker(&other)).is_none());
        source.wake_by_ref();
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
        assert!(rare.look(&Context::from_waker(&other)).is_some());
        assert!(rare.look(&Context::from_waker(&other)).is_none());
    }
}
