//! Fake connections without servers, scripted connection attempts, and a procedure to call.
#![allow(clippy::unwrap_used)]

use std::{
    collections::VecDeque,
    future::{Future, pending, ready},
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::{
    client::{
        channel::Channel,
        dial::{Dial, DialFuture, DialRules},
        error::ConnectError,
        link::ChannelLink,
        reconnect::Reconnect,
    },
    config::ConnectionConfig,
    driver::{CommandQueue, DriverCommand, DriverPort, ResultSlot},
    engine::{
        CallFailure, ChunkItems, CloseReason, FormatChoice, FormatReason, IncomingReply, MessageFormat, MessagePayload,
    },
    provider::DisconnectReason,
    rpc::ReplyHeader,
    service::{Procedure, ReplyBounds},
    session::{ChannelConfig, ChannelInfo},
    transport::{Scheme, Transport},
    xdr::{FlatSink, XdrEncode as _},
};

/// The outcome of an attempt to connect.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    /// The attempt establishes a connection over the path with this rank.
    Connects(usize),
    Fails,
    Hangs,
}

/// A dialer with scripted outcomes. The last outcome repeats.
#[derive(Clone)]
pub(crate) struct Script(pub(crate) Arc<Mutex<Scripted>>);

pub(crate) struct Scripted {
    outcomes: VecDeque<Outcome>,
    /// The start of each attempt and, for an attempt to find a better path, the rank of the path to improve on.
    pub(crate) attempts: Vec<(Instant, Option<usize>)>,
    /// The port of the latest connection.
    port: Option<Arc<DriverPort>>,
}

impl Script {
    pub(crate) fn new(outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        Self(Arc::new(Mutex::new(Scripted {
            outcomes: outcomes.into_iter().collect(),
            attempts: Vec::new(),
            port: None,
        })))
    }

    fn next(&self, rank: Option<usize>) -> DialFuture<'static> {
        let mut script = self.0.lock().unwrap();
        script.attempts.push((Instant::now(), rank));
        let outcome = script.outcomes.pop_front().unwrap();
        if script.outcomes.is_empty() {
            script.outcomes.push_back(outcome);
        }
        match outcome {
            Outcome::Connects(rank) => {
                let link = link(rank);
                script.port = Some(Arc::clone(&link.port));
                Box::pin(ready(Ok(link)))
            }
            Outcome::Fails => Box::pin(ready(Err(ConnectError::Overtaken { after: Duration::ZERO }))),
            Outcome::Hangs => Box::pin(pending()),
        }
    }

    pub(crate) fn port(&self) -> Arc<DriverPort> {
        self.0.lock().unwrap().port.clone().unwrap()
    }

    /// Returns the ranks in `attempts`, and clears the list.
    pub(crate) fn ranks(&self) -> Vec<Option<usize>> {
        self.0.lock().unwrap().attempts.drain(..).map(|(_, rank)| rank).collect()
    }
}

impl Dial for Script {
    fn dial<'a>(&'a self, _: &'a Arc<ChannelConfig>, _: DialRules) -> DialFuture<'a> {
        self.next(None)
    }

    fn dial_better<'a>(&'a self, rank: usize, _: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
        assert!(rules.must_answer, "calls leave a connection that works");
        self.next(Some(rank))
    }
}

pub(crate) fn link(rank: usize) -> Arc<ChannelLink> {
    let port = Arc::new(DriverPort::new(8));
    let link = ChannelLink::new(port, ChannelInfo::unconnected(Transport::Tcp), false).dialed(None);
    link.set_rank(rank);
    Arc::new(link)
}

/// Returns an RPC-over-RDMA connection to the server at `peer_addr`. The version has not been negotiated yet.
pub(crate) fn link_to(peer_addr: SocketAddr) -> Arc<ChannelLink> {
    let info = ChannelInfo { peer_addr, ..ChannelInfo::unconnected(Transport::Rdma) };
    Arc::new(ChannelLink::new(Arc::new(DriverPort::new(8)), info, true).dialed(Some(Scheme::IWARP)))
}

pub(crate) fn config() -> Arc<ChannelConfig> {
    Arc::new(ChannelConfig::new(ConnectionConfig::default(), 1))
}

/// Closes `channel`, and checks that the close waits for the end of the connection. Then ends the connection of `port`
/// and its calls, and waits until the close has completed.
pub(crate) async fn close(channel: &Channel, port: &DriverPort) {
    let closing = tokio::spawn({
        let channel = channel.clone();
        async move { channel.close().await }
    });
    sleep(Duration::from_millis(1)).await;
    assert!(!closing.is_finished() && !channel.is_connected(), "calls in flight finish");
    port.close(&CloseReason::Disconnected(DisconnectReason::Local));
    closing.await.unwrap();
}

pub(crate) fn lazy(script: &Script, reconnect: Reconnect) -> Channel {
    Channel::lazy(Box::new(script.clone()), Transport::Tcp, config(), reconnect)
}

/// Takes the queued calls, as a driver does to send them. Returns their result slots.
pub(crate) fn sent(port: &DriverPort) -> Vec<ResultSlot> {
    let mut commands = CommandQueue::default();
    port.take(&mut commands);
    let start = |command| match command {
        DriverCommand::Start { slot } => Some(slot),
        _ => None,
    };
    std::iter::from_fn(|| commands.pop()).filter_map(start).collect()
}

pub(crate) fn deliver(port: &DriverPort, slot: ResultSlot, result: Result<IncomingReply, CallFailure>) {
    port.deliver(&mut vec![(slot, result)], &mut Vec::new());
}

/// Returns a Long reply that consists of `header` and the words of `results`.
pub(crate) fn reply(header: &ReplyHeader, results: &[u32]) -> IncomingReply {
    let mut message = Vec::new();
    header.encode(&mut FlatSink::new(&mut message)).unwrap();
    results.iter().for_each(|word| word.encode(&mut FlatSink::new(&mut message)).unwrap());
    IncomingReply {
        payload: MessagePayload::Long(Bytes::from(message)),
        writes: ChunkItems::new(),
        format: MessageFormat::default(),
        reason: FormatReason::default(),
        call: FormatChoice::default(),
    }
}

/// Reports one received reply in the counters of the connection, and then closes the connection as if the server had
/// disconnected.
pub(crate) fn lose(port: &DriverPort) {
    port.publish_replies(1);
    port.close(&CloseReason::Disconnected(DisconnectReason::Remote));
}

/// Polls a call once, with a waker that does nothing.
pub(crate) fn poll<F: Future + ?Sized>(call: &mut Pin<Box<F>>) -> Poll<F::Output> {
    call.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Lets the tasks of channels run, without advancing the clock.
pub(crate) async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A procedure whose calls must not be executed twice.
pub(crate) struct Harmful;

impl Procedure for Harmful {
    const PROGRAM: u32 = 1;
    const VERSION: u32 = 1;
    const NUMBER: u32 = 1;
    const NAME: &'static str = "HARMFUL";
    const IDEMPOTENT: bool = false;
    type Args = ();
    type Reply = ();
    fn reply_bounds((): &()) -> ReplyBounds {
        ReplyBounds::default()
    }
}
