use std::{
    io::{self, IoSlice},
    task::{Context, Poll, Waker},
};

use proptest::prelude::*;

use super::*;
use crate::{
    byte_stream::ByteStream,
    ddp::{DdpControl, UNTAGGED, queue},
    endpoint::NegotiatedParams,
    memory::BufferPool,
    output::{PieceLocation, SendBatch},
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, RegisterableMemory, RemoteMemory, WorkRequest, WrId,
    },
};

/// A stream whose input arrives in pieces. Reads are pending after the end of the input, and all output is dropped.
struct Pieces<'a> {
    incoming: &'a [u8],
    /// Maximum lengths of reads in bytes, in rotation.
    lens: &'a [usize],
    reads: usize,
}

impl ByteStream for Pieces<'_> {
    fn poll_read(&mut self, _: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        if self.incoming.is_empty() {
            return Poll::Pending;
        }
        let mut left = self.lens.get(self.reads % self.lens.len().max(1)).copied().unwrap_or(usize::MAX).max(1);
        self.reads += 1;
        let mut got = 0;
        for slice in into {
            let len = slice.len().min(left).min(self.incoming.len());
            let (now, later) = self.incoming.split_at(len);
            slice[..len].copy_from_slice(now);
            self.incoming = later;
            left -= len;
            got += len;
        }
        Poll::Ready(Ok(got))
    }

    fn poll_write(&mut self, _: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(from.iter().map(|slice| slice.len()).sum()))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Appends an FPDU with this header and payload.
fn append(out: &mut Vec<u8>, header: &DdpHeader, payload: &[u8]) {
    let mut bytes = [0; UNTAGGED];
    let len = header.encode(&mut bytes);
    let mut output = SendBatch::new(true, false);
    output.begin(len + payload.len(), &bytes[..len]);
    output.put_by_reference(PieceLocation::Work(0), 0, payload);
    output.end();
    out.extend(output.gather(|_| payload).flat_map(|piece| piece.to_vec()));
}

/// The payload of the Send that follows the RDMA Read Response.
const SEND: &[u8] = &[9; 100];

/// An endpoint with an RDMA Read in flight. `sink` is the Read's sink, and `data` the data to expect in it.
struct Reader {
    endpoint: Endpoint,
    sink: MemoryHandle,
    data: Vec<u8>,
}

impl Reader {
    /// Creates a reader whose RDMA Read places `len` bytes at the end of a sink, after 8 other bytes.
    fn new(len: usize) -> Self {
        let mut endpoint = Endpoint::new(NegotiatedParams {
            use_crc: true,
            markers: false,
            max_ulpdu: fpdu::MAX_ULPDU,
            initiator: true,
            ird: 1,
            ord: 1,
            receive_count: 4,
            receive_size: 256,
            pool: BufferPool::default(),
        });
        let memory = RegisterableMemory::Sink(vec![0; len + 8].into());
        let sink = endpoint.register(memory, Access::ReadSink).unwrap().handle;
        let remote = RemoteMemory { handle: MemoryHandle(1), offset: 0 };
        endpoint.post(WorkRequest::Read { id: WrId(1), sink, sink_offset: 8, remote, len: len as u32 });
        let data = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        Self { endpoint, sink, data }
    }

    /// Returns the RDMA Read Response in segments of these sizes in bytes, in rotation, with a Send behind it.
    fn response(&self, sizes: &[usize]) -> Vec<u8> {
        let (mut out, mut from) = (Vec::new(), 0);
        for size in sizes.iter().cycle() {
            let end = self.data.len().min(from + (*size).max(1));
            let control = DdpControl::new(Opcode::ReadResponse, end == self.data.len());
            let header = DdpHeader::Tagged { control, stag: self.sink.0, offset: 8 + from as u64 };
            append(&mut out, &header, &self.data[from..end]);
            from = end;
            if end == self.data.len() {
                break;
            }
        }
        let control = DdpControl::new(Opcode::Send, true);
        append(&mut out, &DdpHeader::Untagged { control, invalidate: 0, queue: queue::SEND, msn: 1, mo: 0 }, SEND);
        out
    }

    /// Receives a stream in reads of at most `lens` bytes, in rotation. Returns the completions and the number of
    /// reads.
    fn receive(&mut self, stream: &[u8], lens: &[usize]) -> (Vec<Completion>, usize) {
        let mut link = Pieces { incoming: stream, lens, reads: 0 };
        let mut cx = Context::from_waker(Waker::noop());
        let mut completions = Vec::new();
        for _ in 0..stream.len() + 64 {
            self.endpoint.seek_input();
            self.endpoint.poll_io(&mut cx, &mut link);
            completions.append(self.endpoint.completions());
        }
        assert!(link.incoming.is_empty() || !self.endpoint.is_open());
        (completions, link.reads)
    }

    /// Receives the RDMA Read Response and the Send behind it, and checks their data. Returns the number of reads.
    fn receive_all(&mut self, stream: &[u8], lens: &[usize]) -> usize {
        let (completions, reads) = self.receive(stream, lens);
        let [Completion::Read { id: WrId(1) }, Completion::Received { message, .. }] = &completions[..] else {
            panic!("{completions:?}")
        };
        assert_eq!(&message[..], SEND);
        self.endpoint.post(WorkRequest::Invalidate { id: WrId(2), handle: self.sink });
        let completions = std::mem::take(self.endpoint.completions());
        let [Completion::Invalidated { memory: RegisterableMemory::Sink(sink), .. }] = &completions[..] else {
            panic!("{completions:?}")
        };
        assert_eq!(sink[..8], [0; 8]);
        assert!(sink[8..] == self.data);
        reads
    }
}

#[test]
fn a_mebibyte_takes_few_reads() {
    let mut reader = Reader::new(1 << 20);
    let stream = reader.response(&[fpdu::MAX_ULPDU - ddp::TAGGED]);
    let reads = reader.receive_all(&stream, &[]);
    // The first header, then 16 segments, then the last one and the Send.
    assert!(reads <= 5, "{reads} reads");
    assert_eq!(reader.endpoint.copied_payload, 0);
}

#[test]
fn other_sizes_are_copied_to_their_place() {
    let mut reader = Reader::new(100_000);
    let stream = reader.response(&[3000, 1000, 5000]);
    reader.receive_all(&stream, &[]);
    assert!(reader.endpoint.copied_payload > 0);
}

#[test]
fn a_payload_may_arrive_without_its_trailer() {
    let mut reader = Reader::new(5000);
    let stream = reader.response(&[1000]);
    let head = fpdu::LENGTH + ddp::TAGGED;
    reader.receive_all(&stream, &[head, 1000, usize::MAX]);
    assert_eq!(reader.endpoint.copied_payload, 0);
}

#[test]
fn each_crc_is_checked() {
    for segment in 0..5 {
        let mut reader = Reader::new(5000);
        let mut stream = reader.response(&[1000]);
        let fpdu = fpdu::LENGTH + ddp::TAGGED + 1000 + fpdu::trailer(ddp::TAGGED + 1000);
        stream[segment * fpdu + 500] ^= 1;
        let (completions, _) = reader.receive(&stream, &[]);
        assert!(
            !completions.iter().any(|one| matches!(one, Completion::Read { .. })),
            "segment {segment}: {completions:?}"
        );
        assert!(!reader.endpoint.is_open(), "segment {segment}");
    }
}

/// Sends between two segments of an RDMA Read Response arrive intact. Read-ahead puts most of their bytes into the
/// sink. These bytes are then staged in pieces that may end in the middle of a Send.
#[test]
fn sends_between_segments_arrive_intact() {
    let mut reader = Reader::new(100_000);
    reader.endpoint.receives.posted = 100;
    let mut stream = reader.response(&[3000]);
    let fpdu = fpdu::LENGTH + ddp::TAGGED + 3000 + fpdu::trailer(ddp::TAGGED + 3000);
    let messages: Vec<Vec<u8>> = (0..90).map(|index| (0..=index + 150).map(|at| at ^ index).collect()).collect();
    let mut sends = Vec::new();
    for (message, msn) in messages.iter().zip(1..) {
        let control = DdpControl::new(Opcode::SendSolicited, true);
        let header = DdpHeader::Untagged { control, invalidate: 0, queue: queue::SEND, msn, mo: 0 };
        append(&mut sends, &header, message);
    }
    // The Send at the end of the response has a number that is used up.
    stream.truncate(stream.len() - SEND.len() - (fpdu::LENGTH + UNTAGGED + fpdu::trailer(UNTAGGED + SEND.len())));
    stream.splice(fpdu..fpdu, sends);
    let (completions, _) = reader.receive(&stream, &[]);
    let received = |one: &Completion| match one {
        Completion::Received { message, .. } => Some(message.to_vec()),
        _ => None,
    };
    assert!(completions.iter().filter_map(received).eq(messages));
    assert!(matches!(completions.last(), Some(Completion::Read { .. })), "{:?}", completions.last());
    assert!(reader.endpoint.stags.sink(reader.sink.0, 8, 100_000).unwrap() == reader.data);
}

#[test]
fn a_response_that_ends_early_is_refused() {
    let mut reader = Reader::new(5000);
    let mut stream = Vec::new();
    for (offset, last) in [(8, false), (1008, true)] {
        let control = DdpControl::new(Opcode::ReadResponse, last);
        append(&mut stream, &DdpHeader::Tagged { control, stag: reader.sink.0, offset }, &[1; 1000]);
    }
    stream.extend([0; 4000]);
    let (_, _) = reader.receive(&stream, &[]);
    assert!(!reader.endpoint.is_open());
    reader.endpoint.finish(DisconnectReason::Remote);
    let completions = std::mem::take(reader.endpoint.completions());
    let violation = completions.iter().any(|one| match one {
        Completion::Disconnected { reason: DisconnectReason::PeerViolation(text) } => {
            text.contains("ends 3000 bytes early")
        }
        _ => false,
    });
    assert!(violation, "{completions:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// An RDMA Read Response in segments of one size arrives intact however the stream is cut. Its payload is not
    /// copied.
    #[test]
    fn any_split_delivers_the_same(
        len in 1_usize..6000,
        size in 1_usize..1500,
        lens in proptest::collection::vec(1_usize..3000, 0..6),
    ) {
        let mut reader = Reader::new(len);
        let stream = reader.response(&[size]);
        reader.receive_all(&stream, &lens);
        prop_assert_eq!(reader.endpoint.copied_payload, 0);
    }

    /// An RDMA Read Response in segments of any sizes arrives intact however the stream is cut.
    #[test]
    fn any_sizes_deliver_the_same(
        len in 1_usize..6000,
        sizes in proptest::collection::vec(1_usize..1500, 1..5),
        lens in proptest::collection::vec(1_usize..3000, 0..6),
    ) {
        let mut reader = Reader::new(len);
        let stream = reader.response(&sizes);
        reader.receive_all(&stream, &lens);
    }
}

/// Appends an RDMA Write of `data` at the start of `stag`, in segments of `size` bytes, and the Send with the message
/// sequence number `msn`.
fn append_write(out: &mut Vec<u8>, stag: MemoryHandle, data: &[u8], size: usize, msn: u32) {
    for from in (0..data.len()).step_by(size) {
        let end = data.len().min(from + size);
        let control = DdpControl::new(Opcode::Write, end == data.len());
        append(out, &DdpHeader::Tagged { control, stag: stag.0, offset: from as u64 }, &data[from..end]);
    }
    let control = DdpControl::new(Opcode::Send, true);
    append(out, &DdpHeader::Untagged { control, invalidate: 0, queue: queue::SEND, msn, mo: 0 }, SEND);
}

/// Receives RDMA Writes of the lengths `writes`, in segments of `size` bytes, each into memory of `room` bytes. Reads
/// return at most `lens` bytes, in rotation. Checks the data. Returns the number of reads, and the number of bytes
/// copied.
fn receive_writes(room: usize, writes: &[usize], size: usize, lens: &[usize]) -> (usize, u64) {
    let mut endpoint = Reader::new(1).endpoint;
    endpoint.receives.posted = writes.len();
    let (mut stream, mut regions) = (Vec::new(), Vec::new());
    for (&len, msn) in writes.iter().zip(1..) {
        let memory = RegisterableMemory::Sink(vec![0; room].into());
        let stag = endpoint.register(memory, Access::RemoteWrite).unwrap().handle;
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251 + msn as usize) as u8).collect();
        append_write(&mut stream, stag, &data, size, msn);
        regions.push((stag, data));
    }
    let mut link = Pieces { incoming: &stream, lens, reads: 0 };
    let mut cx = Context::from_waker(Waker::noop());
    let mut received = 0;
    while !link.incoming.is_empty() {
        endpoint.seek_input();
        endpoint.poll_io(&mut cx, &mut link);
        for completion in endpoint.completions().drain(..) {
            assert!(matches!(completion, Completion::Received { .. }), "{completion:?}");
            received += 1;
        }
    }
    assert_eq!(received, writes.len());
    for (stag, data) in regions {
        assert!(endpoint.stags.sink(stag.0, 0, data.len()).unwrap() == data);
    }
    (link.reads, endpoint.copied_payload)
}

#[test]
fn writes_that_fill_their_memory_take_few_reads() {
    let size = fpdu::MAX_ULPDU - ddp::TAGGED;
    let of = |count| receive_writes(1 << 20, &vec![1 << 20; count], size, &[]);
    let ((before, _), (after, copied)) = (of(FILLING.into()), of(FILLING as usize + 10));
    assert!(after - before <= 50, "{} reads for 10 MiB", after - before);
    assert_eq!(copied, 0);
}

#[test]
fn short_writes_are_not_read_ahead() {
    let (_, copied) = receive_writes(10_000, &[3000; 40], 1000, &[]);
    assert_eq!(copied, 0);
}

/// Read-ahead uses neither memory that an RDMA Write has written nor invalidated memory, because the bytes that are
/// read ahead may belong elsewhere.
#[test]
fn written_memory_is_not_read_into() {
    let mut stags = Reader::new(1).endpoint.stags;
    let memory = RegisterableMemory::Sink(vec![0; 10_000].into());
    let stag = stags.register(memory, Access::RemoteWrite).unwrap().0;
    assert_eq!(stags.unwritten(stag, 1000), Some(9000));
    stags.check_write(stag, 5000, 1000).unwrap();
    assert_eq!(stags.unwritten(stag, 1000), None);
    assert_eq!(stags.unwritten(stag, 5999), None);
    assert_eq!(stags.unwritten(stag, 6000), Some(4000));
    assert!(stags.invalidate_by_peer(stag));
    assert_eq!(stags.unwritten(stag, 6000), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// RDMA Writes arrive intact, however long they are and however the stream is cut.
    #[test]
    fn any_writes_arrive(
        writes in proptest::collection::vec(prop_oneof![3 => Just(4000_usize), 1 => 1_usize..4000], 1..40),
        size in 100_usize..1500,
        lens in proptest::collection::vec(1_usize..9000, 0..6),
    ) {
        receive_writes(4000, &writes, size, &lens);
    }
}

/// The expected segments cover the whole rest of a message, whatever its length.
#[test]
fn expected_segments_cover_the_rest() {
    for len in [1, 99, 100, 101, 250] {
        let ahead = ReadAhead { stag: 1, start: 7, len, full: 100, ulpdu_len: ddp::TAGGED + 100 };
        let segments: Vec<_> = ahead.segments().collect();
        assert_eq!(segments.iter().map(|(_, _, len)| len).sum::<usize>(), len);
        assert_eq!(segments[0].1, 7);
        let last = segments.last().map(|(_, _, len)| gap(ddp::TAGGED + len));
        assert_eq!(Some(ahead.last_gap()), last);
    }
}
