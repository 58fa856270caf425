//! Read chunks: pulled by RDMA Read before the call is handed over (RFC 8166 §3.4.5.1).

use std::collections::VecDeque;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::{Answer, Outgoing, Responder, Stage};
use crate::{
    engine::{
        chunks::{Segment, Walk},
        v1::shared::Shared,
        work::Work,
    },
    provider::{Access, Handle, Memory, QueuePair, WorkRequest},
};

/// A Read chunk of the peer's.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) position: u32,
    /// Octets: the sum of the segments' lengths (RFC 8166 §3.4.4).
    pub(super) len: u64,
    segments: SmallVec<[Segment; 2]>,
    walk: Walk,
    /// RDMA Reads posted and not completed.
    reads: u32,
    all_posted: bool,
    sink: Option<Handle>,
    returning: bool,
    pub(super) data: Option<Bytes>,
}

impl Pull {
    pub(super) fn new(position: u32, segment: Segment) -> Self {
        let mut pull = Self {
            position,
            len: 0,
            segments: smallvec![],
            walk: Walk::default(),
            reads: 0,
            all_posted: false,
            sink: None,
            returning: false,
            data: None,
        };
        pull.push(segment);
        pull
    }

    pub(super) fn push(&mut self, segment: Segment) {
        self.len += u64::from(segment.length);
        self.segments.push(segment);
    }

    pub(super) fn is_registered(&self) -> bool {
        self.sink.is_some()
    }

    /// Asks for the sink back, once.
    pub(super) fn take_back(&mut self, slot: u32, part: usize, out: &mut VecDeque<WorkRequest>) {
        if let Some(handle) = self.sink.filter(|_| !self.returning) {
            self.returning = true;
            // A message has no more chunks than its segments, which fit in a Receive.
            let id = Work::PullInvalidate { slot, part: part as u16 }.id();
            out.push_back(WorkRequest::Invalidate { id, handle });
        }
    }
}

impl Responder {
    /// Registers sinks for calls that wait to be pulled, while there is room for them.
    pub(super) fn admit(&mut self, qp: &mut impl QueuePair, shared: &mut Shared) {
        while let Some(&slot) = self.waiting.front() {
            let Some(call) = self.calls.get_mut(slot) else {
                self.waiting.pop_front();
                continue;
            };
            // A call is never larger than the whole of the room.
            if self.pulled.saturating_add(call.pull_len) > shared.config.max_pulled {
                break;
            }
            self.waiting.pop_front();
            self.pulled += call.pull_len;
            call.stage = Stage::Pulling;
            let mut failed = qp.max_reads() == 0;
            for pull in call.pulls.iter_mut() {
                let Some(len) = usize::try_from(pull.len).ok().filter(|_| !failed) else {
                    failed = true;
                    break;
                };
                if len == 0 {
                    pull.all_posted = true;
                    pull.data = Some(Bytes::new());
                    continue;
                }
                match qp.register(Memory::Sink(shared.config.pool.alloc(len)), Access::ReadSink) {
                    Ok(region) => {
                        pull.sink = Some(region.handle);
                        call.pending += 1;
                        self.sinks += 1;
                        shared.counters.registrations += 1;
                    }
                    Err(error) => {
                        tracing::debug!(%error, "no memory for a Read chunk");
                        failed = true;
                    }
                }
            }
            if !failed {
                self.reading.push_back(slot);
                continue;
            }
            call.stage = Stage::Refused;
            for (part, pull) in call.pulls.iter_mut().enumerate() {
                pull.take_back(slot, part, &mut shared.out);
            }
            if call.pending == 0 {
                self.refuse_call(slot);
            }
        }
    }

    /// Posts RDMA Reads, no more at a time than the provider has under way.
    // RFC 8166 §3.3.1: limits on RDMA Reads in progress are the implementation's to accommodate.
    pub(super) fn post_reads(&mut self, qp: &mut impl QueuePair, shared: &mut Shared) {
        while self.reads < qp.max_reads() {
            let Some(&slot) = self.reading.front() else { break };
            let Some(call) = self.calls.get_mut(slot).filter(|call| matches!(call.stage, Stage::Pulling)) else {
                self.reading.pop_front();
                continue;
            };
            let Some((part, pull)) = call.pulls.iter_mut().enumerate().find(|(_, pull)| !pull.all_posted) else {
                self.reading.pop_front();
                continue;
            };
            let next = pull.walk.next(&pull.segments, pull.len, shared.max_transfer);
            let (Some(transfer), Some(sink)) = (next, pull.sink) else {
                pull.all_posted = true;
                continue;
            };
            pull.reads += 1;
            pull.all_posted = pull.walk.at() >= pull.len;
            self.reads += 1;
            qp.post(WorkRequest::Read {
                id: Work::Pull { slot, part: part as u16 }.id(),
                sink,
                sink_offset: transfer.at,
                remote: transfer.remote,
                len: transfer.len,
            });
            shared.counters.rdma_read += u64::from(transfer.len);
        }
    }

    /// An RDMA Read is over, one way or the other.
    pub(in crate::engine::v1) fn read_done(&mut self, slot: u32, part: u16, shared: &mut Shared) {
        self.reads = self.reads.saturating_sub(1);
        let Some(pull) = self.calls.get_mut(slot).and_then(|call| call.pulls.get_mut(usize::from(part))) else {
            return;
        };
        pull.reads = pull.reads.saturating_sub(1);
        if pull.reads == 0 && pull.all_posted {
            pull.take_back(slot, usize::from(part), &mut shared.out);
        }
    }

    /// A sink is back, and nothing can write to it any more; or it is lost, and so is the connection.
    pub(in crate::engine::v1) fn sink_returned(
        &mut self,
        slot: u32,
        part: u16,
        memory: Option<Memory>,
        shared: &mut Shared,
    ) {
        let Some(call) = self.calls.get_mut(slot) else { return };
        let Some(pull) = call.pulls.get_mut(usize::from(part)) else { return };
        if pull.sink.take().is_none() {
            return;
        }
        self.sinks = self.sinks.saturating_sub(1);
        call.pending = call.pending.saturating_sub(1);
        match memory {
            Some(Memory::Sink(buf)) => pull.data = Some(buf.freeze()),
            // The connection ends; the call is not handed over.
            _ => call.stage = Stage::Lost,
        }
        if call.pending > 0 {
            return;
        }
        match call.stage {
            Stage::Pulling => self.arrived(slot, shared),
            Stage::Refused => self.refuse_call(slot),
            Stage::Lost => {
                self.calls.remove(slot);
            }
            _ => {}
        }
    }

    /// Answers a call that the upper layer has not seen with ERR_CHUNK.
    pub(super) fn refuse_call(&mut self, slot: u32) {
        if let Some(call) = self.calls.get_mut(slot) {
            call.stage = Stage::Answered(Answer::ChunkError);
            self.outgoing.push_back(Outgoing::Answer(slot));
        }
    }
}
