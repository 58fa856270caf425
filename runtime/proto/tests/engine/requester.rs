//! A version 1 requester against a scripted responder.

use crate::support::{NO_CHUNKS, Script, ScriptedPeer, join, plain, split, take_finished};
use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{
        CallFailure, CloseReason, ConnectionSetup, EngineConfig, EngineEvent, IncomingReply, MessageFormat,
        PrivateData, Role,
    },
    memory::{LandingMemory, PayloadBuf},
    provider::{
        DisconnectReason, MemoryHandle,
        sim::{SimConfig, SimEnd, SimFault},
    },
};

const XID: u32 = 0x1000;

fn client() -> ScriptedPeer {
    ScriptedPeer::new(Role::Client, EngineConfig::default(), true)
}

/// Returns a client without reverse-direction support.
fn one_way_client() -> ScriptedPeer {
    let mut config = EngineConfig::default();
    config.reverse_credits = 0;
    ScriptedPeer::new(Role::Client, config, true)
}

fn finished(facing: &mut ScriptedPeer) -> Option<Result<IncomingReply, CallFailure>> {
    facing.run();
    take_finished(&mut facing.engine).map(|(_, result)| result)
}

fn exposed(facing: &ScriptedPeer) -> usize {
    facing.network.registered(SimEnd::A)
}

/// Starts a call with a Write chunk of 5000 bytes (words 6..11 of its header) and a Reply chunk (words 13..18). Returns
/// the client, and the words of the call.
fn with_sinks() -> (ScriptedPeer, Vec<u32>) {
    let mut facing = client();
    facing.call(&Script { reply_inline: 5000, results: vec![(0, 5000)], ..Script::default() });
    facing.run();
    let call = facing.raw.next().expect("call not sent");
    // Fixed words, an empty Read list, a Write list of one chunk with one segment, and a Reply chunk of one segment.
    assert_eq!((&call[..4], call[4]), (&[XID, 1, 32, 0][..], 0));
    assert_eq!((call[5], call[6], call[8], call[11]), (1, 1, 5000, 0));
    assert_eq!((call[12], call[13], call[15]), (1, 1, 5016));
    assert_eq!(&call[18..], &[XID, 0, 0]);
    assert_eq!(exposed(&facing), 2);
    (facing, call)
}

/// RFC 8166 §3.5.3: a Reply chunk has room for the padding of the payload stream.
#[test]
fn reply_chunks_have_room_for_padding() {
    for (max_inline, provided) in [(5000, 5000), (5001, 5004), (5003, 5004)] {
        let mut facing = client();
        let mut call = Script::default().outgoing(&facing.engine.conn, facing.now);
        call.reply.max_inline = max_inline;
        facing.engine.conn.start_call(call);
        facing.run();
        let call = facing.raw.next().expect("sent");
        assert_eq!((&call[4..8], call[9]), (&[0, 0, 1, 1][..], provided));
    }
}

/// RFC 8166 §4.5, §4.6, §4.2.1, RFC 8167 §6: messages that are silently discarded. Their Receive is posted again.
#[test]
fn discarded_messages() {
    let bad: &[&[u32]] = &[
        &[],
        &[XID],
        &[XID, 1, 32, 0, 0, 0],                       // 24 bytes
        &[XID, 1, 32, 5, 0, 0, 0],                    // unknown procedure
        &[XID, 1, 32, 0, 7, 0, 0],                    // bad presence flag
        &[XID, 1, 32, 0, 0, 1, 0xffff_ffff, 0, 0],    // more segments than remaining bytes
        &[XID, 2, 32, 0, 0, 0, 0, XID, 1, 0],         // another version
        &[XID, 1, 32, 2, 0, 0, 0, 0, 0, XID, 1, 0],   // RDMA_MSGP
        &[XID, 1, 32, 3, 0, 0, 0],                    // RDMA_DONE
        &[XID, 1, 32, 4, 9],                          // an error that does not decode
        &[XID, 1, 32, 4, 1, 1],                       // the same, cut short
        &[XID + 1, 1, 32, 4, 2],                      // an error for no call
        &[XID + 1, 1, 32, 0, 0, 0, 0, XID + 1, 1],    // unknown XID
        &[XID, 1, 32, 0, 0, 0, 0, XID + 1, 1],        // XIDs differ
        &[XID, 1, 32, 0, 0, 0, 0],                    // no RPC message
        &[XID, 1, 32, 0, 0, 0, 0, XID],               // half of an RPC message
        &[XID, 1, 32, 0, 0, 0, 0, XID, 0, 0],         // a reverse-direction call with an XID of the engine
        &[XID, 1, 32, 0, 0, 0, 0, XID, 2, 0],         // neither call nor reply
        &[XID, 1, 32, 1, 1, 0, 7, 64, 0, 0, 0, 0, 0], // a Long call in the reverse direction
        &[XID + 1, 1, 32, 1, 0, 0, 0],                // RDMA_NOMSG, unknown XID
    ];
    let mut facing = one_way_client();
    // The second call waits for a credit.
    for _ in 0..2 {
        facing.call(&Script::default());
    }
    facing.run();
    let receives = facing.network.receives(SimEnd::A);
    // Repeat, to show that such messages cost no Receive.
    for _ in 0..10 {
        for words in bad {
            facing.raw.send(words, &[]);
            facing.run();
        }
    }
    assert_eq!(facing.engine.conn.counters().messages_discarded, 10 * bad.len() as u64);
    assert_eq!(facing.network.receives(SimEnd::A), receives);
    // The engine sent no reply, and ignored the credit values.
    facing.raw.next();
    assert_eq!(facing.raw.next(), None);
    assert_eq!(facing.engine.conn.counters().credits_granted, 1);
    facing.raw.send(&plain(XID, 8, 1, 0), &[0; 4]);
    assert!(finished(&mut facing).is_some_and(|result| result.is_ok()));
    assert_eq!(facing.raw.next().map(|call| call[0]), Some(XID + 1));
}

/// RFC 8166 §4.5.1, §4.5.2: RDMA_ERROR fails the call.
#[test]
fn transport_errors() {
    let errors = [
        (vec![XID, 1, 7, 4, 1, 2, 3], CallFailure::VersionMismatch { low: 2, high: 3 }),
        (vec![XID, 1, 7, 4, 2], CallFailure::ChunkError),
    ];
    for (words, failure) in errors {
        let (mut facing, _) = with_sinks();
        facing.raw.send(&words, &[]);
        assert_eq!(finished(&mut facing).unwrap().unwrap_err(), failure);
        assert_eq!(exposed(&facing), 0);
        let counters = facing.engine.conn.counters();
        assert_eq!((counters.errors_received, counters.credits_granted), (1, 7));
    }
}

/// RFC 8166 §3.3.1, §3.3.3: a requester starts with one credit and then follows the grants. A grant of zero counts as
/// one; a grant above the requested number counts as the requested number.
#[test]
fn credits() {
    let mut facing = client();
    for _ in 0..100 {
        facing.call(&Script::default());
    }
    let mut xid = XID;
    let mut in_flight = 0;
    for (grant, allowed) in [(3, 1), (0, 3), (1, 1), (u32::MAX, 1), (2, 32), (2, 31)] {
        facing.run();
        while let Some(call) = facing.raw.next() {
            assert_eq!(call[2], 32, "call does not ask for 32 credits");
            in_flight += 1;
        }
        assert_eq!(in_flight, allowed, "before the grant of {grant}");
        // RFC 8166 §3.3.1: a lower grant does not affect calls in flight.
        let answers = if grant == 0 { 3 } else { 1 };
        for n in 0..answers {
            facing.raw.send(&plain(xid, grant, 1, 0), &[]);
            xid += 1;
            in_flight -= 1;
            if n + 1 < answers {
                facing.run();
                assert!(facing.raw.next().is_none(), "more calls in flight than granted");
            }
        }
    }
    assert_eq!(facing.engine.conn.counters().credits_granted, 2);
}

/// Replies match their calls by XID, in any order. A second reply to a call is discarded.
#[test]
fn replies_in_any_order() {
    let mut facing = client();
    let first = facing.call(&Script::default());
    facing.run();
    facing.raw.send(&plain(XID, 32, 1, 0), &[]);
    facing.run();
    assert_eq!(take_finished(&mut facing.engine).unwrap().0, first);
    let ids: Vec<_> = (0..3).map(|_| facing.call(&Script::default())).collect();
    facing.run();
    for n in [2, 0, 0, 1] {
        facing.raw.send(&plain(XID + 1 + n, 32, 1, 0), &[]);
    }
    facing.run();
    let order: Vec<_> = std::iter::from_fn(|| take_finished(&mut facing.engine)).map(|(id, _)| id).collect();
    assert_eq!(order, [ids[2], ids[0], ids[1]]);
    assert_eq!(facing.engine.conn.counters().messages_discarded, 1);
}

/// RFC 8166 §3.4.6, §4.3.2.2, §4.3.3: a reply with valid returned chunks completes its call. A reply with invalid
/// returned chunks fails the call.
#[test]
fn returned_chunks() {
    type Edit = fn(&[u32]) -> Vec<u32>;
    let with = |call: &[u32], write: u32, reply: Option<u32>| {
        let mut words = vec![XID, 1, 4, u32::from(reply.is_some_and(|len| len > 0)), 0];
        words.extend([1, 1, call[7], write, call[9], call[10], 0]);
        words.extend(reply.map_or(vec![0], |len| vec![1, 1, call[14], len, call[16], call[17]]));
        words
    };
    let inline = [XID, 1, 0];
    for (write, reply) in [(0, Some(0)), (0, None), (5000, Some(0)), (3, None), (7, Some(24)), (0, Some(5016))] {
        let (mut facing, call) = with_sinks();
        facing.raw.write(call[7], join(call[9], call[10]), &vec![7; write as usize]);
        let mut words = with(&call, write, reply);
        match reply {
            Some(1..) => {
                let payload: Vec<u8> = [XID, 1, 0, 1, 2, 3].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
                facing.raw.write(call[14], join(call[16], call[17]), &payload);
            }
            _ => words.extend(inline),
        }
        facing.raw.send(&words, &[]);
        let answer = finished(&mut facing).unwrap().unwrap();
        assert_eq!(answer.writes[0].data, vec![7; write as usize]);
        assert!(answer.writes[0].provided);
        assert_eq!(&answer.payload.as_slice()[..8], &[0, 0, 0x10, 0, 0, 0, 0, 1]);
        if let Some(len @ 1..) = reply {
            assert_eq!((answer.format, answer.payload.as_slice().len()), (MessageFormat::Long, len as usize));
        }
        assert_eq!(exposed(&facing), 0);
    }
    // A reply without a Write list used none of the chunks.
    let (mut facing, _) = with_sinks();
    facing.raw.send(&[&[XID, 1, 4, 0, 0, 0, 0][..], &inline].concat(), &[]);
    assert!(finished(&mut facing).unwrap().unwrap().writes[0].data.is_empty());

    let bad: &[(&str, Edit)] = &[
        ("a Read list", |c| [&[XID, 1, 4, 0, 1, 0, 9, 9, 0, 9, 0], &c[5..12], &[0, XID, 1, 0]].concat()),
        ("two chunks", |c| [&[XID, 1, 4, 0, 0], &c[5..11], &c[5..12], &[0, XID, 1, 0]].concat()),
        ("an empty chunk", |_| vec![XID, 1, 4, 0, 0, 1, 0, 0, 0, XID, 1, 0]),
        ("two segments", |c| [&[XID, 1, 4, 0, 0, 1, 2], &c[7..11], &c[7..11], &[0, 0, XID, 1, 0]].concat()),
        ("longer than provided", |c| [&[XID, 1, 4, 0, 0, 1, 1, c[7], 5001], &c[9..11], &[0, 0, XID, 1, 0]].concat()),
        ("a length near 2^32", |c| [&[XID, 1, 4, 0, 0, 1, 1, c[7], u32::MAX], &c[9..11], &[0, 0, XID, 1, 0]].concat()),
        ("another handle", |c| [&[XID, 1, 4, 0, 0, 1, 1, !c[7], 1], &c[9..11], &[0, 0, XID, 1, 0]].concat()),
        ("another offset", |c| [&[XID, 1, 4, 0, 0, 1, 1, c[7], 1, !c[9], c[10]][..], &[0, 0, XID, 1, 0]].concat()),
        ("a Reply chunk in use, RDMA_MSG", |c| [&[XID, 1, 4, 0, 0, 0], &c[12..18], &[XID, 1, 0]].concat()),
        ("a Reply chunk of two segments", |c| [&[XID, 1, 4, 1, 0, 0, 1, 2], &c[14..18], &c[14..18]].concat()),
        ("a Reply chunk too long", |c| [&[XID, 1, 4, 1, 0, 0, 1, 1, c[14], 5017], &c[16..18]].concat()),
        ("RDMA_NOMSG without a Reply chunk", |_| vec![XID, 1, 4, 1, 0, 0, 0]),
        ("RDMA_NOMSG with an unused one", |c| [&[XID, 1, 4, 1, 0, 0, 1, 1, c[14], 0], &c[16..18]].concat()),
        // The Reply chunk is empty, so the memory does not contain a reply to this call.
        ("a Reply chunk without a reply", |c| [&[XID, 1, 4, 1, 0, 0], &c[12..18]].concat()),
    ];
    for (what, edit) in bad {
        let (mut facing, call) = with_sinks();
        facing.raw.send(&edit(&call), &[]);
        let failure = finished(&mut facing).expect(what).expect_err(what);
        assert!(matches!(failure, CallFailure::BadReply(_)), "{what}: {failure}");
        assert_eq!(exposed(&facing), 0, "{what}");
        // RFC 8166 §3.3.3: a reply with errors in its header grants nothing.
        let grant = if *what == "a Reply chunk without a reply" { 4 } else { 1 };
        assert_eq!(facing.engine.conn.counters().credits_granted, grant, "{what}");
        assert!(facing.engine.conn.close_reason().is_none(), "{what}");
    }
}

/// RFC 8166 §3.4.6: responders fill the segments of a chunk one after the other. A reply that leaves room in a segment
/// but uses a later one fails its call.
#[test]
fn segments_in_order() {
    for (lengths, ok) in [([1000, 1000, 500], true), ([1000, 7, 0], true), ([7, 1, 0], false), ([0, 1000, 0], false)] {
        let mut config = EngineConfig::default();
        config.max_segment_len = 1000;
        let mut facing = ScriptedPeer::new(Role::Client, config, true);
        facing.call(&Script { results: vec![(0, 2500)], ..Script::default() });
        facing.run();
        let call = facing.raw.next().unwrap();
        assert_eq!((call[6], call[8], call[12], call[16]), (3, 1000, 1000, 500));
        let mut words = vec![XID, 1, 4, 0, 0];
        words.extend(&call[5..19]);
        for (n, length) in lengths.into_iter().enumerate() {
            words[8 + 4 * n] = length;
        }
        words.extend([0, 0, XID, 1, 0]);
        words.truncate(5 + 14 + 5);
        words[19..].copy_from_slice(&[0, 0, XID, 1, 0]);
        facing.raw.send(&words, &[]);
        let result = finished(&mut facing).unwrap();
        assert_eq!(result.is_ok(), ok, "{lengths:?}: {result:?}");
        if let Ok(reply) = result {
            assert_eq!(reply.writes[0].data.len() as u32, lengths.iter().sum::<u32>());
        }
    }
}

/// RFC 8797 §4.1: a Send with Invalidate has to name a handle of the call that it replies to. Otherwise the connection
/// is closed.
#[test]
fn remote_invalidation() {
    let (mut facing, call) = with_sinks();
    let mut reply = vec![XID, 1, 4, 0, 0, 0, 0, XID, 1, 0];
    facing.raw.send_invalidating(&reply, &[], Some(MemoryHandle(call[7])));
    assert!(finished(&mut facing).unwrap().is_ok());
    assert_eq!((exposed(&facing), facing.engine.conn.counters().remote_invalidations), (0, 1));

    // A handle of another call.
    facing.call(&Script { results: vec![(0, 5000)], ..Script::default() });
    facing.call(&Script { results: vec![(0, 5000)], ..Script::default() });
    facing.run();
    let (one, _two) = (facing.raw.next().unwrap(), facing.raw.next().unwrap());
    reply[0] = XID + 2;
    reply[7] = XID + 2;
    facing.raw.send_invalidating(&reply, &[], Some(MemoryHandle(one[7])));
    for _ in 0..2 {
        let failure = finished(&mut facing).unwrap().unwrap_err();
        let CallFailure::Closed { reason: CloseReason::PeerViolation(_), sent: true } = failure else {
            panic!("{failure}")
        };
    }
    assert!(facing.raw.disconnected());
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(CloseReason::PeerViolation(_))]));
    assert_eq!(exposed(&facing), 0);
}

/// The caller of a cancelled call gets its result at once. The memory, the XID and the credit of the call stay in use
/// until the reply arrives, so that a responder that is still writing does not lose the connection.
#[test]
fn cancellation() {
    let (mut facing, call) = with_sinks();
    let id = rpcrdma_proto::engine::CallId(0);
    facing.engine.conn.cancel_call(id, facing.now);
    let before = exposed(&facing);
    assert!(matches!(finished(&mut facing), Some(Err(CallFailure::Cancelled { sent: true }))));
    assert!(before > 0 && exposed(&facing) == before);
    assert_eq!(facing.engine.conn.counters().calls_abandoned, 1);
    // A second cancellation has no effect.
    facing.engine.conn.cancel_call(id, facing.now);
    facing.call(&Script::default());
    assert!(finished(&mut facing).is_none());
    assert!(facing.raw.next().is_none(), "sent without a credit");
    // The late reply invalidates a handle of its call, which is allowed.
    facing.raw.send_invalidating(&[XID, 1, 4, 0, 0, 0, 0, XID, 1, 0], &[], Some(MemoryHandle(call[7])));
    facing.run();
    assert_eq!(exposed(&facing), 0);
    assert_eq!(facing.engine.conn.counters().calls_abandoned, 0);
    assert_eq!(facing.raw.next().expect("sent")[0], XID + 1);
    assert!(facing.engine.conn.close_reason().is_none());

    // Cancellation before the call is sent.
    let id = facing.call(&Script { inline: 9000, ..Script::default() });
    facing.engine.conn.cancel_call(id, facing.now);
    assert!(matches!(finished(&mut facing), Some(Err(CallFailure::Cancelled { sent: false }))));
    assert!(facing.raw.next().is_none());
}

/// The memory of an abandoned call stays registered only for the grace period.
#[test]
fn grace_of_a_cancelled_call() {
    let (mut facing, _) = with_sinks();
    // Get a second credit, so that the connection remains usable.
    facing.raw.send(&[XID, 1, 4, 0, 0, 0, 0, XID, 1, 0], &[]);
    facing.run();
    assert!(finished(&mut facing).is_some_and(|result| result.is_ok()));
    let id = facing.call(&Script { results: vec![(0, 5000)], reply_inline: 5000, ..Script::default() });
    facing.run();
    assert!(exposed(&facing) > 0);
    let grace = EngineConfig::default().abandoned_call_timeout;
    facing.engine.conn.cancel_call(id, facing.now);
    assert!(matches!(finished(&mut facing), Some(Err(CallFailure::Cancelled { sent: true }))));
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + grace));
    facing.now += grace;
    facing.run();
    assert_eq!(exposed(&facing), 0);
    // The XID and the credit are still in use.
    assert_eq!(facing.engine.conn.counters().calls_abandoned, 1);
    assert_eq!(facing.engine.conn.poll_timeout(), None);
    facing.raw.send(&[XID + 1, 1, 4, 0, 0, 0, 0, XID + 1, 1, 0], &[]);
    facing.run();
    assert_eq!(facing.engine.conn.counters().calls_abandoned, 0);
    assert!(facing.engine.conn.close_reason().is_none());
    assert!(finished(&mut facing).is_none());
}

/// A peer that never replies does not block later calls forever. When abandoned calls hold all credits for longer than
/// the grace period, the connection is closed, and queued calls fail as not sent.
#[test]
fn unresponsive_peer_closes_the_connection() {
    let (mut facing, _) = with_sinks();
    facing.call(&Script::default());
    facing.engine.conn.cancel_call(rpcrdma_proto::engine::CallId(0), facing.now);
    assert!(matches!(finished(&mut facing), Some(Err(CallFailure::Cancelled { sent: true }))));
    facing.now += EngineConfig::default().abandoned_call_timeout;
    facing.run();
    let Some(Err(CallFailure::Closed { reason: CloseReason::Unresponsive(_), sent: false })) = finished(&mut facing)
    else {
        panic!("{:?}", facing.engine.events)
    };
    facing.run();
    assert_eq!(exposed(&facing), 0);
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(CloseReason::Unresponsive(_))]));
}

/// A lost connection fails every call, and the failure tells whether the call was sent. The caller gets the failure
/// only after the memory of the call is invalidated.
#[test]
fn lost_connection() {
    let (mut facing, _) = with_sinks();
    facing.call(&Script { inline: 9000, ..Script::default() });
    facing.network.cut();
    let mut sent = [0, 1].map(|_| match finished(&mut facing).unwrap().unwrap_err() {
        CallFailure::Closed { sent, .. } => sent,
        other => panic!("{other}"),
    });
    sent.sort();
    assert_eq!(sent, [false, true]);
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(CloseReason::Disconnected(_))]));
    assert_eq!(exposed(&facing), 0);
    // Later calls fail immediately.
    facing.call(&Script::default());
    assert!(matches!(finished(&mut facing), Some(Err(CallFailure::Closed { sent: false, .. }))));
}

/// A call that is posted after the connection was lost, but before the engine was notified, fails as not sent. The
/// refused registration of its memory is not reported as the cause.
#[test]
fn lost_connection_before_its_notification() {
    let mut facing = client();
    facing.network.cut();
    facing.call(&Script { reply_inline: 9000, ..Script::default() });
    facing.engine.conn.poll_work(&mut facing.engine.qp, facing.now);
    let Some(Err(CallFailure::Closed { reason: CloseReason::Disconnected(_), sent: false })) = finished(&mut facing)
    else {
        panic!("{:?}", facing.engine.events)
    };
}

/// RFC 8166 §4.5.4: if memory cannot be invalidated, the connection is closed before the call finishes.
#[test]
fn failed_invalidation_closes_the_connection() {
    let config = EngineConfig::default();
    let says = PrivateData::new(&config, false);
    let mut sim = SimConfig::default();
    sim.faults.push(SimFault::RefuseInvalidation { end: SimEnd::A, nth: 1 });
    let setup = ConnectionSetup { local: says, peer: says, xid_seed: XID };
    let mut facing = ScriptedPeer::with(Role::Client, config, setup, sim);
    facing.call(&Script { args: vec![5000, 5000], reduce: true, ..Script::default() });
    facing.run();
    facing.raw.send(&plain(XID, 8, 1, 0), &[]);
    facing.run();
    // The reply itself is valid. It is delivered once the peer can no longer access the memory.
    assert!(facing.raw.disconnected());
    let [EngineEvent::CallFinished { result: Ok(_), .. }, EngineEvent::Closed(_)] = &facing.engine.events[..] else {
        panic!("{:?}", facing.engine.events)
    };
    assert_eq!(exposed(&facing), 0);
    assert_eq!(facing.engine.conn.counters().exposed_regions, 0);
}

/// If memory cannot be invalidated after the caller of the engine has given the connection up, the queue pair is
/// disconnected before the call finishes (RFC 8166 §4.5.4).
#[test]
fn failed_invalidation_after_a_lost_connection() {
    let config = EngineConfig::default();
    let says = PrivateData::new(&config, false);
    for nth in 0..3 {
        let mut sim = SimConfig::default();
        sim.faults.push(SimFault::RefuseInvalidation { end: SimEnd::A, nth });
        let setup = ConnectionSetup { local: says, peer: says, xid_seed: XID };
        let mut facing = ScriptedPeer::with(Role::Client, config.clone(), setup, sim);
        facing.call(&Script { args: vec![5000, 5000], reduce: true, ..Script::default() });
        facing.run();
        facing.engine.conn.connection_lost(DisconnectReason::Local);
        facing.run();
        let failure = finished(&mut facing);
        let Some(Err(CallFailure::Closed { sent: true, .. })) = failure else { panic!("{nth}: {failure:?}") };
        assert!(matches!(facing.engine.events.last(), Some(EngineEvent::Closed(_))), "{:?}", facing.engine.events);
        assert_eq!(facing.raw.disconnected(), nth < 2, "there are two regions");
        assert_eq!(exposed(&facing), 0);
        assert_eq!(facing.engine.conn.counters().exposed_regions, 0);
    }
}

/// A call that cannot be sent fails, and the connection stays open.
#[test]
fn calls_that_cannot_be_sent() {
    let mut config = EngineConfig::default();
    (config.max_segment_len, config.min_reduce, config.max_call_len) = (64, 0, 1 << 20);
    let mut facing = ScriptedPeer::new(Role::Client, config, true);
    let conn = &facing.engine.conn;
    let now = facing.now;
    let base = Script { args: vec![100, 100], reduce: true, results: vec![(0, 5000)], ..Script::default() };
    let call = || base.outgoing(conn, now);
    let mut bad = Vec::new();
    bad.extend([("segments of a Read chunk", Script { args: vec![30_000], ..base.clone() }.outgoing(conn, now))]);
    bad.extend([("segments of the reply", Script { results: vec![(0, 30_000)], ..base.clone() }.outgoing(conn, now))]);
    bad.extend([("a reply of 2 MiB", Script { results: vec![(0, 2 << 20)], ..base.clone() }.outgoing(conn, now))]);
    for more in 1..4 {
        let mut odd = call();
        odd.reduced[1].position += more;
        bad.push(("odd position", odd));
    }
    // RFC 8166 §3.4.4.4: one item for each chunk. §3.5.3: position zero is that of a Long call's payload stream.
    for (item, position) in [(1, 16), (1, 20), (1, 112), (0, 0)] {
        let mut misplaced = call();
        assert_eq!(misplaced.reduced[0].position, 16);
        misplaced.reduced[item].position = position;
        bad.push(("order", misplaced));
    }
    let mut beyond = call();
    beyond.reduced[1].position = 1 << 32;
    bad.push(("position", beyond));
    let mut swapped = call();
    swapped.reduced.swap(0, 1);
    bad.push(("order", swapped));
    let mut short = call();
    short.message = rpcrdma_proto::memory::MessageBuf::received(vec![0; 7].into(), 7);
    bad.push(("no RPC message", short));
    let mut landing = call();
    landing.reply.chunks[0].landing = Some(vec![0; 4999].into());
    bad.push(("landing buffer", landing));
    for max_inline in [u64::MAX, u64::MAX - 3, 1 << 40] {
        let mut unbounded = call();
        unbounded.reply.max_inline = max_inline;
        bad.push(("unbounded reply", unbounded));
    }
    let mut unbounded = call();
    unbounded.reply.chunks[0].max_len = u64::MAX;
    bad.push(("unbounded result", unbounded));
    for (what, call) in bad {
        facing.engine.conn.start_call(call);
        let failure = finished(&mut facing).expect(what).expect_err(what);
        let is_malformed = matches!(what, "odd position" | "order" | "no RPC message" | "landing buffer");
        match failure {
            CallFailure::Malformed(_) => assert!(is_malformed, "{what}"),
            CallFailure::TooLarge(_) => assert!(!is_malformed, "{what}"),
            other => panic!("{what}: {other}"),
        }
        assert_eq!(exposed(&facing), 0);
    }
    assert_eq!(facing.engine.conn.counters().calls_queued, 0);
    facing.call(&Script::default());
    facing.run();
    assert!(facing.raw.next().is_some());
}

/// A result is a view of the caller's landing buffer and is not copied. Only the part of the buffer that the longest
/// result can fill is registered.
#[test]
fn results_and_arguments_are_not_copied() {
    struct Own(Vec<u8>);
    impl LandingMemory for Own {
        fn as_slice(&self) -> &[u8] {
            &self.0
        }
        fn as_mut_slice(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    let mut facing = client();
    let own = Own(vec![0; 10_000]);
    let at = own.0.as_ptr();
    let mut call = Script { results: vec![(0, 8000)], ..Script::default() }.outgoing(&facing.engine.conn, facing.now);
    call.reply.chunks[0].landing = Some(PayloadBuf::from_memory(Box::new(own)));
    facing.engine.conn.start_call(call);
    facing.run();
    let call = facing.raw.next().unwrap();
    assert_eq!(call[8], 8000, "more exposed than the maximum size of the result");
    assert_eq!(facing.engine.conn.counters().registered_bytes, 8000);
    facing.raw.write(call[7], join(call[9], call[10]), &[5; 6000]);
    let [high, low] = split(join(call[9], call[10]));
    facing.raw.send(&[XID, 1, 4, 0, 0, 1, 1, call[7], 6000, high, low, 0, 0, XID, 1, 0], &[]);
    let reply = finished(&mut facing).unwrap().unwrap();
    assert_eq!((reply.writes[0].data.as_ptr(), reply.writes[0].data.len()), (at, 6000));
}

/// RFC 8166 §4.3.2.1, §4.3.2.3: a small result that fits inline gets no Write chunk, unless a later result has one. An
/// item of zero bytes then gets an empty chunk.
#[test]
fn small_results_get_no_write_chunk() {
    // Caller-provided memory does not create a chunk for an empty result.
    let mut facing = client();
    let mut call = Script { results: vec![(0, 0)], ..Script::default() }.outgoing(&facing.engine.conn, facing.now);
    call.reply.chunks[0].landing = Some(vec![0; 64].into());
    facing.engine.conn.start_call(call);
    facing.run();
    assert_eq!(facing.raw.next().unwrap()[4..7], NO_CHUNKS);

    let cases: [(&[u64], usize, &[u32]); 6] = [
        (&[100], 0, &[]),
        (&[0], 0, &[]),
        (&[5000, 100, 0], 0, &[1]),
        (&[0, 5000], 0, &[0, 1]),
        (&[100, 5000], 0, &[1, 1]),
        (&[1023], 4000, &[1]),
    ];
    for (maxima, reply_inline, segments) in cases {
        let mut facing = client();
        let results = maxima.iter().map(|&max| (0, max)).collect();
        facing.call(&Script { results, reply_inline, ..Script::default() });
        facing.run();
        let call = facing.raw.next().unwrap();
        let (mut at, mut counts) = (5, Vec::new());
        while call[at] == 1 {
            counts.push(call[at + 1]);
            at += 2 + 4 * call[at + 1] as usize;
        }
        assert_eq!(counts, segments, "{maxima:?}");
        assert_eq!(call[at + 1], 0, "a Reply chunk");
    }
}

/// RFC 8166 §4.2.1: the XIDs of calls in flight are not reused.
#[test]
fn xids_in_flight_are_not_reused() {
    let mut facing = client();
    // The second call gets no reply...
    facing.call(&Script::default());
    facing.run();
    facing.raw.send(&plain(XID, 32, 1, 0), &[]);
    facing.run();
    let stuck = facing.call(&Script::default());
    facing.run();
    // ...while other calls finish.
    let mut seen = std::collections::HashSet::new();
    for n in 0..100 {
        facing.call(&Script::default());
        facing.run();
        while let Some(call) = facing.raw.next() {
            assert!(seen.insert(call[0]), "XID used twice");
            assert_eq!(call[7], call[0]);
        }
        facing.raw.send(&plain(XID + 2 + n, 32, 1, 0), &[]);
        facing.run();
        assert_ne!(take_finished(&mut facing.engine).map(|(id, _)| id), Some(stuck));
    }
}
