//! What is told of calls that were sent again, and may have been carried out before (§7.3); and a peer that has stopped.

use rpcrdma::engine::Engine as _;
use std::time::Duration;

use rpcrdma::{
    client::CallError,
    engine::{CallFailure, CallId, CallPolicy, CloseReason, EngineConfig, Role},
};

use super::facing::{CREDIT, ERROR, Facing, NO_NEW, RESPONSE};
use crate::support::Script;

/// A peer that has stopped with a continued call half sent: there are no credits, however few calls are in flight.
#[test]
fn stopped_in_the_midst_of_a_sequence() {
    let config = EngineConfig::default();
    let grace = config.abandon_grace;
    let mut facing = Facing::new(Role::Client, config);
    let deadline = Some(Duration::from_secs(1));
    // More messages than the 16 that there are credits for.
    facing.call(&Script { inline: 40_000, deadline, ..Script::default() });
    facing.now += Duration::from_secs(1);
    facing.run();
    assert!(matches!(facing.finished(), Some(Err(CallFailure::DeadlineExceeded { .. }))));
    facing.now += grace;
    facing.run();
    for number in 1..20 {
        facing.call(&Script { number, deadline, ..Script::default() });
        facing.now += Duration::from_secs(60);
        facing.run();
    }
    let reason = facing.engine.conn.close_reason();
    assert!(matches!(reason, Some(CloseReason::Unresponsive(_))), "{reason:?}");
}

fn safe(failure: CallFailure) -> bool {
    CallError::Transport { procedure: "P", failure }.is_retry_safe()
}

fn executed_once() -> (Facing, u32) {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    facing.call(&Script { results: vec![(100, 5000)], policy, ..Script::default() });
    let words = facing.next().unwrap();
    (facing, words[0])
}

/// WRITE_RESOURCE (it has been carried out), with more than this end provides.
#[test]
fn executed_then_too_large() {
    let (mut facing, xid) = executed_once();
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 9, 1, 100 << 20]);
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(!safe(failure.clone()), "{failure:?}: the server has carried it out");
}

/// WRITE_RESOURCE (it has been carried out), then SEGMENTS for the call sent again.
#[test]
fn executed_then_refused_unseen() {
    let (mut facing, xid) = executed_once();
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 9, 1, 6000]);
    facing.send(&[xid + 1, 2, CREDIT, ERROR, RESPONSE, 8, 64]);
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(!safe(failure.clone()), "{failure:?}: the server has carried it out");
}

/// The same, and the connection is lost before it can be sent a third time: there is no credit for it.
#[test]
fn executed_then_lost_while_it_waits() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    // A Write chunk of one segment; after WRITE_RESOURCE it has more.
    facing.call(&Script { results: vec![(100, 5000), (100, 5000)], policy, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    facing.send(&[xid, 2, NO_NEW, ERROR, RESPONSE, 9, 1, 6000]);
    assert_eq!(facing.next().unwrap()[0], xid + 1);
    // Others use up all credits.
    for n in 0..40 {
        facing.call(&Script { number: n + 100, ..Script::default() });
    }
    // WRITE_CHUNKS: at most one.
    facing.send(&[xid + 1, 2, NO_NEW, ERROR, RESPONSE, 7, 1]);
    facing.engine.conn.cancel_call(CallId(0), facing.now);
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(!safe(failure.clone()), "{failure:?}: the server has carried it out");
}
