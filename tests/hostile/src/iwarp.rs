//! iWARP of a hostile peer: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040), without the product's code.

use std::collections::BTreeMap;

use crc_fast::crc32_iscsi;
use tokio::io::DuplexStream;

use crate::{
    header::{Segment, put},
    link::Pipe,
};

/// Control bytes of the last segment of a Send.
pub(crate) const SEND: (u8, u8) = (0x41, 0x43);
/// Control bytes of the last segment of a Send with Invalidate.
const SEND_INVALIDATE: (u8, u8) = (0x41, 0x44);
/// Control bytes of the last segment of an RDMA Write.
const WRITE: (u8, u8) = (0xc1, 0x40);
/// Control bytes of an RDMA Read Request.
const READ_REQUEST: (u8, u8) = (0x41, 0x41);
/// Control bytes of the last segment of an RDMA Read Response.
const READ_RESPONSE: (u8, u8) = (0xc1, 0x42);
/// The bit of the first control byte that marks the last segment of a message.
const LAST: u8 = 0x40;
/// The bit of the first control byte that marks tagged segments.
const TAGGED: u8 = 0x80;
/// Length in bytes of the header of an untagged segment.
const UNTAGGED_LEN: usize = 18;
/// Length in bytes of a request or reply frame without private data.
const FRAME_LEN: usize = 20;
/// Maximum length in bytes of the data in a segment.
const MAX_SEGMENT: usize = 8192;

/// A connection of a hostile peer over iWARP.
pub(crate) struct IwarpLink {
    pub(crate) pipe: Pipe,
    is_set_up: bool,
    crc: bool,
    /// Number of the latest message sent in each untagged queue.
    numbers: [u32; 3],
    /// The memory that the product may read or write, by STag.
    memory: BTreeMap<u32, Vec<u8>>,
    message: Vec<u8>,
    /// `true` if the peer responds to RDMA Reads.
    pub(crate) is_responding: bool,
}

impl IwarpLink {
    /// Begins the set-up with a request or a reply. The bits of `form` select variants: 0 for revision 1, 1 for
    /// markers, 2 for a rejection, 3 for no RDMA Reads.
    pub(crate) fn new(stream: DuplexStream, is_initiator: bool, crc: bool, form: u8, private_data: &[u8]) -> Self {
        let mut pipe = Pipe::new(stream);
        pipe.put(if is_initiator { b"MPA ID Req Frame" } else { b"MPA ID Rep Frame" });
        let is_enhanced = form & 1 == 0;
        let flags = (form & 2) << 6 | u8::from(crc) << 6 | (form & 4) << 3 | u8::from(is_enhanced) << 4;
        let len = private_data.len() + if is_enhanced { 4 } else { 0 };
        pipe.put(&[flags, 1 + u8::from(is_enhanced), (len >> 8) as u8, len as u8]);
        if is_enhanced {
            let reads = if form & 8 == 0 { 16 } else { 0 };
            pipe.put(&[0, reads, 0, reads]);
        }
        pipe.put(private_data);
        let (numbers, memory, message) = Default::default();
        Self { pipe, is_set_up: false, crc, numbers, memory, message, is_responding: true }
    }

    /// Sends a segment in a frame. `skew` is added to the length that the frame states.
    pub(crate) fn frame(&mut self, segment: &[u8], skew: i8) {
        let mut out = (segment.len() as u16).wrapping_add_signed(skew.into()).to_be_bytes().to_vec();
        out.extend_from_slice(segment);
        out.resize(out.len().next_multiple_of(4), 0);
        let crc = if self.crc { crc32_iscsi(&out) } else { 0 };
        out.extend_from_slice(&crc.to_le_bytes());
        self.pipe.put(&out);
    }

    /// Encodes an untagged segment with the next message number of `queue`, to which `skew` is added.
    pub(crate) fn untagged(
        &mut self,
        control: (u8, u8),
        word: u32,
        queue: u32,
        skew: i8,
        offset: u32,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut number = 1;
        if let Some(latest) = self.numbers.get_mut(queue as usize) {
            number = *latest + 1;
            if control.0 & LAST != 0 {
                *latest = number;
            }
        }
        let mut out = vec![control.0, control.1];
        put(&mut out, &[word, queue, number.wrapping_add_signed(skew.into()), offset]);
        out.extend_from_slice(payload);
        out
    }

    pub(crate) fn tagged(control: (u8, u8), stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![control.0, control.1];
        put(&mut out, &[stag, (offset >> 32) as u32, offset as u32]);
        out.extend_from_slice(payload);
        out
    }

    pub(crate) fn send(&mut self, message: &[u8], invalidate: Option<u32>) {
        let control = if invalidate.is_some() { SEND_INVALIDATE } else { SEND };
        let mut parts = message.chunks(MAX_SEGMENT).enumerate().peekable();
        if parts.peek().is_none() {
            let segment = self.untagged(control, invalidate.unwrap_or_default(), 0, 0, 0, &[]);
            self.frame(&segment, 0);
        }
        while let Some((nth, part)) = parts.next() {
            let last = if parts.peek().is_none() { 0 } else { LAST };
            let control = (control.0 & !last, control.1);
            let offset = (nth * MAX_SEGMENT) as u32;
            let segment = self.untagged(control, invalidate.unwrap_or_default(), 0, 0, offset, part);
            self.frame(&segment, 0);
        }
    }

    fn send_tagged(&mut self, control: (u8, u8), to: (u32, u64), data: &[u8]) {
        let mut parts = data.chunks(MAX_SEGMENT).enumerate().peekable();
        if parts.peek().is_none() {
            self.frame(&Self::tagged(control, to.0, to.1, &[]), 0);
        }
        while let Some((nth, part)) = parts.next() {
            let last = if parts.peek().is_none() { 0 } else { LAST };
            let offset = to.1.wrapping_add((nth * MAX_SEGMENT) as u64);
            self.frame(&Self::tagged((control.0 & !last, control.1), to.0, offset, part), 0);
        }
    }

    pub(crate) fn write(&mut self, to: Segment, data: &[u8]) {
        self.send_tagged(WRITE, (to.handle, to.offset), data);
    }

    pub(crate) fn read(&mut self, from: Segment) {
        let mut payload = Vec::new();
        put(&mut payload, &[0x5555, 0, 0, from.len, from.handle, (from.offset >> 32) as u32, from.offset as u32]);
        let segment = self.untagged(READ_REQUEST, 0, 1, 0, 0, &payload);
        self.frame(&segment, 0);
    }

    pub(crate) fn expose(&mut self, data: Vec<u8>) -> Segment {
        let handle = 0x1000_0000 + self.memory.len() as u32 * 0x101;
        let len = data.len() as u32;
        self.memory.insert(handle, data);
        Segment { handle, len, offset: 0 }
    }

    pub(crate) fn poll(&mut self) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        self.pipe.poll();
        if !self.is_set_up {
            let arrived = &self.pipe.arrived;
            let Some(head) = arrived.first_chunk::<FRAME_LEN>() else { return messages };
            let len = FRAME_LEN + usize::from(u16::from_be_bytes([head[18], head[19]]));
            if arrived.len() < len {
                return messages;
            }
            // CRCs are used if either side requests them.
            self.crc |= head[16] & 0x40 != 0;
            self.pipe.arrived.drain(..len);
            self.is_set_up = true;
        }
        while let Some(len) = self.pipe.arrived.first_chunk::<2>() {
            let len = usize::from(u16::from_be_bytes(*len));
            let whole = (len + 2).next_multiple_of(4) + 4;
            if self.pipe.arrived.len() < whole {
                break;
            }
            let frame: Vec<u8> = self.pipe.arrived.drain(..whole).collect();
            self.received(&frame[2..2 + len], &mut messages);
        }
        self.pipe.poll();
        messages
    }

    /// Handles a segment. Adds the message to `messages` if the segment completes one.
    fn received(&mut self, segment: &[u8], messages: &mut Vec<Vec<u8>>) {
        let Some((&[ddp, rdmap], _)) = segment.split_first_chunk::<2>() else { return };
        if ddp & TAGGED != 0 {
            return;
        }
        let Some((header, payload)) = segment.split_at_checked(UNTAGGED_LEN) else { return };
        match header[9] {
            0 => {
                self.message.extend_from_slice(payload);
                if ddp & LAST != 0 {
                    messages.push(std::mem::take(&mut self.message));
                }
            }
            1 if rdmap & 15 == READ_REQUEST.1 & 15 && self.is_responding && payload.len() == 28 => {
                let word = |at: usize| payload[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
                let sink = (word(0), u64::from(word(4)) << 32 | u64::from(word(8)));
                let (len, stag, offset) = (word(12) as usize, word(16), word(24) as usize);
                let source = self.memory.get(&stag).map(Vec::as_slice).unwrap_or_default();
                // Memory that was never exposed reads as zeros, up to a limit.
                let mut data = source.get(offset..).unwrap_or_default().to_vec();
                data.resize(len.min(1 << 17), 0);
                self.send_tagged(READ_RESPONSE, sink, &data);
            }
            _ => {}
        }
    }
}
