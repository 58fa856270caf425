//! A version 2 engine against a scripted peer, which sends the words that a test specifies.

use std::time::Instant;

use rpcrdma_proto::{
    engine::{
        CallFailure, Connection, ConnectionSetup, Engine as _, EngineConfig, IncomingReply, PrivateData, Role, Versions,
    },
    provider::sim::{self, SimConfig, SimEndConfig, SimNetwork},
};

use crate::support::{Peer, Raw, Script, end_config, take_finished, with_versions};

/// The engine's first XID.
pub(crate) const XID: u32 = 0x1000;
/// A credit field: at most 16 credits outstanding, and 16 new credits.
pub(crate) const CREDIT: u32 = 16 << 16 | 16;
/// A credit field without new credits.
pub(crate) const NO_NEW: u32 = 16 << 16;

// Header types (§6.1) and flags (§6.2.2) are written as numbers, independent of the generated constants.
pub(crate) const MSG: u32 = 0;
pub(crate) const NOMSG: u32 = 1;
pub(crate) const ERROR: u32 = 4;
pub(crate) const CONNPROP: u32 = 5;
pub(crate) const RESPONSE: u32 = 1;
pub(crate) const MORE: u32 = 2;
pub(crate) const TPMORE: u32 = 4;

pub(crate) struct Facing {
    pub(crate) engine: Peer,
    pub(crate) raw: Raw,
    pub(crate) network: SimNetwork,
    pub(crate) now: Instant,
}

impl Facing {
    /// Creates an engine in this role. No message has been exchanged.
    pub(crate) fn silent(role: Role, config: EngineConfig) -> Self {
        Self::with(role, with_versions(config, Versions::V2))
    }

    /// Creates an engine that has exchanged properties. The peer announced none.
    pub(crate) fn new(role: Role, config: EngineConfig) -> Self {
        Self::said(role, config, &[])
    }

    /// Creates an engine that has exchanged properties. The peer announced `properties`, each given by its identifier
    /// and the words of its value.
    pub(crate) fn said(role: Role, config: EngineConfig, properties: &[(u32, &[u32])]) -> Self {
        let mut facing = Self::silent(role, config);
        facing.run();
        facing.raw.send(&connprop(7, 0, properties), &[]);
        facing.run();
        facing.raw.received.clear();
        facing
    }
}

/// Returns an RDMA2_CONNPROP with these properties.
pub(crate) fn connprop(xid: u32, flags: u32, properties: &[(u32, &[u32])]) -> Vec<u32> {
    let mut words = vec![xid, 2, CREDIT, CONNPROP, flags, properties.len() as u32];
    for (which, value) in properties {
        words.extend([*which, 4 * value.len() as u32]);
        words.extend_from_slice(value);
    }
    words
}

impl Facing {
    pub(crate) fn with(role: Role, config: EngineConfig) -> Self {
        Self::with_invalidation(role, config, true, true)
    }

    /// Creates an engine in this role. No message has been exchanged. `announced` is `true` if both peers announce
    /// remote invalidation. `supported` is `true` if their providers support it.
    pub(crate) fn with_invalidation(role: Role, config: EngineConfig, announced: bool, supported: bool) -> Self {
        let mut base = SimEndConfig::default();
        base.remote_invalidation = supported;
        Self::with_ends(role, config, announced, &base)
    }

    /// Creates an engine in this role, on a network with these options for both ends. No message has been exchanged.
    /// `announced` is `true` if both peers announce remote invalidation.
    pub(crate) fn with_ends(role: Role, config: EngineConfig, announced: bool, base: &SimEndConfig) -> Self {
        let mut sim = SimConfig::default();
        sim.ends = [end_config(&config, base), end_config(&config, base)];
        let says = PrivateData::new(&config, announced);
        let (a, b, network) = sim::pair(sim);
        let (engine, raw) = if role == Role::Client { (a, b) } else { (b, a) };
        let conn = Connection::new(role, config, ConnectionSetup { local: says, peer: says, xid_seed: XID });
        Self { engine: Peer::with(conn, engine), raw: Raw::new(raw), network, now: Instant::now() }
    }

    /// Runs the engine, the scripted peer and the network until nothing more happens.
    pub(crate) fn run(&mut self) {
        let mut idle = 0;
        for _ in 0..10_000 {
            let mut busy = self.engine.turn(self.now);
            busy |= self.raw.turn();
            busy |= self.network.step();
            idle = if busy { 0 } else { idle + 1 };
            if idle == 2 {
                return;
            }
        }
        panic!("the engine does not become idle");
    }

    pub(crate) fn call(&mut self, script: &Script) {
        let call = script.outgoing(&self.engine.conn, self.now);
        self.engine.conn.start_call(call);
        self.run();
    }

    pub(crate) fn finished(&mut self) -> Option<Result<IncomingReply, CallFailure>> {
        take_finished(&mut self.engine).map(|(_, result)| result)
    }

    /// Sends a message of these words, and runs until nothing more happens.
    pub(crate) fn send(&mut self, words: &[u32]) {
        self.raw.send(words, &[]);
        self.run();
    }

    /// Takes the next received message that is not a credit grant, and returns its words.
    pub(crate) fn next(&mut self) -> Option<Vec<u32>> {
        loop {
            let words = self.raw.next()?;
            if !(words[0] == 0 && words[3] == NOMSG) {
                return Some(words);
            }
        }
    }
}

/// Returns an RDMA2_MSG without chunks whose payload consists of `xid`, `msg_type` and `number`.
pub(crate) fn plain(xid: u32, credit: u32, msg_type: u32, number: u32) -> Vec<u32> {
    vec![xid, 2, credit, MSG, msg_type, 0, 0, 0, 0, xid, msg_type, number]
}
