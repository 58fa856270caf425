//! Balanced calls combined with memory limits, duplicate request caches, deadlines and RPCSEC_GSS.

use std::{io, sync::LazyLock};

use bytes::Bytes;
use rpcrdma::{
    client::{
        Invoke as _, RetryPolicy, ServiceCaller,
        discover::{Attempts, Endpoints, Servers},
    },
    gss::{GssAuthenticator, GssSecurity},
    provider::sim::SimListener,
    security::ProtectionLevel,
    server::{DuplicateRequests, Server, ServerHandle},
    transport::{Scheme, SchemeProvider, UrlOptions},
};

use super::*;
use crate::insecure_test_mechanism::InsecureTestMechanism;

/// One simulated network for all tests.
struct OneNetwork;

static NETWORK: LazyLock<SimFabric> = LazyLock::new(SimFabric::default);
static SCHEME: LazyLock<Scheme> = LazyLock::new(|| Scheme::register("x-pairs", OneNetwork).unwrap());

impl SchemeProvider for OneNetwork {
    type Connector = SimConnector;
    type Listener = SimListener;

    fn connector(&self, _options: &UrlOptions) -> SimConnector {
        NETWORK.connector()
    }

    fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
        NETWORK.listen(addr.port())
    }
}

struct Node {
    url: String,
    addr: SocketAddr,
    state: Arc<State>,
    handle: ServerHandle,
}

/// Starts two servers.
async fn nodes(configure: impl Fn(ServerBuilder) -> ServerBuilder) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let state = Arc::<State>::default();
        let builder = configure(Server::builder().service(TestService(Arc::clone(&state))));
        let server = builder.listen(format!("{}://127.0.0.1:0", *SCHEME)).bind().await.unwrap();
        let (url, addr, handle) = (server.urls()[0].clone(), server.local_addrs()[0], server.handle());
        spawn_server(server);
        nodes.push(Node { url, addr, state, handle });
    }
    nodes
}

fn balanced(nodes: &[Node], builder: ChannelBuilder, is_hedged: bool) -> ServiceCaller {
    let attempts = Attempts::new(RetryPolicy::default());
    let attempts = if is_hedged { attempts.hedged() } else { attempts };
    let servers = Servers::fixed(nodes.iter().map(|node| node.url.clone()));
    ServiceCaller::balanced(Endpoints::new(servers, builder), attempts)
}

/// Makes quick calls for longer than the period over which the balancer measures latencies.
async fn warm_up(caller: &ServiceCaller) {
    for _ in 0..150 {
        for _ in 0..2 {
            caller.invoke::<Get>(&Range(1, 100), CallOptions::new()).await.unwrap();
        }
        tokio::time::sleep(SECOND / 10).await;
    }
}

fn started(nodes: &[Node]) -> usize {
    nodes.iter().map(|node| node.state.started.load(Ordering::SeqCst)).sum()
}

/// With hedging, a second attempt completes a call whose server has no memory for its arguments. If the first attempt
/// gets memory later, it releases the memory. Without hedging, the call waits.
#[tokio::test(start_paused = true)]
async fn second_attempts_do_not_wait_for_memory() {
    timed(async {
        for is_hedged in [true, false] {
            let nodes = nodes(|server| server.max_memory(600_000)).await;
            let caller = balanced(&nodes, Channel::builder(), is_hedged);
            warm_up(&caller).await;
            let direct = Channel::builder().connect_with(NETWORK.connector(), nodes[0].addr).await.unwrap();
            let held = hold(&direct, 250_000);
            nodes[0].state.wait_started(1).await;
            let calls: Vec<_> = (0..10)
                .map(|n| {
                    let caller = caller.clone();
                    let data = Bytes::from(pattern(n, 200_000));
                    tokio::spawn(async move { caller.invoke::<Echo>(&data, CallOptions::new()).await })
                })
                .collect();
            tokio::time::sleep(5 * SECOND).await;
            assert_eq!(calls.iter().all(JoinHandle::is_finished), is_hedged);
            // The server does not know that nobody waits any more.
            assert!(nodes[0].handle.memory().waiting > 0);
            nodes[0].state.gate.add_permits(1);
            assert_eq!(held.await.unwrap().unwrap(), 250_000);
            for (n, call) in (0..).zip(calls) {
                assert_eq!(call.await.unwrap().unwrap(), pattern(n, 200_000));
            }
            for node in &nodes {
                eventually(|| (node.handle.memory().held, node.handle.memory().waiting) == (0, 0)).await;
            }
        }
    })
    .await;
}

/// A call that its server would recognize is neither retried at another server nor hedged, because another server has
/// another cache.
#[tokio::test(start_paused = true)]
async fn recognized_calls_stay_at_their_server() {
    timed(async {
        for is_hedged in [true, false] {
            let nodes = nodes(|server| server.duplicate_requests(PROGRAM, DuplicateRequests::new())).await;
            let caller = balanced(&nodes, Channel::builder().deduplicated([PROGRAM]), is_hedged);
            warm_up(&caller).await;
            let gate = tokio::spawn({
                let caller = caller.clone();
                async move { caller.invoke::<Gate>(&1, CallOptions::new()).await }
            });
            eventually(|| started(&nodes) == 1).await;
            tokio::time::sleep(5 * SECOND).await;
            let busy = nodes.iter().find(|node| node.state.started.load(Ordering::SeqCst) == 1).unwrap();
            busy.handle.shutdown_within(Duration::ZERO);
            let error = gate.await.unwrap().unwrap_err();
            assert!(error.is_connection_loss() && !error.is_retry_safe(), "{error}");
            // The other one works.
            nodes.iter().for_each(|node| node.state.gate.add_permits(1));
            assert_eq!(caller.invoke::<Gate>(&2, CallOptions::new()).await.unwrap(), 2);
            assert_eq!(started(&nodes), 2);
        }
    })
    .await;
}

/// A hedged call has two attempts, and makes no further attempt after its deadline or after its caller has given it up.
/// A call with a deadline ends at the deadline.
#[tokio::test(start_paused = true)]
async fn both_attempts_end_with_their_call() {
    timed(async {
        let nodes = nodes(|server| server).await;
        let caller = balanced(&nodes, Channel::builder(), true);
        warm_up(&caller).await;
        let begun = tokio::time::Instant::now();
        let sleep = caller.invoke::<Sleep>(&60_000, CallOptions::new().timeout(SECOND)).await;
        assert!(!sleep.unwrap_err().is_retry_safe());
        assert!((SECOND..2 * SECOND).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        let dropped = tokio::spawn({
            let caller = caller.clone();
            async move { caller.invoke::<Sleep>(&60_000, CallOptions::new()).await }
        });
        eventually(|| started(&nodes) == 4).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        tokio::time::sleep(SECOND).await;
        assert_eq!(started(&nodes), 4, "two calls, each with two attempts");
        // The servers are used as before.
        caller.invoke::<Get>(&Range(1, 100), CallOptions::new()).await.unwrap();
    })
    .await;
}

/// The time-out of the endpoints' channels limits a call over all its attempts. The time-out also applies while no
/// server takes calls.
#[tokio::test(start_paused = true)]
async fn a_time_out_covers_all_attempts() {
    timed(async {
        let nodes = nodes(|server| server).await;
        let caller = balanced(&nodes, Channel::builder().call_timeout(SECOND), false);
        caller.invoke::<Get>(&Range(1, 100), CallOptions::new()).await.unwrap();
        let ends_in_time = async |answers: bool| {
            let begun = tokio::time::Instant::now();
            let error = caller.invoke::<Sleep>(&700, CallOptions::new()).await.unwrap_err();
            assert!((SECOND..SECOND + SECOND / 10).contains(&begun.elapsed()), "{:?}", begun.elapsed());
            assert_eq!(error.is_retry_safe(), !answers, "{error}");
        };
        let lose = async {
            eventually(|| started(&nodes) == 1).await;
            tokio::time::sleep(SECOND / 2).await;
            let busy = nodes.iter().find(|node| node.state.started.load(Ordering::SeqCst) == 1).unwrap();
            busy.handle.shutdown_within(Duration::ZERO);
            eventually(|| started(&nodes) == 2).await;
        };
        tokio::join!(ends_in_time(true), lose);
        nodes.iter().for_each(|node| node.handle.shutdown_within(Duration::ZERO));
        tokio::time::sleep(SECOND).await;
        ends_in_time(false).await;
        // A call may have a time of its own.
        let begun = tokio::time::Instant::now();
        caller.invoke::<Sleep>(&1, CallOptions::new().timeout(3 * SECOND)).await.unwrap_err();
        assert!(begun.elapsed() >= 3 * SECOND);
    })
    .await;
}

/// A security context belongs to one server. The client has a context for each server, and the contexts do not replace
/// each other.
#[tokio::test(start_paused = true)]
async fn each_server_needs_its_context() {
    timed(async {
        let mechanism = |name: &str| InsecureTestMechanism::new(77, name);
        let nodes = nodes(|server| server.authenticator(GssAuthenticator::new(mechanism("nfs@server")))).await;
        let alice = mechanism("alice@TEST");
        let security = GssSecurity::new(alice.clone(), ProtectionLevel::Integrity);
        let caller = balanced(&nodes, Channel::builder().security(security), false);
        for n in 0..20 {
            assert_eq!(caller.invoke::<Sleep>(&n, CallOptions::new()).await.unwrap(), n);
        }
        assert!(nodes.iter().all(|node| node.state.started.load(Ordering::SeqCst) > 0));
        assert_eq!(alice.started.load(Ordering::SeqCst), nodes.len());
    })
    .await;
}
