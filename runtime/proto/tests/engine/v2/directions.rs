//! Interactions of calls and replies of both directions: equal XIDs, broken sequences, errors about another call,
//! limits, invalidation and cancellation.

use rpcrdma_proto::{
    engine::{
        CallFailure, CloseReason, Engine as _, EngineConfig, MessageFault, ProtocolViolation, ReverseDirection, Role,
        TransportError,
    },
    provider::MemoryHandle,
};

use super::{
    refusals::{reads, refused},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, connprop, plain},
};
use crate::support::{Script, take_call};

/// Creates a client with a call in flight. Returns the client, and the XID of the call.
fn calling(config: EngineConfig) -> (Facing, u32) {
    let mut facing = Facing::new(Role::Client, config);
    facing.call(&Script { number: 4, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    (facing, xid)
}

fn part(xid: u32, flags: u32, words: &[u32]) -> Vec<u32> {
    [&[xid, 2, CREDIT, MSG, flags, 0, 0, 0, 0], words].concat()
}

fn bad_reply(facing: &mut Facing) -> Option<MessageFault> {
    facing.finished().map(|result| match result.unwrap_err() {
        CallFailure::BadReply(fault) => fault,
        other => panic!("{other}"),
    })
}

/// §6.2.2.1: an interrupted or malformed call of the peer does not fail the local call with the same XID.
#[test]
fn broken_calls_do_not_fail_local_calls() {
    let (mut facing, xid) = calling(EngineConfig::default());
    // Another message within the sequence of a call.
    facing.send(&part(xid, MORE, &[xid, 0]));
    refused(&mut facing, &part(xid + 9, 0, &[xid + 9, 0, 1]), &[5]);
    // The rest of a broken sequence.
    let mut early = reads(MSG, MORE, &[12]);
    early[0] = xid;
    refused(&mut facing, &[early, vec![xid, 0]].concat(), &[5]);
    facing.send(&part(xid, 0, &[1]));
    assert!(facing.next().is_none());
    // A malformed part.
    refused(&mut facing, &[xid, 2, CREDIT, MSG, MORE, 0, 7], &[2]);
    facing.send(&part(xid, 0, &[1]));
    assert!(facing.finished().is_none() && take_call(&mut facing.engine).is_none());
    facing.send(&plain(xid, CREDIT, 1, 4));
    facing.finished().expect("no reply").unwrap();
}

/// §6.2.2.2: if an error for another call interrupts a sequence, the sequence is dropped, and the error is handled.
#[test]
fn errors_interrupt_sequences() {
    let (mut facing, first) = calling(EngineConfig::default());
    facing.call(&Script { number: 5, ..Script::default() });
    let second = facing.next().unwrap()[0];
    facing.send(&part(first, RESPONSE | MORE, &[first, 1]));
    facing.send(&[second, 2, CREDIT, ERROR, RESPONSE, 100]);
    let failure = facing.finished().expect("error ignored").unwrap_err();
    assert_eq!(failure, CallFailure::Refused(TransportError::System));
    assert!(facing.finished().is_none());
    // The rest is not taken for a whole reply.
    facing.send(&part(first, RESPONSE, &[9, 9, 9]));
    assert_eq!(bad_reply(&mut facing), Some(MessageFault::XidMismatch));
    assert_eq!(facing.engine.conn.counters().messages_discarded, 1);
    // An error with a flag that it cannot have is dropped.
    let (mut facing, xid) = calling(EngineConfig::default());
    for flags in [RESPONSE | TPMORE, RESPONSE | MORE] {
        facing.send(&[xid, 2, CREDIT, ERROR, flags, 100]);
        assert!(facing.finished().is_none(), "{flags}");
    }
    assert_eq!(facing.engine.conn.counters().messages_discarded, 2);
}

/// §6.2.2.2, §7.1.3: a reply with a fault in one of its messages fails its call when its last message arrives. The
/// responder gets no error.
#[test]
fn faults_within_replies() {
    let malformed = |xid, flags| vec![xid, 2, CREDIT, MSG, flags, 0, 7];
    type Faulty = fn(u32, u32) -> Vec<u32>;
    let faulty: [(Faulty, MessageFault); 2] = [
        (malformed, MessageFault::MalformedChunkLists),
        (|xid, flags| part(xid, flags | TPMORE, &[xid, 1]), MessageFault::MorePropertiesFlag),
    ];
    for (message, fault) in faulty {
        let (mut facing, xid) = calling(EngineConfig::default());
        let discarded = |facing: &Facing| facing.engine.conn.counters().messages_discarded;
        facing.send(&message(xid, RESPONSE | MORE));
        assert!(facing.finished().is_none() && facing.next().is_none(), "{fault}");
        assert_eq!(discarded(&facing), 1);
        facing.send(&part(xid, RESPONSE, &[1]));
        assert_eq!(bad_reply(&mut facing), Some(MessageFault::BrokenSequence));
        assert!(facing.next().is_none());
        // As the last message of a broken sequence, it fails the call, too.
        let (mut facing, xid) = calling(EngineConfig::default());
        facing.send(&message(xid, RESPONSE | MORE));
        facing.send(&message(xid, RESPONSE));
        assert_eq!(bad_reply(&mut facing), Some(MessageFault::BrokenSequence));
        // As the only message.
        let (mut facing, xid) = calling(EngineConfig::default());
        facing.send(&message(xid, RESPONSE));
        assert_eq!((bad_reply(&mut facing), discarded(&facing)), (Some(fault), 1));
        assert!(facing.next().is_none());
    }
    let (mut facing, xid) = calling(EngineConfig::default());
    facing.send(&[xid, 2, CREDIT, NOMSG, RESPONSE, 0, 0, 0, 0]);
    assert_eq!(bad_reply(&mut facing), Some(MessageFault::MessageWithoutChunks));
    // A sequence of another call that is broken is still dropped afterwards.
    let (mut facing, xid) = calling(EngineConfig::default());
    facing.send(&malformed(77, MORE));
    facing.send(&malformed(78, MORE));
    facing.send(&malformed(77, MORE));
    facing.send(&malformed(77, 0));
    facing.raw.received.clear();
    facing.send(&part(78, MORE, &[78, 0]));
    facing.send(&malformed(78, 0));
    assert!(facing.next().is_none() && take_call(&mut facing.engine).is_none());
    facing.send(&plain(77, CREDIT, 0, 1));
    assert_eq!(take_call(&mut facing.engine).expect("call not served").xid, 77);
    facing.send(&plain(xid, CREDIT, 1, 4));
    facing.finished().expect("no reply").unwrap();
}

/// §7.1.3: a further fault in a sequence that is already broken does not end the sequence of another call.
#[test]
fn broken_sequences_do_not_end_others() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    let early = [vec![5], reads(MSG, MORE, &[12])[1..].to_vec(), vec![5, 0, 1]].concat();
    refused(&mut facing, &early, &[5]);
    facing.send(&part(6, MORE, &[6, 0]));
    facing.send(&early);
    facing.send(&part(6, 0, &[1]));
    assert_eq!(take_call(&mut facing.engine).expect("call not served").payload.as_slice().len(), 12);
}

/// §5.2.5: a client that accepts no continued calls accepts continued replies.
#[test]
fn continued_replies_need_no_level() {
    for level in [ReverseDirection::None, ReverseDirection::Simple] {
        let mut config = EngineConfig::default();
        config.reverse_direction = level;
        let (mut facing, xid) = calling(config);
        facing.send(&part(xid, RESPONSE | MORE, &[xid, 1]));
        facing.send(&part(xid, RESPONSE, &[4]));
        facing.finished().expect("no reply").unwrap();
    }
}

/// The memory limit of the connection applies to continued calls, but not to continued replies.
#[test]
fn continued_calls_and_replies_have_their_limits() {
    for (len, fits) in [(16_384, true), (16_385, false)] {
        for is_reply in [false, true] {
            let mut config = EngineConfig::default();
            (config.max_fetched, config.max_call_len) = (0, 1 << 20);
            let (mut facing, xid) = calling(config);
            let flags = if is_reply { RESPONSE } else { 0 };
            let mut words = vec![xid, u32::from(is_reply)];
            words.resize(len, 4);
            let (last, others) = words.split_at(len - 1);
            let parts: Vec<_> = last.chunks(1000).collect();
            parts.iter().for_each(|words| facing.send(&part(xid, flags | MORE, words)));
            facing.send(&part(xid, flags, others));
            if is_reply {
                facing.finished().expect("no reply").unwrap();
            } else {
                assert_eq!(take_call(&mut facing.engine).is_some(), fits, "{len} words");
                assert_eq!(facing.next().map(|words| words[3]), (!fits).then_some(ERROR));
            }
        }
    }
}

/// §6.2.4: only the last message of a reply may invalidate the handle that its call offered. In other messages, the
/// invalidation ends the connection.
#[test]
fn errors_do_not_invalidate() {
    for (htype, flags, is_allowed) in [(MSG, RESPONSE, true), (MSG, RESPONSE | MORE, false), (ERROR, RESPONSE, false)] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&Script { number: 4, args: vec![5000], reduce: true, ..Script::default() });
        let call = facing.next().unwrap();
        let handle = MemoryHandle(call[5]);
        assert_ne!(handle.0, 0);
        let body = if htype == ERROR { vec![100] } else { vec![0, 0, 0, 0, call[0], 1, 4] };
        facing.raw.send_invalidating(&[&[call[0], 2, CREDIT, htype, flags], &body[..]].concat(), &[], Some(handle));
        facing.run();
        let violation = CloseReason::PeerViolation(ProtocolViolation::UnofferedHandle { handle });
        let expected = (!is_allowed).then_some(violation);
        assert_eq!(facing.engine.conn.close_reason(), expected.as_ref());
        assert_eq!(facing.engine.conn.counters().remote_invalidations, 1);
        assert_eq!(facing.finished().expect("not finished").is_ok(), is_allowed);
    }
}

/// §7.1.1, §7.2.2: an error ends the connection only if it excludes version 2, or if it refuses the local properties.
/// After the exchange of properties, only RDMA2_ERR_BAD_PROPVAL refuses them.
#[test]
fn errors_that_do_not_end_the_connection() {
    for (low, high, is_open) in [(1, 3, true), (2, 2, true), (3, 4, false), (1, 1, false)] {
        let (mut facing, xid) = calling(EngineConfig::default());
        facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 1, low, high]);
        assert_eq!(facing.engine.conn.close_reason().is_none(), is_open, "{low}, {high}");
        let failure = facing.finished().expect("not finished").unwrap_err();
        assert_eq!(failure, CallFailure::VersionMismatch { low, high });
    }
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.run();
    let xid = facing.next().unwrap()[0];
    facing.send(&[xid + 1, 2, CREDIT, ERROR, RESPONSE, 3]);
    facing.send(&[xid + 1, 2, CREDIT, ERROR, RESPONSE, 1, 1, 1]);
    assert_eq!(facing.engine.conn.close_reason(), None);
    facing.send(&connprop(7, 0, &[]));
    facing.call(&Script { number: 4, ..Script::default() });
    assert!(facing.next().is_some());
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 100]);
    assert_eq!(facing.engine.conn.close_reason(), None, "the exchange is complete");
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 3]);
    assert!(matches!(facing.engine.conn.close_reason(), Some(CloseReason::NegotiationFailed { .. })));
}

/// §6.4: a call that was cancelled is not sent again after an error.
#[test]
fn cancelled_calls_are_not_sent_again() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let script = Script { args: vec![2001, 3000], reduce: true, ..Script::default() };
    let id = facing.engine.conn.start_call(script.outgoing(&facing.engine.conn, facing.now));
    facing.run();
    let xid = facing.next().unwrap()[0];
    facing.engine.conn.cancel_call(id, facing.now);
    facing.run();
    assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::Cancelled { sent: true });
    facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, 6, 1]);
    assert!(facing.next().is_none() && facing.finished().is_none());
    let counters = facing.engine.conn.counters();
    assert_eq!((counters.exposed_regions, counters.calls_abandoned, counters.calls_resent), (0, 0, 0));
}
