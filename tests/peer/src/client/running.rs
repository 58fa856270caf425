//! A client that runs during a case.

use std::{
    any::Any,
    future::{Future, pending},
    net::SocketAddr,
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

use super::ClientUnderTest;
use crate::{
    case::{Early, Finding, Limits, Steps},
    link::Link,
    transport::Listening,
};

/// The client of a case: its task, if the peer has started the client, and the listener to which it connects.
#[derive(Debug)]
pub(crate) struct RunningClient {
    task: Option<JoinHandle<bool>>,
    /// The listener of the case. It occupies the port while the client runs, because the client might connect once
    /// more.
    listener: Option<Box<dyn Any + Send + Sync>>,
}

impl RunningClient {
    /// Starts the client. Does nothing if clients are started by other means.
    pub(crate) fn start(client: &ClientUnderTest, addr: SocketAddr) -> Self {
        Self { task: client.start.as_ref().map(|start| tokio::spawn(start(addr))), listener: None }
    }

    /// Starts the client, and accepts its connection with this private data.
    pub(super) async fn accept(client: &ClientUnderTest, private_data: Vec<u8>) -> Steps<(Link, Self)> {
        let listening = Listening::bind(client.listen).await;
        let listening = listening.map_err(|error| Early::not_run(format!("cannot listen: {error}")))?;
        let mut running = Self::start(client, listening.local_addr());
        let patience = client.limits.patience;
        let link = running.connects(patience, listening.accept(private_data.into(), patience)).await?;
        let link = link.map_err(|error| Early::not_run(format!("cannot accept a connection: {error:#}")))?;
        running.keep(listening);
        Ok((link, running))
    }

    /// Waits for a connection of the client, while it runs.
    pub(crate) async fn connects<T>(&mut self, patience: Duration, connection: impl Future<Output = T>) -> Steps<T> {
        let task = &mut self.task;
        let ended = async move {
            match task {
                Some(task) => drop(task.await),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            connection = connection => return Ok(connection),
            () = ended => {}
            () = sleep(patience) => return Err(Early::not_run("no client connected")),
        }
        self.task = None;
        Err(Early::not_run("the client ended without a connection"))
    }

    /// Keeps the listener open until this value is dropped.
    pub(crate) fn keep(&mut self, listener: impl Send + Sync + 'static) {
        self.listener = Some(Box::new(listener));
    }

    /// Returns `true` if the peer started the client and has not yet seen it end.
    pub(crate) fn is_started(&self) -> bool {
        self.task.is_some()
    }

    /// Waits for the client. Returns `true` if it succeeded, and `false` if it failed. Returns `None` if it still runs
    /// at the deadline, if it panicked, if the peer has not started it, or if its result was returned before.
    pub(crate) async fn result(&mut self, deadline: Instant) -> Option<bool> {
        let result = timeout_at(deadline, self.task.as_mut()?).await.ok()?;
        self.task = None;
        result.ok()
    }
}

impl Drop for RunningClient {
    /// Ends a client that still runs.
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The outcome of a client's run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Succeeded,
    Failed,
    /// The client ended the connection, and its success is not known.
    Ended(String),
    Waits,
}

/// A connection on which calls of a client are served.
pub(super) trait ServedSession: Send {
    type Call: Send + Sync;

    fn limits(&self) -> Limits;

    fn running(&mut self) -> &mut RunningClient;

    /// Waits for the next call. The error describes why there is none by the deadline.
    fn call(&mut self, deadline: Instant) -> impl Future<Output = Result<Self::Call, String>> + Send;

    /// Transfers the data of a call, and sends the correct reply.
    fn serve(&mut self, call: &Self::Call) -> impl Future<Output = ()> + Send;

    /// Replies to a call with SYSTEM_ERR.
    fn fail(&mut self, call: &Self::Call);

    fn xid(call: &Self::Call) -> u32;
}

/// Serves the remaining calls until the client has finished, or the time limit has passed. A client that the peer has
/// not started has succeeded when it makes another call. If `failing` is given, calls with this XID get SYSTEM_ERR.
pub(super) async fn finish<S: ServedSession>(session: &mut S, failing: Option<u32>) -> End {
    let limits = session.limits();
    let deadline = Instant::now() + limits.patience;
    loop {
        // The client's result counts more than the end of its connection.
        if let Some(result) = session.running().result(Instant::now()).await {
            return if result { End::Succeeded } else { End::Failed };
        }
        let soon = (Instant::now() + limits.settle).min(deadline);
        match session.call(soon).await {
            Ok(call) if failing == Some(S::xid(&call)) => session.fail(&call),
            Ok(call) => {
                session.serve(&call).await;
                // Somebody else has started the client, whose next call shows that it accepted the reply.
                if !session.running().is_started() {
                    return End::Succeeded;
                }
            }
            Err(why) if why.starts_with("the connection ended") => {
                return match session.running().result(deadline).await {
                    Some(true) => End::Succeeded,
                    Some(false) => End::Failed,
                    None => End::Ended(why),
                };
            }
            Err(_) if Instant::now() >= deadline => return End::Waits,
            Err(_) => {}
        }
    }
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
