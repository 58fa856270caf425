//! Putting continued messages together (RPC-over-RDMA v2 §4.4.2, §6.2.2.2).

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::format::HeaderPrefix;
use crate::{
    engine::{arrivals::always_accepted, shared::EngineShared},
    memory::{BudgetCharge, BufferPool, MessageBuf, Output},
};

/// Broken sequences whose rest is awaited, to be discarded. A peer that breaks more at a time keeps to no rule.
const MOST_BROKEN: usize = 8;

/// A sequence of which some has arrived.
#[derive(Debug)]
struct PartialSequence {
    xid: u32,
    htype: u32,
    response: bool,
    payload: MessageBuf,
    /// Of what all connections may hold: what is longer than is taken in any case.
    charge: BudgetCharge,
    /// When the peer will have let the rest wait for too long.
    due: Option<Instant>,
}

/// What a message comes to.
#[derive(Debug)]
pub(super) enum ReassemblyStep {
    /// All of a payload; whether it came in more than one message.
    Whole(MessageBuf, bool),
    /// More is to come.
    More,
    /// It does not belong there, and is dropped: RDMA2_ERR_INVAL_CONT where a responder says so.
    Broken(&'static str),
    /// There is no memory for it, and it is dropped.
    NoRoom(&'static str),
    /// The rest of a sequence that was broken; whether that was all of it.
    Ignored(bool),
    /// More broken sequences than anybody would take.
    TooMany,
}

/// The sequence that is arriving: one at a time.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    current: Option<PartialSequence>,
    broken: SmallVec<[(u32, bool); 2]>,
}

impl Reassembly {
    /// Gives the sequence that is arriving the time that its next message may take from now on, where that does not run already.
    // What is here of it holds memory: no peer may have that for good. It can go on at any time: however many of its calls are
    // worked on, it has credits.
    pub(super) fn watch(&mut self, now: Instant, limit: Duration) {
        if let Some(partial) = &mut self.current
            && partial.due.is_none()
        {
            partial.due = now.checked_add(limit);
        }
    }

    /// When the peer will have let the rest of a sequence wait for too long.
    pub(super) fn due(&self) -> Option<Instant> {
        self.current.as_ref().and_then(|partial| partial.due)
    }

    /// Drops the sequence that is arriving if `prefix` is not that of its next message. Returns its XID and RDMA2_F_RESPONSE.
    // RPC-over-RDMA v2 §6.2.2.2: messages of a sequence follow one another, with the same XID and header type. What follows an
    // interruption must not be taken for the rest.
    pub(super) fn interrupted_by(&mut self, prefix: &HeaderPrefix) -> Option<(u32, bool)> {
        let partial = self.current.as_ref()?;
        let (key, same) = (prefix.key(), (partial.xid, partial.response));
        if (key == same && partial.htype == prefix.htype) || self.broken.contains(&key) {
            return None;
        }
        self.current = None;
        Some(same)
    }

    /// Takes the payload of a message that does not [interrupt](Self::interrupted_by) a sequence, at most `most` bytes in all.
    // RPC-over-RDMA v2 §7.1.3: all that has the XID of a broken sequence is discarded.
    pub(super) fn take(
        &mut self,
        prefix: &HeaderPrefix,
        payload: MessageBuf,
        most: u64,
        shared: &EngineShared,
    ) -> ReassemblyStep {
        let (key, more) = (prefix.key(), prefix.has_more());
        if let Some(at) = self.broken.iter().position(|&broken| broken == key) {
            if !more {
                self.broken.swap_remove(at);
            }
            return ReassemblyStep::Ignored(!more);
        }
        let Some(mut partial) = self.current.take() else {
            if !more {
                return ReassemblyStep::Whole(payload, false);
            }
            // What follows is appended in memory that is no Receive's.
            let mut whole = MessageBuf::new(shared.config.pool.alloc(2 * payload.len()), 0);
            whole.append(&payload);
            let HeaderPrefix { xid, htype, .. } = *prefix;
            let (response, charge) = (key.1, BudgetCharge::default());
            self.current = Some(PartialSequence { xid, htype, response, payload: whole, charge, due: None });
            return ReassemblyStep::More;
        };
        if partial.payload.len() as u64 + payload.len() as u64 > most {
            return self.breaks(prefix, "a sequence longer than is put together");
        }
        if !partial.charge(payload.len(), shared) {
            let why = "a sequence for which there is no memory now";
            return match self.breaks(prefix, why) {
                ReassemblyStep::Broken(why) => ReassemblyStep::NoRoom(why),
                step => step,
            };
        }
        append(&mut partial.payload, &payload, &shared.config.pool);
        if more {
            partial.due = None;
            self.current = Some(partial);
            return ReassemblyStep::More;
        }
        ReassemblyStep::Whole(partial.payload, true)
    }

    /// A message that is of no use, and neither is its sequence: what follows with its XID is discarded. [`ReassemblyStep::Broken`] unless
    /// the sequence was broken before.
    pub(super) fn spoils(&mut self, prefix: &HeaderPrefix, why: &'static str) -> ReassemblyStep {
        let key = prefix.key();
        let Some(at) = self.broken.iter().position(|&broken| broken == key) else { return self.breaks(prefix, why) };
        if !prefix.has_more() {
            self.broken.swap_remove(at);
        }
        ReassemblyStep::Ignored(!prefix.has_more())
    }

    /// A message that breaks its sequence; what follows with its XID is discarded.
    pub(super) fn breaks(&mut self, prefix: &HeaderPrefix, why: &'static str) -> ReassemblyStep {
        let key = prefix.key();
        if self.current.as_ref().is_some_and(|partial| (partial.xid, partial.response) == key) {
            self.current = None;
        }
        if prefix.has_more() && !self.broken.contains(&key) {
            if self.broken.len() >= MOST_BROKEN {
                return ReassemblyStep::TooMany;
            }
            self.broken.push(key);
        }
        ReassemblyStep::Broken(why)
    }
}

impl PartialSequence {
    /// Takes memory for so many octets more. Whether there is as much.
    fn charge(&mut self, more: usize, shared: &EngineShared) -> bool {
        let len = (self.payload.len() + more) as u64;
        let missing = len.saturating_sub(always_accepted(&shared.config)).saturating_sub(self.charge.bytes());
        let charge = match missing {
            0 => Some(BudgetCharge::default()),
            // A call of this end's waits for it, and perhaps what holds the memory for that.
            _ if self.response => Some(shared.memory.take_anyway(missing)),
            _ => shared.memory.take_now(missing),
        };
        charge.map(|charge| self.charge.absorb(charge)).is_some()
    }
}

/// Appends, in memory twice as large where there is no room.
fn append(whole: &mut MessageBuf, more: &[u8], pool: &BufferPool) {
    if whole.tailroom() < more.len() {
        let mut larger = MessageBuf::new(pool.alloc(2 * (whole.len() + more.len())), 0);
        larger.append(whole);
        *whole = larger;
    }
    whole.append(more);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::{
        engine::{
            EngineConfig, Role,
            shared::ConnectionRules,
            v2::{
                format::VERSION,
                header::{RDMA2_F_MORE, RDMA2_MSG},
            },
        },
        memory::{MemoryBudget, MemoryShare},
    };

    const PART: usize = 30_000;

    fn prefix(xid: u32, flags: u32) -> HeaderPrefix {
        HeaderPrefix { xid, vers: VERSION, credit: 0, htype: RDMA2_MSG, flags }
    }

    fn part(shared: &EngineShared) -> MessageBuf {
        let mut part = MessageBuf::new(shared.config.pool.alloc(PART), 0);
        part.append(&[7; PART]);
        part
    }

    /// What is longer than is taken in any case counts like what is pulled, while the rest of it is on its way; where there is
    /// no room it is dropped, and nothing else.
    #[test]
    fn long_sequences_take_of_what_connections_share() {
        let budget = MemoryBudget::new(100_000);
        let config = EngineConfig { budget: Some(Arc::clone(&budget)), ..EngineConfig::default() };
        let shared = EngineShared::new(config, ConnectionRules::version_1(Role::Server));
        let mut reassembly = Reassembly::default();
        let mut take = |xid, flags| reassembly.take(&prefix(xid, flags), part(&shared), u64::MAX, &shared);
        for held in [0, 0, 90_000 - 65_536, 120_000 - 65_536] {
            assert!(matches!(take(1, RDMA2_F_MORE), ReassemblyStep::More));
            assert_eq!(budget.held(), held);
        }
        let others = MemoryShare::of(Some(Arc::clone(&budget))).take_now(100_000 - budget.held()).unwrap();
        assert!(matches!(take(1, RDMA2_F_MORE), ReassemblyStep::NoRoom(_)));
        assert_eq!(budget.held(), others.bytes());
        assert!(matches!(take(1, RDMA2_F_MORE), ReassemblyStep::Ignored(false)));
        assert!(matches!(take(1, 0), ReassemblyStep::Ignored(true)));
        assert!(matches!(take(2, RDMA2_F_MORE), ReassemblyStep::More));
        assert!(matches!(take(2, 0), ReassemblyStep::Whole(whole, true) if whole.len() == 2 * PART));
        drop(others);
        for _ in 0..3 {
            assert!(matches!(take(1, RDMA2_F_MORE), ReassemblyStep::More));
        }
        assert!(matches!(take(1, 0), ReassemblyStep::Whole(whole, true) if whole.len() == 4 * PART));
        assert_eq!(budget.held(), 0);
        // Nor is it taken from who waits for it.
        let mut waiting = MemoryShare::of(Some(Arc::clone(&budget)));
        assert!(waiting.take(100_001).is_none());
        (0..2).for_each(|_| assert!(matches!(take(3, RDMA2_F_MORE), ReassemblyStep::More)));
        assert!(matches!(take(3, RDMA2_F_MORE), ReassemblyStep::NoRoom(_)));
    }
}
