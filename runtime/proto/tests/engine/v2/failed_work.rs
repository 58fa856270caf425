//! Work requests that fail, and the memory of calls that end (RPC-over-RDMA v2 §7.4, §11.1.3).

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma_proto::{
    engine::{CallFailure, CloseReason, EngineConfig, Role},
    provider::sim::{SimConfig, SimEnd, SimFault},
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, Facing, plain},
};
use crate::support::{Script, join};

fn with_fault(fault: SimFault) -> PeerPair {
    let mut sim: SimConfig = stepped();
    sim.faults.push(fault);
    sim.ends.iter_mut().for_each(|end| end.remote_invalidation = false);
    PeerPair::new(EngineConfig::default(), EngineConfig::default(), sim)
}

fn reduced(number: u32) -> Script {
    Script { number, args: vec![5000], reduce: true, results: vec![(5000, 5000)], ..Script::default() }
}

/// §7.4: if the memory of a call cannot be invalidated, the connection is closed before the call finishes.
#[test]
fn connection_closes_before_the_call_finishes() {
    let mut duo = with_fault(SimFault::RefuseInvalidation { end: SimEnd::A, nth: 1 });
    duo.call(CLIENT, Script { args: vec![5000, 5000], reduce: true, ..Script::default() });
    while duo.sides[CLIENT].peer.conn.close_reason().is_none() {
        assert!(duo.turn(), "the connection is not closed");
        assert!(duo.sides[CLIENT].outcomes.is_empty(), "the call has finished before the connection was closed");
    }
    duo.run();
    // The reply itself is valid.
    duo.sides[CLIENT].outcomes.remove(&0).unwrap().unwrap();
    duo.assert_nothing_exposed();
}

/// §7.4: if the memory of a result or of the Reply chunk cannot be invalidated, its content is lost, and the call
/// fails.
#[test]
fn result_in_memory_that_cannot_be_invalidated() {
    let results = Script { results: vec![(5000, 5000), (6000, 6000)], ..Script::default() };
    for (script, nth) in [(&results, 0), (&results, 1), (&Script { reply_inline: 70_000, ..Script::default() }, 0)] {
        let mut duo = with_fault(SimFault::RefuseInvalidation { end: SimEnd::A, nth });
        let failure = duo.one(CLIENT, script.clone()).map(|reply| reply.format).unwrap_err();
        assert!(matches!(failure, CallFailure::Closed { sent: true, .. }), "{failure}");
        duo.assert_nothing_exposed();
    }
}

/// §7.4: a responder that loses a call, because it cannot invalidate the memory for a Read chunk, closes the
/// connection.
#[test]
fn responder_that_loses_a_call_closes_the_connection() {
    let mut duo = with_fault(SimFault::RefuseInvalidation { end: SimEnd::B, nth: 0 });
    let failure = duo.one(CLIENT, reduced(0)).unwrap_err();
    assert!(matches!(failure, CallFailure::Closed { sent: true, .. }), "{failure}");
    for end in [CLIENT, SERVER] {
        assert!(matches!(duo.sides[end].peer.conn.close_reason(), Some(CloseReason::Disconnected(_))));
    }
    duo.assert_nothing_exposed();
}

/// §7.4: a call whose memory cannot be registered fails at once, and nothing of it is sent. Other calls are not
/// affected.
#[test]
fn call_that_cannot_be_constructed() {
    for nth in 0..2 {
        let mut duo = with_fault(SimFault::RefuseRegistration { end: SimEnd::A, nth });
        let failure = duo.one(CLIENT, reduced(0)).unwrap_err();
        assert!(matches!(failure, CallFailure::Registration(_)), "{failure}");
        assert_eq!(duo.sides[SERVER].arrived, 0);
        duo.assert_nothing_exposed();
        duo.one(CLIENT, reduced(1)).unwrap();
    }
}

/// §11.1.3: the memory of a call is registered when the call is sent, not while it waits.
#[test]
fn waiting_calls_expose_nothing() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.run();
    facing.call(&reduced(1));
    facing.call(&reduced(2));
    assert_eq!(facing.network.registered(SimEnd::A), 0);
    let mut properties = super::scripted::connprop(9, 0, &[]);
    properties[2] = 16 << 16 | 1;
    facing.send(&properties);
    // One credit: only the first call is sent.
    assert_eq!(facing.network.registered(SimEnd::A), 2);
}

/// §11.1.3, §11.1.4: when the grace period of a cancelled call ends, its memory is invalidated. A later reply is
/// discarded, and the connection survives it.
#[test]
fn memory_of_a_cancelled_call() {
    for grace in [Duration::ZERO, Duration::from_secs(5)] {
        let mut config = EngineConfig::default();
        config.abandoned_call_timeout = grace;
        let mut facing = Facing::new(Role::Client, config);
        let call = reduced(1).outgoing(&facing.engine.conn, facing.now);
        let id = facing.engine.conn.start_call(call);
        facing.run();
        let xid = facing.next().unwrap()[0];
        assert_eq!(facing.network.registered(SimEnd::A), 2);
        facing.engine.conn.cancel_call(id, facing.now);
        facing.run();
        assert!(matches!(facing.finished(), Some(Err(CallFailure::Cancelled { sent: true }))));
        facing.now += grace;
        facing.run();
        assert_eq!(facing.network.registered(SimEnd::A), 0, "memory exposed after {grace:?}");
        facing.send(&plain(xid, CREDIT, 1, 1));
        assert!(facing.finished().is_none());
        facing.call(&Script { number: 2, ..Script::default() });
        let xid = facing.next().unwrap()[0];
        facing.send(&plain(xid, CREDIT, 1, 2));
        facing.finished().unwrap().unwrap();
    }
}

/// §11.1.3: no memory of a call is exposed any more when its caller gets the reply.
#[test]
fn nothing_is_exposed_when_a_call_finishes() {
    let arguments = Script { args: vec![5000, 3000], reduce: true, ..Script::default() };
    let long = Script { inline: 70_000, reply_inline: 70_000, ..Script::default() };
    for script in [arguments, long, reduced(0)] {
        let mut duo = with_fault(SimFault::Disconnect(u64::MAX));
        duo.call(CLIENT, script);
        while duo.sides[CLIENT].outcomes.is_empty() {
            assert!(duo.turn(), "the call does not finish");
        }
        assert_eq!(duo.network.registered(SimEnd::A), 0);
        assert_eq!(duo.sides[CLIENT].peer.conn.counters().exposed_regions, 0);
    }
}

/// §11.1: if the memory for a result is longer than the result may be, only the maximum length of the result is
/// exposed.
#[test]
fn longer_landing_memory() {
    for (at, ends) in [(36, false), (37, true), (40, true)] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        let mut call = Script { results: vec![(0, 40)], ..Script::default() }.outgoing(&facing.engine.conn, facing.now);
        call.reply.chunks[0].landing = Some(vec![0; 64].into());
        facing.engine.conn.start_call(call);
        facing.run();
        let words = facing.next().unwrap();
        assert_eq!((words[7], words[8], words[10]), (1, 1, 40));
        facing.raw.write(words[9], join(words[11], words[12]) + at, &[1; 4]);
        facing.run();
        assert_eq!(facing.engine.conn.close_reason().is_some(), ends, "written at {at}");
    }
}
