use std::{
    io::{self, IoSlice, IoSliceMut},
    task::{Context, Waker},
};

use super::*;
use crate::{
    byte_stream::ByteStream,
    ddp::{DdpControl, DdpHeader, UNTAGGED, queue},
    fuzz::{Script, endpoint},
    memory::MessageBuf,
    output::PieceLocation,
    rdmap::READ_REQUEST,
};

/// Encodes an untagged message of one segment.
fn untagged(opcode: Opcode, queue: u32, msn: u32, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; UNTAGGED];
    let control = DdpControl::new(opcode, true);
    DdpHeader::Untagged { control, invalidate: 0, queue, msn, mo: 0 }.encode(&mut header);
    let mut ulpdu = header.to_vec();
    ulpdu.extend_from_slice(payload);
    ulpdu
}

/// Frames a ULPDU, with `pad` as its pad bytes. The CRC covers the pad.
fn fpdu(ulpdu: &[u8], pad: u8) -> Vec<u8> {
    let mut out = u16::try_from(ulpdu.len()).unwrap().to_be_bytes().to_vec();
    out.extend_from_slice(ulpdu);
    out.resize(out.len().next_multiple_of(4), pad);
    out.extend_from_slice(&crate::mpa::crc::of(&out));
    out
}

/// Feeds a stream in pieces of these sizes. Returns the completions before the end of the stream, which must be
/// orderly.
fn feed(endpoint: &mut Endpoint, stream: &[u8], pieces: &[u8]) -> Vec<Completion> {
    let mut completions = Script::new(stream, pieces).run_to_end(endpoint);
    let end = completions.pop();
    assert!(matches!(end, Some(Completion::Disconnected { reason: DisconnectReason::Remote })), "{end:?}");
    completions
}

/// Transmits the posted requests. Returns the sent bytes.
fn sent(endpoint: &mut Endpoint) -> Vec<u8> {
    let mut link = Script::new(&[], &[]);
    let mut cx = Context::from_waker(Waker::noop());
    let _ = endpoint.transmit(&mut cx, &mut link);
    link.outgoing
}

fn message(len: usize) -> MessageBuf {
    MessageBuf::received(vec![7; len].into(), len)
}

fn send(len: usize) -> WorkRequest {
    WorkRequest::Send { id: WrId(1), message: message(len), invalidate: None, solicited: false, signaled: true }
}

/// RFC 5041 §4.3: the sequence number 0 follows 0xffff_ffff, in both directions, for Sends and for RDMA Read Requests.
#[test]
fn sequence_numbers_wrap() {
    for len in [10, 100] {
        let mut endpoint = endpoint(true);
        (endpoint.expected_send_msn, endpoint.expected_read_msn) = (u32::MAX, u32::MAX);
        let mut stream = Vec::new();
        for msn in [u32::MAX, 0, 1] {
            // Both ways of delivery: Sends of the most frequent kind, and others.
            let opcode = if len == 10 { Opcode::Send } else { Opcode::SendSolicited };
            stream.extend(fpdu(&untagged(opcode, queue::SEND, msn, &vec![1; len]), 0));
            stream.extend(fpdu(&untagged(Opcode::ReadRequest, queue::READ_REQUEST, msn, &[0; READ_REQUEST]), 0));
        }
        let completions = feed(&mut endpoint, &stream, &[]);
        assert_eq!(completions.len(), 3, "{completions:?}");
        assert_eq!((endpoint.expected_send_msn, endpoint.expected_read_msn), (2, 2));
    }
    // Both ways of framing: short Sends when they are posted, longer ones later.
    for len in [10, 5000] {
        let mut endpoint = endpoint(true);
        endpoint.may_send = true;
        endpoint.update_framing();
        (endpoint.send_msn, endpoint.read_msn) = (u32::MAX, u32::MAX);
        let sink = endpoint.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::ReadSink).unwrap().handle;
        let remote = RemoteMemory { handle: MemoryHandle(1), offset: 0 };
        let mut expected = Vec::new();
        for msn in [u32::MAX, 0, 1] {
            endpoint.post(send(len));
            expected.push((0x43, msn));
        }
        for msn in [u32::MAX, 0, 1] {
            endpoint.post(WorkRequest::Read { id: WrId(2), sink, sink_offset: 0, remote, len: 8 });
            expected.push((0x41, msn));
        }
        let mut sent = &sent(&mut endpoint)[..];
        for (opcode, msn) in expected {
            let ulpdu_len = usize::from(u16::from_be_bytes([sent[0], sent[1]]));
            assert_eq!((sent[3], &sent[12..16]), (opcode, &msn.to_be_bytes()[..]));
            sent = &sent[(2 + ulpdu_len).next_multiple_of(4) + 4..];
        }
        assert!(sent.is_empty());
    }
}

/// RFC 5041 §5.2: messages are shorter than 2^32 bytes.
#[test]
fn messages_have_their_limit() {
    assert!(check_len("Send", u32::MAX as usize).is_ok());
    let too_long = usize::try_from(1_u64 << 32);
    assert!(too_long.is_err() || check_len("Send", too_long.unwrap()).is_err());
}

/// RFC 5044 §4.1: a received pad may contain anything.
#[test]
fn received_pads_are_ignored() {
    for pieces in [&[][..], &[1], &[3, 7]] {
        let mut endpoint = endpoint(true);
        let sink = endpoint.register(RegisterableMemory::Sink(vec![0; 8].into()), Access::RemoteWrite).unwrap().handle;
        let mut tagged = vec![0xc1, 0x40];
        tagged.extend_from_slice(&sink.0.to_be_bytes());
        tagged.extend_from_slice(&[0; 8]);
        tagged.extend_from_slice(b"abc");
        let mut stream = Vec::new();
        for (msn, opcode) in (1..).zip([Opcode::Send, Opcode::SendSolicited, Opcode::Send]) {
            stream.extend(fpdu(&untagged(opcode, queue::SEND, msn, b"x"), 0xff));
            stream.extend(fpdu(&tagged, 0x80));
        }
        let completions = feed(&mut endpoint, &stream, pieces);
        assert_eq!(completions.len(), 3, "{completions:?}");
        assert!(
            completions.iter().all(|one| matches!(one, Completion::Received { message, .. } if **message == *b"x"))
        );
    }
}

/// RFC 5044 §4.1: the pad is zero, even in a buffer that was used before.
#[test]
fn sent_pads_are_zero() {
    for markers in [false, true] {
        let mut output = SendBatch::new(true, markers);
        for len in [100, 1, 2, 3, 4] {
            output.put_fpdu(&[0xff; UNTAGGED], &vec![0xff; len]);
            let bytes: Vec<u8> = output.gather(|_| &[]).flat_map(|piece| piece.to_vec()).collect();
            let ulpdu_end = bytes.len() - 4 - fpdu::pad(UNTAGGED + len);
            assert!(bytes[ulpdu_end..bytes.len() - 4].iter().all(|byte| *byte == 0), "{len}: {bytes:02x?}");
            output.advance(bytes.len());
        }
        output.begin(1, &[]);
        output.put_by_reference(PieceLocation::Work(0), 0, &[0xff]);
        output.end();
        let bytes: Vec<u8> = output.gather(|_| &[0xff]).flat_map(|piece| piece.to_vec()).collect();
        assert_eq!(bytes[bytes.len() - 6..bytes.len() - 4], [0xff, 0]);
    }
}

/// A stream that delivers data and whose writes fail.
struct Broken<'a> {
    incoming: &'a [u8],
}

impl ByteStream for Broken<'_> {
    fn poll_read(&mut self, _: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let mut got = 0;
        for slice in into {
            let (now, later) = self.incoming.split_at(slice.len().min(self.incoming.len()));
            slice[..now.len()].copy_from_slice(now);
            self.incoming = later;
            got += now.len();
        }
        if got == 0 { Poll::Pending } else { Poll::Ready(Ok(got)) }
    }

    fn poll_write(&mut self, _: &mut Context<'_>, _: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// RFC 5041 §3, §6.2.2: a failure to write is reported after the peer's data has been read, unless this data is a
/// Terminate, which is reported instead. Outstanding requests fail.
#[test]
fn write_errors_are_reported() {
    let terminate = fpdu(&untagged(Opcode::Terminate, queue::TERMINATE, 1, &[0x12, 0x02, 0, 0]), 0);
    for incoming in [&[][..], &terminate] {
        let mut endpoint = endpoint(true);
        endpoint.may_send = true;
        endpoint.update_framing();
        endpoint.post(send(10));
        endpoint.post(send(5000));
        let mut cx = Context::from_waker(Waker::noop());
        endpoint.poll_io(&mut cx, &mut Broken { incoming });
        let mut completions = std::mem::take(endpoint.completions());
        let Some(Completion::Disconnected { reason }) = completions.pop() else { panic!("{completions:?}") };
        match reason {
            DisconnectReason::Transport(error) => assert!(incoming.is_empty(), "{error}"),
            DisconnectReason::ReportedByPeer(_) => assert!(!incoming.is_empty()),
            other => panic!("{other:?}"),
        }
        assert_eq!(completions.len(), 2);
        let is_flushed = |one: &Completion| matches!(one, Completion::Failed { error: WorkError::Flushed, .. });
        assert!(completions.iter().all(is_flushed), "{completions:?}");
    }
}

/// A stream that accepts `room` bytes, and then is full.
struct Narrow {
    room: usize,
}

impl ByteStream for Narrow {
    fn poll_read(&mut self, _: &mut Context<'_>, _: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_write(&mut self, _: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let len = self.room.min(from.iter().map(|slice| slice.len()).sum());
        self.room -= len;
        if len == 0 { Poll::Pending } else { Poll::Ready(Ok(len)) }
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

/// RFC 5040 §5.5: no Send completes before its last byte has been written, whether it was framed when it was posted or
/// later.
#[test]
fn sends_complete_when_they_are_written() {
    let mut endpoint = endpoint(true);
    endpoint.may_send = true;
    endpoint.update_framing();
    let mut cx = Context::from_waker(Waker::noop());
    for (len, fpdu) in [(8, 32), (12, 36), (5000, 5024), (4, 28)] {
        for _ in 0..2 {
            endpoint.post(send(len));
            endpoint.poll_io(&mut cx, &mut Narrow { room: 0 });
        }
        // Short Sends that are framed one after the other complete together.
        let first = usize::from(len == 5000);
        for (room, count) in [(fpdu - 1, 0), (1, first), (fpdu - 1, 0), (1, 2 - first)] {
            endpoint.poll_io(&mut cx, &mut Narrow { room });
            assert_eq!(endpoint.completions().drain(..).count(), count, "{len}");
        }
    }
}
