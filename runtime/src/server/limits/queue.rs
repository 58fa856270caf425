//! The slots of one scope, and the fair queue of the calls that wait for them.

use std::{collections::HashMap, net::SocketAddr, sync::Arc};

use tokio::sync::oneshot;

use super::{
    LimitScope, LimitStats, Limits,
    sync::{Mutex, MutexGuard, PoisonError},
    turns::Turns,
};
use crate::{random::KeyedHash, security::HostAddr};

/// A host can take slots until it has this many times the number of slots that it leaves free.
const HOST_RATIO: usize = 3;
/// A connection can take slots until it has this many times the number of slots that it leaves free.
const CONNECTION_RATIO: usize = 2;

/// The origin of a call.
#[derive(Debug, Clone)]
pub(super) struct CallSource {
    /// The peer's address and port, which stand for the connection.
    pub(super) peer: SocketAddr,
    /// The name of the caller's principal.
    pub(super) principal: Option<Arc<str>>,
}

impl CallSource {
    fn host(&self) -> HostAddr {
        HostAddr::of(self.peer)
    }

    fn caller(&self) -> Caller {
        self.principal.clone().map_or_else(|| Caller::Host(self.host()), Caller::Principal)
    }

    fn lane(&self) -> Lane {
        self.principal.clone().map_or(Lane::Connection(self.peer), Lane::Principal)
    }
}

/// A party whose running calls [`Limits::per_caller`] counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Caller {
    Principal(Arc<str>),
    /// The host of callers without a principal.
    Host(HostAddr),
}

/// A party that takes turns with other parties of its host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Lane {
    Principal(Arc<str>),
    /// A connection of callers without a principal.
    Connection(SocketAddr),
}

/// The limits of a scope, with the calls that run and wait.
#[derive(Debug)]
pub(in crate::server) struct Limiter {
    pub(in crate::server) limits: Limits,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    stats: LimitStats,
    running: RunningCalls,
    /// The waiting calls of each host, which take turns.
    waiting: Turns<HostAddr, HostQueue>,
    next_id: u64,
}

/// The waiting calls of one host.
#[derive(Debug, Default)]
struct HostQueue {
    len: usize,
    lanes: Turns<Lane, Vec<Waiter>>,
}

/// A call that waits.
#[derive(Debug)]
struct Waiter {
    id: u64,
    source: CallSource,
    /// The sender that admits the call. It is dropped without a message if the call is refused.
    admitted: oneshot::Sender<()>,
}

/// Numbers of running calls, in total and for each party that has any.
#[derive(Debug)]
struct RunningCalls {
    concurrency: usize,
    per_caller: usize,
    total: usize,
    /// Running calls of each host. Counted only if the number of handlers is limited.
    hosts: HashMap<HostAddr, usize, KeyedHash>,
    /// Running calls of each connection. Counted only if the number of handlers is limited.
    connections: HashMap<SocketAddr, usize, KeyedHash>,
    /// Running calls of each caller. Counted only if the number of handlers for a caller is limited.
    callers: HashMap<Caller, usize, KeyedHash>,
}

impl RunningCalls {
    fn new(limits: &Limits) -> Self {
        Self {
            concurrency: limits.concurrency,
            per_caller: limits.per_caller,
            total: 0,
            hosts: HashMap::default(),
            connections: HashMap::default(),
            callers: HashMap::default(),
        }
    }

    /// Returns `true` if a call may run now.
    fn has_room(&self, source: &CallSource) -> bool {
        let free = self.concurrency.saturating_sub(self.total);
        free > 0 && self.host_has_room(source.host(), free) && self.source_has_room(source, free)
    }

    fn host_has_room(&self, host: HostAddr, free: usize) -> bool {
        self.concurrency == usize::MAX || share_has_room(self.hosts.get(&host), HOST_RATIO, free)
    }

    fn source_has_room(&self, source: &CallSource, free: usize) -> bool {
        (self.concurrency == usize::MAX || share_has_room(self.connections.get(&source.peer), CONNECTION_RATIO, free))
            && (self.per_caller == usize::MAX
                || self.callers.get(&source.caller()).is_none_or(|running| *running < self.per_caller))
    }

    fn start(&mut self, source: &CallSource) {
        self.total += 1;
        if self.concurrency != usize::MAX {
            *self.hosts.entry(source.host()).or_default() += 1;
            *self.connections.entry(source.peer).or_default() += 1;
        }
        if self.per_caller != usize::MAX {
            *self.callers.entry(source.caller()).or_default() += 1;
        }
    }

    fn end(&mut self, source: &CallSource) {
        self.total -= 1;
        if self.concurrency != usize::MAX {
            decrement(&mut self.hosts, &source.host());
            decrement(&mut self.connections, &source.peer);
        }
        if self.per_caller != usize::MAX {
            decrement(&mut self.callers, &source.caller());
        }
    }
}

/// Returns `true` if a party that has `own` slots may take one of the `free` slots. A party may have `ratio` times as
/// many slots as it leaves free, and always one.
fn share_has_room(own: Option<&usize>, ratio: usize, free: usize) -> bool {
    own.is_none_or(|own| *own < ratio * (free - 1))
}

fn decrement<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize, KeyedHash>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

/// The outcome of a call that was not executed to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    Refused,
    TimedOut,
    Cancelled,
}

/// The decision on a call that has arrived.
pub(in crate::server) enum Arrival {
    /// The call may run. The permit is `None` if nothing limits the number of calls.
    Admitted(Option<Permit>),
    Waits(WaitingCall),
    Refused,
}

impl Limiter {
    pub(in crate::server) fn new(scope: LimitScope, limits: Limits) -> Self {
        let state = LimiterState {
            stats: LimitStats::new(scope),
            running: RunningCalls::new(&limits),
            waiting: Turns::default(),
            next_id: 0,
        };
        Self { limits, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::server) fn stats(&self) -> LimitStats {
        let state = self.state();
        LimitStats { running: state.running.total, ..state.stats }
    }

    /// Counts a call whose handler starts. An admitted call may be dropped before that.
    pub(super) fn execute(&self) {
        self.state().stats.executed += 1;
    }

    /// Counts a call that was not executed to its end.
    pub(super) fn count(&self, end: CallEnd) {
        let stats = &mut self.state().stats;
        match end {
            CallEnd::Refused => stats.refused += 1,
            CallEnd::TimedOut => stats.timed_out += 1,
            CallEnd::Cancelled => stats.cancelled += 1,
        }
    }

    /// Admits a call if there is room. Otherwise, puts it into the queue, or refuses it if it gets no place there.
    /// `source` returns the origin of the call.
    pub(super) fn arrive(self: &Arc<Self>, source: impl FnOnce() -> CallSource) -> Arrival {
        let limits = &self.limits;
        if limits.concurrency == usize::MAX && limits.per_caller == usize::MAX {
            return Arrival::Admitted(None);
        }
        let source = source();
        let mut state = self.state();
        // If there is room for the call, no other call of the same party waits for it.
        if state.running.has_room(&source) {
            state.running.start(&source);
            return Arrival::Admitted(Some(Permit { limiter: Arc::clone(self), source }));
        }
        match state.enqueue(source.clone(), limits.queue) {
            Some((id, admitted)) => Arrival::Waits(WaitingCall { limiter: Arc::clone(self), source, id, admitted }),
            None => {
                state.stats.refused += 1;
                Arrival::Refused
            }
        }
    }
}

impl LimiterState {
    /// Puts a call into the queue, which has room for `max` calls. Returns the number of the call, and the receiver of
    /// its admission. Returns `None` if the queue is full, and no other party has enough calls in it to lose a call.
    fn enqueue(&mut self, source: CallSource, max: usize) -> Option<(u64, oneshot::Receiver<()>)> {
        let (host, lane) = (source.host(), source.lane());
        if self.stats.waiting >= max && !self.make_room(host, &lane) {
            return None;
        }
        let (admitted, waits) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        self.stats.waiting += 1;
        let queue = self.waiting.get_or_insert(host);
        queue.len += 1;
        queue.lanes.get_or_insert(lane).push(Waiter { id, source, admitted });
        Some((id, waits))
    }

    /// Drops a waiting call, to make room for a call of `lane` at `host`. Returns `false` if no call was dropped.
    ///
    /// The host with the most waiting calls loses one if it has at least two more than `host`. Otherwise `host` itself
    /// loses one, if its longest lane has at least two calls more than `lane`. The latest call of the host's longest
    /// lane is dropped. The party of the new call thus does not get more waiting calls than the party that lost one.
    fn make_room(&mut self, host: HostAddr, lane: &Lane) -> bool {
        let own = self.waiting.get(&host).map_or(0, |queue| queue.len);
        let Some((longest, len)) = self.waiting.largest(|queue| queue.len) else { return false };
        let (victim, own) = if len > own + 1 {
            (longest, 0)
        } else {
            let lanes = self.waiting.get(&host).map(|queue| &queue.lanes);
            (host, lanes.and_then(|lanes| lanes.get(lane)).map_or(0, Vec::len) + 1)
        };
        let Some(queue) = self.waiting.get_mut(&victim) else { return false };
        let Some((longest, len)) = queue.lanes.largest(Vec::len) else { return false };
        if len <= own {
            return false;
        }
        queue.lanes.get_mut(&longest).and_then(Vec::pop);
        queue.lanes.remove_if(&longest, Vec::is_empty);
        queue.len -= 1;
        self.stats.waiting -= 1;
        self.stats.refused += 1;
        true
    }

    /// Ends a call that ran, and admits waiting calls for which there is room.
    fn release(&mut self, source: &CallSource) {
        self.running.end(source);
        while self.admit_next() {}
    }

    /// Admits the next waiting call for which there is room. Hosts take turns, and so do the connections or principals
    /// of a host. Returns `true` if a call was admitted.
    fn admit_next(&mut self) -> bool {
        let running = &self.running;
        let free = running.concurrency.saturating_sub(running.total);
        if free == 0 {
            return false;
        }
        let next_of_lane = |_: &Lane, waiters: &mut Vec<Waiter>| {
            let next = waiters.iter().position(|waiter| running.source_has_room(&waiter.source, free))?;
            Some(waiters.remove(next))
        };
        let next_of_host = |host: &HostAddr, queue: &mut HostQueue| {
            let has_room = running.host_has_room(*host, free);
            let next = has_room.then(|| queue.lanes.next(next_of_lane, Vec::is_empty)).flatten();
            queue.len -= usize::from(next.is_some());
            next
        };
        let Some(waiter) = self.waiting.next(next_of_host, |queue| queue.len == 0) else { return false };
        self.running.start(&waiter.source);
        self.stats.waiting -= 1;
        // A receiver that is dropped returns the permit.
        let _ = waiter.admitted.send(());
        true
    }

    /// Takes the call `id` of `source` out of the queue, if it is still there.
    fn leave(&mut self, source: &CallSource, id: u64) {
        let Some(queue) = self.waiting.get_mut(&source.host()) else { return };
        let Some(waiters) = queue.lanes.get_mut(&source.lane()) else { return };
        let before = waiters.len();
        waiters.retain(|waiter| waiter.id != id);
        let left = before - waiters.len();
        queue.len -= left;
        self.stats.waiting -= left;
        queue.lanes.remove_if(&source.lane(), Vec::is_empty);
        self.waiting.remove_if(&source.host(), |queue| queue.len == 0);
    }
}

/// A call in the queue.
pub(in crate::server) struct WaitingCall {
    limiter: Arc<Limiter>,
    source: CallSource,
    id: u64,
    admitted: oneshot::Receiver<()>,
}

impl WaitingCall {
    /// Waits until the call may run. Returns `None` if it is refused.
    pub(super) async fn admitted(mut self) -> Option<Permit> {
        let is_admitted = (&mut self.admitted).await.is_ok();
        is_admitted.then(|| Permit { limiter: Arc::clone(&self.limiter), source: self.source.clone() })
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        let mut state = self.limiter.state();
        match self.admitted.try_recv() {
            // Admitted, but the call is given up.
            Ok(()) => state.release(&self.source),
            Err(oneshot::error::TryRecvError::Empty) => state.leave(&self.source, self.id),
            // Refused, or its wait is over.
            Err(oneshot::error::TryRecvError::Closed) => {}
        }
    }
}

/// The right of a call to run. Dropping it frees the slot of the call, and admits waiting calls.
#[derive(Debug)]
pub(in crate::server) struct Permit {
    limiter: Arc<Limiter>,
    source: CallSource,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.state().release(&self.source);
    }
}

#[cfg(test)]
impl Limiter {
    /// Returns `true` if no call is counted as running or waiting.
    pub(super) fn is_empty(&self) -> bool {
        let LimiterState { running, waiting, .. } = &*self.state();
        let is_idle = running.hosts.is_empty() && running.connections.is_empty() && running.callers.is_empty();
        is_idle && waiting.largest(|queue| queue.len).is_none()
    }
}
