//! A client that runs during a case.

use std::net::SocketAddr;

use tokio::{
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::ClientUnderTest;
use crate::case::Finding;

/// A client that a case has started.
#[derive(Debug)]
pub(crate) struct RunningClient(Option<JoinHandle<bool>>);

impl RunningClient {
    /// Starts the client, if the peer does that.
    pub(crate) fn start(client: &ClientUnderTest, addr: SocketAddr) -> Self {
        Self(client.start.as_ref().map(|start| tokio::spawn(start(addr))))
    }

    /// Returns `true` if the peer started the client, and it still runs.
    pub(crate) fn is_started(&self) -> bool {
        self.0.is_some()
    }

    /// Returns `true` if the client succeeded, `false` if it failed. `None` if it still runs after the deadline, or if the peer has not
    /// started it.
    pub(crate) async fn result(&mut self, deadline: Instant) -> Option<bool> {
        let result = timeout_at(deadline, self.0.as_mut()?).await.ok()?;
        self.0 = None;
        result.ok()
    }
}

impl Drop for RunningClient {
    /// Ends a client that still runs.
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// The end of a client's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    /// The client ended the connection, and its success is not known.
    Ended(String),
    Waits,
}

/// Judges a client that must succeed.
pub(crate) fn must_succeed(end: End) -> Finding {
    match end {
        End::Succeeded => Finding::conforming("the client succeeded"),
        End::Failed => Finding::wrong("the call failed"),
        End::Ended(reason) => Finding::wrong(reason),
        End::Waits => Finding::wrong("the client waits"),
    }
}

/// Judges a client that must not succeed.
pub(crate) fn must_fail(end: End) -> Finding {
    match end {
        End::Succeeded => Finding::wrong("the client succeeded"),
        End::Failed => Finding::conforming("the call failed"),
        End::Ended(reason) => Finding::conforming(reason),
        End::Waits => Finding::wrong("the client waits"),
    }
}
