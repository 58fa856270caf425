//! Deadlines of a requester's calls in version 1.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use crate::support::{Script, ScriptedPeer, plain, take_finished};
use rpcrdma_proto::{
    engine::{CallFailure, CloseReason, EngineConfig, EngineEvent, IncomingReply, Role},
    provider::sim::SimEnd,
};

const XID: u32 = 0x1000;

fn client() -> ScriptedPeer {
    ScriptedPeer::new(Role::Client, EngineConfig::default(), true)
}

fn finished(facing: &mut ScriptedPeer) -> Option<Result<IncomingReply, CallFailure>> {
    facing.run();
    take_finished(&mut facing.engine).map(|(_, result)| result)
}

fn exposed(facing: &ScriptedPeer) -> usize {
    facing.network.registered(SimEnd::A)
}

/// Deadlines hold for calls in flight and for calls that wait for a credit.
#[test]
fn deadlines_of_queued_calls_and_calls_in_flight() {
    let mut facing = client();
    let deadline = |secs| Some(Duration::from_secs(secs));
    let sent = facing.call(&Script { reply_inline: 9000, deadline: deadline(3), ..Script::default() });
    let queued = facing.call(&Script { inline: 9000, deadline: deadline(2), ..Script::default() });
    facing.run();
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + Duration::from_secs(2)));
    facing.now += Duration::from_secs(2);
    facing.run();
    let (id, result) = take_finished(&mut facing.engine).unwrap();
    assert!(id == queued && matches!(result, Err(CallFailure::DeadlineExceeded { sent: false })));
    facing.now += Duration::from_secs(1);
    facing.run();
    let (id, result) = take_finished(&mut facing.engine).unwrap();
    assert!(id == sent && matches!(result, Err(CallFailure::DeadlineExceeded { sent: true })));
    // The memory of the call stays registered for the grace period.
    let grace = EngineConfig::default().abandoned_call_timeout;
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + grace));
    facing.now += grace;
    facing.run();
    assert_eq!(exposed(&facing), 0);
    assert_eq!(facing.engine.conn.poll_timeout(), None);
}

/// A deadline also holds while a replied call waits for its memory to be invalidated. The engine keeps the memory until
/// the invalidation has completed.
#[test]
fn deadline_while_a_replied_call_awaits_invalidation() {
    let mut facing = client();
    let deadline = Some(Duration::from_secs(3));
    let id = facing.call(&Script { args: vec![5000, 5000], reduce: true, deadline, ..Script::default() });
    facing.run();
    assert_eq!(exposed(&facing), 2);
    facing.raw.send(&plain(XID, 8, 1, 0), &[]);
    while facing.raw.turn() {}
    // The reply has arrived and the invalidations are posted, but the provider does not execute them.
    facing.engine.turn(facing.now);
    assert_eq!(facing.engine.conn.counters().calls_sent, 1);
    assert!(facing.engine.events.is_empty() && exposed(&facing) == 2);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + Duration::from_secs(3)));
    facing.now += Duration::from_secs(3);
    facing.engine.conn.handle_timeout(facing.now);
    let Some(EngineEvent::CallFinished { id: over, result: Err(CallFailure::DeadlineExceeded { sent: true }) }) =
        facing.engine.conn.poll_event()
    else {
        panic!("no DeadlineExceeded event at the deadline")
    };
    assert!(over == id && exposed(&facing) == 2);
    // When the memory is invalidated, the caller gets no second event.
    assert!(finished(&mut facing).is_none() && facing.engine.events.is_empty());
    assert_eq!((exposed(&facing), facing.engine.conn.poll_timeout()), (0, None));
    let counters = facing.engine.conn.counters();
    assert_eq!((counters.exposed_regions, counters.calls_abandoned), (0, 0));
    // The connection still works.
    facing.call(&Script::default());
    facing.run();
    facing.raw.send(&plain(XID + 1, 8, 1, 0), &[]);
    assert!(finished(&mut facing).is_some_and(|result| result.is_ok()));
}

/// With a grace period of zero, calls do not linger, and the engine still detects a peer that never replies.
#[test]
fn unresponsive_peer_without_a_grace_period() {
    let mut config = EngineConfig::default();
    config.abandoned_call_timeout = Duration::ZERO;
    let mut facing = ScriptedPeer::new(Role::Client, config, true);
    let deadline = Some(Duration::from_secs(1));
    for n in 0..20 {
        facing.call(&Script { number: n, deadline, ..Script::default() });
        facing.run();
        facing.now += Duration::from_secs(60);
        finished(&mut facing);
    }
    assert!(matches!(facing.engine.conn.close_reason(), Some(CloseReason::Unresponsive(_))));
}
