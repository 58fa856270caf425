//! The table of locks.
//!
//! Locks follow the rules of `fcntl`: an owner's locks never conflict with each other, a new lock replaces what the
//! owner has in its range, and adjacent locks of one kind become one. Blocked requests wait in order of arrival. A
//! request that becomes possible is granted at once, and reported by [`LockTable::take_grants`]. Until its owner knows
//! about it, the grant can be refused.

use std::{
    collections::{HashMap, VecDeque},
    mem,
    net::IpAddr,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    limits::{Accounts, LockLimits},
    owner::{Host, Owner},
    range::ByteRange,
};
use crate::nfs3d::handle::FileId;

#[derive(Debug, Clone)]
pub(super) struct LockRequest {
    pub(super) file: FileId,
    pub(super) owner: Arc<Owner>,
    pub(super) range: ByteRange,
    pub(super) is_exclusive: bool,
    /// The state number of the owner's host.
    pub(super) state: i32,
}

/// Data for the callback to the owner of a blocked request.
#[derive(Debug, Clone, Default)]
pub(super) struct CallbackData {
    pub(super) cookie: Bytes,
    pub(super) handle: Bytes,
    /// The server's address that the client uses.
    pub(super) local: Option<IpAddr>,
}

/// The outcome of a request for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LockOutcome {
    Granted,
    /// Another owner has a conflicting lock.
    Denied,
    /// The request waits until it is granted or withdrawn.
    Blocked,
    /// A limit of [`LockLimits`] is reached. The request has no effect.
    LimitReached,
}

/// A lock that its owner holds or waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldLock {
    pub(super) owner: Arc<Owner>,
    pub(super) range: ByteRange,
    pub(super) is_exclusive: bool,
    pub(super) state: i32,
}

/// A blocked request.
#[derive(Debug)]
struct Waiter {
    lock: HeldLock,
    data: CallbackData,
}

/// A grant whose owner may not know about it.
#[derive(Debug)]
struct Unconfirmed {
    id: u64,
    lock: HeldLock,
    /// The owner's locks that the grant replaced. They come back if the grant is refused, unless other locks conflict.
    replaced: Vec<HeldLock>,
}

/// A blocked request that was granted, to be reported to its owner.
#[derive(Debug, Clone)]
pub(super) struct Grant {
    pub(super) id: u64,
    pub(super) file: FileId,
    pub(super) lock: HeldLock,
    pub(super) data: CallbackData,
}

#[derive(Debug, Default)]
struct FileLocks {
    held: Vec<HeldLock>,
    waiting: VecDeque<Waiter>,
    unconfirmed: Vec<Unconfirmed>,
}

/// The locks of all files.
#[derive(Debug)]
pub(super) struct LockTable {
    files: HashMap<FileId, FileLocks>,
    accounts: Accounts,
    grants: Vec<Grant>,
    next_id: u64,
}

impl HeldLock {
    fn conflicts(&self, other: &Self) -> bool {
        (self.is_exclusive || other.is_exclusive) && self.range.overlaps(other.range) && self.owner != other.owner
    }

    fn is_same_request(&self, other: &Self) -> bool {
        self.owner == other.owner && self.range == other.range && self.is_exclusive == other.is_exclusive
    }
}

impl FileLocks {
    fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty() && self.unconfirmed.is_empty()
    }

    fn conflict(&self, lock: &HeldLock) -> Option<&HeldLock> {
        self.held.iter().find(|held| held.conflicts(lock))
    }

    /// Removes the parts of the owner's locks that are in a range, and returns them.
    fn take(&mut self, owner: &Owner, range: ByteRange) -> Vec<HeldLock> {
        let mut taken = Vec::new();
        let mut parts = Vec::new();
        self.held.retain(|held| {
            if *held.owner != *owner || !held.range.overlaps(range) {
                return true;
            }
            parts.extend(
                held.range.without(range).into_iter().flatten().map(|range| HeldLock { range, ..held.clone() }),
            );
            let first = held.range.first.max(range.first);
            let last = held.range.last.min(range.last);
            taken.push(HeldLock { range: ByteRange { first, last }, ..held.clone() });
            false
        });
        self.held.append(&mut parts);
        taken
    }

    /// Adds a lock, which must not conflict, and joins it with the owner's adjacent locks of its kind and state.
    /// Returns the owner's locks that it replaced.
    fn add(&mut self, mut lock: HeldLock) -> Vec<HeldLock> {
        let replaced = self.take(&lock.owner, lock.range);
        self.held.retain(|held| {
            let is_joined = held.owner == lock.owner
                && held.is_exclusive == lock.is_exclusive
                && held.state == lock.state
                && held.range.touches(lock.range);
            if is_joined {
                lock.range = lock.range.joined(held.range);
            }
            !is_joined
        });
        self.held.push(lock);
        replaced
    }

    /// Removes the blocked requests for which `is_withdrawn` returns `true`, and returns their number.
    fn withdraw(&mut self, is_withdrawn: impl Fn(&HeldLock) -> bool) -> usize {
        let before = self.waiting.len();
        self.waiting.retain(|waiter| !is_withdrawn(&waiter.lock));
        before - self.waiting.len()
    }

    /// Confirms all grants to the owner that overlap a range.
    fn settle_all(&mut self, owner: &Owner, range: ByteRange) {
        self.unconfirmed.retain(|grant| *grant.lock.owner != *owner || !grant.lock.range.overlaps(range));
    }

    /// Returns the units of one owner's locks, blocked requests and unconfirmed grants.
    fn units(&self, owner: &Owner) -> usize {
        let held = self.held.iter().filter(|held| *held.owner == *owner).count();
        let waiting = self.waiting.iter().filter(|waiter| *waiter.lock.owner == *owner).count();
        let unconfirmed = self.unconfirmed.iter().filter(|grant| *grant.lock.owner == *owner);
        (held + waiting + unconfirmed.map(|grant| 1 + grant.replaced.len()).sum::<usize>()) * owner.weight()
    }
}

impl LockTable {
    pub(super) fn new(limits: LockLimits) -> Self {
        Self { files: HashMap::new(), accounts: Accounts::new(limits), grants: Vec::new(), next_id: 0 }
    }

    /// Returns the lock that conflicts with a request, if there is one.
    pub(super) fn conflict(&self, request: &LockRequest) -> Option<&HeldLock> {
        self.files.get(&request.file)?.conflict(&held(request))
    }

    /// Requests a lock. With `wait`, a request that conflicts waits. A request that is repeated while it waits
    /// continues to wait.
    pub(super) fn lock(&mut self, request: &LockRequest, wait: Option<CallbackData>) -> LockOutcome {
        let lock = held(request);
        let Some(weight) = self.accounts.room(&lock.owner, 2) else { return LockOutcome::LimitReached };
        let file = self.files.entry(request.file).or_default();
        let outcome = if file.conflict(&lock).is_none() {
            let before = file.units(&lock.owner);
            // The reply tells the owner about the lock, so the callback has no effect any more.
            file.settle_all(&lock.owner, lock.range);
            let withdrawn = file.withdraw(|waiting| waiting.is_same_request(&lock));
            self.accounts.stop_waiting(&lock.owner.host, withdrawn);
            let owner = Arc::clone(&lock.owner);
            file.add(lock);
            self.accounts.change(&owner, request.file, before, file.units(&owner));
            LockOutcome::Granted
        } else if let Some(data) = wait {
            match file.waiting.iter_mut().find(|waiter| waiter.lock.is_same_request(&lock)) {
                // The callback has the data of the last call.
                Some(waiter) => {
                    *waiter = Waiter { lock, data };
                    LockOutcome::Blocked
                }
                None if !self.accounts.may_wait(&lock.owner) => LockOutcome::LimitReached,
                None => {
                    self.accounts.change(&lock.owner, request.file, 0, weight);
                    self.accounts.waits(&lock.owner.host, 1);
                    file.waiting.push_back(Waiter { lock, data });
                    LockOutcome::Blocked
                }
            }
        } else {
            LockOutcome::Denied
        };
        // A lock of one kind may replace one of another kind, which lets others in.
        self.grant_waiting(request.file);
        outcome
    }

    /// Removes the owner's locks in a range, and its blocked requests for exactly this range. Confirms the owner's
    /// grants in the range. Returns `false` and changes nothing if a limit is reached, because the rest of a lock may
    /// be two locks.
    pub(super) fn unlock(&mut self, file_id: FileId, owner: &Arc<Owner>, range: ByteRange) -> bool {
        let Some(file) = self.files.get_mut(&file_id) else { return true };
        let splits = file
            .held
            .iter()
            .any(|held| held.owner == *owner && held.range.first < range.first && range.last < held.range.last);
        if splits && self.accounts.room(owner, 1).is_none() {
            return false;
        }
        let before = file.units(owner);
        file.take(owner, range);
        file.settle_all(owner, range);
        let withdrawn = file.withdraw(|waiting| waiting.owner == *owner && waiting.range == range);
        self.accounts.stop_waiting(&owner.host, withdrawn);
        self.accounts.change(owner, file_id, before, file.units(owner));
        self.grant_waiting(file_id);
        true
    }

    /// Withdraws a blocked request, or a grant that its owner does not know about yet. Returns `false` if there is
    /// neither.
    pub(super) fn cancel(&mut self, request: &LockRequest) -> bool {
        let lock = held(request);
        let Some(file) = self.files.get_mut(&request.file) else { return false };
        let before = file.units(&lock.owner);
        if let Some(at) = file.waiting.iter().position(|waiter| waiter.lock.is_same_request(&lock)) {
            file.waiting.remove(at);
            self.accounts.stop_waiting(&lock.owner.host, 1);
        } else if let Some(at) = file.unconfirmed.iter().position(|grant| grant.lock.is_same_request(&lock)) {
            let grant = file.unconfirmed.swap_remove(at);
            Self::take_back(file, grant);
        } else {
            return false;
        }
        self.accounts.change(&lock.owner, request.file, before, file.units(&lock.owner));
        self.grant_waiting(request.file);
        true
    }

    /// Records that the owner of a grant knows that it has the lock.
    pub(super) fn confirm(&mut self, grant: &Grant) {
        self.settle(grant, |_, _| {});
    }

    /// Takes back a lock that its owner does not want, or cannot be told about. Does nothing if the owner has learned
    /// about the lock in another way.
    pub(super) fn refuse(&mut self, grant: &Grant) {
        self.settle(grant, Self::take_back);
    }

    /// Returns `true` if the owner of a grant may not know about it.
    pub(super) fn is_unconfirmed(&self, grant: &Grant) -> bool {
        self.files.get(&grant.file).is_some_and(|file| file.unconfirmed.iter().any(|other| other.id == grant.id))
    }

    /// Returns `true` if there is a grant whose owner may not know about it.
    pub(super) fn has_unconfirmed(&self) -> bool {
        self.files.values().any(|file| !file.unconfirmed.is_empty())
    }

    fn settle(&mut self, grant: &Grant, how: impl FnOnce(&mut FileLocks, Unconfirmed)) {
        let owner = &grant.lock.owner;
        let Some(file) = self.files.get_mut(&grant.file) else { return };
        let Some(at) = file.unconfirmed.iter().position(|other| other.id == grant.id) else { return };
        let before = file.units(owner);
        let unconfirmed = file.unconfirmed.swap_remove(at);
        how(file, unconfirmed);
        self.accounts.change(owner, grant.file, before, file.units(owner));
        self.grant_waiting(grant.file);
    }

    fn take_back(file: &mut FileLocks, grant: Unconfirmed) {
        file.take(&grant.lock.owner, grant.lock.range);
        for lock in grant.replaced {
            // While a shared lock was granted in place of an exclusive one, others may have locked the range.
            if file.conflict(&lock).is_none() {
                file.add(lock);
            }
        }
    }

    /// Removes all locks and blocked requests of a host, and returns their number. If `state` is given, keeps those
    /// that were requested in this state. A client host that has restarted has a new state.
    pub(super) fn release(&mut self, host: &Host, state: Option<i32>) -> usize {
        let is_released = |lock: &HeldLock| *lock.owner.host == *host && state != Some(lock.state);
        let mut released = 0;
        for id in self.accounts.files_of(host) {
            let Some(file) = self.files.get_mut(&id) else { continue };
            let mut owners: Vec<(Arc<Owner>, usize)> = Vec::new();
            let waiting = file.waiting.iter().map(|waiter| &waiter.lock);
            for lock in file.held.iter().chain(waiting).filter(|lock| is_released(lock)) {
                if !owners.iter().any(|(owner, _)| *owner == lock.owner) {
                    owners.push((Arc::clone(&lock.owner), file.units(&lock.owner)));
                }
            }
            if owners.is_empty() {
                continue;
            }
            let held = file.held.len();
            file.unconfirmed.retain(|grant| !is_released(&grant.lock));
            file.held.retain(|held| !is_released(held));
            let withdrawn = file.withdraw(is_released);
            released += held - file.held.len() + withdrawn;
            self.accounts.stop_waiting(&owners[0].0.host, withdrawn);
            for (owner, before) in owners {
                self.accounts.change(&owner, id, before, file.units(&owner));
            }
            self.grant_waiting(id);
        }
        released
    }

    /// Withdraws all blocked requests of a host, and returns their number.
    pub(super) fn stop_waiting(&mut self, host: &Host) -> usize {
        let mut stopped = 0;
        for id in self.accounts.files_of(host) {
            let Some(file) = self.files.get_mut(&id) else { continue };
            file.waiting.retain(|waiter| {
                let is_kept = *waiter.lock.owner.host != *host;
                if !is_kept {
                    self.accounts.stop_waiting(host, 1);
                    self.accounts.change(&waiter.lock.owner, id, waiter.lock.owner.weight(), 0);
                    stopped += 1;
                }
                is_kept
            });
        }
        // What is withdrawn has waited for a lock, so no file is empty now, and nothing else becomes possible.
        stopped
    }

    /// Returns `true` if a host has locks or blocked requests.
    pub(super) fn is_in_use(&self, host: &Host) -> bool {
        self.accounts.is_in_use(host)
    }

    /// Returns the hosts with locks or blocked requests at an address.
    pub(super) fn hosts_at(&self, addr: IpAddr) -> Vec<Arc<Host>> {
        self.accounts.hosts_at(addr)
    }

    /// Returns the number of files with locks, and the number of locks.
    pub(super) fn totals(&self) -> (usize, usize) {
        (self.files.len(), self.files.values().map(|file| file.held.len()).sum())
    }

    /// Returns the grants since the last call, in the order in which they were made.
    pub(super) fn take_grants(&mut self) -> Vec<Grant> {
        mem::take(&mut self.grants)
    }

    /// Grants the blocked requests of a file that no longer conflict, and forgets the file if nothing is left.
    fn grant_waiting(&mut self, file_id: FileId) {
        let Some(file) = self.files.get_mut(&file_id) else { return };
        let mut at = 0;
        while at < file.waiting.len() {
            if file.conflict(&file.waiting[at].lock).is_some() {
                at += 1;
                continue;
            }
            let Some(Waiter { lock, data }) = file.waiting.remove(at) else { break };
            let id = self.next_id;
            self.next_id += 1;
            // The waiter's units become those of the unconfirmed grant.
            let before = file.units(&lock.owner) + lock.owner.weight();
            let replaced = file.add(lock.clone());
            // Only a lock that becomes shared lets earlier requests in.
            if !lock.is_exclusive && replaced.iter().any(|lock| lock.is_exclusive) {
                at = 0;
            }
            file.unconfirmed.push(Unconfirmed { id, lock: lock.clone(), replaced });
            self.accounts.stop_waiting(&lock.owner.host, 1);
            self.accounts.change(&lock.owner, file_id, before, file.units(&lock.owner));
            self.grants.push(Grant { id, file: file_id, lock, data });
        }
        if file.is_empty() {
            self.files.remove(&file_id);
        }
    }

    /// Checks that the accounts are the sums of the locks.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut units: HashMap<(IpAddr, FileId), usize> = HashMap::new();
        for (id, file) in &self.files {
            assert!(!file.is_empty());
            let mut owners: Vec<&Arc<Owner>> = Vec::new();
            let waiting = file.waiting.iter().map(|waiter| &waiter.lock);
            let unconfirmed = file.unconfirmed.iter().map(|grant| &grant.lock);
            for lock in file.held.iter().chain(waiting).chain(unconfirmed) {
                if !owners.contains(&&lock.owner) {
                    owners.push(&lock.owner);
                    *units.entry((lock.owner.host.account(), *id)).or_default() += file.units(&lock.owner);
                }
            }
        }
        assert_eq!(self.accounts.units(), units);
    }

    #[cfg(test)]
    pub(super) fn held(&self, file: FileId) -> &[HeldLock] {
        self.files.get(&file).map_or(&[], |file| &file.held)
    }
}

fn held(request: &LockRequest) -> HeldLock {
    let LockRequest { owner, range, is_exclusive, state, .. } = request;
    HeldLock { owner: Arc::clone(owner), range: *range, is_exclusive: *is_exclusive, state: *state }
}
