//! A requester that does not accept replies, or grants no credits for them.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma_proto::{
    engine::{CloseReason, EngineConfig, EngineEvent, Role},
    provider::sim::SimEnd,
};

use super::scripted::{CREDIT, Facing, MSG, NO_NEW, NOMSG, connprop, plain};
use crate::support::{Script, take_call};

const MOMENT: Duration = Duration::from_millis(1);

/// Sends a call with the credit field `credit`, and makes the engine reply to it.
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

/// Replies without progress close the connection at the timeout. Each reply that is sent restarts the timeout.
#[test]
fn stalled_reply_closes_the_connection() {
    let config = EngineConfig::default();
    let limit = config.reply_timeout;
    let mut facing = Facing::new(Role::Server, config);
    assert_eq!(facing.engine.conn.poll_timeout(), None, "timeout without a reply in flight");
    facing.network.stall(SimEnd::B, true);
    for xid in [5, 6] {
        answer(&mut facing, xid, CREDIT, &Script::default());
    }
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    facing.network.stall(SimEnd::B, false);
    assert!(facing.network.step());
    facing.network.stall(SimEnd::B, true);
    facing.run();
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    assert_eq!(facing.engine.conn.close_reason(), None);
    passes(&mut facing, MOMENT);
    facing.network.stall(SimEnd::B, false);
    facing.run();
    let events = &facing.engine.events;
    assert!(
        matches!(events.last(), Some(EngineEvent::Closed(CloseReason::ReplyStalled(after))) if *after == limit),
        "{events:?}"
    );
}

/// §4.2.1: the timeout also covers a reply that waits for a credit. A new credit restarts the timeout.
#[test]
fn timeout_covers_replies_without_credits() {
    let config = EngineConfig::default();
    let limit = config.reply_timeout;
    let mut facing = Facing::silent(Role::Server, config);
    facing.run();
    let mut properties = connprop(7, 0, &[]);
    // One credit, which the server's properties use.
    properties[2] = 16 << 16 | 1;
    facing.send(&properties);
    facing.raw.received.clear();
    let grant = |credits: u32| [0, 2, 16 << 16 | credits, NOMSG, 0, 0, 0, 0, 0];
    // The reply has three Sends: one goes out at once, the others later.
    let long = Script { reply_inline: 10_000, ..Script::default() };
    answer(&mut facing, 5, 16 << 16 | 1, &long);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    facing.send(&grant(1));
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    passes(&mut facing, limit - MOMENT);
    assert_eq!(facing.engine.conn.close_reason(), None);
    facing.send(&grant(1));
    assert_eq!(facing.engine.conn.poll_timeout(), None, "timeout after the last Send");
    // Another reply, for which there is no credit.
    answer(&mut facing, 6, NO_NEW, &Script::default());
    passes(&mut facing, limit);
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::ReplyStalled(limit)));
    let sent = std::iter::from_fn(|| facing.next()).filter(|words| words[3] == MSG).count();
    assert_eq!(sent, 3);
}

/// The timeout does not cover a requester's calls, which have their own deadlines.
#[test]
fn timeout_does_not_cover_calls() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.network.stall(SimEnd::A, true);
    facing.call(&Script { inline: 8000, ..Script::default() });
    assert_eq!(facing.engine.conn.counters().continued_sent, 1);
    assert_eq!(facing.engine.conn.poll_timeout(), None);
}
