//! The send path: segments messages (RFC 5041 §5.2), frames the segments and writes them.

use std::{
    collections::VecDeque,
    io::IoSlice,
    task::{Context, Poll},
};

use arrayvec::ArrayVec;

use super::{
    byte_stream::ByteStream,
    ddp::{self, DdpControl, DdpHeader, queue},
    endpoint::{Endpoint, EndpointPhase, FramedMessage, OutboundRead, ReadResponse, progress},
    output::{IOVECS, PieceLocation, SendBatch, SendMark},
    rdmap::{Opcode, ReadRequest},
    work::WorkQueue,
};
use crate::provider::{DisconnectReason, IoError, WorkRequest};

/// The length in bytes up to which Sends are copied behind their headers, so that neighbors share one entry of a
/// vectored write. Longer Sends, RDMA Writes and RDMA Read Responses are written without a copy.
const COPIED_SEND: usize = 2048;
/// Maximum number of writes before input gets its turn.
const WRITES: usize = 16;

/// Returns the range of a message's next segment, and `true` if it is the last one (RFC 5041 §4.1, §5.2). The segment
/// begins at offset `from` and is as large as the MULPDU permits, at most `max` bytes (RFC 5044 §3, §4.5).
fn part(len: usize, from: usize, max: usize) -> (std::ops::Range<usize>, bool) {
    let end = len.min(from + max);
    (from..end, end == len)
}

impl Endpoint {
    /// Frames and writes messages, with at most `WRITES` writes. Returns `Ready` if bytes were written, a write failed,
    /// or the local half was shut down. An error ends the connection (RFC 5041 §3).
    pub(super) fn transmit(&mut self, cx: &mut Context<'_>, link: &mut impl ByteStream) -> Poll<()> {
        let mut wrote = false;
        if let Some(last) = self.unmarked_sends.take() {
            self.output.mark(SendMark::Sends(last));
        }
        for _ in 0..WRITES {
            if !self.is_framed() && self.has_unframed() && !self.output.is_started() {
                self.frame();
            }
            if self.output.is_empty() {
                if self.is_framed() {
                    return progress(wrote);
                }
                return self.end_output(cx, link).map_or_else(|| progress(wrote), |()| Poll::Ready(()));
            }
            match write(&self.output, &self.work, &self.responses, self.first_response, cx, link) {
                Poll::Pending => return progress(wrote),
                Poll::Ready(Ok(len)) if len > 0 => {
                    wrote = true;
                    self.output.advance(len);
                    self.after_output();
                }
                Poll::Ready(result) => {
                    let error = result.err().map_or_else(|| "the socket accepted no data".into(), IoError::from);
                    self.output.clear();
                    self.broken = Some(error);
                    return Poll::Ready(());
                }
            }
        }
        progress(wrote)
    }

    /// Completes Sends, RDMA Writes and RDMA Read Responses whose last byte has been written (RFC 5040 §5.2.1, §5.5).
    fn after_output(&mut self) {
        while let Some(mark) = self.output.reached() {
            match mark {
                SendMark::Work(seq) => self.work.finish(seq, Ok(()), &mut self.done),
                SendMark::Sends(last) => self.work.finish_copied(last, &mut self.done),
                SendMark::Response => {
                    self.first_response += 1;
                    self.framed_responses = self.framed_responses.saturating_sub(1);
                    if let Some(stag) = self.responses.pop_front().and_then(|response| response.source_stag) {
                        self.end_use(stag);
                    }
                }
            }
        }
    }

    /// Shuts down the local half of the stream if the connection is ending, or is draining and has no work request and
    /// no RDMA Read Response left (RFC 5040 §6.2.1, RFC 5041 §6.2.1). The caller has written everything framed. Returns
    /// `Some` if this call has completed the shutdown.
    fn end_output(&mut self, cx: &mut Context<'_>, link: &mut impl ByteStream) -> Option<()> {
        let idle = self.work.is_empty() && self.responses.is_empty();
        if self.phase == EndpointPhase::Draining && idle && self.broken.is_none() {
            self.phase = EndpointPhase::Ending { reason: DisconnectReason::Local, end_sent: false };
        }
        let EndpointPhase::Ending { end_sent, .. } = &mut self.phase else { return None };
        if *end_sent {
            return None;
        }
        match link.poll_shutdown(cx) {
            Poll::Pending => None,
            Poll::Ready(_) => {
                *end_sent = true;
                Some(())
            }
        }
    }

    /// Frames a small Send when it is posted, if everything posted before it is framed too and the batch has room.
    /// Returns `true` if the Send was framed. The caller may then reuse the memory of the message.
    #[inline]
    pub(super) fn frame_posted(&mut self, request: &WorkRequest) -> bool {
        let WorkRequest::Send { id, message, invalidate, solicited, signaled } = request else { return false };
        let message: &[u8] = message;
        if message.len() >= self.frames_below || self.output.is_full() {
            return false;
        }
        let opcode = Opcode::send(*solicited, invalidate.is_some());
        let header = ddp::whole_send(opcode, invalidate.map_or(0, |handle| handle.0), self.send_msn);
        self.output.put_fpdu(&header, message);
        self.send_msn = self.send_msn.wrapping_add(1);
        self.unmarked_sends = Some(self.work.push_copied(*id, *signaled));
        true
    }

    /// Updates `frames_below`, the length below which Sends are framed when they are posted. Called when anything that
    /// it depends on may have changed. Sends that are framed when they are posted do not overtake other requests (RFC
    /// 5040 §5.3, §5.5, RFC 5041 §5.3).
    pub(super) fn update_framing(&mut self) {
        // RFC 5044 §7.1.2 rule 4.
        let may_frame = self.may_send && self.broken.is_none();
        let is_next = !self.has_unframed() && !self.output.is_started();
        self.frames_below = if may_frame && is_next { COPIED_SEND.min(self.max_ulpdu - ddp::UNTAGGED) + 1 } else { 0 };
    }

    /// Returns `true` if there may be something to frame.
    fn has_unframed(&self) -> bool {
        let has_messages = !self.work.is_framed() || self.framed_responses < self.responses.len();
        // Only an ending connection has anything else to send: a Terminate.
        has_messages || !self.is_fully_open()
    }

    /// Fills the batch with segments, or with the Terminate of an ending connection.
    fn frame(&mut self) {
        if self.broken.is_some() {
            return;
        }
        match &self.phase {
            // RFC 5044 §7.1.2 rule 4.
            EndpointPhase::Open | EndpointPhase::Draining if self.may_send => {
                while !self.output.is_full() && self.frame_segment() {}
            }
            EndpointPhase::Ending { end_sent: false, .. } => {
                // Rule 4 also applies here: if nothing has arrived yet, the connection ends without a Terminate.
                if let Some(terminate) = self.terminate.take().filter(|_| self.may_send) {
                    // RFC 5040 §5.4, RFC 5041 §6.2.2: the Terminate is the only message on its queue, and the last
                    // message of all.
                    let control = DdpControl::new(Opcode::Terminate, true);
                    let header = DdpHeader::Untagged { control, invalidate: 0, queue: queue::TERMINATE, msn: 1, mo: 0 };
                    copy(&mut self.output, &header, &terminate);
                }
            }
            _ => {}
        }
    }

    /// Frames one segment. Returns `false` if none can be framed now.
    ///
    /// Segments of different messages are not interleaved (RFC 5041 §5.3), so work requests and RDMA Read Responses
    /// take turns message by message.
    fn frame_segment(&mut self) -> bool {
        if self.current == FramedMessage::None {
            let response = self.framed_responses < self.responses.len();
            let reads_exhausted = self.reads.len() >= self.ord;
            // RFC 5040 §6.1: no more RDMA Reads in flight than negotiated. §5.5 rule 13: requests posted later wait.
            let work = match self.work.current() {
                Some((_, WorkRequest::Read { .. })) => !reads_exhausted,
                next => next.is_some(),
            };
            self.current = match (response, work) {
                (false, false) => return false,
                (true, _) if self.response_turn || !work => FramedMessage::Response(0),
                _ => FramedMessage::Work(0),
            };
            self.response_turn = matches!(self.current, FramedMessage::Work(_));
        }
        match self.current {
            FramedMessage::None => false,
            FramedMessage::Response(from) => self.frame_response(from),
            FramedMessage::Work(from) => self.frame_work(from),
        }
    }

    /// Frames a segment of an RDMA Read Response (RFC 5040 §4.1, §5.2.1). Responses are in the order of the requests
    /// (RFC 5040 §5.2.2, §5.5).
    fn frame_response(&mut self, from: usize) -> bool {
        let Some(response) = self.responses.get(self.framed_responses) else {
            self.current = FramedMessage::None;
            return false;
        };
        let (range, last) = part(response.source.len(), from, self.max_ulpdu - ddp::TAGGED);
        let header = DdpHeader::Tagged {
            control: DdpControl::new(Opcode::ReadResponse, last),
            // RFC 5040 §4.4: copied from the request without interpretation.
            stag: response.sink_stag,
            offset: response.sink_offset.wrapping_add(from as u64),
        };
        begin(&mut self.output, &header, range.len());
        let place = PieceLocation::Response(self.first_response + self.framed_responses as u64);
        self.output.put_by_reference(place, range.start, response.source.get(range.clone()).unwrap_or_default());
        self.output.end();
        self.current = FramedMessage::Response(range.end);
        if last {
            self.output.mark(SendMark::Response);
            self.framed_responses += 1;
            self.current = FramedMessage::None;
        }
        true
    }

    /// Frames a segment of a Send (RFC 5040 §5.3), an RDMA Write (RFC 5040 §5.1) or an RDMA Read Request (RFC 5040
    /// §4.2, §5.2.1). The segments of a message have the fields of RFC 5040 §4.1, figure 4, and differ in L and the
    /// offset only (RFC 5041 §4.1, §4.2, §4.3).
    fn frame_work(&mut self, from: usize) -> bool {
        let Some((seq, op)) = self.work.current() else {
            self.current = FramedMessage::None;
            return false;
        };
        let (end, last) = match op {
            WorkRequest::Send { message, invalidate, solicited, .. } => {
                let (range, last) = part(message.len(), from, self.max_ulpdu - ddp::UNTAGGED);
                let header = DdpHeader::Untagged {
                    control: DdpControl::new(Opcode::send(*solicited, invalidate.is_some()), last),
                    invalidate: invalidate.map_or(0, |handle| handle.0),
                    queue: queue::SEND,
                    msn: self.send_msn,
                    // Checked when posted: messages are shorter than 2^32 bytes.
                    mo: u32::try_from(range.start).unwrap_or(u32::MAX),
                };
                let payload = message.get(range.clone()).unwrap_or_default();
                if message.len() <= COPIED_SEND {
                    copy(&mut self.output, &header, payload);
                } else {
                    begin(&mut self.output, &header, range.len());
                    self.output.put_by_reference(PieceLocation::Work(seq), range.start, payload);
                    self.output.end();
                }
                if last {
                    // RFC 5041 §4.3: the MSN grows by one with each message, modulo 2^32.
                    self.send_msn = self.send_msn.wrapping_add(1);
                    self.output.mark(SendMark::Work(seq));
                }
                (range.end, last)
            }
            WorkRequest::Write { source, remote, .. } => {
                let (range, last) = part(source.len(), from, self.max_ulpdu - ddp::TAGGED);
                let header = DdpHeader::Tagged {
                    control: DdpControl::new(Opcode::Write, last),
                    stag: remote.handle.0,
                    // The peer refuses an offset that wraps (RFC 5041 §7.1 check 5).
                    offset: remote.offset.wrapping_add(from as u64),
                };
                begin(&mut self.output, &header, range.len());
                let payload = source.get(range.clone()).unwrap_or_default();
                self.output.put_by_reference(PieceLocation::Work(seq), range.start, payload);
                self.output.end();
                if last {
                    self.output.mark(SendMark::Work(seq));
                }
                (range.end, last)
            }
            WorkRequest::Read { sink, sink_offset, remote, len, .. } => {
                let control = DdpControl::new(Opcode::ReadRequest, true);
                let header = DdpHeader::Untagged {
                    control,
                    invalidate: 0,
                    queue: queue::READ_REQUEST,
                    msn: self.read_msn,
                    mo: 0,
                };
                let request = ReadRequest {
                    sink_stag: sink.0,
                    sink_offset: *sink_offset,
                    len: *len,
                    source_stag: remote.handle.0,
                    source_offset: remote.offset,
                };
                copy(&mut self.output, &header, &request.encode());
                self.read_msn = self.read_msn.wrapping_add(1);
                self.reads.push_back(OutboundRead {
                    work: seq,
                    sink: sink.0,
                    next: *sink_offset,
                    left: u64::from(*len),
                });
                (0, true)
            }
            // Never queued.
            WorkRequest::Invalidate { .. } => (0, true),
        };
        self.current = FramedMessage::Work(end);
        if last {
            self.work.framed();
            self.current = FramedMessage::None;
        }
        true
    }
}

/// Frames an FPDU with this untagged DDP header and a copy of this payload (RFC 5041 §4.4).
fn copy(output: &mut SendBatch, header: &DdpHeader, payload: &[u8]) {
    let mut bytes = [0; ddp::UNTAGGED];
    header.encode(&mut bytes);
    output.put_fpdu(&bytes, payload);
}

/// Begins an FPDU with this DDP header and `payload_len` bytes of payload (RFC 5041 §4.4).
fn begin(output: &mut SendBatch, header: &DdpHeader, payload_len: usize) {
    let mut bytes = [0; ddp::UNTAGGED];
    let len = header.encode(&mut bytes);
    output.begin(len + payload_len, &bytes[..len]);
}

fn write(
    output: &SendBatch,
    work: &WorkQueue,
    responses: &VecDeque<ReadResponse>,
    first_response: u64,
    cx: &mut Context<'_>,
    link: &mut impl ByteStream,
) -> Poll<std::io::Result<usize>> {
    let payload = |place| match place {
        PieceLocation::Staged => &[],
        PieceLocation::Work(seq) => work.payload(seq),
        PieceLocation::Response(seq) => seq
            .checked_sub(first_response)
            .and_then(|index| responses.get(usize::try_from(index).ok()?))
            .map_or(&[][..], |response| &response.source),
    };
    // Messages without payload in other memory.
    if let Some(bytes) = output.only_staged() {
        return link.poll_write(cx, &[IoSlice::new(bytes)]);
    }
    // Filled in place. It is too large to be moved for each write.
    let mut pieces = ArrayVec::<IoSlice<'_>, IOVECS>::new();
    pieces.extend(output.gather(payload));
    link.poll_write(cx, &pieces)
}
