//! Reassembly of continued messages (RPC-over-RDMA v2 §4.4.2, §6.2.2.2).

use std::time::Instant;

use smallvec::SmallVec;

use super::format::HeaderPrefix;
use crate::{
    engine::{
        MessageFault,
        common::{deadlines::TransferDeadline, shared::EngineShared},
        responder::arrivals::always_accepted,
    },
    memory::{BudgetCharge, BufferPool, MessageBuf, Output},
};

/// Maximum number of broken sequences whose remaining messages are still to be discarded. A peer with more violates the
/// protocol.
const MAX_BROKEN: usize = 8;

/// A sequence of which a part has arrived.
#[derive(Debug)]
struct PartialSequence {
    xid: u32,
    htype: u32,
    response: bool,
    payload: MessageBuf,
    /// Charge against the memory budget for the length that exceeds what is always accepted.
    charge: BudgetCharge,
    deadline: TransferDeadline,
}

/// The result of adding a message to a [`Reassembly`].
#[derive(Debug)]
pub(super) enum ReassemblyStep {
    /// The payload is complete. The flag is `true` if it arrived in more than one message.
    Whole(MessageBuf, bool),
    /// The sequence is not complete. Further messages follow.
    More,
    /// The message is unusable, or its sequence is too long or exceeds the free memory. The message and its sequence
    /// are dropped.
    Broken(MessageFault),
    /// The message belongs to a broken sequence. The flag is `true` for the last message of that sequence.
    Ignored(bool),
    /// More than `MAX_BROKEN` sequences are broken at a time, which violates the protocol.
    TooMany,
}

/// The state of reassembly: the arriving sequence, of which there is at most one, and the broken sequences.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    current: Option<PartialSequence>,
    broken: SmallVec<[(u32, bool); 2]>,
}

impl Reassembly {
    /// Starts the deadline of the arriving sequence, or extends it for the bytes that have arrived.
    // A partial sequence holds memory, so no peer may hold it indefinitely. The peer always has credits to continue,
    // however many of its calls are in progress.
    pub(super) fn watch(&mut self, now: Instant, shared: &EngineShared) {
        if let Some(partial) = &mut self.current {
            partial.deadline.watch(now, shared.config.fetch_timeout, shared.config.min_rate);
        }
    }

    /// Returns the time at which the arriving sequence counts as stalled.
    pub(super) fn due(&self) -> Option<Instant> {
        self.current.as_ref().and_then(|partial| partial.deadline.due())
    }

    /// Drops the arriving sequence unless `prefix` belongs to its next message or to a broken sequence. Returns the XID
    /// of the dropped sequence, and `true` if the sequence is a response.
    // RPC-over-RDMA v2 §6.2.2.2: the messages of a sequence are consecutive and share XID and header type. Messages
    // after an interruption must not be treated as its continuation.
    pub(super) fn interrupted_by(&mut self, prefix: &HeaderPrefix) -> Option<(u32, bool)> {
        let partial = self.current.as_ref()?;
        let (key, same) = (prefix.key(), (partial.xid, partial.response));
        if (key == same && partial.htype == prefix.htype) || self.broken.contains(&key) {
            return None;
        }
        self.current = None;
        Some(same)
    }

    /// Returns `true` if no sequence is arriving and none is broken.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.broken.is_empty()
    }

    /// Adds the payload of a message that does not [interrupt](Self::interrupted_by) a sequence. `max` is the maximum
    /// length of the sequence in bytes. A sequence of up to `awaited` bytes is accepted without free memory, because a
    /// local call waits for a reply of that length.
    // RPC-over-RDMA v2 §7.1.3: every message with the XID of a broken sequence is discarded.
    pub(super) fn take(
        &mut self,
        prefix: &HeaderPrefix,
        payload: MessageBuf,
        (max, awaited): (u64, u64),
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
            // Later payloads are appended, so the first is copied out of its Receive buffer.
            let mut whole = MessageBuf::new(shared.config.pool.alloc(2 * payload.len()), 0);
            whole.append(&payload);
            let HeaderPrefix { xid, htype, .. } = *prefix;
            let (response, charge) = (key.1, BudgetCharge::default());
            let deadline = TransferDeadline::default();
            self.current = Some(PartialSequence { xid, htype, response, payload: whole, charge, deadline });
            return ReassemblyStep::More;
        };
        if partial.payload.len() as u64 + payload.len() as u64 > max {
            return self.break_sequence(prefix, MessageFault::SequenceTooLong { max });
        }
        // RPC-over-RDMA v2 §7.4.1: the rest of the call is discarded, too.
        if !partial.charge(payload.len(), awaited, shared) {
            return self.break_sequence(prefix, MessageFault::NoMemory);
        }
        append(&mut partial.payload, &payload, &shared.config.pool);
        if more {
            partial.deadline.arrived(payload.len() as u64);
            self.current = Some(partial);
            return ReassemblyStep::More;
        }
        ReassemblyStep::Whole(partial.payload, true)
    }

    /// Handles an unusable message: discards the rest of its sequence, which follows with the same XID. Returns
    /// [`ReassemblyStep::Ignored`] if the sequence was broken before. Otherwise, returns the result of
    /// [`break_sequence`](Self::break_sequence).
    pub(super) fn reject(&mut self, prefix: &HeaderPrefix, fault: MessageFault) -> ReassemblyStep {
        let key = prefix.key();
        let Some(at) = self.broken.iter().position(|&broken| broken == key) else {
            return self.break_sequence(prefix, fault);
        };
        if !prefix.has_more() {
            self.broken.swap_remove(at);
        }
        ReassemblyStep::Ignored(!prefix.has_more())
    }

    /// Handles a message that breaks its sequence: discards the rest of the sequence, which follows with the same XID.
    /// Returns [`ReassemblyStep::TooMany`] if too many other sequences are broken, and [`ReassemblyStep::Broken`]
    /// otherwise.
    pub(super) fn break_sequence(&mut self, prefix: &HeaderPrefix, fault: MessageFault) -> ReassemblyStep {
        let key = prefix.key();
        if self.current.as_ref().is_some_and(|partial| (partial.xid, partial.response) == key) {
            self.current = None;
        }
        if prefix.has_more() && !self.broken.contains(&key) {
            if self.broken.len() >= MAX_BROKEN {
                return ReassemblyStep::TooMany;
            }
            self.broken.push(key);
        }
        ReassemblyStep::Broken(fault)
    }
}

impl PartialSequence {
    /// Charges the memory that the sequence with `more` bytes needs beyond the length that is always accepted. Returns
    /// `false`, without a charge, if the memory is not available.
    fn charge(&mut self, more: usize, awaited: u64, shared: &EngineShared) -> bool {
        let len = (self.payload.len() + more) as u64;
        let missing = len.saturating_sub(always_accepted(&shared.config)).saturating_sub(self.charge.bytes());
        let charge = match missing {
            0 => Some(BudgetCharge::default()),
            // A local call waits for this reply, and may hold the memory needed.
            _ if len <= awaited => Some(shared.memory.overcommit(missing)),
            _ => shared.memory.take_now(missing),
        };
        charge.map(|charge| self.charge.absorb(charge)).is_some()
    }
}

/// Appends `more` to `whole`. If `whole` has no room, moves it to a buffer of twice the combined length.
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

    use super::*;
    use crate::{
        engine::{
            EngineConfig, Role,
            common::shared::ConnectionRules,
            v2::{
                format::VERSION,
                header::{RDMA2_F_MORE, RDMA2_F_RESPONSE, RDMA2_MSG},
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

    /// A sequence beyond the length that is always accepted is charged like fetched data. Without memory, only that
    /// sequence is dropped.
    #[test]
    fn long_sequences_count_against_the_shared_memory() {
        let budget = MemoryBudget::new(300_000);
        let config = EngineConfig { budget: Some(budget.account(1)), ..EngineConfig::default() };
        let shared = EngineShared::new(config, ConnectionRules::without_header(Role::Server));
        let mut reassembly = Reassembly::default();
        let mut take = |xid, flags| reassembly.take(&prefix(xid, flags), part(&shared), (u64::MAX, 0), &shared);
        for held in [0, 0, 90_000 - 65_536, 120_000 - 65_536] {
            assert!(matches!(take(1, RDMA2_F_MORE), ReassemblyStep::More));
            assert_eq!(budget.held(), held);
        }
        let others = MemoryShare::of(Some(budget.account(2))).overcommit(200_000);
        assert!(matches!(take(1, RDMA2_F_MORE), ReassemblyStep::Broken(MessageFault::NoMemory)));
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
        // A sequence does not overtake connections that wait for memory.
        let others = MemoryShare::of(Some(budget.account(2))).overcommit(200_000);
        let mut waiting = MemoryShare::of(Some(budget.account(2)));
        assert!(waiting.take(100_001).is_none());
        drop(others);
        (0..2).for_each(|_| assert!(matches!(take(3, RDMA2_F_MORE), ReassemblyStep::More)));
        assert!(matches!(take(3, RDMA2_F_MORE), ReassemblyStep::Broken(MessageFault::NoMemory)));
    }

    /// A local call waits for its reply, and may hold the memory that the reply needs. The reply is accepted even if no
    /// memory is free.
    #[test]
    fn replies_need_no_free_memory() {
        let budget = MemoryBudget::new(300_000);
        let config = EngineConfig { budget: Some(budget.account(1)), ..EngineConfig::default() };
        let shared = EngineShared::new(config, ConnectionRules::without_header(Role::Client));
        let _others = MemoryShare::of(Some(budget.account(2))).overcommit(200_000);
        let mut reassembly = Reassembly::default();
        // The third part exceeds what is always accepted.
        let whole = 3 * PART as u64;
        for (awaited, is_accepted) in [(whole, true), (whole - 1, false), (0, false)] {
            let mut steps = (0..3).map(|_| {
                let step = reassembly.take(
                    &prefix(1, RDMA2_F_RESPONSE | RDMA2_F_MORE),
                    part(&shared),
                    (u64::MAX, awaited),
                    &shared,
                );
                matches!(step, ReassemblyStep::More)
            });
            assert_eq!(steps.all(|is_more| is_more), is_accepted);
            reassembly = Reassembly::default();
        }
    }

    /// A sequence of exactly the maximum length is accepted. A sequence that is one byte longer is broken.
    #[test]
    fn lengths_of_sequences() {
        let shared = EngineShared::new(EngineConfig::default(), ConnectionRules::without_header(Role::Client));
        for (max, fits) in [(2 * PART as u64, true), (2 * PART as u64 - 1, false)] {
            let mut reassembly = Reassembly::default();
            let mut take = |flags| reassembly.take(&prefix(1, flags), part(&shared), (max, 0), &shared);
            assert!(matches!(take(RDMA2_F_MORE), ReassemblyStep::More));
            match take(0) {
                ReassemblyStep::Whole(whole, true) => assert!(fits && whole.iter().all(|&byte| byte == 7)),
                step => assert!(!fits && matches!(step, ReassemblyStep::Broken(_)), "{step:?}"),
            }
        }
    }
}
