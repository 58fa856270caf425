//! The runtimes that serve the connections of a server.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::provider::SetupError;

/// Time within which a runtime must start the set-up of a connection. After that, another runtime gets the connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of timers that make up [`PATIENCE`]. If the whole process is suspended, only one of the timers elapses
/// meanwhile, so that no runtime counts as stalled.
const PATIENCE_TIMERS: u32 = 10;

/// Interval at which the server looks for a runtime while all of them are stalled.
const RETRY: Duration = Duration::from_millis(50);

async fn patience() {
    for _ in 0..PATIENCE_TIMERS {
        sleep(PATIENCE / PATIENCE_TIMERS).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The runtimes of a server, in the order in which they were given.
pub(super) struct Runtimes {
    all: Vec<Arc<ServingRuntime>>,
    /// The first candidate for the next connection. Locked while a runtime is chosen.
    next: Mutex<usize>,
}

/// A runtime that serves connections.
struct ServingRuntime {
    index: usize,
    handle: Handle,
    /// Number of connections, including those in set-up.
    connections: AtomicUsize,
    /// `true` if the runtime did not start the task of a new connection in time, and has run no such task since.
    is_stalled: AtomicBool,
    has_ended: AtomicBool,
}

/// The place of a connection in its runtime. The runtime counts the connection until this value is dropped.
pub(super) struct RuntimeShare(Arc<ServingRuntime>);

impl RuntimeShare {
    /// Returns the number of the runtime, from 0 in the order in which the runtimes were given.
    pub(super) fn index(&self) -> usize {
        self.0.index
    }
}

impl Drop for RuntimeShare {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The reason why a connection was not set up: the set-up failed, or no runtime of the server could execute it.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandOverError {
    #[error(transparent)]
    SetUp(#[from] SetupError),
    #[error("all runtimes of the server have ended")]
    AllEnded,
    #[error("all runtimes of the server were busy for {0:?}")]
    AllStalled(Duration),
    #[error("the runtime of the connection has ended")]
    Ended,
    #[error("the set-up panicked")]
    Panicked,
}

/// The result of the choice of a runtime.
enum Choice {
    Runtime(RuntimeShare),
    AllStalled,
    AllEnded,
}

/// A task that is aborted when this value is dropped.
struct AbortOnDrop<T>(Option<JoinHandle<T>>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

impl Runtimes {
    /// Creates the runtimes in the order of `handles`. Returns `None` if there are no handles.
    pub(super) fn new(handles: Vec<Handle>) -> Option<Self> {
        let runtime = |(index, handle)| {
            Arc::new(ServingRuntime {
                index,
                handle,
                connections: AtomicUsize::new(0),
                is_stalled: AtomicBool::new(false),
                has_ended: AtomicBool::new(false),
            })
        };
        let all: Vec<_> = handles.into_iter().enumerate().map(runtime).collect();
        (!all.is_empty()).then(|| Self { all, next: Mutex::new(0) })
    }

    /// Chooses the runtime with the fewest connections. If several have the same number, they take turns.
    fn choose(&self) -> Choice {
        let mut next = lock(&self.next);
        let (before, after) = self.all.split_at(*next);
        let mut running = after.iter().chain(before).filter(|runtime| !runtime.has_ended.load(Ordering::Relaxed));
        // A stalled runtime has few connections because it gets none.
        let ready = running.clone().filter(|runtime| !runtime.is_stalled.load(Ordering::Relaxed));
        match ready.min_by_key(|runtime| runtime.connections.load(Ordering::Relaxed)) {
            Some(runtime) => {
                runtime.connections.fetch_add(1, Ordering::Relaxed);
                *next = (runtime.index + 1) % self.all.len();
                Choice::Runtime(RuntimeShare(Arc::clone(runtime)))
            }
            None if running.next().is_some() => Choice::AllStalled,
            None => Choice::AllEnded,
        }
    }

    /// Sets a connection up in one of the runtimes: runs `set_up` there. A runtime that has ended, or that does not
    /// begin in time, is passed over. Fails if no runtime begins within `limit`, if all runtimes have ended, or if the
    /// set-up fails, panics or is dropped with its runtime. Dropping the future aborts the set-up.
    pub(super) async fn run<C, F>(
        &self,
        mut connection: C,
        limit: Duration,
        set_up: impl Fn(C, RuntimeShare) -> F + Clone + Send + 'static,
    ) -> Result<(), HandOverError>
    where
        C: Send + 'static,
        F: Future<Output = Result<(), SetupError>> + Send + 'static,
    {
        let started = Instant::now();
        loop {
            let share = match self.choose() {
                Choice::Runtime(share) => share,
                Choice::AllStalled if started.elapsed() < limit => {
                    sleep(RETRY).await;
                    continue;
                }
                Choice::AllStalled => return Err(HandOverError::AllStalled(limit)),
                Choice::AllEnded => return Err(HandOverError::AllEnded),
            };
            let runtime = Arc::clone(&share.0);
            // The runtime takes the connection from here when it begins. Otherwise, another runtime can get it.
            let waiting = Arc::new(Mutex::new(Some(connection)));
            let (started, has_started) = oneshot::channel();
            let task = runtime.handle.spawn({
                let (waiting, set_up) = (Arc::clone(&waiting), set_up.clone());
                async move {
                    share.0.resumed();
                    let taken = lock(&waiting).take();
                    let Some(connection) = taken else { return Ok(()) };
                    // The receiver may have been dropped.
                    let _ = started.send(());
                    set_up(connection, share).await
                }
            });
            let mut task = AbortOnDrop(Some(task));
            let in_time = tokio::select! {
                biased;
                _ = has_started => true,
                () = patience() => false,
            };
            let taken_back = lock(&waiting).take();
            match taken_back {
                Some(back) => connection = back,
                None => return task.outcome().await,
            }
            if !in_time {
                runtime.stalled();
                // Runs when the runtime does, and finds no connection.
                task.0 = None;
            } else {
                self.ended(&runtime);
            }
        }
    }

    /// Records that `runtime` has ended, because it dropped a task.
    fn ended(&self, runtime: &ServingRuntime) {
        if runtime.has_ended.swap(true, Ordering::Relaxed) {
            return;
        }
        if self.all.iter().all(|runtime| runtime.has_ended.load(Ordering::Relaxed)) {
            tracing::error!(target: "rpcrdma", "all runtimes of the server have ended, rejecting connections");
        } else {
            tracing::warn!(target: "rpcrdma", runtime = runtime.index, "a runtime of the server has ended, using the others");
        }
    }
}

impl ServingRuntime {
    fn stalled(&self) {
        if !self.is_stalled.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "rpcrdma",
                runtime = self.index,
                "a runtime of the server did not begin with a connection within {PATIENCE:?}, using the others: do not block its threads"
            );
        }
    }

    fn resumed(&self) {
        if self.is_stalled.swap(false, Ordering::Relaxed) {
            tracing::info!(target: "rpcrdma", runtime = self.index, "a runtime of the server runs again");
        }
    }
}

impl AbortOnDrop<Result<(), SetupError>> {
    /// Waits for the end of the task. Returns the result of the set-up.
    async fn outcome(mut self) -> Result<(), HandOverError> {
        let Some(task) = &mut self.0 else { return Err(HandOverError::Ended) };
        match task.await {
            Ok(outcome) => outcome.map_err(HandOverError::SetUp),
            Err(error) if error.is_panic() => Err(HandOverError::Panicked),
            Err(_) => Err(HandOverError::Ended),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{future::pending, thread};

    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::trace::log::Log;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Returns a runtime that runs only while the test drives it.
    fn idle() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    fn counts(runtimes: &Runtimes) -> Vec<usize> {
        runtimes.all.iter().map(|runtime| runtime.connections.load(Ordering::Relaxed)).collect()
    }

    /// Runs a set-up that completes as soon as a runtime executes it. Returns the index of that runtime or the error,
    /// and the time that passed.
    async fn set_up(runtimes: &Runtimes) -> (Result<usize, HandOverError>, Duration) {
        let (start, chosen) = (Instant::now(), Arc::new(Mutex::new(None)));
        let set_up = {
            let chosen = Arc::clone(&chosen);
            move |(), share: RuntimeShare| {
                *lock(&chosen) = Some(share.index());
                async { Ok(()) }
            }
        };
        let outcome = runtimes.run((), LIMIT, set_up).await;
        (outcome.map(|()| lock(&chosen).unwrap()), start.elapsed())
    }

    /// A runtime that does not begin in time is passed over until it runs again. If there is no other runtime, a
    /// connection waits for it up to the limit, and then fails.
    #[tokio::test(start_paused = true)]
    async fn stalled_runtimes_are_passed_over() {
        assert!(Runtimes::new(Vec::new()).is_none());
        let mut stalled = idle();
        let runtimes = Runtimes::new(vec![stalled.handle().clone(), Handle::current()]).unwrap();
        for _ in 0..2 {
            for waited in [PATIENCE, Duration::ZERO, Duration::ZERO] {
                let (index, elapsed) = set_up(&runtimes).await;
                assert_eq!((index.unwrap(), elapsed), (1, waited));
            }
            // The share is returned when the runtime finds no connection.
            assert_eq!(counts(&runtimes), [1, 0]);
            let run = move || {
                stalled.block_on(async {
                    for _ in 0..9 {
                        tokio::task::yield_now().await;
                    }
                });
                stalled
            };
            stalled = thread::spawn(run).join().unwrap();
            assert_eq!(counts(&runtimes), [0, 0]);
            // The next connection goes to the runtime that runs again, whose turn it is.
        }
        let alone = Runtimes::new(vec![stalled.handle().clone()]).unwrap();
        for _ in 0..2 {
            let (outcome, elapsed) = set_up(&alone).await;
            assert!(matches!(outcome, Err(HandOverError::AllStalled(LIMIT))), "{outcome:?}");
            assert_eq!(elapsed, LIMIT);
        }
        stalled.shutdown_background();
    }

    /// Runtimes with the same number of connections take turns. A runtime that has ended gets no connections.
    #[tokio::test(start_paused = true)]
    async fn runtimes_take_turns_and_end() {
        let runtimes = Runtimes::new(vec![Handle::current(), Handle::current(), Handle::current()]).unwrap();
        for expected in [0, 1, 2, 0, 1] {
            assert_eq!(set_up(&runtimes).await.0.unwrap(), expected);
        }
        let kept: Vec<_> = (0..4)
            .map(|_| match runtimes.choose() {
                Choice::Runtime(share) => share,
                _ => panic!("no runtime"),
            })
            .collect();
        assert_eq!(counts(&runtimes), [1, 1, 2]);
        drop(kept);
        assert_eq!(counts(&runtimes), [0, 0, 0]);

        let ended = idle();
        let runtimes = Runtimes::new(vec![ended.handle().clone(), Handle::current()]).unwrap();
        let alone = Runtimes::new(vec![ended.handle().clone()]).unwrap();
        ended.shutdown_background();
        for _ in 0..3 {
            let (index, elapsed) = set_up(&runtimes).await;
            assert_eq!((index.unwrap(), elapsed), (1, Duration::ZERO));
            let (outcome, elapsed) = set_up(&alone).await;
            assert!(matches!(outcome, Err(HandOverError::AllEnded)) && elapsed.is_zero(), "{outcome:?}");
        }
        assert_eq!((counts(&runtimes), counts(&alone)), (vec![0, 0], vec![0]));
    }

    /// The causes of a failed set-up are distinguished. A set-up whose waiter is dropped is aborted.
    #[tokio::test(start_paused = true)]
    async fn set_ups_fail() {
        let runtimes = Runtimes::new(vec![Handle::current()]).unwrap();
        let failed = runtimes.run((), LIMIT, |(), _share| async { Err(SetupError::TimedOut(LIMIT)) }).await;
        assert!(matches!(failed, Err(HandOverError::SetUp(SetupError::TimedOut(LIMIT)))), "{failed:?}");
        let panicked = runtimes.run((), LIMIT, |(), _share| async { panic!("the set-up panics") }).await;
        assert!(matches!(panicked, Err(HandOverError::Panicked)), "{panicked:?}");
        let hanging = runtimes.run((), LIMIT, |(), share| async move {
            let _share = share;
            pending().await
        });
        assert!(tokio::time::timeout(LIMIT, hanging).await.is_err());
        tokio::task::yield_now().await;
        assert_eq!(counts(&runtimes), [0]);
    }

    /// The end of each runtime is reported once, and the end of the last runtime by another message.
    #[test]
    fn ends_are_reported() {
        Log::of(|log| {
            let (first, second) = (idle(), idle());
            let runtimes = Runtimes::new([&first, &second].map(|runtime| runtime.handle().clone()).into()).unwrap();
            for (index, expected) in [
                (0, &["a runtime of the server has ended, using the others"][..]),
                (0, &[]),
                (1, &["all runtimes of the server have ended, rejecting connections"]),
                (1, &[]),
            ] {
                runtimes.ended(&runtimes.all[index]);
                assert_eq!(log.take_messages(), expected);
            }
        });
    }
}
