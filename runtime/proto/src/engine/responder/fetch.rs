//! The peer's Read chunks, fetched by RDMA Read before their call is delivered (RFC 8166 §3.4.5.1, RPC-over-RDMA v2
//! §4.3.5.1). Used by both versions.

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use crate::{
    chain::ErrorChain,
    engine::{
        ConnectionCounters,
        common::{
            chunks::{RdmaSegment, SegmentWalk},
            shared::EngineShared,
            slots::GenerationalSlab,
            work::PostedFor,
        },
    },
    memory::BudgetCharge,
    provider::{Access, MemoryHandle, QueuePair, RegisterableMemory, WorkRequest},
    xdr::padded_len,
};

/// Longest RDMA Read in bytes. Each completion shows that the peer is making progress.
const MAX_READ_LEN: u32 = 8 << 20;

/// A Read chunk of a call from the peer.
#[derive(Debug)]
pub(super) struct ReadChunkFetch {
    pub(super) position: u32,
    /// Length in bytes: the sum of the segments' lengths (RFC 8166 §3.4.4).
    pub(super) len: u64,
    segments: SmallVec<[RdmaSegment; 2]>,
    walk: SegmentWalk,
    /// Number of RDMA Reads posted and not completed.
    reads: u32,
    all_posted: bool,
    sink: Option<MemoryHandle>,
    returning: bool,
    pub(super) data: Option<Bytes>,
}

impl ReadChunkFetch {
    pub(super) fn new(position: u32, segment: RdmaSegment) -> Self {
        let mut fetch = Self {
            position,
            len: 0,
            segments: smallvec![],
            walk: SegmentWalk::default(),
            reads: 0,
            all_posted: false,
            sink: None,
            returning: false,
            data: None,
        };
        fetch.push(segment);
        fetch
    }

    pub(super) fn push(&mut self, segment: RdmaSegment) {
        self.len += u64::from(segment.length);
        self.segments.push(segment);
    }

    /// Groups read segments by position into Read chunks, in ascending order (RFC 8166 §3.4.5, §4.3.1).
    pub(super) fn group(
        reads: impl Iterator<Item = (u32, RdmaSegment)>,
    ) -> Result<SmallVec<[ReadChunkFetch; 1]>, &'static str> {
        let mut fetches: SmallVec<[ReadChunkFetch; 1]> = SmallVec::new();
        for (position, segment) in reads {
            // RFC 8166 §3.4.5: the position is a multiple of four.
            if position % 4 != 0 {
                return Err("a Read chunk's position is not a multiple of four");
            }
            if overflows(&segment) {
                return Err("a segment's end overflows");
            }
            // Segments of one chunk are usually adjacent, and chunks usually in order.
            match fetches.binary_search_by_key(&position, |fetch| fetch.position) {
                Ok(at) => {
                    if let Some(fetch) = fetches.get_mut(at) {
                        fetch.push(segment);
                    }
                }
                Err(at) => fetches.insert(at, ReadChunkFetch::new(position, segment)),
            }
        }
        Ok(fetches)
    }

    /// Checks that the Read chunks fit in the payload stream: an inline one of `inline` bytes for RDMA_MSG, or a
    /// Position-Zero Read chunk for RDMA_NOMSG.
    pub(super) fn check_positions(fetches: &[ReadChunkFetch], inline: Option<usize>) -> Result<(), &'static str> {
        let (stream, chunks) = match (fetches, inline) {
            // RFC 8166 §3.5.3, §4.5.2: without an inline payload stream, a Position-Zero Read chunk must hold it.
            ([zero, rest @ ..], None) if zero.position == 0 => (zero.len, rest),
            (_, None) => return Err("RDMA_NOMSG without a Position-Zero Read chunk"),
            ([zero, ..], Some(_)) if zero.position == 0 => return Err("RDMA_MSG with a Position-Zero Read chunk"),
            (chunks, Some(len)) => (len as u64, chunks),
        };
        let mut spliced = 0;
        let mut end = 0;
        for fetch in chunks {
            let position = u64::from(fetch.position);
            if position < end {
                return Err("Read chunks overlap");
            }
            // RFC 8166 §3.4.5: positions count the stream with all chunks and their padding in place.
            if position - spliced > stream {
                return Err("a Read chunk's position is beyond the payload stream");
            }
            let padded = usize::try_from(fetch.len).map_or(u64::MAX, |len| padded_len(len) as u64);
            spliced = spliced.saturating_add(padded);
            end = position.saturating_add(padded);
        }
        Ok(())
    }

    fn is_registered(&self) -> bool {
        self.sink.is_some()
    }

    /// Invalidates the sink, unless that was requested before.
    fn take_back(&mut self, slot: u32, part: usize, out: &mut VecDeque<WorkRequest>) {
        if let Some(handle) = self.sink.filter(|_| !self.returning) {
            self.returning = true;
            // The segments of a message fit in a Receive, so the number of chunks fits in 16 bits.
            let id = PostedFor::FetchInvalidate { slot, part: part as u16 }.id();
            out.push_back(WorkRequest::Invalidate { id, handle });
        }
    }
}

/// Returns whether the end of a segment overflows the offset.
pub(super) fn overflows(segment: &RdmaSegment) -> bool {
    segment.offset.checked_add(u64::from(segment.length)).is_none()
}

/// The progress of a call's Read chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FetchState {
    /// Waiting until there is memory for them.
    #[default]
    Waiting,
    /// RDMA Reads in progress.
    Fetching,
    /// Failed; the sinks are being deregistered.
    Refused,
    /// All data has arrived.
    Done,
    /// The connection is lost; the sinks are being deregistered.
    Lost,
}

/// The Read chunks of a call, in ascending order of position.
#[derive(Debug, Default)]
pub(super) struct ReadChunkFetches {
    chunks: SmallVec<[ReadChunkFetch; 1]>,
    /// Total length in bytes.
    len: u64,
    /// Number of sinks still registered.
    pending: u32,
    state: FetchState,
    charge: BudgetCharge,
    /// Length in bytes of the call's own message, if it counts as fetched data.
    kept: u64,
}

/// The result of fetching a call's Read chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// All data has arrived.
    All,
    /// The chunks cannot be fetched. No sink is registered.
    Refused,
    /// The connection and the call are lost. No sink is registered.
    Lost,
}

/// A call that may have Read chunks.
pub(super) trait HasReadChunks {
    fn fetches(&mut self) -> Option<&mut ReadChunkFetches>;
}

impl ReadChunkFetches {
    pub(super) fn new(chunks: SmallVec<[ReadChunkFetch; 1]>) -> Self {
        // The chunks fit in a header and their lengths have 32 bits, so the sum does not overflow.
        let len = chunks.iter().map(|fetch| fetch.len).sum();
        Self { chunks, len, pending: 0, state: FetchState::Waiting, charge: BudgetCharge::default(), kept: 0 }
    }

    /// Returns the data and position of each chunk, once all have arrived.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u32, Bytes)> + '_ {
        self.chunks.iter_mut().map(|fetch| (fetch.position, fetch.data.take().unwrap_or_default()))
    }

    /// Returns the bytes to release when the call ends: the chunks, and the call's own message if it counts.
    pub(super) fn held(&self) -> u64 {
        self.len + self.kept
    }

    /// Takes the charge against the memory budget, to pass it on with the data.
    pub(super) fn take_charge(&mut self) -> BudgetCharge {
        std::mem::take(&mut self.charge)
    }

    /// Returns the number of chunks.
    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the number of chunks of reduced items: all except the one that holds the payload stream.
    pub(super) fn reduced(&self) -> usize {
        self.chunks.iter().filter(|fetch| fetch.position != 0).count()
    }

    /// Returns the total length of the chunks in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn take_back(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) {
        for (part, fetch) in self.chunks.iter_mut().enumerate() {
            fetch.take_back(slot, part, out);
        }
    }

    /// Handles loss of the connection. Returns whether no sink is registered.
    pub(super) fn disconnected(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) -> bool {
        self.state = FetchState::Lost;
        self.take_back(slot, out);
        self.chunks.iter().all(|fetch| !fetch.is_registered())
    }
}

/// Fetches Read chunks within the limits of memory and of RDMA Reads in flight.
#[derive(Debug, Default)]
pub(super) struct ReadChunkFetcher {
    /// Calls whose chunks wait for memory, in order of arrival.
    waiting: VecDeque<u32>,
    /// Calls with RDMA Reads still to be posted.
    reading: VecDeque<u32>,
    /// Number of RDMA Reads in flight.
    reads: u32,
    /// Time at which the RDMA Reads in flight count as stalled.
    stalled: Option<Instant>,
    /// Number of bytes being fetched or held by unanswered calls.
    fetched: u64,
    /// Length in bytes of the messages of calls in `waiting`.
    waiting_messages: u64,
    /// Number of sinks registered.
    sinks: u32,
}

impl ReadChunkFetcher {
    /// Returns whether no memory is registered.
    pub(super) fn is_idle(&self) -> bool {
        self.sinks == 0
    }

    /// Starts the timeout of the RDMA Reads in flight, unless it is running.
    // Their sinks hold memory that all connections share, so no peer may hold it indefinitely.
    pub(super) fn watch(&mut self, now: Instant, shared: &EngineShared) {
        if self.reads > 0 && self.stalled.is_none() {
            self.stalled = now.checked_add(shared.config.fetch_timeout);
        }
    }

    /// Returns the time at which the RDMA Reads in flight count as stalled.
    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.stalled
    }

    /// Returns whether calls wait to be fetched, or for RDMA Reads to be posted.
    pub(super) fn has_fetches(&self) -> bool {
        !(self.waiting.is_empty() && self.reading.is_empty())
    }

    /// Queues a call whose Read chunks are to be fetched.
    pub(super) fn wait(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// Returns the bytes being fetched or held by unanswered calls, including the messages of calls that wait for memory.
    pub(super) fn fetched(&self) -> u64 {
        self.fetched.saturating_add(self.waiting_messages)
    }

    /// Counts a call's own message, which arrived in several Sends and may be as long as fetched data.
    ///
    /// The message is already in memory, so its charge cannot wait. If the call waits to be fetched, the message is charged
    /// with its chunks: calls that hold memory while they wait for more could deadlock.
    pub(super) fn keep(&mut self, fetches: &mut ReadChunkFetches, bytes: u64, shared: &mut EngineShared) {
        fetches.kept = bytes;
        if fetches.len > 0 {
            self.waiting_messages = self.waiting_messages.saturating_add(bytes);
            return;
        }
        fetches.charge = shared.memory.overcommit(bytes);
        self.fetched = self.fetched.saturating_add(bytes);
    }

    /// Releases `len` bytes of a call that is answered.
    pub(super) fn release(&mut self, len: u64) {
        self.fetched = self.fetched.saturating_sub(len);
    }

    /// Resets the state when the connection is lost.
    pub(super) fn reset(&mut self, shared: &mut EngineShared) {
        shared.memory.stop_waiting();
        self.waiting.clear();
        self.reading.clear();
        (self.reads, self.fetched, self.waiting_messages, self.stalled) = (0, 0, 0, None);
    }

    /// Registers sinks for waiting calls while there is memory for them. Returns a call that cannot be served; the caller
    /// then calls again, because more calls may be waiting.
    pub(super) fn admit<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) -> Option<u32> {
        while let Some(&slot) = self.waiting.front() {
            let Some(fetches) = calls.get_mut(slot).and_then(HasReadChunks::fetches) else {
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
                    fetch.data = Some(Bytes::new());
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
    pub(super) fn post_reads<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) {
        while self.reads < qp.max_reads() {
            let Some(&slot) = self.reading.front() else { break };
            let fetches = calls
                .get_mut(slot)
                .and_then(HasReadChunks::fetches)
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
            self.reads += 1;
            qp.post(WorkRequest::Read {
                id: PostedFor::FetchRead { slot, part: part as u16 }.id(),
                sink,
                sink_offset: transfer.at,
                remote: transfer.remote,
                len: transfer.len,
            });
            shared.counters.rdma_read_bytes += u64::from(transfer.len);
        }
    }

    /// Handles the completion of an RDMA Read, successful or not.
    pub(super) fn read_done<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        slot: u32,
        part: u16,
        shared: &mut EngineShared,
    ) {
        self.reads = self.reads.saturating_sub(1);
        self.stalled = None;
        let Some(fetches) = calls.get_mut(slot).and_then(HasReadChunks::fetches) else { return };
        let Some(fetch) = fetches.chunks.get_mut(usize::from(part)) else { return };
        fetch.reads = fetch.reads.saturating_sub(1);
        if fetch.reads == 0 && fetch.all_posted {
            fetch.take_back(slot, usize::from(part), &mut shared.out);
        }
    }

    /// Handles the completion of a sink's deregistration. `memory` is `None` if the sink was lost with the connection.
    /// Returns the outcome if this was the last sink of the call.
    pub(super) fn sink_returned<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
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
