//! One end of a connection in full operation, over any [`Link`]: what is posted, what is under way, how it ends.
//!
//! Outgoing data is in `outbound`, incoming in `inbound`.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use bytes::Bytes;

use super::{
    input::{Input, Segment},
    link::Link,
    mpa::fpdu,
    output::Output,
    rdmap::{
        Opcode,
        terminate::{self, Code, Fault, Offender},
    },
    stag::{Invalidated, StagTable},
    work::WorkQueue,
};
use crate::{
    memory::{BufferPool, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, Handle, IoError, Memory, Region, RegisterError, RemoteMemory, WorkError,
        WorkRequest, WrId,
    },
};

/// What set-up agreed on.
#[derive(Debug, Clone)]
pub(crate) struct Agreement {
    /// CRCs are generated and checked.
    pub(crate) use_crc: bool,
    /// The peer requires markers.
    pub(crate) markers: bool,
    /// Largest ULPDU to be sent, in octets.
    pub(crate) max_ulpdu: usize,
    /// This end sent the MPA request, so it may send the first FPDU.
    pub(crate) initiator: bool,
    /// RDMA Reads of the peer's served at a time.
    pub(crate) ird: u32,
    /// RDMA Reads of this end's under way at a time.
    pub(crate) ord: u32,
    /// Receives posted.
    pub(crate) receive_count: usize,
    /// Octets of each.
    pub(crate) receive_size: usize,
    /// Where they come from.
    pub(crate) pool: BufferPool,
}

/// How a connection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// In full operation.
    Open,
    /// `disconnect` has been called: what was posted goes out.
    Draining,
    /// Nothing more is framed: the batch and the Terminate leave, then the end of the stream; then the peer's is awaited.
    Ending { reason: DisconnectReason, end_sent: bool },
    /// Gone.
    Closed,
}

/// An RDMA Read of this end's, its request framed.
pub(super) struct Read {
    pub(super) work: u64,
    pub(super) sink: u32,
    /// Octets from the sink's start where the next segment of the response belongs.
    pub(super) next: u64,
    pub(super) left: u64,
}

/// An RDMA Read of the peer's.
pub(super) struct Response {
    pub(super) sink_stag: u32,
    pub(super) sink_offset: u64,
    pub(super) source: Bytes,
    /// The STag that `source` was found by; `None` for a Read of no octets.
    pub(super) source_stag: Option<u32>,
}

/// A message being framed, and how many of its octets have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Current {
    None,
    Work(usize),
    Response(usize),
}

/// A Send being received.
pub(super) struct Arriving {
    pub(super) buf: PayloadBuf,
    pub(super) received: usize,
    pub(super) opcode: Opcode,
}

/// One end of a connection.
pub(crate) struct Endpoint {
    pub(super) max_ulpdu: usize,
    pub(super) ird: usize,
    pub(super) ord: usize,
    pub(super) phase: Phase,
    pub(super) stags: StagTable,
    /// Completions not yet told.
    pub(super) done: Vec<Completion>,

    // Outgoing.
    pub(super) output: Output,
    pub(super) work: WorkQueue,
    pub(super) reads: VecDeque<Read>,
    pub(super) responses: VecDeque<Response>,
    /// Sequence number of the front of `responses`.
    pub(super) first_response: u64,
    /// How many of `responses` have been framed.
    pub(super) framed_responses: usize,
    pub(super) current: Current,
    /// Whose turn it is when both have something to send.
    pub(super) response_turn: bool,
    pub(super) send_msn: u32,
    pub(super) read_msn: u32,
    /// RFC 5044 §7.1.2 rule 4: the responder MUST receive an FPDU before it sends one.
    pub(super) may_send: bool,
    /// The Terminate header to be sent.
    pub(super) terminate: Option<Vec<u8>>,
    /// Writing has failed. The peer's Terminate may still be there to be read.
    pub(super) broken: Option<IoError>,

    // Incoming.
    pub(super) input: Input,
    pub(super) segment: Option<Segment>,
    pub(super) arriving: Option<Arriving>,
    pub(super) receives: usize,
    pub(super) receive_size: usize,
    pub(super) pool: BufferPool,
    pub(super) expected_send_msn: u32,
    pub(super) expected_read_msn: u32,
    pub(super) copied_payload: u64,
    /// Octets read, ever.
    pub(super) received: u64,
}

/// Whether there is more to do without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Io {
    /// Everything waits for the link.
    Idle,
    /// This poll has done its share of work.
    Busy,
}

impl Endpoint {
    /// Rounds of output and input in one poll.
    const ROUNDS: usize = 4;

    /// An end in full operation.
    pub(crate) fn new(agreement: Agreement) -> Self {
        Self {
            max_ulpdu: agreement.max_ulpdu.clamp(fpdu::MIN_MULPDU, fpdu::MAX_ULPDU),
            ird: agreement.ird.try_into().unwrap_or(usize::MAX),
            ord: agreement.ord.try_into().unwrap_or(usize::MAX),
            phase: Phase::Open,
            stags: StagTable::default(),
            done: Vec::new(),
            output: Output::new(agreement.use_crc, agreement.markers),
            work: WorkQueue::default(),
            reads: VecDeque::new(),
            responses: VecDeque::new(),
            first_response: 0,
            framed_responses: 0,
            current: Current::None,
            response_turn: false,
            // RFC 5041 §4.3: the first MSN of each queue is 1.
            send_msn: 1,
            read_msn: 1,
            may_send: agreement.initiator,
            terminate: None,
            broken: None,
            input: Input::new(agreement.use_crc),
            segment: None,
            arriving: None,
            receives: agreement.receive_count,
            receive_size: agreement.receive_size,
            pool: agreement.pool,
            expected_send_msn: 1,
            expected_read_msn: 1,
            copied_payload: 0,
            received: 0,
        }
    }

    pub(crate) fn register(&mut self, memory: Memory, access: Access) -> Result<Region, RegisterError> {
        if self.is_closed() {
            return Err(RegisterError { source: "the connection is gone".into(), memory });
        }
        match self.stags.register(memory, access) {
            Ok(handle) => Ok(Region { handle, base: 0 }),
            Err((source, memory)) => Err(RegisterError { source, memory }),
        }
    }

    pub(crate) fn post(&mut self, request: WorkRequest) {
        let checked = match &request {
            &WorkRequest::Invalidate { id, handle } => {
                match self.stags.invalidate(id, handle) {
                    Invalidated::Now(memory) => self.done.push(Completion::Invalidated { id, memory }),
                    Invalidated::Later => {}
                    Invalidated::Unknown => {
                        let error = WorkError::Local(format!("{handle:?} is not registered"));
                        self.done.push(request.completion(Err(error)));
                    }
                }
                return;
            }
            _ if self.phase != Phase::Open => {
                return self.work.push_failed(&request, WorkError::Flushed, &mut self.done);
            }
            // RFC 5041 §5.2: messages are shorter than 2^32 octets.
            WorkRequest::Send { message, .. } if u32::try_from(message.len()).is_err() => {
                Err(format!("a Send of {} octets", message.len()))
            }
            WorkRequest::Write { source, .. } if u32::try_from(source.len()).is_err() => {
                Err(format!("an RDMA Write of {} octets", source.len()))
            }
            WorkRequest::Send { .. } | WorkRequest::Write { .. } => Ok(()),
            WorkRequest::Read { sink, sink_offset, len, .. } => self.stags.begin_read(*sink, *sink_offset, *len),
        };
        match checked {
            Ok(()) => self.work.push(request, false),
            // A work request was wrong: that ends the connection.
            Err(error) => {
                self.work.push_failed(&request, WorkError::Local(error), &mut self.done);
                // RFC 5040 §7.1 case 1: an error in creating a message is told with a Terminate in its stead.
                self.end_with(Code::LOCAL_CATASTROPHIC, None, DisconnectReason::Local);
            }
        }
    }

    /// Whether anything has been received from the peer since set-up.
    pub(crate) fn has_received(&self) -> bool {
        self.received > 0
    }

    /// Whether everything posted has been written, and there was something.
    pub(crate) fn has_sent(&self) -> bool {
        self.send_msn > 1 && self.work.is_empty()
    }

    /// Sends one more FPDU that changes nothing: an RDMA Write of no octets, whose STag is not looked at (RFC 5040 §5.1, RFC 5041 §5.2).
    pub(crate) fn remind(&mut self) {
        if self.phase == Phase::Open {
            let remote = RemoteMemory { handle: Handle(0), offset: 0 };
            self.work.push(WorkRequest::Write { id: WrId(0), source: Bytes::new(), remote }, true);
        }
    }

    pub(crate) fn disconnect(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
        }
    }

    /// Whether what has been posted still goes out.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open | Phase::Draining)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Whether it is on its way to be closed, and so must get there in bounded time.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Draining | Phase::Ending { .. })
    }

    /// A number that grows as long as the end of the connection makes progress: octets that the peer takes, and while
    /// what was posted goes out, those that it sends (the responses to RDMA Reads).
    pub(crate) fn progress(&self) -> u64 {
        let received = if self.phase == Phase::Draining { self.received } else { 0 };
        self.output.written().wrapping_add(received)
    }

    /// Completions to be told.
    pub(crate) fn completions(&mut self) -> &mut Vec<Completion> {
        &mut self.done
    }

    /// Does the output and input that can be done without waiting, a bounded amount of it.
    pub(crate) fn poll_io(&mut self, cx: &mut Context<'_>, link: &mut impl Link) -> Io {
        for _ in 0..Self::ROUNDS {
            if self.is_closed() {
                return Io::Idle;
            }
            let wrote = self.transmit(cx, link);
            let read = self.receive(cx, link);
            if wrote.is_pending() && read.is_pending() {
                return Io::Idle;
            }
            if !self.done.is_empty() {
                return Io::Busy;
            }
        }
        Io::Busy
    }

    /// The peer broke the protocol: tells it so, and ends the connection.
    pub(super) fn fail(&mut self, fault: &Fault, offender: Option<&Offender>) {
        let reason = DisconnectReason::PeerViolation(fault.detail.clone().into_owned());
        self.end_with(fault.code, offender, reason);
    }

    /// Ends the connection with a Terminate. RFC 5040 §7.1 rule 4: the first error is the one that is told.
    pub(super) fn end_with(&mut self, code: Code, offender: Option<&Offender>, reason: DisconnectReason) {
        if self.is_open() {
            tracing::debug!(?code, %reason, "ending the connection with a Terminate");
            self.terminate = Some(terminate::encode(code, offender));
            self.phase = Phase::Ending { reason, end_sent: false };
            self.segment = None;
        }
    }

    /// The connection is gone: everything completes, and [`Completion::Disconnected`] is the last.
    pub(crate) fn finish(&mut self, reason: DisconnectReason) {
        let reason = match std::mem::replace(&mut self.phase, Phase::Closed) {
            Phase::Closed => return,
            Phase::Ending { reason, .. } => reason,
            Phase::Open | Phase::Draining => reason,
        };
        self.output.clear();
        self.responses.clear();
        self.reads.clear();
        self.segment = None;
        self.arriving = None;
        self.work.flush(&mut self.done);
        for (id, memory) in self.stags.end_all_uses() {
            self.done.push(Completion::Invalidated { id, memory });
        }
        self.done.push(Completion::Disconnected { reason });
    }

    /// Memory has one user fewer.
    pub(super) fn end_use(&mut self, stag: u32) {
        if let Some((id, memory)) = self.stags.end_use(stag) {
            self.done.push(Completion::Invalidated { id, memory });
        }
    }
}

/// `Ready` when something was done.
pub(super) fn progress(done: bool) -> Poll<()> {
    if done { Poll::Ready(()) } else { Poll::Pending }
}
