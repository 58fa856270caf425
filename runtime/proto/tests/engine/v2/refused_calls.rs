//! Calls that a responder refused: the errors after which the requester sends a call again, and those after which the
//! call fails (RPC-over-RDMA v2 §6.4, §7.1, §7.3, §7.4.1).

use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{CallFailure, CallPolicy, EngineConfig, Role, TransportError},
    provider::sim::SimEnd,
};

use super::scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, plain};
use crate::support::Script;

/// Sends a call with two Read chunks, two Write chunks of 4000 bytes and a Reply chunk of 6020 bytes, each of one
/// segment. The call is idempotent, so it may be sent again. Returns the client and the XID of the call.
fn call_with_chunks() -> (Facing, u32) {
    let mut config = EngineConfig::default();
    config.max_continued = 0;
    let mut facing = Facing::new(Role::Client, config);
    let script = Script {
        number: 6,
        args: vec![3000, 2000],
        reduce: true,
        results: vec![(0, 4000); 2],
        reply_inline: 6000,
        policy: CallPolicy { idempotent: true, ..CallPolicy::default() },
        ..Script::default()
    };
    facing.call(&script);
    let call = facing.next().expect("call not sent");
    assert_eq!((call[6], call[12], call[18], call[19], call[25], call[31], call[35]), (1, 1, 0, 1, 1, 0, 6020));
    (facing, call[0])
}

/// §7.3: a call fails if it respected the limit in the error, if it provided the resources that the error asks for, or
/// if the error asks for no resources or for those of a chunk that the call does not have.
#[test]
fn call_that_another_attempt_cannot_help() {
    let (read, write) = (|max| TransportError::ReadChunks { max }, |max| TransportError::WriteChunks { max });
    let segments = |max| TransportError::Segments { max };
    let resource = |chunk, needed| TransportError::WriteResource { chunk, needed };
    let reply = |needed| TransportError::ReplyResource { needed };
    for (body, refusal) in [
        (&[6, 2][..], read(2)),
        (&[6, u32::MAX], read(u32::MAX)),
        (&[7, 2], write(2)),
        (&[7, u32::MAX], write(u32::MAX)),
        (&[8, 5], segments(5)),
        (&[8, u32::MAX], segments(u32::MAX)),
        (&[9, 0, 0], resource(0, 0)),
        (&[9, 0, 9000], resource(0, 9000)),
        (&[9, 2, 4000], resource(2, 4000)),
        (&[9, 3, 9000], resource(3, 9000)),
        (&[10, 0], reply(0)),
        (&[10, 6020], reply(6020)),
    ] {
        let (mut facing, xid) = call_with_chunks();
        facing.send(&[&[xid, 2, CREDIT, ERROR, RESPONSE], body].concat());
        let failure = facing.finished().expect("call not finished").unwrap_err();
        assert_eq!(failure, CallFailure::Refused(refusal));
        assert!(facing.next().is_none(), "sent again after {refusal}");
        assert_eq!(facing.network.registered(SimEnd::A), 0);
        // The transaction is complete: a late reply belongs to no call.
        let discarded = facing.engine.conn.counters().messages_discarded;
        facing.send(&plain(xid, CREDIT, 1, 6));
        assert_eq!(facing.engine.conn.counters().messages_discarded, discarded + 1);
    }
}

/// §7.3: a call is sent again if the error names a lower limit or more resources, however small the difference is.
#[test]
fn call_that_another_attempt_may_help() {
    for body in [&[6, 1][..], &[6, 0], &[7, 1], &[7, 0], &[8, 4], &[8, 0], &[9, 2, 4001], &[10, 6021]] {
        let (mut facing, xid) = call_with_chunks();
        facing.send(&[&[xid, 2, CREDIT, ERROR, RESPONSE], body].concat());
        assert!(facing.finished().is_none(), "call not sent again after {body:?}");
        let again = facing.next().expect("call not sent again");
        assert_ne!(again[0], xid);
        if body[0] == 8 {
            let segments = match again[3] {
                MSG if again[4] & MORE != 0 => 0,
                _ => count_segments(&again[6..]),
            };
            assert!(segments <= body[1], "{segments} segments after {body:?}");
        }
    }
}

/// Returns the number of segments in chunk lists.
fn count_segments(words: &[u32]) -> u32 {
    let (mut at, mut count) = (0, 0);
    while words[at] == 1 {
        (at, count) = (at + 6, count + 1);
    }
    at += 1;
    while words[at] == 1 {
        (at, count) = (at + 2 + 4 * words[at + 1] as usize, count + words[at + 1]);
    }
    at += 1;
    count + if words[at] == 1 { words[at + 1] } else { 0 }
}

/// §6.4, §7.3.4, §7.3.5: a call that the responder has executed and that is not idempotent is not sent again.
#[test]
fn executed_call_is_not_sent_again() {
    for body in [&[9, 1, 9000][..], &[10, 9000]] {
        let mut config = EngineConfig::default();
        config.max_continued = 0;
        let mut facing = Facing::new(Role::Client, config);
        facing.call(&Script { results: vec![(0, 4000)], reply_inline: 6000, ..Script::default() });
        let xid = facing.next().unwrap()[0];
        facing.send(&[&[xid, 2, CREDIT, ERROR, RESPONSE], body].concat());
        assert!(matches!(facing.finished(), Some(Err(CallFailure::Refused(_)))), "{body:?}");
        assert!(facing.next().is_none(), "sent again after {body:?}");
    }
}

/// §7.1, §7.2, §7.4.1: for a call that was sent as RDMA2_MSG, errors that name neither a limit nor resources are
/// permanent, even if the call is idempotent.
#[test]
fn permanent_errors() {
    for code in [2, 3, 4, 5, 100] {
        let (mut facing, xid) = call_with_chunks();
        facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, code]);
        let failure = facing.finished().expect("call not finished").unwrap_err();
        assert!(matches!(failure, CallFailure::Refused(_)), "{failure}");
        assert!(facing.next().is_none(), "sent again after error {code}");
        assert_eq!(facing.network.registered(SimEnd::A), 0);
    }
}

/// §7.1.2: after the peer refused RDMA2_MSG, no call is sent with this header type, in any format. After the peer
/// refused RDMA2_NOMSG, no call is sent with that header type.
#[test]
fn later_calls_after_a_refused_header_type() {
    let call = |facing: &mut Facing, script: Script| {
        facing.call(&script);
        facing.next()
    };
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let xid = call(&mut facing, Script::default()).unwrap()[0];
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 4]);
    facing.finished().unwrap().unwrap_err();
    for script in [
        Script::default(),
        Script { inline: 9000, ..Script::default() },
        Script { args: vec![9000], reduce: true, ..Script::default() },
        Script { results: vec![(0, 9000)], ..Script::default() },
    ] {
        assert_eq!(call(&mut facing, script.clone()), None, "RDMA2_MSG sent again: {script:?}");
        assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::Refused(TransportError::HeaderType));
    }
    let long = Script { inline: 100_000, ..Script::default() };
    assert_eq!(call(&mut facing, long.clone()).expect("RDMA2_NOMSG was not refused")[3], NOMSG);

    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let xid = call(&mut facing, long.clone()).unwrap()[0];
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 4]);
    while facing.next().is_some() {}
    let later = call(&mut facing, long).map(|words| words[3]);
    assert_ne!(later, Some(NOMSG), "RDMA2_NOMSG sent again");
}

/// §6.4, §7.3.5: a call is sent again with room for its reply if the peer accepts a Reply chunk, however short its
/// segments, and if the error names more bytes than the call provided.
#[test]
fn room_for_a_longer_reply() {
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    for (properties, needed, is_again) in [
        (&[][..], 6000, true),
        (&[], 1, true),
        (&[], 0, false),
        (&[(3, &[0][..])], 6000, false),
        (&[(4, &[0])], 6000, false),
        (&[(3, &[1])], 6000, true),
        (&[(4, &[1])], 6000, true),
    ] {
        let mut facing = Facing::said(Role::Client, EngineConfig::default(), properties);
        facing.call(&Script { reply_inline: 5000, policy, ..Script::default() });
        let xid = facing.next().expect("no call")[0];
        facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 10, needed]);
        assert_eq!(facing.next().is_some(), is_again, "{properties:?}, {needed}");
        assert_eq!(facing.finished().is_none(), is_again, "{properties:?}, {needed}");
    }
    // A result that has no Write chunk cannot get a longer one.
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { results: vec![(100, 5000), (9, 20)], policy, ..Script::default() });
    let xid = facing.next().expect("no call")[0];
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 9, 2, 9000]);
    assert!(facing.next().is_none() && facing.finished().expect("not finished").is_err());
}

/// §7.3.3: a call without segments is not sent again if the peer refuses it because of the number of segments.
#[test]
fn calls_without_segments_have_none_to_leave_out() {
    let policy = CallPolicy { idempotent: true, ..CallPolicy::default() };
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { policy, ..Script::default() });
    let xid = facing.next().expect("no call")[0];
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 8, 0]);
    assert!(facing.next().is_none());
    let failure = facing.finished().expect("not finished").unwrap_err();
    assert_eq!(failure, CallFailure::Refused(TransportError::Segments { max: 0 }));
}
