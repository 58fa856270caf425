//! Execution of blocking and CPU-intensive work outside the async worker threads.

use tokio::{runtime::Handle, task::JoinHandle};

use crate::random;

/// Runs `work` on a thread for blocking work. In a simulation, runs it in a task, so that the single thread of the
/// simulation determines the order of all events.
pub(crate) fn spawn<T: Send + 'static>(runtime: &Handle, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if random::is_seeded() { runtime.spawn(async move { work() }) } else { runtime.spawn_blocking(work) }
}
