//! The peer's Read chunks, fetched by RDMA Read before their call is delivered (RFC 8166 §3.4.5.1, RPC-over-RDMA v2
//! §4.3.5.1). Both versions use this module.

use std::{collections::VecDeque, time::Instant};

use super::{
    read_chunks::{FetchOutcome, FetchState, ReadChunkFetches},
    served_call::ServedCall,
};
use crate::{
    chain::ErrorChain,
    engine::{
        ConnectionCounters,
        common::{deadlines::TransferDeadline, shared::EngineShared, slots::GenerationalSlab, work::PostedFor},
    },
    provider::{Access, QueuePair, RegisterableMemory, WorkRequest},
};

/// Longest RDMA Read in bytes. Each completion shows that the peer is making progress.
const MAX_READ_LEN: u32 = 8 << 20;

/// A fetcher of Read chunks, within the limits of memory and of RDMA Reads in flight.
#[derive(Debug, Default)]
pub(super) struct ReadChunkFetcher {
    /// Slots of the calls whose chunks wait for memory, in order of arrival.
    waiting: VecDeque<u32>,
    /// Slots of the calls with RDMA Reads still to be posted.
    reading: VecDeque<u32>,
    /// Lengths in bytes of the RDMA Reads in flight, which complete in the order in which they were posted.
    reads: VecDeque<u32>,
    /// Deadline of the RDMA Reads.
    deadline: TransferDeadline,
    /// Number of bytes being fetched or held by unanswered calls.
    fetched: u64,
    /// Total length in bytes of those messages of calls in `waiting` that arrived in several Sends. A message that
    /// arrived in one Send does not count.
    waiting_messages: u64,
    /// Number of sinks registered.
    sinks: u32,
}

impl ReadChunkFetcher {
    /// Returns `true` if no memory is registered.
    pub(super) fn is_idle(&self) -> bool {
        self.sinks == 0
    }

    /// Starts the deadline of the RDMA Reads in flight, or extends it for the bytes that have arrived.
    // Their sinks hold memory that all connections share, so no peer may hold it indefinitely.
    #[inline]
    pub(super) fn watch(&mut self, now: Instant, shared: &EngineShared) {
        if !self.reads.is_empty() {
            self.deadline.watch(now, shared.config.fetch_timeout, shared.config.min_rate);
        }
    }

    /// Returns the time at which the RDMA Reads in flight count as stalled, or `None` if the deadline is not running.
    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.deadline.due()
    }

    /// Returns `true` if calls wait to be fetched, or for RDMA Reads to be posted.
    pub(super) fn has_fetches(&self) -> bool {
        !(self.waiting.is_empty() && self.reading.is_empty())
    }

    /// Queues a call whose Read chunks are to be fetched.
    pub(super) fn wait(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// Returns the number of bytes being fetched or held by unanswered calls, including the messages of calls in
    /// `waiting` that arrived in several Sends.
    pub(super) fn fetched(&self) -> u64 {
        self.fetched.saturating_add(self.waiting_messages)
    }

    /// Counts a call's own message, which arrived in several Sends and may be as long as fetched data.
    ///
    /// The message is already in memory, so its charge cannot wait. If the call waits to be fetched, the message is
    /// charged with its chunks: calls that hold memory while they wait for more could deadlock.
    pub(super) fn keep(&mut self, fetches: &mut ReadChunkFetches, bytes: u64, shared: &mut EngineShared) {
        fetches.kept = bytes;
        if fetches.len() > 0 {
            self.waiting_messages = self.waiting_messages.saturating_add(bytes);
            return;
        }
        fetches.charge = shared.memory.overcommit(bytes);
        self.fetched = self.fetched.saturating_add(bytes);
    }

    /// Releases `len` bytes of a call that is answered or removed.
    pub(super) fn release(&mut self, len: u64) {
        self.fetched = self.fetched.saturating_sub(len);
    }

    /// Forgets all calls, RDMA Reads and held bytes when the connection is lost. Registered sinks still count.
    pub(super) fn reset(&mut self, shared: &mut EngineShared) {
        shared.memory.stop_waiting();
        self.waiting.clear();
        self.reading.clear();
        (self.fetched, self.waiting_messages) = (0, 0);
        self.reads.clear();
        self.deadline.end();
    }

    /// Registers sinks for waiting calls while there is memory for them. Returns the slot of a call that cannot be
    /// fetched and for which no sink is registered. The caller must then call `admit` again, because more calls may be
    /// waiting.
    pub(super) fn admit(
        &mut self,
        calls: &mut GenerationalSlab<ServedCall>,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) -> Option<u32> {
        while let Some(&slot) = self.waiting.front() {
            let Some(fetches) = calls.get_mut(slot).and_then(ServedCall::fetches) else {
                self.waiting.pop_front();
                continue;
            };
            // A single call never exceeds the limit by itself.
            if self.fetched.saturating_add(fetches.held()) > shared.config.max_fetched {
                // The limit of this connection is reached, so it gives up its place in the queue for shared memory.
                shared.memory.stop_waiting();
                break;
            }
            // Nor may it exceed the shared budget. The driver polls again when memory becomes available.
            let Some(charge) = shared.memory.take(fetches.held()) else { break };
            fetches.charge = charge;
            self.waiting.pop_front();
            self.fetched += fetches.held();
            self.waiting_messages = self.waiting_messages.saturating_sub(fetches.kept);
            fetches.state = FetchState::Fetching;
            let mut failed = qp.max_reads() == 0;
            for fetch in fetches.chunks.iter_mut() {
                let Some(len) = usize::try_from(fetch.len).ok().filter(|_| !failed) else {
                    failed = true;
                    break;
                };
                if len == 0 {
                    fetch.all_posted = true;
                    continue;
                }
                match qp.register(RegisterableMemory::Sink(shared.config.pool.alloc(len)), Access::ReadSink) {
                    Ok(region) => {
                        fetch.sink = Some(region.handle);
                        fetches.pending += 1;
                        self.sinks += 1;
                        shared.counters.registrations += 1;
                        shared.counters.registered_bytes += fetch.len;
                    }
                    Err(error) => {
                        tracing::debug!(error = %ErrorChain(&error), "no memory for a Read chunk");
                        failed = true;
                    }
                }
            }
            if !failed {
                self.reading.push_back(slot);
                continue;
            }
            fetches.state = FetchState::Refused;
            fetches.take_back(slot, &mut shared.out);
            if fetches.pending == 0 {
                return Some(slot);
            }
        }
        None
    }

    /// Posts RDMA Reads, up to the provider's limit of Reads in flight.
    // RFC 8166 §3.3.1: the implementation accounts for limits on RDMA Reads in progress.
    pub(super) fn post_reads(
        &mut self,
        calls: &mut GenerationalSlab<ServedCall>,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) {
        while (self.reads.len() as u64) < u64::from(qp.max_reads()) {
            let Some(&slot) = self.reading.front() else { break };
            let fetches = calls
                .get_mut(slot)
                .and_then(ServedCall::fetches)
                .filter(|fetches| fetches.state == FetchState::Fetching);
            let Some(fetches) = fetches else {
                self.reading.pop_front();
                continue;
            };
            let Some((part, fetch)) = fetches.chunks.iter_mut().enumerate().find(|(_, fetch)| !fetch.all_posted) else {
                self.reading.pop_front();
                continue;
            };
            let next = fetch.walk.next(&fetch.segments, fetch.len, shared.max_transfer.min(MAX_READ_LEN));
            let (Some(transfer), Some(sink)) = (next, fetch.sink) else {
                fetch.all_posted = true;
                continue;
            };
            fetch.reads += 1;
            fetch.all_posted = fetch.walk.at() >= fetch.len;
            self.reads.push_back(transfer.len);
            qp.post(WorkRequest::Read {
                id: PostedFor::FetchRead { slot, part: part as u16 }.id(),
                sink,
                sink_offset: transfer.at,
                remote: transfer.remote,
                len: transfer.len,
            });
            shared.counters.rdma_read_bytes += u64::from(transfer.len);
            // With the last RDMA Read of the last call, the deadline ends.
            if fetches.chunks.iter().all(|fetch| fetch.all_posted) {
                self.reading.pop_front();
            }
        }
    }

    /// Handles the successful completion of an RDMA Read.
    pub(super) fn read_done(
        &mut self,
        calls: &mut GenerationalSlab<ServedCall>,
        slot: u32,
        part: u16,
        shared: &mut EngineShared,
    ) {
        self.deadline.arrived(self.reads.pop_front().unwrap_or(0).into());
        // Between two Reads of one call the deadline goes on.
        if self.reads.is_empty() && self.reading.is_empty() {
            self.deadline.end();
        }
        let Some(fetches) = calls.get_mut(slot).and_then(ServedCall::fetches) else { return };
        let Some(fetch) = fetches.chunks.get_mut(usize::from(part)) else { return };
        fetch.reads = fetch.reads.saturating_sub(1);
        if fetch.reads == 0 && fetch.all_posted {
            fetch.take_back(slot, usize::from(part), &mut shared.out);
        }
    }

    /// Handles the completion of a sink's deregistration. `memory` is `None` if the deregistration failed, which ends
    /// the connection. Returns the outcome if this was the last sink of the call.
    pub(super) fn sink_returned(
        &mut self,
        calls: &mut GenerationalSlab<ServedCall>,
        slot: u32,
        part: u16,
        memory: Option<RegisterableMemory>,
        counters: &mut ConnectionCounters,
    ) -> Option<FetchOutcome> {
        let fetches = calls.get_mut(slot)?.fetches()?;
        let fetch = fetches.chunks.get_mut(usize::from(part))?;
        fetch.sink.take()?;
        counters.registered_bytes = counters.registered_bytes.saturating_sub(fetch.len);
        self.sinks = self.sinks.saturating_sub(1);
        fetches.pending = fetches.pending.saturating_sub(1);
        match memory {
            Some(RegisterableMemory::Sink(buf)) => fetch.data = Some(buf.freeze()),
            // The connection is closing, so the call is not delivered.
            _ => fetches.state = FetchState::Lost,
        }
        if fetches.pending > 0 {
            return None;
        }
        match fetches.state {
            FetchState::Fetching => {
                fetches.state = FetchState::Done;
                Some(FetchOutcome::All)
            }
            FetchState::Refused => Some(FetchOutcome::Refused),
            FetchState::Lost => Some(FetchOutcome::Lost),
            FetchState::Waiting | FetchState::Done => None,
        }
    }
}
