//! Futures of calls in flight may be polled late, by another runtime or executor, or not at all.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context as TaskContext, Poll, Wake, Waker},
    thread::Thread,
    time::{Duration, Instant},
};

use crate::net_support::{Running, Transport, eventually, in_step, over_each, over_each_in_step, timed};
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    engine::Versions,
    error::CallFailure,
    server::{Context, HandlerError, Server},
};
use tokio::sync::Semaphore;

mod board {
    rpcrdma::xdr! {
        /* Served by the server. */
        program BOARD {
            version BOARD_V1 {
                void         NULL(void) = 0;
                /* Replies when the test ends. */
                void         HOLD(void) = 1;
                /* Stores the caller for later callbacks by POST. */
                void         WATCH(void) = 2;
                /* Calls the watchers back; returns how many accepted the note. */
                unsigned int POST(unsigned int) = 3;
                /* Calls back before it replies. */
                unsigned int ASK(unsigned int) = 4;
            } = 1;
        } = 0x20000501;

        /* Served by the client. */
        program READER {
            version READER_V1 {
                void         NULL(void) = 0;
                /* Takes this many milliseconds, measured by a tokio runtime. */
                unsigned int NOTE(unsigned int) = 1;
            } = 1;
        } = 0x20000502;
    }
}
use board::{
    board_v1::{BoardV1, BoardV1Client, BoardV1Server},
    reader_v1::{ReaderV1, ReaderV1Client, ReaderV1Server},
};

struct State {
    readers: Mutex<Vec<ReaderV1Client>>,
    held: AtomicUsize,
    gate: Semaphore,
}

impl Default for State {
    fn default() -> Self {
        Self { readers: Mutex::default(), held: AtomicUsize::new(0), gate: Semaphore::new(0) }
    }
}

#[derive(Clone, Default)]
struct Board(Arc<State>);

impl BoardV1 for Board {
    async fn hold(&self, _cx: &Context) -> Result<(), HandlerError> {
        self.0.held.fetch_add(1, Ordering::SeqCst);
        self.0.gate.acquire().await?.forget();
        Ok(())
    }

    async fn watch(&self, cx: &Context) -> Result<(), HandlerError> {
        self.0.readers.lock().unwrap().push(cx.callback());
        Ok(())
    }

    async fn post(&self, _cx: &Context, n: u32) -> Result<u32, HandlerError> {
        let readers = self.0.readers.lock().unwrap().clone();
        let mut told = 0;
        for reader in readers {
            told += u32::from(reader.note(n).await.is_ok());
        }
        Ok(told)
    }

    async fn ask(&self, cx: &Context, n: u32) -> Result<u32, HandlerError> {
        Ok(cx.callback::<ReaderV1Client>().note(n).await?)
    }
}

/// The number of a note whose handler waits for a permit.
const HELD: u32 = 9;

/// The numbers of started and finished notes, and the permits for [`HELD`].
struct Notes {
    started: AtomicUsize,
    finished: AtomicUsize,
    gate: Semaphore,
}

struct Reading(Arc<Notes>);

impl ReaderV1 for Reading {
    async fn note(&self, _cx: &Context, n: u32) -> Result<u32, HandlerError> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        if n > 0 {
            // Needs the timers of a runtime.
            tokio::time::sleep(Duration::from_millis(n.into())).await;
        }
        if n == HELD {
            self.0.gate.acquire().await?.forget();
        }
        self.0.finished.fetch_add(1, Ordering::SeqCst);
        Ok(n)
    }
}

struct Both {
    server: Running,
    board: Board,
    client: BoardV1Client,
    notes: Arc<Notes>,
}

/// Starts a server and a client that has made a call.
async fn both(transport: &Transport) -> Both {
    let board = Board::default();
    let server = transport.serve(Server::builder().service(BoardV1Server::new(board.clone()))).await;
    let notes = Notes { started: AtomicUsize::new(0), finished: AtomicUsize::new(0), gate: Semaphore::new(0) };
    let notes = Arc::new(notes);
    let builder = Channel::builder().service(ReaderV1Server::new(Reading(Arc::clone(&notes))));
    let client = BoardV1Client::new(server.connect(builder).await);
    client.null().await.unwrap();
    Both { server, board, client, notes }
}

/// Polls a call of HOLD until its handler has started, then stops polling.
async fn begin(mut call: std::pin::Pin<&mut impl Future>, board: &Board) {
    let arrived = eventually(|| board.0.held.load(Ordering::SeqCst) > 0);
    tokio::select! {
        _ = &mut call => panic!("held call finished"),
        () = arrived => {}
    }
}

/// Runs a future on an executor unrelated to tokio. Returns `None` after a minute.
fn block_on<F: Future>(future: F) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            return Some(output);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

/// Runs `body` in a new thread, and waits for it without blocking the runtime.
async fn elsewhere<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(body);
    tokio::task::spawn_blocking(|| thread.join()).await.unwrap().expect("thread panicked")
}

over_each! {
    callback_to_a_caller_that_is_not_polled loss_with_a_caller_that_is_not_polled closed_keeps_no_wakers
    callback_by_another_executor callback_by_a_runtime_that_goes_away
}

over_each_in_step! { deadline_with_a_spent_budget }

/// A connection makes progress while the future of a call on it is not polled, as in a `select!` whose other branch was
/// chosen.
async fn callback_to_a_caller_that_is_not_polled(transport: Transport) {
    let Both { server, board, client, notes } = both(&transport).await;
    client.watch().await.unwrap();
    let poster = BoardV1Client::new(server.connect(Channel::builder()).await);
    poster.null().await.unwrap();
    let mut held = pin!(client.hold());
    begin(held.as_mut(), &board).await;
    assert_eq!(poster.post(0).await.unwrap(), 1);
    assert_eq!(notes.finished.load(Ordering::SeqCst), 1);
    // The call still completes.
    board.0.gate.add_permits(1);
    held.await.unwrap();
}

/// A call whose future is not polled fails when the server closes the connection.
async fn loss_with_a_caller_that_is_not_polled(transport: Transport) {
    let Both { server, board, client, .. } = both(&transport).await;
    let mut held = pin!(client.hold());
    begin(held.as_mut(), &board).await;
    server.handle.shutdown_within(Duration::ZERO);
    client.channel().closed().await;
    assert!(held.await.unwrap_err().is_connection_loss());
}

/// Deadlines hold even if the task's cooperative budget (`tokio::task::coop`) is used up when the call is made. That
/// can happen in a task that takes messages from a queue.
async fn deadline_with_a_spent_budget(transport: Transport) {
    const HANG: Duration = Duration::from_secs(60);
    let Both { server, .. } = both(&transport).await;
    for spent in 122..=130 {
        let client = BoardV1Client::new(server.connect(Channel::builder().versions(Versions::V1)).await);
        client.null().await.unwrap();
        let called = tokio::spawn(async move {
            // Let all pending work of the driver finish.
            tokio::time::sleep(Duration::from_millis(50)).await;
            // Start with the full budget.
            tokio::task::yield_now().await;
            for _ in 0..spent {
                tokio::task::consume_budget().await;
            }
            let begun = tokio::time::Instant::now();
            let options = CallOptions::new().timeout(Duration::from_millis(20));
            // The outer timeout is long: the deadline must wake the call by itself.
            let called = tokio::time::timeout(HANG, client.hold_with(options)).await;
            (called.expect("deadline did not wake the call"), begun.elapsed())
        });
        let (called, took) = called.await.unwrap();
        assert!(took < HANG, "deadline missed with {spent} of the budget used");
        let error = called.unwrap_err();
        let failure = CallFailure::DeadlineExceeded { sent: true };
        assert!(matches!(&error, CallError::Transport { failure: why, .. } if *why == failure), "{error}");
    }
}

/// Dropping the future of [`Channel::closed`] releases its waker. Otherwise, a task that selects on this future for
/// each request would be kept as long as the connection.
async fn closed_keeps_no_wakers(transport: Transport) {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let Both { client, .. } = both(&transport).await;
    let task = Arc::new(Task);
    let waker = Waker::from(Arc::clone(&task));
    {
        let mut gone = pin!(client.channel().closed());
        assert!(gone.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
        assert!(Arc::strong_count(&task) > 2, "waker not registered");
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&task), 1);
}

/// Any executor may poll a call. A callback handler that starts meanwhile runs in the runtime that opened the
/// connection.
async fn callback_by_another_executor(transport: Transport) {
    let Both { client, .. } = both(&transport).await;
    let answer = elsewhere(move || block_on(client.ask(7))).await;
    assert_eq!(answer.expect("timed out").unwrap(), 7);
}

/// A callback handler outlives the runtime of the call during which it started.
async fn callback_by_a_runtime_that_goes_away(transport: Transport) {
    let Both { client, notes, board: _board, server: _server } = both(&transport).await;
    let (asked, seen) = (client.clone(), Arc::clone(&notes));
    elsewhere(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::select! {
                answer = asked.ask(HELD) => panic!("held callback finished: {answer:?}"),
                () = eventually(|| seen.started.load(Ordering::SeqCst) == 1) => {}
            }
        });
    })
    .await;
    assert_eq!(notes.finished.load(Ordering::SeqCst), 0);
    notes.gate.add_permits(1);
    eventually(|| notes.finished.load(Ordering::SeqCst) == 1).await;
    client.null().await.unwrap();
}
