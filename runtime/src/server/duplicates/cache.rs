//! The recorded replies, and the calls in progress.

use std::{
    collections::{HashMap, hash_map},
    hash::{BuildHasher as _, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, time::Instant};

use super::{
    super::keyed_hash::KeyedHash,
    DuplicateRequests,
    shares::{ClientId, ReplyShares, Room},
    store::ReplyStore,
};
use crate::session::{RecordedCall, RecordedReply, RequestKey};

/// The number of recorded replies of one program, and the number of calls that were recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DuplicateRequestStats {
    /// The program number.
    pub program: u32,
    /// Number of recorded replies now.
    pub entries: usize,
    /// Memory of the recorded replies now, in bytes.
    pub bytes: u64,
    /// Number of calls in progress now.
    pub in_progress: usize,
    /// Number of calls that got a recorded reply.
    pub hits: u64,
    /// Number of calls that arrived while an earlier copy was in progress.
    pub waits: u64,
    /// Number of calls that were executed.
    pub misses: u64,
    /// Number of replies that were removed before their [`max_age`](super::DuplicateRequests::max_age), for lack of room. A client
    /// that sends such a call again has it executed twice.
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
    /// Copies of the call wait until the sender is dropped. `None` if there are none.
    InProgress(Option<watch::Sender<()>>),
    Recorded(RecordedReply),
}

/// The state of a call that arrives.
pub(in crate::server) enum Lookup {
    Recorded(RecordedReply),
    /// An earlier copy is in progress. The receiver reports its end as an error.
    InProgress(watch::Receiver<()>),
    New(Claim),
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

    /// Looks a call up. If it is new, it is in progress from now on.
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
                    Lookup::InProgress(end.get_or_insert_with(|| watch::channel(()).0).subscribe())
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
    /// Removes replies that are too old.
    fn expire(&mut self, now: Instant) {
        while let Some(cached) = self.recorded.pop_expired(now) {
            self.entries.remove(&cached);
        }
    }

    /// Records the reply to a call in progress. Returns the sender for which copies of the call wait, or the call itself if its reply is
    /// too long.
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

/// The memory of an entry in the table and in its queues, in bytes.
const REPLY_OVERHEAD: u64 =
    (size_of::<(CachedCall, CacheEntry)>() + 2 * size_of::<(Option<Instant>, CachedCall)>()) as u64;

/// Returns the memory of an entry in bytes.
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
    /// Returns the call, which gets the reply of its handler.
    pub(super) fn call(&self) -> &Arc<RecordedCall> {
        &self.cached.call
    }

    /// Counts the call as one to execute.
    pub(super) fn count(&self) {
        self.cache.table().stats.misses += 1;
    }

    /// Returns the store of replies.
    pub(in crate::server) fn store(&self) -> Option<&Arc<dyn ReplyStore>> {
        self.cache.config.store.as_ref()
    }

    /// Records the reply to an earlier run of the server.
    pub(super) fn hit(self, reply: RecordedReply) {
        self.cache.table().stats.hits += 1;
        self.record(reply);
    }

    /// Records the reply.
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
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use super::*;
    use crate::{
        rpc::Credential,
        security::{Principal, ProtectionLevel},
        session::recorded_key,
    };

    fn key(xid: u32) -> RequestKey {
        recorded_key(xid, "10.0.0.1", &Credential::None, None, false)
    }

    fn reply(text: &str) -> RecordedReply {
        RecordedReply::success(&bytes::Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn cache(config: DuplicateRequests) -> Arc<DuplicateRequestCache> {
        Arc::new(DuplicateRequestCache::new(7, config))
    }

    fn claim(cache: &Arc<DuplicateRequestCache>, key: &RequestKey) -> Claim {
        match cache.lookup(key.clone()) {
            Lookup::New(claim) => claim,
            _ => panic!("not new"),
        }
    }

    fn is_recorded(cache: &Arc<DuplicateRequestCache>, key: &RequestKey, expected: &RecordedReply) -> bool {
        matches!(cache.lookup(key.clone()), Lookup::Recorded(reply) if reply == *expected)
    }

    #[tokio::test(start_paused = true)]
    async fn replies_expire_by_age() {
        let cache = cache(DuplicateRequests::new().max_age(Duration::from_secs(10)));
        claim(&cache, &key(1)).record(reply("one"));
        tokio::time::advance(Duration::from_secs(9)).await;
        claim(&cache, &key(2)).record(reply("two"));
        assert!(is_recorded(&cache, &key(1), &reply("one")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(matches!(cache.lookup(key(1)), Lookup::New(_)), "a hit does not extend the age");
        assert!(is_recorded(&cache, &key(2), &reply("two")));
        let stats = cache.stats();
        assert_eq!((stats.entries, stats.in_progress, stats.hits, stats.evicted), (1, 0, 2, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_reply_of_a_client_is_evicted_first() {
        let cache = cache(DuplicateRequests::new().max_entries(2));
        for xid in 1..=3 {
            claim(&cache, &key(xid)).record(reply("some"));
        }
        assert!(is_recorded(&cache, &key(2), &reply("some")) && is_recorded(&cache, &key(3), &reply("some")));
        assert!(matches!(cache.lookup(key(1)), Lookup::New(_)));
        assert_eq!(cache.stats().evicted, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_bounded() {
        let long = "x".repeat(1000);
        let cache = cache(DuplicateRequests::new().max_bytes(3000));
        for xid in 1..=10 {
            claim(&cache, &key(xid)).record(reply(&long));
            assert!(cache.stats().bytes <= 3000);
        }
        assert_eq!(cache.stats().entries, 2);
        // A reply that is longer than the bound displaces no others.
        claim(&cache, &key(11)).record(reply(&"x".repeat(3000)));
        assert!(matches!(cache.lookup(key(11)), Lookup::New(_)));
        assert!(is_recorded(&cache, &key(10), &reply(&long)));
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!((cache.stats().bytes, cache.stats().entries), (0, 0));
    }

    /// A client, and an address, can displace only their own replies.
    #[tokio::test(start_paused = true)]
    async fn clients_have_shares() {
        let of = |xid, address: &str, credential: &Credential, principal: Option<&Principal>| {
            recorded_key(xid, address, credential, principal, false)
        };
        let none = Credential::None;
        let alice = Principal::new("alice@EXAMPLE.COM", ProtectionLevel::Privacy);
        let victims = [
            of(1, "10.0.0.9", &none, None),
            of(1, "10.0.0.1", &Credential::sys("a", 1, 1, []), None),
            of(1, "10.0.0.1", &none, Some(&alice)),
            of(1, "2001:db8:1::1", &none, None),
        ];
        let cache = cache(DuplicateRequests::new().max_entries(100));
        for victim in &victims {
            claim(&cache, victim).record(reply("mine"));
        }
        for xid in 0..1000 {
            claim(&cache, &of(xid, "10.0.0.1", &none, None)).record(reply("flood"));
            // A host chooses its address freely within a prefix of 64 bits.
            claim(&cache, &of(1, &format!("2001:db8::{xid:x}"), &none, None)).record(reply("flood"));
        }
        for victim in &victims {
            assert!(is_recorded(&cache, victim, &reply("mine")), "{victim:?}");
        }
        assert!(cache.stats().entries <= 100);
        // Another address has a share, however many identities it claims.
        for uid in 0..1000 {
            let credential = Credential::sys("b", uid, 1, []);
            claim(&cache, &of(1, "10.0.0.7", &credential, None)).record(reply("flood"));
        }
        for victim in &victims {
            assert!(is_recorded(&cache, victim, &reply("mine")), "{victim:?}");
        }
    }

    /// A copy of a call in progress waits. It is executed if the first one ends without a reply.
    #[tokio::test(start_paused = true)]
    async fn copies_wait() {
        let cache = cache(DuplicateRequests::new().max_entries(1));
        for ends_with_reply in [true, false] {
            let first = claim(&cache, &key(1));
            let Lookup::InProgress(mut end) = cache.lookup(key(1)) else { panic!("not in progress") };
            claim(&cache, &key(2)).record(reply("another"));
            claim(&cache, &key(3)).record(reply("another"));
            assert!(matches!(cache.lookup(key(1)), Lookup::InProgress(_)), "calls in progress are never evicted");
            let waiting = tokio::spawn(async move { end.changed().await });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            if ends_with_reply {
                first.record(reply("done"));
            } else {
                drop(first);
            }
            assert!(waiting.await.unwrap().is_err());
            assert_eq!(is_recorded(&cache, &key(1), &reply("done")), ends_with_reply);
            tokio::time::advance(Duration::from_secs(120)).await;
        }
    }

    #[test]
    fn clients_are_distinguished() {
        let sys = |machine: &str, stamp, uid| {
            let mut credential = Credential::sys(machine, uid, 100, []);
            if let Credential::Sys(parms) = &mut credential {
                parms.stamp = stamp;
            }
            credential
        };
        let principal = |name: &str, level| Some(Principal::new(name, level));
        let alice = principal("alice@EXAMPLE.COM", ProtectionLevel::Privacy);
        let of = |address, credential: &Credential, principal: Option<&Principal>, ignores_stamp| {
            recorded_key(7, address, credential, principal, ignores_stamp)
        };
        let base = of("10.0.0.1", &sys("a", 1, 5), None, false);
        assert_eq!(base, of("::ffff:10.0.0.1", &sys("a", 1, 5), None, false));
        let others = [
            of("10.0.0.2", &sys("a", 1, 5), None, false),
            of("10.0.0.1", &sys("b", 1, 5), None, false),
            of("10.0.0.1", &sys("a", 2, 5), None, false),
            of("10.0.0.1", &sys("a", 1, 6), None, false),
            of("10.0.0.1", &Credential::None, None, false),
            of("10.0.0.1", &sys("a", 1, 5), alice.as_ref(), false),
        ];
        for other in &others {
            assert_ne!(base, *other);
            assert_ne!(base.to_bytes(), other.to_bytes());
        }
        assert_eq!(of("10.0.0.1", &sys("a", 1, 5), None, true), of("10.0.0.1", &sys("a", 2, 5), None, true));
        // A security context that is made again may have another level of protection, and always has another credential.
        let again = principal("alice@EXAMPLE.COM", ProtectionLevel::Integrity);
        let first = of("10.0.0.1", &Credential::None, alice.as_ref(), false);
        assert_eq!(first, of("10.0.0.1", &sys("a", 1, 5), again.as_ref(), false));
    }
}
