//! Change notifications. The server sends them by calls in the reverse direction, and a client receives them with a
//! service.

use std::fmt;

use rpcrdma::{
    client::{CallError, CallOptions},
    error::CloseReason,
    server::{Context, HandlerError},
};
use tokio::sync::{broadcast, mpsc};

use super::{
    protocol::{
        BlobChange, ChangeDetail,
        blob_watcher_v1::{BlobWatcherV1, BlobWatcherV1Client},
    },
    service::{wire_name, wire_stat},
    store::Change,
};
use crate::command::chain;

/// The reason why a watcher receives no more changes.
#[derive(Debug)]
pub(super) enum End {
    /// The watcher's connection is closed.
    Disconnected(CloseReason),
    /// A callback failed.
    Failed(CallError),
    /// The store is closed.
    Closed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected(reason) => f.write_str(&chain(reason)),
            Self::Failed(error) => f.write_str(&chain(error)),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

/// Reports changes of blobs whose names begin with `prefix` to a watcher, one at a time. Returns once a report fails,
/// the connection is closed, or the store is closed.
pub(super) async fn report_changes(
    mut changes: broadcast::Receiver<Change>,
    prefix: &str,
    watcher: &BlobWatcherV1Client,
) -> End {
    let mut missed = 0;
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            // Detect a closed connection even if nothing changes.
            reason = watcher.channel().closed() => return End::Disconnected(reason),
        };
        let change = match change {
            Ok(change) => change,
            Err(broadcast::error::RecvError::Lagged(more)) => {
                missed += more;
                continue;
            }
            Err(broadcast::error::RecvError::Closed) => return End::Closed,
        };
        if !change.name.as_str().starts_with(prefix) {
            continue;
        }
        let detail = change.stat.map_or(ChangeDetail::BlobDeleted, |stat| ChangeDetail::BlobStored(wire_stat(&stat)));
        let report = BlobChange { name: wire_name(&change.name), detail, missed: std::mem::take(&mut missed) };
        if let Err(error) = watcher.changed_with(&report, CallOptions::default()).await {
            return End::Failed(error);
        }
    }
}

/// The service that a client offers on its channel before it calls WATCH. It puts changes into a queue.
#[derive(Debug, Clone)]
pub struct Watcher(mpsc::Sender<BlobChange>);

impl Watcher {
    /// Creates a watcher and its queue of at most `room` changes, but at least one. While the queue is full, the server
    /// waits.
    #[must_use]
    pub fn new(room: usize) -> (Self, mpsc::Receiver<BlobChange>) {
        let (sender, receiver) = mpsc::channel(room.max(1));
        (Self(sender), receiver)
    }
}

impl BlobWatcherV1 for Watcher {
    async fn changed(&self, _cx: &Context, change: BlobChange) -> Result<(), HandlerError> {
        // If the receiver was dropped, the error reply makes the server stop.
        Ok(self.0.send(change).await?)
    }
}
