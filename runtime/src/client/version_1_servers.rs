//! A cache of servers that support only version 1 of RPC-over-RDMA. Later connections to such a server begin with
//! version 1 (RPC-over-RDMA v2 §4.2.3).

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{LazyLock, Mutex, PoisonError},
};

use tokio::time::{Duration, Instant};

use crate::transport::Scheme;

/// Lifetime of an entry. Entries expire because servers are upgraded.
const ENTRY_LIFETIME: Duration = Duration::from_secs(600);
/// Maximum number of entries. To make room, expired entries are removed or, if there are none, the oldest entry.
const MAX_ENTRIES: usize = 1024;

static SERVERS: LazyLock<Mutex<Version1Servers>> = LazyLock::new(Mutex::default);

/// The scheme and the address of a server. The same address with another scheme may be another server.
type ServerKey = (Scheme, SocketAddr);

#[derive(Debug, Default)]
struct Version1Servers(HashMap<ServerKey, Instant>);

impl Version1Servers {
    fn remember(&mut self, peer: ServerKey, now: Instant) {
        if self.0.len() >= MAX_ENTRIES && !self.0.contains_key(&peer) {
            self.0.retain(|_, since| now.duration_since(*since) < ENTRY_LIFETIME);
            if self.0.len() >= MAX_ENTRIES
                && let Some(oldest) = self.0.iter().min_by_key(|(_, since)| **since).map(|(peer, _)| *peer)
            {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(peer, now);
    }

    fn has_version_1_only(&self, peer: ServerKey, now: Instant) -> bool {
        self.0.get(&peer).is_some_and(|since| now.duration_since(*since) < ENTRY_LIFETIME)
    }
}

/// Records that the server at `peer` supports only version 1.
pub(super) fn remember_version_1(scheme: Scheme, peer: SocketAddr) {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).remember((scheme, peer), Instant::now());
}

/// Returns `true` if the server at `peer` is known to support only version 1.
pub(super) fn has_version_1_only(scheme: Scheme, peer: SocketAddr) -> bool {
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner).has_version_1_only((scheme, peer), Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounded_in_time_and_number() {
        let peer = |n: usize| (Scheme::IWARP, SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1)));
        let mut peers = Version1Servers::default();
        let start = Instant::now();
        for n in 0..MAX_ENTRIES + 10 {
            peers.remember(peer(n), start + Duration::from_millis(n as u64));
        }
        assert_eq!(peers.0.len(), MAX_ENTRIES);
        let now = start + Duration::from_secs(10);
        assert!(!peers.has_version_1_only(peer(9), now) && peers.has_version_1_only(peer(10), now));
        assert!(!peers.has_version_1_only(peer(10), start + 2 * ENTRY_LIFETIME));
        assert!(!peers.has_version_1_only((Scheme::TCP, peer(10).1), now));
    }

    /// A table evicts a valid entry only if it is full and the server is new.
    #[test]
    fn only_full_tables_lose_entries() {
        let peer = |n: usize| (Scheme::IWARP, SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 1)));
        let start = Instant::now();
        let mut peers = Version1Servers::default();
        for n in 0..MAX_ENTRIES {
            peers.remember(peer(n), start + Duration::from_secs(u64::from(n >= 10)));
            assert_eq!(peers.0.len(), n + 1);
        }
        peers.remember(peer(5), start);
        assert_eq!(peers.0.len(), MAX_ENTRIES);
        // The first ten expire.
        let end = start + ENTRY_LIFETIME;
        assert!(peers.has_version_1_only(peer(5), end - Duration::from_nanos(1)));
        assert!(!peers.has_version_1_only(peer(5), end) && peers.has_version_1_only(peer(10), end));
        peers.remember(peer(MAX_ENTRIES), end);
        assert_eq!(peers.0.len(), MAX_ENTRIES - 10 + 1);
        assert!((10..=MAX_ENTRIES).all(|n| peers.has_version_1_only(peer(n), end)));
    }
}
