#![allow(clippy::unwrap_used)]

use std::{
    collections::VecDeque,
    future::pending,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};

use super::shared;
use crate::{
    config::ConnectionConfig,
    driver::TcpIo,
    provider::SetupError,
    server::{
        accept::{Accept as _, ConnectionSource, SourceAcceptor},
        handle::{ServerHandle, ServerShared},
    },
    session::SetUp,
};

/// An event of a scripted listener.
enum Next {
    /// A connection of this host, whose set-up waits for the peer.
    Silent(u8),
    /// A connection whose set-up fails.
    Failing,
    /// The system call fails with this error.
    Error(i32),
}

struct Scripted(Mutex<VecDeque<Next>>);

impl ConnectionSource for Scripted {
    /// `true` if the set-up fails.
    type Incoming = bool;
    type Io = TcpIo;

    fn local_addr(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    async fn accept(&self) -> io::Result<(bool, SocketAddr)> {
        let next = self.0.lock().unwrap().pop_front();
        match next {
            Some(Next::Silent(host)) => Ok((false, ([10, 0, 0, host], 1).into())),
            Some(Next::Failing) => Ok((true, ([10, 0, 0, 9], 1).into())),
            Some(Next::Error(code)) => Err(io::Error::from_raw_os_error(code)),
            None => pending().await,
        }
    }

    fn move_to_current_runtime(incoming: bool) -> io::Result<bool> {
        Ok(incoming)
    }

    async fn set_up(
        &self,
        fails: bool,
        config: &ConnectionConfig,
        _shared: &ServerShared,
    ) -> Result<SetUp<TcpIo>, SetupError> {
        // The parts by which a host has a share of the server.
        assert!(config.engine.budget.is_some() && config.engine.failed_calls.is_some());
        if fails {
            return Err(SetupError::TimedOut(Duration::ZERO));
        }
        pending().await
    }
}

/// Accepts the connections of a listener whose events are `script`, with room for `max` connections.
fn accept(max: usize, script: impl IntoIterator<Item = Next>) -> (Arc<ServerShared>, JoinHandle<()>) {
    let shared = shared(max, Duration::ZERO);
    let source = Scripted(Mutex::new(script.into_iter().collect()));
    let acceptor = Box::new(SourceAcceptor(Arc::new(source)));
    (Arc::clone(&shared), tokio::spawn(acceptor.run(shared)))
}

fn setup_failed(shared: &Arc<ServerShared>) -> u64 {
    ServerHandle(Arc::clone(shared)).stats().setup_failed
}

/// Only an error for lack of file descriptors makes a connection leave. Each error is followed by a pause.
#[tokio::test(start_paused = true)]
async fn errors_of_the_listener() {
    for (code, is_freed) in [(libc::ECONNABORTED, false), (libc::EMFILE, true), (libc::ENFILE, true)] {
        let (shared, _accepting) = accept(9, [Next::Silent(1), Next::Error(code), Next::Silent(2), Next::Silent(3)]);
        let start = Instant::now();
        tokio::time::sleep(Duration::from_millis(49)).await;
        assert_eq!(shared.room.counts(), if is_freed { (0, 0) } else { (1, 0) }, "{code}");
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert_eq!(shared.room.counts().0, if is_freed { 2 } else { 3 }, "{code}, after {:?}", start.elapsed());
        assert_eq!(setup_failed(&shared), 0);
        assert!(!shared.room.should_warn(), "the error was logged");
    }
}

/// Connections that are refused or whose set-up fails occupy no place within the limits. They are counted in
/// `setup_failed`.
#[tokio::test(start_paused = true)]
async fn connections_without_set_up() {
    let (shared, accepting) = accept(1, [Next::Failing]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((setup_failed(&shared), shared.room.is_empty()), (1, true));
    assert!(shared.room.should_warn(), "nothing was logged as a warning");
    accepting.abort();

    let (shared, accepting) = accept(1, [Next::Silent(1), Next::Silent(1), Next::Silent(2), Next::Failing]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((setup_failed(&shared), shared.room.counts()), (3, (1, 0)));
    assert!(!shared.room.should_warn(), "the refusals were logged");
    // The set-ups end with the listener.
    accepting.abort();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert!(shared.room.is_empty());
}
