//! The services of the simulation: counters and blobs, and the parts that all services have in common.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rpcrdma::{
    server::{Context, HandlerError, RecordedReply},
    service::Procedure,
};
use tokio::sync::{Semaphore, mpsc::UnboundedSender};

use crate::{
    disk::{Applied, Disk, SharedDisk, SharedHost, StoredReply, TornPart},
    fairness::Queues,
    fault::FaultKind,
    log::{EventLog, event},
    network::{Host, Network},
    protocol::{
        Addition, Blob, BlobPut, MAX_BLOB, Numbers,
        simulated_back_v1::{SimulatedBackV1, SimulatedBackV1Client},
        simulated_v1::{Add, SimulatedV1},
    },
    random::Choices,
};

/// The services of a server, from one start of the server to its end.
#[derive(Clone)]
pub struct SimulatedServer {
    pub(crate) host: Host,
    pub(crate) epoch: u64,
    pub(crate) disk: SharedDisk,
    pub(crate) state: SharedHost,
    pub(crate) choices: Choices,
    pub(crate) log: EventLog,
    pub(crate) network: Network,
    /// Maximum number of handlers at a time, of all clients and of one client. 0 for no limit.
    pub(crate) limits: (usize, usize),
    /// Number of handlers in progress of each client.
    pub(crate) in_progress: Arc<Mutex<BTreeMap<Host, usize>>>,
    /// The calls that wait for a handler.
    pub(crate) queues: Queues,
    /// A semaphore that is closed when the server has ended and all its connections are closed.
    pub(crate) gone: Arc<Semaphore>,
    /// A sender that tells the simulation that the server of a host crashes now, and why.
    pub(crate) crashes: UnboundedSender<(Host, FaultKind)>,
}

/// A handler in progress, which is counted until this value is dropped.
struct RunningHandler {
    client: Host,
    in_progress: Arc<Mutex<BTreeMap<Host, usize>>>,
}

impl Drop for RunningHandler {
    fn drop(&mut self) {
        let mut in_progress = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = in_progress.get_mut(&self.client) {
            *count -= 1;
        }
    }
}

impl SimulatedServer {
    /// Counts a handler that starts, until the result is dropped. Checks the limits of handlers and the order of
    /// starts.
    fn begin(&self, cx: &Context) -> RunningHandler {
        let client = Network::host(cx.peer_addr());
        let mut in_progress = self.in_progress.lock().unwrap_or_else(PoisonError::into_inner);
        let own = in_progress.entry(client).or_default();
        *own += 1;
        let (own, all) = (*own, in_progress.values().sum::<usize>());
        let (limit, per_caller) = self.limits;
        if (limit > 0 && all > limit) || (per_caller > 0 && own > per_caller) {
            self.log.add_wrong(format!("server {} runs {all} handlers, {own} of client {client}", self.host));
        }
        let has_room = |client| per_caller == 0 || in_progress.get(&client).is_none_or(|count| *count < per_caller);
        if let Err(wrong) = self.queues.start(cx.peer_addr(), cx.xid(), has_room) {
            self.log.add_wrong(format!("server {}: {wrong}", self.host));
        }
        RunningHandler { client, in_progress: Arc::clone(&self.in_progress) }
    }

    /// Locks the disk, in some cases after a random pause. While the handlers of this host are delayed, pauses are more
    /// frequent and longer. If the server has crashed, returns an error when all its connections are closed.
    pub(crate) async fn disk(&self) -> Result<MutexGuard<'_, Disk>, HandlerError> {
        let pause = self.state.lock().handler_pause;
        if pause > 0 {
            self.network.hit(FaultKind::SlowHandlers);
        }
        if pause > 0 || self.choices.chance(20) {
            tokio::time::sleep(self.choices.millis(0..=20 + pause)).await;
        }
        self.check().await?;
        Ok(self.disk.lock())
    }

    /// Returns at once if the server has not crashed. Otherwise, returns an error when all its connections are closed.
    async fn check(&self) -> Result<(), HandlerError> {
        if self.state.lock().epoch == self.epoch {
            return Ok(());
        }
        // There are no permits: the wait ends with an error.
        let _ = self.gone.acquire().await;
        Err(HandlerError::Unavailable)
    }

    /// Crashes the server if a fault has requested a crash between an effect and its reply. Call this after the effect.
    async fn after_effect(&self) -> Result<(), HandlerError> {
        if std::mem::take(&mut self.state.lock().crashes_after_effect) {
            self.crash(FaultKind::CrashAfterEffect);
        }
        self.check().await
    }

    fn crash(&self, kind: FaultKind) {
        self.state.lock().epoch += 1;
        event!(self.log, "host {} has a {kind}", self.host);
        // The simulation ends before its receiver.
        let _ = self.crashes.send((self.host, kind));
    }

    /// Locks the disk, as [`disk`](Self::disk) does. Returns an error if the disk is full.
    async fn disk_with_room(&self, cx: &Context) -> Result<MutexGuard<'_, Disk>, HandlerError> {
        let disk = self.disk().await?;
        if self.state.lock().is_full {
            self.network.hit(FaultKind::DiskFull);
            cx.had_no_effect();
            return Err(HandlerError::Unavailable);
        }
        Ok(disk)
    }

    /// Executes a procedure that is not idempotent: its effect and its recorded reply are one transaction. `apply`
    /// returns the reply, and `true` if it had an effect.
    pub(crate) async fn change<P: Procedure>(
        &self,
        cx: &Context,
        apply: impl FnOnce(&mut Disk) -> (P::Reply, bool),
    ) -> Result<P::Reply, HandlerError> {
        let key = cx.request_key().ok_or_else(|| HandlerError::system("no duplicate request cache"))?;
        let done = {
            let mut disk = self.disk_with_room(cx).await?;
            if disk.replies.contains_key(&key.to_bytes()) {
                self.log.add_wrong(format!("server {}: the cache did not recognize a copy of {key:?}", self.host));
            }
            let torn = self.state.lock().torn.take();
            let done = (torn != Some(TornPart::All)).then(|| apply(&mut disk));
            if let Some((reply, true)) = &done {
                let bytes = RecordedReply::of::<P>(reply)?.to_bytes();
                disk.replies.insert(key.to_bytes(), StoredReply { bytes: torn.is_none().then_some(bytes) });
            }
            if torn.is_some() {
                self.crash(FaultKind::TornWrite);
            }
            done
        };
        // A server that has crashed does not go on.
        self.check().await?;
        let (reply, has_effect) = done.ok_or(HandlerError::Unavailable)?;
        if has_effect {
            self.after_effect().await?;
        } else {
            cx.had_no_effect();
        }
        if self.choices.chance(10) {
            drop(self.disk().await?);
        }
        Ok(reply)
    }
}

/// Adds to a counter, records that the operation was applied, and returns the sum.
fn add(disk: &mut Disk, args: &Addition) -> u64 {
    let sum = disk.counters.entry(args.counter).or_default();
    *sum += args.amount;
    let sum = *sum;
    let applied = disk.applied.entry(args.operation).or_insert(Applied { counter: args.counter, sum, times: 0 });
    applied.times += 1;
    sum
}

impl SimulatedV1 for SimulatedServer {
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        // Limits do not apply to NULL, by which clients probe the server.
        drop(self.disk().await?);
        Ok(())
    }

    async fn add(&self, cx: &Context, args: Addition) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        self.change::<Add>(cx, |disk| (add(disk, &args), true)).await
    }

    async fn value(&self, cx: &Context, counter: u32) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        Ok(self.disk().await?.counters.get(&counter).copied().unwrap_or_default())
    }

    async fn put(&self, cx: &Context, args: BlobPut) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        let version = {
            let mut disk = self.disk_with_room(cx).await?;
            let stored = disk.blobs.entry(args.key).or_default();
            if args.version > stored.0 {
                *stored = (args.version, args.data);
            }
            stored.0
        };
        self.after_effect().await?;
        Ok(version)
    }

    async fn get(&self, cx: &Context, key: u32) -> Result<Blob, HandlerError> {
        let _running = self.begin(cx);
        cx.reserve_results(MAX_BLOB.into()).await?;
        let (version, data) = self.disk().await?.blobs.get(&key).cloned().unwrap_or_default();
        cx.shrink_results(data.len() as u64);
        Ok(Blob { version, data })
    }

    async fn sum(&self, cx: &Context, numbers: Numbers) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        drop(self.disk().await?);
        Ok(numbers.iter().copied().map(u64::from).sum())
    }

    async fn count(&self, cx: &Context, limit: u32) -> Result<Numbers, HandlerError> {
        let _running = self.begin(cx);
        drop(self.disk().await?);
        Ok((1..=limit).collect::<Vec<_>>().into())
    }

    async fn ask_back(&self, cx: &Context, number: u32) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        drop(self.disk().await?);
        let back: SimulatedBackV1Client = SimulatedBackV1Client::new(cx.callback());
        Ok(back.double(number).await?)
    }
}

/// The service that clients offer to their server.
#[derive(Debug, Clone)]
pub struct SimulatedClient(pub(crate) Choices);

impl SimulatedBackV1 for SimulatedClient {
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn double(&self, _cx: &Context, number: u32) -> Result<u64, HandlerError> {
        if self.0.chance(20) {
            tokio::time::sleep(self.0.millis(0..=10)).await;
        }
        Ok(u64::from(number) * 2)
    }
}
