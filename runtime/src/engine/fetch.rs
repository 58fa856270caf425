//! The peer's Read chunks: pulled by RDMA Read before their call is handed over (RFC 8166 §3.4.5.1, RPC-over-RDMA v2
//! §4.3.5.1), whatever the version.

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::{
    ConnectionCounters,
    chunks::{RdmaSegment, SegmentWalk},
    shared::EngineShared,
    slots::GenerationalSlab,
    work::PostedFor,
};
use crate::{
    chain::ErrorChain,
    memory::BudgetCharge,
    provider::{Access, MemoryHandle, QueuePair, RegisterableMemory, WorkRequest},
    xdr::padded_len,
};

/// Longest RDMA Read in octets: each that completes shows that the peer goes on.
const MOST_READ: u32 = 8 << 20;

/// A Read chunk of the peer's.
#[derive(Debug)]
pub(super) struct ReadChunkFetch {
    pub(super) position: u32,
    /// Octets: the sum of the segments' lengths (RFC 8166 §3.4.4).
    pub(super) len: u64,
    segments: SmallVec<[RdmaSegment; 2]>,
    walk: SegmentWalk,
    /// RDMA Reads posted and not completed.
    reads: u32,
    all_posted: bool,
    sink: Option<MemoryHandle>,
    returning: bool,
    pub(super) data: Option<Bytes>,
}

impl ReadChunkFetch {
    pub(super) fn new(position: u32, segment: RdmaSegment) -> Self {
        let mut pull = Self {
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
        pull.push(segment);
        pull
    }

    pub(super) fn push(&mut self, segment: RdmaSegment) {
        self.len += u64::from(segment.length);
        self.segments.push(segment);
    }

    /// Groups read segments by position into Read chunks, in ascending order (RFC 8166 §3.4.5, §4.3.1).
    pub(super) fn group(
        reads: impl Iterator<Item = (u32, RdmaSegment)>,
    ) -> Result<SmallVec<[ReadChunkFetch; 1]>, &'static str> {
        let mut pulls: SmallVec<[ReadChunkFetch; 1]> = SmallVec::new();
        for (position, segment) in reads {
            // RFC 8166 §3.4.5: the position is a multiple of four.
            if position % 4 != 0 {
                return Err("a Read chunk's position is not a multiple of four");
            }
            if overflows(&segment) {
                return Err("a segment's end overflows");
            }
            // Segments of one chunk are nearly always together, chunks nearly always in order.
            match pulls.binary_search_by_key(&position, |pull| pull.position) {
                Ok(at) => {
                    if let Some(pull) = pulls.get_mut(at) {
                        pull.push(segment);
                    }
                }
                Err(at) => pulls.insert(at, ReadChunkFetch::new(position, segment)),
            }
        }
        Ok(pulls)
    }

    /// Checks that the Read chunks fit in the payload stream: of `inline` octets for RDMA_MSG, in a Position-Zero Read
    /// chunk for RDMA_NOMSG.
    pub(super) fn check_positions(pulls: &[ReadChunkFetch], inline: Option<usize>) -> Result<(), &'static str> {
        let (stream, chunks) = match (pulls, inline) {
            // RFC 8166 §3.5.3, §4.5.2: without an inline payload stream there must be a chunk that holds it.
            ([zero, rest @ ..], None) if zero.position == 0 => (zero.len, rest),
            (_, None) => return Err("RDMA_NOMSG without a Position-Zero Read chunk"),
            ([zero, ..], Some(_)) if zero.position == 0 => return Err("RDMA_MSG with a Position-Zero Read chunk"),
            (chunks, Some(len)) => (len as u64, chunks),
        };
        let mut spliced = 0;
        let mut end = 0;
        for pull in chunks {
            let position = u64::from(pull.position);
            if position < end {
                return Err("Read chunks overlap");
            }
            // RFC 8166 §3.4.5: positions count the stream with all chunks, and their padding, put back in.
            if position - spliced > stream {
                return Err("a Read chunk's position is beyond the payload stream");
            }
            let padded = usize::try_from(pull.len).map_or(u64::MAX, |len| padded_len(len) as u64);
            spliced = spliced.saturating_add(padded);
            end = position.saturating_add(padded);
        }
        Ok(())
    }

    fn is_registered(&self) -> bool {
        self.sink.is_some()
    }

    /// Asks for the sink back, once.
    fn take_back(&mut self, slot: u32, part: usize, out: &mut VecDeque<WorkRequest>) {
        if let Some(handle) = self.sink.filter(|_| !self.returning) {
            self.returning = true;
            // A message has no more chunks than its segments, which fit in a Receive.
            let id = PostedFor::PullInvalidate { slot, part: part as u16 }.id();
            out.push_back(WorkRequest::Invalidate { id, handle });
        }
    }
}

/// Whether a segment ends beyond the last offset there is.
pub(super) fn overflows(segment: &RdmaSegment) -> bool {
    segment.offset.checked_add(u64::from(segment.length)).is_none()
}

/// Where the Read chunks of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum FetchState {
    /// To be pulled when there is room for them.
    #[default]
    Waiting,
    /// Being pulled.
    Pulling,
    /// They cannot be pulled; their sinks are being taken back.
    Refused,
    /// All here.
    Done,
    /// The connection is gone; their sinks are being taken back.
    Lost,
}

/// The Read chunks of a call, in ascending order of position.
#[derive(Debug, Default)]
pub(super) struct ReadChunkFetches {
    chunks: SmallVec<[ReadChunkFetch; 1]>,
    /// Octets of them.
    len: u64,
    /// Sinks that are not back.
    pending: u32,
    state: FetchState,
    charge: BudgetCharge,
    /// Octets of the call's own message that count as if they had been pulled.
    kept: u64,
}

/// What has become of a call's Read chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchOutcome {
    /// All of them are here.
    All,
    /// They cannot be pulled, and nothing of them is registered any more.
    Refused,
    /// The connection is gone, and so is the call: nothing of it is registered any more.
    Lost,
}

/// A call that has Read chunks.
pub(super) trait HasReadChunks {
    fn pulls(&mut self) -> &mut ReadChunkFetches;
}

impl ReadChunkFetches {
    pub(super) fn new(chunks: SmallVec<[ReadChunkFetch; 1]>) -> Self {
        // As many as fit in a header, of lengths of 32 bits: the sum does not overflow.
        let len = chunks.iter().map(|pull| pull.len).sum();
        Self { chunks, len, pending: 0, state: FetchState::Waiting, charge: BudgetCharge::default(), kept: 0 }
    }

    /// The data of the chunks with their positions, once all of them are here.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (u32, Bytes)> + '_ {
        self.chunks.iter_mut().map(|pull| (pull.position, pull.data.take().unwrap_or_default()))
    }

    /// Octets in all, the call's own message included where it is long: what is to be released.
    pub(super) fn held(&self) -> u64 {
        self.len + self.kept
    }

    /// What they hold of the server's memory, for whom they are handed to.
    pub(super) fn take_charge(&mut self) -> BudgetCharge {
        std::mem::take(&mut self.charge)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// How many of them are of reduced items: all but the one that holds the payload stream.
    pub(super) fn reduced(&self) -> usize {
        self.chunks.iter().filter(|pull| pull.position != 0).count()
    }

    /// Octets in all.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    fn take_back(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) {
        for (part, pull) in self.chunks.iter_mut().enumerate() {
            pull.take_back(slot, part, out);
        }
    }

    /// The connection is gone. Whether nothing of it is registered any more.
    pub(super) fn lose(&mut self, slot: u32, out: &mut VecDeque<WorkRequest>) -> bool {
        self.state = FetchState::Lost;
        self.take_back(slot, out);
        self.chunks.iter().all(|pull| !pull.is_registered())
    }
}

/// Pulls Read chunks, no more at a time than there is room for.
#[derive(Debug, Default)]
pub(super) struct ReadChunkFetcher {
    /// Calls to be pulled when there is room, in order of arrival.
    waiting: VecDeque<u32>,
    /// Calls with RDMA Reads still to be posted.
    reading: VecDeque<u32>,
    /// RDMA Reads under way.
    reads: u32,
    /// When the peer has let them wait for too long.
    stalled: Option<Instant>,
    /// Octets being pulled, or held by calls that are not answered.
    pulled: u64,
    /// Octets of the messages of calls that wait to be pulled.
    waiting_messages: u64,
    /// Sinks registered.
    sinks: u32,
}

impl ReadChunkFetcher {
    /// Whether no memory is registered.
    pub(super) fn is_idle(&self) -> bool {
        self.sinks == 0
    }

    /// Gives RDMA Reads that are under way the time that one of them may take from now on, where that does not run already.
    // What they are to bring holds memory, also of what all connections share: no peer may have it for good.
    pub(super) fn watch(&mut self, now: Instant, shared: &EngineShared) {
        if self.reads > 0 && self.stalled.is_none() {
            self.stalled = now.checked_add(shared.config.fetch_timeout);
        }
    }

    /// When the peer will have let RDMA Reads wait for too long.
    pub(super) fn stalled_at(&self) -> Option<Instant> {
        self.stalled
    }

    /// A call has Read chunks to be pulled.
    pub(super) fn wait(&mut self, slot: u32) {
        self.waiting.push_back(slot);
    }

    /// Octets being pulled, or held by calls that are not answered, of those that wait to be pulled their messages.
    pub(super) fn pulled(&self) -> u64 {
        self.pulled.saturating_add(self.waiting_messages)
    }

    /// A call's own message came in several Sends and is as long as what others have pulled: it counts like that. Room for it
    /// cannot be waited for; it is there. That of a call that waits to be pulled counts with what is pulled: calls that have
    /// taken room and wait for more might wait for each other.
    pub(super) fn keep(&mut self, pulls: &mut ReadChunkFetches, bytes: u64, shared: &mut EngineShared) {
        pulls.kept = bytes;
        if pulls.len > 0 {
            self.waiting_messages = self.waiting_messages.saturating_add(bytes);
            return;
        }
        pulls.charge = shared.memory.take_anyway(bytes);
        self.pulled = self.pulled.saturating_add(bytes);
    }

    /// A call that holds `len` octets is answered.
    pub(super) fn release(&mut self, len: u64) {
        self.pulled = self.pulled.saturating_sub(len);
    }

    /// The connection is gone.
    pub(super) fn reset(&mut self, shared: &mut EngineShared) {
        shared.memory.stop_waiting();
        self.waiting.clear();
        self.reading.clear();
        (self.reads, self.pulled, self.waiting_messages, self.stalled) = (0, 0, 0, None);
    }

    /// Registers sinks for calls that wait to be pulled, while there is room for them. Returns a call that cannot be,
    /// after which there may be more to do.
    pub(super) fn admit<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) -> Option<u32> {
        while let Some(&slot) = self.waiting.front() {
            let Some(pulls) = calls.get_mut(slot).map(HasReadChunks::pulls) else {
                self.waiting.pop_front();
                continue;
            };
            // A call is never larger than the whole of the room.
            if self.pulled.saturating_add(pulls.held()) > shared.config.max_fetched {
                // What it may have is taken: it keeps its turn from nobody.
                shared.memory.stop_waiting();
                break;
            }
            // Nor than what all connections may hold; the driver asks again when there may be room.
            let Some(charge) = shared.memory.take(pulls.held()) else { break };
            pulls.charge = charge;
            self.waiting.pop_front();
            self.pulled += pulls.held();
            self.waiting_messages = self.waiting_messages.saturating_sub(pulls.kept);
            pulls.state = FetchState::Pulling;
            let mut failed = qp.max_reads() == 0;
            for pull in pulls.chunks.iter_mut() {
                let Some(len) = usize::try_from(pull.len).ok().filter(|_| !failed) else {
                    failed = true;
                    break;
                };
                if len == 0 {
                    pull.all_posted = true;
                    pull.data = Some(Bytes::new());
                    continue;
                }
                match qp.register(RegisterableMemory::Sink(shared.config.pool.alloc(len)), Access::ReadSink) {
                    Ok(region) => {
                        pull.sink = Some(region.handle);
                        pulls.pending += 1;
                        self.sinks += 1;
                        shared.counters.registrations += 1;
                        shared.counters.registered_bytes += pull.len;
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
            pulls.state = FetchState::Refused;
            pulls.take_back(slot, &mut shared.out);
            if pulls.pending == 0 {
                return Some(slot);
            }
        }
        None
    }

    /// Posts RDMA Reads, no more at a time than the provider has under way.
    // RFC 8166 §3.3.1: limits on RDMA Reads in progress are the implementation's to accommodate.
    pub(super) fn post_reads<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) {
        while self.reads < qp.max_reads() {
            let Some(&slot) = self.reading.front() else { break };
            let pulls =
                calls.get_mut(slot).map(HasReadChunks::pulls).filter(|pulls| pulls.state == FetchState::Pulling);
            let Some(pulls) = pulls else {
                self.reading.pop_front();
                continue;
            };
            let Some((part, pull)) = pulls.chunks.iter_mut().enumerate().find(|(_, pull)| !pull.all_posted) else {
                self.reading.pop_front();
                continue;
            };
            let next = pull.walk.next(&pull.segments, pull.len, shared.max_transfer.min(MOST_READ));
            let (Some(transfer), Some(sink)) = (next, pull.sink) else {
                pull.all_posted = true;
                continue;
            };
            pull.reads += 1;
            pull.all_posted = pull.walk.at() >= pull.len;
            self.reads += 1;
            qp.post(WorkRequest::Read {
                id: PostedFor::Pull { slot, part: part as u16 }.id(),
                sink,
                sink_offset: transfer.at,
                remote: transfer.remote,
                len: transfer.len,
            });
            shared.counters.rdma_read_bytes += u64::from(transfer.len);
        }
    }

    /// An RDMA Read is over, one way or the other.
    pub(super) fn read_done<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        slot: u32,
        part: u16,
        shared: &mut EngineShared,
    ) {
        self.reads = self.reads.saturating_sub(1);
        self.stalled = None;
        let Some(pulls) = calls.get_mut(slot).map(HasReadChunks::pulls) else { return };
        let Some(pull) = pulls.chunks.get_mut(usize::from(part)) else { return };
        pull.reads = pull.reads.saturating_sub(1);
        if pull.reads == 0 && pull.all_posted {
            pull.take_back(slot, usize::from(part), &mut shared.out);
        }
    }

    /// A sink is back, and nothing can write to it any more; or it is lost, and so is the connection. Tells when that
    /// was the last.
    pub(super) fn sink_returned<C: HasReadChunks>(
        &mut self,
        calls: &mut GenerationalSlab<C>,
        slot: u32,
        part: u16,
        memory: Option<RegisterableMemory>,
        counters: &mut ConnectionCounters,
    ) -> Option<FetchOutcome> {
        let pulls = calls.get_mut(slot)?.pulls();
        let pull = pulls.chunks.get_mut(usize::from(part))?;
        pull.sink.take()?;
        counters.registered_bytes = counters.registered_bytes.saturating_sub(pull.len);
        self.sinks = self.sinks.saturating_sub(1);
        pulls.pending = pulls.pending.saturating_sub(1);
        match memory {
            Some(RegisterableMemory::Sink(buf)) => pull.data = Some(buf.freeze()),
            // The connection ends; the call is not handed over.
            _ => pulls.state = FetchState::Lost,
        }
        if pulls.pending > 0 {
            return None;
        }
        match pulls.state {
            FetchState::Pulling => {
                pulls.state = FetchState::Done;
                Some(FetchOutcome::All)
            }
            FetchState::Refused => Some(FetchOutcome::Refused),
            FetchState::Lost => Some(FetchOutcome::Lost),
            FetchState::Waiting | FetchState::Done => None,
        }
    }
}
