//! Busy polling: a provider that may keep the thread does so only while nobody else has something to do.
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
    provider::{
        Completion, Connected, Connector, QueuePair, SetupError, SetupParams,
        sim::{Fabric, SimConfig},
    },
    server::Server,
};

/// What a client's queue pair and its callers have seen.
#[derive(Debug, Default)]
struct Seen {
    /// Replies that have come.
    replies: AtomicUsize,
    /// Callers that have theirs.
    returned: AtomicUsize,
    /// Polls between a reply and the return of its caller.
    between: AtomicUsize,
    /// Those of them that might have kept the thread.
    in_the_way: AtomicUsize,
}

struct Watched<Q> {
    queue_pair: Q,
    seen: Arc<Seen>,
    may_spin: bool,
}

impl<Q: QueuePair> QueuePair for Watched<Q> {
    forward_to_queue_pair!(queue_pair);

    fn may_spin(&mut self, may: bool) {
        self.may_spin = may;
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        if self.seen.returned.load(Relaxed) < self.seen.replies.load(Relaxed) {
            self.seen.between.fetch_add(1, Relaxed);
            self.seen.in_the_way.fetch_add(usize::from(self.may_spin), Relaxed);
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
        let queue_pair = Watched { queue_pair, seen: Arc::clone(&self.1), may_spin: true };
        Ok(Connected { queue_pair, private_data, local_addr, peer_addr })
    }
}

/// A caller that has its result comes before the next look for completions, or each call would cost all the time that the
/// provider may look for.
#[tokio::test]
async fn callers_come_first() {
    timed(async {
        let fabric = Fabric::new(SimConfig::default());
        let listener = fabric.listen(0).unwrap();
        let server = Server::builder().service(TestService::default()).listen_with(listener).bind().await.unwrap();
        let addr = server.local_addrs()[0];
        let running = tokio::spawn(server.serve());
        let seen = Arc::new(Seen::default());
        let connector = Watching(fabric.connector(), Arc::clone(&seen));
        // In version 1 all that a client hears are replies.
        let channel = Channel::builder().versions(1..=1).connect_with(connector, addr).await.unwrap();
        let callers = Arc::clone(&seen);
        // In a task: tokio polls what it blocks on only after many turns of tasks.
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
