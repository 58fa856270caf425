//! The end of a connection: the calls that fail at once, their reasons, and the event that reports the end. Also, the
//! private data that permit remote invalidation.

use std::time::Duration;

use rpcrdma_proto::{
    engine::{CallFailure, CloseReason, ConnectionSetup, Engine as _, EngineConfig, EngineEvent, PrivateData, Role},
    provider::{DisconnectReason, sim::SimConfig},
};

use crate::support::{Script, ScriptedPeer, take_finished};

fn client() -> ScriptedPeer {
    ScriptedPeer::new(Role::Client, EngineConfig::default(), true)
}

/// When a connection closes, calls that were not sent fail at once. Calls in flight fail when the connection has ended.
/// All of them report the first reason for the close.
#[test]
fn closing_fails_queued_calls() {
    let mut facing = client();
    // The first call has the only credit.
    let sent = facing.call(&Script::default());
    let queued = facing.call(&Script { inline: 100, ..Script::default() });
    facing.run();
    assert!(facing.engine.events.is_empty());
    let reason = CloseReason::Idle(Duration::ZERO);
    facing.engine.conn.close_with(reason.clone());
    let Some(EngineEvent::CallFinished { id, result: Err(failure) }) = facing.engine.conn.poll_event() else {
        panic!("the queued call has not failed")
    };
    assert_eq!((id, failure), (queued, CallFailure::Closed { reason: reason.clone(), sent: false }));
    facing.engine.conn.close();
    facing.run();
    let (id, result) = take_finished(&mut facing.engine).unwrap();
    assert_eq!((id, result.unwrap_err()), (sent, CallFailure::Closed { reason: reason.clone(), sent: true }));
    assert_eq!(facing.engine.conn.close_reason(), Some(&reason));
    assert!(matches!(&facing.engine.events[..], [EngineEvent::Closed(known)] if *known == reason));
    // It ends once, whatever the provider reports.
    for _ in 0..2 {
        facing.engine.conn.connection_lost(DisconnectReason::Remote);
        facing.run();
    }
    assert_eq!(facing.engine.events.len(), 1);
    assert_eq!(facing.engine.conn.close_reason(), Some(&reason));
    assert_eq!(facing.engine.conn.poll_timeout(), None);
}

/// A connection is reported as closed only when every call has finished and no memory is exposed.
#[test]
fn closed_is_the_last_event() {
    let mut facing = client();
    let id = facing.call(&Script { args: vec![5000, 5000], reduce: true, ..Script::default() });
    facing.run();
    facing.network.cut();
    facing.run();
    let (finished, result) = take_finished(&mut facing.engine).unwrap();
    assert!(finished == id && matches!(result, Err(CallFailure::Closed { sent: true, .. })));
    assert!(matches!(&facing.engine.events[..], [EngineEvent::Closed(_)]));
    let counters = facing.engine.conn.counters();
    assert_eq!((counters.exposed_regions, counters.registered_bytes, counters.calls_queued), (0, 0, 0));
}

/// RFC 8797 §4.1: remote invalidation requires the support of both peers.
#[test]
fn remote_invalidation_takes_both_peers() {
    for (local, peer) in [(false, false), (false, true), (true, false), (true, true)] {
        let config = EngineConfig::default();
        let says = |supports| PrivateData::new(&config, supports);
        let setup = ConnectionSetup { local: says(local), peer: says(peer), xid_seed: 1 };
        let facing = ScriptedPeer::with(Role::Client, config.clone(), setup, SimConfig::default());
        assert_eq!(facing.engine.conn.peer_limits().remote_invalidation, local && peer, "{local}, {peer}");
    }
}
