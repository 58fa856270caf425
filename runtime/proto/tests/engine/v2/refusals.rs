//! Invalid messages, word by word, with the error of §7 for each of them. Also, the reaction to received errors and to
//! invalid replies, and calls that are sent again.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma_proto::engine::{
    CallFailure, CallPolicy, CloseReason, EngineConfig, EngineEvent, MessageFormat, Role, TransportError,
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CONNPROP, CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, connprop, plain},
};
use crate::support::{Pair, Script, UNWRITTEN, join, split, take_call};

pub(super) fn server() -> Facing {
    Facing::new(Role::Server, EngineConfig::default())
}

/// Sends `words`, and checks that the only response is an RDMA2_ERROR with this `body`, and that no call is announced.
#[track_caller]
pub(super) fn refused(facing: &mut Facing, words: &[u32], body: &[u32]) {
    facing.send(words);
    let answer = facing.next().expect("no response");
    assert_eq!([answer[0], answer[1], answer[3], answer[4]], [words[0], words[1], ERROR, RESPONSE]);
    assert_eq!(answer[5..], *body);
    assert!(take_call(&mut facing.engine).is_none());
    assert!(facing.next().is_none());
}

/// Checks that the engine still serves calls.
#[track_caller]
pub(super) fn serves(facing: &mut Facing) {
    facing.send(&plain(77, CREDIT, 0, 1));
    let call = take_call(&mut facing.engine).expect("call not served");
    assert_eq!(call.xid, 77);
}

pub(super) fn segment(position: Option<u32>, handle: u32, length: u32, offset: u64) -> Vec<u32> {
    let [high, low] = split(offset);
    position.into_iter().chain([handle, length, high, low]).collect()
}

/// Returns a message of this type with a Read list of one segment per position.
pub(super) fn reads(htype: u32, flags: u32, positions: &[u32]) -> Vec<u32> {
    let mut words = vec![3, 2, CREDIT, htype, flags, 0];
    for &position in positions {
        words.push(1);
        words.extend(segment(Some(position), 1, 4, 0));
    }
    words.extend([0, 0, 0]);
    words
}

/// §7: a message shorter than the header prefix is silently discarded.
#[test]
fn short_message() {
    let mut facing = server();
    facing.send(&[3, 2, CREDIT, MSG]);
    assert!(facing.next().is_none());
    assert_eq!(facing.engine.conn.counters().messages_discarded, 1);
    serves(&mut facing);
}

/// §7.1.1: RDMA2_ERR_VERS has the version of the received message, and the range of the supported versions.
#[test]
fn unsupported_version() {
    let mut facing = server();
    refused(&mut facing, &[3, 1, CREDIT, 0, 0, 0, 0], &[1, 2, 2]);
    refused(&mut facing, &[3, 3, CREDIT, 0, 0, 0, 0], &[1, 2, 2]);
    serves(&mut facing);
}

/// §6.1, §7.1.2: an unknown header type gets RDMA2_ERR_INVAL_HTYPE.
#[test]
fn unknown_header_type() {
    let mut facing = server();
    for htype in [2, 3, 6, u32::MAX] {
        refused(&mut facing, &[3, 2, CREDIT, htype, 0], &[4]);
    }
    serves(&mut facing);
}

/// §6.2.2: reserved flags are ignored.
#[test]
fn reserved_flags() {
    let mut facing = server();
    let mut words = plain(3, CREDIT, 0, 1);
    words[4] |= 0xffff_ff00;
    facing.send(&words);
    assert_eq!(take_call(&mut facing.engine).expect("call not served").xid, 3);
    serves(&mut facing);
}

/// §6.2.2.3: RDMA2_ERR_INVAL_HTYPE is the response to RDMA2_F_TPMORE in a message other than RDMA2_CONNPROP, and to an
/// RDMA2_CONNPROP after the exchange of properties. An RPC message during the exchange gets RDMA2_ERR_SYSTEM.
#[test]
fn properties_out_of_place() {
    let mut facing = server();
    let mut message = plain(3, CREDIT, 0, 1);
    message[4] = TPMORE;
    refused(&mut facing, &message, &[4]);
    refused(&mut facing, &connprop(3, 0, &[]), &[4]);
    serves(&mut facing);

    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.send(&connprop(3, TPMORE, &[]));
    facing.next().expect("no properties");
    // With RDMA2_ERR_INVAL_HTYPE, the client could never send RDMA2_MSG again (§7.1.2).
    refused(&mut facing, &plain(3, CREDIT, 0, 1), &[100]);
    facing.send(&connprop(3, 0, &[]));
    serves(&mut facing);
}

/// §6.2.2.2, §7.1.3: messages that get RDMA2_ERR_INVAL_CONT.
#[test]
fn invalid_sequences() {
    let mut facing = server();
    // RDMA2_F_MORE in RDMA2_NOMSG, and in a message with chunks.
    refused(&mut facing, &reads(NOMSG, MORE, &[0]), &[5]);
    let mut chunks = reads(MSG, MORE, &[12]);
    chunks[0] = 4;
    chunks.extend([4, 0, 1]);
    refused(&mut facing, &chunks, &[5]);
    // The rest of each sequence is discarded without a response.
    for xid in [3, 4] {
        facing.send(&plain(xid, CREDIT, 0, 1));
        assert!(facing.next().is_none());
        assert!(take_call(&mut facing.engine).is_none());
    }
    // A message with another XID within a sequence is refused and ends the sequence. The next call is served.
    let fragment = |xid, flags, words: &[u32]| [&[xid, 2, CREDIT, MSG, flags, 0, 0, 0, 0], words].concat();
    facing.send(&fragment(5, MORE, &[5, 0]));
    refused(&mut facing, &plain(6, CREDIT, 0, 1), &[5]);
    facing.send(&plain(7, CREDIT, 0, 1));
    assert_eq!(take_call(&mut facing.engine).expect("call not served").xid, 7);
    refused(&mut facing, &fragment(5, 0, &[42]), &[2]);
    // Another header type with the same XID ends the sequence, and the rest of it starts a new transaction.
    facing.send(&fragment(8, MORE, &[8, 0]));
    let mut nomsg = reads(NOMSG, 0, &[0]);
    nomsg[0] = 8;
    refused(&mut facing, &nomsg, &[5]);
    facing.send(&fragment(8, 0, &[8, 0, 1]));
    assert!(take_call(&mut facing.engine).is_some(), "new transaction with the same XID not served");
    serves(&mut facing);
}

/// §7.1.3: a sequence is limited to the maximum length of a call.
#[test]
fn endless_sequence() {
    let mut config = EngineConfig::default();
    config.max_call_len = 10_000;
    let mut facing = Facing::new(Role::Server, config);
    let mut fragment = vec![5, 2, CREDIT, MSG, MORE, 0, 0, 0, 0];
    fragment.resize(1009, 5);
    for _ in 0..2 {
        facing.send(&fragment);
        assert!(facing.next().is_none());
    }
    refused(&mut facing, &fragment, &[5]);
    facing.send(&fragment);
    fragment[4] = 0;
    facing.send(&fragment);
    assert!(facing.next().is_none());
    serves(&mut facing);
}

/// A peer that keeps breaking its sequences is disconnected.
#[test]
fn too_many_invalid_sequences() {
    let mut facing = server();
    for xid in 10..30 {
        let mut words = reads(MSG, MORE, &[12]);
        words[0] = xid;
        words.extend([xid, 0, 1]);
        facing.send(&words);
    }
    assert!(matches!(Pair::closed(&facing.engine.events), Some(CloseReason::PeerViolation(_))));
}

/// §7.2.1: messages that get RDMA2_ERR_BAD_XDR.
#[test]
fn bad_xdr() {
    let mut facing = server();
    // A chunk list that ends early, and one with a bad presence flag.
    refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 1, 4], &[2]);
    refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 7, 0, 0, 3, 0, 1], &[2]);
    // §6.3.1: no payload. §7.2: RDMA2_NOMSG without chunks that grants no credits.
    refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 0, 0, 0], &[2]);
    refused(&mut facing, &[3, 2, CREDIT, NOMSG, 0, 0, 0, 0, 0], &[2]);
    // §7.2: XIDs differ. §6.2.2.1: msg_type contradicts RDMA2_F_RESPONSE.
    refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 0, 0, 0, 4, 0, 1], &[2]);
    refused(&mut facing, &[3, 2, CREDIT, MSG, 0, 0, 0, 0, 0, 3, 1, 1], &[2]);
    // §4.3.5: positions that are not a multiple of four, beyond the stream, or zero. §4.4.3: RDMA2_NOMSG without
    // position zero.
    let inline = |positions: &[u32]| [reads(MSG, 0, positions), vec![3, 0, 1]].concat();
    for position in [5, 6, 7, 9, 10, 11, 16] {
        refused(&mut facing, &inline(&[position]), &[2]);
    }
    refused(&mut facing, &inline(&[0]), &[2]);
    refused(&mut facing, &reads(NOMSG, 0, &[4]), &[2]);
    // A segment whose end overflows.
    let mut overflow = reads(MSG, 0, &[12]);
    (overflow[9], overflow[10], overflow[11]) = (8, u32::MAX, u32::MAX);
    overflow.extend([3, 0, 1]);
    refused(&mut facing, &overflow, &[2]);
    serves(&mut facing);
}

/// §7.3.1 to §7.3.3: a call with too many Read chunks, Write chunks or segments gets an error with the supported
/// maximum.
#[test]
fn too_many_chunks() {
    let mut config = EngineConfig::default();
    (config.max_chunks, config.max_segments) = (2, 5);
    let mut facing = Facing::new(Role::Server, config);
    let call = [3, 0, 1];
    refused(&mut facing, &[reads(MSG, 0, &[4, 8, 12]), call.to_vec()].concat(), &[6, 2]);
    let writes = |count: usize, segments: usize| {
        let mut words = vec![3, 2, CREDIT, MSG, 0, 0, 0];
        for _ in 0..count {
            words.extend([1, segments as u32]);
            (0..segments).for_each(|_| words.extend(segment(None, 1, 4, 0)));
        }
        [words, vec![0, 0], call.to_vec()].concat()
    };
    refused(&mut facing, &writes(3, 1), &[7, 2]);
    refused(&mut facing, &writes(2, 3), &[8, 5]);
    refused(&mut facing, &[reads(MSG, 0, &[12; 6]), call.to_vec()].concat(), &[8, 5]);
    facing.send(&writes(2, 2));
    assert!(take_call(&mut facing.engine).is_some());
}

/// §11.1.4: a call with more data to fetch than the limit gets RDMA2_ERR_SYSTEM.
#[test]
fn too_much_to_fetch() {
    let mut facing = server();
    let mut words = reads(NOMSG, 0, &[0]);
    words[9] = u32::MAX;
    refused(&mut facing, &words, &[100]);
    serves(&mut facing);
}

/// §7.3.4: RDMA2_ERR_WRITE_RESOURCE names the chunk and the needed length. Nothing is written to memory of the
/// requester.
#[test]
fn write_chunk_too_small() {
    let mut facing = server();
    let (handle, offset) = facing.raw.sink(8);
    let words = [
        vec![3, 2, CREDIT, MSG, 0, 0, 0, 1, 1],
        segment(None, handle, 8, offset),
        vec![1, 1],
        segment(None, handle, 4, offset),
        vec![0, 0, 3, 0, 1],
    ];
    facing.send(&words.concat());
    let call = take_call(&mut facing.engine).unwrap();
    let script = Script { results: vec![(4, 8), (6, 6)], ..Script::default() };
    facing.engine.conn.reply(call.token, script.reply([true, true].into_iter()));
    facing.run();
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 9, 2, 6]);
    assert_eq!(facing.raw.take_back(handle), [UNWRITTEN; 8]);
}

/// §7.2.1, appendix A.1: the upper layer can refuse a call with RDMA2_ERR_BAD_XDR, for example because its chunks
/// replace items that are not eligible.
#[test]
fn refused_by_the_upper_layer() {
    let mut facing = server();
    facing.send(&plain(3, CREDIT, 0, 1));
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply_error(call.token, rpcrdma_proto::engine::TransportError::BadXdr);
    facing.run();
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 2]);
}

/// §7.1 to §7.4: each error fails the call, and is reported with its code and data.
#[test]
fn errors_fail_calls() {
    for (body, refusal) in [
        (vec![2], TransportError::BadXdr),
        (vec![3], TransportError::BadProperty),
        (vec![4], TransportError::HeaderType),
        (vec![5], TransportError::Continuation),
        (vec![6, 3], TransportError::ReadChunks { max: 3 }),
        (vec![7, 3], TransportError::WriteChunks { max: 3 }),
        (vec![8, 3], TransportError::Segments { max: 3 }),
        (vec![9, 1, 50], TransportError::WriteResource { chunk: 1, needed: 50 }),
        (vec![10, 5000], TransportError::ReplyResource { needed: 5000 }),
        (vec![100], TransportError::System),
    ] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&Script::default());
        let call = facing.next().unwrap();
        facing.send(&[&[call[0], 2, CREDIT, ERROR, RESPONSE], &body[..]].concat());
        match facing.finished().expect("call not finished").unwrap_err() {
            CallFailure::Refused(said) => assert_eq!(said, refusal),
            failure => panic!("{failure}"),
        }
        assert_eq!(facing.engine.conn.counters().errors_received, 1);
    }
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script::default());
    let call = facing.next().unwrap();
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 1, 3, 4]);
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(matches!(failure, CallFailure::VersionMismatch { low: 3, high: 4 }));
}

/// §7: an unknown or malformed error is silently discarded.
#[test]
fn unknown_errors() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    let call = facing.next().unwrap();
    for body in [&[11][..], &[200], &[1, 2], &[]] {
        facing.send(&[&[call[0], 2, CREDIT, ERROR, RESPONSE], body].concat());
        assert!(facing.finished().is_none());
        assert!(facing.next().is_none());
    }
    facing.send(&plain(call[0], CREDIT, 1, 4));
    facing.finished().unwrap().unwrap();
}

/// §7.3.1: a call that exceeds the peer's maximum number of Read chunks is sent again with fewer Read chunks, if
/// necessary in another format. It was not executed, so it need not be idempotent.
#[test]
fn sent_again_with_fewer_read_chunks() {
    let mut server = EngineConfig::default();
    server.max_chunks = 1;
    let mut duo = PeerPair::new(EngineConfig::default(), server, stepped());
    for number in 0..2 {
        let script = Script { number, inline: 20, args: vec![2001, 3000, 9], reduce: true, ..Script::default() };
        let reply = duo.one(CLIENT, script).unwrap();
        assert_eq!(reply.call.format, MessageFormat::Chunked);
        duo.assert_nothing_exposed();
    }
    let counters = duo.sides[CLIENT].peer.conn.counters();
    // The second call respects the learned limit.
    assert_eq!((counters.calls_sent, counters.calls_resent, counters.errors_received), (3, 1, 1));
    assert_eq!(duo.sides[SERVER].served.values().copied().collect::<Vec<_>>(), [1, 1]);
}

/// §7.3.2: a call that exceeds the peer's maximum number of Write chunks is sent again with fewer Write chunks. The
/// other results are returned inline.
#[test]
fn sent_again_with_fewer_write_chunks() {
    let mut server = EngineConfig::default();
    server.max_chunks = 1;
    let mut duo = PeerPair::new(EngineConfig::default(), server, stepped());
    let script = Script { results: vec![(5000, 5000), (6000, 6000), (80_000, 80_000)], ..Script::default() };
    let reply = duo.one(CLIENT, script).unwrap();
    assert_eq!(reply.writes.iter().map(|chunk| chunk.provided).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().calls_resent, 1);
    duo.assert_nothing_exposed();
}

/// §7.3.3: a call that exceeds the peer's maximum number of segments is sent again with fewer segments.
#[test]
fn sent_again_with_fewer_segments() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let script =
        Script { number: 6, args: vec![1500, 1100], reduce: true, results: vec![(0, 4000)], ..Script::default() };
    facing.call(&script);
    let call = facing.next().unwrap();
    assert_eq!(call[6], 1);
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 8, 2]);
    let again = facing.next().expect("call not sent again");
    assert_ne!(again[0], call[0]);
    // No Read list, and one Write chunk of one segment.
    assert_eq!(again[5..9], [again[13 - 4], 0, 1, 1]);
    facing.send(&plain(again[0], CREDIT, 1, 6));
    let reply = facing.finished().unwrap().unwrap();
    assert_eq!(reply.call.format, MessageFormat::Short);
}

/// A call that is sent again keeps its deadline, even while its memory is not yet invalidated.
#[test]
fn deadline_of_a_call_that_is_sent_again() {
    let deadline = Some(Duration::from_secs(3));
    let script = Script {
        number: 6,
        args: vec![1500, 1100],
        reduce: true,
        results: vec![(0, 4000)],
        deadline,
        ..Script::default()
    };
    for returned in [true, false] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&script);
        let call = facing.next().unwrap();
        facing.raw.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 8, 2], &[]);
        while facing.raw.turn() {}
        // The error has arrived, and the invalidations are posted.
        facing.engine.turn(facing.now);
        assert_eq!(facing.engine.conn.counters().errors_received, 1);
        if returned {
            facing.run();
            facing.next().expect("call not sent again");
        }
        facing.now += Duration::from_secs(3);
        facing.engine.conn.handle_timeout(facing.now);
        let Some(EngineEvent::CallFinished { result: Err(CallFailure::DeadlineExceeded { sent }), .. }) =
            facing.engine.conn.poll_event()
        else {
            panic!("no DeadlineExceeded event, memory returned: {returned}")
        };
        // RPC-over-RDMA v2 §7.3.3: the refused call was not executed.
        assert_eq!(sent, returned);
        facing.run();
        assert!(facing.finished().is_none());
        assert_eq!(facing.engine.conn.counters().calls_resent, u64::from(returned));
    }
}

fn declared_too_small(idempotent: bool) -> Script {
    let policy = CallPolicy { idempotent, ..CallPolicy::default() };
    Script { results: vec![(9000, 5000)], policy, ..Script::default() }
}

/// §6.4, §7.3.4: only an idempotent call is sent again with a larger Write chunk.
#[test]
fn sent_again_with_larger_write_chunk() {
    let mut duo = PeerPair::plain();
    let reply = duo.one(CLIENT, declared_too_small(true)).unwrap();
    assert_eq!(reply.writes[0].data.len(), 9000);
    assert_eq!(duo.sides[SERVER].served[&0], 2);
    duo.assert_nothing_exposed();
    let mut duo = PeerPair::plain();
    let failure = duo.one(CLIENT, declared_too_small(false)).unwrap_err();
    assert!(
        matches!(failure, CallFailure::Refused(TransportError::WriteResource { chunk: 1, needed: 9000 })),
        "{failure}"
    );
    duo.assert_nothing_exposed();
}

/// §6.4, §7.3.5: only an idempotent call is sent again with a Reply chunk.
#[test]
fn sent_again_with_reply_chunk() {
    for idempotent in [true, false] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        let policy = CallPolicy { idempotent, ..CallPolicy::default() };
        facing.call(&Script { number: 6, reply_inline: 5000, policy, ..Script::default() });
        let call = facing.next().unwrap();
        assert_eq!(call[5..9], [0; 4], "a Reply chunk although the reply can be continued");
        facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 10, 6000]);
        if !idempotent {
            let failure = facing.finished().unwrap().unwrap_err();
            assert!(matches!(failure, CallFailure::Refused(TransportError::ReplyResource { needed: 6000 })));
            continue;
        }
        let again = facing.next().expect("call not sent again");
        assert_eq!(again[6..10], [0, 0, 1, 1]);
        assert_eq!(again[11], 6000);
        let mut reply = plain(again[0], CREDIT, 1, 6);
        reply.splice(8..9, [1, 1, again[10], 6000, again[12], again[13]]);
        reply[3] = NOMSG;
        reply.truncate(14);
        facing.raw.write(again[10], join(again[12], again[13]), &[again[0].to_be_bytes(), [0, 0, 0, 1]].concat());
        facing.send(&reply);
        assert_eq!(facing.finished().unwrap().unwrap().format, MessageFormat::Long);
    }
}

/// §7.3.1: a call is sent at most four times, even if each RDMA2_ERR_READ_CHUNKS lowers the limit further.
#[test]
fn requester_gives_up_after_three_repetitions() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let args = vec![1100; 6];
    facing.call(&Script { args, reduce: true, ..Script::default() });
    let mut times = 0;
    while let Some(call) = facing.next() {
        times += 1;
        facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 6, 6 - times]);
    }
    assert_eq!(times, 4);
    assert!(matches!(facing.finished().unwrap().unwrap_err(), CallFailure::Refused(TransportError::ReadChunks { .. })));
    assert_eq!(facing.network.registered(rpcrdma_proto::provider::sim::SimEnd::A), 0);
}

/// §6.2.2.1, §7.2: an invalid reply fails its call, because no other reply will come. Replies without a call are
/// discarded.
#[test]
fn invalid_replies() {
    let reply = |xid, words: &[u32]| [&[xid, 2, CREDIT, MSG, RESPONSE, 0], words].concat();
    for bad in [
        &[0, 0, 0, 1, 1, 4][..],
        &[0, 0, 0],
        &[9, 9],
        &[1, 0, 1, 4, 0, 0, 0, 0, 0, 0, 1, 4],
        &[0, 0, 1, 1, 1, 4, 0, 0, 0x1001, 1, 4],
    ] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&Script { number: 4, ..Script::default() });
        let call = facing.next().unwrap();
        facing.send(&reply(call[0], bad));
        assert!(matches!(facing.finished(), Some(Err(CallFailure::BadReply(_)))), "{bad:?}");
        assert!(facing.next().is_none(), "the requester responded with an error");
        facing.send(&reply(call[0] + 1, &[0, 0, 0, call[0] + 1, 1, 4]));
        assert!(facing.next().is_none());
    }
}

/// §6.2.4: only the last message of a reply may invalidate a handle, and only the handle that its call offered. Any
/// other invalidation closes the connection.
#[test]
fn invalidation_of_a_wrong_handle() {
    let reply = |xid: u32, flags: u32| [&[xid, 2, CREDIT, MSG, flags, 0, 0, 0, 0], &[xid, 1, 4][..]].concat();
    for (flags, offered, wrong_xid) in
        [(RESPONSE, false, 0), (RESPONSE | MORE, true, 0), (0, true, 0), (RESPONSE, true, 1), (RESPONSE, true, 0)]
    {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        let script =
            Script { number: 4, args: vec![3000], reduce: true, results: vec![(0, 4000)], ..Script::default() };
        facing.call(&script);
        let call = facing.next().unwrap();
        assert_eq!(call[5], call[8], "the first handle is not offered");
        let handle = rpcrdma_proto::provider::MemoryHandle(if offered { call[8] } else { call[15] });
        facing.raw.send_invalidating(&reply(call[0] + wrong_xid, flags), &[], Some(handle));
        facing.run();
        let right = (flags, offered, wrong_xid) == (RESPONSE, true, 0);
        let violation = matches!(Pair::closed(&facing.engine.events), Some(CloseReason::PeerViolation(_)));
        assert_eq!(violation, !right);
        assert_eq!(facing.network.registered(rpcrdma_proto::provider::sim::SimEnd::A), 0);
    }
}

/// §7.2.2: a malformed message gets RDMA2_ERR_BAD_PROPVAL, none of its properties is applied, and a valid message may
/// follow.
#[test]
fn bad_properties() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.send(&connprop(3, TPMORE, &[]));
    facing.next().unwrap();
    for bad in [
        // Too short, too long, longer than the message, trailing bytes, and not what the property's type requires.
        vec![1, 2, 2, 8000, 0],
        vec![1, 2, 8, 8000, 0],
        vec![1, 2, 400, 8000],
        vec![2, 2, 4, 8000],
        vec![0, 0],
        vec![1, 6, 4, 5],
        vec![2, 2, 4, 8000, 3, 1, 0],
    ] {
        refused(&mut facing, &[&[3, 2, CREDIT, CONNPROP, 0], &bad[..]].concat(), &[3]);
        assert_eq!(facing.engine.conn.peer_limits().properties, None);
    }
    facing.send(&connprop(3, 0, &[]));
    assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().receive_size, 4096);
    serves(&mut facing);
}

/// §7.1.2: a refused header type is not sent again. After RDMA2_MSG was refused, calls that need it fail. After
/// RDMA2_NOMSG was refused, long calls are continued.
#[test]
fn refused_header_types() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script::default());
    let call = facing.next().unwrap();
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 4]);
    for _ in 0..2 {
        assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::Refused(TransportError::HeaderType));
        facing.call(&Script { number: 1, ..Script::default() });
        assert!(facing.next().is_none(), "RDMA2_MSG sent again");
    }

    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let long = Script { inline: 100_000, ..Script::default() };
    facing.call(&long);
    let call = facing.next().unwrap();
    assert_eq!(call[3], NOMSG);
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, 4]);
    let again = facing.next().expect("call not sent again");
    assert_eq!((again[3], again[4] & MORE), (MSG, MORE));
}
