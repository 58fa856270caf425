//! Entry points for fuzzers, without a socket: the byte stream of an established connection, and MPA frames.

use std::{
    io::{self, IoSlice, IoSliceMut},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;

use super::{
    byte_stream::ByteStream,
    endpoint::{Endpoint, IoProgress, NegotiatedParams},
    mpa::{
        fpdu,
        frames::{FrameHeader, FrameKind, HEADER, MAX_PRIVATE_DATA},
    },
};
use crate::{
    memory::BufferPool,
    provider::{Access, Completion, MemoryHandle, RegisterableMemory, RemoteMemory, WorkRequest, WrId},
};

/// A stream whose input arrives in pieces. Accepts and records all output.
pub(crate) struct Script<'a> {
    /// The data that has not arrived yet.
    pub(crate) incoming: &'a [u8],
    /// Sizes in bytes of the pieces that arrive, in rotation. A size of 0 makes a read pending if the number of earlier
    /// reads is even, and otherwise delivers one byte. If there are no sizes, reads are not limited.
    pub(crate) pieces: &'a [u8],
    turn: usize,
    /// The data that was sent.
    pub(crate) outgoing: Vec<u8>,
}

impl<'a> Script<'a> {
    pub(crate) fn new(incoming: &'a [u8], pieces: &'a [u8]) -> Self {
        Self { incoming, pieces, turn: 0, outgoing: Vec::new() }
    }

    /// Runs an endpoint on this stream until the endpoint is closed. Returns the completions of the endpoint.
    #[cfg(test)]
    pub(crate) fn run_to_end(&mut self, endpoint: &mut Endpoint) -> Vec<Completion> {
        let mut cx = Context::from_waker(Waker::noop());
        let mut completions = Vec::new();
        while !endpoint.is_closed() {
            endpoint.seek_input();
            endpoint.poll_io(&mut cx, self);
            completions.append(endpoint.completions());
        }
        completions
    }
}

impl ByteStream for Script<'_> {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let piece = self.pieces.get(self.turn % self.pieces.len().max(1)).map_or(usize::MAX, |len| usize::from(*len));
        self.turn += 1;
        if piece == 0 && self.turn % 2 == 1 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut left = piece.max(1);
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
        let before = self.outgoing.len();
        for slice in from {
            self.outgoing.extend_from_slice(slice);
        }
        Poll::Ready(Ok(self.outgoing.len() - before))
    }

    fn poll_shutdown(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Creates an endpoint that receives the input of a fuzzer. If `use_crc` is `false`, CRCs are not checked, so that
/// input without correct CRCs is processed.
pub(crate) fn endpoint(use_crc: bool) -> Endpoint {
    Endpoint::new(NegotiatedParams {
        use_crc,
        markers: false,
        max_ulpdu: fpdu::MAX_ULPDU,
        initiator: false,
        ird: 4,
        ord: 4,
        receive_count: 8,
        receive_size: 256,
        pool: BufferPool::default(),
    })
}

/// Feeds `input` to the receive path of a connection that has registered memory and a posted RDMA Read.
///
/// The first byte selects options. Bit 0: CRCs are checked. Bit 1: the STags of the FPDUs in the remaining bytes are
/// replaced by those of the registered memory, which are random and which a fuzzer cannot guess. Bit 2: the remaining
/// bytes arrive in pieces. The other bits select the sizes of the pieces.
///
/// # Panics
/// Panics if the connection stays open after the end of the stream, or if `Disconnected` is not the last completion or
/// is reported more than once.
pub fn fuzz_mpa_stream(input: &[u8]) {
    let Some((&mode, stream)) = input.split_first() else { return };
    let mut endpoint = endpoint(mode & 1 != 0);
    let source = endpoint.register(RegisterableMemory::Source(Bytes::from(vec![7; 100])), Access::RemoteRead);
    let sink = endpoint.register(RegisterableMemory::Sink(vec![0; 100].into()), Access::RemoteWrite);
    let landing = endpoint.register(RegisterableMemory::Sink(vec![0; 100].into()), Access::ReadSink);
    let (Ok(source), Ok(sink), Ok(landing)) = (source, sink, landing) else { return };
    let remote = RemoteMemory { handle: MemoryHandle(1), offset: 0 };
    endpoint.post(WorkRequest::Read { id: WrId(1), sink: landing.handle, sink_offset: 0, remote, len: 100 });
    let mut stream = stream.to_vec();
    if mode & 2 != 0 {
        name_stags(&mut stream, &[source.handle.0, sink.handle.0, landing.handle.0]);
    }
    let pieces = [mode >> 4, mode >> 2];
    let mut link = Script::new(&stream, if mode & 4 != 0 { &pieces } else { &[] });
    let mut cx = Context::from_waker(Waker::noop());
    let mut completions = Vec::new();
    // Each poll that is not idle reads at least one byte or ends the connection.
    for _ in 0..stream.len() * 4 + 64 {
        endpoint.seek_input();
        let io = endpoint.poll_io(&mut cx, &mut link);
        completions.append(endpoint.completions());
        if endpoint.is_closed() && io == IoProgress::Idle {
            break;
        }
    }
    assert!(endpoint.is_closed(), "the connection is still open after the end of the stream");
    let ends = completions.iter().filter(|c| matches!(c, Completion::Disconnected { .. })).count();
    assert_eq!(ends, 1);
    assert!(matches!(completions.last(), Some(Completion::Disconnected { .. })));
}

/// Decodes bytes as an MPA request frame and as a reply frame (RFC 5044 §7.1.1, RFC 6581 §9).
///
/// # Panics
/// Panics if a frame with more than 512 bytes of private data is accepted, or if an accepted frame does not survive
/// encoding and decoding.
pub fn mpa_frames(bytes: &[u8]) {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() else {
        let _ = FrameHeader::check_key(FrameKind::Request, bytes);
        let _ = FrameHeader::check_key(FrameKind::Reply, bytes);
        return;
    };
    for kind in [FrameKind::Request, FrameKind::Reply] {
        let Ok(decoded) = FrameHeader::decode(kind, head) else { continue };
        let len = decoded.private_data_len();
        assert!(len <= MAX_PRIVATE_DATA);
        let Some(private_data) = rest.get(..len) else { continue };
        let (frame, private_data) = decoded.with_private_data(private_data);
        let encoded = frame.encode(&private_data).expect("private data has an accepted length");
        let (again, rest) = encoded.split_first_chunk::<HEADER>().expect("encoded frame has a header");
        let again = FrameHeader::decode(kind, again).expect("encoded frame decodes");
        assert_eq!(again.with_private_data(rest), (frame, private_data));
    }
}

/// Overwrites the STags in each FPDU in `stream` with one of `stags`, in rotation: the bytes where a tagged header has
/// its STag, and the bytes where an RDMA Read Request has its source STag.
fn name_stags(stream: &mut [u8], stags: &[u32]) {
    let (mut at, mut turn) = (0, 0);
    while let Some(&[high, low]) = stream.get(at..).and_then(|rest| rest.first_chunk::<2>()) {
        let len = usize::from(u16::from_be_bytes([high, low]));
        // The tagged header's STag, and the source STag of an RDMA Read Request.
        for place in [at + 4, at + 2 + 18 + 16] {
            if let (Some(bytes), Some(stag)) = (stream.get_mut(place..place + 4), stags.get(turn % stags.len())) {
                bytes.copy_from_slice(&stag.to_be_bytes());
            }
        }
        turn += 1;
        at += 2 + len + fpdu::trailer(len);
    }
}

#[cfg(test)]
mod tests;
