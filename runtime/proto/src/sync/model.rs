//! The primitives of `shuttle`, which tries random interleavings of threads.

use std::sync::Arc;

pub(crate) use std::sync::PoisonError;

pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// Number of schedules that a test tries with each of two schedulers.
const SCHEDULES: usize = 300;

/// Runs `test` in many interleavings of its threads. A lost wake-up ends in a deadlock, which `shuttle` reports with
/// the schedule that led to it.
pub(crate) fn check(test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let pct = Arc::clone(&test);
    shuttle::check_random(move || test(), SCHEDULES);
    shuttle::check_pct(move || pct(), SCHEDULES, 3);
}
