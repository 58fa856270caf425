//! Failures of calls that the responder has executed (RPC-over-RDMA v2 §7.3), and a peer that stops granting credits
//! within a sequence.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma_proto::engine::{CallFailure, CallId, CallPolicy, CloseReason, EngineConfig, Role};

use super::scripted::{CREDIT, ERROR, Facing, NO_NEW, RESPONSE};
use crate::support::Script;

/// A peer that grants no more credits in the middle of a continued call is detected as unresponsive, even if few calls
/// are in flight.
#[test]
fn peer_stops_within_a_sequence() {
    let config = EngineConfig::default();
    let grace = config.abandoned_call_timeout;
    let mut facing = Facing::new(Role::Client, config);
    let deadline = Some(Duration::from_secs(1));
    // The call has more messages than the 16 credits allow.
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
    failure.is_unexecuted()
}

fn executed_once() -> (Facing, u32) {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    facing.call(&Script { results: vec![(100, 5000)], policy, ..Script::default() });
    let words = facing.next().unwrap();
    (facing, words[0])
}

/// RDMA2_ERR_WRITE_RESOURCE means that the call was executed. If the error asks for more memory than the requester may
/// provide, the call fails, and its failure is not retry-safe.
#[test]
fn executed_call_whose_result_is_too_large() {
    let (mut facing, xid) = executed_once();
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 9, 1, 100 << 20]);
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(!safe(failure.clone()), "{failure:?}: not retry-safe, the server executed the call");
}

/// RDMA2_ERR_WRITE_RESOURCE means that the call was executed. If the repeated call is refused with RDMA2_ERR_SEGMENTS,
/// its failure is still not retry-safe.
#[test]
fn executed_call_refused_on_repetition() {
    let (mut facing, xid) = executed_once();
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 9, 1, 6000]);
    facing.send(&[xid + 1, 2, CREDIT, ERROR, RESPONSE, 8, 64]);
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(!safe(failure.clone()), "{failure:?}: not retry-safe, the server executed the call");
}

/// A call that was executed is cancelled while it waits for a credit for its third attempt. Its failure is not
/// retry-safe.
#[test]
fn executed_call_cancelled_before_its_third_attempt() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    // One Write chunk of one segment at first; more after WRITE_RESOURCE.
    facing.call(&Script { results: vec![(100, 5000), (100, 5000)], policy, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    facing.send(&[xid, 2, NO_NEW, ERROR, RESPONSE, 9, 1, 6000]);
    assert_eq!(facing.next().unwrap()[0], xid + 1);
    // Other calls use up all credits.
    for n in 0..40 {
        facing.call(&Script { number: n + 100, ..Script::default() });
    }
    // WRITE_CHUNKS with a maximum of one.
    facing.send(&[xid + 1, 2, NO_NEW, ERROR, RESPONSE, 7, 1]);
    facing.engine.conn.cancel_call(CallId(0), facing.now);
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(!safe(failure.clone()), "{failure:?}: not retry-safe, the server executed the call");
}
