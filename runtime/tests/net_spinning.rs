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

/// Polls that come right after a message.
#[derive(Debug, Default)]
struct Polls {
    may_spin: AtomicUsize,
    may_not: AtomicUsize,
}

struct Watched<Q> {
    queue_pair: Q,
    polls: Arc<Polls>,
    may_spin: bool,
    /// A message came with the last poll.
    heard: bool,
}

impl<Q: QueuePair> QueuePair for Watched<Q> {
    forward_to_queue_pair!(queue_pair);

    fn may_spin(&mut self, may: bool) {
        self.may_spin = may;
    }

    fn poll(&mut self, cx: &mut Context<'_>, completions: &mut Vec<Completion>) -> Poll<()> {
        if self.heard {
            let polls = if self.may_spin { &self.polls.may_spin } else { &self.polls.may_not };
            polls.fetch_add(1, Relaxed);
        }
        let before = completions.len();
        let polled = self.queue_pair.poll(cx, completions);
        self.heard = completions[before..].iter().any(|completion| matches!(completion, Completion::Received { .. }));
        polled
    }
}

struct Watching<C>(C, Arc<Polls>);

impl<C: Connector> Connector for Watching<C> {
    type QueuePair = Watched<C::QueuePair>;

    async fn connect(&self, peer: SocketAddr, params: SetupParams) -> Result<Connected<Self::QueuePair>, SetupError> {
        let Connected { queue_pair, private_data, local_addr, peer_addr } = self.0.connect(peer, params).await?;
        let queue_pair = Watched { queue_pair, polls: Arc::clone(&self.1), may_spin: true, heard: false };
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
        let polls = Arc::new(Polls::default());
        let connector = Watching(fabric.connector(), Arc::clone(&polls));
        // In version 1 all that a client hears are replies.
        let channel = Channel::builder().versions(1..=1).connect_with(connector, addr).await.unwrap();
        for _ in 0..20 {
            call::<Null>(&channel, &()).await.unwrap();
        }
        assert_eq!((polls.may_spin.load(Relaxed), polls.may_not.load(Relaxed)), (0, 20));
        running.abort();
    })
    .await;
}
