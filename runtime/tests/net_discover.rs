//! Service discovery: servers that come and go, and calls that are balanced over them.
#![allow(missing_docs)]

mod net_support;
#[path = "net_support/path.rs"]
mod path;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use net_support::*;
use rpcrdma::{
    CallError, CallOptions, Channel, Server,
    client::{
        CallRequest, Invoke, Reconnect, RetryPolicy, ServiceCaller,
        discover::{Endpoints, Servers, ServersSender},
    },
    error::CallFailure,
    server::ServerBuilder,
};
use tower::{
    ServiceBuilder,
    balance::p2c::Balance,
    load::{CompleteOnResponse, PendingRequestsDiscover},
};

/// A server of the test service, and its state.
struct Node {
    running: Running,
    state: Arc<State>,
}

impl Node {
    async fn start(builder: ServerBuilder) -> Self {
        let service = TestService::default();
        let state = Arc::clone(&service.0);
        Self { running: Transport::Iwarp.serve(builder.service(service)).await, state }
    }

    fn url(&self) -> String {
        format!("iwarp://{}", self.running.addr)
    }

    /// Ends the server without a grace period, like a crash, and returns when its connections are closed.
    async fn kill(&mut self) {
        self.running.handle.shutdown_within(Duration::ZERO);
        (&mut self.running.task).await.unwrap();
    }

    /// Starts a new server at the same address.
    async fn restart(&mut self) {
        let server = Server::builder().service(TestService(Arc::clone(&self.state))).listen(self.url());
        let server = server.bind().await.unwrap();
        self.running.handle = server.handle();
        self.running.task = spawn_server(server);
    }

    fn calls(&self) -> usize {
        self.state.started.swap(0, Ordering::SeqCst)
    }
}

fn builder() -> rpcrdma::client::ChannelBuilder {
    let [min_backoff, max_backoff] = [5, 20].map(Duration::from_millis);
    Channel::builder().reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: 3 })
}

async fn cluster(n: usize) -> Vec<Node> {
    let mut nodes = Vec::new();
    for _ in 0..n {
        nodes.push(Node::start(Server::builder()).await);
    }
    nodes
}

fn caller(servers: Servers) -> ServiceCaller {
    ServiceCaller::balanced(Endpoints::new(servers, builder()), RetryPolicy::default())
}

fn listed(nodes: &[Node]) -> (ServersSender, ServiceCaller) {
    let (sender, servers) = Servers::channel();
    sender.set(nodes.iter().map(Node::url));
    (sender, caller(servers))
}

fn limited() -> CallOptions {
    CallOptions::new().timeout(Duration::from_secs(60))
}

/// Makes 90 idempotent calls, 6 at a time, and returns how many of them began at each server.
async fn spread(caller: &ServiceCaller, nodes: &[Node]) -> Vec<usize> {
    let _: usize = nodes.iter().map(Node::calls).sum();
    let calls = (0..6).map(|_| {
        let caller = caller.clone();
        tokio::spawn(async move {
            for _ in 0..15 {
                assert_eq!(caller.invoke::<Sleep>(&2, limited()).await.unwrap(), 2);
            }
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    nodes.iter().map(Node::calls).collect()
}

#[tokio::test]
async fn servers_come_and_go() {
    timed(in_step(async {
        let nodes = cluster(3).await;
        let (sender, caller) = listed(&nodes[..2]);
        // The endpoints connect when the first call is made.
        let _ = spread(&caller, &nodes).await;
        let counts = spread(&caller, &nodes).await;
        assert!(counts[0] > 20 && counts[1] > 20 && counts[2] == 0, "{counts:?}");

        // A server appears, and one that does not exist.
        sender.set(nodes.iter().map(Node::url).chain(["quic://nobody:1".into()]));
        let _ = spread(&caller, &nodes).await;
        let counts = spread(&caller, &nodes).await;
        assert!(counts.iter().all(|&count| count > 15), "{counts:?}");

        // A server disappears. It gets no more calls, its call in flight ends in order, and then its connection is
        // closed.
        let last = Arc::clone(&nodes[2].state);
        let mut calls = Vec::new();
        last.started.store(0, Ordering::SeqCst);
        while last.started.load(Ordering::SeqCst) == 0 {
            let caller = caller.clone();
            calls.push(tokio::spawn(async move { caller.invoke::<Gate>(&7, limited()).await }));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        sender.set(nodes[..2].iter().map(Node::url));
        nodes[..2].iter().for_each(|node| node.state.gate.add_permits(100));
        let counts = spread(&caller, &nodes).await;
        assert!(counts[2] == 0 && nodes[2].running.handle.connections().len() == 1, "{counts:?}");
        last.gate.add_permits(100);
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 7);
        }
        eventually(|| nodes[2].running.handle.connections().is_empty()).await;
    }))
    .await;
}

/// No idempotent call fails although servers crash and come back, one after the other.
#[tokio::test]
async fn idempotent_calls_survive_crashes() {
    timed(in_step(async {
        let mut nodes = cluster(3).await;
        let (_sender, caller) = listed(&nodes);
        let _ = spread(&caller, &nodes).await;
        for dead in 0..3 {
            let calls: Vec<_> = (0..12)
                .map(|_| {
                    let caller = caller.clone();
                    tokio::spawn(async move { caller.invoke::<Sleep>(&300, limited()).await })
                })
                .collect();
            eventually(|| nodes.iter().map(|node| node.state.started.load(Ordering::SeqCst)).sum::<usize>() >= 12)
                .await;
            nodes[dead].kill().await;
            for call in calls {
                assert_eq!(call.await.unwrap().unwrap(), 300);
            }
            let counts = spread(&caller, &nodes).await;
            assert_eq!((counts[dead], counts.iter().sum::<usize>()), (0, 90), "{counts:?}");
            nodes[dead].restart().await;
            while spread(&caller, &nodes).await[dead] == 0 {}
        }
    }))
    .await;
}

/// A call that is not idempotent fails if its server crashes, and the error says that the call may have been executed.
#[tokio::test]
async fn other_calls_say_if_they_may_have_been_executed() {
    timed(in_step(async {
        let mut nodes = cluster(2).await;
        let (_sender, caller) = listed(&nodes);
        let _ = spread(&caller, &nodes).await;
        let call = tokio::spawn({
            let caller = caller.clone();
            async move { caller.invoke::<Gate>(&1, limited()).await }
        });
        let started = |nodes: &[Node]| nodes.iter().position(|node| node.state.started.load(Ordering::SeqCst) == 1);
        eventually(|| started(&nodes).is_some()).await;
        let first = started(&nodes).unwrap();
        nodes[first].kill().await;
        let error = call.await.unwrap().unwrap_err();
        assert!(!error.is_retry_safe(), "{error:?}");
        assert!(
            matches!(&error, CallError::Transport { failure: CallFailure::Closed { sent: true, .. }, .. }),
            "{error:?}"
        );
        assert_eq!(nodes[1 - first].calls(), 0, "the call was not made again");

        // Without any server, a call waits until its deadline, and was certainly not executed.
        nodes[1 - first].kill().await;
        let options = CallOptions::new().timeout(Duration::from_millis(200));
        let error = caller.invoke::<Gate>(&1, options).await.unwrap_err();
        assert!(error.is_retry_safe(), "{error:?}");
    }))
    .await;
}

/// A rolling restart fails no call, even of a procedure that is not idempotent: each server first leaves the list, then
/// serves for the drain delay, and then ends its calls and closes.
#[tokio::test]
async fn a_rolling_restart_fails_nothing() {
    timed(in_step(async {
        let delay = Duration::from_millis(30);
        let builder = || Server::builder().drain_delay(delay);
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::start(builder()).await);
        }
        let (sender, caller) = listed(&nodes);
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let load: Vec<_> = (0..4)
            .map(|n| {
                let (caller, stop) = (caller.clone(), Arc::clone(&stop));
                tokio::spawn(async move {
                    let mut done = 0;
                    while !stop.load(Ordering::SeqCst) {
                        let data = Data(vec![n; 3000].into());
                        caller.invoke::<Put>(&data, limited()).await.unwrap();
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        for old in 0..3 {
            let new = Node::start(builder()).await;
            let handle = nodes[old].running.handle.clone();
            assert!(handle.is_ready());
            let begin = tokio::time::Instant::now();
            handle.shutdown();
            // What a registration in service discovery does.
            handle.unready().await;
            assert!(!handle.is_ready() && !nodes[old].running.task.is_finished());
            let old = std::mem::replace(&mut nodes[old], new);
            sender.set(nodes.iter().map(Node::url));
            old.running.task.await.unwrap();
            assert!(begin.elapsed() >= delay, "{:?}", begin.elapsed());
        }
        stop.store(true, Ordering::SeqCst);
        for calls in load {
            assert!(calls.await.unwrap() > 0);
        }
    }))
    .await;
}

/// A server that is connected but silent gets few calls, with growing pauses between them, although it has the fewest
/// calls in flight. When it replies again, it is used as before.
#[tokio::test]
async fn a_silent_server_is_avoided() {
    timed(in_step(async {
        let nodes = cluster(3).await;
        let mut paths = Vec::new();
        for node in &nodes {
            paths.push(path::Path::to(node.running.addr).await);
        }
        let [min_backoff, max_backoff] = [Duration::from_millis(250), Duration::from_secs(10)];
        let builder = Channel::builder().reconnect(Reconnect::OnDemand { min_backoff, max_backoff, retries: 3 });
        let (sender, servers) = Servers::channel();
        sender.set(paths.iter().map(path::Path::url));
        let measured = PendingRequestsDiscover::new(Endpoints::new(servers, builder), CompleteOnResponse::default());
        let balance = Balance::<_, CallRequest>::new(measured);
        let service = ServiceBuilder::new().timeout(Duration::from_millis(300)).buffer(64).service(balance);
        let caller = ServiceCaller::new(service);
        let call = async || caller.invoke::<Null>(&(), limited()).await;
        let used = |node: &Node| node.running.handle.connections().iter().any(|open| open.counters.calls_received > 0);
        while !nodes.iter().all(used) {
            let _ = call().await;
        }
        paths[0].fall_silent();
        let mut failed = 0;
        for _ in 0..200 {
            failed += u32::from(call().await.is_err());
        }
        // One third of the calls without the pauses. Each pause is twice as long as the one before.
        assert!(failed <= 8, "{failed}");
        // When replies arrive again, the server is used as before.
        paths[0].go_up();
        let calls = || nodes[0].running.handle.connections()[0].counters.calls_received;
        let before = calls();
        while calls() < before + 20 {
            let _ = call().await;
        }
    }))
    .await;
}

/// A second shutdown, or one without a grace period, ends the drain delay.
#[tokio::test]
async fn the_drain_delay_can_be_cut_short() {
    timed(async {
        let hour = Duration::from_secs(3600);
        for twice in [false, true] {
            let node = Node::start(Server::builder().drain_delay(hour).drain_timeout(hour)).await;
            let channel = Channel::connect(&node.url()).await.unwrap();
            if twice {
                node.running.handle.shutdown();
                node.running.handle.unready().await;
                tokio::time::sleep(Duration::from_millis(30)).await;
                // It still accepts connections and executes calls.
                call::<Null>(&Channel::connect(&node.url()).await.unwrap(), &()).await.unwrap();
                call::<Null>(&channel, &()).await.unwrap();
                node.running.handle.shutdown_within(Duration::from_secs(5));
            } else {
                node.running.handle.shutdown_within(Duration::ZERO);
            }
            node.running.task.await.unwrap();
            channel.closed().await;
        }
    })
    .await;
}
