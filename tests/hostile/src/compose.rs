//! RPC messages of a hostile peer, correct or with mistakes.

use crate::{
    gss::{DATA, GssPeer, INIT},
    header::{Received, put, put_opaque},
    plan::Exchange,
    protocol::{fuzzed_back_v1, fuzzed_v1},
    service,
};

/// Maximum length in bytes of data in one message.
const MAX_LEN: u32 = 10_000;

/// Mistakes in RPC messages, one for each bit.
pub(crate) mod fault {
    /// The header has another XID than the RPC message, or a call has the XID of the call before it.
    pub(crate) const XID: u16 = 1;
    /// The length of the data or of a segment is wrong.
    pub(crate) const LENGTH: u16 = 1 << 1;
    /// The position of a Read chunk is wrong, or data is not written to the product's Write chunks and Reply chunk.
    pub(crate) const POSITION: u16 = 1 << 2;
    /// A handle is wrong.
    pub(crate) const HANDLE: u16 = 1 << 3;
    /// An offset is wrong.
    pub(crate) const OFFSET: u16 = 1 << 4;
    /// The credit field is wrong, or a message is continued in more messages than the credits allow.
    pub(crate) const CREDITS: u16 = 1 << 5;
    /// The version of RPC-over-RDMA is wrong.
    pub(crate) const VERSION: u16 = 1 << 6;
    /// The last bytes are missing.
    pub(crate) const SHORT: u16 = 1 << 7;
    /// One byte is wrong.
    pub(crate) const FLIP: u16 = 1 << 8;
    /// Additional bytes follow the message.
    pub(crate) const LONG: u16 = 1 << 9;
    /// The program, the version or the procedure is wrong.
    pub(crate) const PROGRAM: u16 = 1 << 10;
    /// The credential or the verifier of a call is wrong, or one of the last 16 bytes of a reply.
    pub(crate) const CREDENTIAL: u16 = 1 << 11;
    /// A chunk occurs twice.
    pub(crate) const TWICE: u16 = 1 << 12;
    /// A chunk has additional empty segments, or a reply lacks Write chunks.
    pub(crate) const EMPTY: u16 = 1 << 13;
    /// The direction or the RPC version of the message is wrong, or a reply is sent twice.
    pub(crate) const DIRECTION: u16 = 1 << 14;
    /// The message is composed, but not sent. TCP records and headers of the type ERROR are sent nevertheless.
    pub(crate) const UNSENT: u16 = 1 << 15;
}

/// An RPC message, with the place of its data.
#[derive(Debug, Clone, Default)]
pub(crate) struct RpcMessage {
    pub(crate) bytes: Vec<u8>,
    /// Offset and length in bytes of the data that may be transferred in a chunk.
    pub(crate) item: Option<(usize, usize)>,
}

impl RpcMessage {
    /// Returns the message without its data and the padding.
    pub(crate) fn reduced(&self) -> Vec<u8> {
        match self.item {
            Some((at, len)) => {
                let rest = self.bytes.get((at + len).next_multiple_of(4)..).unwrap_or_default();
                [&self.bytes[..at], rest].concat()
            }
            None => self.bytes.clone(),
        }
    }

    /// Returns the data that may be transferred in a chunk. Empty if there is none.
    pub(crate) fn data(&self) -> Vec<u8> {
        self.item.map(|(at, len)| self.bytes[at..at + len].to_vec()).unwrap_or_default()
    }

    /// Applies the mistakes `LONG`, `SHORT` and `FLIP` to the encoded message.
    fn damage_end(&mut self, exchange: &Exchange) {
        let amount = usize::from(exchange.amount);
        if exchange.faults & fault::LONG != 0 {
            self.bytes.extend(std::iter::repeat_n(exchange.amount, amount + 1));
        }
        if exchange.faults & fault::SHORT != 0 {
            self.bytes.truncate(self.bytes.len().saturating_sub(amount + 1));
            self.item = self.item.filter(|(at, len)| (at + len).next_multiple_of(4) <= self.bytes.len());
        }
        if exchange.faults & fault::FLIP != 0
            && let Some(byte) = self.bytes.get_mut(amount)
        {
            *byte ^= 1 << (exchange.identity & 7);
        }
    }
}

/// Appends data with its length and padding. The mistake `LENGTH` falsifies the length.
fn put_item(message: &mut RpcMessage, data: &[u8], faults: u16, amount: u8) {
    let skew = if faults & fault::LENGTH != 0 { u32::from(amount).wrapping_sub(64) } else { 0 };
    put(&mut message.bytes, &[(data.len() as u32).wrapping_add(skew)]);
    message.item = Some((message.bytes.len(), data.len()));
    message.bytes.extend_from_slice(data);
    message.bytes.resize(message.bytes.len().next_multiple_of(4), 0);
}

fn put_numbers(message: &mut RpcMessage, exchange: &Exchange) {
    let count = u32::from(exchange.len) % (MAX_LEN / 4);
    let skew = if exchange.faults & fault::LENGTH != 0 { u32::from(exchange.amount).wrapping_sub(64) } else { 0 };
    put(&mut message.bytes, &[count.wrapping_add(skew)]);
    (1..=count).for_each(|number| put(&mut message.bytes, &[number]));
}

/// Composes a call. `is_back` is `true` for a call to the service of a client.
pub(crate) fn call(exchange: &Exchange, xid: u32, is_back: bool, gss: &mut GssPeer) -> RpcMessage {
    let Exchange { number, len, identity, faults, amount, .. } = *exchange;
    let mut message = RpcMessage::default();
    let out = &mut message.bytes;
    let mut procedure = u32::from(number % 8);
    let mut program = if is_back { fuzzed_back_v1::PROGRAM } else { fuzzed_v1::PROGRAM };
    let mut version = 1;
    if is_back {
        procedure %= 3;
    }
    if faults & fault::PROGRAM != 0 {
        match amount % 4 {
            0 => program ^= 1 << (amount >> 3),
            1 => version = u32::from(amount),
            _ => procedure = u32::from(amount),
        }
    }
    let (rpc_version, direction) = match faults & fault::DIRECTION {
        0 => (2, 0),
        _ => (u32::from(amount % 4), u32::from(amount >> 2)),
    };
    // 4 and 5: data in a context; 6: destroys it; 7: a new one.
    let kind = if matches!(identity & 7, 4..=6) && !gss.has_context() { 7 } else { identity & 7 };
    let service = u32::from(identity >> 3) % 4;
    if kind == 7 {
        procedure = 0;
    }
    put(out, &[xid, direction, rpc_version, program, version, procedure]);
    let mut sequence = 0;
    match kind {
        2 => {
            put(out, &[1]);
            let mut body = Vec::new();
            put(&mut body, &[0]);
            put_opaque(&mut body, b"hostile");
            put(&mut body, &[1000, 1000, u32::from(identity >> 3)]);
            (0..u32::from(identity >> 3).min(20)).for_each(|group| put(&mut body, &[group]));
            put_opaque(out, &body);
        }
        3 => {
            put(out, &[u32::from(identity >> 3)]);
            put_opaque(out, &vec![amount; usize::from(amount) * 2]);
        }
        4..=6 => {
            let control = if kind == 6 { 3 } else { DATA };
            sequence = gss.credential(out, control, service, faults & fault::CREDENTIAL != 0 && amount & 1 == 1);
        }
        7 => {
            gss.credential(out, INIT, service, true);
        }
        _ => put(out, &[0, 0]),
    }
    match kind {
        4..=6 => gss.verifier(out),
        _ => put(out, &[0, 0]),
    }
    if faults & fault::CREDENTIAL != 0 {
        let at = out.len() - 1 - usize::from(amount) % 16;
        out[at] ^= amount;
    }
    if kind == 7 {
        let arguments = gss.begin(xid);
        out.extend_from_slice(&arguments);
    } else {
        let header = out.len();
        arguments(&mut message, exchange, procedure, is_back, u32::from(len) % MAX_LEN);
        if matches!(kind, 4..=5) && service >= 2 {
            let plain = message.bytes.split_off(header);
            message.item = None;
            message.bytes.extend(gss.protect(sequence, service, plain));
        }
    }
    message.damage_end(exchange);
    message
}

/// Appends the arguments of a procedure.
fn arguments(message: &mut RpcMessage, exchange: &Exchange, procedure: u32, is_back: bool, len: u32) {
    match (is_back, procedure) {
        (false, 1) => {
            put(&mut message.bytes, &[u32::from(exchange.amount)]);
            put_item(message, &service::data(7, len), exchange.faults, exchange.amount);
        }
        (false, 2) => put(&mut message.bytes, &[u32::from(exchange.amount), len]),
        (false, 3) => put_numbers(message, exchange),
        (false, 4 | 6) | (true, 1) => put(&mut message.bytes, &[len]),
        (false, 5) => put(&mut message.bytes, &[u32::from(exchange.amount)]),
        _ => {}
    }
}

/// Composes a reply to the call `to` of the product, or to an unknown call if it is `None`.
pub(crate) fn reply(exchange: &Exchange, xid: u32, to: Option<&Received>) -> RpcMessage {
    let Exchange { number, len, identity, faults, amount, .. } = *exchange;
    let mut message = RpcMessage::default();
    let out = &mut message.bytes;
    let direction = if faults & fault::DIRECTION == 0 { 1 } else { u32::from(amount) };
    put(out, &[xid, direction]);
    // Most replies are successful.
    match identity & 15 {
        1 => put(out, &[1, 0, u32::from(amount), u32::from(amount) + 1]),
        2 => put(out, &[1, 1, u32::from(amount)]),
        3 => put(out, &[u32::from(amount)]),
        4 => put(out, &[0, 0, 0, 2, u32::from(amount), u32::from(amount) + 1]),
        5 => put(out, &[0, 0, 0, u32::from(amount)]),
        6 => {
            put(out, &[0, u32::from(amount)]);
            put_opaque(out, &vec![amount; usize::from(amount) * 3]);
            put(out, &[0]);
        }
        _ => {
            put(out, &[0, 0, 0, 0]);
            let (program, procedure) =
                to.and_then(Received::call).unwrap_or((fuzzed_v1::PROGRAM, u32::from(number >> 5)));
            results(&mut message, exchange, (program == fuzzed_back_v1::PROGRAM, procedure), u32::from(len) % MAX_LEN);
        }
    }
    if faults & fault::CREDENTIAL != 0 {
        let at = message.bytes.len() - 1 - usize::from(amount) % 16 % message.bytes.len();
        message.bytes[at] ^= amount;
    }
    message.damage_end(exchange);
    message
}

/// Appends the results of a procedure. `procedure` is a pair of a flag, which is `true` for the client's service and
/// `false` for the server's, and the number of the procedure.
fn results(message: &mut RpcMessage, exchange: &Exchange, procedure: (bool, u32), len: u32) {
    match procedure {
        (false, 1) => put(&mut message.bytes, &[len]),
        (false, 2) => {
            put(&mut message.bytes, &[7]);
            put_item(message, &service::data(7, len), exchange.faults, exchange.amount);
        }
        (false, 4) => put_numbers(message, exchange),
        (false, 3 | 5) | (true, 1) => put(&mut message.bytes, &[0, len]),
        _ => {}
    }
}
