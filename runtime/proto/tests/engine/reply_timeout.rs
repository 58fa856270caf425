//! A requester that does not accept replies, or accepts them slowly.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma::xdr::ReducedItem;
use rpcrdma_proto::{
    engine::{CloseReason, EngineConfig, EngineEvent, OutgoingReply, Role},
    memory::{MessageBuf, Output},
    provider::sim::SimEnd,
};

use crate::support::{NO_CHUNKS, Script, ScriptedPeer, plain, split, take_call};

const XID: u32 = 0xabcd_0001;
const MOMENT: Duration = Duration::from_millis(1);

/// Returns a reply whose result goes into the call's only Write chunk.
fn reply() -> OutgoingReply {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    [0, 1, 7].iter().for_each(|word: &u32| message.append(&word.to_be_bytes()));
    let data = vec![1; 64].into();
    OutgoingReply { message, reduced: [ReducedItem { position: 12, chunk: 0, data }].into_iter().collect() }
}

/// Sends a call with a Write chunk for its result, and replies to it.
fn answer(facing: &mut ScriptedPeer, xid: u32) {
    let (handle, base) = facing.raw.sink(64);
    let [high, low] = split(base);
    facing.raw.send(&[xid, 1, 8, 0, 0, 1, 1, handle, 64, high, low, 0, 0, xid, 0], &[]);
    facing.run();
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply(call.token, reply());
    facing.run();
}

/// Returns a server whose reply to the first call (an RDMA Write and a Send) does not complete, and the reply timeout.
fn stuck() -> (ScriptedPeer, Duration) {
    let config = EngineConfig::default();
    let limit = config.reply_timeout;
    let mut facing = ScriptedPeer::new(Role::Server, config, true);
    facing.network.stall(SimEnd::B, true);
    answer(&mut facing, XID);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    (facing, limit)
}

/// A reply without progress closes the connection at the timeout, and not earlier.
#[test]
fn stalled_reply_closes_the_connection() {
    let (mut facing, limit) = stuck();
    facing.now += limit - MOMENT;
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), None);
    facing.now += MOMENT;
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::ReplyStalled(limit)));
    facing.network.stall(SimEnd::B, false);
    facing.run();
    let events = &facing.engine.events;
    assert!(
        matches!(events.last(), Some(EngineEvent::Closed(CloseReason::ReplyStalled(after))) if *after == limit),
        "{events:?}"
    );
}

/// Replies that are posted later do not extend the timeout of stuck replies.
#[test]
fn later_replies_do_not_extend_the_timeout() {
    let (mut facing, limit) = stuck();
    let started = facing.now;
    facing.now += limit / 2;
    answer(&mut facing, XID + 1);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(started + limit));
    facing.now = started + limit;
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::ReplyStalled(limit)));
}

/// Each completed RDMA Write or Send restarts the reply timeout. The timeout does not run while no reply is in flight.
#[test]
fn slow_peers_stay_connected() {
    let (mut facing, limit) = stuck();
    answer(&mut facing, XID + 1);
    for left in (0..4).rev() {
        facing.now += limit - MOMENT;
        facing.network.stall(SimEnd::B, false);
        assert!(facing.network.step());
        facing.network.stall(SimEnd::B, true);
        facing.run();
        let due = (left > 0).then_some(facing.now + limit);
        assert_eq!(facing.engine.conn.poll_timeout(), due, "{left} left");
        assert_eq!(facing.engine.conn.close_reason(), None);
    }
    facing.now += 2 * limit;
    facing.run();
    assert_eq!((facing.engine.conn.close_reason(), facing.raw.received.len()), (None, 2));
}

/// The reply timeout also covers RDMA_ERROR messages.
#[test]
fn timeout_covers_errors() {
    let config = EngineConfig::default();
    let limit = config.reply_timeout;
    let mut facing = ScriptedPeer::new(Role::Server, config, true);
    facing.network.stall(SimEnd::B, true);
    // An unsupported version.
    facing.raw.send(&[&[XID, 9, 8, 0][..], &NO_CHUNKS, &[XID, 0]].concat(), &[]);
    facing.run();
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
}

/// The reply timeout does not cover a requester's calls, which have their own deadlines.
#[test]
fn timeout_does_not_cover_calls() {
    let mut facing = ScriptedPeer::new(Role::Client, EngineConfig::default(), true);
    facing.network.stall(SimEnd::A, true);
    facing.call(&Script::default());
    facing.run();
    assert_eq!((facing.engine.conn.counters().calls_sent, facing.engine.conn.poll_timeout()), (1, None));
    // In the reverse direction the client sends replies, which the timeout covers.
    facing.raw.send(&plain(XID, 8, 0, 1), &[]);
    facing.run();
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
    facing.run();
    assert!(facing.engine.conn.poll_timeout().is_some());
}
