//! Two engines over `sim`, a virtual clock, and calls whose every octet is known beforehand.
#![allow(dead_code, unreachable_pub)] // Each test crate uses its part of it.

use std::{
    collections::HashMap,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use bytes::Bytes;
use rpcrdma::{
    engine::{
        CallFailure, CallId, CloseReason, EngineConfig, Event, IncomingCall, IncomingReply, OutgoingCall,
        OutgoingReply, ReplyResources, ReplyToken, ResultChunk, Role,
        v1::{Connection, HEADROOM, PrivateData, Setup},
    },
    memory::{BufferPool, MessageBuf, Output},
    provider::{
        Access, Completion, Handle, Memory, QueuePair, RemoteMemory, WorkRequest, WrId,
        sim::{self, End, EndConfig, Network, SimConfig, SimQueuePair},
    },
    xdr::{Reduced, pad_len, padded_len},
};

/// One engine on its queue pair.
pub struct Peer {
    pub conn: Connection,
    pub qp: SimQueuePair,
    pub events: Vec<Event>,
    completions: Vec<Completion>,
}

impl Peer {
    pub fn new(role: Role, config: EngineConfig, setup: Setup, qp: SimQueuePair) -> Self {
        Self { conn: Connection::new(role, config, setup), qp, events: Vec::new(), completions: Vec::new() }
    }

    /// One turn of the loop that drives an engine; whether anything happened.
    pub fn turn(&mut self, now: Instant) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let mut busy = self.qp.poll(&mut cx, &mut self.completions).is_ready();
        for completion in self.completions.drain(..) {
            self.conn.handle_completion(completion);
        }
        if self.conn.poll_timeout().is_some_and(|at| at <= now) {
            self.conn.handle_timeout(now);
            busy = true;
        }
        self.conn.poll_work(&mut self.qp, now);
        while let Some(event) = self.conn.poll_event() {
            self.events.push(event);
            busy = true;
        }
        busy
    }
}

/// How a pair is set up.
#[derive(Debug, Clone)]
pub struct PairConfig {
    pub client: EngineConfig,
    pub server: EngineConfig,
    pub sim: SimConfig,
    /// Whether each end sends private data.
    pub private_data: [bool; 2],
}

impl Default for PairConfig {
    fn default() -> Self {
        let (client, server) = (EngineConfig::default(), EngineConfig::default());
        let mut sim = SimConfig::default();
        sim.stepped = true;
        Self { client, server, sim, private_data: [true, true] }
    }
}

/// A client and a server.
pub struct Pair {
    pub client: Peer,
    pub server: Peer,
    pub network: Network,
    pub now: Instant,
    /// Calls of [`Script`]s by number.
    pub scripts: HashMap<u32, Script>,
    /// Calls that reached the handler, by number.
    pub served: HashMap<u32, u32>,
    /// Calls given to [`Pair::call`], by id.
    pub calls: HashMap<CallId, u32>,
    pub replies_sent: usize,
    pub arrived: usize,
    /// Calls that the handler has not answered.
    pub pending: Vec<IncomingCall>,
    /// Whether what arrives may differ from what was sent.
    pub hostile: bool,
}

fn end_config(config: &EngineConfig, base: &EndConfig) -> EndConfig {
    let params = Connection::setup_params(config, base.remote_invalidation);
    let mut end = base.clone();
    end.receives = params.receive_count;
    end.receive_size = params.receive_size;
    end.pool = params.pool;
    end
}

impl Pair {
    pub fn new(config: PairConfig) -> Self {
        let PairConfig { client, server, mut sim, private_data } = config;
        let configs = [&client, &server];
        let mut says = [PrivateData::default(); 2];
        for (n, config) in configs.into_iter().enumerate() {
            if private_data[n] {
                says[n] = PrivateData::new(config, sim.ends[n].remote_invalidation);
            }
            sim.ends[n] = end_config(config, &sim.ends[n]);
        }
        let seed = sim.seed;
        let (a, b, network) = sim::pair(sim);
        // An XID space that wraps within the test.
        let setup = |local, peer| Setup { local, peer, xid_seed: u32::MAX - (seed % 8) as u32 };
        Self {
            client: Peer::new(Role::Client, client, setup(says[0], says[1]), a),
            server: Peer::new(Role::Server, server, setup(says[1], says[0]), b),
            network,
            now: Instant::now(),
            scripts: HashMap::new(),
            served: HashMap::new(),
            calls: HashMap::new(),
            replies_sent: 0,
            arrived: 0,
            pending: Vec::new(),
            hostile: false,
        }
    }

    /// Starts a scripted call.
    pub fn call(&mut self, script: Script) -> CallId {
        let number = script.number;
        let call = script.outgoing(&self.client.conn, self.now);
        self.scripts.insert(number, script);
        let id = self.client.conn.start_call(call);
        self.calls.insert(id, number);
        id
    }

    /// Runs until nothing more happens; the server answers scripted calls.
    pub fn run(&mut self) {
        for _ in 0..1_000_000 {
            let mut busy = self.client.turn(self.now);
            busy |= self.server.turn(self.now);
            busy |= self.take_calls();
            busy |= self.answer(0);
            busy |= self.network.step();
            if !busy {
                return;
            }
        }
        panic!("no end of it");
    }

    /// [`run`](Self::run), in an order that `choose` decides: it is asked for a number below its argument.
    pub fn run_shuffled(&mut self, mut choose: impl FnMut(usize) -> usize) {
        let mut idle = 0;
        for _ in 0..1_000_000 {
            let busy = match choose(5) {
                0 => self.client.turn(self.now),
                1 => self.server.turn(self.now),
                2 => self.take_calls(),
                3 => {
                    let count = self.pending.len();
                    count > 0 && self.answer(choose(count))
                }
                _ => self.network.step(),
            };
            idle = if busy { 0 } else { idle + 1 };
            if idle > 8 {
                // Chosen at random, something may have been left out.
                let mut busy = self.client.turn(self.now);
                busy |= self.server.turn(self.now);
                busy |= self.take_calls();
                busy |= self.answer(0);
                busy |= self.network.step();
                if !busy {
                    return;
                }
                idle = 0;
            }
        }
        panic!("no end of it");
    }

    /// Takes the calls that have arrived.
    pub fn take_calls(&mut self) -> bool {
        let events = std::mem::take(&mut self.server.events);
        let before = events.len();
        for event in events {
            match event {
                Event::CallArrived(call) => {
                    self.arrived += 1;
                    if !self.hostile {
                        let number = word(call.payload.as_slice(), 2);
                        *self.served.entry(number).or_default() += 1;
                    }
                    self.pending.push(call);
                }
                Event::ReplySent { .. } => self.replies_sent += 1,
                other => self.server.events.push(other),
            }
        }
        before > self.server.events.len()
    }

    /// Answers call `n` of those pending, if there is one.
    pub fn answer(&mut self, n: usize) -> bool {
        if n >= self.pending.len() {
            return false;
        }
        let call = self.pending.swap_remove(n);
        let known = call.payload.as_slice().get(8..12).map(|octets| u32::from_be_bytes(octets.try_into().unwrap()));
        match known.and_then(|number| self.scripts.get(&number)) {
            Some(script) => {
                if !self.hostile {
                    script.check_call(&call);
                }
                let reply = script.reply(call.reply.write_chunks.iter().map(Option::is_some));
                self.server.conn.reply(call.token, reply);
            }
            None => {
                assert!(self.hostile, "a call that nobody made");
                self.server.conn.reply_error(call.token);
            }
        }
        true
    }

    /// Advances the clock.
    pub fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// What came of each call that is over, checked against its script.
    pub fn outcomes(&mut self) -> HashMap<u32, Result<IncomingReply, CallFailure>> {
        let mut outcomes = HashMap::new();
        for event in std::mem::take(&mut self.client.events) {
            match event {
                Event::CallFinished { id, result } => {
                    let number = self.calls.remove(&id).expect("each call ends once");
                    if let (Ok(reply), false) = (&result, self.hostile) {
                        self.scripts[&number].check(reply);
                    }
                    assert!(outcomes.insert(number, result).is_none());
                }
                other => self.client.events.push(other),
            }
        }
        outcomes
    }

    /// The reason in a `Closed` event.
    pub fn closed(events: &[Event]) -> Option<&CloseReason> {
        events.iter().find_map(|event| match event {
            Event::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    /// Nothing is registered at either end.
    pub fn assert_nothing_exposed(&self) {
        assert_eq!((self.network.registered(End::A), self.network.registered(End::B)), (0, 0));
        assert_eq!(self.client.conn.counters().exposed, 0);
    }
}

/// A call, and its reply, made of known octets.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub number: u32,
    /// Octets of the call that are not eligible, besides the 12 of its header; rounded up to a multiple of four.
    pub inline: usize,
    /// Lengths of eligible arguments, which follow.
    pub args: Vec<usize>,
    /// Whether the arguments leave the payload stream.
    pub reduce: bool,
    /// Octets of the reply that are not eligible, besides the 12 of its header.
    pub reply_inline: usize,
    /// Lengths of eligible results, and their declared maxima.
    pub results: Vec<(usize, u64)>,
    pub deadline: Option<Duration>,
}

/// `len` octets that no other place has.
pub fn pattern(seed: u64, len: usize) -> Bytes {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let octets = (0..len).map(|_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    });
    octets.collect::<Vec<u8>>().into()
}

pub fn word(octets: &[u8], n: usize) -> u32 {
    u32::from_be_bytes(octets[4 * n..4 * n + 4].try_into().unwrap())
}

fn message(pool: &BufferPool, msg_type: u32, number: u32, inline: &[u8]) -> MessageBuf {
    let mut message = MessageBuf::new(pool.alloc(HEADROOM + 12), HEADROOM);
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

    pub fn arg(&self, n: usize) -> Bytes {
        pattern(self.seed(100 + n as u64), self.args[n])
    }

    pub fn result(&self, n: usize) -> Bytes {
        pattern(self.seed(200 + n as u64), self.results[n].0)
    }

    /// The call as the layer above hands it to the engine.
    pub fn outgoing(&self, conn: &Connection, now: Instant) -> OutgoingCall {
        let pool = &conn.config().pool;
        let mut stream = message(pool, 0, self.number, &pattern(self.seed(1), self.inline));
        let mut reduced = smallvec::SmallVec::new();
        let mut position = stream.len() as u64;
        for n in 0..self.args.len() {
            let data = self.arg(n);
            // Its count stays in the stream (RFC 8166 §3.4.4.1).
            stream.append(&(data.len() as u32).to_be_bytes());
            position += 4;
            let len = padded_len(data.len()) as u64;
            if self.reduce {
                reduced.push(Reduced { position, chunk: n, data });
            } else {
                put_item(&mut stream, &data);
            }
            position += len;
        }
        let chunks = self.results.iter().map(|&(_, max_len)| ResultChunk { max_len, landing: None }).collect();
        let max_inline = (12 + padded_len(self.reply_inline) + 4 * self.results.len()) as u64;
        let deadline = self.deadline.map(|after| now + after);
        OutgoingCall { message: stream, reduced, reply: ReplyResources { max_inline, chunks }, deadline }
    }

    /// Checks a call octet by octet.
    pub fn check_call(&self, call: &IncomingCall) {
        // The unreduced stream, put together again (RFC 8166 §3.4.5).
        let mut stream = Vec::new();
        let mut rest = call.payload.as_slice();
        for read in &call.reads {
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

    /// The reply, for a call with these Write chunks.
    pub fn reply(&self, chunks: impl Iterator<Item = bool>) -> OutgoingReply {
        let chunks: Vec<bool> = chunks.collect();
        let pool = BufferPool::default();
        let mut stream = message(&pool, 1, self.number, &pattern(self.seed(2), self.reply_inline));
        let mut reduced = smallvec::SmallVec::new();
        for n in 0..self.results.len() {
            let data = self.result(n);
            stream.append(&(data.len() as u32).to_be_bytes());
            if chunks.get(n).copied().unwrap_or(false) {
                reduced.push(Reduced { position: stream.len() as u64, chunk: n, data });
            } else {
                put_item(&mut stream, &data);
            }
        }
        OutgoingReply { message: stream, reduced }
    }

    /// Checks a reply octet by octet.
    pub fn check(&self, reply: &IncomingReply) {
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

/// The token in a `CallArrived` event, taken out.
pub fn take_call(peer: &mut Peer) -> Option<IncomingCall> {
    let at = peer.events.iter().position(|event| matches!(event, Event::CallArrived(_)))?;
    match peer.events.remove(at) {
        Event::CallArrived(call) => Some(call),
        _ => None,
    }
}

/// The result in a `CallFinished` event, taken out.
pub fn take_finished(peer: &mut Peer) -> Option<(CallId, Result<IncomingReply, CallFailure>)> {
    let at = peer.events.iter().position(|event| matches!(event, Event::CallFinished { .. }))?;
    match peer.events.remove(at) {
        Event::CallFinished { id, result } => Some((id, result)),
        _ => None,
    }
}

/// Whether a `ReplySent` event is there, and says so.
pub fn take_reply_sent(peer: &mut Peer) -> Option<(ReplyToken, bool)> {
    let at = peer.events.iter().position(|event| matches!(event, Event::ReplySent { .. }))?;
    match peer.events.remove(at) {
        Event::ReplySent { token, delivered } => Some((token, delivered)),
        _ => None,
    }
}

/// A peer without an engine: what a test sends, it sends.
pub struct Raw {
    pub qp: SimQueuePair,
    /// Messages that arrived, and the handle that each invalidated.
    pub received: std::collections::VecDeque<(Vec<u8>, Option<Handle>)>,
    /// Everything else that completed.
    pub completed: Vec<Completion>,
}

impl Raw {
    pub fn new(qp: SimQueuePair) -> Self {
        Self { qp, received: Default::default(), completed: Vec::new() }
    }

    pub fn turn(&mut self) -> bool {
        let mut completions = Vec::new();
        let busy = self.qp.poll(&mut Context::from_waker(Waker::noop()), &mut completions).is_ready();
        for completion in completions {
            match completion {
                Completion::Received { message, invalidated } => {
                    self.received.push_back((message.to_vec(), invalidated));
                    self.qp.post_receives(1);
                }
                other => self.completed.push(other),
            }
        }
        busy
    }

    /// Sends words, and octets after them.
    pub fn send(&mut self, words: &[u32], octets: &[u8]) {
        self.send_invalidating(words, octets, None);
    }

    pub fn send_invalidating(&mut self, words: &[u32], octets: &[u8], invalidate: Option<Handle>) {
        let mut message = MessageBuf::new(Vec::new().into(), 0);
        for word in words {
            message.append(&word.to_be_bytes());
        }
        message.append(octets);
        self.qp.post(WorkRequest::Send { id: WrId(0), message, invalidate, solicited: false });
    }

    pub fn write(&mut self, handle: u32, offset: u64, data: &[u8]) {
        let remote = RemoteMemory { handle: Handle(handle), offset };
        self.qp.post(WorkRequest::Write { id: WrId(0), source: Bytes::copy_from_slice(data), remote });
    }

    /// Memory of this end's that the peer may read.
    pub fn source(&mut self, data: &[u8]) -> (u32, u64) {
        let region = self.qp.register(Memory::Source(Bytes::copy_from_slice(data)), Access::RemoteRead).unwrap();
        (region.handle.0, region.base)
    }

    /// Memory of this end's that the peer may write.
    pub fn sink(&mut self, len: usize) -> (u32, u64) {
        let region = self.qp.register(Memory::Sink(vec![0; len].into()), Access::RemoteWrite).unwrap();
        (region.handle.0, region.base)
    }

    /// Takes memory back.
    pub fn take_back(&mut self, handle: u32) -> Vec<u8> {
        self.qp.post(WorkRequest::Invalidate { id: WrId(77), handle: Handle(handle) });
        while self.turn() {}
        let at = self.completed.iter().position(|c| matches!(c, Completion::Invalidated { id: WrId(77), .. }));
        match self.completed.swap_remove(at.expect("returned")) {
            Completion::Invalidated { memory: Memory::Sink(buf), .. } => buf.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// The words of the next message.
    pub fn next(&mut self) -> Option<Vec<u32>> {
        let (octets, _) = self.received.pop_front()?;
        Some((0..octets.len() / 4).map(|n| word(&octets, n)).collect())
    }

    pub fn disconnected(&self) -> bool {
        self.completed.iter().any(|completion| matches!(completion, Completion::Disconnected { .. }))
    }
}

/// An engine that faces a peer without one.
pub struct Facing {
    pub engine: Peer,
    pub raw: Raw,
    pub network: Network,
    pub now: Instant,
}

impl Facing {
    /// `role` is the engine's; both ends say what `EngineConfig` and R flag imply.
    pub fn new(role: Role, config: EngineConfig, remote_invalidation: bool) -> Self {
        let mut sim = SimConfig::default();
        let base = EndConfig::default();
        sim.ends = [end_config(&config, &base), end_config(&config, &base)];
        let says = PrivateData::new(&config, remote_invalidation);
        Self::with(role, config, Setup { local: says, peer: says, xid_seed: 0x1000 }, sim)
    }

    pub fn with(role: Role, config: EngineConfig, setup: Setup, sim: SimConfig) -> Self {
        let (a, b, network) = sim::pair(sim);
        let (engine, raw) = if role == Role::Client { (a, b) } else { (b, a) };
        Self { engine: Peer::new(role, config, setup, engine), raw: Raw::new(raw), network, now: Instant::now() }
    }

    /// Runs until nothing more happens.
    pub fn run(&mut self) {
        let mut idle = 0;
        for _ in 0..10_000 {
            let mut busy = self.engine.turn(self.now);
            busy |= self.raw.turn();
            busy |= self.network.step();
            // What one end posts last, the other's poll carries out.
            idle = if busy { 0 } else { idle + 1 };
            if idle == 2 {
                return;
            }
        }
        panic!("no end of it");
    }

    /// Makes a call of this many octets beyond its header; returns its id.
    pub fn call(&mut self, script: &Script) -> CallId {
        let call = script.outgoing(&self.engine.conn, self.now);
        self.engine.conn.start_call(call)
    }
}

/// The three absent chunk lists.
pub const NO_CHUNKS: [u32; 3] = [0, 0, 0];

/// A whole RDMA_MSG without chunks.
pub fn plain(xid: u32, credit: u32, msg_type: u32, number: u32) -> Vec<u32> {
    vec![xid, 1, credit, 0, 0, 0, 0, xid, msg_type, number]
}

/// The two words of an offset.
pub fn split(offset: u64) -> [u32; 2] {
    [(offset >> 32) as u32, offset as u32]
}

pub fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
