//! The services of the simulation, and the disk that outlives their servers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use rpcrdma::server::{Context, HandlerError, RecordedReply, ReplyStore, RequestKey, StoreFuture};
use tokio::sync::{Semaphore, mpsc::UnboundedSender};

use crate::{
    fault::FaultKind,
    log::{EventLog, event},
    network::{Host, Network},
    protocol::{
        Addition, Blob, BlobPut, Numbers,
        simulated_back_v1::{SimulatedBackV1, SimulatedBackV1Client},
        simulated_v1::{Add, SimulatedV1},
    },
    random::Choices,
};

/// An addition that was executed.
#[derive(Debug, Clone, Copy)]
pub struct Applied {
    /// Number of the counter.
    pub counter: u32,
    /// The sum after it.
    pub sum: u64,
    /// Number of times that it was executed.
    pub times: u32,
}

/// The part of a server that outlives it.
#[derive(Debug, Default)]
pub struct Disk {
    /// The counters.
    pub counters: BTreeMap<u32, u64>,
    /// The additions, by the number of the operation.
    pub applied: BTreeMap<u64, Applied>,
    /// The recorded replies, by request key, with the number of the server that stored them.
    replies: BTreeMap<Vec<u8>, (u64, Bytes)>,
    /// The blobs, by key.
    pub blobs: BTreeMap<u32, (u64, Bytes)>,
    /// Number of the running server. The handlers of earlier ones have no effect and never return.
    pub epoch: u64,
    /// The disk has no room: nothing can be stored.
    pub is_full: bool,
    /// The server crashes after its next effect, before the reply.
    pub crashes_after_effect: bool,
    /// Additional time that each handler takes, in milliseconds.
    pub handler_pause: u64,
}

/// A [`Disk`] that a server and the simulation share.
#[derive(Debug, Clone, Default)]
pub struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    /// Locks the disk.
    pub fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReplyStore for SharedDisk {
    fn load<'a>(&'a self, key: &'a RequestKey) -> StoreFuture<'a, Option<RecordedReply>> {
        Box::pin(async move {
            let stored = self.lock().replies.get(&key.to_bytes()).cloned();
            Ok(stored.map(|(_, bytes)| RecordedReply::from_bytes(&bytes)).transpose()?)
        })
    }
}

/// One start of a server.
#[derive(Clone)]
pub struct SimulatedServer {
    pub(crate) host: Host,
    pub(crate) epoch: u64,
    pub(crate) disk: SharedDisk,
    pub(crate) choices: Choices,
    pub(crate) log: EventLog,
    pub(crate) network: Network,
    /// Maximum number of handlers at a time, and of one client. 0 for no limit.
    pub(crate) limits: (usize, usize),
    /// Number of handlers in progress of each client.
    pub(crate) in_progress: Arc<Mutex<BTreeMap<Host, usize>>>,
    /// Closed when all connections of a killed server are closed.
    pub(crate) gone: Arc<Semaphore>,
    /// Tells the simulation that the server of a host crashes now.
    pub(crate) crashes: UnboundedSender<Host>,
}

/// A handler in progress.
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
    /// Counts a handler, and checks the limits.
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
        RunningHandler { client, in_progress: Arc::clone(&self.in_progress) }
    }

    /// Waits as a handler does, and locks the disk. If the server has crashed, returns an error when all its connections are closed.
    async fn disk(&self) -> Result<MutexGuard<'_, Disk>, HandlerError> {
        let pause = self.disk.lock().handler_pause;
        if pause > 0 {
            self.network.hit(FaultKind::SlowHandlers);
        }
        if pause > 0 || self.choices.chance(20) {
            tokio::time::sleep(self.choices.millis(0..=20 + pause)).await;
        }
        self.check().await?;
        Ok(self.disk.lock())
    }

    /// Returns if the server has not crashed.
    async fn check(&self) -> Result<(), HandlerError> {
        if self.disk.lock().epoch == self.epoch {
            return Ok(());
        }
        // There are no permits: the wait ends with an error.
        let _ = self.gone.acquire().await;
        Err(HandlerError::Unavailable)
    }

    /// Crashes if this was requested. Called after an effect.
    async fn after_effect(&self) -> Result<(), HandlerError> {
        let crashes = {
            let mut disk = self.disk.lock();
            let crashes = std::mem::take(&mut disk.crashes_after_effect);
            if crashes {
                disk.epoch += 1;
            }
            crashes
        };
        if crashes {
            self.network.hit(FaultKind::CrashAfterEffect);
            event!(self.log, "host {} crashes between an effect and its reply", self.host);
            // The simulation ends before its receiver.
            let _ = self.crashes.send(self.host);
        }
        self.check().await
    }
}

/// Adds to a counter, in one transaction with the recorded reply.
fn add(disk: &mut Disk, key: &RequestKey, args: &Addition, log: &EventLog) -> Result<u64, HandlerError> {
    if let Some((epoch, recorded)) = disk.replies.get(&key.to_bytes()) {
        // The server was killed while an earlier copy of the call was being looked up.
        if *epoch == disk.epoch {
            log.add_wrong(format!("the cache did not recognize a copy of operation {}", args.operation));
        }
        let sum = RecordedReply::from_bytes(recorded)?.decode::<Add>()?;
        return sum.ok_or(HandlerError::Unavailable);
    }
    let sum = disk.counters.entry(args.counter).or_default();
    *sum += args.amount;
    let sum = *sum;
    let applied = disk.applied.entry(args.operation).or_insert(Applied { counter: args.counter, sum, times: 0 });
    applied.times += 1;
    let reply = RecordedReply::of::<Add>(&sum)?.to_bytes();
    disk.replies.insert(key.to_bytes(), (disk.epoch, reply));
    Ok(sum)
}

impl SimulatedV1 for SimulatedServer {
    async fn null(&self, _cx: &Context) -> Result<(), HandlerError> {
        // Limits do not apply to NULL, by which clients probe the server.
        drop(self.disk().await?);
        Ok(())
    }

    async fn add(&self, cx: &Context, args: Addition) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        let key = cx.request_key().ok_or_else(|| HandlerError::system("no duplicate request cache"))?;
        let sum = {
            let mut disk = self.disk().await?;
            if disk.is_full {
                self.network.hit(FaultKind::DiskFull);
                cx.had_no_effect();
                return Err(HandlerError::Unavailable);
            }
            add(&mut disk, key, &args, &self.log)?
        };
        self.after_effect().await?;
        if self.choices.chance(10) {
            drop(self.disk().await?);
        }
        Ok(sum)
    }

    async fn value(&self, cx: &Context, counter: u32) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        Ok(self.disk().await?.counters.get(&counter).copied().unwrap_or_default())
    }

    async fn put(&self, cx: &Context, args: BlobPut) -> Result<u64, HandlerError> {
        let _running = self.begin(cx);
        let version = {
            let mut disk = self.disk().await?;
            if disk.is_full {
                self.network.hit(FaultKind::DiskFull);
                return Err(HandlerError::Unavailable);
            }
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
        let disk = self.disk().await?;
        let (version, data) = disk.blobs.get(&key).cloned().unwrap_or_default();
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
