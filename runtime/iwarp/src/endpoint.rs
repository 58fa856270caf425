//! The protocol state of an established connection over any [`ByteStream`]: posted requests, requests in flight, and
//! teardown.
//!
//! The module `outbound` handles outgoing data, and `inbound` incoming data.

use std::{
    collections::VecDeque,
    task::{Context, Poll},
};

use bytes::Bytes;

use super::{
    byte_stream::ByteStream,
    input::{Gaps, InboundSegment, StagingBuffer},
    mpa::fpdu,
    output::SendBatch,
    rdmap::Opcode,
    receives::ReceiveQueue,
    stag::{InvalidateOutcome, StagTable},
    terminate::{self, FaultySegment, ProtocolFault, TerminateCode},
    work::WorkQueue,
};
use crate::{
    memory::{BufferPool, PayloadBuf},
    provider::{
        Access, Completion, DisconnectReason, IoError, MemoryHandle, Region, RegisterError, RegisterableMemory,
        RemoteMemory, WorkError, WorkRequest, WrId,
    },
};

/// The parameters of an established connection: those negotiated at set-up, and those of the local Receives.
#[derive(Debug, Clone)]
pub(crate) struct NegotiatedParams {
    /// `true` if CRCs are generated and verified.
    pub(crate) use_crc: bool,
    /// `true` if the peer requires markers.
    pub(crate) markers: bool,
    /// Size of the largest ULPDU to send, in bytes.
    pub(crate) max_ulpdu: usize,
    /// `true` if the local side sent the MPA request, so that it may send the first FPDU.
    pub(crate) initiator: bool,
    /// Maximum number of the peer's RDMA Reads served at a time.
    pub(crate) ird: u32,
    /// Maximum number of local RDMA Reads in flight.
    pub(crate) ord: u32,
    /// Number of Receives posted at connection set-up.
    pub(crate) receive_count: usize,
    /// Size of each Receive buffer, in bytes.
    pub(crate) receive_size: usize,
    /// The pool that provides Receive buffers.
    pub(crate) pool: BufferPool,
}

/// The phase of an established connection, up to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EndpointPhase {
    /// Full operation.
    Open,
    /// `disconnect` was called, and posted requests are still being sent.
    Draining,
    /// No message other than a Terminate is framed. The batch and the Terminate, if there is one, are sent. Then the
    /// stream is shut down, and the endpoint waits for the peer to close it.
    Ending { reason: DisconnectReason, end_sent: bool },
    /// The connection has ended.
    Closed,
}

/// A local RDMA Read whose request has been framed.
pub(super) struct OutboundRead {
    pub(super) work: u64,
    pub(super) sink: u32,
    /// The offset in the sink of the response's next segment, in bytes.
    pub(super) next: u64,
    pub(super) left: u64,
}

/// The response to an RDMA Read Request from the peer.
pub(super) struct ReadResponse {
    pub(super) sink_stag: u32,
    pub(super) sink_offset: u64,
    pub(super) source: Bytes,
    /// The STag of `source`, or `None` for a Read of zero bytes.
    pub(super) source_stag: Option<u32>,
}

/// The message being framed, with the number of its bytes framed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FramedMessage {
    None,
    Work(usize),
    Response(usize),
}

/// A Send being received.
pub(super) struct IncomingSend {
    pub(super) buf: PayloadBuf,
    pub(super) received: usize,
    pub(super) opcode: Opcode,
}

/// The local side of an established connection.
pub(crate) struct Endpoint {
    pub(super) max_ulpdu: usize,
    pub(super) ird: usize,
    pub(super) ord: usize,
    pub(super) phase: EndpointPhase,
    pub(super) stags: StagTable,
    /// Completions that the caller has not received yet.
    pub(super) done: Vec<Completion>,

    // Outgoing.
    pub(super) output: SendBatch,
    pub(super) work: WorkQueue,
    pub(super) reads: VecDeque<OutboundRead>,
    pub(super) responses: VecDeque<ReadResponse>,
    /// Sequence number of the first entry of `responses`.
    pub(super) first_response: u64,
    /// Number of `responses` that have been framed.
    pub(super) framed_responses: usize,
    pub(super) current: FramedMessage,
    /// `true` if the next message is an RDMA Read Response when work requests are waiting too.
    pub(super) response_turn: bool,
    /// Sends shorter than this, in bytes, are framed when they are posted. 0 while nothing may be framed, or something
    /// else must be framed or written first.
    pub(super) frames_below: usize,
    /// The number of the last Send that was framed when it was posted, if the batch has no mark for it yet.
    pub(super) unmarked_sends: Option<u64>,
    pub(super) send_msn: u32,
    pub(super) read_msn: u32,
    /// `true` if FPDUs may be sent. RFC 5044 §7.1.2 rule 4: the responder MUST receive an FPDU before it sends one.
    pub(super) may_send: bool,
    /// The Terminate header to send.
    pub(super) terminate: Option<Vec<u8>>,
    /// The write error. The peer's Terminate may still be readable.
    pub(super) broken: Option<IoError>,

    // Incoming.
    pub(super) input: StagingBuffer,
    pub(super) segment: Option<InboundSegment>,
    /// Number of RDMA Writes in a row that have filled their memory to its end.
    pub(super) filling_writes: u8,
    /// Bytes read between the payloads of expected segments.
    pub(super) gaps: Gaps,
    pub(super) arriving: Option<IncomingSend>,
    pub(super) receives: ReceiveQueue,
    pub(super) expected_send_msn: u32,
    pub(super) expected_read_msn: u32,
    pub(super) copied_payload: u64,
    /// Total number of bytes read.
    pub(super) received: u64,
    /// `true` if the last attempt to read found nothing and registered the waker. The next attempt is then made after
    /// [`seek_input`](Self::seek_input) or a write error.
    pub(super) input_drained: bool,
}

/// The reason why a poll returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IoProgress {
    /// The connection has ended, or all work waits for the link, whose waker is registered.
    Idle,
    /// The poll stopped at its work limit, or because there are completions.
    Busy,
}

impl Endpoint {
    /// Maximum number of output and input rounds per poll.
    const ROUNDS: usize = 4;

    /// Creates the endpoint of an established connection.
    pub(crate) fn new(agreement: NegotiatedParams) -> Self {
        let mut endpoint = Self {
            // RFC 5044 §3: the bounds of the MULPDU.
            max_ulpdu: agreement.max_ulpdu.clamp(fpdu::MIN_MULPDU, fpdu::MAX_ULPDU),
            // RFC 5040 §5.2.2, §6.1: the limits of the peer's RDMA Reads and of local ones.
            ird: agreement.ird.try_into().unwrap_or(usize::MAX),
            ord: agreement.ord.try_into().unwrap_or(usize::MAX),
            phase: EndpointPhase::Open,
            // RFC 5042 §6.1.1: an STag is limited to this stream.
            stags: StagTable::default(),
            done: Vec::new(),
            output: SendBatch::new(agreement.use_crc, agreement.markers),
            work: WorkQueue::default(),
            reads: VecDeque::new(),
            responses: VecDeque::new(),
            first_response: 0,
            framed_responses: 0,
            current: FramedMessage::None,
            response_turn: false,
            frames_below: 0,
            unmarked_sends: None,
            // RFC 5041 §4.3: the first MSN of each queue is 1.
            send_msn: 1,
            read_msn: 1,
            may_send: agreement.initiator,
            terminate: None,
            broken: None,
            input: StagingBuffer::new(agreement.use_crc),
            segment: None,
            filling_writes: 0,
            gaps: Gaps::default(),
            arriving: None,
            receives: ReceiveQueue::new(agreement.receive_count, agreement.receive_size, agreement.pool),
            expected_send_msn: 1,
            expected_read_msn: 1,
            copied_payload: 0,
            received: 0,
            input_drained: false,
        };
        endpoint.update_framing();
        endpoint
    }

    /// Registers memory for access over this connection (RFC 5041 §8.3). Fails if the connection has ended, or the
    /// table of STags cannot accept the memory.
    pub(crate) fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        if self.is_closed() {
            return Err(RegisterError { source: "connection has ended".into(), memory });
        }
        match self.stags.register(memory, access) {
            Ok(handle) => Ok(Region { handle, base: 0 }),
            Err((source, memory)) => Err(RegisterError { source, memory }),
        }
    }

    pub(crate) fn post(&mut self, request: WorkRequest) {
        if self.frame_posted(&request) {
            if let WorkRequest::Send { message, .. } = request {
                self.receives.reuse(message);
            }
            return;
        }
        self.post_unframed(request);
    }

    /// Posts a request that [`frame_posted`](Self::frame_posted) has not framed.
    #[inline(never)]
    fn post_unframed(&mut self, request: WorkRequest) {
        let checked = match &request {
            &WorkRequest::Invalidate { id, handle } => {
                match self.stags.invalidate(id, handle) {
                    InvalidateOutcome::Now(memory) => self.done.push(Completion::Invalidated { id, memory }),
                    InvalidateOutcome::Later => {}
                    InvalidateOutcome::Unknown => {
                        let error = WorkError::Local(format!("{handle:?} is not registered"));
                        self.done.push(request.completion(Err(error)));
                    }
                }
                return;
            }
            // RFC 5041 §6.2.1.
            _ if self.phase != EndpointPhase::Open => {
                self.frames_below = 0;
                return self.work.push_failed(&request, WorkError::Flushed, &mut self.done);
            }
            WorkRequest::Send { message, .. } => check_len("Send", message.len()),
            WorkRequest::Write { source, .. } => check_len("RDMA Write", source.len()),
            WorkRequest::Read { sink, sink_offset, len, .. } => self.stags.begin_read(*sink, *sink_offset, *len),
        };
        // RFC 5041 §5.3, RFC 5040 §5.3, §5.5: requests are framed in the order posted.
        self.frames_below = 0;
        match checked {
            Ok(()) => self.work.push(request, false),
            // An invalid work request ends the connection.
            Err(error) => {
                self.work.push_failed(&request, WorkError::Local(error), &mut self.done);
                // RFC 5040 §7.1 case 1: an error in creating a message is reported with a Terminate instead of it.
                self.end_with(TerminateCode::LOCAL_CATASTROPHIC, None, DisconnectReason::Local);
            }
        }
    }

    /// Returns `true` if anything was received from the peer since set-up.
    pub(crate) fn has_received(&self) -> bool {
        self.received > 0
    }

    /// Returns `true` if a Send was framed and all posted requests are complete.
    pub(crate) fn has_sent(&self) -> bool {
        self.send_msn > 1 && self.work.is_empty()
    }

    /// Sends an FPDU that has no effect: a zero-length RDMA Write, whose STag the peer does not check (RFC 5040 §5.1,
    /// RFC 5041 §5.2).
    pub(crate) fn send_extra_fpdu(&mut self) {
        if self.phase == EndpointPhase::Open {
            let remote = RemoteMemory { handle: MemoryHandle(0), offset: 0 };
            self.frames_below = 0;
            self.work.push(WorkRequest::Write { id: WrId(0), source: Bytes::new(), remote }, true);
        }
    }

    /// Ends the connection when everything that was posted has been sent (RFC 5041 §6.2.1).
    pub(crate) fn disconnect(&mut self) {
        if self.phase == EndpointPhase::Open {
            self.phase = EndpointPhase::Draining;
            self.update_framing();
        }
    }

    /// Returns `true` if requests that are already posted will still be sent.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, EndpointPhase::Open | EndpointPhase::Draining)
    }

    /// Returns `true` if new requests are still accepted: neither side has begun to end the connection.
    #[inline]
    pub(crate) fn is_fully_open(&self) -> bool {
        matches!(self.phase, EndpointPhase::Open)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.phase == EndpointPhase::Closed
    }

    /// Returns `true` if the connection is closing, which must complete in bounded time.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.phase, EndpointPhase::Draining | EndpointPhase::Ending { .. })
    }

    /// Returns a number that changes while the closing connection makes progress: bytes sent, and while draining, bytes
    /// received (the responses to RDMA Reads).
    pub(crate) fn progress(&self) -> u64 {
        let received = if self.phase == EndpointPhase::Draining { self.received } else { 0 };
        self.output.written().wrapping_add(received)
    }

    /// Returns the completions that the caller has not received yet.
    pub(crate) fn completions(&mut self) -> &mut Vec<Completion> {
        &mut self.done
    }

    /// Makes the next [`poll_io`](Self::poll_io) look for input.
    pub(crate) fn seek_input(&mut self) {
        self.input_drained = false;
    }

    /// Performs a bounded amount of the I/O that is possible without waiting. Reads if the last attempt to read found
    /// input, after [`seek_input`](Self::seek_input), or after a write error.
    pub(crate) fn poll_io(&mut self, cx: &mut Context<'_>, link: &mut impl ByteStream) -> IoProgress {
        for _ in 0..Self::ROUNDS {
            if self.is_closed() {
                return IoProgress::Idle;
            }
            let wrote = self.transmit(cx, link);
            // A write error is reported once the input has been read.
            let read = if self.input_drained && self.broken.is_none() { Poll::Pending } else { self.receive(cx, link) };
            self.update_framing();
            if (wrote.is_pending() && read.is_pending()) || self.is_settled() {
                return IoProgress::Idle;
            }
            if !self.done.is_empty() {
                return IoProgress::Busy;
            }
        }
        IoProgress::Busy
    }

    /// Returns `true` if everything has been written and everything that arrived has been read. Another round would
    /// then do nothing. All work must be framed as well, because processed input can make work requests and responses
    /// ready to be sent.
    fn is_settled(&self) -> bool {
        self.input_drained && self.is_framed() && self.output.is_empty()
    }

    /// Returns `true` if a short Send may be framed when it is posted. New requests are then still accepted, everything
    /// is framed, and no batch is partly written.
    #[inline]
    pub(super) fn is_framed(&self) -> bool {
        self.frames_below > 0
    }

    /// Reports a protocol violation to the peer and to the upper layer, and ends the connection (RFC 5040 §6.2.1, §7.1,
    /// RFC 5041 §8.3, RFC 5044 §8).
    pub(super) fn fail(&mut self, fault: &ProtocolFault, offender: Option<&FaultySegment>) {
        let reason = DisconnectReason::PeerViolation(fault.detail.clone().into_owned());
        self.end_with(fault.code, offender, reason);
    }

    /// Ends the connection with a Terminate, after which nothing is sent (RFC 5040 §5.4, §6.2.1, RFC 5041 §6.2.2,
    /// §7.1). Reports only the first error (RFC 5040 §7.1 rule 4). A responder that has not received an FPDU sends no
    /// Terminate (RFC 5044 §7.1.2 rule 4).
    pub(super) fn end_with(&mut self, code: TerminateCode, offender: Option<&FaultySegment>, reason: DisconnectReason) {
        if self.is_open() {
            tracing::debug!(?code, %reason, "ending the connection with a Terminate");
            self.terminate = Some(terminate::encode(code, offender));
            self.phase = EndpointPhase::Ending { reason, end_sent: false };
            self.segment = None;
        }
    }

    /// Completes all requests, including pending Invalidates, after the connection has ended (RFC 5040 §6.2.1, RFC 5041
    /// §6.2.2). [`Completion::Disconnected`] is the last completion.
    pub(crate) fn finish(&mut self, reason: DisconnectReason) {
        let reason = match std::mem::replace(&mut self.phase, EndpointPhase::Closed) {
            EndpointPhase::Closed => return,
            EndpointPhase::Ending { reason, .. } => reason,
            EndpointPhase::Open | EndpointPhase::Draining => reason,
        };
        self.output.clear();
        self.responses.clear();
        self.reads.clear();
        self.segment = None;
        self.arriving = None;
        self.receives.free_buffers();
        self.work.flush(&mut self.done);
        for (id, memory) in self.stags.end_all_uses() {
            self.done.push(Completion::Invalidated { id, memory });
        }
        self.done.push(Completion::Disconnected { reason });
    }

    /// Removes one user of registered memory. If it was the last user, completes the Invalidate that waits for it, if
    /// any.
    pub(super) fn end_use(&mut self, stag: u32) {
        if let Some((id, memory)) = self.stags.end_use(stag) {
            self.done.push(Completion::Invalidated { id, memory });
        }
    }
}

/// Checks that a message is shorter than 2^32 bytes (RFC 5041 §5.2). `kind` names the message in the error.
fn check_len(kind: &str, len: usize) -> Result<(), String> {
    u32::try_from(len).map(|_| ()).map_err(|_| format!("{kind} of {len} bytes exceeds the limit of 2^32 - 1"))
}

/// Returns `Ready` if `done` is `true`, and `Pending` otherwise.
pub(super) fn progress(done: bool) -> Poll<()> {
    if done { Poll::Ready(()) } else { Poll::Pending }
}

#[cfg(test)]
mod tests;
