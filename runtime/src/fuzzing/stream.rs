//! Fuzzing of engines over a byte stream (RFC 5531 §11).
//!
//! The first byte chooses the engine's role and limits. The stream obeys its contract: it delivers bytes only when the
//! engine wants them. The peer may send anything.

use std::{io::IoSlice, sync::Arc};

use super::engine::{Input, Network, World, XID};
use crate::{
    engine::{
        CloseReason, Engine as _, EngineConfig, Role,
        stream::{StreamConfig, StreamConnection},
    },
    memory::{BudgetCharge, MemoryBudget, MemoryShare},
    provider::DisconnectReason,
};

/// Memory that all connections may hold together, in bytes.
const MEMORY: u64 = 16_000;
/// Memory that other connections hold at times, in bytes.
const OTHERS: u64 = 5000;

/// A stream and the memory budget that its connection shares with other connections.
struct Stream {
    port: (),
    budget: Arc<MemoryBudget>,
    others: Option<BudgetCharge>,
    most_arrived: usize,
}

/// Runs a stream engine with the events of `bytes`, then closes its connection.
///
/// # Panics
/// Panics if the engine violates its contract: a call does not finish exactly once, concurrent calls or memory exceed
/// the configured limits, or memory is not released.
pub fn tcp_stream(bytes: &[u8]) {
    let mut input = Input(bytes);
    let Some(mode) = input.byte() else { return };
    let role = if mode & 1 == 0 { Role::Server } else { Role::Client };
    let budget = MemoryBudget::new(MEMORY);
    let mut config = EngineConfig::default();
    config.credits = 1 + u32::from(mode >> 5);
    config.reverse_credits = u32::from(mode >> 1 & 3);
    config.max_fetched = 15_000;
    config.budget = Some(budget.account(1));
    // One more may be a NULL call.
    let most_arrived = 1 + if role == Role::Server { config.credits } else { config.reverse_credits } as usize;
    let mut stream = StreamConfig::default();
    stream.max_record = if mode & 8 == 0 { budget.max_of_call() } else { 100 };
    stream.max_fragments = 5;
    stream.fragment_size = if mode & 16 == 0 { 40 } else { 10_000 };
    let engine = StreamConnection::new(role, config, stream, XID);
    World::run(engine, Stream { port: (), budget, others: None, most_arrived }, input);
}

impl Network for Stream {
    type Engine = StreamConnection;

    fn port(&mut self) -> &mut () {
        &mut self.port
    }

    fn step(world: &mut World<Self>, step: u8, input: &mut Input<'_>) {
        let World { engine, network, .. } = world;
        match step % 13 {
            0..=2 => {
                let len = input.number();
                receive(engine, input.take(len));
            }
            // Many zero bytes, for long records.
            3 => receive(engine, &vec![0; input.number() * 32]),
            4 => engine.handle_records(1 + usize::from(step >> 4)),
            5 => {
                let [shape, inline, item] = input.numbers();
                world.call([shape & 1 | (shape & 2) << 3, inline, item, 0, 0]);
            }
            6 | 7 if step & 0x80 == 0 => world.reply(input.number() * 4, 0),
            6 | 7 => world.reply_error(),
            8 => {
                world.cancel();
            }
            9 => world.wait(input.number()),
            10 => {
                let ready: usize = engine.output().iter().map(|slice: &IoSlice<'_>| slice.len()).sum();
                engine.sent(ready.min(input.number() * 8));
            }
            11 => {
                let others = network.others.take();
                network.others = others
                    .is_none()
                    .then(|| MemoryShare::of(Some(network.budget.account(2))).take_now(OTHERS))
                    .flatten();
            }
            // Rarely, because each of these ends the run.
            _ => match input.byte() {
                Some(0) => engine.close_with(CloseReason::Disconnected(DisconnectReason::Local)),
                Some(1) => engine.ended(),
                Some(2) if engine.wants_shutdown() => engine.shut_down(),
                _ => {}
            },
        }
    }

    fn check(world: &mut World<Self>) {
        let Stream { budget, others, most_arrived, .. } = &world.network;
        assert!(world.unsent.len() <= *most_arrived, "more calls than granted credits");
        // Records that arrive before the reply to a local call may exceed the limit.
        assert!(world.has_called || budget.held() <= MEMORY, "{} bytes are held", budget.held());
        if world.closed {
            assert_eq!(budget.waiting(), 0);
            assert_eq!(budget.held(), others.as_ref().map_or(0, BudgetCharge::bytes), "memory is not released");
        }
    }

    fn end(&mut self, engine: &mut StreamConnection) {
        engine.connection_lost(DisconnectReason::Remote);
    }
}

fn receive(engine: &mut StreamConnection, bytes: &[u8]) {
    if engine.wants_input() {
        engine.receive(bytes);
        engine.handle_records(2);
    }
}
