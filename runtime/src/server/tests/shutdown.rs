#![allow(clippy::unwrap_used)]

use std::{future::Future, pin::pin, sync::Arc, task::Context, time::Duration};

use tokio::time::{Instant, advance};

use super::shared;
use crate::{
    driver::{CommandQueue, DriverCommand, DriverPort},
    security::HostAddr,
    server::handle::{ConnectionPermit, ServerHandle, ServerShared},
    session::ChannelInfo,
    transport::Transport,
};

fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending()
}

/// Adds a connection of `host` that is set up. Returns its ID and its port, or `None` if the server is closing its
/// connections.
fn add(server: &Arc<ServerShared>, host: u8) -> Option<(u64, Arc<DriverPort>)> {
    let room = server.room.enter(HostAddr::of(([10, 0, 0, host], 1).into())).unwrap();
    let port = Arc::new(DriverPort::new(1));
    let permit = ConnectionPermit { room, runtime: None };
    server.add(&ChannelInfo::unconnected(Transport::Tcp), Arc::clone(&port), permit).map(|id| (id, port))
}

/// Returns the numbers of commands to drain and to disconnect that a connection got.
fn ends(port: &DriverPort) -> (usize, usize) {
    let mut commands = CommandQueue::default();
    port.take(&mut commands);
    std::iter::from_fn(|| commands.pop()).fold((0, 0), |(drain, disconnect), command| match command {
        DriverCommand::Drain => (drain + 1, disconnect),
        DriverCommand::Disconnect => (drain, disconnect + 1),
        _ => (drain, disconnect),
    })
}

/// Connections are told to drain, and to disconnect after the grace period. No connection is added meanwhile.
#[tokio::test(start_paused = true)]
async fn connections_drain_before_they_end() {
    let server = shared(9, Duration::ZERO);
    let handle = ServerHandle(Arc::clone(&server));
    let (first, second) = (add(&server, 1).unwrap(), add(&server, 2).unwrap());
    assert_eq!((first.0, second.0), (0, 1));
    let mut end = pin!(server.end(Duration::from_secs(5)));
    assert!(is_pending(end.as_mut()));
    assert_eq!((ends(&first.1), ends(&second.1), server.is_aborting()), ((1, 0), (1, 0), false));
    assert!(add(&server, 3).is_none());
    assert_eq!((handle.stats().open, server.room.counts()), (2, (2, 0)));
    server.remove(first.0, None);
    advance(Duration::from_millis(4999)).await;
    assert!(is_pending(end.as_mut()));
    assert_eq!((ends(&second.1), server.is_aborting()), ((0, 0), false));
    advance(Duration::from_millis(1)).await;
    assert!(is_pending(end.as_mut()));
    assert_eq!((ends(&second.1), server.is_aborting()), ((0, 1), true));
    // A connection may end twice.
    for _ in 0..2 {
        server.remove(second.0, None);
    }
    end.await;
    let stats = handle.stats();
    assert_eq!((stats.accepted, stats.open, stats.ended.total(), stats.setup_failed), (2, 0, 2, 0));
    assert!(server.room.is_empty());
}

/// An open connection that is idle makes room for a connection of another host.
#[tokio::test(start_paused = true)]
async fn open_connections_make_room() {
    let server = shared(2, Duration::ZERO);
    let (first, second) = (add(&server, 1).unwrap(), add(&server, 1).unwrap());
    first.1.publish_idle(Some(Instant::now().into_std()));
    assert!(add(&server, 2).is_some());
    assert_eq!((ends(&first.1), ends(&second.1), server.room.counts()), ((0, 1), (0, 0), (2, 1)));
    server.remove(first.0, None);
    assert_eq!(server.room.counts(), (2, 0));
}

/// A shutdown waits for the drain delay before connections drain. It does not wait if there is no delay, if the grace
/// period is zero, or once a second shutdown begins.
#[tokio::test(start_paused = true)]
async fn drains_are_delayed() {
    let delay = Duration::from_secs(3);
    for (drain_delay, grace, expected) in [
        (delay, Duration::from_secs(5), delay),
        (delay, Duration::ZERO, Duration::ZERO),
        (Duration::ZERO, Duration::from_secs(5), Duration::ZERO),
    ] {
        let server = shared(1, drain_delay);
        let handle = ServerHandle(Arc::clone(&server));
        let start = Instant::now();
        handle.shutdown_within(grace);
        assert_eq!((server.delayed().await, start.elapsed()), (grace, expected));
    }
    let server = shared(1, delay);
    let handle = ServerHandle(Arc::clone(&server));
    let start = Instant::now();
    handle.shutdown();
    let second = async {
        advance(Duration::from_secs(1)).await;
        handle.shutdown_within(Duration::from_secs(2));
    };
    let (grace, ()) = tokio::join!(server.delayed(), second);
    assert_eq!((grace, start.elapsed()), (Duration::from_secs(2), Duration::from_secs(1)));
}

/// A server is ready until its first shutdown.
#[tokio::test]
async fn a_shutdown_ends_readiness() {
    let handle = ServerHandle(shared(1, Duration::from_secs(9)));
    let mut unready = pin!(handle.unready());
    assert!(handle.is_ready() && is_pending(unready.as_mut()));
    for _ in 0..2 {
        handle.shutdown();
        assert!(!handle.is_ready());
        handle.unready().await;
    }
    unready.await;
}
