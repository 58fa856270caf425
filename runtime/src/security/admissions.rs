//! Limits on the work that clients can cause before they are authenticated, in total and for each host.

use std::{collections::HashMap, sync::Arc};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    HostAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Limits on concurrent work, in total and for each host. Clones share the limits.
#[derive(Debug, Clone)]
pub(crate) struct Admissions {
    all: Arc<Semaphore>,
    hosts: Arc<Hosts>,
    most_of_host: usize,
}

/// The semaphores of the hosts with work that waits or is in progress.
#[derive(Debug, Default)]
struct Hosts(Mutex<HashMap<HostAddr, Arc<Semaphore>>>);

impl Hosts {
    fn lock(&self) -> MutexGuard<'_, HashMap<HostAddr, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admissions {
    /// Creates limits for the work in progress: `most` in total, and `most_of_host` for each host. A limit of 0 counts
    /// as 1.
    pub(crate) fn new(most: usize, most_of_host: usize) -> Self {
        let all = Arc::new(Semaphore::new(most.clamp(1, Semaphore::MAX_PERMITS)));
        Self { all, hosts: Arc::default(), most_of_host: most_of_host.clamp(1, Semaphore::MAX_PERMITS) }
    }

    /// Waits until work of this host may begin. Waits for the limit of the host before the total limit, so that one
    /// host does not delay other hosts.
    pub(crate) async fn admit(&self, host: HostAddr) -> Admission {
        let new = || Arc::new(Semaphore::new(self.most_of_host));
        let of_host = Arc::clone(self.hosts.lock().entry(host).or_insert_with(new));
        let hosts = Arc::clone(&self.hosts);
        let mut admission = Admission { hosts, host, of_host: Some(Arc::clone(&of_host)), permits: [None, None] };
        for (semaphore, permit) in [of_host, Arc::clone(&self.all)].into_iter().zip(&mut admission.permits) {
            *permit = semaphore.acquire_owned().await.ok();
        }
        admission
    }
}

/// A piece of work that waits or is in progress. The work ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Admission {
    hosts: Arc<Hosts>,
    host: HostAddr,
    /// The semaphore of the host. Removed when the work ends.
    of_host: Option<Arc<Semaphore>>,
    /// The permit of the host, and the permit of the total limit.
    permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Drop for Admission {
    fn drop(&mut self) {
        // Permits refer to their semaphore.
        self.permits = [None, None];
        let mut hosts = self.hosts.lock();
        self.of_host = None;
        if hosts.get(&self.host).is_some_and(|of_host| Arc::strong_count(of_host) == 1) {
            hosts.remove(&self.host);
        }
    }
}

#[cfg(test)]
impl Admissions {
    /// Returns `true` if no work waits or is in progress.
    pub(super) fn is_idle(&self) -> bool {
        self.hosts.lock().is_empty()
    }
}
