//! The reverse direction in version 1 (RFC 8167): calls from the acceptor together with calls from the connector.

use rpcrdma_proto::engine::Engine as _;
use std::{collections::HashMap, time::Duration};

use crate::support::{
    NO_CHUNKS, Pair, PairConfig, Peer, Script, ScriptedPeer, plain, take_call, take_finished, take_reply_sent,
};
use proptest::prelude::*;
use rpcrdma_proto::{
    engine::{
        CallFailure, CallId, CloseReason, Connection, ConnectionSetup, EngineConfig, EngineEvent, IncomingCall,
        MessageFault, MessageFormat, OutgoingReply, PrivateData, Role,
    },
    memory::{MessageBuf, Output},
    provider::{
        MemoryHandle,
        sim::{SimConfig, SimEnd, SimEndConfig},
    },
};

/// The engine's first XID against a scripted peer.
const XID: u32 = 0x1000;
/// An XID of the scripted peer.
const THEIRS: u32 = 0x2000;

fn config(credits: u32, reverse_credits: u32) -> EngineConfig {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (credits, reverse_credits);
    config
}

fn facing(role: Role, config: EngineConfig) -> ScriptedPeer {
    ScriptedPeer::new(role, config, true)
}

fn reply(words: &[u32]) -> OutgoingReply {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    [0, 1].iter().chain(words).for_each(|word| message.append(&word.to_be_bytes()));
    OutgoingReply { message, reduced: Default::default() }
}

/// Sends a message, and returns the call that the engine announces for it, or `None` if it announces no call.
fn arrive(facing: &mut ScriptedPeer, words: &[u32]) -> Option<IncomingCall> {
    facing.raw.send(words, &[]);
    facing.run();
    take_call(&mut facing.engine)
}

/// Starts a call from the server.
fn call_back(pair: &mut Pair, script: &Script) -> CallId {
    let call = script.outgoing(&pair.server.conn, pair.now);
    pair.server.conn.start_call(call)
}

/// Replies to the server's calls that have arrived at the client. Returns their number.
fn answer_callbacks(client: &mut Peer, scripts: &HashMap<u32, Script>) -> usize {
    let mut answered = 0;
    while let Some(call) = take_call(client) {
        let script = &scripts[&crate::support::word(call.payload.as_slice(), 2)];
        script.check_call(&call);
        client.conn.reply(call.token, script.reply(call.reply().write_chunks.iter().map(Option::is_some)));
        answered += 1;
    }
    answered
}

/// RFC 8167 §5.1, §5.2: the headers of a call and of its reply have the required fields. RFC 8167 §4.1: credits count
/// in the direction of the call.
#[test]
fn a_call_and_its_reply() {
    let mut server = facing(Role::Server, config(32, 5));
    let id = server.call(&Script { inline: 4, ..Script::default() });
    server.run();
    let sent = server.raw.next().unwrap();
    // RFC 8167 §5.3: three absent chunk lists. The header has the XID of the message, which is a call.
    assert_eq!(sent[..10], [XID, 1, 5, 0, 0, 0, 0, XID, 0, 0]);
    server.raw.send(&plain(XID, 3, 1, 0), &[]);
    server.run();
    let (finished, result) = take_finished(&mut server.engine).unwrap();
    assert_eq!((finished, result.unwrap().format), (id, MessageFormat::Short));
    assert_eq!(server.engine.conn.counters().credits_granted, 3);

    let mut client = facing(Role::Client, config(32, 7));
    let call = arrive(&mut client, &plain(THEIRS, 9, 0, 77)).expect("call refused");
    assert_eq!(
        (call.xid, call.reads().len(), call.reply().write_chunks.len(), call.reply().reply_chunk),
        (THEIRS, 0, 0, None)
    );
    client.engine.conn.reply(call.token, reply(&[78]));
    client.run();
    assert_eq!(client.raw.next().unwrap(), [THEIRS, 1, 7, 0, 0, 0, 0, THEIRS, 1, 78]);
    assert_eq!(take_reply_sent(&mut client.engine), Some((call.token, true)));
}

/// RFC 8167 §2.4.1: calls with the same XID in both directions are separate transactions.
#[test]
fn same_xid_in_both_directions() {
    let mut client = facing(Role::Client, config(32, 4));
    client.call(&Script::default());
    client.run();
    assert_eq!(client.raw.next().unwrap()[0], XID);
    let call = arrive(&mut client, &plain(XID, 1, 0, 5)).expect("call refused");
    assert!(take_finished(&mut client.engine).is_none(), "a call finished another call");
    client.raw.send(&plain(XID, 1, 1, 0), &[]);
    client.run();
    assert!(take_finished(&mut client.engine).unwrap().1.is_ok());
    client.engine.conn.reply(call.token, reply(&[6]));
    client.run();
    assert_eq!(client.raw.next().unwrap()[7..], [XID, 1, 6]);

    let mut server = facing(Role::Server, config(32, 4));
    let id = server.call(&Script::default());
    server.run();
    let call = arrive(&mut server, &plain(XID, 8, 0, 5)).expect("call refused");
    assert!(take_finished(&mut server.engine).is_none());
    server.engine.conn.reply(call.token, reply(&[6]));
    server.raw.send(&plain(XID, 8, 1, 0), &[]);
    server.run();
    assert_eq!(take_finished(&mut server.engine).unwrap().0, id);
}

/// RFC 8167 §4.1: each direction has its own credits. The request in a call is not a grant, and calls in flight in one
/// direction use no credits of the other.
#[test]
fn separate_credits_of_the_directions() {
    let mut client = facing(Role::Client, config(32, 4));
    client.call(&Script::default());
    client.run();
    // The peer's call asks for 31 credits, which grants none.
    arrive(&mut client, &plain(THEIRS, 31, 0, 0)).expect("call refused");
    assert_eq!(client.engine.conn.counters().credits_granted, 1);
    for _ in 0..3 {
        client.call(&Script::default());
    }
    client.run();
    assert_eq!(client.engine.conn.counters().calls_sent, 1, "more than one call before the first reply");
    client.raw.send(&plain(XID, 2, 1, 0), &[]);
    client.run();
    assert_eq!(client.engine.conn.counters().calls_sent, 3);

    // The server has one credit for its own calls, whatever it grants to the client and however many calls it serves.
    let mut server = facing(Role::Server, config(32, 4));
    for xid in 0..20 {
        arrive(&mut server, &plain(THEIRS + xid, 32, 0, 0)).expect("call refused");
    }
    for _ in 0..9 {
        server.call(&Script::default());
    }
    server.run();
    assert_eq!(server.engine.conn.counters().calls_sent, 1);
    // RFC 8166 §3.3.1: a grant counts only up to the requested number.
    server.raw.send(&plain(XID, 100, 1, 0), &[]);
    server.run();
    assert_eq!(server.engine.conn.counters().calls_sent, 5);
}

/// RFC 8167 §4.1: the credit value of a message without a known direction is ignored.
#[test]
fn credits_of_messages_without_direction_are_ignored() {
    for role in [Role::Client, Role::Server] {
        let mut facing = facing(role, config(32, 4));
        facing.call(&Script::default());
        facing.run();
        for words in [
            [XID, 1, 30, 0, 0, 0, 0, XID, 2].as_slice(), // neither call nor reply
            &[XID, 1, 30, 0, 0, 0, 0, XID],              // cut short before msg_type
            &[XID, 1, 30, 3, 0, 0, 0],                   // RDMA_DONE
            &[XID + 9, 1, 30, 4, 2],                     // an error for no call
        ] {
            facing.raw.send(words, &[]);
            facing.run();
            assert_eq!(facing.engine.conn.counters().credits_granted, 1, "{role:?}: {words:?}");
        }
        assert!(take_finished(&mut facing.engine).is_none(), "{role:?}");
    }
}

/// RFC 8167 §4.2: the reverse direction has the thresholds of the forward direction, with the roles swapped.
#[test]
fn thresholds() {
    let mut config = PairConfig::default();
    (config.client.send_size, config.client.receive_size) = (2048, 1024);
    (config.server.send_size, config.server.receive_size) = (8192, 4096);
    let exchange = |inline, reply_inline| {
        let mut pair = Pair::new(config.clone());
        let script = Script { inline, reply_inline, ..Script::default() };
        call_back(&mut pair, &script);
        pair.run();
        answer_callbacks(&mut pair.client, &HashMap::from([(0, script)]));
        pair.run();
        pair.assert_nothing_exposed();
        assert_eq!(pair.server.conn.close_reason(), None);
        take_finished(&mut pair.server).expect("call not finished").1
    };
    // 28 bytes of transport header and 12 of RPC header.
    assert_eq!(exchange(1024 - 40, 2048 - 40).unwrap().format, MessageFormat::Short);
    // RFC 8167 §5.3: sending it anyway could cost the connection.
    let failure = exchange(1024 - 36, 0).unwrap_err();
    assert_eq!(failure, CallFailure::ReverseTooLong { len: 1000, max: 996 });
    // RFC 8166 §4.5.3: the reply has no chunk to go into.
    assert_eq!(exchange(0, 2048 - 36).unwrap_err(), CallFailure::ChunkError);
}

/// RFC 8167 §5.3: calls have no chunks, and eligible items stay in the payload stream.
#[test]
fn calls_have_no_chunks() {
    let mut server = facing(Role::Server, config(32, 4));
    // Results are returned inline, whatever their maximum size.
    server.call(&Script { reply_inline: 100_000, results: vec![(5, 1 << 20)], ..Script::default() });
    server.run();
    let sent = server.raw.next().unwrap();
    assert_eq!(sent[4..7], NO_CHUNKS);
    assert_eq!(server.network.registered(SimEnd::B), 0);
    // The engine allocates no memory for them.
    let mut server = facing(Role::Server, config(32, 4));
    server.call(&Script { reply_inline: 100, results: vec![(5, 1 << 30)], ..Script::default() });
    server.run();
    assert_eq!(server.raw.next().expect("call not sent")[4..7], NO_CHUNKS);
    // Eligible arguments are sent inline, whatever their size.
    let mut server = facing(Role::Server, config(32, 4));
    server.call(&Script { args: vec![2000], reduce: true, ..Script::default() });
    server.run();
    let sent = server.raw.next().unwrap();
    assert_eq!((sent.len(), sent[4..7] == NO_CHUNKS), (7 + 4 + 500, true));
    assert_eq!(server.engine.conn.counters().copied_eligible_bytes, 2000);
    // A call that does not fit inline with its arguments is not sent.
    let mut server = facing(Role::Server, config(32, 4));
    server.call(&Script { args: vec![5000], reduce: true, ..Script::default() });
    server.run();
    let failure = CallFailure::ReverseTooLong { len: 16 + 5000, max: 4096 - 28 };
    assert_eq!(take_finished(&mut server.engine).unwrap().1.unwrap_err(), failure);
    assert_eq!(server.raw.next(), None);
}

/// RFC 8167 §5.3: a responder without support for reverse-direction chunks refuses them with ERR_CHUNK.
#[test]
fn chunks_are_refused() {
    let mut client = facing(Role::Client, config(32, 6));
    let receives = client.network.receives(SimEnd::A);
    for words in [
        vec![THEIRS, 1, 9, 0, 1, 8, 7, 64, 0, 0, 0, 0, 0, THEIRS, 0, 1], // a Read chunk
        vec![THEIRS, 1, 9, 0, 0, 1, 1, 7, 64, 0, 0, 0, 0, THEIRS, 0, 1], // a Write chunk
        vec![THEIRS, 1, 9, 0, 0, 1, 0, 0, 0, THEIRS, 0, 1],              // an empty Write chunk
        vec![THEIRS, 1, 9, 0, 0, 0, 1, 1, 7, 64, 0, 0, THEIRS, 0, 1],    // a Reply chunk
        vec![THEIRS, 1, 9, 1, 1, 0, 7, 64, 0, 0, 0, 0, 0],               // a Long call
    ] {
        assert!(arrive(&mut client, &words).is_none(), "{words:?}");
        assert_eq!(client.raw.next().unwrap(), [THEIRS, 1, 6, 4, 2], "{words:?}");
    }
    assert_eq!(client.network.receives(SimEnd::A), receives);
    assert_eq!(client.engine.conn.counters().errors_sent, 5);
    assert_eq!(client.engine.conn.close_reason(), None);
}

/// RDMA_ERROR (RFC 8166 §4.5), and replies with chunks that the call did not offer, fail the server's call.
#[test]
fn errors_and_invalid_replies() {
    for (words, failure) in [
        (vec![XID, 1, 3, 4, 2], CallFailure::ChunkError),
        (vec![XID, 1, 3, 4, 1, 2, 3], CallFailure::VersionMismatch { low: 2, high: 3 }),
        (vec![XID, 1, 3, 0, 1, 8, 7, 64, 0, 0, 0, 0, 0, XID, 1, 0], CallFailure::BadReply(MessageFault::ReadList)),
        (
            vec![XID, 1, 3, 0, 0, 1, 1, 7, 64, 0, 0, 0, 0, XID, 1, 0],
            CallFailure::BadReply(MessageFault::WriteListLength { returned: 1, provided: 0 }),
        ),
    ] {
        let mut server = facing(Role::Server, config(32, 4));
        server.call(&Script::default());
        server.run();
        server.raw.next();
        let receives = server.network.receives(SimEnd::B);
        server.raw.send(&words, &[]);
        server.run();
        assert_eq!(take_finished(&mut server.engine).unwrap().1.unwrap_err(), failure);
        assert_eq!(server.network.receives(SimEnd::B), receives);
        // The server sends no response, and both directions still work.
        assert_eq!(server.raw.next(), None);
        assert!(arrive(&mut server, &plain(THEIRS, 8, 0, 0)).is_some());
        server.call(&Script::default());
        server.run();
        assert_eq!(server.raw.next().unwrap()[0], XID + 1);
    }
}

/// RFC 8797 §4.1: only a reply may invalidate, and only a handle that its call offered. Reverse-direction calls offer
/// none.
#[test]
fn reverse_calls_must_not_invalidate() {
    let mut client = facing(Role::Client, config(32, 4));
    client.call(&Script { results: vec![(5000, 5000)], ..Script::default() });
    client.run();
    let handle = client.raw.next().unwrap()[7];
    client.raw.send_invalidating(&plain(XID, 4, 0, 0), &[], Some(MemoryHandle(handle)));
    client.run();
    assert!(matches!(client.engine.conn.close_reason(), Some(CloseReason::PeerViolation(_))));

    let mut server = facing(Role::Server, config(32, 4));
    server.call(&Script::default());
    server.run();
    let (handle, _) = server.raw.sink(10);
    server.raw.send_invalidating(&plain(XID, 4, 1, 0), &[], Some(MemoryHandle(handle)));
    server.run();
    assert!(server.engine.conn.close_reason().is_some());
}

/// RFC 8167 §4.3.1, §4.3.2: the engine posts Receives for both directions, and posts them again after use.
#[test]
fn receives_for_both_directions() {
    let least = Connection::setup_params(&config(5, 0), true).receive_count;
    assert_eq!(Connection::setup_params(&config(5, 7), true).receive_count, least + 7);

    // Both peers use all of their credits.
    let mut pair_config = PairConfig::default();
    (pair_config.client, pair_config.server) = (config(5, 7), config(5, 7));
    let mut pair = Pair::new(pair_config);
    let script = Script::default();
    let callbacks = HashMap::from([(0, script.clone())]);
    for _ in 0..2 {
        // The first round raises the number of credits.
        for number in 1..20 {
            pair.call(Script { number, ..script.clone() });
            call_back(&mut pair, &script);
        }
        let receives = (pair.network.receives(SimEnd::A), pair.network.receives(SimEnd::B));
        loop {
            pair.run();
            if answer_callbacks(&mut pair.client, &callbacks) == 0 {
                break;
            }
        }
        assert_eq!((pair.network.receives(SimEnd::A), pair.network.receives(SimEnd::B)), receives);
        assert!(pair.outcomes().into_values().all(|outcome| outcome.is_ok()));
        for _ in 1..20 {
            assert!(take_finished(&mut pair.server).unwrap().1.is_ok());
        }
    }
    let counters = pair.server.conn.counters();
    assert_eq!((counters.credits_granted, counters.calls_sent, counters.calls_received), (7, 38, 38));
}

/// RFC 8167 §6: a peer without reverse-direction support discards calls in this direction. Its own calls in this
/// direction fail.
#[test]
fn peer_without_reverse_direction() {
    let mut client = facing(Role::Client, config(32, 0));
    let receives = client.network.receives(SimEnd::A);
    for xid in 0..50 {
        assert!(arrive(&mut client, &plain(xid, 4, 0, 0)).is_none());
    }
    // A malformed call gets no error either.
    assert!(arrive(&mut client, &[THEIRS, 1, 4, 0, 0, 0, 0, THEIRS + 1, 0, 0]).is_none());
    assert_eq!(client.raw.next(), None);
    assert_eq!((client.engine.conn.counters().messages_discarded, client.network.receives(SimEnd::A)), (51, receives));
    client.call(&Script::default());
    client.run();
    assert!(client.raw.next().is_some(), "the forward direction stopped");

    let mut server = facing(Role::Server, config(32, 0));
    server.call(&Script::default());
    server.run();
    assert_eq!(take_finished(&mut server.engine).unwrap().1.unwrap_err(), CallFailure::ReverseDisabled);
    assert_eq!(server.raw.next(), None);
    assert!(arrive(&mut server, &plain(THEIRS, 4, 1, 0)).is_none());
    assert_eq!(server.engine.conn.counters().messages_discarded, 1);
}

/// RFC 8167 §5.4: a call without a reply can be abandoned, and the connection stays open. Later calls wait, because
/// RFC 8166 §3.3.1 allows one call until the first reply.
#[test]
fn call_without_reply() {
    let mut server = facing(Role::Server, config(32, 4));
    let late = Script { deadline: Some(Duration::from_secs(1)), ..Script::default() };
    server.call(&late);
    server.run();
    server.call(&late);
    server.call(&Script::default());
    server.run();
    server.now += Duration::from_secs(1);
    server.run();
    let outcome = |server: &mut ScriptedPeer| take_finished(&mut server.engine).unwrap().1.unwrap_err();
    assert_eq!(outcome(&mut server), CallFailure::DeadlineExceeded { sent: true });
    assert_eq!(outcome(&mut server), CallFailure::DeadlineExceeded { sent: false });
    server.now += Duration::from_secs(60);
    server.run();
    assert_eq!(server.engine.conn.close_reason(), None);
    assert!(arrive(&mut server, &plain(THEIRS, 8, 0, 0)).is_some());
    // The reply arrives late.
    server.raw.send(&plain(XID, 4, 1, 0), &[]);
    server.run();
    server.raw.next();
    assert_eq!(server.raw.next().unwrap()[0], XID + 1);
}

/// RFC 8167 §5.4: a lost connection fails each reverse-direction call once, with the reason, and states whether the
/// call was sent. The client reports that its reply is not delivered.
#[test]
fn lost_connection() {
    let mut pair = Pair::new(PairConfig::default());
    pair.call(Script::default());
    pair.run();
    pair.outcomes();
    let script = Script { number: 3, ..Script::default() };
    call_back(&mut pair, &script);
    call_back(&mut pair, &script);
    pair.run();
    pair.network.cut();
    pair.run();
    for sent in [true, false] {
        let failure = take_finished(&mut pair.server).unwrap().1.unwrap_err();
        assert!(matches!(failure, CallFailure::Closed { sent: was, .. } if was == sent), "{failure}");
    }
    assert!(take_call(&mut pair.client).is_some());
    assert!(matches!(take_reply_sent(&mut pair.client), Some((_, false))));
    for peer in [&pair.client, &pair.server] {
        assert!(peer.events.iter().any(|event| matches!(event, EngineEvent::Closed(_))));
    }
}

/// Without private data, a reverse-direction call has the default threshold of 1024 bytes.
#[test]
fn without_private_data() {
    let config = config(32, 4);
    let base = SimEndConfig::default();
    let mut sim = SimConfig::default();
    sim.ends = [base.clone(), base];
    let setup = ConnectionSetup { local: PrivateData::new(&config, true), peer: PrivateData::default(), xid_seed: XID };
    let mut server = ScriptedPeer::with(Role::Server, config, setup, sim);
    server.call(&Script { inline: 1024 - 40, ..Script::default() });
    server.call(&Script { inline: 1024 - 36, ..Script::default() });
    server.run();
    assert_eq!(server.raw.next().unwrap().len(), 256);
    server.raw.send(&plain(XID, 4, 1, 0), &[]);
    server.run();
    take_finished(&mut server.engine);
    let failure = take_finished(&mut server.engine).unwrap().1.unwrap_err();
    assert_eq!(failure, CallFailure::ReverseTooLong { len: 1000, max: 996 });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..ProptestConfig::default() })]

    /// Each call of both directions finishes once, in any order and with a disconnection at any time. A
    /// reverse-direction call that gets a reply was executed once. A reverse-direction call fails only if it or its
    /// reply is too long, or if the connection is lost. No memory stays exposed, and the peers do not deadlock.
    #[test]
    fn both_directions(
        credits in (1u32..6, 1u32..6, 1u32..6, 1u32..6),
        forward in proptest::collection::vec((0usize..6000, 0usize..6000), 0..12),
        reverse in proptest::collection::vec((0usize..5000, 0usize..5000), 0..12),
        seed in any::<u64>(),
        cut in proptest::option::of(0u64..400),
    ) {
        let (client, server) = (config(credits.0, credits.1), config(credits.2, credits.3));
        let mut pair_config = PairConfig { client, server, ..PairConfig::default() };
        pair_config.sim.seed = seed;
        let mut pair = Pair::new(pair_config);
        let mut callbacks = HashMap::new();
        let mut outstanding = HashMap::new();
        for (number, (inline, reply_inline)) in (100..).zip(reverse) {
            let script = Script { number, inline, reply_inline, ..Script::default() };
            outstanding.insert(call_back(&mut pair, &script), number);
            callbacks.insert(number, script);
        }
        for (number, (inline, reply_inline)) in (0..).zip(forward) {
            pair.call(Script { number, inline, reply_inline, ..Script::default() });
        }
        let mut state = seed | 1;
        let mut choose = |n: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as usize % n
        };
        let mut carried_out = HashMap::new();
        let mut idle = 0;
        for step in 0..200_000 {
            if cut == Some(step) {
                pair.network.cut();
            }
            let busy = match choose(6) {
                0 => pair.client.turn(pair.now),
                1 => pair.server.turn(pair.now),
                2 => pair.take_calls(),
                3 => { let count = pair.pending.len(); count > 0 && pair.answer(choose(count)) }
                4 => match take_call(&mut pair.client) {
                    Some(call) => {
                        let script = &callbacks[&crate::support::word(call.payload.as_slice(), 2)];
                        script.check_call(&call);
                        *carried_out.entry(script.number).or_insert(0) += 1;
                        pair.client.conn.reply(call.token, script.reply(std::iter::empty()));
                        true
                    }
                    None => false,
                },
                _ => pair.network.step(),
            };
            idle = if busy { 0 } else { idle + 1 };
            if idle > 200 {
                break;
            }
        }
        prop_assert!(idle > 200, "the peers do not become idle");
        while let Some((id, result)) = take_finished(&mut pair.server) {
            let number = outstanding.remove(&id).expect("call finished twice");
            let script = &callbacks[&number];
            match result {
                Ok(reply) => {
                    script.check(&reply);
                    prop_assert_eq!(carried_out.get(&number), Some(&1));
                }
                Err(CallFailure::ReverseTooLong { len, max }) => {
                    prop_assert!(len > max && !carried_out.contains_key(&number));
                }
                Err(CallFailure::ChunkError) => prop_assert!(script.reply_inline + 12 > 4096 - 28 - 4),
                Err(CallFailure::Closed { .. }) => prop_assert!(cut.is_some()),
                Err(failure) => prop_assert!(false, "{failure}"),
            }
        }
        prop_assert!(outstanding.is_empty());
        for (_, result) in pair.outcomes() {
            prop_assert!(result.is_ok() || cut.is_some());
        }
        prop_assert!(pair.calls.is_empty());
        pair.assert_nothing_exposed();
    }
}
