//! Message formats and the reasons for choosing them (RPC-over-RDMA v2 §4.4, §6.4).

use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{
        CallFailure, CallLimit, CallPolicy, CloseReason, EngineConfig, FormatChoice, FormatReason, MessageFormat, Role,
    },
    provider::sim::{SimEnd, SimFault},
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::Facing,
};
use crate::support::Script;

/// Returns the formats of a call and of its reply, with the reasons.
fn formats(duo: &mut PeerPair, end: usize, script: Script) -> (FormatChoice, FormatChoice) {
    let reply = duo.one(end, script).expect("call failed");
    duo.assert_nothing_exposed();
    (reply.call, FormatChoice { format: reply.format, reason: reply.reason })
}

fn choice(format: MessageFormat, reason: FormatReason) -> FormatChoice {
    FormatChoice { format, reason }
}

const SIMPLE: FormatChoice = FormatChoice { format: MessageFormat::Short, reason: FormatReason::Fits };

/// §4.4.1: a simple call and its reply take one Send in each direction, and no memory is registered. A header without
/// chunks has 36 bytes.
#[test]
fn simple_format() {
    let mut duo = PeerPair::plain();
    let script = Script { inline: 4096 - 36 - 12, reply_inline: 4096 - 36 - 12, ..Script::default() };
    assert_eq!(formats(&mut duo, CLIENT, script), (SIMPLE, SIMPLE));
    let counters = duo.sides[CLIENT].peer.conn.counters();
    assert_eq!((counters.registrations, counters.calls_sent, counters.replies_received), (0, 1, 1));
}

/// §4.4.1.1: a call and its reply take one Send each. Their long items move in Read chunks and Write chunks of several
/// segments.
#[test]
fn simple_with_chunks() {
    let mut config = EngineConfig::default();
    config.max_segment_len = 5000;
    let mut duo = PeerPair::new(config, EngineConfig::default(), stepped());
    let script = Script {
        inline: 40,
        args: vec![10_001, 2, 4000],
        reduce: true,
        results: vec![(5003, 6000), (1, 2000), (0, 4096)],
        ..Script::default()
    };
    let chunked = choice(MessageFormat::Chunked, FormatReason::Reduced);
    assert_eq!(formats(&mut duo, CLIENT, script), (chunked, chunked));
    assert_eq!(duo.sides[SERVER].peer.conn.counters().rdma_read_bytes, 14_001);
    // Two bytes are cheaper to copy than to read.
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().copied_eligible_bytes, 2);
    assert_eq!(duo.sides[SERVER].peer.conn.counters().rdma_write_bytes, 5004);
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().written_by_peer_bytes, 5004);
}

/// §4.4.2, §6.3.2: a message of moderate length is continued, and no memory is registered.
#[test]
fn continued_messages() {
    let mut duo = PeerPair::plain();
    let script = Script { inline: 4096 - 36 - 11, reply_inline: 60_000, ..Script::default() };
    let moderate = choice(MessageFormat::Continued, FormatReason::WithinContinuation);
    assert_eq!(formats(&mut duo, CLIENT, script), (moderate, moderate));
    let counters = duo.sides[CLIENT].peer.conn.counters();
    assert_eq!((counters.registrations, counters.continued_sent, counters.continued_received), (0, 1, 1));
    let script = Script { number: 1, inline: 65_536 - 12, ..Script::default() };
    assert_eq!(formats(&mut duo, CLIENT, script).0, moderate);
}

/// §4.4.2.1: the last message of a sequence has the chunks, in a call and in its reply.
#[test]
fn continued_with_chunks() {
    let mut duo = PeerPair::plain();
    let script = Script {
        inline: 9000,
        args: vec![50_000],
        reduce: true,
        reply_inline: 9000,
        results: vec![(70_000, 70_000)],
        ..Script::default()
    };
    let (call, reply) = formats(&mut duo, CLIENT, script);
    assert_eq!((call.format, reply.format), (MessageFormat::Continued, MessageFormat::Continued));
    assert_eq!(duo.sides[SERVER].peer.conn.counters().rdma_read_bytes, 50_000);
    assert_eq!(duo.sides[SERVER].peer.conn.counters().rdma_write_bytes, 70_000);
}

/// §4.4.3: a message that is too long for continuation is transferred by RDMA.
#[test]
fn special_format() {
    let mut duo = PeerPair::plain();
    let script = Script { inline: 65_536 - 8, reply_inline: 70_000, ..Script::default() };
    let call = choice(MessageFormat::Long, FormatReason::TooLong);
    let reply = choice(MessageFormat::Long, FormatReason::ReplyChunk);
    assert_eq!(formats(&mut duo, CLIENT, script), (call, reply));
    assert_eq!(duo.sides[SERVER].peer.conn.counters().continued_received, 0);
}

/// §4.4.3, §6.4: a Reply chunk is not used for a reply that fits into one Send.
#[test]
fn unused_reply_chunk() {
    let mut duo = PeerPair::plain();
    let mut script = Script { reply_inline: 70_000, ..Script::default() };
    let call = script.outgoing(&duo.sides[CLIENT].peer.conn, duo.now);
    script.reply_inline = 8;
    duo.sides[CLIENT].scripts.insert(0, script);
    let id = duo.sides[CLIENT].peer.conn.start_call(call);
    duo.sides[CLIENT].calls.insert(id, 0);
    duo.run();
    let reply = duo.sides[CLIENT].outcomes.remove(&0).unwrap().unwrap();
    assert_eq!(reply.format, MessageFormat::Short);
    duo.assert_nothing_exposed();
}

/// §5.2.1, §5.2.2: the threshold of a direction is the smaller of the sender's and the receiver's size.
#[test]
fn thresholds_by_direction() {
    let (mut client, mut server) = (EngineConfig::default(), EngineConfig::default());
    (client.send_size, client.receive_size) = (2048, 8192);
    (server.send_size, server.receive_size) = (3072, 8192);
    let mut duo = PeerPair::new(client, server, stepped());
    let both = |duo: &mut PeerPair, number, inline, reply_inline| {
        let script = Script { number, inline, reply_inline, ..Script::default() };
        let (call, reply) = formats(duo, CLIENT, script);
        (call.format, reply.format)
    };
    assert_eq!(both(&mut duo, 1, 2048 - 48, 3072 - 48), (MessageFormat::Short, MessageFormat::Short));
    assert_eq!(both(&mut duo, 2, 2048 - 44, 3072 - 44), (MessageFormat::Continued, MessageFormat::Continued));
}

/// §5.2.4: a call has at most as many segments as the peer announced. A segment is at most as long as the local
/// configuration allows. A call that needs more segments has no chunks.
#[test]
fn segment_limits_of_the_peer() {
    let mut server = EngineConfig::default();
    server.max_segments = 2;
    let mut client = EngineConfig::default();
    client.max_segment_len = 1000;
    let mut duo = PeerPair::new(client, server, stepped());
    let script = |number, len| Script { number, inline: 8, args: vec![len], reduce: true, ..Script::default() };
    assert_eq!(formats(&mut duo, CLIENT, script(1, 2000)).0.format, MessageFormat::Chunked);
    assert_eq!(formats(&mut duo, CLIENT, script(2, 2001)).0.format, MessageFormat::Short);
    assert_eq!(formats(&mut duo, CLIENT, script(3, 9000)).0.format, MessageFormat::Continued);
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().copied_eligible_bytes, 11_001);
}

/// §5.2.3, §5.2.4: the limits that a peer announced apply to all segments of a call together.
#[test]
fn announced_segment_limits() {
    for (max_len, reads, writes) in [(2048, 4, 1), (2049, 0, 2)] {
        let mut facing = Facing::said(Role::Client, EngineConfig::default(), &[(3, &[2048]), (4, &[5])]);
        facing.call(&Script { args: vec![7001], reduce: true, results: vec![(0, max_len)], ..Script::default() });
        let parts: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
        let lists = &parts.last().expect("no call")[6..];
        for (n, len) in [2048, 2048, 2048, 857].into_iter().enumerate().take(reads) {
            assert_eq!([lists[6 * n], lists[6 * n + 3]], [1, len], "read segment {n}");
        }
        let lists = &lists[6 * reads..];
        assert_eq!([lists[0], lists[1], lists[2]], [0, 1, writes]);
        let lens: Vec<_> = lists[3..].chunks(4).take(writes as usize).map(|segment| segment[1]).collect();
        assert_eq!(lens, [2048, 1][..writes as usize]);
    }
}

/// A call whose results need more memory than allowed is refused before it is sent. The engine does not fall back to a
/// call without chunks.
#[test]
fn results_beyond_memory() {
    let mut config = EngineConfig::default();
    config.max_call_len = 100_000;
    let mut duo = PeerPair::new(config, EngineConfig::default(), stepped());
    let script = |number, results| Script { number, results, ..Script::default() };
    let protected = CallPolicy { protected: true, ..CallPolicy::default() };
    for script in [
        script(1, vec![(9000, 100_001)]),
        script(2, vec![(9000, u64::MAX)]),
        script(3, vec![(9000, 50_001), (9000, 50_000)]),
        Script { policy: protected, ..script(4, vec![(9000, 100_001)]) },
    ] {
        let number = script.number;
        let failure = duo.one(CLIENT, script).map(|reply| reply.format).expect_err("call not refused");
        assert!(matches!(failure, CallFailure::TooLarge(CallLimit::ReplyMemory { .. })), "{number}: {failure}");
        assert!(failure.to_string().contains("max_call_len"), "{number}: {failure}");
    }
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().calls_sent, 0);
    // A result of the maximum length gets a chunk.
    let chunked = choice(MessageFormat::Chunked, FormatReason::Reduced);
    assert_eq!(formats(&mut duo, CLIENT, script(5, vec![(9000, 100_000)])).1, chunked);
    // It also gets one if the rest of the reply is too long for a Reply chunk.
    let around = Script { reply_inline: 80_000, ..script(6, vec![(9000, 40_000)]) };
    assert_eq!(formats(&mut duo, CLIENT, around).1.format, MessageFormat::Continued);
    assert_eq!(duo.sides[SERVER].peer.conn.counters().rdma_write_bytes, 18_000);
}

/// A reply without eligible results may be short whatever its maximum length is, so the call is sent.
#[test]
fn unbounded_reply() {
    let mut duo = PeerPair::plain();
    let mut call = Script::default().outgoing(&duo.sides[CLIENT].peer.conn, duo.now);
    call.reply.max_inline = u64::MAX;
    duo.sides[CLIENT].scripts.insert(0, Script::default());
    let id = duo.sides[CLIENT].peer.conn.start_call(call);
    duo.sides[CLIENT].calls.insert(id, 0);
    duo.run();
    let reply = duo.sides[CLIENT].outcomes.remove(&0).unwrap().unwrap();
    assert_eq!((reply.call.format, reply.format), (MessageFormat::Short, MessageFormat::Short));
}

/// §11.2.2.3: nothing is reduced in a message that RPCSEC_GSS protects. Special Format is still possible.
#[test]
fn protected_calls_are_not_reduced() {
    let mut duo = PeerPair::plain();
    let policy = CallPolicy { protected: true, ..CallPolicy::default() };
    let script = |number, len| Script {
        number,
        args: vec![len],
        reduce: true,
        results: vec![(len, len as u64)],
        policy,
        ..Script::default()
    };
    let (call, reply) = formats(&mut duo, CLIENT, script(1, 20_000));
    assert_eq!((call.format, reply.format), (MessageFormat::Continued, MessageFormat::Continued));
    let (call, reply) = formats(&mut duo, CLIENT, script(2, 90_000));
    assert_eq!((call.format, reply.format), (MessageFormat::Long, MessageFormat::Long));
    assert_eq!(duo.network.registered(SimEnd::A), 0);
}

/// §7.4: if the memory of arguments cannot be invalidated, the connection is closed, and the call still finishes with
/// its reply.
#[test]
fn failed_invalidation_closes_the_connection() {
    let mut sim = stepped();
    sim.faults.push(SimFault::RefuseInvalidation { end: SimEnd::A, nth: 1 });
    sim.ends.iter_mut().for_each(|end| end.remote_invalidation = false);
    let mut duo = PeerPair::new(EngineConfig::default(), EngineConfig::default(), sim);
    let outcome = duo.one(CLIENT, Script { args: vec![5000, 5000], reduce: true, ..Script::default() });
    // The reply itself is valid. It is delivered once the peer can no longer access the memory.
    assert!(outcome.is_ok(), "{outcome:?}");
    for end in [CLIENT, SERVER] {
        assert!(matches!(duo.sides[end].peer.conn.close_reason(), Some(CloseReason::Disconnected(_))));
    }
    duo.assert_nothing_exposed();
}

/// §6.2.4: the last Send of a reply invalidates the handle that the call names. The requester invalidates all other
/// handles of the call.
#[test]
fn remote_invalidation() {
    let script = |number| Script {
        number,
        args: vec![5000],
        reduce: true,
        results: vec![(5000, 5000)],
        reply_inline: 9000,
        ..Script::default()
    };
    let mut duo = PeerPair::plain();
    formats(&mut duo, CLIENT, script(0));
    let counters = duo.sides[CLIENT].peer.conn.counters();
    assert_eq!((counters.remote_invalidations, counters.registrations), (1, 2));
    // Nothing is invalidated remotely if one of the providers does not support it.
    for end in [0, 1] {
        let mut sim = stepped();
        sim.ends[end].remote_invalidation = false;
        let mut duo = PeerPair::new(EngineConfig::default(), EngineConfig::default(), sim);
        formats(&mut duo, CLIENT, script(0));
        assert_eq!(duo.sides[CLIENT].peer.conn.counters().remote_invalidations, 0);
    }
}

/// §4.4.2: only messages that need several Sends are continued. The last Send may have the maximum length.
#[test]
fn only_long_messages_are_continued() {
    let mut duo = PeerPair::plain();
    let script = Script { args: vec![5000], reduce: true, results: vec![(5000, 5000)], ..Script::default() };
    duo.one(CLIENT, script).unwrap();
    for side in &duo.sides {
        let counters = side.peer.conn.counters();
        assert_eq!((counters.continued_sent, counters.continued_received), (0, 0));
    }
    // The first part is posted at once.
    for (len, parts) in [(4060, 1), (4064, 2), (2 * 4060, 2), (2 * 4060 + 4, 3)] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        let call = Script { inline: len - 12, ..Script::default() }.outgoing(&facing.engine.conn, facing.now);
        facing.engine.conn.start_call(call);
        facing.engine.turn(facing.now);
        while facing.raw.turn() {}
        assert_eq!(facing.raw.received.len(), parts, "{len} bytes");
    }
}
