//! The rules of a memory budget: who takes memory, and who waits.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    task::Waker,
};

use smallvec::SmallVec;

use super::sync::{AtomicBool, Mutex, MutexGuard, Ordering::SeqCst, PoisonError};

/// Ratio for the main part: without waiting, a holder takes memory only as long as it holds at most this many times the
/// memory that it leaves free.
const MAIN_RATIO: u64 = 3;
/// Ratio for the part for small amounts: a holder takes memory only as long as it holds at most this many times the
/// memory that it leaves free.
const SMALL_RATIO: u64 = 1;
/// Maximum number of hosts, or of connections of one host, that are examined to find the one whose turn is next.
const MAX_LOOKS: usize = 64;

/// The wakers of waiters that got memory.
pub(super) type BudgetWakers = SmallVec<[Waker; 4]>;

/// The purpose for which memory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryUse {
    Arguments,
    Results,
}

/// One queue for arguments and one for results, so that results never wait behind arguments.
#[derive(Debug)]
struct UseQueues<T> {
    arguments: VecDeque<T>,
    results: VecDeque<T>,
}

impl<T> Default for UseQueues<T> {
    fn default() -> Self {
        Self { arguments: VecDeque::new(), results: VecDeque::new() }
    }
}

impl<T> UseQueues<T> {
    fn is_empty(&self) -> bool {
        self.arguments.is_empty() && self.results.is_empty()
    }

    fn of(&self, usage: MemoryUse) -> &VecDeque<T> {
        match usage {
            MemoryUse::Arguments => &self.arguments,
            MemoryUse::Results => &self.results,
        }
    }

    fn of_mut(&mut self, usage: MemoryUse) -> &mut VecDeque<T> {
        match usage {
            MemoryUse::Arguments => &mut self.arguments,
            MemoryUse::Results => &mut self.results,
        }
    }
}

/// Memory taken from the parts of a budget, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BudgetParts {
    /// Bytes of the main part, for arguments.
    arguments: u64,
    /// Bytes of the main part, for results.
    results: u64,
    /// Bytes of the part for small amounts.
    small: u64,
}

impl BudgetParts {
    /// Returns an amount of `bytes` that is taken from the main part for `usage`.
    pub(super) fn main(bytes: u64, usage: MemoryUse) -> Self {
        match usage {
            MemoryUse::Arguments => Self { arguments: bytes, ..Self::default() },
            MemoryUse::Results => Self { results: bytes, ..Self::default() },
        }
    }

    fn of(self, usage: MemoryUse) -> u64 {
        match usage {
            MemoryUse::Arguments => self.arguments,
            MemoryUse::Results => self.results,
        }
    }

    fn all_main(self) -> u64 {
        self.arguments.saturating_add(self.results)
    }

    pub(super) fn total(self) -> u64 {
        self.all_main().saturating_add(self.small)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.arguments = self.arguments.saturating_add(other.arguments);
        self.results = self.results.saturating_add(other.results);
        self.small = self.small.saturating_add(other.small);
    }

    fn subtract(&mut self, other: Self) {
        self.arguments = self.arguments.saturating_sub(other.arguments);
        self.results = self.results.saturating_sub(other.results);
        self.small = self.small.saturating_sub(other.small);
    }

    /// Removes up to `bytes`, from the main part first, and returns the removed parts.
    pub(super) fn split(&mut self, bytes: u64) -> Self {
        let arguments = self.arguments.min(bytes);
        let results = self.results.min(bytes - arguments);
        let small = self.small.min(bytes - arguments - results);
        let parts = Self { arguments, results, small };
        self.subtract(parts);
        parts
    }
}

/// An amount of memory that a connection or a call waits for.
#[derive(Debug)]
pub(super) struct BudgetWaiter {
    pub(super) bytes: u64,
    pub(super) usage: MemoryUse,
    is_granted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl BudgetWaiter {
    pub(super) fn new(bytes: u64, usage: MemoryUse) -> Arc<Self> {
        Arc::new(Self { bytes, usage, is_granted: AtomicBool::new(false), waker: Mutex::default() })
    }

    fn waker(&self) -> MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory that is granted to the waiter.
    pub(super) fn granted(&self) -> BudgetParts {
        BudgetParts::main(self.bytes, self.usage)
    }

    /// Returns `true` if the memory was granted.
    pub(super) fn is_granted(&self) -> bool {
        self.is_granted.load(SeqCst)
    }

    /// Registers `waker`, which is woken when the memory is granted. Wakes it at once if the memory was granted before.
    pub(super) fn wait(&self, waker: &Waker) {
        *self.waker() = Some(waker.clone());
        if self.is_granted() {
            waker.wake_by_ref();
        }
    }

    fn grant(&self, wakers: &mut BudgetWakers) {
        self.is_granted.store(true, SeqCst);
        wakers.extend(self.waker().take());
    }
}

#[derive(Debug, Default)]
struct ConnectionUse {
    held: BudgetParts,
    waiters: UseQueues<Arc<BudgetWaiter>>,
}

#[derive(Debug, Default)]
struct HostUse {
    held: BudgetParts,
    connections: BTreeMap<u64, ConnectionUse>,
    /// The connections with waiters, in the order of their turns.
    turns: UseQueues<u64>,
}

impl HostUse {
    fn is_active(&self) -> bool {
        self.held.all_main() > 0 || !self.turns.is_empty()
    }

    /// Returns the connection whose turn it is, with the number of bytes that it waits for. Connections that hold
    /// nothing for `usage` come first.
    fn next(&self, usage: MemoryUse) -> Option<(u64, &ConnectionUse, u64)> {
        let ids = self.turns.of(usage).iter().take(MAX_LOOKS).copied();
        let mut all = ids.filter_map(|id| {
            let connection = self.connections.get(&id)?;
            Some((id, connection, connection.waiters.of(usage).front()?.bytes))
        });
        let quiet = all.clone().find(|(_, connection, _)| connection.held.of(usage) == 0);
        quiet.or_else(|| all.next())
    }
}

/// The held memory of a budget, and its waiters.
#[derive(Debug)]
pub(super) struct BudgetState {
    limit: u64,
    held: BudgetParts,
    hosts: HashMap<u128, HostUse>,
    /// The hosts with waiters, in the order of their turns.
    turns: UseQueues<u128>,
    /// Number of hosts that hold memory of the main part or wait for it.
    active: u64,
    waiting: usize,
    next_connection: u64,
}

/// Returns the size of the part for small amounts, in bytes. `limit` is the limit of the budget.
fn small_part(limit: u64) -> u64 {
    limit / 8
}

/// Returns the size of the main part, in bytes. `limit` is the limit of the budget.
fn main_part(limit: u64) -> u64 {
    limit - small_part(limit)
}

/// Returns the maximum memory for the arguments of one call, and also for its results, in bytes: half of the main part.
/// `limit` is the limit of the budget.
pub(super) fn most_of_call(limit: u64) -> u64 {
    main_part(limit) / 2
}

/// Returns the number of bytes that a holder of `held` bytes may take of `free` bytes. The holder then holds at most
/// `ratio` times the bytes that it leaves free.
fn room(held: u64, free: u64, ratio: u64) -> u64 {
    free.saturating_mul(ratio).saturating_sub(held) / (ratio + 1)
}

impl BudgetState {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            held: BudgetParts::default(),
            hosts: HashMap::new(),
            turns: UseQueues::default(),
            active: 0,
            waiting: 0,
            next_connection: 0,
        }
    }

    /// Returns the memory that all hosts hold, in bytes.
    pub(super) fn held(&self) -> u64 {
        self.held.total()
    }

    /// Returns the number of waiters of all hosts.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a connection of `host`, and returns its number.
    pub(super) fn open(&mut self, host: u128) -> u64 {
        let id = self.next_connection;
        self.next_connection += 1;
        self.hosts.entry(host).or_default().connections.insert(id, ConnectionUse::default());
        id
    }

    /// Removes a connection that holds nothing and waits for nothing.
    pub(super) fn close(&mut self, host: u128, id: u64) {
        if let Some(of_host) = self.hosts.get_mut(&host) {
            of_host.connections.remove(&id);
            if of_host.connections.is_empty() {
                self.hosts.remove(&host);
            }
        }
    }

    /// Changes the state of a host, and updates the number of active hosts. Returns `None` for an unknown host.
    fn update<R>(&mut self, host: u128, change: impl FnOnce(&mut HostUse) -> R) -> Option<R> {
        let of_host = self.hosts.get_mut(&host)?;
        let was_active = of_host.is_active();
        let result = change(of_host);
        match (was_active, of_host.is_active()) {
            (false, true) => self.active += 1,
            (true, false) => self.active = self.active.saturating_sub(1),
            _ => {}
        }
        Some(result)
    }

    /// Returns the maximum memory of the main part that all calls may currently hold for `usage`, in bytes. While no
    /// arguments wait, results may use the half of arguments as well.
    fn most(&self, usage: MemoryUse) -> u64 {
        match usage {
            MemoryUse::Results if self.turns.arguments.is_empty() => main_part(self.limit),
            _ => most_of_call(self.limit),
        }
    }

    /// Returns the free memory of the main part for `usage`, in bytes. Memory that arguments hold beyond their half is
    /// ignored, because results must not wait for it.
    fn free(&self, usage: MemoryUse) -> u64 {
        let others = self.held.arguments.min(most_of_call(self.limit)).saturating_add(self.held.results);
        let left = self.most(usage).saturating_sub(self.held.of(usage));
        left.min(main_part(self.limit).saturating_sub(others))
    }

    /// Returns `true` if a connection that takes `bytes` of the main part leaves enough memory to other hosts, and to
    /// other connections of its host.
    fn is_moderate(&self, of_host: &HostUse, connection: &ConnectionUse, bytes: u64, usage: MemoryUse) -> bool {
        let host_room = room(of_host.held.of(usage), self.free(usage), MAIN_RATIO);
        bytes <= room(connection.held.of(usage), host_room, MAIN_RATIO)
    }

    /// Takes `bytes` of the main part without waiting, or else of the part for small amounts. Returns `None` if the
    /// rules permit neither.
    pub(super) fn take_now(&mut self, host: u128, id: u64, bytes: u64, usage: MemoryUse) -> Option<BudgetParts> {
        let of_host = self.hosts.get(&host)?;
        let connection = of_host.connections.get(&id)?;
        let parts = if self.turns.of(usage).is_empty() && self.is_moderate(of_host, connection, bytes, usage) {
            BudgetParts::main(bytes, usage)
        } else {
            let free = small_part(self.limit).saturating_sub(self.held.small);
            let host_room = room(of_host.held.small, free, SMALL_RATIO);
            if bytes > room(connection.held.small, host_room, SMALL_RATIO) {
                return None;
            }
            BudgetParts { small: bytes, ..BudgetParts::default() }
        };
        self.add(host, id, parts);
        Some(parts)
    }

    /// Adds `parts` to the held memory, even beyond the limit.
    pub(super) fn add(&mut self, host: u128, id: u64, parts: BudgetParts) {
        self.held.add(parts);
        self.update(host, |of_host| {
            of_host.held.add(parts);
            if let Some(connection) = of_host.connections.get_mut(&id) {
                connection.held.add(parts);
            }
        });
    }

    /// Returns `parts` to the budget, and grants the free memory to waiters. Adds their wakers to `wakers`.
    pub(super) fn give_back(&mut self, host: u128, id: u64, parts: BudgetParts, wakers: &mut BudgetWakers) {
        self.held.subtract(parts);
        self.update(host, |of_host| {
            of_host.held.subtract(parts);
            if let Some(connection) = of_host.connections.get_mut(&id) {
                connection.held.subtract(parts);
            }
        });
        self.assign(wakers);
    }

    /// Adds a waiter. If the rules permit it, grants its memory at once.
    pub(super) fn enqueue(&mut self, host: u128, id: u64, waiter: &Arc<BudgetWaiter>, wakers: &mut BudgetWakers) {
        let usage = waiter.usage;
        let is_first = self.update(host, |of_host| {
            let turns = of_host.turns.of_mut(usage);
            let is_first = turns.is_empty();
            if let Some(connection) = of_host.connections.get_mut(&id) {
                let waiters = connection.waiters.of_mut(usage);
                waiters.push_back(Arc::clone(waiter));
                if waiters.len() == 1 {
                    turns.push_back(id);
                }
            }
            is_first
        });
        if is_first == Some(true) {
            self.turns.of_mut(usage).push_back(host);
        }
        self.waiting += 1;
        self.assign(wakers);
    }

    /// Removes a waiter that gives up. The memory of the waiter must not have been granted, because granting has
    /// already removed the waiter.
    pub(super) fn leave(&mut self, host: u128, id: u64, waiter: &Arc<BudgetWaiter>, wakers: &mut BudgetWakers) {
        let usage = waiter.usage;
        let is_last = self.update(host, |of_host| {
            let turns = of_host.turns.of_mut(usage);
            if let Some(connection) = of_host.connections.get_mut(&id) {
                let waiters = connection.waiters.of_mut(usage);
                waiters.retain(|other| !Arc::ptr_eq(other, waiter));
                if waiters.is_empty() {
                    turns.retain(|&other| other != id);
                }
            }
            turns.is_empty()
        });
        if is_last == Some(true) {
            self.turns.of_mut(usage).retain(|&other| other != host);
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.assign(wakers);
    }

    /// Grants memory to waiters, as long as the rules permit it.
    fn assign(&mut self, wakers: &mut BudgetWakers) {
        let next = |this: &Self, usage| this.next(usage).map(|(at, id)| (usage, at, id));
        while let Some((usage, at, id)) = next(self, MemoryUse::Results).or_else(|| next(self, MemoryUse::Arguments)) {
            self.grant(usage, at, id, wakers);
        }
    }

    /// Returns the next waiter that gets memory for `usage`: the index of its host in the turns, and its connection.
    /// Returns `None` if the rules permit no waiter to get memory now.
    fn next(&self, usage: MemoryUse) -> Option<(usize, u64)> {
        let mut moderate = None;
        for (at, host) in self.turns.of(usage).iter().take(MAX_LOOKS).enumerate() {
            let Some(of_host) = self.hosts.get(host) else { continue };
            let Some((id, connection, bytes)) = of_host.next(usage) else { continue };
            let (held, share) = (of_host.held.of(usage), self.most(usage) / (self.active + 1));
            if held == 0 || held.saturating_add(bytes) <= share {
                // What is free is kept for it.
                return (bytes <= self.free(usage)).then_some((at, id));
            }
            if moderate.is_none() && self.is_moderate(of_host, connection, bytes, usage) {
                moderate = Some((at, id));
            }
        }
        moderate
    }

    fn grant(&mut self, usage: MemoryUse, at: usize, id: u64, wakers: &mut BudgetWakers) {
        let Some(host) = self.turns.of_mut(usage).remove(at) else { return };
        let waiter = self.update(host, |of_host| {
            let turns = of_host.turns.of_mut(usage);
            turns.retain(|&other| other != id);
            let waiters = of_host.connections.get_mut(&id)?.waiters.of_mut(usage);
            let waiter = waiters.pop_front()?;
            if !waiters.is_empty() {
                turns.push_back(id);
            }
            Some((waiter, !turns.is_empty()))
        });
        let Some((waiter, has_more)) = waiter.flatten() else { return };
        if has_more {
            self.turns.of_mut(usage).push_back(host);
        }
        self.waiting = self.waiting.saturating_sub(1);
        self.add(host, id, waiter.granted());
        waiter.grant(wakers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The main part is split off first. No more memory is split off than the parts contain.
    #[test]
    fn parts_are_split() {
        let all = BudgetParts { arguments: 10, results: 20, small: 30 };
        for (bytes, arguments, results, small) in [
            (0, 0, 0, 0),
            (4, 4, 0, 0),
            (10, 10, 0, 0),
            (15, 10, 5, 0),
            (35, 10, 20, 5),
            (60, 10, 20, 30),
            (99, 10, 20, 30),
        ] {
            let mut left = all;
            let parts = left.split(bytes);
            assert_eq!(parts, BudgetParts { arguments, results, small }, "{bytes}");
            left.add(parts);
            assert_eq!((left, left.total()), (all, 60));
        }
    }
}
