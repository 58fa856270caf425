//! Fuzzing of RPC-over-RDMA engines.
//!
//! The first byte chooses the engine's role and configuration. The provider obeys its contract: it delivers no more
//! messages than there are Receives, completes work in order, and reports `Disconnected` after all work that was posted
//! before. The peer may send anything.

use std::{
    collections::{BTreeMap, VecDeque},
    task::{Context, Poll},
};

use super::engine::{Input, Network, World, XID};
use crate::{
    engine::{Connection, ConnectionSetup, Engine as _, EngineConfig, PrivateData, Role, Versions},
    memory::MessageBuf,
    provider::{
        Access, Completion, DisconnectReason, MemoryHandle, QueuePair, Region, RegisterError, RegisterableMemory,
        WorkError, WorkRequest,
    },
};

/// Maximum memory that the engine may allocate for the peer's calls, in bytes.
const MAX_FETCHED: u64 = 1 << 16;

/// A region that the engine has registered with the provider.
struct Registered {
    memory: RegisterableMemory,
    access: Access,
    /// `true` if the peer invalidated the region by Send with Invalidate.
    invalid: bool,
}

/// A provider with handles 1, 2, 3 and so on. It completes posted work on demand.
#[derive(Default)]
struct Provider {
    receives: usize,
    last_handle: u32,
    registered: BTreeMap<u32, Registered>,
    posted: VecDeque<WorkRequest>,
    disconnecting: bool,
    gone: bool,
    send_threshold: usize,
    /// `true` if both peers make calls.
    symmetric: bool,
}

impl QueuePair for Provider {
    fn register(&mut self, memory: RegisterableMemory, access: Access) -> Result<Region, RegisterError> {
        // The limit is low enough to be reached.
        if self.gone || self.registered.len() > 40 {
            return Err(RegisterError { source: "no free handles".into(), memory });
        }
        self.last_handle += 1;
        self.registered.insert(self.last_handle, Registered { memory, access, invalid: false });
        let fetched = self.registered.values().filter(|region| region.access == Access::ReadSink);
        let fetched: usize = fetched.map(|region| region.memory.len()).sum();
        assert!(fetched as u64 <= MAX_FETCHED, "{fetched} bytes of sinks exceed the limit");
        Ok(Region { handle: MemoryHandle(self.last_handle), base: 0 })
    }

    fn is_open(&self) -> bool {
        !self.gone
    }

    fn post(&mut self, request: WorkRequest) {
        match &request {
            WorkRequest::Send { message, .. } => {
                assert!(message.len() <= self.send_threshold, "message exceeds the send threshold")
            }
            WorkRequest::Read { sink, sink_offset, len, .. } => {
                let region = self.registered.get(&sink.0).expect("the sink is registered");
                assert_eq!(region.access, Access::ReadSink);
                assert!(
                    sink_offset.saturating_add((*len).into()) <= region.memory.len() as u64,
                    "read goes beyond its sink"
                );
            }
            WorkRequest::Write { .. } => {}
            WorkRequest::Invalidate { handle, .. } => {
                assert!(self.registered.contains_key(&handle.0), "{handle:?} is not registered");
            }
        }
        self.posted.push_back(request);
    }

    fn post_receives(&mut self, count: usize) {
        self.receives += count;
    }

    fn poll(&mut self, _: &mut Context<'_>, _: &mut Vec<Completion>) -> Poll<()> {
        Poll::Pending
    }

    fn disconnect(&mut self) {
        self.disconnecting = true;
    }

    fn max_reads(&self) -> u32 {
        4
    }

    fn remote_invalidation(&self) -> bool {
        true
    }

    fn copied_payload_bytes(&self) -> u64 {
        0
    }
}

impl Provider {
    /// Completes the oldest posted work request, with `failure` if given. Invalidations of registered memory always
    /// succeed.
    fn complete(&mut self, failure: Option<WorkError>) -> Option<Completion> {
        let request = self.posted.pop_front()?;
        Some(match request {
            // Invalidation succeeds even on a broken connection.
            WorkRequest::Invalidate { id, handle } if self.registered.contains_key(&handle.0) => {
                let memory = self.registered.remove(&handle.0)?.memory;
                Completion::Invalidated { id, memory }
            }
            request => request.completion(failure.map_or(Ok(()), Err)),
        })
    }

    /// Reads a message of the peer from `input`: one byte for its length in words, then the words. Passes the message
    /// to the engine if a Receive is posted.
    fn receive(&mut self, engine: &mut Connection, invalidated: Option<MemoryHandle>, input: &mut Input<'_>) {
        let bytes = input.number() * 4;
        let bytes = input.take(bytes).to_vec();
        if self.gone || self.receives == 0 {
            return;
        }
        self.receives -= 1;
        let len = bytes.len();
        let message = MessageBuf::received(bytes.into(), len);
        engine.handle_completion(Completion::Received { message, invalidated });
    }
}

/// Runs a version 1 engine with the events of `bytes`, then closes its connection.
///
/// # Panics
/// Panics if the engine violates its contract, for example if a call does not finish exactly once, memory is not
/// released, the memory for the peer's calls exceeds the configured limit, or a message is longer than the peer's
/// receive buffers.
pub fn engine(bytes: &[u8]) {
    run(bytes, Versions::V1);
}

/// Runs an engine as [`engine`] does. The engine may negotiate version 2, and both peers make calls.
pub fn engine_v2(bytes: &[u8]) {
    run(bytes, Versions::Both);
}

fn run(bytes: &[u8], versions: Versions) {
    let mut input = Input(bytes);
    let Some(mode) = input.byte() else { return };
    let role = if mode & 1 == 0 { Role::Server } else { Role::Client };
    let mut config = EngineConfig::default();
    (config.max_call_len, config.max_fetched) = (MAX_FETCHED / 2, MAX_FETCHED);
    config.versions = versions;
    config.max_continued = 5000;
    config.credits = 1 + u32::from(mode >> 4);
    config.min_reduce = if mode & 2 == 0 { 1 } else { 100 };
    config.max_segment_len = if mode & 4 == 0 { 1 << 30 } else { 64 };
    let says = PrivateData::new(&config, mode & 8 != 0);
    let setup = ConnectionSetup { local: says, peer: says, xid_seed: XID };
    let provider = Provider {
        receives: Connection::setup_params(&config, true).receive_count,
        send_threshold: config.send_size as usize,
        ..Provider::default()
    };
    let symmetric = config.versions.allows_v2();
    let engine = Connection::new(role, config, setup);
    World::run(engine, Provider { symmetric, ..provider }, input);
}

impl Network for Provider {
    type Engine = Connection;

    fn port(&mut self) -> &mut (dyn QueuePair + 'static) {
        self
    }

    fn step(world: &mut World<Self>, step: u8, input: &mut Input<'_>) {
        let World { engine, network, .. } = world;
        match step % 12 {
            0..=2 => network.receive(engine, None, input),
            3 => {
                let handle = input.number() as u32;
                let exposed = network.registered.get_mut(&handle);
                if let Some(region) = exposed.filter(|region| region.access != Access::ReadSink && !region.invalid) {
                    region.invalid = true;
                    network.receive(engine, Some(MemoryHandle(handle)), input);
                }
            }
            4 | 5 => {
                if let Some(completion) = network.complete(None) {
                    engine.handle_completion(completion);
                }
            }
            6 => network.end(engine),
            7 | 8 => {
                let calls = if network.symmetric { step % 12 == 7 } else { engine.role() == Role::Client };
                if calls {
                    world.call(input.numbers());
                } else {
                    let [inline, item] = input.numbers();
                    world.reply(inline * 32, item);
                }
            }
            9 => {
                if !world.cancel() {
                    world.reply_error();
                }
            }
            10 => world.wait(input.number()),
            _ => {
                // Rarely, because this ends the run.
                if input.byte() == Some(0) {
                    engine.close();
                }
            }
        }
    }

    fn check(world: &mut World<Self>) {
        let World { engine, network, closed, .. } = world;
        if network.disconnecting && !network.gone {
            network.end(engine);
        }
        if *closed {
            assert_eq!(network.registered.len(), 0, "memory is still registered");
            assert_eq!(engine.counters().exposed_regions, 0);
        }
    }

    fn end(&mut self, engine: &mut Connection) {
        while let Some(completion) = self.complete(Some(WorkError::Flushed)) {
            engine.handle_completion(completion);
        }
        if !std::mem::replace(&mut self.gone, true) {
            engine.handle_completion(Completion::Disconnected { reason: DisconnectReason::Remote });
        }
    }
}
