//! Pairs of engines and engines with a scripted peer, over `sim` with a virtual clock, and calls with known contents.

mod raw;
mod script;

use std::{
    collections::HashMap,
    task::{Context, Waker},
    time::{Duration, Instant},
};

use rpcrdma_proto::{
    engine::{
        CallFailure, CallId, CloseReason, Connection, ConnectionSetup, Engine as _, EngineConfig, EngineEvent,
        IncomingCall, IncomingReply, PrivateData, ReplyToken, Role, Versions,
    },
    provider::{
        Completion, QueuePair,
        sim::{self, SimConfig, SimEnd, SimEndConfig, SimNetwork, SimQueuePair},
    },
};

pub(crate) use self::{
    raw::{NO_CHUNKS, Raw, ScriptedPeer, UNWRITTEN, join, plain, split},
    script::{Script, pattern, word},
};

/// One engine on its queue pair.
pub(crate) struct Peer {
    pub(crate) conn: Connection,
    pub(crate) qp: SimQueuePair,
    pub(crate) events: Vec<EngineEvent>,
    completions: Vec<Completion>,
}

impl Peer {
    /// Creates an engine that supports only version 1.
    pub(crate) fn new(role: Role, config: EngineConfig, setup: ConnectionSetup, qp: SimQueuePair) -> Self {
        Self::with(Connection::new(role, with_versions(config, Versions::V1), setup), qp)
    }

    pub(crate) fn with(conn: Connection, qp: SimQueuePair) -> Self {
        Self { conn, qp, events: Vec::new(), completions: Vec::new() }
    }

    /// Runs one iteration of the loop that drives an engine. Returns `true` if anything happened.
    pub(crate) fn turn(&mut self, now: Instant) -> bool {
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

/// Returns the configuration restricted to these versions of RPC-over-RDMA.
pub(crate) fn with_versions(mut config: EngineConfig, versions: Versions) -> EngineConfig {
    config.versions = versions;
    config
}

/// Configuration of a [`Pair`].
#[derive(Debug, Clone)]
pub(crate) struct PairConfig {
    pub(crate) client: EngineConfig,
    pub(crate) server: EngineConfig,
    pub(crate) sim: SimConfig,
    /// `true` for each peer that sends private data: first the client, then the server.
    pub(crate) private_data: [bool; 2],
}

impl Default for PairConfig {
    fn default() -> Self {
        let (client, server) = (EngineConfig::default(), EngineConfig::default());
        let mut sim = SimConfig::default();
        sim.stepped = true;
        Self { client, server, sim, private_data: [true, true] }
    }
}

/// A client and a server on one simulated network.
pub(crate) struct Pair {
    pub(crate) client: Peer,
    pub(crate) server: Peer,
    pub(crate) network: SimNetwork,
    pub(crate) now: Instant,
    /// The script of each call, by number.
    pub(crate) scripts: HashMap<u32, Script>,
    /// The number of times that each call reached the handler, by call number.
    pub(crate) served: HashMap<u32, u32>,
    /// The calls in progress that [`Pair::call`] started, with their numbers.
    pub(crate) calls: HashMap<CallId, u32>,
    pub(crate) replies_sent: usize,
    pub(crate) arrived: usize,
    /// Calls that reached the handler and have no reply yet.
    pub(crate) pending: Vec<IncomingCall>,
    /// `true` if messages may be corrupted on the way.
    pub(crate) hostile: bool,
}

pub(crate) fn end_config(config: &EngineConfig, base: &SimEndConfig) -> SimEndConfig {
    let params = Connection::setup_params(config, base.remote_invalidation);
    let mut end = base.clone();
    end.receives = params.receive_count;
    end.receive_size = params.receive_size;
    end.pool = params.pool;
    end
}

impl Pair {
    pub(crate) fn new(config: PairConfig) -> Self {
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
        // XIDs that wrap within the test.
        let setup = |local, peer| ConnectionSetup { local, peer, xid_seed: u32::MAX - (seed % 8) as u32 };
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
    pub(crate) fn call(&mut self, script: Script) -> CallId {
        let number = script.number;
        let call = script.outgoing(&self.client.conn, self.now);
        self.scripts.insert(number, script);
        let id = self.client.conn.start_call(call);
        self.calls.insert(id, number);
        id
    }

    /// Runs until nothing more happens. The server replies according to the scripts.
    pub(crate) fn run(&mut self) {
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
        panic!("the engines do not become idle");
    }

    /// Runs like [`run`](Self::run), in an order that `choose` decides. `choose` returns a number below its argument.
    pub(crate) fn run_shuffled(&mut self, mut choose: impl FnMut(usize) -> usize) {
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
                // The random order may have left something out.
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
        panic!("the engines do not become idle");
    }

    /// Moves the calls that have arrived at the server to `pending`, and counts the replies that were sent. Returns
    /// `true` if there was a call or a reply.
    pub(crate) fn take_calls(&mut self) -> bool {
        let events = std::mem::take(&mut self.server.events);
        let before = events.len();
        for event in events {
            match event {
                EngineEvent::CallArrived(call) => {
                    self.arrived += 1;
                    if !self.hostile {
                        let number = word(call.payload.as_slice(), 2);
                        *self.served.entry(number).or_default() += 1;
                    }
                    self.pending.push(call);
                }
                EngineEvent::ReplySent { .. } => self.replies_sent += 1,
                other => self.server.events.push(other),
            }
        }
        before > self.server.events.len()
    }

    /// Replies to pending call `n`. Returns `true` if there is one.
    pub(crate) fn answer(&mut self, n: usize) -> bool {
        if n >= self.pending.len() {
            return false;
        }
        let call = self.pending.swap_remove(n);
        let known = call.payload.as_slice().get(8..12).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
        match known.and_then(|number| self.scripts.get(&number)) {
            Some(script) => {
                if !self.hostile {
                    script.check_call(&call);
                }
                let reply = script.reply(call.reply().write_chunks.iter().map(Option::is_some));
                self.server.conn.reply(call.token, reply);
            }
            None => {
                assert!(self.hostile, "a call without a script");
                self.server.conn.reply_error(call.token, rpcrdma_proto::engine::TransportError::BadXdr);
            }
        }
        true
    }

    /// Advances the clock.
    pub(crate) fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// Removes and returns the results of finished calls, checked against their scripts.
    pub(crate) fn outcomes(&mut self) -> HashMap<u32, Result<IncomingReply, CallFailure>> {
        let mut outcomes = HashMap::new();
        for event in std::mem::take(&mut self.client.events) {
            match event {
                EngineEvent::CallFinished { id, result } => {
                    let number = self.calls.remove(&id).expect("call finished twice");
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

    /// Returns the reason of the `Closed` event.
    pub(crate) fn closed(events: &[EngineEvent]) -> Option<&CloseReason> {
        events.iter().find_map(|event| match event {
            EngineEvent::Closed(reason) => Some(reason),
            _ => None,
        })
    }

    /// Checks that client and server have no registered memory.
    pub(crate) fn assert_nothing_exposed(&self) {
        assert_eq!((self.network.registered(SimEnd::A), self.network.registered(SimEnd::B)), (0, 0));
        for counters in [self.client.conn.counters(), self.server.conn.counters()] {
            assert_eq!((counters.exposed_regions, counters.registered_bytes), (0, 0));
        }
    }
}

/// Removes and returns the first announced call.
pub(crate) fn take_call(peer: &mut Peer) -> Option<IncomingCall> {
    let at = peer.events.iter().position(|event| matches!(event, EngineEvent::CallArrived(_)))?;
    match peer.events.remove(at) {
        EngineEvent::CallArrived(call) => Some(call),
        _ => None,
    }
}

/// Removes and returns the first result of a call.
pub(crate) fn take_finished(peer: &mut Peer) -> Option<(CallId, Result<IncomingReply, CallFailure>)> {
    let at = peer.events.iter().position(|event| matches!(event, EngineEvent::CallFinished { .. }))?;
    match peer.events.remove(at) {
        EngineEvent::CallFinished { id, result } => Some((id, result)),
        _ => None,
    }
}

/// Removes the first `ReplySent` event. Returns its token, and `true` if the reply was delivered.
pub(crate) fn take_reply_sent(peer: &mut Peer) -> Option<(ReplyToken, bool)> {
    let at = peer.events.iter().position(|event| matches!(event, EngineEvent::ReplySent { .. }))?;
    match peer.events.remove(at) {
        EngineEvent::ReplySent { token, delivered } => Some((token, delivered)),
        _ => None,
    }
}
