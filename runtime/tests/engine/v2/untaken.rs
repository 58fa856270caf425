//! A requester that takes nothing of what it is answered, or gives no credits for it.

use rpcrdma::engine::Engine as _;
use std::time::Duration;

use rpcrdma::{
    engine::{CloseReason, EngineConfig, Event, Role},
    provider::sim::End,
};

use super::facing::{CREDIT, Facing, MSG, NO_NEW, NOMSG, connprop, plain};
use crate::support::{Script, take_call};

const MOMENT: Duration = Duration::from_millis(1);

/// A call, with this credit field, that is answered.
fn answer(facing: &mut Facing, xid: u32, credit: u32, script: &Script) {
    facing.send(&plain(xid, credit, 0, script.number));
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
    facing.run();
}

fn passes(facing: &mut Facing, time: Duration) {
    facing.now += time;
    facing.run();
}

/// Answers that do not go out end the connection when their time is up; each that does begins it anew.
#[test]
fn ends_the_connection() {
    let config = EngineConfig::default();
    let limit = config.reply_timeout;
    let mut facing = Facing::new(Role::Server, config);
    assert_eq!(facing.engine.conn.poll_timeout(), None, "nothing is under way");
    facing.network.stall(End::B, true);
    for xid in [5, 6] {
        answer(&mut facing, xid, CREDIT, &Script::default());
    }
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    facing.network.stall(End::B, false);
    assert!(facing.network.step());
    facing.network.stall(End::B, true);
    facing.run();
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    assert_eq!(facing.engine.conn.close_reason(), None);
    passes(&mut facing, MOMENT);
    facing.network.stall(End::B, false);
    facing.run();
    let events = &facing.engine.events;
    assert!(matches!(events.last(), Some(Event::Closed(CloseReason::Untaken(after))) if *after == limit), "{events:?}");
}

/// §4.2.1: a reply that waits for a credit holds what it has as well. A peer that gives one has its time anew.
#[test]
fn without_credits() {
    let config = EngineConfig::default();
    let limit = config.reply_timeout;
    let mut facing = Facing::silent(Role::Server, config);
    facing.run();
    let mut properties = connprop(7, 0, &[]);
    // What the properties of this end take.
    properties[2] = 16 << 16 | 1;
    facing.send(&properties);
    facing.raw.received.clear();
    let grant = |credits: u32| [0, 2, 16 << 16 | credits, NOMSG, 0, 0, 0, 0, 0];
    // Of three Sends, one is let out; later the others.
    let long = Script { reply_inline: 10_000, ..Script::default() };
    answer(&mut facing, 5, 16 << 16 | 1, &long);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    facing.send(&grant(1));
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    assert_eq!(facing.engine.conn.close_reason(), None);
    facing.send(&grant(1));
    assert_eq!(facing.engine.conn.poll_timeout(), None, "all of it has gone");
    // Another reply, and no credit for it.
    answer(&mut facing, 6, NO_NEW, &Script::default());
    passes(&mut facing, limit);
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::Untaken(limit)));
    let sent = std::iter::from_fn(|| facing.next()).filter(|words| words[3] == MSG).count();
    assert_eq!(sent, 3);
}

/// A requester's calls have the deadlines that their callers give them, in however many Sends they go.
#[test]
fn calls_do_not_count() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.network.stall(End::A, true);
    facing.call(&Script { inline: 8000, ..Script::default() });
    assert_eq!(facing.engine.conn.counters().continued_sent, 1);
    assert_eq!(facing.engine.conn.poll_timeout(), None);
}
