//! Two version 2 engines that both make and serve calls.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rpcrdma_proto::{
    engine::{
        CallFailure, CallId, Connection, ConnectionSetup, Engine as _, EngineConfig, EngineEvent, IncomingCall,
        IncomingReply, PrivateData, Role, Versions,
    },
    provider::sim::{self, SimConfig, SimEnd, SimNetwork},
};

use crate::support::{Peer, Script, end_config, with_versions, word};

/// The client or the server: its engine, its own calls, and the calls that it serves.
pub(super) struct Side {
    pub(super) peer: Peer,
    /// The scripts of the local calls, by number.
    pub(super) scripts: HashMap<u32, Script>,
    /// The local calls in progress, with their numbers.
    pub(super) calls: HashMap<CallId, u32>,
    pub(super) outcomes: HashMap<u32, Result<IncomingReply, CallFailure>>,
    /// The peer's calls without a reply yet.
    pub(super) pending: Vec<IncomingCall>,
    /// The number of times that each of the peer's calls was served, by call number.
    pub(super) served: HashMap<u32, u32>,
    pub(super) arrived: usize,
    pub(super) replies_sent: usize,
}

/// A client and a server on one simulated network.
pub(super) struct PeerPair {
    /// The client, then the server.
    pub(super) sides: [Side; 2],
    pub(super) network: SimNetwork,
    pub(super) now: Instant,
    /// `true` if messages may be corrupted on the way.
    pub(super) hostile: bool,
}

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// Returns the configuration of a network that the test advances step by step.
pub(super) fn stepped() -> SimConfig {
    let mut sim = SimConfig::default();
    sim.stepped = true;
    sim
}

impl PeerPair {
    pub(super) fn new(client: EngineConfig, server: EngineConfig, sim: SimConfig) -> Self {
        Self::with(with_versions(client, Versions::V2), with_versions(server, Versions::V2), sim)
    }

    /// Creates a client and a server with the default configuration.
    pub(super) fn plain() -> Self {
        Self::new(EngineConfig::default(), EngineConfig::default(), stepped())
    }
}

impl PeerPair {
    pub(super) fn with(client: EngineConfig, server: EngineConfig, mut sim: SimConfig) -> Self {
        let mut says = [PrivateData::default(); 2];
        for (n, config) in [&client, &server].into_iter().enumerate() {
            says[n] = PrivateData::new(config, sim.ends[n].remote_invalidation);
            sim.ends[n] = end_config(config, &sim.ends[n]);
        }
        // XIDs that wrap within a test and are the same for client and server.
        let xid_seed = u32::MAX - (sim.seed % 8) as u32;
        let (a, b, network) = sim::pair(sim);
        let setup = |local, peer| ConnectionSetup { local, peer, xid_seed };
        let side = |conn, qp| Side {
            peer: Peer::with(conn, qp),
            scripts: HashMap::new(),
            calls: HashMap::new(),
            outcomes: HashMap::new(),
            pending: Vec::new(),
            served: HashMap::new(),
            arrived: 0,
            replies_sent: 0,
        };
        let client = side(Connection::new(Role::Client, client, setup(says[0], says[1])), a);
        let server = side(Connection::new(Role::Server, server, setup(says[1], says[0])), b);
        Self { sides: [client, server], network, now: Instant::now(), hostile: false }
    }

    /// Starts a scripted call of the side `end`.
    pub(super) fn call(&mut self, end: usize, script: Script) -> CallId {
        let side = &mut self.sides[end];
        let number = script.number;
        let call = script.outgoing(&side.peer.conn, self.now);
        side.scripts.insert(number, script);
        let id = side.peer.conn.start_call(call);
        side.calls.insert(id, number);
        id
    }

    /// Starts a call, runs until nothing more happens, and returns its result.
    pub(super) fn one(&mut self, end: usize, script: Script) -> Result<IncomingReply, CallFailure> {
        let number = script.number;
        self.call(end, script);
        self.run();
        self.sides[end].outcomes.remove(&number).expect("call not finished")
    }

    /// Processes the events of the side `end`. Returns `true` if there were any.
    pub(super) fn take_events(&mut self, end: usize) -> bool {
        let hostile = self.hostile;
        let side = &mut self.sides[end];
        let before = side.peer.events.len();
        for event in std::mem::take(&mut side.peer.events) {
            match event {
                EngineEvent::CallArrived(call) => {
                    side.arrived += 1;
                    if !hostile {
                        *side.served.entry(word(call.payload.as_slice(), 2)).or_default() += 1;
                    }
                    side.pending.push(call);
                }
                EngineEvent::ReplySent { .. } => side.replies_sent += 1,
                EngineEvent::CallFinished { id, result } => {
                    let number = side.calls.remove(&id).expect("call finished twice");
                    if let (Ok(reply), false) = (&result, hostile) {
                        side.scripts[&number].check(reply);
                    }
                    assert!(side.outcomes.insert(number, result).is_none());
                }
                other => side.peer.events.push(other),
            }
        }
        before > side.peer.events.len()
    }

    /// Replies to the pending call `n` of the side `end`. Returns `true` if there is one.
    pub(super) fn answer(&mut self, end: usize, n: usize) -> bool {
        if n >= self.sides[end].pending.len() {
            return false;
        }
        let call = self.sides[end].pending.swap_remove(n);
        let known = call.payload.as_slice().get(8..12).map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()));
        let script = known.and_then(|number| self.sides[1 - end].scripts.get(&number).cloned());
        let script = match script {
            Some(script) => script,
            None => {
                assert!(self.hostile, "a call without a script");
                Script::default()
            }
        };
        if !self.hostile {
            script.check_call(&call);
        }
        let reply = script.reply(call.reply().write_chunks.iter().map(Option::is_some));
        self.sides[end].peer.conn.reply(call.token, reply);
        true
    }

    /// Runs one iteration of both sides and of the network. Returns `true` if anything happened.
    pub(super) fn turn(&mut self) -> bool {
        let mut busy = false;
        for end in [CLIENT, SERVER] {
            busy |= self.sides[end].peer.turn(self.now);
            busy |= self.take_events(end);
            busy |= self.answer(end, 0);
        }
        busy | self.network.step()
    }

    /// Runs until nothing more happens.
    pub(super) fn run(&mut self) {
        let mut idle = 0;
        for _ in 0..1_000_000 {
            idle = if self.turn() { 0 } else { idle + 1 };
            if idle == 2 {
                return;
            }
        }
        panic!("the engines do not become idle");
    }

    /// Runs like [`run`](Self::run), in an order that `choose` decides. `choose` returns a number below its argument.
    pub(super) fn run_shuffled(&mut self, mut choose: impl FnMut(usize) -> usize) {
        let mut idle = 0;
        for _ in 0..1_000_000 {
            let end = choose(2);
            let busy = match choose(4) {
                0 => self.sides[end].peer.turn(self.now),
                1 => self.take_events(end),
                2 => {
                    let count = self.sides[end].pending.len();
                    count > 0 && self.answer(end, choose(count))
                }
                _ => self.network.step(),
            };
            idle = if busy { 0 } else { idle + 1 };
            if idle > 8 {
                // The random order may have left something out.
                if !self.turn() && !self.turn() {
                    return;
                }
                idle = 0;
            }
        }
        panic!("the engines do not become idle");
    }

    /// Advances the clock.
    pub(super) fn advance(&mut self, by: Duration) {
        self.now += by;
    }

    /// Checks that client and server have no registered memory.
    pub(super) fn assert_nothing_exposed(&self) {
        assert_eq!((self.network.registered(SimEnd::A), self.network.registered(SimEnd::B)), (0, 0));
        for side in &self.sides {
            let counters = side.peer.conn.counters();
            assert_eq!((counters.exposed_regions, counters.registered_bytes), (0, 0));
        }
    }
}
