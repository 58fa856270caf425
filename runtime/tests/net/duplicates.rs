//! The duplicate request cache of a server, and channels that send calls again.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::cut::CutProxy;
use crate::insecure_test_mechanism::InsecureTestMechanism;
use crate::net_support::{eventually, spawn_server, timed};
use crate::proxy::{Direction, Proxy};
use rpcrdma::{
    client::{CallError, Channel, ChannelBuilder, Reconnect},
    gss::{GssAuthenticator, GssSecurity},
    provider::{
        Connected, Connector, SetupError, SetupParams,
        iwarp::{IwarpConfig, IwarpConnector, IwarpQueuePair},
    },
    rpc::{Credential, RpcError},
    security::ProtectionLevel,
    server::{
        BindError, Context, DuplicateRequests, HandlerError, RecordedReply, ReplyStore, RequestKey, Server,
        ServerBuilder, ServerHandle, StoreFuture,
    },
    service::ProcedureId,
};
use tokio::sync::Semaphore;

mod ledger {
    rpcrdma::xdr! {
        struct entry { unsigned int amount; @ddp(max = 1048576) opaque note<>; };
        struct page { unsigned int number; @ddp(max = 1048576) opaque contents<>; unsigned int left; };

        program LEDGER {
            version LEDGER_V1 {
                unsigned hyper ADD(entry) = 1;
                page TAKE(unsigned int) = 2;
                @idempotent unsigned hyper TOTAL(void) = 3;
                unsigned int FAIL(unsigned int) = 4;
            } = 1;
        } = 0x20000009;
    }
}
use ledger::{
    Entry, Page,
    ledger_v1::{Add, Fail, LedgerV1, LedgerV1Client, LedgerV1Server, PROGRAM},
};

/// Arguments of `FAIL`. If the call is the first that the ledger executes, the argument selects its outcome: a failure,
/// a result without an effect, or both. Later calls succeed.
const PANIC: u32 = 0;
const SYSTEM: u32 = 1;
const UNAVAILABLE: u32 = 2;
const NO_EFFECT: u32 = 3;
const SYSTEM_WITHOUT_EFFECT: u32 = 4;

/// The state of the service, which tests inspect.
#[derive(Debug)]
struct State {
    /// One permit for each call that may go on.
    gate: Semaphore,
    started: AtomicU32,
    executed: AtomicU32,
    total: Mutex<u64>,
    keys: Mutex<Vec<RequestKey>>,
}

#[derive(Debug, Clone)]
struct Ledger(Arc<State>);

impl Ledger {
    fn new() -> Self {
        let (gate, started, executed) = (Semaphore::new(0), AtomicU32::new(0), AtomicU32::new(0));
        Self(Arc::new(State { gate, started, executed, total: Mutex::default(), keys: Mutex::default() }))
    }

    async fn gate(&self, cx: &Context) {
        self.0.started.fetch_add(1, Ordering::SeqCst);
        self.0.keys.lock().unwrap().extend(cx.request_key().cloned());
        self.0.gate.acquire().await.unwrap().forget();
        self.0.executed.fetch_add(1, Ordering::SeqCst);
    }

    fn executed(&self) -> u32 {
        self.0.executed.load(Ordering::SeqCst)
    }

    async fn wait_started(&self, n: u32) {
        eventually(|| self.0.started.load(Ordering::SeqCst) >= n).await;
    }
}

impl LedgerV1 for Ledger {
    async fn add(&self, cx: &Context, args: Entry) -> Result<u64, HandlerError> {
        self.gate(cx).await;
        let mut total = self.0.total.lock().unwrap();
        *total += u64::from(args.amount);
        Ok(*total)
    }

    async fn take(&self, cx: &Context, number: u32) -> Result<Page, HandlerError> {
        self.gate(cx).await;
        // The contents differ each time.
        let contents = vec![self.executed() as u8; 100_000].into();
        Ok(Page { number, contents, left: self.executed() })
    }

    async fn total(&self, cx: &Context) -> Result<u64, HandlerError> {
        assert!(cx.request_key().is_none(), "not covered");
        Ok(*self.0.total.lock().unwrap())
    }

    async fn fail(&self, cx: &Context, how: u32) -> Result<u32, HandlerError> {
        self.gate(cx).await;
        match how {
            _ if self.executed() > 1 => Ok(self.executed()),
            PANIC => panic!("the test's handler panics"),
            SYSTEM => Err(HandlerError::system("disk gone")),
            NO_EFFECT => {
                cx.had_no_effect();
                Ok(0)
            }
            SYSTEM_WITHOUT_EFFECT => {
                cx.had_no_effect();
                Err(HandlerError::system("disk gone"))
            }
            _ => Err(HandlerError::Unavailable),
        }
    }
}

/// A server of a ledger with a channel to it through a proxy.
struct Setup {
    ledger: Ledger,
    handle: ServerHandle,
    proxy: CutProxy,
    channel: Channel,
}

impl Setup {
    async fn new(scheme: &str, server: ServerBuilder, client: ChannelBuilder) -> Self {
        let ledger = Ledger::new();
        let server = server.service(LedgerV1Server::new(ledger.clone())).listen(format!("{scheme}://127.0.0.1:0"));
        let server = server.bind().await.unwrap();
        let (addr, handle) = (server.local_addrs()[0], server.handle());
        spawn_server(server);
        let proxy = CutProxy::start(addr).await;
        let channel = retrying(client).connect(&format!("{scheme}://{}", proxy.addr)).await.unwrap();
        Self { ledger, handle, proxy, channel }
    }

    /// Starts a server with a cache, and a channel that knows of the cache.
    async fn cached(scheme: &str) -> Self {
        Self::new(scheme, cached(), Channel::builder().deduplicated([PROGRAM])).await
    }

    fn client(&self) -> LedgerV1Client {
        LedgerV1Client::new(self.channel.clone())
    }

    /// Cuts the connection after the call in progress was executed, before its reply gets to the client.
    async fn lose_reply(&self) {
        self.ledger.wait_started(1).await;
        self.proxy.hold();
        self.ledger.0.gate.add_permits(1);
        eventually(|| self.ledger.executed() == 1).await;
        // The handler has ended. The counters of connections may be older.
        eventually(|| self.handle.duplicate_requests().iter().all(|stats| stats.in_progress == 0)).await;
        // Later executions do not wait.
        self.ledger.0.gate.add_permits(100);
        self.proxy.cut();
    }

    fn hits_and_waits(&self) -> (u64, u64) {
        let [stats] = self.handle.duplicate_requests()[..] else { panic!("one cache") };
        (stats.hits, stats.waits)
    }
}

fn retrying(client: ChannelBuilder) -> ChannelBuilder {
    let reconnect = Reconnect::OnDemand { min_backoff: Duration::ZERO, max_backoff: Duration::ZERO, retries: 3 };
    client.reconnect(reconnect).connect_timeout(Duration::from_secs(60))
}

fn cached() -> ServerBuilder {
    Server::builder().duplicate_requests(PROGRAM, DuplicateRequests::new())
}

fn entry(len: usize) -> Entry {
    Entry { amount: 5, note: vec![3; len].into() }
}

/// A call whose reply is lost is executed once, and gets the original reply on the next connection.
async fn a_lost_reply_is_sent_again(scheme: &str) {
    for len in [0, 100, 200_000] {
        let setup = Setup::cached(scheme).await;
        let args = entry(len);
        let client = setup.client();
        let (total, ()) = tokio::join!(client.add(&args), setup.lose_reply());
        assert_eq!(total.unwrap(), 5);
        assert_eq!((setup.ledger.executed(), setup.hits_and_waits()), (1, (1, 0)), "{len} bytes");
        assert_eq!(setup.proxy.connections(), 2);
        // A new call with the same arguments is a different call.
        assert_eq!(client.add(&args).await.unwrap(), 10);
        assert_eq!(client.total().await.unwrap(), 10);
        let [stats] = setup.handle.duplicate_requests()[..] else { panic!("one cache") };
        assert_eq!((stats.entries, stats.misses), (2, 2));
    }
}

/// A connector that uses its paths in turn. A path is a local address and the address of a server.
struct Paths {
    paths: [(&'static str, SocketAddr); 2],
    next: AtomicUsize,
}

impl Connector for Paths {
    type QueuePair = IwarpQueuePair;

    async fn connect(&self, _peer: SocketAddr, params: SetupParams) -> Result<Connected<IwarpQueuePair>, SetupError> {
        let (local, peer) = self.paths[self.next.fetch_add(1, Ordering::SeqCst)];
        let mut config = IwarpConfig::default();
        config.local = Some(local.parse().unwrap());
        IwarpConnector::new(config).connect(peer, params).await
    }
}

/// A call is sent again only to the address to which it was sent first, and from the same local address. Otherwise, it
/// might be executed twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[cfg(target_os = "linux")]
async fn a_call_is_sent_again_only_on_the_same_path() {
    async fn lost_reply(paths: impl FnOnce(SocketAddr, SocketAddr) -> Paths) -> (Setup, Result<u64, CallError>) {
        let mut setup = Setup::cached("iwarp").await;
        // Another server, with its own cache, over the same data.
        let server = cached().service(LedgerV1Server::new(setup.ledger.clone())).listen("iwarp://127.0.0.1:0");
        let server = server.bind().await.unwrap();
        let other = server.local_addrs()[0];
        spawn_server(server);
        let proxy = setup.proxy.addr;
        setup.channel = retrying(Channel::builder().deduplicated([PROGRAM]))
            .connect_with(paths(proxy, other), proxy)
            .await
            .unwrap();
        let (client, args) = (setup.client(), entry(0));
        let (total, ()) = tokio::join!(client.add(&args), setup.lose_reply());
        assert!(setup.channel.close_reason().is_none(), "the channel has connected again");
        (setup, total)
    }

    const LOCAL: [&str; 2] = ["127.0.0.1", "127.0.0.2"];
    timed(async {
        let next = AtomicUsize::default;
        let (setup, total) =
            lost_reply(|proxy, _| Paths { paths: [(LOCAL[0], proxy), (LOCAL[0], proxy)], next: next() }).await;
        assert_eq!((total.unwrap(), setup.ledger.executed(), setup.hits_and_waits()), (5, 1, (1, 0)));
        let (from_another, total) =
            lost_reply(|proxy, _| Paths { paths: [(LOCAL[0], proxy), (LOCAL[1], proxy)], next: next() }).await;
        assert_may_be_executed(&from_another, &total.unwrap_err());
        let (to_another, total) =
            lost_reply(|proxy, other| Paths { paths: [(LOCAL[0], proxy), (LOCAL[0], other)], next: next() }).await;
        assert_may_be_executed(&to_another, &total.unwrap_err());
    })
    .await;
}

fn assert_may_be_executed(setup: &Setup, error: &CallError) {
    assert!(!error.is_retry_safe() && error.is_connection_loss(), "{error}");
    assert!(error.to_string().contains("may have been executed"), "{error}");
    assert_eq!(setup.ledger.executed(), 1);
}

/// A call is not sent again when the server may have forgotten its reply.
async fn late_calls_are_not_sent_again(scheme: &str) {
    let window = Duration::from_millis(200);
    let client = Channel::builder().deduplicated([PROGRAM]).resend_within(window);
    // The reply is still known, so the server would return it.
    let setup = Setup::new(scheme, cached(), client).await;
    let (client, args) = (setup.client(), entry(0));
    let late = async {
        setup.ledger.wait_started(1).await;
        tokio::time::sleep(window).await;
        setup.lose_reply().await;
    };
    let (total, ()) = tokio::join!(client.add(&args), late);
    assert_may_be_executed(&setup, &total.unwrap_err());
    // Later calls have their own time.
    assert_eq!(client.add(&args).await.unwrap(), 10);
}

/// Without a cache, a call that is sent again is executed twice. This shows that the other tests detect a missing
/// cache.
async fn without_a_cache_the_call_is_executed_twice(scheme: &str) {
    let setup = Setup::new(scheme, Server::builder(), Channel::builder().deduplicated_all()).await;
    let (client, args) = (setup.client(), entry(0));
    let (total, ()) = tokio::join!(client.add(&args), setup.lose_reply());
    assert_eq!((total.unwrap(), setup.ledger.executed()), (10, 2));
}

/// A channel that does not know of a cache for the program does not send the call again.
async fn other_programs_are_not_sent_again(scheme: &str) {
    for client in [Channel::builder(), Channel::builder().deduplicated([PROGRAM + 1])] {
        let setup = Setup::new(scheme, cached(), client).await;
        let (client, args) = (setup.client(), entry(0));
        let (total, ()) = tokio::join!(client.add(&args), setup.lose_reply());
        let error = total.unwrap_err();
        assert!(!error.is_retry_safe() && error.is_connection_loss(), "{error}");
        assert_eq!(setup.ledger.executed(), 1);
    }
}

/// Eligible results are returned without a copy to the call that was sent again.
async fn eligible_results_are_sent_again(scheme: &str) {
    let setup = Setup::cached(scheme).await;
    let client = setup.client();
    let (page, ()) = tokio::join!(client.take(7), setup.lose_reply());
    assert_eq!(page.unwrap(), Page { number: 7, contents: vec![1; 100_000].into(), left: 1 });
    assert_eq!((setup.ledger.executed(), setup.hits_and_waits()), (1, (1, 0)));
    let sent: u64 = setup.handle.connections().iter().map(|connection| connection.counters.copied_eligible_bytes).sum();
    assert_eq!(sent, 0);
    assert!(setup.handle.duplicate_requests()[0].bytes >= 100_000);
}

/// If a call is sent again while its handler runs, the copy waits for the result of that handler.
async fn copies_wait_for_a_call_in_progress(scheme: &str) {
    let setup = Setup::cached(scheme).await;
    let (client, args) = (setup.client(), entry(0));
    let lose = async {
        setup.ledger.wait_started(1).await;
        for n in 1..=2 {
            setup.proxy.cut();
            eventually(|| setup.hits_and_waits() == (0, n)).await;
        }
        setup.ledger.0.gate.add_permits(100);
    };
    let (total, ()) = tokio::join!(client.add(&args), lose);
    assert_eq!((total.unwrap(), setup.ledger.executed()), (5, 1));
    assert_eq!(setup.handle.duplicate_requests()[0].in_progress, 0);
}

/// A handler's SYSTEM_ERR is recorded. A panic, an error which means that nothing was executed, and any reply of a
/// handler that reported no effect are not recorded.
async fn failures(scheme: &str) {
    for how in [PANIC, SYSTEM, UNAVAILABLE, NO_EFFECT, SYSTEM_WITHOUT_EFFECT] {
        let setup = Setup::cached(scheme).await;
        let client = setup.client();
        let (result, ()) = tokio::join!(client.fail(how), setup.lose_reply());
        if how == SYSTEM {
            let error = result.unwrap_err();
            assert!(matches!(error, CallError::Rpc { source: RpcError::SystemError, .. }), "{error}");
            assert!(!error.is_retry_safe());
            assert_eq!(setup.ledger.executed(), 1);
        } else {
            assert_eq!((result.unwrap(), setup.ledger.executed()), (2, 2));
            // That of the second execution.
            assert_eq!(setup.handle.duplicate_requests()[0].entries, 1);
        }
    }
}

/// An error which means that nothing was executed reaches the client, and the call is safe to retry.
async fn unavailable_is_safe_to_retry(scheme: &str) {
    let setup = Setup::cached(scheme).await;
    setup.ledger.0.gate.add_permits(2);
    let error = setup.client().fail(UNAVAILABLE).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::Unavailable, .. }) && error.is_retry_safe(), "{error}");
    assert_eq!(setup.client().fail(UNAVAILABLE).await.unwrap(), 2);
}

/// At every level of RPCSEC_GSS, a call that is sent again is answered from the cache, and the client accepts the
/// reply. The cache identifies the client by its principal.
async fn secured_calls(scheme: &str) {
    for level in [ProtectionLevel::Authentication, ProtectionLevel::Integrity, ProtectionLevel::Privacy] {
        let mechanism = |name: &str| InsecureTestMechanism::new(77, name);
        let server = cached().authenticator(GssAuthenticator::new(mechanism("ledger@server")));
        let security = GssSecurity::new(mechanism("alice@TEST"), level);
        let setup = Setup::new(scheme, server, Channel::builder().security(security).deduplicated_all()).await;
        let client = setup.client();
        let (page, ()) = tokio::join!(client.take(7), setup.lose_reply());
        assert_eq!(page.unwrap().left, 1, "{level:?}");
        assert_eq!((setup.ledger.executed(), setup.hits_and_waits()), (1, (1, 0)), "{level:?}");
        let keys = setup.ledger.0.keys.lock().unwrap();
        assert!(keys[0].to_bytes().ends_with(b"alice@TEST"));
    }
}

/// For a call that the cache does not know, the server returns the reply in the store. If the store fails, the call
/// fails as unavailable. The replies of executed calls are saved in the store.
async fn stored_replies_are_used(scheme: &str) {
    /// A store that has the reply to every call of `ADD`, and fails for calls of `FAIL`.
    struct Known(Mutex<Vec<(RequestKey, RecordedReply)>>);

    impl ReplyStore for Known {
        fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
            Box::pin(async move {
                if key.procedure() == 4 {
                    return Err("the disk is gone".into());
                }
                let recorded = RecordedReply::of::<Add>(&77)?;
                Ok((key.procedure() == 1).then_some(recorded))
            })
        }

        fn save<'a>(&'a self, key: &'a RequestKey, reply: &'a RecordedReply) -> StoreFuture<'a, ()> {
            self.0.lock().unwrap().push((key.clone(), reply.clone()));
            Box::pin(async { Ok(()) })
        }
    }

    let store = Arc::new(Known(Mutex::default()));
    let duplicates = DuplicateRequests::new().store(Arc::clone(&store));
    let server = Server::builder().duplicate_requests(PROGRAM, duplicates);
    let setup = Setup::new(scheme, server, Channel::builder().deduplicated_all()).await;
    setup.ledger.0.gate.add_permits(100);
    for n in 1..=2 {
        assert_eq!(setup.client().add(&entry(0)).await.unwrap(), 77);
        let stats = setup.handle.duplicate_requests()[0];
        assert_eq!((setup.ledger.executed(), stats.hits, stats.misses, stats.entries), (0, n, 0, n as usize));
    }
    let error = setup.client().fail(SYSTEM).await.unwrap_err();
    assert!(matches!(error, CallError::Rpc { source: RpcError::Unavailable, .. }) && error.is_retry_safe(), "{error}");
    assert_eq!(setup.client().take(1).await.unwrap().left, 1);
    let saved = store.0.lock().unwrap();
    let [(key, reply)] = &saved[..] else { panic!("one call was executed") };
    assert_eq!((key.program(), key.version(), key.procedure()), (PROGRAM, 1, 2));
    assert_eq!(*key, setup.ledger.0.keys.lock().unwrap()[0]);
    assert_eq!(reply.result_len(), 100_012);
}

macro_rules! over_both {
    ($($name:ident)*) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn iwarp() {
                super::timed(super::$name("iwarp")).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn tcp() {
                super::timed(super::$name("tcp")).await;
            }
        }
    )*};
}

over_both! {
    a_lost_reply_is_sent_again
    late_calls_are_not_sent_again
    without_a_cache_the_call_is_executed_twice
    other_programs_are_not_sent_again
    eligible_results_are_sent_again
    copies_wait_for_a_call_in_progress
    failures
    unavailable_is_safe_to_retry
    secured_calls
    stored_replies_are_used
}

/// `cover` can exclude a procedure that is not `@idempotent` from the cache. A setting for another version has no
/// effect.
#[tokio::test]
async fn covered_procedures_can_be_chosen() {
    timed(async {
        let duplicates = DuplicateRequests::new().cover(ProcedureId::of::<Fail>(), false);
        let duplicates = duplicates.cover(ProcedureId::new(PROGRAM, 2, 1), false);
        let server = Server::builder().duplicate_requests(PROGRAM, duplicates);
        let setup = Setup::new("tcp", server, Channel::builder()).await;
        setup.ledger.0.gate.add_permits(100);
        assert_eq!(setup.client().add(&entry(0)).await.unwrap(), 5);
        assert_eq!(setup.client().fail(SYSTEM).await.unwrap(), 2);
        assert_eq!(setup.handle.duplicate_requests()[0].misses, 1);
        let keys = setup.ledger.0.keys.lock().unwrap();
        assert_eq!(keys.iter().map(RequestKey::procedure).collect::<Vec<_>>(), [1]);
    })
    .await;
}

#[tokio::test]
async fn a_cache_needs_a_service() {
    timed(async {
        let builder = cached().listen("tcp://127.0.0.1:0");
        assert!(matches!(builder.bind().await, Err(BindError::UnknownProgram { program: PROGRAM })));
    })
    .await;
}

/// The XIDs of a channel are consecutive. Channels differ in their XIDs, and in the random stamps of their AUTH_SYS
/// credentials. A call that arrives twice on one connection is executed once.
#[tokio::test]
async fn xids_and_stamps() {
    timed(async {
        let ledger = Ledger::new();
        ledger.0.gate.add_permits(100);
        let server = cached().service(LedgerV1Server::new(ledger.clone())).listen("tcp://127.0.0.1:0");
        let server = server.bind().await.unwrap();
        let addr = server.local_addrs()[0];
        spawn_server(server);
        let proxy = Proxy::start(addr).await;
        let credential = Credential::sys("client", 1000, 100, [7]).to_opaque().unwrap();
        let builder = Channel::builder().deduplicated([PROGRAM]).credential(credential);
        let mut firsts = Vec::new();
        for _ in 0..2 {
            let channel = builder.clone().connect(&format!("tcp://{}", proxy.addr)).await.unwrap();
            for _ in 0..3 {
                LedgerV1Client::new(channel.clone()).add(&entry(0)).await.unwrap();
            }
            let calls: Vec<_> = proxy.records().into_iter().filter(|(to, _)| *to == Direction::ToServer).collect();
            let word = |call: usize, at: usize| u32::from_be_bytes(calls[call].1[4 * at..][..4].try_into().unwrap());
            let (first, stamp) = (word(0, 0), word(0, 8));
            for n in 0..3 {
                assert_eq!((word(n, 0), word(n, 8)), (first.wrapping_add(n as u32), stamp));
            }
            assert_ne!(stamp, 0);
            firsts.push((first, stamp));
        }
        // Two channels have different XIDs and stamps.
        assert!(firsts[0].0 != firsts[1].0 && firsts[0].1 != firsts[1].1);

        // A record that arrives again on the same connection, after the reply, is a copy of the call.
        let channel = builder.connect(&format!("tcp://{}", proxy.addr)).await.unwrap();
        assert_eq!(LedgerV1Client::new(channel.clone()).add(&entry(0)).await.unwrap(), 35);
        let records = proxy.records();
        let [(Direction::ToServer, call), (Direction::ToClient, reply)] = &records[..] else { panic!("{records:?}") };
        proxy.inject(call).await;
        eventually(|| proxy.records().iter().any(|(_, record)| record == reply)).await;
        assert_eq!(ledger.executed(), 7);
    })
    .await;
}
