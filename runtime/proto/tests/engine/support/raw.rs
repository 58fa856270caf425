//! Scripted peers, which send the words that a test specifies, including messages that no engine would send.

use rpcrdma_proto::engine::Engine as _;
use std::{
    collections::VecDeque,
    task::{Context, Waker},
    time::Instant,
};

use bytes::Bytes;
use rpcrdma_proto::{
    engine::{CallId, ConnectionSetup, EngineConfig, PrivateData, Role},
    memory::{MessageBuf, Output},
    provider::{
        Access, Completion, MemoryHandle, QueuePair, RegisterableMemory, RemoteMemory, WorkRequest, WrId,
        sim::{self, SimConfig, SimEndConfig, SimNetwork, SimQueuePair},
    },
};

use super::{Peer, Script, end_config, script::word};

/// The value of bytes in a sink that the engine has not written. Padding would be zeros instead, but a responder must
/// not write it.
pub(crate) const UNWRITTEN: u8 = 0xee;

/// A peer without an engine, whose messages the test writes.
pub(crate) struct Raw {
    pub(crate) qp: SimQueuePair,
    /// Received messages, each with the handle that it invalidated, if any.
    pub(crate) received: VecDeque<(Vec<u8>, Option<MemoryHandle>)>,
    /// Completions other than received messages, without those that [`take_back`](Self::take_back) has removed.
    pub(crate) completed: Vec<Completion>,
}

impl Raw {
    pub(crate) fn new(qp: SimQueuePair) -> Self {
        Self { qp, received: Default::default(), completed: Vec::new() }
    }

    pub(crate) fn turn(&mut self) -> bool {
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

    /// Sends a message that consists of `words` and then `bytes`.
    pub(crate) fn send(&mut self, words: &[u32], bytes: &[u8]) {
        self.send_invalidating(words, bytes, None);
    }

    pub(crate) fn send_invalidating(&mut self, words: &[u32], bytes: &[u8], invalidate: Option<MemoryHandle>) {
        let mut message = MessageBuf::new(Vec::new().into(), 0);
        for word in words {
            message.append(&word.to_be_bytes());
        }
        message.append(bytes);
        self.qp.post(WorkRequest::Send { id: WrId(0), message, invalidate, solicited: false, signaled: true });
    }

    pub(crate) fn write(&mut self, handle: u32, offset: u64, data: &[u8]) {
        let remote = RemoteMemory { handle: MemoryHandle(handle), offset };
        self.qp.post(WorkRequest::Write { id: WrId(0), source: Bytes::copy_from_slice(data), remote });
    }

    /// Registers memory that the peer may read. Returns its handle and base offset.
    pub(crate) fn source(&mut self, data: &[u8]) -> (u32, u64) {
        let region =
            self.qp.register(RegisterableMemory::Source(Bytes::copy_from_slice(data)), Access::RemoteRead).unwrap();
        (region.handle.0, region.base)
    }

    /// Registers memory that the peer may write, filled with [`UNWRITTEN`]. Returns its handle and base offset.
    pub(crate) fn sink(&mut self, len: usize) -> (u32, u64) {
        self.sink_of(vec![UNWRITTEN; len])
    }

    /// Registers memory that has these contents and that the peer may write. Returns its handle and base offset.
    pub(crate) fn sink_of(&mut self, contents: Vec<u8>) -> (u32, u64) {
        let region = self.qp.register(RegisterableMemory::Sink(contents.into()), Access::RemoteWrite).unwrap();
        (region.handle.0, region.base)
    }

    /// Invalidates a sink and returns its contents.
    pub(crate) fn take_back(&mut self, handle: u32) -> Vec<u8> {
        self.qp.post(WorkRequest::Invalidate { id: WrId(77), handle: MemoryHandle(handle) });
        while self.turn() {}
        let at = self.completed.iter().position(|c| matches!(c, Completion::Invalidated { id: WrId(77), .. }));
        match self.completed.swap_remove(at.expect("no invalidation")) {
            Completion::Invalidated { memory: RegisterableMemory::Sink(buf), .. } => buf.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    /// Takes the next received message, and returns its words.
    pub(crate) fn next(&mut self) -> Option<Vec<u32>> {
        let (bytes, _) = self.received.pop_front()?;
        Some((0..bytes.len() / 4).map(|n| word(&bytes, n)).collect())
    }

    pub(crate) fn disconnected(&self) -> bool {
        self.completed.iter().any(|completion| matches!(completion, Completion::Disconnected { .. }))
    }
}

/// An engine that faces a scripted peer.
pub(crate) struct ScriptedPeer {
    pub(crate) engine: Peer,
    pub(crate) raw: Raw,
    pub(crate) network: SimNetwork,
    pub(crate) now: Instant,
}

impl ScriptedPeer {
    /// Creates an engine in this role. Both peers send private data according to `config`, with the R flag if
    /// `remote_invalidation` is `true`.
    pub(crate) fn new(role: Role, config: EngineConfig, remote_invalidation: bool) -> Self {
        let mut sim = SimConfig::default();
        let base = SimEndConfig::default();
        sim.ends = [end_config(&config, &base), end_config(&config, &base)];
        let says = PrivateData::new(&config, remote_invalidation);
        Self::with(role, config, ConnectionSetup { local: says, peer: says, xid_seed: 0x1000 }, sim)
    }

    pub(crate) fn with(role: Role, config: EngineConfig, setup: ConnectionSetup, sim: SimConfig) -> Self {
        let (a, b, network) = sim::pair(sim);
        let (engine, raw) = if role == Role::Client { (a, b) } else { (b, a) };
        Self { engine: Peer::new(role, config, setup, engine), raw: Raw::new(raw), network, now: Instant::now() }
    }

    /// Runs the engine, the scripted peer and the network until nothing more happens.
    pub(crate) fn run(&mut self) {
        let mut idle = 0;
        for _ in 0..10_000 {
            let mut busy = self.engine.turn(self.now);
            busy |= self.raw.turn();
            busy |= self.network.step();
            // What one peer posts last takes effect when the other is polled.
            idle = if busy { 0 } else { idle + 1 };
            if idle == 2 {
                return;
            }
        }
        panic!("the engine does not become idle");
    }

    /// Starts a scripted call.
    pub(crate) fn call(&mut self, script: &Script) -> CallId {
        let call = script.outgoing(&self.engine.conn, self.now);
        self.engine.conn.start_call(call)
    }
}

/// The words of three absent chunk lists.
pub(crate) const NO_CHUNKS: [u32; 3] = [0, 0, 0];

/// Returns an RDMA_MSG without chunks whose payload consists of `xid`, `msg_type` and `number`.
pub(crate) fn plain(xid: u32, credit: u32, msg_type: u32, number: u32) -> Vec<u32> {
    vec![xid, 1, credit, 0, 0, 0, 0, xid, msg_type, number]
}

/// Splits an offset into two words.
pub(crate) fn split(offset: u64) -> [u32; 2] {
    [(offset >> 32) as u32, offset as u32]
}

pub(crate) fn join(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
