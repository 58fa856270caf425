//! Invalid and incomplete sequences of continued messages (RPC-over-RDMA v2 §6.2.2.2, §7.1.3), and limits on their
//! memory.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma_proto::engine::{CallFailure, CloseReason, EngineConfig, Role};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, connprop, plain},
};
use crate::support::{Script, take_call};

fn fragment(xid: u32, flags: u32, words: &[u32]) -> Vec<u32> {
    [&[xid, 2, CREDIT, MSG, flags, 0, 0, 0, 0], words].concat()
}

#[track_caller]
fn serves(facing: &mut Facing) {
    while facing.next().is_some() {}
    facing.send(&plain(77, CREDIT, 0, 1));
    let answer = facing.next();
    let call = take_call(&mut facing.engine);
    assert!(call.is_some(), "well-formed call not served; response {answer:?}");
}

/// §4.4.2: a payload may be split at any boundary, and its parts are joined in the order in which they arrive.
#[test]
fn parts_of_any_length() {
    let payload: Vec<u8> = [5u32, 0, 1].iter().flat_map(|word| word.to_be_bytes()).chain(0..40).collect();
    for lens in [&[1, 2, 49][..], &[3, 5, 7, 11, 26], &[51, 1], &[1; 52]] {
        let mut facing = Facing::new(Role::Server, EngineConfig::default());
        let mut rest = &payload[..];
        for &len in lens {
            let (part, behind) = rest.split_at(len);
            rest = behind;
            let flags = if rest.is_empty() { 0 } else { MORE };
            facing.raw.send(&fragment(5, flags, &[]), part);
            facing.run();
        }
        let call = take_call(&mut facing.engine).unwrap_or_else(|| panic!("{lens:?}: {:?}", facing.next()));
        assert_eq!(call.payload.as_slice(), payload);
    }
}

/// A connection is not idle while a continued call arrives.
#[test]
fn sequences_are_receiving() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    for (flags, is_receiving) in [(MORE, true), (MORE, true), (0, false)] {
        facing.send(&fragment(5, flags, &[5, 0]));
        assert_eq!(facing.engine.conn.is_receiving(), is_receiving);
    }
    // Neither is there anything to wait for after a sequence that is wrong.
    facing.send(&fragment(6, MORE, &[6, 0]));
    facing.send(&fragment(6, MORE | TPMORE, &[1]));
    assert!(!facing.engine.conn.is_receiving());
}

/// A malformed last message ends its sequence. Other calls are still served.
#[test]
fn malformed_last_message() {
    for bad in [
        // No payload; malformed chunk lists; RDMA2_F_TPMORE; another header type.
        fragment(5, 0, &[]),
        vec![5, 2, CREDIT, MSG, 0, 0, 7, 0, 0, 42],
        fragment(5, TPMORE, &[42]),
        vec![5, 2, CREDIT, NOMSG, 0, 0, 0, 0, 0],
    ] {
        let mut facing = Facing::new(Role::Server, EngineConfig::default());
        facing.send(&fragment(5, MORE, &[5, 0]));
        facing.send(&bad);
        let answer = facing.next().unwrap();
        assert_eq!(answer[3], ERROR);
        serves(&mut facing);
    }
}

/// A malformed message in the middle invalidates the whole sequence.
#[test]
fn malformed_message_in_the_middle() {
    for bad in
        [vec![5, 2, CREDIT, MSG, MORE, 0, 7, 0, 0, 1111], fragment(5, MORE | TPMORE, &[1111]), fragment(5, MORE, &[])]
    {
        let mut facing = Facing::new(Role::Server, EngineConfig::default());
        facing.send(&fragment(5, MORE, &[5, 0]));
        facing.send(&bad);
        facing.send(&fragment(5, 0, &[42]));
        let call = take_call(&mut facing.engine);
        assert!(call.is_none(), "call announced without its middle: {:?}", call.unwrap().payload.as_slice());
        serves(&mut facing);
    }
}

/// A malformed last message of a reply fails its call. Other calls still succeed.
#[test]
fn malformed_last_message_of_a_reply() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    facing.call(&Script { number: 5, ..Script::default() });
    let (first, second) = (facing.next().unwrap()[0], facing.next().unwrap()[0]);
    facing.send(&fragment(first, RESPONSE | MORE, &[first, 1]));
    facing.send(&[first, 2, CREDIT, MSG, RESPONSE, 0, 7, 0, 0, 4]);
    assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))));
    facing.send(&plain(second, CREDIT, 1, 5));
    let outcome = facing.finished();
    assert!(matches!(outcome, Some(Ok(_))), "{outcome:?}");
}

/// §7.1.3: the rest of an invalid sequence is discarded, malformed or not.
#[test]
fn rest_of_an_invalid_sequence() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    facing.send(&fragment(5, MORE, &[5, 0]));
    facing.send(&[6, 2, CREDIT, MSG, MORE, 0, 0, 0, 0, 6, 0]);
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 5]);
    facing.send(&[6, 2, CREDIT, MSG, 0, 0, 7, 0, 0, 42]);
    assert!(facing.next().is_none(), "second response to one sequence");
    // The interrupted sequence has ended too, so its rest is the start of a malformed message.
    facing.send(&fragment(5, 0, &[42]));
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 2]);
    assert!(take_call(&mut facing.engine).is_none());
    facing.send(&plain(6, CREDIT, 0, 1));
    assert!(take_call(&mut facing.engine).is_some(), "new transaction with the same XID not served");
}

/// Runs for many iterations in which neither side replies to a call, and then until nothing more happens.
fn slow_to_answer(duo: &mut PeerPair) {
    for _ in 0..3000 {
        for end in [CLIENT, SERVER] {
            duo.sides[end].peer.turn(duo.now);
            duo.take_events(end);
        }
        duo.network.step();
    }
    duo.run();
}

/// A sequence cannot wait for memory as RDMA Reads can, so a sequence up to the default limit is always accepted.
#[test]
fn sequence_is_accepted_without_free_memory() {
    let mut server = EngineConfig::default();
    (server.max_fetched, server.max_call_len) = (100_000, 100_000);
    let mut duo = PeerPair::new(EngineConfig::default(), server, stepped());
    duo.one(CLIENT, Script::default()).unwrap();
    duo.call(CLIENT, Script { number: 1, args: vec![95_000], reduce: true, ..Script::default() });
    duo.call(CLIENT, Script { number: 2, inline: 20_000, ..Script::default() });
    duo.call(CLIENT, Script { number: 3, args: vec![20_000], reduce: true, ..Script::default() });
    // The server is slow to reply to the first call.
    slow_to_answer(&mut duo);
    for number in [1, 3, 2] {
        let outcome = &duo.sides[CLIENT].outcomes[&number];
        assert!(outcome.is_ok(), "call {number}: {:?}", outcome.as_ref().err());
    }
}

/// Calls with long messages and with chunks to fetch do not deadlock over the memory limit.
#[test]
fn long_calls_with_chunks_do_not_deadlock() {
    let mut server = EngineConfig::default();
    (server.max_fetched, server.max_call_len) = (100_000, 100_000);
    let mut duo = PeerPair::new(EngineConfig::default(), server, stepped());
    duo.one(CLIENT, Script::default()).unwrap();
    for number in 1..=4 {
        let args = vec![50_000];
        duo.call(CLIENT, Script { number, inline: 40_000, args, reduce: true, ..Script::default() });
    }
    // The server replies slowly: all messages arrive before the first call has been fetched.
    slow_to_answer(&mut duo);
    for number in 1..=4 {
        let outcome = duo.sides[CLIENT].outcomes.get(&number);
        assert!(matches!(outcome, Some(Ok(_))), "call {number}: {outcome:?}");
    }
    // A call that can never fit into the limit is refused.
    let huge = Script { number: 5, inline: 40_000, args: vec![70_000], reduce: true, ..Script::default() };
    let outcome = duo.one(CLIENT, huge);
    assert!(matches!(outcome, Err(CallFailure::Refused(_))), "{outcome:?}");
    assert!(duo.one(CLIENT, Script { number: 6, ..Script::default() }).is_ok());
}

/// An incomplete message holds memory, so the connection is closed when its next part does not arrive in time, or when
/// the parts arrive too slowly.
#[test]
fn incomplete_message_times_out() {
    let config = EngineConfig::default();
    let limit = config.fetch_timeout;
    let rate = u32::try_from(config.min_rate).unwrap();
    let mut facing = Facing::new(Role::Server, config);
    assert_eq!(facing.engine.conn.poll_timeout(), None);
    let pass = |facing: &mut Facing, time| {
        facing.now += time;
        facing.engine.conn.handle_timeout(facing.now);
        facing.run();
    };
    // A part moves the deadline by the time that it may take.
    facing.send(&fragment(5, MORE, &[5, 0]));
    let mut due = facing.now + limit;
    for words in [1, 100, 200] {
        assert_eq!(facing.engine.conn.poll_timeout(), Some(due));
        pass(&mut facing, limit / 4);
        facing.send(&fragment(5, MORE, &vec![1; words]));
        due += Duration::from_secs(4 * words as u64) / rate;
    }
    facing.send(&fragment(5, 0, &[1]));
    assert_eq!(facing.engine.conn.poll_timeout(), None, "timeout after the last part");
    assert!(take_call(&mut facing.engine).is_some());
    // It is never later than the limit from now.
    facing.send(&fragment(6, MORE, &[6, 0]));
    facing.send(&fragment(6, MORE, &[1; 200]));
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    for _ in 0..3 {
        pass(&mut facing, limit / 4);
        facing.send(&fragment(6, MORE, &[1]));
        assert_eq!(facing.engine.conn.close_reason(), None);
    }
    pass(&mut facing, limit / 4 + Duration::from_millis(1));
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::ReadStalled(limit)));
    assert!(facing.raw.disconnected());
}

/// RFC 8166 §4.4.1: if a call is abandoned after a part of it was sent, no later part offers its memory to the server
/// once the grace period has ended.
#[test]
fn call_abandoned_after_a_part_was_sent() {
    let mut server = EngineConfig::default();
    server.credits = 3;
    let mut duo = PeerPair::new(EngineConfig::default(), server, stepped());
    duo.hostile = true;
    duo.one(CLIENT, Script::default()).unwrap();
    let id = duo.call(
        CLIENT,
        Script {
            number: 1,
            inline: 40_000,
            args: vec![5000],
            reduce: true,
            results: vec![(3000, 5000)],
            ..Script::default()
        },
    );
    // The server does not process what arrives.
    for _ in 0..10 {
        duo.sides[CLIENT].peer.turn(duo.now);
        duo.take_events(CLIENT);
        duo.network.step();
    }
    duo.sides[CLIENT].peer.conn.cancel_call(id, duo.now);
    for _ in 0..3 {
        duo.advance(Duration::from_secs(3));
        for _ in 0..10 {
            duo.sides[CLIENT].peer.turn(duo.now);
            duo.take_events(CLIENT);
            duo.network.step();
        }
    }
    assert!(matches!(duo.sides[CLIENT].outcomes[&1], Err(CallFailure::Cancelled { sent: true })));
    // The connection still works.
    let outcome = duo.one(CLIENT, Script { number: 2, ..Script::default() });
    assert!(outcome.is_ok(), "{:?}; {:?}", outcome.err(), duo.sides[SERVER].peer.conn.close_reason());
}

/// Many calls that are abandoned after a part was sent, without a grace period, leave no memory registered.
#[test]
fn many_calls_abandoned_after_a_part_was_sent() {
    let mut server = EngineConfig::default();
    server.credits = 3;
    let mut client = EngineConfig::default();
    client.abandoned_call_timeout = Duration::ZERO;
    let mut duo = PeerPair::new(client, server, stepped());
    duo.one(CLIENT, Script::default()).unwrap();
    for number in 1..20 {
        let id =
            duo.call(CLIENT, Script { number, inline: 40_000, args: vec![5000], reduce: true, ..Script::default() });
        for _ in 0..10 {
            duo.sides[CLIENT].peer.turn(duo.now);
            duo.take_events(CLIENT);
            duo.network.step();
        }
        duo.sides[CLIENT].peer.conn.cancel_call(id, duo.now);
        duo.run();
    }
    let outcome =
        duo.one(CLIENT, Script { number: 20, inline: 40_000, args: vec![5000], reduce: true, ..Script::default() });
    assert!(outcome.is_ok(), "{:?}; {:?}", outcome.err(), duo.sides[SERVER].peer.conn.close_reason());
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().calls_abandoned, 0);
    duo.assert_nothing_exposed();
}
/// §6.2.4: a reply that is too long does not fail other calls, even if its last message invalidates a handle of its
/// call.
#[test]
fn reply_too_long_that_invalidates() {
    let mut client = EngineConfig::default();
    client.max_call_len = 20_000;
    let mut duo = PeerPair::new(client, EngineConfig::default(), stepped());
    duo.call(CLIENT, Script { number: 1, reply_inline: 30_000, results: vec![(3000, 5000)], ..Script::default() });
    duo.call(CLIENT, Script { number: 2, ..Script::default() });
    duo.call(CLIENT, Script { number: 3, results: vec![(3000, 5000)], ..Script::default() });
    duo.run();
    let outcomes = &duo.sides[CLIENT].outcomes;
    let show = |n| outcomes[&n].as_ref().map(|_| ());
    assert!(
        outcomes[&2].is_ok() && outcomes[&3].is_ok(),
        "{:?}; {:?}; {:?}; closed: {:?}",
        show(1),
        show(2),
        show(3),
        duo.sides[CLIENT].peer.conn.close_reason()
    );
}

/// §6.2.2.2, §7.1.3: a message with the XID of a sequence but another header type ends the sequence. The parts before
/// and after it are not joined, and the call is not executed.
#[test]
fn another_header_type_ends_a_sequence() {
    for other in [vec![5, 2, CREDIT, 77, 0], connprop(5, 0, &[])] {
        let mut facing = Facing::new(Role::Server, EngineConfig::default());
        facing.send(&fragment(5, MORE, &[5, 0]));
        facing.send(&other);
        assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 5], "after header type {}", other[3]);
        facing.send(&fragment(5, 0, &[42]));
        let call = take_call(&mut facing.engine);
        assert!(call.is_none(), "call announced: {:?}", call.unwrap().payload.as_slice());
        serves(&mut facing);
    }
}

/// §6.2.2.2: a continuation with a wrong XID is refused, and the next call on the connection is served.
#[test]
fn wrong_xid_in_a_sequence() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    facing.send(&fragment(5, MORE, &[5, 0]));
    facing.send(&fragment(6, 0, &[42]));
    let answer = facing.next().unwrap();
    assert_eq!((answer[0], &answer[3..]), (6, &[ERROR, RESPONSE, 5][..]));
    serves(&mut facing);
}

/// §6.2.2.2: if a message with the XID of another call interrupts the sequence of a reply, both calls fail.
#[test]
fn wrong_xid_in_the_sequence_of_a_reply() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    for number in 4..7 {
        facing.call(&Script { number, ..Script::default() });
    }
    let [first, second, third] = [(); 3].map(|()| facing.next().unwrap()[0]);
    facing.send(&fragment(first, RESPONSE | MORE, &[first, 1]));
    facing.send(&plain(second, CREDIT, 1, 5));
    for _ in 0..2 {
        assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))));
    }
    assert!(facing.next().is_none(), "a requester responded with an error");
    facing.send(&plain(third, CREDIT, 1, 6));
    assert!(matches!(facing.finished(), Some(Ok(_))));
}

/// §6.2.2.3: a reply with RDMA2_F_TPMORE is not used, and fails its call.
#[test]
fn reply_with_more_properties() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    let mut reply = plain(xid, CREDIT, 1, 4);
    reply[4] |= TPMORE;
    facing.send(&reply);
    assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))));
}

/// §6.2.2.2: RDMA2_F_MORE in any other header type than RDMA2_MSG and RDMA2_CONNPROP gets RDMA2_ERR_INVAL_CONT from a
/// responder. A requester drops such a message without a response.
#[test]
fn more_flag_in_other_header_types() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    for (xid, htype) in [(0, NOMSG), (3, NOMSG), (4, 2), (5, 77)] {
        facing.send(&[xid, 2, CREDIT, htype, MORE, 0, 0, 0, 0, xid, 0, 1]);
        let answer = facing.next().expect("no response");
        assert_eq!((answer[0], &answer[3..]), (xid, &[ERROR, RESPONSE, 5][..]), "header type {htype}");
        facing.send(&fragment(xid, 0, &[xid, 0, 1]));
        assert!(take_call(&mut facing.engine).is_none(), "the rest of an invalid sequence was announced");
    }
    assert_eq!(facing.engine.conn.counters().grants_received, 0);
    serves(&mut facing);

    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    facing.send(&[xid, 2, CREDIT, NOMSG, RESPONSE | MORE, 0, 0, 0, 0]);
    assert!(facing.next().is_none() && facing.finished().is_none());
    facing.send(&plain(xid, CREDIT, 1, 4));
    assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))));
    assert!(facing.next().is_none(), "a requester responded with an error");
}

/// §6.2.2.2: a message with RDMA2_F_MORE and chunks, of any of the three lists, gets RDMA2_ERR_INVAL_CONT from a
/// responder. A requester drops it without a response.
#[test]
fn chunks_before_the_last_message() {
    let lists: [&[u32]; 3] = [&[1, 12, 1, 4, 0, 0, 0, 0, 0], &[0, 1, 0, 0, 0], &[0, 0, 1, 0]];
    for list in lists {
        for is_first in [true, false] {
            let mut facing = Facing::new(Role::Server, EngineConfig::default());
            if !is_first {
                facing.send(&fragment(5, MORE, &[5, 0]));
            }
            facing.send(&[&[5, 2, CREDIT, MSG, MORE, 0], list, &[5, 0, 1]].concat());
            assert_eq!(facing.next().expect("no response")[3..], [ERROR, RESPONSE, 5], "{list:?}");
            facing.send(&fragment(5, 0, &[5, 0, 1]));
            assert!(take_call(&mut facing.engine).is_none(), "call announced: {list:?}");
            serves(&mut facing);
        }
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&Script { number: 4, ..Script::default() });
        let xid = facing.next().unwrap()[0];
        facing.send(&[&[xid, 2, CREDIT, MSG, RESPONSE | MORE, 0], list, &[xid, 1]].concat());
        assert!(facing.next().is_none() && facing.finished().is_none());
        facing.send(&fragment(xid, RESPONSE, &[4]));
        assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))), "{list:?}");
        assert!(facing.next().is_none(), "a requester responded with an error");
    }
}

/// §7.1.3: the rest of an invalid sequence is discarded without a response, even if it arrives between the messages of
/// another sequence. The other sequence is not affected.
#[test]
fn rest_of_an_invalid_sequence_within_another() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    facing.send(&[6, 2, CREDIT, MSG, MORE, 0, 0, 1, 0, 0, 0, 6, 0]);
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 5]);
    facing.send(&fragment(7, MORE, &[7, 0]));
    facing.send(&fragment(6, MORE, &[1]));
    facing.send(&fragment(6, 0, &[1]));
    facing.send(&fragment(7, 0, &[9]));
    assert!(facing.next().is_none(), "a response to the rest of an invalid sequence");
    let call = take_call(&mut facing.engine).expect("call not served");
    assert_eq!((call.xid, call.payload.as_slice().len()), (7, 12));
    serves(&mut facing);
}

/// §6.2.2.2, §7.1.3: a requester that gives up a call in the middle of its sequence does not send the rest. It sends
/// one message that ends the sequence.
#[test]
fn rest_of_an_abandoned_call_is_not_sent() {
    let mut config = EngineConfig::default();
    config.abandoned_call_timeout = Duration::ZERO;
    let mut facing = Facing::silent(Role::Client, config);
    facing.run();
    let mut properties = connprop(7, 0, &[]);
    properties[2] = 16 << 16 | 2;
    facing.send(&properties);
    facing.raw.received.clear();
    let script = Script { inline: 40_000, args: vec![5000], reduce: true, ..Script::default() };
    let call = script.outgoing(&facing.engine.conn, facing.now);
    let id = facing.engine.conn.start_call(call);
    facing.run();
    let first = facing.next().expect("no first part");
    assert_eq!(facing.next().map(|words| words[4]), Some(MORE));
    facing.engine.conn.cancel_call(id, facing.now);
    facing.send(&[0, 2, CREDIT, NOMSG, 0, 0, 0, 0, 0]);
    let last = facing.next().expect("the sequence has no end");
    assert_eq!(([last[0], last[1]], &last[3..]), ([first[0], 2], &[NOMSG, 0, 0, 0, 0, 0][..]));
    assert!(facing.next().is_none());
}
