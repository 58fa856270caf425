//! A provider may busy-poll only while no other task has work.
#![allow(missing_docs)]

mod net_support;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use net_support::*;
use rpcrdma::{
    client::Channel,
    engine::Versions,
    provider::{
        Completion, Connected, Connector, QueuePair, SetupError, SetupParams,
        sim::{SimConfig, SimFabric},
    },
    server::Server,
};

/// Observations of a client's queue pair and of its callers.
#[derive(Debug, Default)]
struct Seen {
    /// Number of received replies.
    replies: AtomicUsize,
    /// Number of calls that have returned to their callers.
    returned: AtomicUsize,
    /// Number of polls between a reply and the return of its call.
    between: AtomicUsize,
    /// Number of polls between a reply and the return of its call that were allowed to busy-poll.
    in_the_way: AtomicUsize,
}

struct Watched<Q> {
    queue_pair: Q,
    seen: Arc<Seen>,
    may_busy_poll: bool,
}

impl<Q: QueuePair> QueuePair for Watched<Q> {
    forward_to_queue_pair!(queue_pair);

    fn set_busy_poll(&mut self, may: bool) {
        self.may_busy_poll = may;
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        if self.seen.returned.load(Relaxed) < self.seen.replies.load(Relaxed) {
            self.seen.between.fetch_add(1, Relaxed);
            self.seen.in_the_way.fetch_add(usize::from(self.may_busy_poll), Relaxed);
        }
        let before = completions.len();
        let polled = self.queue_pair.poll(cx, completions);
        let replies = completions[before..].iter().filter(|one| matches!(one, Completion::Received { .. })).count();
        self.seen.replies.fetch_add(replies, Relaxed);
        polled
    }
}

struct Watching<C>(C, Arc<Seen>);

impl<C: Connector> Connector for Watching<C> {
    type QueuePair = Watched<C::QueuePair>;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        let Connected { queue_pair, private_data, local_addr, peer_addr } = self.0.connect(peer, params).await?;
        let queue_pair = Watched { queue_pair, seen: Arc::clone(&self.1), may_busy_poll: true };
        Ok(Connected { queue_pair, private_data, local_addr, peer_addr })
    }
}

/// A caller gets its result before the provider busy-polls again. Otherwise each call would take the whole busy-polling
/// time.
#[tokio::test]
async fn callers_run_before_busy_polling() {
    timed(async {
        let fabric = SimFabric::new(SimConfig::default());
        let listener = fabric.listen(0).unwrap();
        let server = Server::builder().service(TestService::default()).listen_with(listener).bind().await.unwrap();
        let addr = server.local_addrs()[0];
        let running = spawn_server(server);
        let seen = Arc::new(Seen::default());
        let connector = Watching(fabric.connector(), Arc::clone(&seen));
        // In version 1, all messages to a client are replies.
        let channel = Channel::builder().versions(Versions::V1).connect_with(connector, addr).await.unwrap();
        let callers = Arc::clone(&seen);
        // Run in a task: tokio polls the future of `block_on` only after many task polls.
        let all = tokio::spawn(async move {
            let returns = async || {
                call::<Null>(&channel, &()).await.unwrap();
                callers.returned.fetch_add(1, Relaxed);
            };
            for _ in 0..21 {
                returns().await;
            }
            for _ in 0..20 {
                tokio::join!(returns(), returns());
            }
        });
        all.await.unwrap();
        assert_eq!((seen.replies.load(Relaxed), seen.in_the_way.load(Relaxed)), (61, 0));
        assert!(seen.between.load(Relaxed) > 0, "the provider was never polled while a caller had a result");
        running.abort();
    })
    .await;
}
