//! The choice of endpoints: priorities, weights, health, ejection of failing servers, hedged calls, and a limit on open
//! endpoints. Also the errors of calls that no server takes.
//!
//! All servers are on simulated networks, and the clock is virtual.
#![allow(missing_docs)]

#[path = "net_endpoints/health.rs"]
mod health;
mod net_support;

use std::{
    collections::HashMap,
    io,
    net::SocketAddr,
    sync::{Arc, LazyLock, Mutex, atomic::Ordering},
    time::Duration,
};

use net_support::*;
use rpcrdma::{
    CallError, CallOptions, Channel, Server,
    client::{
        Invoke as _, Reconnect, RetryPolicy, ServiceCaller,
        discover::{Attempts, Endpoints, Servers, ServersSender},
    },
    health::Health,
    provider::sim::{SimConnector, SimFabric, SimListener},
    transport::{Scheme, SchemeProvider, UrlOption, UrlOptions},
};

/// Simulated networks, which the option `network` selects.
struct NamedNetworks;

impl SchemeProvider for NamedNetworks {
    type Connector = SimConnector;
    type Listener = SimListener;

    fn options(&self) -> &'static [UrlOption] {
        const NETWORK: UrlOption = UrlOption::new("network", "NAME", |value| !value.is_empty());
        &[NETWORK]
    }

    fn connector(&self, options: &UrlOptions) -> SimConnector {
        fabric(options.get("network").unwrap()).connector()
    }

    fn listen(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
        fabric(options.get("network").unwrap()).listen(addr.port())
    }
}

static SCHEME: LazyLock<Scheme> = LazyLock::new(|| Scheme::register("x-endpoints", NamedNetworks).unwrap());

static NETWORKS: LazyLock<Mutex<HashMap<String, SimFabric>>> = LazyLock::new(Mutex::default);

/// Returns the simulated network with this name.
fn fabric(name: &str) -> SimFabric {
    NETWORKS.lock().unwrap().entry(name.to_owned()).or_default().clone()
}

/// A server of the test service that can be restarted.
struct Node {
    url: String,
    state: Arc<State>,
    /// The health that the server reports. `None` if the server has no program HEALTH.
    health: Option<Health>,
    running: Option<(rpcrdma::server::ServerHandle, tokio::task::JoinHandle<()>)>,
}

impl Node {
    async fn start(network: &str, port: u16) -> Self {
        let url = format!("{}://127.0.0.1:{port}?network={network}", *SCHEME);
        let mut node = Self { url, state: Arc::default(), health: None, running: None };
        node.restart().await;
        node
    }

    async fn restart(&mut self) {
        let mut server =
            Server::builder().service(TestService(Arc::clone(&self.state))).listen(&self.url).max_connections(10_000);
        if let Some(health) = &self.health {
            server = server.health(health).drain_delay(Duration::from_secs(5));
        }
        let server = server.bind().await.unwrap();
        self.running = Some((server.handle(), spawn_server(server)));
    }

    /// Ends the server without a grace period, like a crash.
    async fn kill(&mut self) {
        let (handle, task) = self.running.take().unwrap();
        handle.shutdown_within(Duration::ZERO);
        task.await.unwrap();
    }

    fn connections(&self) -> usize {
        self.running.as_ref().map_or(0, |(handle, _)| handle.connections().len())
    }

    /// Returns the number of connections that the server has accepted up to the newest open one. Returns 0 if no
    /// connection is open.
    fn connected(&self) -> u64 {
        let connections = self.running.as_ref().unwrap().0.connections();
        connections.iter().map(|connection| connection.id + 1).max().unwrap_or(0)
    }

    /// Returns the number of calls since the last query.
    fn calls(&self) -> usize {
        self.state.started.swap(0, Ordering::SeqCst)
    }
}

async fn nodes(network: &str, count: u16) -> Vec<Node> {
    let mut nodes = Vec::new();
    for port in 1..=count {
        nodes.push(Node::start(network, port).await);
    }
    nodes
}

fn endpoints(servers: Servers) -> Endpoints {
    let [min_backoff, max_backoff] = [100, 2000].map(Duration::from_millis);
    let reconnect = Reconnect::OnDemand { min_backoff, max_backoff, retries: 3 };
    Endpoints::new(servers, Channel::builder().reconnect(reconnect))
}

fn balanced(endpoints: Endpoints) -> ServiceCaller {
    ServiceCaller::balanced(endpoints, RetryPolicy::default())
}

fn listed(urls: impl IntoIterator<Item = String>) -> (ServersSender, ServiceCaller) {
    let (sender, servers) = Servers::channel();
    sender.set(urls);
    (sender, balanced(endpoints(servers)))
}

async fn try_call(caller: &ServiceCaller) -> Result<u32, CallError> {
    caller.invoke::<Sleep>(&1, CallOptions::new().timeout(Duration::from_secs(10))).await
}

async fn calls(caller: &ServiceCaller, count: usize) {
    for _ in 0..count {
        try_call(caller).await.unwrap();
    }
}

/// Makes `count` calls at the same time.
async fn calls_at_once(caller: &ServiceCaller, count: usize) {
    let calls: Vec<_> = (0..count)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move { try_call(&caller).await.unwrap() })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
}

/// Returns the URLs of one server at `count` addresses.
fn addresses(node: &Node, count: usize) -> Vec<String> {
    (0..count).map(|n| node.url.replace("127.0.0.1", &format!("10.0.{}.{}", n / 250, n % 250 + 1))).collect()
}

/// A client of 900 servers connects to 32 of them, or to as many as `max_open` allows, but to at least 2.
#[tokio::test(start_paused = true)]
async fn nine_hundred_servers() {
    timed(async {
        let node = Node::start("many", 1).await;
        let (_sender, caller) = listed(addresses(&node, 900));
        calls(&caller, 1).await;
        assert!(node.connected() <= 32, "{}", node.connected());
        calls(&caller, 300).await;
        calls_at_once(&caller, 500).await;
        assert_eq!((node.connected(), node.connections()), (32, 32));
        drop(caller);
        eventually(|| node.connections() == 0).await;
        for (max, expected) in [(0, 2), (2, 2), (5, 5), (900, 900), (usize::MAX, 900)] {
            let before = node.connected();
            assert_eq!(before, 0, "no connection is left");
            let servers = Servers::fixed(addresses(&node, 900));
            let caller = balanced(endpoints(servers).max_open(max));
            calls(&caller, 20).await;
            calls_at_once(&caller, 200).await;
            assert_eq!(node.connections(), expected, "{max}");
            drop(caller);
            eventually(|| node.connections() == 0).await;
        }
    })
    .await;
}

/// A client that cannot reach most of 900 servers tries others until enough servers are connected. The number of open
/// connections never exceeds its limit.
#[tokio::test(start_paused = true)]
async fn most_of_nine_hundred_servers_are_dead() {
    timed(async {
        let node = Node::start("dead", 1).await;
        let live = addresses(&node, 900);
        for dead in [450, 870, 899] {
            let urls =
                live.iter().enumerate().map(|(n, url)| if n < dead { url.replace(":1?", ":9?") } else { url.clone() });
            let (_sender, caller) = listed(urls);
            calls(&caller, 10).await;
            calls_at_once(&caller, 300).await;
            assert!((1..=32).contains(&node.connections()), "{dead}: {}", node.connections());
            // Servers that have failed may take a quarter of the 32 places.
            while node.connections() < 24.min(900 - dead) {
                calls(&caller, 1).await;
            }
            calls_at_once(&caller, 300).await;
            assert!(node.connections() <= 32, "{dead}: {}", node.connections());
            drop(caller);
            eventually(|| node.connections() == 0).await;
        }
    })
    .await;
}

/// Servers that do not answer a connection request are replaced: a call succeeds within a minute, although 90 of 100
/// servers do not answer.
#[tokio::test(start_paused = true)]
async fn servers_that_do_not_answer() {
    timed(async {
        let node = Node::start("mute", 1).await;
        // A listener that accepts no connection.
        let _mute = fabric("mute").listen(9).unwrap();
        let urls = addresses(&node, 100);
        let urls = urls.iter().enumerate().map(|(n, url)| if n < 90 { url.replace(":1?", ":9?") } else { url.clone() });
        let servers = Servers::fixed(urls.collect::<Vec<_>>());
        let caller = balanced(endpoints(servers).max_open(4));
        // The default time-out of a connection is 10 s. Three further servers are tried each second, in random order.
        caller.invoke::<Sleep>(&1, CallOptions::new().timeout(Duration::from_secs(60))).await.unwrap();
        assert!((1..=4).contains(&node.connections()));
    })
    .await;
}

/// If more than a quarter of the client's servers have failed, the client connects to other servers in their place. It
/// returns to the failed servers after they have restarted.
#[tokio::test(start_paused = true)]
async fn members_are_replaced() {
    timed(async {
        let mut nodes = nodes("replaced", 10).await;
        let servers = Servers::fixed(nodes.iter().map(|node| node.url.clone()));
        let caller = balanced(endpoints(servers).max_open(4));
        let members = |nodes: &[Node]| (0..10).filter(|&n| nodes[n].connections() > 0).collect::<Vec<_>>();
        calls(&caller, 50).await;
        calls_at_once(&caller, 50).await;
        let first = members(&nodes);
        assert_eq!(first.len(), 4);
        // One server is lost. It keeps its place, because a quarter of the places is for servers that have failed.
        nodes[first[0]].kill().await;
        calls(&caller, 50).await;
        assert_eq!(members(&nodes), first[1..]);
        // A second server is lost. It is replaced, because only one place is for servers that have failed.
        nodes[first[1]].kill().await;
        calls(&caller, 50).await;
        let second = members(&nodes);
        assert!(second.len() == 3 && second.contains(&first[2]) && second.contains(&first[3]), "{first:?}, {second:?}");
        for dead in [first[0], first[1]] {
            nodes[dead].restart().await;
        }
        for _ in 0..100 {
            calls(&caller, 10).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(members(&nodes), first);
    })
    .await;
}

/// Servers with a higher priority number are used only while no server with a lower priority number can be reached.
#[tokio::test(start_paused = true)]
async fn priorities() {
    timed(async {
        let mut nodes = nodes("priorities", 4).await;
        let priority = [1, 1, 7, 9];
        let urls: Vec<_> =
            nodes.iter().zip(priority).map(|(node, priority)| format!("{}&priority={priority}", node.url)).collect();
        let (sender, caller) = listed(urls.clone());
        let used = async |nodes: &[Node]| {
            calls_at_once(&caller, 40).await;
            let _: usize = nodes.iter().map(Node::calls).sum();
            calls_at_once(&caller, 40).await;
            nodes.iter().map(|node| node.calls() > 0).collect::<Vec<_>>()
        };
        assert_eq!(used(&nodes).await, [true, true, false, false]);
        nodes[0].kill().await;
        assert_eq!(used(&nodes).await, [false, true, false, false]);
        assert_eq!((nodes[2].connections(), nodes[3].connections()), (0, 0), "a standby server has no connections");
        nodes[1].kill().await;
        assert_eq!(used(&nodes).await, [false, false, true, false]);
        nodes[2].kill().await;
        assert_eq!(used(&nodes).await, [false, false, false, true]);
        // The client returns to the first priority, although it used others meanwhile.
        nodes[1].restart().await;
        while used(&nodes).await != [false, true, false, false] {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        eventually(|| nodes[3].connections() == 0).await;
        // A new list changes the priorities of known servers.
        sender.set([urls[1].replace("priority=1", "priority=3"), urls[3].replace("priority=9", "priority=2")]);
        assert_eq!(used(&nodes).await, [false, false, false, true]);
    })
    .await;
}

/// A standby server takes over if the first server does not answer, before the attempt to connect times out.
#[tokio::test(start_paused = true)]
async fn a_standby_server_takes_over() {
    timed(async {
        let node = Node::start("standby", 1).await;
        let _mute = fabric("standby").listen(9).unwrap();
        let (_sender, caller) = listed([node.url.replace(":1?", ":9?"), format!("{}&priority=1", node.url)]);
        let begin = tokio::time::Instant::now();
        calls(&caller, 1).await;
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    })
    .await;
}

/// Calls are divided by weight, and a change of weights opens no connection.
#[tokio::test(start_paused = true)]
async fn weights() {
    timed(async {
        let nodes = nodes("weights", 3).await;
        let urls = |weights: [u32; 3]| {
            let urls = nodes.iter().zip(weights).map(|(node, weight)| format!("{}&weight={weight}", node.url));
            urls.collect::<Vec<_>>()
        };
        let (sender, caller) = listed(urls([1, 1, 1]));
        let divided = async || {
            calls_at_once(&caller, 100).await;
            let _: usize = nodes.iter().map(Node::calls).sum();
            calls(&caller, 4000).await;
            nodes.iter().map(Node::calls).collect::<Vec<_>>()
        };
        // A difference of 250 calls is more than 8 standard deviations.
        let near = |counts: &[usize], expected: [usize; 3]| {
            assert!(counts.iter().zip(expected).all(|(count, expected)| count.abs_diff(expected) < 250), "{counts:?}");
        };
        near(&divided().await, [1333; 3]);
        sender.set(urls([6, 1, 1]));
        near(&divided().await, [3000, 500, 500]);
        sender.set(urls([0, 1, 1]));
        near(&divided().await, [20, 1990, 1990]);
        assert!(nodes.iter().all(|node| node.connected() == 1), "the connections stay");
    })
    .await;
}

/// If the deadline of a call passes before a server takes the call, the error says why, and has the last cause as its
/// source.
#[tokio::test(start_paused = true)]
async fn errors_have_causes() {
    timed(async {
        let mut node = Node::start("errors", 1).await;
        let (sender, servers) = Servers::channel();
        let caller = balanced(endpoints(servers));
        let said = async |expected: &str| {
            let options = CallOptions::new().timeout(Duration::from_millis(1500));
            let error = caller.invoke::<Null>(&(), options).await.unwrap_err();
            assert!(error.is_retry_safe(), "{error:?}");
            let begin = "TEST_V2.Null: the call failed before it was sent, a retry is safe: ";
            assert_eq!(chain(&error), format!("{begin}{expected}"));
        };
        said("service discovery has not listed the servers yet").await;
        sender.fail(io::Error::other("no such realm"));
        said("service discovery fails, and has listed no server yet: no such realm").await;
        sender.set([""; 0]);
        said("service discovery lists no server, check that servers are registered").await;
        sender.fail(io::Error::other("gone"));
        said("service discovery listed no server before it failed, check that servers are registered: gone").await;
        sender.set(["gopher://host:70", "nothing"]);
        let unknown = "unknown scheme `gopher` in `gopher://host:70`, expected one of iwarp, ";
        let options = CallOptions::new().timeout(Duration::from_millis(1500));
        let error = chain(&caller.invoke::<Null>(&(), options).await.unwrap_err());
        assert!(error.contains(&format!("none of the 2 listed servers has a valid URL: {unknown}")), "{error}");
        sender.set([node.url.replace(":1?", ":9?")]);
        said("none of the 1 listed servers takes calls: cannot connect to 127.0.0.1:9: start the server, or check the port: connection refused").await;
        sender.fail(io::Error::other("gone"));
        said(
            "none of the 1 listed servers takes calls, and service discovery fails, so the list may be out of date: \
             cannot connect to 127.0.0.1:9: start the server, or check the port: connection refused",
        )
        .await;
        // A server that takes calls ends the outage. A call that times out at it has the usual error.
        sender.set([node.url.clone()]);
        caller.invoke::<Null>(&(), CallOptions::new().timeout(Duration::from_secs(5))).await.unwrap();
        let options = CallOptions::new().timeout(Duration::from_millis(50));
        let error = chain(&caller.invoke::<Sleep>(&1000, options).await.unwrap_err());
        assert!(error.contains("deadline"), "{error}");
        node.kill().await;
        said("none of the 1 listed servers takes calls: cannot connect to 127.0.0.1:1: start the server, or check the port: connection refused").await;
    })
    .await;
}

/// Servers beyond the maximum number, and URLs that are too long, are skipped.
#[tokio::test(start_paused = true)]
async fn huge_lists() {
    timed(async {
        let node = Node::start("huge", 1).await;
        let (sender, caller) = listed((0..50_000).map(|n| {
            let addr = std::net::Ipv4Addr::from_bits(0x0a00_0000 + n);
            node.url.replace("127.0.0.1", &addr.to_string())
        }));
        calls(&caller, 10).await;
        assert!(node.connected() <= 32);
        let long = format!("{}&network={}", node.url, "x".repeat(1 << 20));
        sender.set([long]);
        let options = CallOptions::new().timeout(Duration::from_secs(1));
        let error = chain(&caller.invoke::<Null>(&(), options).await.unwrap_err());
        assert!(error.ends_with("service discovery lists no server, check that servers are registered"), "{error}");
    })
    .await;
}

fn over(nodes: &[Node]) -> Endpoints {
    endpoints(Servers::fixed(nodes.iter().map(|node| node.url.clone())))
}

/// Makes `count` calls, one after the other, and returns the number of those that failed.
async fn failures(caller: &ServiceCaller, count: usize) -> usize {
    let mut failed = 0;
    for _ in 0..count {
        failed += usize::from(caller.invoke::<Sleep>(&1, CallOptions::new()).await.is_err());
    }
    failed
}

/// A server that fails its calls at once gets only a few calls, although it always looks idle. It is used again when it
/// works.
#[tokio::test(start_paused = true)]
async fn failing_servers_are_ejected() {
    timed(async {
        let nodes = nodes("ejected", 3).await;
        let caller = balanced(over(&nodes));
        assert_eq!(failures(&caller, 100).await, 0);
        nodes[0].state.is_broken.store(true, Ordering::SeqCst);
        nodes.iter().for_each(|node| assert!(node.calls() > 0));
        // The calls take about one second. In this time, the client may try the ejected server a second time.
        let failed = failures(&caller, 1000).await;
        assert!((5..=7).contains(&failed) && nodes[0].calls() == failed, "{failed} calls failed");
        assert!(nodes[1].calls().min(nodes[2].calls()) > 300);
        nodes[0].state.is_broken.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(failures(&caller, 300).await, 0);
        assert!(nodes[0].calls() > 50);
    })
    .await;
}

/// If more than half of the servers fail their calls, calls still go to all servers, including the failing ones.
#[tokio::test(start_paused = true)]
async fn not_all_servers_are_ejected() {
    timed(async {
        let nodes = nodes("all-ejected", 3).await;
        let caller = balanced(over(&nodes));
        assert_eq!(failures(&caller, 10).await, 0);
        nodes[..2].iter().for_each(|node| node.state.is_broken.store(true, Ordering::SeqCst));
        failures(&caller, 100).await;
        nodes.iter().for_each(|node| assert!(node.calls() > 0));
        failures(&caller, 300).await;
        assert!(nodes.iter().all(|node| node.calls() > 30));
    })
    .await;
}

/// With hedging, a second attempt at another server completes an idempotent call whose server has become slow. Calls
/// that are not idempotent are made once.
#[tokio::test(start_paused = true)]
async fn slow_calls_are_hedged() {
    timed(async {
        for is_hedged in [true, false] {
            let nodes = nodes(&format!("hedged-{is_hedged}"), 2).await;
            let attempts = Attempts::new(RetryPolicy::default());
            let attempts = if is_hedged { attempts.hedged() } else { attempts };
            let caller = ServiceCaller::balanced(over(&nodes), attempts);
            // The latencies of the last ten seconds count.
            for _ in 0..150 {
                assert_eq!(failures(&caller, 2).await, 0);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            nodes[0].state.delay.store(10_000, Ordering::SeqCst);
            let begun = tokio::time::Instant::now();
            let mut running = tokio::task::JoinSet::new();
            for _ in 0..10 {
                let caller = caller.clone();
                running.spawn(async move { caller.invoke::<Sleep>(&1, CallOptions::new()).await.unwrap() });
            }
            running.join_all().await;
            let elapsed = begun.elapsed();
            assert_eq!(elapsed < Duration::from_secs(1), is_hedged, "{elapsed:?}");
            // Calls that are not idempotent are made once.
            let before = nodes.iter().map(|node| node.state.started.load(Ordering::SeqCst)).sum::<usize>();
            nodes.iter().for_each(|node| node.state.gate.add_permits(1));
            caller.invoke::<Gate>(&1, CallOptions::new()).await.unwrap();
            assert_eq!(nodes.iter().map(|node| node.state.started.load(Ordering::SeqCst)).sum::<usize>(), before + 1);
        }
    })
    .await;
}

/// An attempt that takes too long is given up, and the call is retried at another server.
#[tokio::test(start_paused = true)]
async fn attempts_time_out() {
    timed(async {
        let nodes = nodes("attempts", 2).await;
        let attempts = Attempts::new(RetryPolicy::default()).timeout(Duration::from_millis(200));
        let caller = ServiceCaller::balanced(over(&nodes), attempts);
        assert_eq!(failures(&caller, 20).await, 0);
        nodes[0].state.delay.store(60_000, Ordering::SeqCst);
        let begun = tokio::time::Instant::now();
        assert_eq!(failures(&caller, 20).await, 0);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    })
    .await;
}
