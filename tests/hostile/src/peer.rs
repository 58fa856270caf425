//! A hostile peer: its memory of messages, and its steps.

use std::collections::VecDeque;

use crate::{
    Wire,
    compose::{self, RpcMessage, fault},
    gss::GssPeer,
    header::{CONNPROP, ERROR, F_MORE, F_RESPONSE, Header, Lists, NOMSG, Received, Segment, put, put_opaque},
    iwarp::IwarpLink,
    link::{LAST_FRAGMENT, Link},
    plan::{Body, Exchange, Field, Message, Place, Span},
};

/// Maximum number of messages, places and numbers of each kind that a peer remembers.
const MEMORY: usize = 32;
/// Maximum number of bytes of a part of a continued message, and of a reply that is sent inline although there is a
/// Reply chunk.
const INLINE: usize = 900;
/// The XID counter before the peer's first call. Stands in for numbers of the product while the peer remembers none.
const FIRST_XID: u32 = 0x4000;
/// Credits of a message without a mistake.
const CREDITS: u32 = 8;

/// A hostile peer with its connection, and everything that it remembers.
pub(crate) struct Peer {
    pub(crate) wire: Wire,
    pub(crate) is_v2: bool,
    pub(crate) link: Option<Link>,
    /// `true` if the peer is a server, which calls the service of its client.
    is_server: bool,
    xid: u32,
    /// Calls of the product: first those without a reply, the latest of them first, and then those that the peer has
    /// answered.
    calls: VecDeque<Received>,
    places: VecDeque<Segment>,
    numbers: VecDeque<u32>,
    sent: VecDeque<Vec<u8>>,
    gss: GssPeer,
    pub(crate) received: u32,
}

fn remember<T>(memory: &mut VecDeque<T>, item: T) {
    memory.push_front(item);
    memory.truncate(MEMORY);
}

impl Peer {
    pub(crate) fn new(wire: Wire, is_v2: bool, is_server: bool) -> Self {
        let (calls, places, numbers, sent, gss) = Default::default();
        Self { wire, is_v2, link: None, is_server, xid: FIRST_XID, calls, places, numbers, sent, gss, received: 0 }
    }

    /// Performs what is possible without waiting. Returns `true` if a message arrived.
    pub(crate) fn poll(&mut self) -> bool {
        let messages = self.link.as_mut().map(Link::poll).unwrap_or_default();
        let has_arrived = !messages.is_empty();
        for message in messages {
            self.received += 1;
            let received = if self.wire == Wire::Tcp { Received::record(message) } else { Received::parse(&message) };
            self.gss.received(received.xid, &received.body);
            remember(&mut self.numbers, received.xid);
            for segment in received.lists.segments() {
                remember(&mut self.places, segment);
                remember(&mut self.numbers, segment.handle);
                remember(&mut self.numbers, segment.len);
            }
            if received.call().is_some() || !received.lists.reads.is_empty() {
                remember(&mut self.calls, received);
            }
        }
        has_arrived
    }

    fn field(&self, field: Field) -> u32 {
        match field {
            Field::Small(number) => number.into(),
            Field::Seen(nth, skew) => {
                let number = self.numbers.get(usize::from(nth) % self.numbers.len().max(1));
                number.copied().unwrap_or(FIRST_XID).wrapping_add_signed(skew.into())
            }
            Field::Any(number) => number,
        }
    }

    fn place(&mut self, place: Place, is_read: bool) -> Segment {
        match place {
            Place::Own(len) => self.expose(vec![7; usize::from(len)], is_read),
            Place::Seen(nth, offset, len) => {
                let seen = self.places.get(usize::from(nth) % self.places.len().max(1)).copied().unwrap_or_default();
                Segment {
                    handle: seen.handle,
                    len: seen.len.wrapping_add_signed(len.into()),
                    offset: seen.offset.wrapping_add_signed(offset.into()),
                }
            }
            Place::Any(handle, len, offset) => Segment {
                handle: self.field(handle),
                len: self.field(len),
                offset: u64::from(self.field(offset)) << if is_read { 0 } else { 8 },
            },
        }
    }

    fn expose(&mut self, data: Vec<u8>, is_read: bool) -> Segment {
        self.link.as_mut().map(|link| link.expose(data, is_read)).unwrap_or_default()
    }

    /// Sends a message, and remembers it.
    fn send(&mut self, message: Vec<u8>, invalidate: Option<u32>, fragments: u8) {
        if let Some(link) = &mut self.link {
            link.send(&message, invalidate, fragments);
        }
        remember(&mut self.sent, message);
    }

    fn header(&self, xid: u32, exchange: &Exchange) -> Header {
        let Exchange { faults, amount, .. } = *exchange;
        let has = |fault: u16| faults & fault != 0;
        let version = if self.is_v2 { 2 } else { 1 };
        Header {
            xid: if has(fault::XID) { xid.wrapping_add(u32::from(amount)) } else { xid },
            version: if has(fault::VERSION) { u32::from(amount) } else { version },
            credits: match (has(fault::CREDITS), self.is_v2) {
                (false, false) => CREDITS,
                (false, true) => CREDITS << 16 | CREDITS,
                (true, false) => [0, 1, 2, u32::MAX][usize::from(amount % 4)],
                (true, true) => [0, 1 << 16, u32::MAX, 1][usize::from(amount % 4)] | u32::from(amount),
            },
            ..Header::default()
        }
    }

    /// Exposes data, and returns the segments of a chunk that names it. The chunk has one segment or three, with the
    /// mistakes of the exchange.
    fn chunk(&mut self, data: Vec<u8>, is_read: bool, exchange: &Exchange) -> Vec<Segment> {
        let parts = if exchange.shape & 8 != 0 { 3 } else { 1 };
        let len = data.len();
        let region = self.expose(data, is_read);
        let mut segments = Vec::new();
        for part in 0..parts {
            let (begin, end) = (len * part / parts, len * (part + 1) / parts);
            segments.push(Segment {
                handle: region.handle,
                len: (end - begin) as u32,
                offset: region.offset.wrapping_add(begin as u64),
            });
        }
        let Exchange { faults, amount, .. } = *exchange;
        if let Some(segment) = segments.last_mut() {
            if faults & fault::HANDLE != 0 {
                segment.handle ^= u32::from(amount) + 1;
            }
            if faults & fault::OFFSET != 0 {
                segment.offset = match amount % 4 {
                    0 => u64::MAX - u64::from(amount),
                    _ => segment.offset.wrapping_add_signed(i64::from(amount as i8)),
                };
            }
            if faults & fault::LENGTH != 0 {
                segment.len = match amount % 4 {
                    0 => u32::MAX - u32::from(amount),
                    _ => segment.len.wrapping_add_signed(i32::from(amount as i8)),
                };
            }
        }
        if faults & fault::EMPTY != 0 {
            let empty = Segment { len: 0, ..region };
            segments.resize(segments.len() + usize::from(amount % 40), empty);
        }
        segments
    }

    /// Calls a procedure, with the mistakes of the exchange.
    pub(crate) fn call(&mut self, exchange: &Exchange) {
        if exchange.faults & fault::XID == 0 || exchange.amount & 1 == 0 {
            self.xid = self.xid.wrapping_add(1);
        }
        let xid = self.xid;
        let message = compose::call(exchange, xid, self.is_server, &mut self.gss);
        if self.wire == Wire::Tcp {
            return self.send(message.bytes, None, exchange.shape);
        }
        let mut header = self.header(xid, exchange);
        let has = |fault: u16| exchange.faults & fault != 0;
        if exchange.shape & 16 != 0 {
            let chunk = self.chunk(vec![0; usize::from(exchange.len) % 10_000 + 8], false, exchange);
            header.lists.writes.push(chunk);
            if has(fault::TWICE) {
                header.lists.writes.extend(header.lists.writes.clone());
            }
        }
        if exchange.shape & 32 != 0 {
            let chunk = self.chunk(vec![0; usize::from(exchange.len) % 10_000 * 4 + 64], false, exchange);
            header.lists.reply = Some(chunk);
        }
        if exchange.shape & 64 != 0 {
            header.invalidate = header.lists.segments().next().map(|segment| segment.handle).unwrap_or_default();
        }
        self.transfer(header, &message, exchange);
    }

    /// Sends a message in the form that `exchange.shape` selects: inline, with its data in a Read chunk, as a whole in
    /// a Read chunk, or continued.
    fn transfer(&mut self, mut header: Header, message: &RpcMessage, exchange: &Exchange) {
        let has = |fault: u16| exchange.faults & fault != 0;
        let skew = if has(fault::POSITION) { i32::from(exchange.amount as i8) } else { 0 };
        match exchange.shape & 3 {
            // The data in a Read chunk.
            1 if message.item.is_some() => {
                let position = message.item.map_or(0, |(at, _)| at as u32).wrapping_add_signed(skew);
                for segment in self.chunk(message.data(), true, exchange) {
                    header.lists.reads.push((position, segment));
                }
                let body = message.reduced();
                self.send_in(header, &body, exchange);
            }
            // The whole message in a Read chunk at position zero.
            2 => {
                for segment in self.chunk(message.bytes.clone(), true, exchange) {
                    header.lists.reads.push((0_u32.wrapping_add_signed(skew), segment));
                }
                header.kind = NOMSG;
                self.send_in(header, &[], exchange);
            }
            // Continued messages in version 2.
            3 if self.is_v2 => {
                // As many as the credits allow, unless they are a mistake.
                let min_len = if has(fault::CREDITS) { 4 } else { message.bytes.len().div_ceil(4).next_multiple_of(4) };
                let len = INLINE.min(min_len.max(64 + 4 * usize::from(exchange.amount)));
                let parts: Vec<&[u8]> = message.bytes.chunks(len).collect();
                for (nth, part) in parts.iter().enumerate() {
                    let mut header = header.clone();
                    if nth + 1 < parts.len() {
                        header.flags |= F_MORE;
                        header.lists = Lists::default();
                        header.invalidate = 0;
                    }
                    self.send_in(header, part, exchange);
                }
            }
            _ => self.send_in(header, &message.bytes, exchange),
        }
    }

    fn send_in(&mut self, mut header: Header, body: &[u8], exchange: &Exchange) {
        if exchange.faults & fault::TWICE != 0 && exchange.shape & 16 == 0 {
            header.lists.reads.extend(header.lists.reads.clone());
        }
        if exchange.faults & fault::UNSENT != 0 {
            return;
        }
        let message = [header.encode(self.is_v2), body.to_vec()].concat();
        let invalidate = (exchange.shape & 128 != 0).then(|| self.field(Field::Seen(exchange.amount, 0)));
        self.send(message, invalidate, 0);
    }

    /// Answers a call of the product, with the mistakes of the exchange.
    pub(crate) fn answer(&mut self, exchange: &Exchange) {
        // Calls that have been answered come after the others.
        let call = self.calls.remove(usize::from(exchange.number & 31) % self.calls.len().max(1));
        self.calls.extend(call.clone());
        let xid = call.as_ref().map_or(FIRST_XID, |call| call.xid);
        let has = |fault: u16| exchange.faults & fault != 0;
        let message = compose::reply(exchange, xid, call.as_ref());
        if self.wire == Wire::Tcp {
            return self.send(message.bytes, None, exchange.shape);
        }
        let mut header = self.header(xid, exchange);
        header.flags = F_RESPONSE;
        if exchange.identity & 15 == 7 {
            header.kind = ERROR;
            let mut error = header.encode(self.is_v2);
            put(&mut error, &[u32::from(exchange.amount % 16), u32::from(exchange.len), u32::from(exchange.len) / 2]);
            error.truncate(error.len() - usize::from(exchange.shape % 3) * 4);
            return self.send(error, None, 0);
        }
        let lists = call.map(|call| call.lists).unwrap_or_default();
        let (is_reduced, is_long) = (exchange.shape & 1 == 0, exchange.shape & 2 != 0);
        // The Write chunks are returned with the lengths that were written.
        let mut data = if is_reduced { message.data() } else { Vec::new() };
        let mut body = if is_reduced && !lists.writes.is_empty() { message.reduced() } else { message.bytes.clone() };
        for chunk in &lists.writes {
            let written = self.fill(chunk, &std::mem::take(&mut data), exchange);
            header.lists.writes.push(written);
        }
        if let Some(chunk) = &lists.reply
            && (is_long || body.len() > INLINE)
        {
            header.lists.reply = Some(self.fill(chunk, &std::mem::take(&mut body), exchange));
            header.kind = NOMSG;
        }
        if has(fault::EMPTY) {
            header.lists.writes.truncate(usize::from(exchange.amount % 2));
        }
        self.send_in(header, &body, exchange);
        if has(fault::DIRECTION) && exchange.amount & 1 == 1 && !has(fault::UNSENT) {
            let again = self.sent.front().cloned().unwrap_or_default();
            self.send(again, None, 0);
        }
    }

    /// Writes data to a chunk of the product, with the mistakes of the exchange. Returns the chunk with the lengths to
    /// report as written.
    fn fill(&mut self, chunk: &[Segment], data: &[u8], exchange: &Exchange) -> Vec<Segment> {
        let Exchange { faults, amount, .. } = *exchange;
        let has = |fault: u16| faults & fault != 0;
        let mut rest = data;
        let mut filled = Vec::new();
        for segment in chunk {
            let (now, later) = rest.split_at(rest.len().min(segment.len as usize));
            rest = later;
            let mut to = *segment;
            if has(fault::OFFSET) {
                to.offset = to.offset.wrapping_add_signed(i64::from(amount as i8));
            }
            if has(fault::HANDLE) {
                to.handle ^= u32::from(amount) + 1;
            }
            if let Some(link) = &mut self.link
                && !has(fault::POSITION)
                && !now.is_empty()
            {
                link.write(to, now);
            }
            let skew = if has(fault::LENGTH) { i32::from(amount as i8) } else { 0 };
            filled.push(Segment { len: (now.len() as u32).wrapping_add_signed(skew), ..*segment });
        }
        filled
    }

    fn body(&mut self, body: &Body, xid: u32) -> Vec<u8> {
        match body {
            Body::Nothing => Vec::new(),
            Body::Call(exchange) => compose::call(exchange, xid, self.is_server, &mut self.gss).bytes,
            Body::Reply(exchange) => {
                let call = self.calls.get(usize::from(exchange.number & 31) % self.calls.len().max(1));
                compose::reply(exchange, xid, call).bytes
            }
            Body::Words(fields) => fields.iter().flat_map(|field| self.field(*field).to_be_bytes()).collect(),
            Body::Bytes(bytes) => bytes.clone(),
        }
    }

    /// Sends a message with an arbitrary header.
    pub(crate) fn message(&mut self, message: &Message) {
        let xid = self.field(message.xid);
        let body = self.body(&message.body, xid);
        if self.wire == Wire::Tcp {
            return self.send(body, None, message.flags);
        }
        let version = if self.is_v2 { 2 } else { 1 };
        let reads = message.reads.iter().take(40);
        let reads = reads.map(|(position, place)| (self.field(*position), self.place(*place, true))).collect();
        let mut chunk = |places: &Vec<Place>| -> Vec<Segment> {
            places.iter().take(40).map(|place| self.place(*place, false)).collect()
        };
        let writes = message.writes.iter().take(8).map(&mut chunk).collect();
        let reply = message.reply.as_ref().map(&mut chunk);
        let header = Header {
            xid,
            version: if message.form & 1 == 0 { version } else { u32::from(message.flags) },
            credits: self.field(message.credits),
            kind: u32::from(message.form >> 4),
            flags: message.flags.into(),
            invalidate: self.field(message.invalidate),
            lists: Lists { reads, writes, reply },
        };
        let mut bytes = [header.encode(self.is_v2), body].concat();
        if message.form & 4 != 0 {
            bytes.pop();
        }
        let invalidate = (message.form & 2 != 0).then_some(header.invalidate);
        self.send(bytes, invalidate, 0);
    }

    pub(crate) fn again(&mut self, nth: u8, at: u16, mask: u8) {
        let Some(mut message) = self.sent.get(usize::from(nth) % self.sent.len().max(1)).cloned() else { return };
        let at = usize::from(at) % message.len().max(1);
        if let Some(byte) = message.get_mut(at) {
            *byte ^= mask;
        }
        self.send(message, None, 0);
    }

    pub(crate) fn write(&mut self, span: Span) {
        let to = self.place(span.place, false);
        if let Some(link) = &mut self.link {
            link.write(to, &vec![0xee; usize::from(span.len)]);
        }
    }

    pub(crate) fn read(&mut self, span: Span) {
        let from = Segment { len: span.len.into(), ..self.place(span.place, true) };
        if let Some(link) = &mut self.link {
            link.read(from);
        }
    }

    /// Sends a segment of iWARP or a fragment of TCP. Over the simulated provider, sends a message.
    pub(crate) fn segment(&mut self, segment: &crate::plan::Segment) {
        let (word, offset) = (self.field(segment.word), self.field(segment.offset));
        let payload = self.body(&segment.body, word);
        match &mut self.link {
            Some(Link::Iwarp(link)) => {
                // Most control bytes have the right versions.
                let control = match segment.control {
                    (any, rdmap) if any & 0x0c == 0x0c => (any, rdmap),
                    (ddp, rdmap) => (ddp & 0xc0 | 1, rdmap & 15 | 0x40),
                };
                let bytes = if control.0 & 0x80 != 0 {
                    IwarpLink::tagged(control, word, offset.into(), &payload)
                } else {
                    link.untagged(control, word, u32::from(segment.number.0 % 5), segment.number.1, offset, &payload)
                };
                link.frame(&bytes, segment.skew);
            }
            Some(Link::Tcp(link)) => {
                let last = if segment.control.0 & 1 == 0 { LAST_FRAGMENT } else { 0 };
                let len = (payload.len() as u32).wrapping_add_signed(segment.skew.into()) & !LAST_FRAGMENT;
                link.pipe.put(&(last | len).to_be_bytes());
                link.pipe.put(&payload);
            }
            Some(Link::Rdma(_)) => self.send(payload, Some(word), 0),
            None => {}
        }
    }

    /// Sends properties of version 2 (section 5 of the draft).
    pub(crate) fn properties(&mut self, properties: &[(u8, Field)]) {
        let mut header = self.header(0, &Exchange::default());
        (header.kind, header.xid) = (CONNPROP, self.xid);
        let mut out = header.encode(self.is_v2);
        put(&mut out, &[properties.len().min(20) as u32]);
        for (which, value) in properties.iter().take(20) {
            put(&mut out, &[u32::from(*which)]);
            put_opaque(&mut out, &self.field(*value).to_be_bytes());
        }
        self.send(out, None, 0);
    }

    /// Sends properties that end the exchange of properties in version 2. They announce the default receive size, and
    /// support for all calls in the reverse direction.
    pub(crate) fn greet(&mut self) {
        let reverse = Field::Small(3);
        self.properties(&[(2, Field::Any(4096)), (5, reverse)]);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        if let Some(link) = &mut self.link {
            link.raw(bytes);
        }
    }
}
