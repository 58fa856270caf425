//! Watching: a server that calls its clients back, and what a client serves for that.

use std::fmt;

use rpcrdma::{
    client::{CallError, CallOptions},
    engine::CloseReason,
    server::{Context, Failure},
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

/// Why a watcher is told no more.
#[derive(Debug)]
pub(super) enum End {
    /// Its connection is over.
    Gone(CloseReason),
    /// It did not take a change.
    Failed(CallError),
    /// The store is closed.
    Closed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(reason) => f.write_str(&chain(reason)),
            Self::Failed(error) => f.write_str(&chain(error)),
            Self::Closed => f.write_str("the store is closed"),
        }
    }
}

/// Tells a watcher of the changes to blobs whose names begin with `prefix`, one after the other, until it has gone.
pub(super) async fn tell(mut changes: broadcast::Receiver<Change>, prefix: &str, watcher: &BlobWatcherV1Client) -> End {
    let mut missed = 0;
    loop {
        let change = tokio::select! {
            change = changes.recv() => change,
            // Nothing may change for long after it has gone.
            reason = watcher.channel().disconnected() => return End::Gone(reason),
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
        let told = BlobChange { name: wire_name(&change.name), detail, missed: std::mem::take(&mut missed) };
        if let Err(error) = watcher.changed_with(&told, CallOptions::default()).await {
            return End::Failed(error);
        }
    }
}

/// What a client serves on its channel before it calls WATCH: hands changes over to a queue.
#[derive(Debug, Clone)]
pub struct Watcher(mpsc::Sender<BlobChange>);

impl Watcher {
    /// A watcher, and its queue of at most `room` changes. While that is full the server waits with the next one.
    #[must_use]
    pub fn new(room: usize) -> (Self, mpsc::Receiver<BlobChange>) {
        let (sender, receiver) = mpsc::channel(room.max(1));
        (Self(sender), receiver)
    }
}

impl BlobWatcherV1 for Watcher {
    async fn changed(&self, _cx: &Context, change: BlobChange) -> Result<(), Failure> {
        // Where nobody takes them any more the server is told so, and stops.
        Ok(self.0.send(change).await?)
    }
}
