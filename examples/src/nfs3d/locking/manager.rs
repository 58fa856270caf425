//! The lock manager: the table of locks with the hosts that have them, the grace period, and callbacks.

use std::{
    io,
    net::IpAddr,
    num::NonZeroUsize,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lru::LruCache;
use rpcrdma_specs::nlm4::Nlm4Stats;
use tokio::{sync::watch, time::Instant};

use super::{
    callback::CallbackQueues,
    limits::LockLimits,
    monitored::MonitoredHosts,
    notify::Notifier,
    owner::{Host, Owner},
    range::ByteRange,
    table::{CallbackData, HeldLock, LockOutcome, LockRequest, LockTable},
};
use crate::nfs3d::{export::Export, handle::FileId};

/// Maximum number of notifications of clients that are remembered, to recognize repetitions.
const NOTIFICATIONS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Minimum time between two warnings of a limit.
const WARNING: Duration = Duration::from_secs(10);

/// Settings of a [`LockManager`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LockConfig {
    /// Limits of the locks of one client and of all clients.
    pub limits: LockLimits,
    /// The time after a restart in which clients reclaim their locks. The default is 45 s. If no client had locks,
    /// there is no grace period, unless the list of clients is damaged.
    pub grace: Duration,
    /// The time limits and pauses of calls to clients.
    pub timing: CallbackTiming,
    /// The port of rpcbind on clients. The default is 111.
    pub rpcbind_port: u16,
}

impl Default for LockConfig {
    fn default() -> Self {
        let (limits, timing) = (LockLimits::default(), CallbackTiming::default());
        Self { limits, grace: Duration::from_secs(45), timing, rpcbind_port: 111 }
    }
}

/// The time limits and pauses of calls to clients.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CallbackTiming {
    /// Time limit for connecting and for each call. The default is 5 s.
    pub attempt: Duration,
    /// Pause between attempts. The default is 2 s.
    pub pause: Duration,
    /// Maximum time for the attempts to tell a client that it has a lock. The default is 30 s, after which Linux's
    /// client repeats its request.
    pub granting: Duration,
    /// Maximum time for the attempts to tell a client that the server has restarted. The default is 15 min.
    pub notifying: Duration,
}

impl Default for CallbackTiming {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(5),
            pause: Duration::from_secs(2),
            granting: Duration::from_secs(30),
            notifying: Duration::from_secs(900),
        }
    }
}

/// The locks of one [`Export`]. Clones share their state.
#[derive(Debug, Clone)]
pub struct LockManager(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    export: Arc<Export>,
    pub(super) config: LockConfig,
    table: Mutex<LockTable>,
    monitored: MonitoredHosts,
    notified: Mutex<LruCache<(IpAddr, Vec<u8>), i32>>,
    grace_end: Option<Instant>,
    /// The time of the last warning of a limit.
    limit_warned: Mutex<Option<Instant>>,
    pub(super) queues: CallbackQueues,
    /// Becomes `true` when the manager stops.
    stopped: watch::Sender<bool>,
    /// The node name of this host, which its notifications to clients contain.
    pub(super) name: Vec<u8>,
}

impl LockManager {
    /// Creates a manager, which keeps the list of hosts with locks in the directory `state`. If a previous manager has
    /// left hosts there, they are notified, and the grace period begins. It also begins if the list is damaged.
    ///
    /// # Errors
    /// Fails if the list cannot be read or written.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime if there are hosts to notify.
    pub fn start(export: Arc<Export>, state: &Path, config: LockConfig) -> io::Result<Self> {
        let (monitored, before) = MonitoredHosts::open(state, config.limits.names_per_client)?;
        let needs_grace = before.is_damaged || !before.hosts.is_empty();
        let name = rustix::system::uname().nodename().to_bytes().to_vec();
        let manager = Self(Arc::new(Inner {
            export,
            config,
            table: Mutex::new(LockTable::new(config.limits)),
            monitored,
            notified: Mutex::new(LruCache::new(NOTIFICATIONS)),
            grace_end: needs_grace.then(|| Instant::now() + config.grace),
            limit_warned: Mutex::default(),
            queues: CallbackQueues::default(),
            stopped: watch::Sender::new(false),
            name,
        }));
        if needs_grace {
            let (hosts, seconds) = (before.hosts.len(), config.grace.as_secs());
            tracing::info!(
                hosts,
                seconds,
                "hosts had locks before the restart: for the grace period, only they are granted"
            );
        }
        if !before.hosts.is_empty() {
            let notifier = Notifier::new(&manager, before.hosts);
            manager.spawn(notifier.run());
        }
        Ok(manager)
    }

    /// Ends calls to clients. Outside of the grace period, also removes hosts without locks from the list. The next
    /// manager notifies the hosts that remain.
    pub async fn stop(&self) {
        self.0.stopped.send_replace(true);
        let is_in_use = |host: &Host| self.table().is_in_use(host);
        // During the grace period, hosts may not have reclaimed their locks yet.
        if !self.is_in_grace()
            && let Err(error) = self.0.monitored.prune(is_in_use).await
        {
            tracing::warn!(%error, "cannot write the list of hosts with locks: the next start has a grace period");
        }
    }

    /// Returns the state number of the server (NSM).
    #[must_use]
    pub fn state(&self) -> i32 {
        self.0.monitored.state()
    }

    /// Returns the number of files with locks, and the number of locks.
    #[must_use]
    pub fn totals(&self) -> (usize, usize) {
        self.table().totals()
    }

    /// Returns `true` if the owner of a granted lock may not know about the grant yet.
    #[must_use]
    pub fn has_unconfirmed(&self) -> bool {
        self.table().has_unconfirmed()
    }

    /// Returns `true` during the grace period.
    #[must_use]
    pub fn is_in_grace(&self) -> bool {
        self.0.grace_end.is_some_and(|end| Instant::now() < end)
    }

    pub(super) fn export(&self) -> &Arc<Export> {
        &self.0.export
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.0
    }

    pub(super) fn table(&self) -> MutexGuard<'_, LockTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a task until it ends or the manager stops.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut stopped = self.0.stopped.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                // An error means that the manager is gone.
                _ = stopped.wait_for(|stopped| *stopped) => {}
                () = task => {}
            }
        });
    }

    /// Changes the table by `change`, and calls back the owners of the blocked requests that the change grants. Returns
    /// the result of `change`.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut LockTable) -> T) -> T {
        let (result, grants) = {
            let mut table = self.table();
            (change(&mut table), table.take_grants())
        };
        self.call_back(grants);
        result
    }

    /// Adds a host to the list of those that are notified after a restart, on stable storage. `local` is the server's
    /// address that the host uses, if it is known. If the list is full or cannot be written, fails with
    /// NLM4_DENIED_NOLOCKS.
    pub(super) async fn monitor(&self, host: &Arc<Host>, local: Option<IpAddr>) -> Result<(), Nlm4Stats> {
        let is_in_use = |host: &Host| self.table().is_in_use(host);
        self.0.monitored.add(host, local, is_in_use).await.map_err(|error| {
            tracing::error!(%error, "cannot add a host to the list of hosts with locks, its lock is denied");
            Nlm4Stats::DeniedNolocks
        })
    }

    /// Performs LOCK. If another lock conflicts and `wait` is given, the request waits, and a callback with this data
    /// reports the grant. If a limit is reached, fails with NLM4_DENIED_NOLOCKS.
    pub(super) fn lock(&self, request: &LockRequest, wait: Option<CallbackData>) -> Nlm4Stats {
        let outcome = self.change(|table| table.lock(request, wait));
        let Host { addr, name } = &*request.owner.host;
        tracing::debug!(%addr, name = %name.escape_ascii(), ?outcome, file = request.file.ino, range = ?request.range, "LOCK");
        match outcome {
            LockOutcome::Granted => Nlm4Stats::Granted,
            LockOutcome::Denied => Nlm4Stats::Denied,
            LockOutcome::Blocked => Nlm4Stats::Blocked,
            LockOutcome::LimitReached => {
                // A greedy client does not fill the log.
                let mut warned = self.0.limit_warned.lock().unwrap_or_else(PoisonError::into_inner);
                if warned.is_none_or(|last| last.elapsed() > WARNING) {
                    *warned = Some(Instant::now());
                    tracing::warn!(%addr, name = %name.escape_ascii(), "a limit of locks is reached, locks are denied");
                }
                Nlm4Stats::DeniedNolocks
            }
        }
    }

    /// Performs UNLOCK: releases the owner's locks in `range`. If a limit is reached, fails with NLM4_DENIED_NOLOCKS.
    pub(super) fn unlock(&self, file: FileId, owner: &Arc<Owner>, range: ByteRange) -> Nlm4Stats {
        if self.change(|table| table.unlock(file, owner, range)) {
            Nlm4Stats::Granted
        } else {
            Nlm4Stats::DeniedNolocks
        }
    }

    /// Performs CANCEL: withdraws a blocked request, or a grant that its owner does not know about yet. Fails with
    /// NLM4_DENIED if there is neither.
    pub(super) fn cancel(&self, request: &LockRequest) -> Nlm4Stats {
        if self.change(|table| table.cancel(request)) { Nlm4Stats::Granted } else { Nlm4Stats::Denied }
    }

    /// Performs TEST. Returns a conflicting lock, if there is one.
    pub(super) fn conflict(&self, request: &LockRequest) -> Option<HeldLock> {
        self.table().conflict(request).cloned()
    }

    /// Releases the locks of the host `name` at `addr`, which has restarted, except locks that it has requested in its
    /// new state. If no host at `addr` has this name, and only one has locks, the locks of that host are released. A
    /// repeated notification has no effect.
    pub(super) fn restarted(&self, addr: IpAddr, name: &[u8], state: i32) {
        let key = (addr.to_canonical(), name.to_vec());
        if self.0.notified.lock().unwrap_or_else(PoisonError::into_inner).put(key, state) == Some(state) {
            return;
        }
        let released = self.change(|table| {
            let mut hosts = table.hosts_at(addr);
            if hosts.len() > 1 || hosts.iter().any(|host| host.is_named(name)) {
                hosts.retain(|host| host.is_named(name));
            }
            hosts.iter().map(|host| table.release(host, Some(state))).sum::<usize>()
        });
        if released > 0 {
            tracing::info!(%addr, name = %name.escape_ascii(), state, released, "a client has restarted");
        }
    }
}
