//! Callbacks to clients, over the connections that the clients opened (RFC 8167, RFC 5531 §11).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::net_support::{Running, Transport, eventually, in_step, over_each, over_each_in_step, timed};
use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, ChannelBuilder, ConnectError, Reconnect},
    config::ConnectionConfig,
    engine::Versions,
    error::{CallFailure, CloseReason},
    rpc::{AuthStat, Credential, RpcError},
    security::{AuthenticatedCaller, Authentication, Authenticator, ReceivedCall},
    server::{Context, HandlerError, Server, ServerBuilder},
};
use tokio::sync::Semaphore;

mod board {
    rpcrdma::xdr! {
        typedef opaque note<>;

        struct placed { @ddp opaque data<16000>; };

        /* Served by the server. */
        program BOARD {
            version BOARD_V1 {
                void         NULL(void) = 0;
                /* Calls back before it replies; returns the result of the callback. */
                unsigned int ASK(unsigned int) = 1;
                /* Stores the caller for later callbacks by POST. */
                void         WATCH(void) = 2;
                /* Calls the watchers back; returns how many accepted the note. */
                unsigned int POST(note) = 3;
                /* Like ASK, with an eligible item. */
                @reply_max(20000)
                note         SHOW(note) = 4;
                /* Calls back and does not wait for the result. */
                void         FORGET(void) = 5;
                @reply_max(100000)
                note         LARGE(unsigned int) = 6;
            } = 1;
        } = 0x20000501;

        /* Served by the client. */
        program READER {
            version READER_V1 {
                void         NULL(void) = 0;
                unsigned int ANSWER(unsigned int) = 1;
                void         NOTE(note) = 2;
                placed       VIEW(placed) = 3;
                /* Waits until the test opens the gate. */
                void         GATE(void) = 4;
                void         PANIC(void) = 5;
            } = 1;
        } = 0x20000502;
    }
}
use board::{
    Note, Placed,
    board_v1::{BoardV1, BoardV1Client, BoardV1Server},
    reader_v1::{ReaderV1, ReaderV1Client, ReaderV1Server},
};

#[derive(Default)]
struct State {
    readers: Mutex<Vec<ReaderV1Client>>,
    /// The last error of a callback that a handler has recorded.
    last: Mutex<Option<CallError>>,
}

impl State {
    fn last(&self) -> CallError {
        self.last.lock().unwrap().take().expect("no callback failed")
    }

    fn readers(&self) -> Vec<ReaderV1Client> {
        self.readers.lock().unwrap().clone()
    }
}

#[derive(Clone, Default)]
struct Board(Arc<State>);

impl Board {
    fn noted<T>(&self, result: Result<T, CallError>) -> Result<T, HandlerError> {
        result.map_err(|error| {
            let said = HandlerError::system(error.to_string());
            *self.0.last.lock().unwrap() = Some(error);
            said
        })
    }
}

impl BoardV1 for Board {
    async fn ask(&self, cx: &Context, n: u32) -> Result<u32, HandlerError> {
        let reader: ReaderV1Client = cx.callback();
        match n {
            0 => self.noted(reader.gate().await).map(|()| 0),
            1 => self.noted(reader.panic().await).map(|()| 1),
            _ => self.noted(reader.answer(n).await),
        }
    }

    async fn watch(&self, cx: &Context) -> Result<(), HandlerError> {
        self.0.readers.lock().unwrap().push(cx.callback());
        Ok(())
    }

    async fn post(&self, _cx: &Context, note: Note) -> Result<u32, HandlerError> {
        let mut told = 0;
        for reader in self.0.readers() {
            told += u32::from(reader.note(&note).await.is_ok());
        }
        Ok(told)
    }

    async fn show(&self, cx: &Context, note: Note) -> Result<Note, HandlerError> {
        let placed = self.noted(cx.callback::<ReaderV1Client>().view(&Placed { data: note.0 }).await)?;
        Ok(Note(placed.data))
    }

    async fn forget(&self, cx: &Context) -> Result<(), HandlerError> {
        let reader: ReaderV1Client = cx.callback();
        // The time limit drops the callback after it has been sent.
        let _ = tokio::time::timeout(Duration::from_millis(20), reader.gate()).await;
        Ok(())
    }

    async fn large(&self, _cx: &Context, len: u32) -> Result<Note, HandlerError> {
        Ok(Note(vec![1; len as usize].into()))
    }
}

struct Reader {
    notes: Mutex<Vec<Bytes>>,
    started: AtomicUsize,
    gate: Semaphore,
    /// Number of further ANSWER calls that call the server back before they reply.
    depth: AtomicU32,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            notes: Mutex::default(),
            started: AtomicUsize::new(0),
            gate: Semaphore::new(0),
            depth: AtomicU32::new(0),
        }
    }
}

struct Reading(Arc<Reader>);

impl ReaderV1 for Reading {
    async fn answer(&self, cx: &Context, n: u32) -> Result<u32, HandlerError> {
        let deeper = self.0.depth.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |depth| depth.checked_sub(1));
        if deeper.is_ok() {
            // The caller of a callback is the server, so this is a forward call again.
            return Ok(cx.callback::<BoardV1Client>().ask(n + 1).await?);
        }
        Ok(2 * n)
    }

    async fn note(&self, _cx: &Context, note: Note) -> Result<(), HandlerError> {
        self.0.notes.lock().unwrap().push(note.0);
        Ok(())
    }

    async fn view(&self, _cx: &Context, placed: Placed) -> Result<Placed, HandlerError> {
        Ok(Placed { data: placed.data.iter().rev().copied().collect::<Vec<u8>>().into() })
    }

    async fn gate(&self, _cx: &Context) -> Result<(), HandlerError> {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        self.0.gate.acquire().await?.forget();
        Ok(())
    }

    async fn panic(&self, _cx: &Context) -> Result<(), HandlerError> {
        panic!("the test's reader panics");
    }
}

struct Both {
    server: Running,
    board: Board,
    client: BoardV1Client,
    reader: Arc<Reader>,
}

fn reading(builder: ChannelBuilder) -> (ChannelBuilder, Arc<Reader>) {
    let reader = Arc::new(Reader::default());
    (builder.service(ReaderV1Server::new(Reading(Arc::clone(&reader)))), reader)
}

async fn both(transport: &Transport, server: ServerBuilder, channel: ChannelBuilder) -> Both {
    let board = Board::default();
    let server = transport.serve(server.service(BoardV1Server::new(board.clone()))).await;
    let (channel, reader) = reading(channel);
    let client = BoardV1Client::new(server.connect(channel).await);
    Both { server, board, client, reader }
}

async fn with_defaults(transport: &Transport) -> Both {
    both(transport, Server::builder(), Channel::builder()).await
}

fn note(text: impl Into<Bytes>) -> Note {
    Note(text.into())
}

fn failure(error: CallError) -> CallFailure {
    match error {
        CallError::Transport { failure, .. } => failure,
        other => panic!("{other}"),
    }
}

over_each! {
    both_ways_at_once stored_callback_stubs refusals deep sizes
}

over_each_in_step! { client_without_services abandoned_callbacks idle closing shutting_down reconnected }

/// 200 concurrent ASK calls succeed, each with a callback before its reply. Calls of LARGE with long results succeed
/// beside them.
async fn both_ways_at_once(transport: Transport) {
    let Both { client, reader, server, .. } = with_defaults(&transport).await;
    assert_eq!(client.ask(21).await.unwrap(), 42);
    let calls = (100..300).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            if n % 3 == 0 {
                let len = n * 50;
                assert_eq!(client.large(len).await.unwrap().0.len(), len as usize);
            }
            assert_eq!(client.ask(n).await.unwrap(), 2 * n);
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let counters = client.channel().counters();
    assert_eq!((counters.calls_received, counters.replies_sent), (201, 201));
    let counters = server.handle.connections()[0].counters;
    assert_eq!((counters.calls_sent, counters.replies_received, counters.calls_queued), (201, 201, 0));
    assert!(reader.notes.lock().unwrap().is_empty());
}

/// A server keeps its clients' callback stubs and calls them later. Callbacks to a disconnected client fail with a
/// typed error.
async fn stored_callback_stubs(transport: Transport) {
    let Both { client, reader, server, board } = with_defaults(&transport).await;
    let poster = BoardV1Client::new(server.connect(Channel::builder()).await);
    let (second, second_reader) = reading(Channel::builder());
    let second = BoardV1Client::new(server.connect(second).await);
    assert_eq!(poster.post(&note(b"early".as_slice())).await.unwrap(), 0);
    client.watch().await.unwrap();
    second.watch().await.unwrap();
    for text in ["one", "two"] {
        assert_eq!(poster.post(&note(text.as_bytes())).await.unwrap(), 2);
    }
    assert_eq!(*reader.notes.lock().unwrap(), ["one", "two"]);
    second.channel().close().await;
    eventually(|| server.handle.connections().len() == 2).await;
    assert_eq!(poster.post(&note(b"three".as_slice())).await.unwrap(), 1);
    assert_eq!((reader.notes.lock().unwrap().len(), second_reader.notes.lock().unwrap().len()), (3, 2));
    let gone = board.0.readers()[1].null().await.unwrap_err();
    assert!(gone.is_connection_loss() && gone.is_retry_safe(), "{gone}");
    assert!(matches!(failure(gone), CallFailure::Closed { sent: false, .. }));
    assert!(board.0.readers()[1].channel().close_reason().is_some());
    // Dropping the stubs closes no connection.
    board.0.readers.lock().unwrap().clear();
    assert_eq!(client.ask(3).await.unwrap(), 6);
}

/// Callbacks fail without support for the reverse direction (RFC 8167 §6). In version 1 and over TCP, a client without
/// services discards callbacks, and its connection still works. The server's callback times out (RFC 8167 §5.4). In
/// version 2, such a client announces that it accepts no callbacks. A server with zero reverse credits sends no
/// callbacks.
async fn client_without_services(transport: Transport) {
    let board = Board::default();
    let builder = Server::builder().callback_timeout(Duration::from_millis(50));
    let server = transport.serve(builder.service(BoardV1Server::new(board.clone()))).await;
    let client = BoardV1Client::new(server.connect(Channel::builder().versions(Versions::V1)).await);
    let error = client.ask(3).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::SystemError, .. }), "{error}");
    assert_eq!(failure(board.0.last()), CallFailure::DeadlineExceeded { sent: true });
    assert_eq!(client.channel().counters().messages_discarded, 1);
    client.null().await.unwrap();
    // RPC-over-RDMA v2 §5.2.5: in version 2 the client announces that it accepts no callbacks.
    if !matches!(transport, Transport::Tcp) {
        let client = BoardV1Client::new(server.connect(Channel::builder()).await);
        client.ask(3).await.unwrap_err();
        assert_eq!(failure(board.0.last()), CallFailure::ReverseNotSupported);
    }
    // A server without reverse-direction support reports that.
    let board = Board::default();
    let server = transport.serve(Server::builder().reverse_credits(0).service(BoardV1Server::new(board.clone()))).await;
    let (builder, _reader) = reading(Channel::builder());
    let client = BoardV1Client::new(server.connect(builder).await);
    client.ask(3).await.unwrap_err();
    assert_eq!(failure(board.0.last()), CallFailure::ReverseDisabled);
}

/// A server gets the errors with which a client refuses callbacks: a panic, an unknown program or version, and a
/// credential that the client's authenticator rejects.
async fn refusals(transport: Transport) {
    #[derive(Debug)]
    struct Suspicious;
    impl Authenticator for Suspicious {
        fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
            match Credential::from_opaque(&call.header.credential) {
                Ok(Credential::None) => Authentication::Rejected(AuthStat::AuthTooweak.into()),
                Ok(credential) => Authentication::Accepted(AuthenticatedCaller::new(credential)),
                Err(failure) => Authentication::Rejected(failure),
            }
        }
    }
    let rpc = |error| match error {
        CallError::Rpc { source, .. } => source,
        other => panic!("{other}"),
    };
    let Both { client, board, .. } = with_defaults(&transport).await;
    client.ask(1).await.unwrap_err();
    assert_eq!(rpc(board.0.last()), RpcError::SystemError);
    assert_eq!(client.ask(2).await.unwrap(), 4, "callback after a panic");
    client.watch().await.unwrap();
    let reader = board.0.readers().remove(0);
    let options = CallOptions::default;
    assert_eq!(rpc(reader.channel().call_null(77, 1, options()).await.unwrap_err()), RpcError::ProgramUnavailable);
    let mismatch = RpcError::ProgramMismatch { low: 1, high: 1 };
    assert_eq!(rpc(reader.channel().call_null(0x2000_0502, 7, options()).await.unwrap_err()), mismatch);

    // RFC 8167 §8: the client decides who may call back.
    let Both { client, board, .. } =
        both(&transport, Server::builder(), Channel::builder().authenticator(Suspicious)).await;
    client.ask(2).await.unwrap_err();
    assert_eq!(rpc(board.0.last()), RpcError::Authentication(AuthStat::AuthTooweak.into()));
    client.watch().await.unwrap();
    let credential = Credential::sys("server", 0, 0, []).to_opaque().unwrap();
    board.0.readers()[0].null_with(options().credential(credential)).await.unwrap();
}

/// Callbacks can time out and be dropped, without effect on other callbacks.
async fn abandoned_callbacks(transport: Transport) {
    let Both { client, board, reader, .. } = with_defaults(&transport).await;
    // Raises the number of credits: a peer that has not replied yet has one (RFC 8166 §3.3.3).
    assert_eq!(client.ask(2).await.unwrap(), 4);
    client.watch().await.unwrap();
    let back = board.0.readers().remove(0);
    let options = CallOptions::default().timeout(Duration::from_millis(30));
    let error = back.gate_with(options).await.unwrap_err();
    assert_eq!(failure(error), CallFailure::DeadlineExceeded { sent: true });
    client.forget().await.unwrap();
    assert_eq!(reader.started.load(Ordering::SeqCst), 2);
    assert_eq!(client.ask(4).await.unwrap(), 8);
    // The late replies are discarded.
    reader.gate.add_permits(2);
    eventually(|| back.channel().counters().calls_abandoned == 0).await;
    assert_eq!(client.ask(5).await.unwrap(), 10);
}

/// RFC 8167 §5.4: neither peer closes an idle connection while callbacks are expected on it. Once the server has
/// dropped its stubs, the connection is closed.
async fn idle(transport: Transport) {
    let idle = Duration::from_millis(40);
    let channel = Channel::builder().connection(ConnectionConfig::new().idle_timeout(idle));
    let Both { client, board, server, reader } = both(&transport, Server::builder().idle_timeout(idle), channel).await;
    client.watch().await.unwrap();
    tokio::time::sleep(4 * idle).await;
    assert_eq!(client.channel().close_reason(), None);
    board.0.readers()[0].note(&note(b"still there".as_slice())).await.unwrap();
    assert_eq!(reader.notes.lock().unwrap().len(), 1);
    // The server no longer expects to make callbacks.
    board.0.readers.lock().unwrap().clear();
    client.channel().closed().await;
    eventually(|| server.handle.connections().is_empty()).await;
}

/// A closing client still serves callbacks that its own calls depend on, but makes no new calls.
async fn closing(transport: Transport) {
    let Both { client, reader, .. } = with_defaults(&transport).await;
    // Until the first reply there is one credit.
    client.null().await.unwrap();
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.ask(0).await }
    });
    eventually(|| reader.started.load(Ordering::SeqCst) == 1).await;
    let later = tokio::spawn({
        let client = client.clone();
        async move { client.large(80_000).await }
    });
    later.await.unwrap().unwrap();
    let (closing, opening) = tokio::join!(
        async {
            client.channel().close().await;
            client.ask(3).await.unwrap_err()
        },
        async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            reader.gate.add_permits(1);
            asked.await.unwrap()
        }
    );
    assert_eq!(opening.unwrap(), 0);
    assert!(matches!(failure(closing), CallFailure::Closed { sent: false, .. }));
}

/// A server that shuts down waits for its callbacks until the end of the grace period. Clients then see the connection
/// close.
async fn shutting_down(transport: Transport) {
    let Both { client, reader, server, .. } = with_defaults(&transport).await;
    let asked = tokio::spawn({
        let client = client.clone();
        async move { client.ask(0).await }
    });
    eventually(|| reader.started.load(Ordering::SeqCst) == 1).await;
    server.handle.shutdown();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!server.task.is_finished());
    reader.gate.add_permits(1);
    assert_eq!(asked.await.unwrap().unwrap(), 0);
    server.task.await.unwrap();
    assert!(matches!(client.channel().closed().await, CloseReason::Disconnected(_)));

    let Both { client, reader, server, board } = with_defaults(&transport).await;
    let asked = tokio::spawn(async move { client.ask(0).await });
    eventually(|| reader.started.load(Ordering::SeqCst) == 1).await;
    server.handle.shutdown_within(Duration::from_millis(30));
    server.task.await.unwrap();
    assert!(asked.await.unwrap().unwrap_err().is_connection_loss());
    drop(board);
}

/// Handlers of both peers can call each other in turn, nested deeper than the initial credits. With one credit in each
/// direction, independent calls with callbacks still make progress.
async fn deep(transport: Transport) {
    let (server, channel) = (Server::builder().credits(8).reverse_credits(8), Channel::builder().credits(8));
    let Both { client, reader, .. } = both(&transport, server, channel.reverse_credits(8)).await;
    // Both peers have granted more than one credit by now.
    assert_eq!(client.ask(2).await.unwrap(), 4);
    reader.depth.store(5, Ordering::SeqCst);
    assert_eq!(client.ask(10).await.unwrap(), 2 * 15);
    // With one credit each, independent calls still make progress.
    let (server, channel) = (Server::builder().credits(1).reverse_credits(1), Channel::builder().credits(1));
    let Both { client, .. } = both(&transport, server, channel.reverse_credits(1)).await;
    let calls: Vec<_> = (10..60)
        .map(|n| {
            (
                n,
                tokio::spawn({
                    let client = client.clone();
                    async move { client.ask(n).await }
                }),
            )
        })
        .collect();
    for (n, call) in calls {
        assert_eq!(call.await.unwrap().unwrap(), 2 * n);
    }
}

/// Closing the channel of a callback stub leaves the connection open. After a reconnection, callbacks work as before
/// once the server has a new stub.
async fn reconnected(transport: Transport) {
    let channel = Channel::builder().reconnect(Reconnect::on_demand());
    let server = Server::builder().idle_timeout(Duration::from_millis(40));
    let Both { client, board, reader, .. } = both(&transport, server, channel).await;
    client.watch().await.unwrap();
    let old = board.0.readers.lock().unwrap().remove(0);
    old.null().await.unwrap();
    // Closing the callback channel closes nothing else.
    old.channel().close().await;
    old.null().await.unwrap_err();
    client.null().await.unwrap();
    // The connection becomes idle.
    drop(old);
    client.channel().closed().await;
    client.watch().await.unwrap();
    assert_eq!(client.post(&note(b"again".as_slice())).await.unwrap(), 1);
    assert_eq!(reader.notes.lock().unwrap().len(), 1);
}

/// RPC-over-RDMA v2 §4.5.4: callbacks can use chunks. Callbacks of up to 15999 bytes arrive intact, and the client
/// moves large eligible items by RDMA Read and RDMA Write.
#[tokio::test]
async fn sizes_in_version_2() {
    timed(async {
        let Both { client, server, .. } = with_defaults(&Transport::sim()).await;
        for len in [0, 1000, 2000, 3900, 5000, 15_999] {
            let text = note((0..len).map(|n| n as u8).collect::<Vec<_>>());
            assert!(client.show(&text).await.unwrap().0.iter().eq(text.0.iter().rev()));
        }
        assert_eq!(client.channel().info().version, Some(2));
        // The client fetched eligible arguments from the server's memory and wrote results into it.
        let fetched = client.channel().counters();
        assert!(
            fetched.rdma_read_bytes >= 3900 + 5000 + 15_999 && fetched.rdma_write_bytes >= fetched.rdma_read_bytes,
            "{fetched:?}"
        );
        assert_eq!(server.handle.connections()[0].counters.exposed_regions, 0);
    })
    .await;
}

/// RFC 8167 §5.3: a version 1 callback without chunks is limited to the inline threshold, and eligible items stay
/// inline. Longer callbacks fail before they are sent. Over TCP, a longer callback succeeds.
async fn sizes(transport: Transport) {
    let inline = !matches!(transport, Transport::Tcp);
    let Both { client, board, .. } =
        both(&transport, Server::builder(), Channel::builder().versions(Versions::V1)).await;
    for len in [0, 1, 1000, 2000, 3900] {
        let text = note((0..len).map(|n| n as u8).collect::<Vec<_>>());
        let shown = client.show(&text).await.unwrap_or_else(|error| panic!("{len}: {error}; {}", board.0.last()));
        assert!(shown.0.iter().eq(text.0.iter().rev()));
    }
    assert_eq!(client.channel().counters().rdma_read_bytes, 0);
    let long = client.show(&note(vec![7; 5000])).await;
    if inline {
        long.unwrap_err();
        let error = board.0.last();
        assert!(error.is_retry_safe());
        let len = 40 + 4 + 5000;
        assert_eq!(failure(error), CallFailure::ReverseTooLong { len, max: 4096 - 28 });
        // The connection still works.
        assert_eq!(client.ask(2).await.unwrap(), 4);
    } else {
        assert_eq!(long.unwrap().0, vec![7; 5000]);
    }
}

#[tokio::test]
async fn duplicate_service() {
    timed(async {
        let (transport, service) = (Transport::sim(), || ReaderV1Server::new(Reading(Arc::default())));
        let server = transport.serve(Server::builder().service(BoardV1Server::new(Board::default()))).await;
        let error = server.try_connect(Channel::builder().service(service()).service(service())).await.unwrap_err();
        assert!(matches!(error, ConnectError::DuplicateService { program: 0x2000_0502, version: 1 }), "{error}");
    })
    .await;
}
