#![allow(clippy::unwrap_used)]

use std::{
    collections::VecDeque,
    future::{pending, ready},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    client::{
        call::CallOptions,
        channel::Channel,
        dial::{Dial, DialFuture, DialRules},
        error::{CallError, ConnectError},
        invoke::Invoke as _,
        link::ChannelLink,
        pool::ChannelPool,
        reconnect::Reconnect,
    },
    config::ConnectionConfig,
    driver::DriverPort,
    engine::CloseReason,
    provider::DisconnectReason,
    service::{Procedure, ReplyBounds},
    session::{ChannelConfig, ChannelInfo},
    transport::Transport,
};

/// The outcome of an attempt to connect.
#[derive(Clone, Copy)]
enum Outcome {
    /// A connection over the path with this rank.
    Connects(usize),
    Fails,
    Hangs,
}

/// Attempts to connect, the last of which repeats.
#[derive(Clone)]
struct Script(Arc<Mutex<Scripted>>);

struct Scripted {
    outcomes: VecDeque<Outcome>,
    /// When each attempt began, and the rank that it had to improve.
    attempts: Vec<(Instant, Option<usize>)>,
    /// The latest connection.
    port: Option<Arc<DriverPort>>,
}

impl Script {
    fn new(outcomes: impl IntoIterator<Item = Outcome>) -> Self {
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

    fn port(&self) -> Arc<DriverPort> {
        self.0.lock().unwrap().port.clone().unwrap()
    }

    /// Returns the ranks of the attempts since the last question.
    fn ranks(&self) -> Vec<Option<usize>> {
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

fn link(rank: usize) -> Arc<ChannelLink> {
    let port = Arc::new(DriverPort::new(1));
    let link = ChannelLink::new(port, ChannelInfo::unconnected(Transport::Tcp), false).dialed(None);
    link.set_rank(rank);
    Arc::new(link)
}

fn config() -> Arc<ChannelConfig> {
    Arc::new(ChannelConfig::new(ConnectionConfig::default(), 1))
}

/// Closes a channel with this connection.
async fn close(channel: &Channel, port: &DriverPort) {
    let closing = tokio::spawn({
        let channel = channel.clone();
        async move { channel.close().await }
    });
    sleep(Duration::from_millis(1)).await;
    assert!(!closing.is_finished());
    port.close(&CloseReason::Disconnected(DisconnectReason::Local));
    closing.await.unwrap();
}

fn lazy(script: &Script, reconnect: Reconnect) -> Channel {
    Channel::lazy(Box::new(script.clone()), Transport::Tcp, config(), reconnect)
}

/// A channel over a path that is not the best looks for better ones, with pauses that double, until it has the best or is closed.
#[tokio::test(start_paused = true)]
async fn better_paths_are_tried() {
    let script =
        Script::new([Outcome::Fails, Outcome::Fails, Outcome::Connects(1), Outcome::Fails, Outcome::Connects(0)]);
    let channel = Channel::dialed(Box::new(script.clone()), link(2), config(), Reconnect::on_demand());
    sleep(Duration::from_millis(999)).await;
    assert_eq!(script.ranks(), []);
    // The pauses are 2, 4 and 8 s, of which up to a half is cut.
    sleep(Duration::from_secs(14)).await;
    assert_eq!(script.0.lock().unwrap().attempts.len().min(3), 3);
    sleep(Duration::from_secs(7)).await;
    assert_eq!(script.ranks(), [Some(2), Some(2), Some(2), Some(1), Some(1)]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(script.ranks(), [], "it is the best");
    drop(channel);

    let script = Script::new([Outcome::Fails]);
    let first = link(1);
    let port = Arc::clone(&first.port);
    let channel = Channel::dialed(Box::new(script.clone()), first, config(), Reconnect::on_demand());
    sleep(Duration::from_secs(1200)).await;
    let attempts = script.ranks().len();
    assert!((22..=50).contains(&attempts), "{attempts} attempts, one in 30 to 60 s at last");
    close(&channel, &port).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(script.ranks(), []);
    assert!(!channel.is_connected() && channel.is_closed());
}

/// A channel connects unless it is closed, or has lost its only connection.
#[tokio::test(start_paused = true)]
async fn channels_that_connect() {
    for (reconnect, again) in [(Reconnect::Never, false), (Reconnect::on_demand(), true)] {
        let script = Script::new([Outcome::Connects(0)]);
        let channel = lazy(&script, reconnect);
        assert!(channel.can_connect() && !channel.is_connected() && !channel.is_closed());
        channel.connected(|_| panic!("it connects")).await.unwrap();
        assert_eq!((script.ranks(), channel.is_connected()), (vec![None], true));
        assert_eq!(channel.can_connect(), again);
        let port = script.port();
        close(&channel, &port).await;
        assert!(!channel.can_connect() && !channel.is_connected() && channel.is_closed());
        channel.connected(|_| panic!("it is closed")).await.unwrap_err();
        assert_eq!(script.ranks(), []);
        // Without a way to connect.
        let channel = Channel::over(None, link(0), config(), reconnect);
        assert!(!channel.can_connect() && channel.is_connected());
    }
}

/// A call whose deadline passes during an attempt to connect has the error of the attempt before it, if that failed.
#[tokio::test(start_paused = true)]
async fn late_calls_know_the_last_error() {
    let late = async |channel: &Channel| {
        let (start, limit) = (Instant::now(), Duration::from_secs(9));
        let error = channel.call_null(1, 1, CallOptions::new().timeout(limit)).await.unwrap_err();
        assert_eq!(start.elapsed(), limit);
        match error {
            CallError::Connect { error: ConnectError::Late { last }, .. } => last.is_some(),
            other => panic!("{other:?}"),
        }
    };
    let script = Script::new([Outcome::Fails, Outcome::Hangs]);
    assert!(late(&lazy(&script, Reconnect::on_demand())).await);
    let script = Script::new([Outcome::Hangs]);
    let channel = lazy(&script, Reconnect::on_demand());
    assert!(!late(&channel).await);
    // The attempt goes on without its caller, and ends with the channel.
    assert!(!late(&channel).await);
    assert_eq!(script.ranks(), [None]);
    let held = Arc::strong_count(&script.0);
    drop(channel);
    sleep(Duration::from_millis(1)).await;
    assert!(Arc::strong_count(&script.0) < held && Arc::strong_count(&script.0) == 1);
}

struct Harmful;

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

/// A call that was not sent moves to another connection, even if it must not be executed twice.
#[tokio::test(start_paused = true)]
async fn unsent_calls_move_to_other_connections() {
    let links = [link(0), link(0)];
    let ports = links.each_ref().map(|link| Arc::clone(&link.port));
    let script = Script::new([Outcome::Hangs]);
    let dialed = |link| Channel::dialed(Box::new(script.clone()), link, config(), Reconnect::on_demand());
    let pool = ChannelPool::new(links.map(dialed));
    let call = tokio::spawn({
        let pool = pool.clone();
        async move { pool.invoke::<Harmful>(&(), CallOptions::new()).await }
    });
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pool.in_flight().collect::<Vec<_>>(), [1, 0]);
    ports[0].close(&CloseReason::Disconnected(DisconnectReason::Remote));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(pool.in_flight().collect::<Vec<_>>(), [0, 1]);
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    assert_eq!(pool.in_flight().collect::<Vec<_>>(), [0, 0]);
    // The attempt to connect again ends with the pool.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(script.ranks(), [None]);
    drop(pool);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(Arc::strong_count(&script.0), 1);
}
