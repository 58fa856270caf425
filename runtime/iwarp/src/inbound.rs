//! The receive path: checks segments (RFC 5041 §7.1, RFC 5040 §7.2), places their payload and delivers messages.
//!
//! A segment's header is checked on arrival, and its payload is read directly into the destination. The CRC is verified
//! afterwards. A damaged segment can therefore change memory that the peer may write, before the segment is refused.
//! RFC 5044 §6 requires the CRC to be verified first, which would cost a copy of all payload. RFC 5040 §5.5 (rules 4 to
//! 6) leaves the content of such memory indeterminate until a message is delivered, and no message is delivered after a
//! CRC error. Nothing else happens before the CRC is verified: no delivery, and no error report.

use std::{
    io::IoSliceMut,
    task::{Context, Poll, ready},
};

use super::{
    byte_stream::ByteStream,
    ddp::{self, DdpControl, DdpHeader, queue},
    endpoint::{Endpoint, EndpointPhase, IncomingSend, ReadResponse, progress},
    input::{CONTROL, InboundSegment, PayloadTarget, StagedInput, StagingBuffer},
    rdmap::{Opcode, READ_REQUEST, ReadRequest, VERSION as RDMAP_VERSION},
    read_ahead::{ReadAhead, ReadSlices},
    terminate::{FaultySegment, ProtocolFault, ReceivedTerminate, TerminateCode, TerminateSubject},
};
use crate::{
    memory::MessageBuf,
    provider::{Completion, DisconnectReason, MemoryHandle, WorkError},
};

/// The result of one read. It has the number of bytes and, if the read had buffers for expected segments, these
/// segments and the number of bytes in their buffers.
type Arrived = (usize, Option<(ReadAhead, usize)>);

/// Maximum number of reads before output gets its turn.
const READS: usize = 16;

impl Endpoint {
    /// Reads and processes incoming data. Returns `Ready` if bytes were read or the connection has ended. The end of
    /// the stream ends the connection (RFC 5041 §6.2.2, §7, RFC 5044 §7.2).
    pub(super) fn receive(&mut self, cx: &mut Context<'_>, link: &mut impl ByteStream) -> Poll<()> {
        let mut read = false;
        self.input_drained = false;
        for _ in 0..READS {
            match self.read(cx, link) {
                Poll::Pending => {
                    self.input_drained = true;
                    if let Some(error) = self.broken.take() {
                        // Writing failed, and the peer has sent no Terminate that gives the cause.
                        self.finish(DisconnectReason::Transport(error));
                        return Poll::Ready(());
                    }
                    return progress(read);
                }
                Poll::Ready(Ok((len, ahead))) if len > 0 => {
                    read = true;
                    if matches!(self.phase, EndpointPhase::Ending { .. }) {
                        // RFC 5041 §7.1: data that arrives after an error is dropped silently.
                        self.input.consume(usize::MAX);
                        continue;
                    }
                    let processed = match ahead {
                        Some((ahead, len)) => self.process_ahead(ahead, len),
                        None => self.process(),
                    };
                    if let Err((fault, offender)) = processed {
                        self.fail(&fault, offender.as_ref());
                    }
                    if self.is_closed() {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(end) => {
                    self.finish(self.end_of_stream(end.err()));
                    return Poll::Ready(());
                }
            }
        }
        progress(read)
    }

    /// Returns the cause of the end of the stream (RFC 5040 §7.1, RFC 5041 §3, §7, RFC 5044 §7.2, §8).
    fn end_of_stream(&self, error: Option<std::io::Error>) -> DisconnectReason {
        match (error, &self.segment) {
            (Some(error), _) => DisconnectReason::Transport(error.into()),
            (None, Some(segment)) => ended_early(format!(
                "peer closed the stream inside an FPDU, after {} of {} bytes of payload",
                segment.placed, segment.len
            )),
            (None, None) if !self.input.staged().is_empty() => ended_early(format!(
                "peer closed the stream inside an FPDU's header, after {} bytes",
                self.input.staged().len()
            )),
            (None, None) => match (&self.broken, &self.arriving) {
                (Some(error), _) => DisconnectReason::Transport(error.clone()),
                (None, Some(arriving)) => ended_early(format!(
                    "peer closed the stream inside a message, after {} bytes of it",
                    arriving.received
                )),
                (None, None) => DisconnectReason::Remote,
            },
        }
    }

    /// Reads once, whatever the alignment of FPDUs (RFC 5044 §5.1). The rest of the current payload goes into its
    /// destination. The bytes behind it go into the staging buffer, or into the buffers for the expected segments.
    /// Returns the numbers of bytes as [`Arrived`].
    fn read(&mut self, cx: &mut Context<'_>, link: &mut impl ByteStream) -> Poll<std::io::Result<Arrived>> {
        let ending = matches!(self.phase, EndpointPhase::Ending { .. });
        let expects_tagged = !ending && self.stags.expects_tagged();
        let mut ahead = self.read_ahead();
        let Some(segment) = &mut self.segment else {
            let staged = self.input.space(None, 0, expects_tagged);
            let len = ready!(link.poll_read(cx, &mut [staged]))?;
            self.received = self.received.wrapping_add(len as u64);
            self.input.filled(len);
            return Poll::Ready(Ok((len, None)));
        };
        let (from, rest) = (segment.placed, segment.len.saturating_sub(segment.placed));
        let place = match segment.target {
            PayloadTarget::Tagged { stag, start } => {
                self.stags.sink(stag, start + from, rest + ahead.map_or(0, |ahead| ahead.len()))
            }
            PayloadTarget::Receive { start } => {
                self.arriving.as_mut().and_then(|arriving| arriving.buf.get_mut(start + from..start + from + rest))
            }
            PayloadTarget::Control | PayloadTarget::Discard => Some(&mut [][..]),
        };
        let mut payload = place.unwrap_or_else(|| {
            revoked(segment);
            &mut []
        });
        // The sink may have been invalidated.
        ahead = ahead.filter(|ahead| payload.len() > ahead.len());
        let direct = payload.len() - ahead.map_or(0, |ahead| ahead.len());
        let result = if let Some(ahead) = ahead {
            let expected = payload.split_off_mut(direct..).unwrap_or_default();
            let mut slices = ReadSlices::new();
            slices.push(IoSliceMut::new(payload));
            ahead.add_to(&mut slices, expected, &mut self.gaps);
            link.poll_read(cx, &mut slices)
        } else {
            let staged = self.input.space(self.segment.as_ref(), direct, expects_tagged);
            if direct == 0 {
                link.poll_read(cx, &mut [staged])
            } else {
                link.poll_read(cx, &mut [IoSliceMut::new(payload), staged])
            }
        };
        let Poll::Ready(Ok(len)) = result else { return result.map_ok(|_| (0, None)) };
        self.received = self.received.wrapping_add(len as u64);
        let placed = len.min(direct);
        if ahead.is_none() {
            self.input.filled(len - placed);
        }
        if placed > 0 {
            self.placed(placed);
        }
        Poll::Ready(Ok((len, ahead.map(|ahead| (ahead, len - placed)))))
    }

    /// Records `len` bytes of payload read to their destination, and adds them to the CRC (RFC 5044 §4.4).
    pub(super) fn placed(&mut self, len: usize) {
        let Some(segment) = &mut self.segment else { return };
        let bytes = match segment.target {
            PayloadTarget::Tagged { stag, start } => {
                self.stags.sink(stag, start + segment.placed, len).map(|bytes| &*bytes)
            }
            PayloadTarget::Receive { start } => self
                .arriving
                .as_ref()
                .and_then(|arriving| arriving.buf.get(start + segment.placed..start + segment.placed + len)),
            PayloadTarget::Control | PayloadTarget::Discard => None,
        };
        self.input.check(bytes.unwrap_or_default());
        segment.placed += len;
    }

    /// Processes the complete segments that have been read. Stops at a protocol fault, and returns it with the faulty
    /// segment.
    #[inline]
    pub(super) fn process(&mut self) -> Result<(), (ProtocolFault, Option<FaultySegment>)> {
        while self.segment.is_some() || !self.deliver_whole_sends() {
            if !self.process_segment()? {
                break;
            }
        }
        Ok(())
    }

    /// Places the staged payload of the current segment, or else of the next one. Delivers the segment if it is
    /// complete and its CRC is correct (RFC 5044 §4.4, §6). Returns `false` if more bytes are needed, or the connection
    /// is ending.
    fn process_segment(&mut self) -> Result<bool, (ProtocolFault, Option<FaultySegment>)> {
        let mut segment = match self.segment.take() {
            Some(segment) => segment,
            None => match self.input.parse() {
                StagedInput::Incomplete => return Ok(false),
                StagedInput::Header { ulpdu_len, header } => self.begin(ulpdu_len, header),
                StagedInput::TooShort { ulpdu_len } => {
                    let detail = format!("an FPDU of {ulpdu_len} bytes, shorter than its DDP header");
                    let fault = Some(ProtocolFault::new(TerminateCode::STREAM_CATASTROPHIC, detail));
                    InboundSegment {
                        header: None,
                        ulpdu_len,
                        len: ulpdu_len,
                        placed: 0,
                        target: PayloadTarget::Discard,
                        fault,
                    }
                }
            },
        };
        self.place_staged(&mut segment);
        let trailer = if segment.placed < segment.len { None } else { self.input.trailer(segment.ulpdu_len) };
        let Some(crc_right) = trailer else {
            self.segment = Some(segment);
            return Ok(false);
        };
        // An FPDU has arrived, so the initiator is in full operation (RFC 5044 §7.1.2 rule 4).
        self.may_send = true;
        if !crc_right {
            // RFC 5044 §8 code 2. RFC 5040 figure 10: the Terminate has no headers, because they may be damaged.
            return Err((ProtocolFault::new(TerminateCode::MPA_CRC, "an FPDU with a wrong CRC"), None));
        }
        let result = match &segment.fault {
            Some(fault) => Err(fault.clone()),
            None => self.deliver(&segment),
        };
        if let Err(fault) = result {
            let StagingBuffer { offender, control, .. } = &mut self.input;
            if let (Some(DdpHeader::Untagged { queue: queue::READ_REQUEST, .. }), PayloadTarget::Control) =
                (segment.header, segment.target)
            {
                // RFC 5040 §4.8: the Terminate may include the RDMA header.
                offender.keep(&control[..READ_REQUEST]);
            }
            return Err((fault, Some(*offender)));
        }
        Ok(self.is_open())
    }

    /// Removes a segment's payload from the staging buffer, and copies it to its destination, if it has one.
    fn place_staged(&mut self, segment: &mut InboundSegment) {
        let from = segment.placed;
        let len = self.input.staged().len().min(segment.len.saturating_sub(from));
        if len == 0 {
            return;
        }
        let bytes = self.input.staged().get(..len).unwrap_or_default();
        let place = match segment.target {
            PayloadTarget::Tagged { stag, start } => {
                self.copied_payload += len as u64;
                self.stags.sink(stag, start + from, len)
            }
            PayloadTarget::Receive { start } => {
                self.arriving.as_mut().and_then(|arriving| arriving.buf.get_mut(start + from..start + from + len))
            }
            PayloadTarget::Control | PayloadTarget::Discard => None,
        };
        match (place, segment.target) {
            (Some(place), _) => place.copy_from_slice(bytes),
            (None, PayloadTarget::Control) => self.input.keep_control(from, len),
            (None, PayloadTarget::Discard) => {}
            (None, PayloadTarget::Tagged { .. } | PayloadTarget::Receive { .. }) => revoked(segment),
        }
        segment.placed += len;
        self.input.check_staged(len);
        self.input.consume(len);
    }

    /// Checks a new segment's header and decides where its payload goes. DDP gets the ULPDU with its length, and
    /// nothing else of the FPDU (RFC 5044 §3, §4.3).
    fn begin(&mut self, ulpdu_len: usize, header: DdpHeader) -> InboundSegment {
        let len = ulpdu_len.saturating_sub(self.input.offender.len);
        let (target, fault) = match self.check(&header, len) {
            Ok(target) => (if len == 0 { PayloadTarget::Discard } else { target }, None),
            Err(fault) => (PayloadTarget::Discard, Some(fault)),
        };
        InboundSegment { header: Some(header), ulpdu_len, len, placed: 0, target, fault }
    }

    /// Checks versions, opcode and queue of a segment (RFC 5041 §4.1, §7.1, §7.2, RFC 5040 §4.1, §7.2), then the rules
    /// for its kind of message.
    fn check(&mut self, header: &DdpHeader, len: usize) -> Result<PayloadTarget, ProtocolFault> {
        match *header {
            DdpHeader::Tagged { control, stag, offset } => {
                if control.ddp_version != ddp::VERSION {
                    return Err(ProtocolFault::new(
                        TerminateCode::TAGGED_DDP_VERSION,
                        "a tagged segment of an unsupported DDP version",
                    ));
                }
                match opcode(control)? {
                    Opcode::Write => self.check_write(stag, offset, len),
                    Opcode::ReadResponse => self.check_read_response(stag, offset, len),
                    _ => Err(unexpected(control, "in a tagged segment")),
                }
            }
            DdpHeader::Untagged { control, queue, msn, mo, .. } => {
                if control.ddp_version != ddp::VERSION {
                    return Err(ProtocolFault::new(
                        TerminateCode::UNTAGGED_DDP_VERSION,
                        "an untagged segment of an unsupported DDP version",
                    ));
                }
                // RFC 5041 §7.1 check 1 comes first, then the opcode, then the checks of the queue's buffers. These
                // buffers are meant for the queue's own messages (RFC 5040 §4.1, figure 4), so their checks would
                // misreport a message of another kind.
                if !matches!(queue, queue::SEND | queue::READ_REQUEST | queue::TERMINATE) {
                    return Err(ProtocolFault::new(TerminateCode::INVALID_QN, format!("a segment for queue {queue}")));
                }
                let opcode = opcode(control)?;
                match (queue, opcode) {
                    (
                        queue::SEND,
                        Opcode::Send | Opcode::SendInvalidate | Opcode::SendSolicited | Opcode::SendSolicitedInvalidate,
                    ) => self.check_send(control, opcode, msn, mo, len),
                    (queue::READ_REQUEST, Opcode::ReadRequest) => self.check_read_request(control, msn, mo, len),
                    (queue::TERMINATE, Opcode::Terminate) => check_terminate(msn, mo, len),
                    _ => Err(unexpected(control, &format!("on queue {queue}"))),
                }
            }
        }
    }

    /// Checks that the peer may write `len` bytes at `offset` of `stag` (RFC 5041 §8.3). Accepts segments without
    /// payload unchecked.
    fn check_write(&mut self, stag: u32, offset: u64, len: usize) -> Result<PayloadTarget, ProtocolFault> {
        // RFC 5041 §5.2: the STag and TO of a zero-length message MUST NOT be checked. Such a message may be the
        // ready-to-receive indication of RFC 6581 §9.2.
        if len == 0 {
            return Ok(PayloadTarget::Discard);
        }
        match self.stags.check_write(stag, offset, len) {
            Ok(start) => Ok(PayloadTarget::Tagged { stag, start }),
            Err(code) => Err(ProtocolFault::new(
                code,
                format!(
                    "an RDMA Write of {len} bytes at {offset:#x} of {:?}, which does not permit it",
                    MemoryHandle(stag)
                ),
            )),
        }
    }

    /// Checks an RDMA Read Response. RFC 5040 §5.2.2, §5.5: responses arrive in the order of the requests (RFC 5041
    /// §5.3), each into its sink (RFC 5041 §4.2), from front to back and within the bounds (RFC 5042 §6.2.1).
    fn check_read_response(&self, stag: u32, offset: u64, len: usize) -> Result<PayloadTarget, ProtocolFault> {
        let Some(read) = self.reads.front() else {
            return Err(ProtocolFault::new(
                TerminateCode::UNEXPECTED_OPCODE,
                "an RDMA Read Response without an RDMA Read",
            ));
        };
        if len == 0 {
            return Ok(PayloadTarget::Discard);
        }
        if stag != read.sink {
            let detail = format!(
                "an RDMA Read Response for {:?}, which is not the sink of the oldest RDMA Read",
                MemoryHandle(stag)
            );
            return Err(ProtocolFault::new(TerminateCode::TAGGED_INVALID_STAG, detail));
        }
        if offset.checked_add(len as u64).is_none() {
            return Err(ProtocolFault::new(TerminateCode::TAGGED_TO_WRAP, "an RDMA Read Response whose offset wraps"));
        }
        let start = usize::try_from(offset).ok().filter(|_| offset == read.next && len as u64 <= read.left);
        match start {
            Some(start) => Ok(PayloadTarget::Tagged { stag, start }),
            None => Err(ProtocolFault::new(
                TerminateCode::TAGGED_BOUNDS,
                format!(
                    "an RDMA Read Response of {len} bytes at {offset:#x}, where {} bytes at {:#x} were expected",
                    read.left, read.next
                ),
            )),
        }
    }

    /// Checks a segment of a Send: the order of messages and segments (RFC 5041 §5.3, §5.4), the opcode, and the room
    /// in the posted Receive. Takes a buffer for the first segment of a message. `opcode` is one of the four Sends.
    fn check_send(
        &mut self,
        control: DdpControl,
        opcode: Opcode,
        msn: u32,
        mo: u32,
        len: usize,
    ) -> Result<PayloadTarget, ProtocolFault> {
        check_msn(msn, self.expected_send_msn)?;
        let received = self.arriving.as_ref().map_or(0, |arriving| arriving.received);
        check_mo(mo, received)?;
        if self.arriving.as_ref().is_some_and(|arriving| arriving.opcode != opcode) {
            return Err(unexpected(control, "in the middle of another message"));
        }
        if self.arriving.is_none() && self.receives.posted == 0 {
            return Err(ProtocolFault::new(TerminateCode::NO_BUFFER, "a Send for which no Receive is posted"));
        }
        if received.checked_add(len).is_none_or(|len| len > self.receives.size) {
            let detail = format!("a Send longer than the {} bytes of a Receive", self.receives.size);
            return Err(ProtocolFault::new(TerminateCode::TOO_LONG, detail));
        }
        if self.arriving.is_none() {
            self.arriving = Some(IncomingSend { buf: self.receives.buffer(), received: 0, opcode });
        }
        Ok(PayloadTarget::Receive { start: received })
    }

    /// Checks an RDMA Read Request, which must be one segment (RFC 5040 §5.2), and the number of RDMA Reads in flight.
    fn check_read_request(
        &self,
        control: DdpControl,
        msn: u32,
        mo: u32,
        len: usize,
    ) -> Result<PayloadTarget, ProtocolFault> {
        check_msn(msn, self.expected_read_msn)?;
        check_mo(mo, 0)?;
        // RFC 5040 §5.2.1, §5.2.2, §6.1, §8.1.1, RFC 5042 §6.4.3.3: queue 1 has as many buffers as RDMA Reads were
        // negotiated. A buffer is free again once its response has been sent.
        if self.responses.len() >= self.ird {
            let detail = format!("more RDMA Reads in flight than the {} negotiated", self.ird);
            return Err(ProtocolFault::new(TerminateCode::NO_BUFFER, detail));
        }
        if len > READ_REQUEST {
            return Err(ProtocolFault::new(TerminateCode::TOO_LONG, format!("an RDMA Read Request of {len} bytes")));
        }
        if len < READ_REQUEST || !control.last {
            return Err(ProtocolFault::new(
                TerminateCode::UNSPECIFIED,
                format!("an incomplete RDMA Read Request of {len} bytes"),
            ));
        }
        Ok(PayloadTarget::Control)
    }

    /// Processes a segment that has been placed and whose CRC is correct. If the segment ends a message other than an
    /// RDMA Write, the message is delivered.
    fn deliver(&mut self, segment: &InboundSegment) -> Result<(), ProtocolFault> {
        match segment.header {
            Some(DdpHeader::Tagged { control, .. }) if control.opcode == Opcode::ReadResponse as u8 => {
                self.deliver_read_response(control, segment.len)
            }
            // RFC 5040 §5.1: an RDMA Write is placed, but not delivered.
            Some(DdpHeader::Tagged { control, .. }) => {
                if control.last {
                    self.write_ended(segment);
                }
                Ok(())
            }
            None => Ok(()),
            Some(DdpHeader::Untagged { control, invalidate, queue: queue::SEND, .. }) => {
                self.deliver_send(control, invalidate, segment.len)
            }
            Some(DdpHeader::Untagged { queue: queue::READ_REQUEST, .. }) => self.deliver_read_request(),
            Some(DdpHeader::Untagged { .. }) => {
                self.deliver_terminate(segment);
                Ok(())
            }
        }
    }

    /// Completes an RDMA Read when the last segment of its response has arrived (RFC 5040 §5.2, §5.5, RFC 5041 §4.1,
    /// §5.4).
    fn deliver_read_response(&mut self, control: DdpControl, len: usize) -> Result<(), ProtocolFault> {
        let Some(read) = self.reads.front_mut() else { return Ok(()) };
        let len = len as u64;
        read.next = read.next.saturating_add(len);
        read.left = read.left.saturating_sub(len);
        if !control.last {
            return Ok(());
        }
        if read.left > 0 {
            let detail = format!("an RDMA Read Response that ends {} bytes early", read.left);
            return Err(ProtocolFault::new(TerminateCode::UNSPECIFIED, detail));
        }
        let (work, sink) = (read.work, read.sink);
        self.reads.pop_front();
        // The Read completes before an Invalidate that waits for it.
        self.work.finish(work, Ok(()), &mut self.done);
        self.end_use(sink);
        Ok(())
    }

    /// Delivers a Send, with its length and its Invalidate STag, when its last segment has arrived (RFC 5041 §4.1,
    /// §4.3, §5.4).
    fn deliver_send(&mut self, control: DdpControl, invalidate: u32, len: usize) -> Result<(), ProtocolFault> {
        let Some(arriving) = &mut self.arriving else { return Ok(()) };
        arriving.received += len;
        if !control.last {
            return Ok(());
        }
        let invalidated = arriving.opcode.invalidates().then_some(MemoryHandle(invalidate));
        // RFC 5040 §5.3: an STag of another stream is reported as "STag cannot be invalidated".
        if let Some(handle) = invalidated.filter(|handle| !self.stags.invalidate_by_peer(handle.0)) {
            let detail = format!("a Send with Invalidate of {handle:?}, which the peer may not invalidate");
            return Err(ProtocolFault::new(TerminateCode::CANNOT_INVALIDATE, detail));
        }
        self.expected_send_msn = self.expected_send_msn.wrapping_add(1);
        // RFC 5040 §5.3: one Send consumes one Receive.
        self.receives.posted = self.receives.posted.saturating_sub(1);
        if let Some(IncomingSend { buf, received, .. }) = self.arriving.take() {
            self.done.push(Completion::Received { message: MessageBuf::received(buf, received), invalidated });
        }
        Ok(())
    }

    /// Queues the response to an RDMA Read Request. There is one response for each request, in the order of the
    /// requests. The sink of the request is copied into the response (RFC 5040 §4.4, §5.2, §5.2.1, §5.2.2).
    fn deliver_read_request(&mut self) -> Result<(), ProtocolFault> {
        let Some(bytes) = self.input.control.first_chunk::<READ_REQUEST>() else { return Ok(()) };
        let request = ReadRequest::decode(bytes);
        self.expected_read_msn = self.expected_read_msn.wrapping_add(1);
        // RFC 5040 §5.2.1: the source STag and TO of a zero-length Read MUST NOT be validated. RFC 6581 §9.2 uses such
        // a Read as the ready-to-receive indication.
        let (source, source_stag) = if request.len == 0 {
            (bytes::Bytes::new(), None)
        } else {
            let source =
                self.stags.begin_response(request.source_stag, request.source_offset, request.len).map_err(|code| {
                    let ReadRequest { source_stag, source_offset, len, .. } = request;
                    let handle = MemoryHandle(source_stag);
                    let detail = format!(
                        "an RDMA Read of {len} bytes at {source_offset:#x} of {handle:?}, which does not permit it"
                    );
                    ProtocolFault::new(code, detail)
                })?;
            (source, Some(request.source_stag))
        };
        let ReadRequest { sink_stag, sink_offset, .. } = request;
        self.responses.push_back(ReadResponse { sink_stag, sink_offset, source, source_stag });
        Ok(())
    }

    /// Ends the connection with the error in a Terminate (RFC 5040 §5.4). If the error denies access to an RDMA Read,
    /// completes that Read with the error first, or the oldest Read if the Terminate does not name the refused message.
    fn deliver_terminate(&mut self, segment: &InboundSegment) {
        let payload = self.input.control.get(..segment.len).unwrap_or_default();
        let Some(received) = ReceivedTerminate::decode(payload) else {
            self.finish(DisconnectReason::ReportedByPeer("Terminate without an error code".to_owned()));
            return;
        };
        let text = received.describe();
        if received.is_remote_access() {
            let oldest = self.read_msn.wrapping_sub(self.reads.len() as u32);
            let refused = match received.about {
                TerminateSubject::Read { msn } => self.reads.get(msn.wrapping_sub(oldest) as usize),
                TerminateSubject::Unknown => self.reads.front(),
                TerminateSubject::Other => None,
            };
            if let Some(work) = refused.map(|read| read.work) {
                let error = WorkError::RemoteAccess(text.clone());
                self.work.finish(work, Err(error), &mut self.done);
            }
        }
        self.finish(match received.is_remote_access() || received.is_tagged_buffer_error() {
            true => DisconnectReason::RemoteAccess(text),
            false => DisconnectReason::ReportedByPeer(text),
        });
    }
}

fn ended_early(message: String) -> DisconnectReason {
    DisconnectReason::Transport(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, message).into())
}

/// Marks a segment as faulty because its destination was invalidated while the segment arrived. The rest of the segment
/// is dropped (RFC 5042 §6.2.2).
fn revoked(segment: &mut InboundSegment) {
    segment.target = PayloadTarget::Discard;
    segment.fault = Some(ProtocolFault::new(
        TerminateCode::TAGGED_INVALID_STAG,
        "tagged data for memory that was invalidated meanwhile",
    ));
}

fn opcode(control: DdpControl) -> Result<Opcode, ProtocolFault> {
    // RFC 5040 §4.1, §4.8, §7.2 check 3.
    if control.rdmap_version != RDMAP_VERSION {
        return Err(ProtocolFault::new(
            TerminateCode::RDMAP_VERSION,
            format!("RDMAP version {}", control.rdmap_version),
        ));
    }
    Opcode::decode(control.opcode).ok_or_else(|| {
        ProtocolFault::new(
            TerminateCode::UNEXPECTED_OPCODE,
            format!("RDMAP opcode {:#x}, which is reserved", control.opcode),
        )
    })
}

fn unexpected(control: DdpControl, place: &str) -> ProtocolFault {
    ProtocolFault::new(TerminateCode::UNEXPECTED_OPCODE, format!("RDMAP opcode {:#x} {place}", control.opcode))
}

/// Checks the message sequence number (RFC 5041 §5.3, §7.2, §7.1 check 5). TCP preserves order, so only the next MSN is
/// valid.
fn check_msn(msn: u32, expected: u32) -> Result<(), ProtocolFault> {
    if msn == expected {
        return Ok(());
    }
    Err(ProtocolFault::new(
        TerminateCode::INVALID_MSN,
        format!("message sequence number {msn} where {expected} was expected"),
    ))
}

/// Checks the message offset (RFC 5041 §7.2, §7.1 check 3). TCP preserves order, so a message's segments arrive from
/// front to back.
fn check_mo(mo: u32, expected: usize) -> Result<(), ProtocolFault> {
    if usize::try_from(mo) == Ok(expected) {
        return Ok(());
    }
    Err(ProtocolFault::new(TerminateCode::INVALID_MO, format!("message offset {mo} where {expected} was expected")))
}

/// Checks a Terminate. There is always a buffer for one (RFC 5040 §5.4).
fn check_terminate(msn: u32, mo: u32, len: usize) -> Result<PayloadTarget, ProtocolFault> {
    check_msn(msn, 1)?;
    check_mo(mo, 0)?;
    if len > CONTROL {
        return Err(ProtocolFault::new(TerminateCode::TOO_LONG, format!("a Terminate of {len} bytes")));
    }
    Ok(PayloadTarget::Control)
}
