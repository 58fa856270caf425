//! Callers of calls in flight: they may be polled late, by another runtime or executor, or not at all.
#![allow(missing_docs)]

mod net_support;

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

use net_support::{Running, Transport, eventually, over_each, timed};
use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    engine::CallFailure,
    server::{Context, Failure, Server},
};
use tokio::sync::Semaphore;

mod board {
    rpcrdma::xdr! {
        /* Served by the server. */
        program BOARD {
            version BOARD_V1 {
                void         NULL(void) = 0;
                /* Answered when the test ends. */
                void         HOLD(void) = 1;
                /* Keeps the caller, to tell it what others post. */
                void         WATCH(void) = 2;
                /* Tells those who watch; returns how many took it. */
                unsigned int POST(unsigned int) = 3;
                /* Calls back before it answers. */
                unsigned int ASK(unsigned int) = 4;
            } = 1;
        } = 0x20000501;

        /* Served by the client. */
        program READER {
            version READER_V1 {
                void         NULL(void) = 0;
                /* Takes so many milliseconds, by the clock of a tokio runtime. */
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
    async fn hold(&self, _cx: &Context) -> Result<(), Failure> {
        self.0.held.fetch_add(1, Ordering::SeqCst);
        self.0.gate.acquire().await?.forget();
        Ok(())
    }

    async fn watch(&self, cx: &Context) -> Result<(), Failure> {
        self.0.readers.lock().unwrap().push(cx.callback());
        Ok(())
    }

    async fn post(&self, _cx: &Context, n: u32) -> Result<u32, Failure> {
        let readers = self.0.readers.lock().unwrap().clone();
        let mut told = 0;
        for reader in readers {
            told += u32::from(reader.note(n).await.is_ok());
        }
        Ok(told)
    }

    async fn ask(&self, cx: &Context, n: u32) -> Result<u32, Failure> {
        Ok(cx.callback::<ReaderV1Client>().note(n).await?)
    }
}

/// How many notes have been begun, and how many finished.
#[derive(Default)]
struct Notes {
    begun: AtomicUsize,
    finished: AtomicUsize,
}

struct Reading(Arc<Notes>);

impl ReaderV1 for Reading {
    async fn note(&self, _cx: &Context, n: u32) -> Result<u32, Failure> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        if n > 0 {
            tokio::time::sleep(Duration::from_millis(n.into())).await;
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

/// A server, and a client of it that has called.
async fn both(transport: &Transport) -> Both {
    let board = Board::default();
    let server = transport.serve(Server::builder().service(BoardV1Server::new(board.clone()))).await;
    let notes = Arc::new(Notes::default());
    let builder = Channel::builder().serve(ReaderV1Server::new(Reading(Arc::clone(&notes))));
    let client = BoardV1Client::new(server.connect(builder).await);
    client.null().await.unwrap();
    Both { server, board, client, notes }
}

/// Polls a call until the server has it, and leaves it there.
async fn begin(mut call: std::pin::Pin<&mut impl Future>, board: &Board) {
    let arrived = eventually(|| board.0.held.load(Ordering::SeqCst) > 0);
    tokio::select! {
        _ = &mut call => panic!("nobody lets it go"),
        () = arrived => {}
    }
}

/// Runs a future as an executor does that knows nothing of tokio; `None` when it is not over in time.
fn block_on<F: Future>(future: F) -> Option<F::Output> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    let end = Instant::now() + Duration::from_secs(10);
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

/// Runs `body` in a thread of its own, and waits for it without keeping the runtime.
async fn elsewhere<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = std::thread::spawn(body);
    tokio::task::spawn_blocking(|| thread.join()).await.unwrap().expect("no panic")
}

over_each! {
    callback_to_a_caller_that_is_not_polled loss_with_a_caller_that_is_not_polled deadline_with_a_spent_budget
    disconnected_keeps_no_wakers callback_by_another_executor callback_by_a_runtime_that_goes_away
}

/// A call has been polled, and is not while its task waits for something else, as the arm of a `select!` that was not taken:
/// its connection goes on without it.
async fn callback_to_a_caller_that_is_not_polled(transport: Transport) {
    let Both { server, board, client, notes } = both(&transport).await;
    client.watch().await.unwrap();
    let poster = BoardV1Client::new(server.connect(Channel::builder()).await);
    poster.null().await.unwrap();
    let mut held = pin!(client.hold());
    begin(held.as_mut(), &board).await;
    let told = tokio::time::timeout(Duration::from_secs(10), poster.post(0)).await;
    assert_eq!(told.expect("the callback is served").unwrap(), 1);
    assert_eq!(notes.finished.load(Ordering::SeqCst), 1);
    // And the call is none the worse for it.
    board.0.gate.add_permits(1);
    held.await.unwrap();
}

/// The same of a server that goes away.
async fn loss_with_a_caller_that_is_not_polled(transport: Transport) {
    let Both { server, board, client, .. } = both(&transport).await;
    let mut held = pin!(client.hold());
    begin(held.as_mut(), &board).await;
    server.handle.shutdown_within(Duration::ZERO);
    let gone = tokio::time::timeout(Duration::from_secs(10), client.channel().disconnected()).await;
    gone.expect("the client notices that the server has gone");
    assert!(held.await.unwrap_err().is_connection_loss());
}

/// A deadline holds, whatever is left of its task's budget (`tokio::task::coop`) when a call is made: a task that takes message
/// after message from a queue, and calls for one of them, may have none.
async fn deadline_with_a_spent_budget(transport: Transport) {
    let Both { server, .. } = both(&transport).await;
    for spent in 122..=130 {
        let client = BoardV1Client::new(server.connect(Channel::builder().versions(1..=1)).await);
        client.null().await.unwrap();
        let called = tokio::spawn(async move {
            // Whatever the driver has been set to look at soon is over.
            tokio::time::sleep(Duration::from_millis(50)).await;
            // With the whole budget.
            tokio::task::yield_now().await;
            for _ in 0..spent {
                tokio::task::consume_budget().await;
            }
            let begun = Instant::now();
            let options = CallOptions::new().timeout(Duration::from_millis(20));
            // Polled once more if nothing else wakes it, it would find that it is late.
            let called = tokio::time::timeout(Duration::from_secs(10), client.hold_with(options)).await;
            (called.expect("over"), begun.elapsed())
        });
        let (called, took) = called.await.unwrap();
        assert!(took < Duration::from_secs(5), "a deadline was missed with {spent} of the budget spent");
        let error = called.unwrap_err();
        let failure = CallFailure::DeadlineExceeded { sent: true };
        assert!(matches!(&error, CallError::Transport { failure: why, .. } if *why == failure), "{error}");
    }
}

/// Who has stopped to wait for the end of a connection leaves nothing behind: a task for each request that waits for it besides
/// other things would else be kept as long as the connection.
async fn disconnected_keeps_no_wakers(transport: Transport) {
    struct Task;
    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }
    let Both { client, .. } = both(&transport).await;
    let task = Arc::new(Task);
    let waker = Waker::from(Arc::clone(&task));
    {
        let mut gone = pin!(client.channel().disconnected());
        assert!(gone.as_mut().poll(&mut TaskContext::from_waker(&waker)).is_pending());
        assert!(Arc::strong_count(&task) > 2, "somebody would wake it");
    }
    drop(waker);
    assert_eq!(Arc::strong_count(&task), 1);
}

/// Any executor may poll a call. A callback handler that starts meanwhile runs in the runtime that the connection was made
/// in.
async fn callback_by_another_executor(transport: Transport) {
    let Both { client, .. } = both(&transport).await;
    let answer = elsewhere(move || block_on(client.ask(7))).await;
    assert_eq!(answer.expect("in time").unwrap(), 7);
}

/// A call from a runtime that is there for that call only does not take a handler with it that it has begun.
async fn callback_by_a_runtime_that_goes_away(transport: Transport) {
    let Both { client, notes, board: _board, server: _server } = both(&transport).await;
    let asked = client.clone();
    let error = elsewhere(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(asked.ask_with(300, CallOptions::new().timeout(Duration::from_millis(100))))
    })
    .await
    .unwrap_err();
    assert!(matches!(error, CallError::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. }), "{error}");
    eventually(|| notes.begun.load(Ordering::SeqCst) == 1).await;
    eventually(|| notes.finished.load(Ordering::SeqCst) == 1).await;
    client.null().await.unwrap();
}
