//! Shares of a limited number of slots, such as those for uploads.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::command::limited_host;

/// A limited number of slots, which no single host or connection can use up.
///
/// A host can take another slot while it holds fewer slots than are free. A host that takes as many as it can therefore
/// leaves about as many slots free as it holds. A connection can take another slot until it holds about three times as
/// many as its host can still take.
#[derive(Debug)]
pub(super) struct SlotShares {
    max: usize,
    taken: Mutex<TakenSlots>,
}

#[derive(Debug, Default)]
struct TakenSlots {
    total: usize,
    hosts: HashMap<IpAddr, HashMap<SocketAddr, usize>>,
}

impl SlotShares {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, TakenSlots> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of slots that are taken.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.taken().total
    }

    /// Takes a slot for the connection of `peer`. Returns `None` if all slots are taken, or if the host or connection
    /// has its share already.
    pub(super) fn take(self: &Arc<Self>, peer: SocketAddr) -> Option<Slot> {
        let mut taken = self.taken();
        let free = self.max.saturating_sub(taken.total);
        let connections = taken.hosts.get(&limited_host(peer.ip()));
        let of_host: usize = connections.map_or(0, |connections| connections.values().sum());
        let of_peer = connections.and_then(|connections| connections.get(&peer)).copied().unwrap_or(0);
        let host_room = free.saturating_sub(of_host).div_ceil(2);
        if host_room == 0 || (of_peer > 0 && of_peer >= 3 * (host_room - 1)) {
            return None;
        }
        taken.total += 1;
        *taken.hosts.entry(limited_host(peer.ip())).or_default().entry(peer).or_default() += 1;
        Some(Slot { shares: Arc::clone(self), peer })
    }
}

/// A taken slot, which is free again on drop.
#[derive(Debug)]
pub(super) struct Slot {
    shares: Arc<SlotShares>,
    peer: SocketAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.shares.taken();
        taken.total = taken.total.saturating_sub(1);
        let Some(connections) = taken.hosts.get_mut(&limited_host(self.peer.ip())) else { return };
        if let Some(count) = connections.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.peer);
            }
        }
        if connections.is_empty() {
            taken.hosts.remove(&limited_host(self.peer.ip()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8, port: u16) -> SocketAddr {
        ([10, 0, 0, host], port).into()
    }

    fn take_all(shares: &Arc<SlotShares>, peer: SocketAddr) -> Vec<Slot> {
        std::iter::from_fn(|| shares.take(peer)).collect()
    }

    #[test]
    fn every_host_and_every_connection_gets_slots() {
        let shares = SlotShares::new(64);
        let greedy: Vec<_> = (0..9).flat_map(|port| take_all(&shares, peer(1, port))).collect();
        assert_eq!(greedy.len(), 32, "half of all is for others");
        let mut all = vec![greedy];
        for host in 2..6 {
            let first = take_all(&shares, peer(host, 1));
            let second = take_all(&shares, peer(host, 2));
            assert!(!first.is_empty() && !second.is_empty(), "{host}: {} and {}", first.len(), second.len());
            all.extend([first, second]);
        }
        assert!(all.iter().map(Vec::len).sum::<usize>() <= 64);
        drop(all);
        assert_eq!(
            take_all(&shares, peer(7, 1)).len(),
            24,
            "a quarter of what its host may have is for other connections"
        );
        let taken = shares.taken();
        assert_eq!((taken.total, taken.hosts.len()), (0, 0), "everything was released");
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_host() {
        let shares = SlotShares::new(4);
        let at = |address: &str| address.parse::<SocketAddr>().unwrap();
        let _held = [shares.take(at("[fd00::1]:1")).unwrap(), shares.take(at("[fd00::2]:1")).unwrap()];
        assert!(shares.take(at("[fd00::3]:1")).is_none());
        assert!(shares.take(at("[fd00:1::3]:1")).is_some());
    }
}
