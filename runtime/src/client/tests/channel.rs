#![allow(clippy::unwrap_used)]

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, timeout};

use super::fakes::*;
use crate::{
    client::{
        call::CallOptions,
        channel::Channel,
        error::{CallError, ConnectError},
        invoke::Invoke as _,
        link::ChannelLink,
        pool::ChannelPool,
        reconnect::Reconnect,
    },
    driver::{CommandQueue, DriverPort},
    engine::{CloseReason, NegotiationFailure},
    provider::DisconnectReason,
    session::ChannelInfo,
    transport::Transport,
};

/// A channel over a path that is not the best looks for better paths, with pauses that double, until it uses the best
/// path or is closed.
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

/// A channel can connect until it is closed. With `Reconnect::Never`, it connects only once. Without a dialer, it
/// cannot connect.
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

/// A call whose deadline passes during an attempt to connect has the error of the previous attempt, if that attempt
/// failed.
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
    // The connection that was lost meanwhile is no failed attempt.
    let script = Script::new([Outcome::Fails, Outcome::Connects(0), Outcome::Hangs]);
    let channel = lazy(&script, Reconnect::on_demand());
    channel.connected(|_| {}).await.unwrap();
    lose(&script.port());
    assert!(!late(&channel).await);
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

/// A channel with `Reconnect::Never` connects again once, after a failed negotiation of versions.
#[tokio::test(start_paused = true)]
async fn the_fallback_is_the_last_connection() {
    let script = Script::new([Outcome::Connects(0)]);
    let first = link_to(([192, 0, 2, 4], 1).into());
    let port = Arc::clone(&first.port);
    let channel = Channel::dialed(Box::new(script.clone()), first, config(), Reconnect::Never);
    let call = tokio::spawn({
        let channel = channel.clone();
        async move { channel.call::<Harmful>(&(), CallOptions::new()).await }
    });
    settle().await;
    port.close(&CloseReason::NegotiationFailed { why: NegotiationFailure::NoCommonVersion, versions: None });
    settle().await;
    assert_eq!((call.is_finished(), script.ranks()), (false, vec![None]));
    lose(&script.port());
    call.await.unwrap().unwrap_err();
    let (args, options) = ((), CallOptions::new());
    timeout(Duration::from_secs(1), channel.call::<Harmful>(&args, options)).await.unwrap().unwrap_err();
    assert_eq!(script.ranks(), []);
}

/// The close of a channel that does not own its connection leaves the connection open.
#[tokio::test(start_paused = true)]
async fn borrowed_connections_stay_open() {
    let port = Arc::new(DriverPort::new(1));
    let link = ChannelLink::new(Arc::clone(&port), ChannelInfo::unconnected(Transport::Tcp), false);
    port.hold();
    let channel = Channel::over(None, Arc::new(link), config(), Reconnect::Never);
    timeout(Duration::from_secs(1), channel.close()).await.unwrap();
    assert!(!port.is_closed() && !channel.is_connected());
    let mut commands = CommandQueue::default();
    port.take(&mut commands);
    assert!(commands.is_empty());
}
