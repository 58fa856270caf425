//! Balancers that watch the health of their servers.

use std::{error::Error, time::Duration};

use rpcrdma::{
    Context, HandlerError, Server,
    client::{HealthCheck, ServiceCaller, discover::Servers},
    health::protocol::{
        HealthReport, HealthService, HealthWatched,
        health_v1::{HealthV1, HealthV1Server},
    },
};

use super::{Node, SCHEME, balanced, calls, endpoints, try_call};
use crate::net_support::{PROGRAM, TestService, VERSION, chain, eventually, spawn_server, timed};

/// Starts `count` servers, of which the first `reporting` report their health.
async fn nodes(network: &str, count: u16, reporting: usize) -> Vec<Node> {
    let mut nodes = super::nodes(network, count).await;
    for node in &mut nodes[..reporting] {
        node.kill().await;
        node.health = Some(rpcrdma::health::Health::new());
        node.restart().await;
    }
    nodes
}

fn checked(nodes: &[Node]) -> ServiceCaller {
    let servers = Servers::fixed(nodes.iter().map(|node| node.url.clone()));
    balanced(endpoints(servers).health_check(HealthCheck::service(PROGRAM, VERSION)))
}

fn set(node: &Node, is_serving: bool) {
    node.health.as_ref().unwrap().set_service(PROGRAM, VERSION, is_serving);
}

/// Makes 60 calls. Returns `true` for each server that gets some of them.
async fn used(caller: &ServiceCaller, nodes: &[Node]) -> Vec<bool> {
    let _: usize = nodes.iter().map(Node::calls).sum();
    calls(caller, 60).await;
    nodes.iter().map(|node| node.calls() > 0).collect()
}

/// Waits until the reports of servers have arrived.
async fn reported() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// A server that reports that it is not serving gets no calls until it reports that it is serving. None of the calls
/// fails.
#[tokio::test(start_paused = true)]
async fn servers_that_are_not_serving() {
    timed(async {
        let nodes = nodes("not-serving", 3, 3).await;
        let caller = checked(&nodes);
        set(&nodes[0], false);
        calls(&caller, 60).await;
        assert_eq!(used(&caller, &nodes).await, [false, true, true]);
        set(&nodes[1], false);
        reported().await;
        assert_eq!(used(&caller, &nodes).await, [false, false, true]);
        nodes[..2].iter().for_each(|node| set(node, true));
        reported().await;
        assert_eq!(used(&caller, &nodes).await, [true; 3]);
        // No connection was given up.
        assert!(nodes.iter().all(|node| node.connected() == 1));
    })
    .await;
}

/// If no server is serving, calls wait, and their errors say why.
#[tokio::test(start_paused = true)]
async fn no_server_is_serving() {
    timed(async {
        let nodes = nodes("none-serving", 2, 2).await;
        let caller = checked(&nodes);
        calls(&caller, 10).await;
        nodes.iter().for_each(|node| set(node, false));
        reported().await;
        let error = try_call(&caller).await.unwrap_err();
        let said = chain(&error as &(dyn Error + 'static));
        assert!(said.contains("none of the 2 listed servers takes calls, x-endpoints://"), "{said}");
        assert!(said.contains("says that it is not serving"), "{said}");
        let waiting = tokio::spawn({
            let caller = caller.clone();
            async move { try_call(&caller).await }
        });
        reported().await;
        set(&nodes[1], true);
        waiting.await.unwrap().unwrap();
        assert_eq!(used(&caller, &nodes).await, [false, true]);
    })
    .await;
}

/// A server that shuts down gets no more calls while it still drains its connections. A new server in its place gets
/// calls again.
#[tokio::test(start_paused = true)]
async fn servers_that_shut_down() {
    timed(async {
        let mut nodes = nodes("shut-down", 2, 2).await;
        let caller = checked(&nodes);
        calls(&caller, 10).await;
        let (handle, task) = nodes[0].running.take().unwrap();
        handle.shutdown();
        reported().await;
        assert_eq!(used(&caller, &nodes).await, [false, true]);
        assert_eq!(handle.connections().len(), 1, "the server still drains");
        task.await.unwrap();
        assert_eq!(used(&caller, &nodes).await, [false, true]);
        nodes[0].restart().await;
        while used(&caller, &nodes).await != [true, true] {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// A health service that never replies.
struct Mute;

impl HealthV1 for Mute {
    async fn check(&self, _cx: &Context, _service: HealthService) -> Result<HealthReport, HandlerError> {
        std::future::pending().await
    }

    async fn watch(&self, _cx: &Context, _service: HealthService) -> Result<HealthWatched, HandlerError> {
        std::future::pending().await
    }
}

/// A server that does not reply to the first health request counts as serving after the timeout.
#[tokio::test(start_paused = true)]
async fn servers_that_do_not_answer_the_question() {
    timed(async {
        let url = format!("{}://127.0.0.1:1?network=mute-health", *SCHEME);
        let server = Server::builder().service(TestService::default()).service(HealthV1Server::new(Mute)).listen(&url);
        let _serving = spawn_server(server.bind().await.unwrap());
        let check = HealthCheck::server().timeout(Duration::from_secs(3));
        let caller = balanced(endpoints(Servers::fixed([url])).health_check(check));
        let begin = tokio::time::Instant::now();
        calls(&caller, 10).await;
        assert!((3..4).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
        drop(caller);
    })
    .await;
}

/// A server without the health program counts as serving. A server is asked again on each new connection.
#[tokio::test(start_paused = true)]
async fn servers_that_say_nothing() {
    timed(async {
        let mut nodes = nodes("say-nothing", 3, 2).await;
        let caller = checked(&nodes[1..]);
        set(&nodes[1], false);
        calls(&caller, 60).await;
        assert_eq!(used(&caller, &nodes).await, [false, false, true]);
        // The new server has the program, and is not serving.
        nodes[2].health = Some(rpcrdma::health::Health::new());
        set(&nodes[2], false);
        nodes[2].kill().await;
        nodes[2].restart().await;
        set(&nodes[1], true);
        assert_eq!(used(&caller, &nodes).await, [false, true, false]);
        // The task of the check ends with its endpoint.
        drop(caller);
        eventually(|| nodes.iter().all(|node| node.connections() == 0)).await;
    })
    .await;
}
