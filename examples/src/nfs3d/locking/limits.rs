//! Limits of the locks of one client and of all clients.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use super::owner::{Host, Owner};
use crate::nfs3d::handle::FileId;

/// The maximum numbers of locks and hosts. Locks are counted in units: a held or blocked lock is one unit, or several
/// if the identifier of its owner is long. IPv6 addresses with the same first 64 bits count as one client address.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LockLimits {
    /// Maximum number of units of one client address. The default is 8192.
    pub per_client: usize,
    /// Maximum number of blocked requests of one client address. The default is 256.
    pub waiting_per_client: usize,
    /// Maximum number of units of all clients. A client with at most [`SMALL`](Self::SMALL) units is not subject to
    /// this limit. The default is 131072.
    pub total: usize,
    /// Maximum number of client addresses with locks or blocked requests. The default is 1024.
    pub clients: usize,
    /// Maximum number of names of hosts at one client address. The default is 64.
    pub names_per_client: usize,
}

impl LockLimits {
    /// Number of units that each client may have, regardless of the units of other clients.
    pub const SMALL: usize = 64;
}

impl Default for LockLimits {
    fn default() -> Self {
        Self { per_client: 8192, waiting_per_client: 256, total: 131_072, clients: 1024, names_per_client: 64 }
    }
}

#[derive(Debug, Default)]
struct Account {
    units: usize,
    waiting: usize,
    /// The units of each host by file. A host or a file without units has no entry.
    hosts: HashMap<Arc<Host>, HashMap<FileId, usize>>,
}

/// The units in use, by client address. An address without units has no account.
#[derive(Debug)]
pub(super) struct Accounts {
    limits: LockLimits,
    clients: HashMap<IpAddr, Account>,
    total: usize,
}

impl Accounts {
    pub(super) fn new(limits: LockLimits) -> Self {
        Self { limits, clients: HashMap::new(), total: 0 }
    }

    /// Returns the number of units of one lock of an owner if the limits allow the owner `locks` more locks. Otherwise,
    /// returns `None`.
    pub(super) fn room(&self, owner: &Owner, locks: usize) -> Option<usize> {
        let weight = owner.weight();
        let units = match self.clients.get(&owner.host.account()) {
            Some(account)
                if account.hosts.len() >= self.limits.names_per_client && !account.hosts.contains_key(&owner.host) =>
            {
                return None;
            }
            Some(account) => account.units,
            None if self.clients.len() >= self.limits.clients => return None,
            None => 0,
        };
        let wanted = units + locks * weight;
        let fits = wanted <= self.limits.per_client
            && (wanted <= LockLimits::SMALL || self.total + locks * weight <= self.limits.total);
        fits.then_some(weight)
    }

    /// Returns `true` if one more request of the owner's client may wait.
    pub(super) fn may_wait(&self, owner: &Owner) -> bool {
        let waiting = self.clients.get(&owner.host.account()).map_or(0, |account| account.waiting);
        waiting < self.limits.waiting_per_client
    }

    /// Replaces `before` units of an owner in a file by `after` units.
    pub(super) fn change(&mut self, owner: &Owner, file: FileId, before: usize, after: usize) {
        let key = owner.host.account();
        let account = self.clients.entry(key).or_default();
        let files = account.hosts.entry(Arc::clone(&owner.host)).or_default();
        let units = files.entry(file).or_default();
        *units = (*units + after).saturating_sub(before);
        if *units == 0 {
            files.remove(&file);
        }
        if files.is_empty() {
            account.hosts.remove(&owner.host);
        }
        account.units = (account.units + after).saturating_sub(before);
        self.total = (self.total + after).saturating_sub(before);
        if account.units == 0 {
            self.clients.remove(&key);
        }
    }

    /// Adds `requests` to the number of blocked requests of a host's address.
    pub(super) fn waits(&mut self, host: &Host, requests: usize) {
        self.clients.entry(host.account()).or_default().waiting += requests;
    }

    /// Subtracts `requests` from the number of blocked requests of a host's address. Call this before
    /// [`change`](Self::change).
    pub(super) fn stop_waiting(&mut self, host: &Host, requests: usize) {
        if let Some(account) = self.clients.get_mut(&host.account()) {
            account.waiting = account.waiting.saturating_sub(requests);
        }
    }

    /// Returns `true` if a host has locks or blocked requests.
    pub(super) fn is_in_use(&self, host: &Host) -> bool {
        self.clients.get(&host.account()).is_some_and(|account| account.hosts.contains_key(host))
    }

    /// Returns the hosts with locks or blocked requests at an address.
    pub(super) fn hosts_at(&self, addr: IpAddr) -> Vec<Arc<Host>> {
        let account = self.clients.get(&Host::new(addr, b"").account());
        let hosts = account.into_iter().flat_map(|account| account.hosts.keys());
        hosts.filter(|host| host.addr == addr.to_canonical()).cloned().collect()
    }

    /// Returns the files in which a host has locks or blocked requests.
    pub(super) fn files_of(&self, host: &Host) -> Vec<FileId> {
        let files = self.clients.get(&host.account()).and_then(|account| account.hosts.get(host));
        files.into_iter().flat_map(HashMap::keys).copied().collect()
    }

    /// Returns the units by client address and file, after a check of the totals.
    #[cfg(test)]
    pub(super) fn units(&self) -> HashMap<(IpAddr, FileId), usize> {
        let mut units = HashMap::new();
        for (addr, account) in &self.clients {
            let files = account.hosts.values().flatten();
            files.for_each(|(file, held)| *units.entry((*addr, *file)).or_default() += held);
            assert_eq!(account.units, account.hosts.values().flat_map(HashMap::values).sum::<usize>());
        }
        assert_eq!(self.total, self.clients.values().map(|account| account.units).sum::<usize>());
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `files_of` returns the files with units of the host itself only, so releasing its locks touches no other files.
    #[test]
    fn each_host_has_its_own_files() {
        let mut accounts = Accounts::new(LockLimits::default());
        let owner = |host: u8, name: &[u8]| {
            let host = Arc::new(Host::new([192, 0, 2, host].into(), name));
            Owner { host, svid: 0, oh: Box::default() }
        };
        let file = |ino| FileId { ino, born: 0 };
        let (busy, quiet, namesake) = (owner(1, b"busy"), owner(1, b"quiet"), owner(2, b"quiet"));
        (0..100).for_each(|ino| accounts.change(&busy, file(ino), 0, 1));
        accounts.change(&quiet, file(7), 0, 2);
        assert_eq!(accounts.files_of(&quiet.host), [file(7)]);
        assert_eq!(accounts.files_of(&busy.host).len(), 100);
        assert_eq!(accounts.files_of(&namesake.host), []);
        accounts.change(&quiet, file(7), 2, 1);
        assert_eq!(accounts.files_of(&quiet.host), [file(7)]);
        accounts.change(&quiet, file(7), 1, 0);
        assert_eq!(accounts.files_of(&quiet.host), []);
        assert!(!accounts.is_in_use(&quiet.host));
    }
}
