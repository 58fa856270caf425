//! Calls and replies with known contents.

use std::time::{Duration, Instant};

use bytes::Bytes;
use rpcrdma::xdr::{ReducedItem, pad_len, padded_len};
use rpcrdma_proto::{
    engine::{
        CallPolicy, ChunkItems, Connection, IncomingCall, IncomingReply, OutgoingCall, OutgoingReply, ReplyResources,
        ResultChunk, message_buf,
    },
    memory::{BufferPool, MessageBuf, Output},
};

/// A call and its reply, with contents that the receiver can check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) number: u32,
    /// Length of the call in bytes, without eligible items and without the 12 bytes of its header. [`Script::outgoing`]
    /// rounds it up to a multiple of four.
    pub(crate) inline: usize,
    /// Lengths of the eligible arguments in bytes. The arguments follow the inline part.
    pub(crate) args: Vec<usize>,
    /// `true` if the arguments are reduced.
    pub(crate) reduce: bool,
    /// Length of the reply in bytes, without eligible items and without the 12 bytes of its header.
    pub(crate) reply_inline: usize,
    /// Lengths of the eligible results, and their declared maximum lengths, in bytes.
    pub(crate) results: Vec<(usize, u64)>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) policy: CallPolicy,
}

/// Returns `len` pseudo-random bytes that depend on the seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Bytes {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..len).map(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    });
    bytes.collect::<Vec<u8>>().into()
}

pub(crate) fn word(bytes: &[u8], n: usize) -> u32 {
    u32::from_be_bytes(bytes[4 * n..4 * n + 4].try_into().unwrap())
}

fn message(pool: &BufferPool, msg_type: u32, number: u32, inline: &[u8]) -> MessageBuf {
    let mut message = message_buf(pool, 12);
    for word in [0xdead_beef, msg_type, number] {
        message.append(&word.to_be_bytes());
    }
    message.append(inline);
    message.append(&vec![0; pad_len(inline.len())]);
    message
}

fn put_item(message: &mut MessageBuf, item: &[u8]) {
    message.append(item);
    message.append(&vec![0; pad_len(item.len())]);
}

impl Script {
    fn seed(&self, what: u64) -> u64 {
        u64::from(self.number) << 16 | what
    }

    pub(crate) fn arg(&self, n: usize) -> Bytes {
        pattern(self.seed(100 + n as u64), self.args[n])
    }

    pub(crate) fn result(&self, n: usize) -> Bytes {
        pattern(self.seed(200 + n as u64), self.results[n].0)
    }

    /// Returns the call as the upper layer passes it to the engine.
    pub(crate) fn outgoing(&self, conn: &Connection, now: Instant) -> OutgoingCall {
        let pool = &conn.config().pool;
        let mut stream = message(pool, 0, self.number, &pattern(self.seed(1), self.inline));
        let mut reduced = ChunkItems::new();
        let mut position = stream.len() as u64;
        for n in 0..self.args.len() {
            let data = self.arg(n);
            // The length of the item stays in the stream (RFC 8166 §3.4.4.1).
            stream.append(&(data.len() as u32).to_be_bytes());
            position += 4;
            let len = padded_len(data.len()) as u64;
            if self.reduce {
                reduced.push(ReducedItem { position, chunk: n, data });
            } else {
                put_item(&mut stream, &data);
            }
            position += len;
        }
        let chunks = self.results.iter().map(|&(_, max_len)| ResultChunk { max_len, landing: None }).collect();
        let max_inline = (12 + padded_len(self.reply_inline) + 4 * self.results.len()) as u64;
        let deadline = self.deadline.map(|after| now + after);
        let reply = ReplyResources { max_inline, chunks };
        OutgoingCall { message: stream, reduced, reply, deadline, policy: self.policy }
    }

    /// Checks a received call byte by byte.
    pub(crate) fn check_call(&self, call: &IncomingCall) {
        // Rebuild the unreduced stream (RFC 8166 §3.4.5).
        let mut stream = Vec::new();
        let mut rest = call.payload.as_slice();
        for read in call.reads() {
            let (before, after) = rest.split_at(read.position as usize - stream.len());
            stream.extend_from_slice(before);
            stream.extend_from_slice(&read.data);
            stream.resize(stream.len() + pad_len(read.data.len()), 0);
            rest = after;
        }
        stream.extend_from_slice(rest);
        let mut expected = MessageBuf::new(Vec::new().into(), 0);
        for word in [call.xid, 0, self.number] {
            expected.append(&word.to_be_bytes());
        }
        put_item(&mut expected, &pattern(self.seed(1), self.inline));
        for n in 0..self.args.len() {
            expected.append(&(self.args[n] as u32).to_be_bytes());
            put_item(&mut expected, &self.arg(n));
        }
        assert_eq!(stream, &expected[..], "call {} arrived changed", self.number);
    }

    /// Returns the reply. Item `n` of `chunks` is `true` if result `n` has a Write chunk. Results beyond the last item
    /// have none.
    pub(crate) fn reply(&self, chunks: impl Iterator<Item = bool>) -> OutgoingReply {
        let chunks: Vec<bool> = chunks.collect();
        let pool = BufferPool::default();
        let mut stream = message(&pool, 1, self.number, &pattern(self.seed(2), self.reply_inline));
        let mut reduced = ChunkItems::new();
        for n in 0..self.results.len() {
            let data = self.result(n);
            stream.append(&(data.len() as u32).to_be_bytes());
            if chunks.get(n).copied().unwrap_or(false) {
                reduced.push(ReducedItem { position: stream.len() as u64, chunk: n, data });
            } else {
                put_item(&mut stream, &data);
            }
        }
        OutgoingReply { message: stream, reduced }
    }

    /// Checks a received reply byte by byte.
    pub(crate) fn check(&self, reply: &IncomingReply) {
        assert_eq!(reply.writes.len(), self.results.len());
        let mut expected = MessageBuf::new(Vec::new().into(), 0);
        expected.append(&1u32.to_be_bytes());
        expected.append(&self.number.to_be_bytes());
        put_item(&mut expected, &pattern(self.seed(2), self.reply_inline));
        for n in 0..self.results.len() {
            let item = self.result(n);
            expected.append(&(item.len() as u32).to_be_bytes());
            if reply.writes[n].provided {
                assert_eq!(reply.writes[n].data, item, "result {n} of call {}", self.number);
            } else {
                put_item(&mut expected, &item);
            }
        }
        assert_eq!(&reply.payload.as_slice()[4..], &expected[..], "reply to call {}", self.number);
    }
}
