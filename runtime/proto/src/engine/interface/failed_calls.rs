//! Calls whose RDMA operations ended a connection. A requester that reconnects may send such a call again, which would
//! end the next connection, too (RFC 8166 §4.5.3, RPC-over-RDMA v2 §7.3).

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use smallvec::SmallVec;

/// Maximum number of calls that are remembered for a peer.
const MAX_OF_PEER: usize = 8;

/// Maximum number of calls that are remembered for all peers.
const MAX_OF_ALL: usize = 256;

/// Number of calls on a new connection that are compared with the remembered calls. A requester that reconnects sends
/// its outstanding calls first. A later call with a remembered XID is a different call.
const MAX_LATER_CALLS: u64 = 1024;

/// XIDs of calls that ended earlier connections.
pub(in crate::engine) type FailedXids = SmallVec<[u32; 4]>;

/// Table of the calls whose RDMA operations ended a connection, for all peers of a server. The oldest are forgotten
/// first.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct FailedCalls(Mutex<VecDeque<(u128, u32)>>);

impl FailedCalls {
    /// Returns the table's calls of the peer with this number, which identifies a host.
    pub fn of_peer(self: &Arc<Self>, peer: u128) -> PeerFailedCalls {
        PeerFailedCalls { table: Arc::clone(self), peer }
    }
}

/// The calls of one peer in [`FailedCalls`].
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct PeerFailedCalls {
    table: Arc<FailedCalls>,
    peer: u128,
}

impl PeerFailedCalls {
    /// Adds a call to the table. Forgets the oldest call if the peer or the table has too many.
    pub(in crate::engine) fn add(&self, xid: u32) {
        let mut calls = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_peer = |&(peer, _): &(u128, u32)| peer == self.peer;
        if calls.iter().filter(|call| of_peer(call)).count() >= MAX_OF_PEER {
            let oldest = calls.iter().position(of_peer);
            oldest.and_then(|oldest| calls.remove(oldest));
        }
        if calls.len() >= MAX_OF_ALL {
            calls.pop_front();
        }
        calls.push_back((self.peer, xid));
    }

    /// Returns the XIDs of all calls of the peer in the table.
    fn xids(&self) -> FailedXids {
        let calls = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.iter().filter(|&&(peer, _)| peer == self.peer).map(|&(_, xid)| xid).collect()
    }

    /// Removes a call from the table. Returns `true` if the table contained it.
    fn forget(&self, xid: u32) -> bool {
        let mut calls = self.table.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = calls.iter().position(|&call| call == (self.peer, xid));
        found.and_then(|found| calls.remove(found)).is_some()
    }
}

/// Calls of earlier connections that a new connection refuses.
#[derive(Debug, Default)]
pub(in crate::engine) struct RefusedCalls {
    failed: Option<PeerFailedCalls>,
    xids: FailedXids,
    arrived: u64,
}

impl RefusedCalls {
    /// Creates the list from the table's calls of the peer. The calls stay in the table until a connection refuses them
    /// or newer calls replace them, because several clients may share a host, and the next connection may belong to
    /// another client.
    pub(in crate::engine) fn of(failed: Option<&PeerFailedCalls>) -> Self {
        let xids = failed.map(PeerFailedCalls::xids).unwrap_or_default();
        Self { failed: failed.filter(|_| !xids.is_empty()).cloned(), xids, arrived: 0 }
    }

    /// Returns `true` if a call with this XID ended an earlier connection, and removes the call from the table. Only
    /// one connection refuses it, and only once. The result is `false` after the first [`MAX_LATER_CALLS`] calls.
    #[inline(always)]
    pub(in crate::engine) fn take(&mut self, xid: u32) -> bool {
        !self.xids.is_empty() && self.find(xid)
    }

    #[cold]
    fn find(&mut self, xid: u32) -> bool {
        let is_refused = self.xids.contains(&xid) && self.failed.as_ref().is_some_and(|failed| failed.forget(xid));
        self.arrived += 1;
        if self.arrived >= MAX_LATER_CALLS {
            self.xids.clear();
        }
        is_refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_refused_once() {
        let table = Arc::<FailedCalls>::default();
        let (peer, other) = (table.of_peer(1), table.of_peer(2));
        peer.add(7);
        peer.add(8);
        other.add(9);
        let mut refused = RefusedCalls::of(Some(&peer));
        assert!(!refused.take(9) && refused.take(8) && !refused.take(8) && refused.take(7));
        assert!(!RefusedCalls::of(Some(&peer)).take(7));
        assert!(RefusedCalls::of(Some(&other)).take(9));
        assert!(table.0.lock().unwrap().is_empty());
        assert!(!RefusedCalls::of(None).take(7));
    }

    /// RFC 8166 §4.5.3: several clients of a host connect, and any of them may be the one that sends the call again.
    #[test]
    fn one_connection_of_a_host_refuses_a_call() {
        let peer = Arc::<FailedCalls>::default().of_peer(1);
        peer.add(7);
        peer.add(8);
        let [mut idle, mut first, mut second] = [(); 3].map(|()| RefusedCalls::of(Some(&peer)));
        assert!(second.take(7) && !first.take(7));
        assert!(first.take(8) && !second.take(8));
        assert!(!idle.take(7) && !idle.take(8));
    }

    #[test]
    fn few_calls_are_remembered() {
        let table = Arc::<FailedCalls>::default();
        let of = |peer| RefusedCalls::of(Some(&table.of_peer(peer))).xids.into_vec();
        table.of_peer(0).add(1);
        for xid in 0..20 {
            table.of_peer(1).add(xid);
        }
        assert_eq!(of(1), (12..20).collect::<Vec<_>>());
        assert_eq!(of(0), [1]);
        for peer in 0..300 {
            table.of_peer(peer).add(5);
        }
        assert_eq!(table.0.lock().unwrap().len(), 256);
        assert!(of(43).is_empty());
        assert_eq!((of(44), of(299)), (vec![5], vec![5]));
    }

    /// A new connection refuses a remembered XID only among its first 1024 calls. A later call may have the same XID by
    /// chance.
    #[test]
    fn calls_are_forgotten_after_a_while() {
        let peer = Arc::<FailedCalls>::default().of_peer(1);
        peer.add(7);
        let mut refused = RefusedCalls::of(Some(&peer));
        assert!((100..1123).all(|xid| !refused.take(xid)));
        assert!(refused.take(7));
        peer.add(7);
        let mut refused = RefusedCalls::of(Some(&peer));
        assert!((100..1124).all(|xid| !refused.take(xid)));
        assert!(!refused.take(7));
    }
}
