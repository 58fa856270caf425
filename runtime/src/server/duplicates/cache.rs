//! The cache of one program: recorded replies, and calls in progress.

use std::{
    collections::{HashMap, hash_map},
    hash::{BuildHasher as _, Hash, Hasher},
    sync::Arc,
};

use tokio::{sync::Semaphore, time::Instant};

use super::{
    DuplicateRequests,
    shares::{ClientId, ReplyShares, Room},
    store::ReplyStore,
    sync::{Mutex, MutexGuard, PoisonError},
};
use crate::{
    random::KeyedHash,
    session::{RecordedCall, RecordedReply, RequestKey},
};

/// Statistics of the duplicate request cache of one program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DuplicateRequestStats {
    /// The program number.
    pub program: u32,
    /// Current number of recorded replies.
    pub entries: usize,
    /// Current memory of the recorded replies, in bytes.
    pub bytes: u64,
    /// Current number of calls in progress.
    pub in_progress: usize,
    /// Number of calls that got a recorded reply.
    pub hits: u64,
    /// Number of times that a call found an earlier copy in progress.
    pub waits: u64,
    /// Number of calls that were executed.
    pub misses: u64,
    /// Number of replies that were removed before their [`max_age`](super::DuplicateRequests::max_age), or not recorded
    /// at all, for lack of room. A client that sends such a call again has it executed twice, unless a
    /// [`ReplyStore`](super::ReplyStore) has the reply.
    pub evicted: u64,
}

/// The duplicate request cache of one program.
pub(in crate::server) struct DuplicateRequestCache {
    pub(super) config: DuplicateRequests,
    hash: KeyedHash,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<CachedCall, CacheEntry, KeyedHash>,
    /// The calls with recorded replies.
    recorded: ReplyShares<CachedCall>,
    stats: DuplicateRequestStats,
}

/// A call in the table, with the keyed hash of its key, which is computed once.
#[derive(Clone)]
struct CachedCall {
    hash: u64,
    call: Arc<RecordedCall>,
}

impl PartialEq for CachedCall {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.call.key == other.call.key
    }
}

impl Eq for CachedCall {}

impl Hash for CachedCall {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

enum CacheEntry {
    /// A call in progress. Copies of the call wait for the announcement of its end. `None` until a copy arrives.
    InProgress(Option<CallEnded>),
    Recorded(RecordedReply),
}

/// The result of the look-up of a call that arrives.
pub(in crate::server) enum Lookup {
    Recorded(RecordedReply),
    InProgress(EarlierCopy),
    New(Claim),
}

/// A guard that announces the end of a call in progress when the guard is dropped. The waiting copies of the call
/// continue in the order in which they arrived.
struct CallEnded(Arc<Semaphore>);

impl Default for CallEnded {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl Drop for CallEnded {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A copy of a call that arrived earlier and is in progress.
pub(in crate::server) struct EarlierCopy(Arc<Semaphore>);

impl EarlierCopy {
    /// Waits until the earlier copy has ended, with or without a reply.
    pub(super) async fn ended(self) {
        // There are no permits: the wait ends with an error, when the entry of the call in progress is dropped.
        let _ = self.0.acquire().await;
    }
}

impl DuplicateRequestCache {
    pub(in crate::server) fn new(program: u32, config: DuplicateRequests) -> Self {
        let stats = DuplicateRequestStats { program, ..DuplicateRequestStats::default() };
        Self { config, hash: KeyedHash::default(), table: Mutex::new(Table { stats, ..Table::default() }) }
    }

    /// Returns the program number.
    pub(super) fn program(&self) -> u32 {
        self.table().stats.program
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::server) fn stats(&self) -> DuplicateRequestStats {
        let mut table = self.table();
        table.expire(Instant::now());
        let Room { entries, bytes } = table.recorded.room();
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        DuplicateRequestStats { entries, bytes, in_progress: table.entries.len() - entries, ..table.stats }
    }

    /// Counts a call that is executed.
    pub(super) fn count_miss(&self) {
        self.table().stats.misses += 1;
    }

    /// Looks a call up, and counts a hit or a wait if the call is known. A new call is in progress until its [`Claim`]
    /// is dropped.
    pub(super) fn lookup(self: &Arc<Self>, key: RequestKey) -> Lookup {
        let cached = CachedCall { hash: self.hash.hash_one(&key), call: Arc::new(RecordedCall::new(key)) };
        let mut table = self.table();
        table.expire(Instant::now());
        let Table { entries, stats, .. } = &mut *table;
        match entries.entry(cached) {
            hash_map::Entry::Occupied(mut known) => match known.get_mut() {
                CacheEntry::Recorded(reply) => {
                    stats.hits += 1;
                    Lookup::Recorded(reply.clone())
                }
                CacheEntry::InProgress(end) => {
                    stats.waits += 1;
                    Lookup::InProgress(EarlierCopy(Arc::clone(&end.get_or_insert_default().0)))
                }
            },
            hash_map::Entry::Vacant(vacant) => {
                let cached = vacant.key().clone();
                vacant.insert(CacheEntry::InProgress(None));
                Lookup::New(Claim { cache: Arc::clone(self), cached, is_recorded: false })
            }
        }
    }
}

impl Table {
    /// Removes the replies that have expired by `now`.
    fn expire(&mut self, now: Instant) {
        while let Some(cached) = self.recorded.pop_expired(now) {
            self.entries.remove(&cached);
        }
    }

    /// Records the reply to a call in progress, unless the reply is too long. Evicts replies if a limit is exceeded.
    /// Returns the entry of the call in progress. Dropping that entry wakes the copies of the call that wait.
    fn record(
        &mut self,
        cached: &CachedCall,
        client: ClientId,
        reply: RecordedReply,
        config: &DuplicateRequests,
    ) -> Option<CacheEntry> {
        let size = size(cached, &reply);
        if size > config.max_bytes {
            // It would displace all others.
            self.stats.evicted += 1;
            return self.entries.remove(cached);
        }
        let entry = self.entries.get_mut(cached)?;
        let ended = std::mem::replace(entry, CacheEntry::Recorded(reply));
        let now = Instant::now();
        self.recorded.push(client, cached.clone(), size, now.checked_add(config.max_age));
        self.expire(now);
        for evicted in self.recorded.evict(Room { entries: config.max_entries as u64, bytes: config.max_bytes }) {
            self.entries.remove(&evicted);
            self.stats.evicted += 1;
        }
        Some(ended)
    }
}

/// Memory, in bytes, that an entry takes in the table and in its queues, besides the call and the reply.
const REPLY_OVERHEAD: u64 =
    (size_of::<(CachedCall, CacheEntry)>() + 2 * size_of::<(Option<Instant>, CachedCall)>()) as u64;

/// Returns the memory of an entry in bytes, with its call and its reply.
fn size(cached: &CachedCall, reply: &RecordedReply) -> u64 {
    cached.call.size() + reply.size() + REPLY_OVERHEAD
}

/// A call in progress. Dropping it without a reply lets the next copy of the call be executed.
pub(in crate::server) struct Claim {
    cache: Arc<DuplicateRequestCache>,
    cached: CachedCall,
    is_recorded: bool,
}

impl Claim {
    /// Returns the call, in which the reply of the handler is recorded.
    pub(super) fn call(&self) -> &Arc<RecordedCall> {
        &self.cached.call
    }

    pub(in crate::server) fn store(&self) -> Option<&Arc<dyn ReplyStore>> {
        self.cache.config.store.as_ref()
    }

    /// Records a reply that was loaded from the store, and counts a hit.
    pub(super) fn hit(self, reply: RecordedReply) {
        self.cache.table().stats.hits += 1;
        self.record(reply);
    }

    /// Records the reply, and wakes the copies of the call that wait.
    pub(super) fn record(mut self, reply: RecordedReply) {
        self.is_recorded = true;
        // Dropped after the table was unlocked, which wakes the copies that wait.
        let hash = &self.cache.hash;
        let (group, identity) = self.cached.call.key.client();
        let client = ClientId { group: hash.hash_one(group), client: hash.hash_one(identity) };
        let _ended = self.cache.table().record(&self.cached, client, reply, &self.cache.config);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_recorded {
            // As in `record`.
            let _ended = self.cache.table().entries.remove(&self.cached);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rpc::Credential, session::recorded_key};

    /// Calls with different keys are different calls even if their hashes collide. The table finds an entry by the
    /// stored hash of the call.
    #[test]
    fn calls_are_compared_by_key() {
        let call = |hash, xid| {
            let key = recorded_key(xid, "10.0.0.1", &Credential::None, None, false);
            CachedCall { hash, call: Arc::new(RecordedCall::new(key)) }
        };
        assert!(call(1, 1) == call(1, 1) && call(1, 1) != call(1, 2));
        let table = KeyedHash::default();
        assert_eq!(table.hash_one(call(1, 1)), table.hash_one(call(1, 2)));
        assert_ne!(table.hash_one(call(1, 1)), table.hash_one(call(2, 1)));
    }
}
