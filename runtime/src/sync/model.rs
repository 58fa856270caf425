//! The primitives of `shuttle`, which tries random interleavings of threads.
//!
//! A thread can be interrupted before each use of these primitives. The primitives of tokio are not modeled, so that
//! each of their functions runs without interruption.

// Parts of `changes` are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code)]

#[path = "changes.rs"]
mod changes;

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, LazyLock},
    task::Poll,
};

use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    sync::futures::Notified,
};

pub(crate) use std::sync::PoisonError;

#[cfg(feature = "discover")]
pub(crate) use shuttle::sync::atomic::{AtomicU8, AtomicU16, AtomicU32};
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

pub(crate) use self::changes::Changes;

/// The `Notify` of tokio. A thread can be interrupted before each use of it.
#[derive(Debug, Default)]
pub(crate) struct Notify {
    notify: tokio::sync::Notify,
    uses: AtomicUsize,
}

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        self.uses.fetch_add(1, Ordering::SeqCst);
        self.notify.notified()
    }

    pub(crate) fn notify_waiters(&self) {
        self.uses.fetch_add(1, Ordering::SeqCst);
        self.notify.notify_waiters();
    }
}

/// Number of schedules that a test tries with each of two schedulers.
const SCHEDULES: usize = 500;

/// Runs `test` in many interleavings of its threads. A lost wake-up ends in a deadlock, which `shuttle` reports with
/// the schedule that led to it.
pub(crate) fn check(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let pct = Arc::clone(&test);
    shuttle::check_random(move || test(), SCHEDULES);
    shuttle::check_pct(move || pct(), SCHEDULES, 3);
}

/// Enters a tokio runtime whose time does not pass, and whose tasks do not run.
pub(crate) fn enter_runtime() -> EnterGuard<'static> {
    // Never dropped, which would wake threads of a test that has failed.
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Builder::new_current_thread().enable_time().start_paused(true).build().unwrap());
    RUNTIME.enter()
}

/// Polls a future up to `polls` times, and drops it. Returns `None` if it is still pending.
pub(crate) async fn give_up<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..polls {
        let polled = poll_fn(|cx| {
            Poll::Ready(match future.as_mut().poll(cx) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        });
        let output = polled.await;
        if output.is_some() {
            return output;
        }
        shuttle::future::yield_now().await;
    }
    None
}
