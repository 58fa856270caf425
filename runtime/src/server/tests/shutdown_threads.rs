//! Tests of the shutdown of a server while connections are set up and end, in random interleavings chosen by `shuttle`.

// The shared state is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code, unreachable_pub)]

#[path = "../handle.rs"]
mod handle;
#[path = "../shutdown.rs"]
mod shutdown;

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use shuttle::{
    future::block_on,
    thread::{self, JoinHandle},
};

use self::handle::{ConnectionPermit, ServerShared};
#[cfg(feature = "metrics")]
use crate::server::measured;
use crate::{
    config::ConnectionConfig,
    driver::{CommandQueue, DriverCommand, DriverPort},
    memory::MemoryBudget,
    security::{HostAddr, StandardAuthenticator},
    server::{duplicates, limits, room, runtimes, stats},
    session::{ChannelConfig, ChannelInfo, HookedService, ServiceRegistry},
    sync::model::{self as sync, check, enter_runtime, give_up},
    transport::Transport,
};

const GRACE: Duration = Duration::from_secs(1);

/// The cause of a connection's end.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The client disconnects.
    ByItself,
    /// The server tells the connection to drain or to disconnect.
    Drained,
    /// The server tells the connection to disconnect, because a call in progress delays the drain.
    Disconnected,
}

fn server() -> Arc<ServerShared> {
    let registry = ServiceRegistry::new(std::iter::empty::<HookedService>(), Arc::new(StandardAuthenticator), None);
    let callbacks = ChannelConfig::new(ConnectionConfig::default(), 1);
    let room = room::ConnectionRoom::new(8, 8);
    Arc::new(ServerShared::new(registry.unwrap(), callbacks, MemoryBudget::new(1), room, GRACE, Duration::ZERO))
}

/// Waits until a connection is told to end.
async fn end_command(port: &DriverPort, end: End) {
    let mut commands = CommandQueue::default();
    poll_fn(|cx| {
        port.set_task(cx.waker());
        port.take(&mut commands);
        let is_end = |command| match command {
            DriverCommand::Disconnect => true,
            DriverCommand::Drain => matches!(end, End::Drained),
            _ => false,
        };
        let is_over = std::iter::from_fn(|| commands.pop()).any(is_end);
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Starts a thread that sets up a connection and serves it to its end, unless the server is closing.
fn connects(server: &Arc<ServerShared>, end: End) -> JoinHandle<()> {
    let server = Arc::clone(server);
    thread::spawn(move || {
        let permit = server.room.enter(HostAddr::of(([10, 0, 0, 1], 1).into())).unwrap();
        let permit = ConnectionPermit { room: permit, runtime: None };
        let port = Arc::new(DriverPort::new(1));
        let Some(id) = server.add(&ChannelInfo::unconnected(Transport::Tcp), Arc::clone(&port), permit) else { return };
        match end {
            End::ByItself => thread::yield_now(),
            End::Drained | End::Disconnected => block_on(end_command(&port, end)),
        }
        server.remove(id, None);
    })
}

/// Starts a thread that shuts the server down, but drops the shutdown if it is still pending after `polls` polls.
fn ends(server: &Arc<ServerShared>, grace: Duration, polls: usize) -> JoinHandle<()> {
    let server = Arc::clone(server);
    thread::spawn(move || {
        block_on(give_up(server.end(grace), polls));
    })
}

/// A shutdown ends when the last connection has ended, including connections that are set up meanwhile.
#[test]
fn a_shutdown_waits_for_every_connection() {
    let _entered = enter_runtime();
    check(|| {
        let server = server();
        let connections = [connects(&server, End::Drained), connects(&server, End::ByItself)];
        let given_up = ends(&server, GRACE, 1);
        block_on(server.end(GRACE));
        given_up.join().unwrap();
        for connection in connections {
            connection.join().unwrap();
        }
        assert_eq!(server.room.counts(), (0, 0));
    });
}

/// A second shutdown with a grace period of zero ends the grace period of the shutdown in progress.
#[test]
fn a_second_shutdown_ends_the_grace_period() {
    let _entered = enter_runtime();
    check(|| {
        let server = server();
        let handle = handle::ServerHandle(Arc::clone(&server));
        let connections = [connects(&server, End::Disconnected), connects(&server, End::Drained)];
        let second = thread::spawn(move || handle.shutdown_within(Duration::ZERO));
        block_on(server.end(GRACE));
        second.join().unwrap();
        for connection in connections {
            connection.join().unwrap();
        }
        assert_eq!(server.room.counts(), (0, 0));
    });
}
