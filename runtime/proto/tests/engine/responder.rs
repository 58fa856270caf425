//! A version 1 responder against a scripted requester.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use crate::support::{NO_CHUNKS, ScriptedPeer, plain, split, take_call, take_reply_sent};
use rpcrdma_proto::{
    engine::{
        CloseReason, ConnectionSetup, EngineConfig, EngineEvent, IncomingCall, MessagePayload, OutgoingReply,
        PrivateData, Role,
    },
    memory::{MessageBuf, Output},
    provider::{
        MemoryHandle,
        sim::{SimConfig, SimEnd, SimFault},
    },
};

const XID: u32 = 0xabcd_0001;

fn server() -> ScriptedPeer {
    ScriptedPeer::new(Role::Server, EngineConfig::default(), true)
}

/// Sends a call and returns it as the engine announces it, or `None` if the engine announces no call.
fn arrive(facing: &mut ScriptedPeer, words: &[u32]) -> Option<IncomingCall> {
    facing.raw.send(words, &[]);
    facing.run();
    take_call(&mut facing.engine)
}

/// Returns a reply with these words after XID and `msg_type`.
fn reply(words: &[u32]) -> OutgoingReply {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    [0, 1].iter().chain(words).for_each(|word| message.append(&word.to_be_bytes()));
    OutgoingReply { message, reduced: Default::default() }
}

/// Returns the next message to the requester.
fn answer(facing: &mut ScriptedPeer) -> Option<Vec<u32>> {
    facing.run();
    facing.raw.next()
}

/// The engine accepts at most the configured number of Write chunks, and a Reply chunk in addition (RFC 8166 §4.3.3).
#[test]
fn number_of_write_chunks_is_limited() {
    let call = |writes: u32| {
        let mut words = vec![XID, 1, 8, 0, 0];
        (0..writes).for_each(|n| words.extend([1, 1, 100 + n, 4096, 0, 0]));
        words.extend([0, 1, 1, 99, 4096, 0, 0]);
        words.extend([XID, 0, 2, 7, 1, 1, 0, 0, 0, 0]);
        words
    };
    let most = EngineConfig::default().max_chunks;
    let arrived = arrive(&mut server(), &call(most)).expect("call with the maximum number of chunks refused");
    assert_eq!(arrived.reply().write_chunks.len(), most as usize);
    assert!(arrived.reply().reply_chunk.is_some());
    assert!(arrive(&mut server(), &call(most + 1)).is_none());
}

/// RFC 8267 §6.4.2: an NFS client that does not know the limits of a server sends a Position-Zero Read chunk, another
/// Read chunk or both, one Write chunk, and up to 16 segments in each chunk. All of this is accepted.
#[test]
fn chunks_that_every_nfs_server_accepts() {
    const SEGMENTS: u32 = 16;
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let payload: Vec<u32> = [XID, 0].into_iter().chain(2..64).collect();
    for (is_long, has_item) in [(true, false), (false, true), (true, true)] {
        let mut facing = server();
        let mut words = vec![XID, 1, 8, u32::from(is_long)];
        let reads = [(is_long, 0, bytes(&payload)), (has_item, 128, vec![5; 64])];
        for (_, position, data) in reads.iter().filter(|(is_sent, ..)| *is_sent) {
            let (handle, base) = facing.raw.source(data);
            let len = data.len() as u32 / SEGMENTS;
            for n in 0..SEGMENTS {
                let [high, low] = split(base + u64::from(n * len));
                words.extend([1, *position, handle, len, high, low]);
            }
        }
        let chunk = [&[1, SEGMENTS][..], &[0x77, 4096, 0, 0].repeat(SEGMENTS as usize)].concat();
        words.extend([&[0], &chunk[..], &[0], &chunk].concat());
        if !is_long {
            words.extend(&payload);
        }
        let call = arrive(&mut facing, &words).expect("call refused");
        assert_eq!(call.payload.as_slice(), bytes(&payload));
        let items: Vec<_> = call.reads().iter().map(|read| (read.position, read.data.len())).collect();
        assert_eq!(items, if has_item { vec![(128, 64)] } else { vec![] });
        let room = Some(u64::from(SEGMENTS) * 4096);
        assert_eq!((call.reply().write_chunks.as_slice(), call.reply().reply_chunk), (&[room][..], room));
    }
}

/// RFC 8166 §4.5, §4.2.4, §4.6.2, RFC 8167 §6: messages that are silently discarded. Their Receive is posted again.
#[test]
fn discarded_messages() {
    let bad: &[&[u32]] = &[
        &[],
        &[XID, 1, 8, 0, 0, 0],               // 24 bytes
        &[XID, 1, 8, 4, 2],                  // RDMA_ERROR
        &[XID, 1, 8, 4, 1, 1, 1],            // RDMA_ERROR
        &[XID, 9, 8, 4, 1, 1, 1],            // RDMA_ERROR of another version
        &[XID, 1, 8, 4, 7, 7, 7],            // RDMA_ERROR that does not decode
        &[XID, 1, 8, 3, 0, 0, 0],            // RDMA_DONE
        &[XID, 1, 8, 0, 0, 0, 0, XID, 1, 0], // a reply in the reverse direction
    ];
    let mut facing = server();
    let receives = facing.network.receives(SimEnd::B);
    for _ in 0..10 {
        for words in bad {
            assert!(arrive(&mut facing, words).is_none());
            assert_eq!(facing.raw.next(), None, "reply to {words:?}");
        }
        // 27 bytes, which have the form of a call up to there.
        facing.raw.send(&[XID, 1, 8, 0, 0, 0], &[0; 3]);
        facing.run();
        assert_eq!(facing.raw.next(), None);
    }
    assert_eq!(facing.engine.conn.counters().messages_discarded, 10 * (bad.len() + 1) as u64);
    assert_eq!(facing.network.receives(SimEnd::B), receives);
    assert!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_some());
}

/// RFC 8166 §4.5.1: ERR_VERS has the XID and version of the call, the supported versions, and a grant.
#[test]
fn unsupported_version() {
    for vers in [0, 2, u32::MAX] {
        let mut facing = server();
        assert!(arrive(&mut facing, &[XID, vers, 8, 77, 1, 2, 3]).is_none());
        assert_eq!(answer(&mut facing).unwrap(), [XID, vers, 32, 4, 1, 1, 1]);
        assert_eq!(facing.engine.conn.counters().errors_sent, 1);
    }
}

/// RFC 8166 §4.5.2, §4.6.1, §8.1.4: malformed calls and excessive chunks get ERR_CHUNK, and nothing is fetched.
#[test]
fn malformed_calls_get_err_chunk() {
    let rpc = [XID, 0, 0, 0];
    let read = |position: u32, length: u32| [1, position, 0x77, length, 0, 0x1000];
    let msg = |reads: &[[u32; 6]]| [&[XID, 1, 8, 0][..], &reads.concat(), &NO_CHUNKS, &rpc].concat();
    let nomsg = |reads: &[[u32; 6]]| [&[XID, 1, 8, 1][..], &reads.concat(), &NO_CHUNKS].concat();
    let write = |segments: u32| {
        let array = [0x77, 4, 0, 0].repeat(segments as usize);
        [&[1, segments][..], &array].concat()
    };
    let writes = |lists: &[Vec<u32>]| [&[XID, 1, 8, 0, 0][..], &lists.concat(), &[0, 0], &rpc].concat();
    let mut cases = vec![
        ("an unknown procedure", vec![XID, 1, 8, 5, 0, 0, 0]),
        ("RDMA_MSGP", [&[XID, 1, 8, 2, 8, 8][..], &NO_CHUNKS, &rpc].concat()),
        ("a bad presence flag", vec![XID, 1, 8, 0, 2, 0, 0, XID, 0]),
        ("a Read list cut short", vec![XID, 1, 8, 0, 1, 4, 0x77]),
        ("more segments than remaining bytes", vec![XID, 1, 8, 0, 0, 1, 0x1000_0000, 0, 0]),
        ("RDMA_NOMSG without lists", vec![XID, 1, 8, 1, 0, 0, 0]),
        ("RDMA_NOMSG without Position Zero", nomsg(&[read(4, 64)])),
        ("RDMA_NOMSG with a Reply chunk only", vec![XID, 1, 8, 1, 0, 0, 1, 1, 0x77, 64, 0, 0]),
        ("an empty Position-Zero Read chunk", nomsg(&[read(0, 0)])),
        ("RDMA_MSG with Position Zero", msg(&[read(0, 64)])),
        ("no RPC message", vec![XID, 1, 8, 0, 0, 0, 0]),
        ("half of an RPC message", vec![XID, 1, 8, 0, 0, 0, 0, XID]),
        (
            "XIDs that differ",
            plain(XID, 8, 0, 0)
                .iter()
                .rev()
                .copied()
                .rev()
                .enumerate()
                .map(|(n, word)| if n == 7 { word + 1 } else { word })
                .collect(),
        ),
        ("a position that is not a multiple of four", msg(&[read(9, 64)])),
        ("an even position", msg(&[read(10, 64)])),
        ("an odd position", msg(&[read(11, 64)])),
        ("a position beyond the stream", msg(&[read(20, 64)])),
        ("a position near 2^32", msg(&[read(u32::MAX - 3, 64)])),
        ("a second position beyond the stream", msg(&[read(8, 64), read(8 + 64 + 12, 4)])),
        ("overlapping chunks", msg(&[read(8, 64), read(12, 64)])),
        ("chunks that overlap by padding", msg(&[read(8, 61), read(8 + 60, 64)])),
        ("a chunk of more than max_call_len", msg(&[read(8, (64 << 20) + 1)])),
        ("chunks of 16 GiB", msg(&[read(8, u32::MAX), read(8, u32::MAX), read(8, u32::MAX), read(8, u32::MAX)])),
        ("a segment whose end overflows", {
            let mut words = msg(&[read(8, 64)]);
            words[8..10].copy_from_slice(&split(u64::MAX - 62));
            words
        }),
        ("a Write segment whose end overflows", {
            let mut words = writes(&[write(1)]);
            words[9..11].copy_from_slice(&split(u64::MAX));
            words
        }),
        ("17 Write chunks", writes(&vec![write(1); 17])),
        ("17 Read chunks", {
            let reads: Vec<_> = (0..17).map(|n| read(8 + 4 * n, 4)).collect();
            msg(&reads)
        }),
    ];
    let mut config = EngineConfig::default();
    config.receive_size = 16384;
    cases.push(("257 segments", writes(&[write(257)])));
    cases.push(("257 read segments", msg(&[read(8, 4); 257])));
    for (what, words) in cases {
        let mut facing = ScriptedPeer::new(Role::Server, config.clone(), true);
        let receives = facing.network.receives(SimEnd::B);
        assert!(arrive(&mut facing, &words).is_none(), "{what}: call accepted");
        assert_eq!(answer(&mut facing).expect(what), [XID, 1, 32, 4, 2], "{what}");
        assert_eq!(facing.network.registered(SimEnd::B), 0, "{what}");
        assert_eq!(facing.network.receives(SimEnd::B), receives, "{what}");
        assert!(facing.engine.events.is_empty(), "{what}");
        // The connection stays open.
        assert!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_some(), "{what}");
    }
}

/// A call whose reply header would not fit the requester's Receives gets ERR_CHUNK.
#[test]
fn reply_header_too_long() {
    let mut config = EngineConfig::default();
    config.receive_size = 4096;
    let local = PrivateData::new(&config, true);
    let setup = ConnectionSetup { local, peer: PrivateData { receive_size: 1024, ..local }, xid_seed: 0 };
    let mut facing = ScriptedPeer::with(Role::Server, config, setup, SimConfig::default());
    let array = [0x77, 4, 0, 0].repeat(63);
    let words = [&[XID, 1, 8, 0, 0, 1, 63][..], &array, &[0, 0, XID, 0, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
}

/// RFC 8166 §3.4.5: segments with the same position are joined in list order, whatever the order of the positions.
/// Empty segments and odd lengths are allowed.
#[test]
fn read_list() {
    let mut facing = server();
    let (one, two) = (facing.raw.source(b"abcdefg"), facing.raw.source(b"0123456789"));
    let read = |position: u32, (handle, base): (u32, u64), at: u64, length: u32| {
        let [high, low] = split(base + at);
        [1, position, handle, length, high, low]
    };
    let reads =
        [read(24, two, 0, 3), read(12, one, 4, 3), read(24, two, 9, 0), read(24, two, 3, 7), read(12, one, 0, 4)];
    let words = [&[XID, 1, 8, 0][..], &reads.concat(), &NO_CHUNKS, &[XID, 0, 7, 10]].concat();
    let call = arrive(&mut facing, &words).expect("call refused");
    assert_eq!((call.xid, call.payload.as_slice().len()), (XID, 16));
    let chunks: Vec<_> = call.reads().iter().map(|read| (read.position, &read.data[..])).collect();
    assert_eq!(chunks, [(12, &b"efgabcd"[..]), (24, b"0123456789")]);
    assert_eq!(facing.network.registered(SimEnd::B), 0, "sinks still registered when the call is announced");
    assert_eq!(facing.engine.conn.counters().rdma_read_bytes, 17);
}

/// RFC 8166 §3.4.5.2: a Read chunk may include its padding. RFC 8166 §3.4.4: a chunk may be empty.
#[test]
fn read_chunk_with_padding() {
    let mut facing = server();
    let (handle, base) = facing.raw.source(b"abcde\0\0\0");
    let [high, low] = split(base);
    let list = [1, 12, handle, 8, high, low, 1, 20, handle, 0, high, low];
    let call = arrive(&mut facing, &[&[XID, 1, 8, 0][..], &list, &NO_CHUNKS, &[XID, 0, 5]].concat()).unwrap();
    assert_eq!((&call.reads()[0].data[..], call.reads()[1].data.len()), (&b"abcde\0\0\0"[..], 0));
}

/// RFC 8166 §3.5.3: a Long call in a Position-Zero Read chunk. The payload must be a call with the XID of the header.
#[test]
fn long_call() {
    for (xid, msg_type, arrives) in [(XID, 0, true), (XID + 1, 0, false), (XID, 1, false)] {
        let mut facing = server();
        let payload: Vec<u8> = [xid, msg_type, 9].iter().flat_map(|word: &u32| word.to_be_bytes()).collect();
        let (handle, base) = facing.raw.source(&payload);
        let [high, low] = split(base);
        let call = arrive(&mut facing, &[XID, 1, 8, 1, 1, 0, handle, 12, high, low, 0, 0, 0]);
        assert_eq!(call.is_some(), arrives);
        match call {
            Some(call) => assert!(matches!(call.payload, MessagePayload::Long(bytes) if bytes == payload)),
            // RFC 8166 §4.5.2; a reply in the reverse direction matches no call.
            None if msg_type == 0 => assert_eq!(facing.raw.next().unwrap(), [XID, 1, 32, 4, 2]),
            None => assert!(facing.raw.next().is_none()),
        }
        assert_eq!(facing.engine.conn.counters().messages_discarded, u64::from(msg_type == 1));
        // The XID is free again unless the call is in progress.
        assert_eq!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_some(), !arrives);
    }
}

/// A requester that invalidates a handle that it cannot know is disconnected.
#[test]
fn requester_must_not_invalidate() {
    let mut facing = server();
    let call = plain(XID, 8, 0, 0);
    // The guessed handle belongs to the engine, which uses it for an RDMA Read.
    let (handle, base) = facing.raw.source(&[0; 64]);
    let [high, low] = split(base);
    facing.raw.send(&[&[XID + 1, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID + 1, 0]].concat(), &[]);
    facing.raw.send_invalidating(&call, &[], Some(MemoryHandle(1)));
    facing.run();
    assert!(facing.raw.disconnected());
    assert!(matches!(facing.engine.events.last(), Some(EngineEvent::Closed(_))));
    assert_eq!(facing.network.registered(SimEnd::B), 0);
}

/// A call with the XID of a call in progress is discarded. After the reply, the XID is free.
#[test]
fn replayed_xids() {
    let mut facing = server();
    let first = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    for _ in 0..100 {
        assert!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_none());
    }
    facing.engine.conn.reply(first.token, reply(&[]));
    facing.run();
    assert_eq!(facing.raw.received.len(), 1);
    let again = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    assert_ne!(again.token, first.token);
}

/// RFC 8166 §3.3.1: a requester that exceeds its credits finds no Receive, and the connection is lost.
#[test]
fn credits_exceeded() {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (4, 0);
    let mut facing = ScriptedPeer::new(Role::Server, config, true);
    for n in 0..6 {
        assert!(arrive(&mut facing, &plain(XID + n, 8, 0, 0)).is_some());
    }
    assert_eq!(facing.network.receives(SimEnd::B), 0);
    assert!(arrive(&mut facing, &plain(XID + 6, 8, 0, 0)).is_none());
    assert!(facing.raw.disconnected());
    // The engine reports each announced call once.
    for _ in 0..6 {
        assert!(matches!(take_reply_sent(&mut facing.engine), Some((_, false))));
    }
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(CloseReason::Disconnected(_))]));
}

/// The memory of fetched calls without a reply is limited. Calls beyond the limit wait. A call that exceeds the limit
/// on its own is refused.
#[test]
fn memory_of_fetched_calls_is_limited() {
    let mut config = EngineConfig::default();
    config.max_fetched = 100;
    let mut facing = ScriptedPeer::new(Role::Server, config, false);
    let (handle, base) = facing.raw.source(&[1; 64]);
    let [high, low] = split(base);
    let long = |xid| [&[xid, 1, 8, 0, 1, 8, handle, 60, high, low][..], &NO_CHUNKS, &[xid, 0]].concat();
    for n in 0..3 {
        facing.raw.send(&long(XID + n), &[]);
    }
    facing.raw.send(&plain(XID + 3, 8, 0, 0), &[]);
    facing.run();
    // One call is fetched. The call without Read chunks overtakes those that wait.
    let mut arrived: Vec<_> = std::iter::from_fn(|| take_call(&mut facing.engine)).collect();
    let mut xids: Vec<_> = arrived.iter().map(|call| call.xid - XID).collect();
    xids.sort_unstable();
    assert_eq!(xids, [0, 3]);
    for _ in 0..4 {
        let call = arrived.pop().unwrap();
        facing.engine.conn.reply(call.token, reply(&[]));
        facing.run();
        arrived.extend(std::iter::from_fn(|| take_call(&mut facing.engine)));
    }
    assert_eq!((facing.raw.received.len(), facing.engine.conn.counters().rdma_read_bytes), (4, 180));
    // A single call above the limit is refused.
    let huge = [&[XID, 1, 8, 0, 1, 8, handle, 104, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
    facing.raw.received.clear();
    assert!(arrive(&mut facing, &huge).is_none());
    assert_eq!(facing.raw.next().unwrap(), [XID, 1, 32, 4, 2]);
}

/// RFC 8166 §4.5.3: a Read chunk outside of the requester's memory ends the connection, and leaves nothing registered.
#[test]
fn read_chunk_out_of_bounds() {
    let mut facing = server();
    let (handle, base) = facing.raw.source(&[1; 64]);
    let [high, low] = split(base + 1);
    let words = [&[XID, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert!(facing.raw.disconnected());
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(CloseReason::Disconnected(_))]));
    assert_eq!(facing.network.registered(SimEnd::B), 0);
}

/// An RDMA Read without progress closes the connection at the fetch timeout.
#[test]
fn stalled_rdma_read_closes_the_connection() {
    let config = EngineConfig::default();
    let (local, limit) = (PrivateData::new(&config, true), config.fetch_timeout);
    let mut sim = SimConfig::default();
    sim.stepped = true;
    let mut facing = ScriptedPeer::with(Role::Server, config, ConnectionSetup { local, peer: local, xid_seed: 0 }, sim);
    let (handle, base) = facing.raw.source(&[1; 64]);
    let [high, low] = split(base);
    let words = [&[XID, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
    facing.raw.send(&words, &[]);
    let posted = |facing: &ScriptedPeer| facing.engine.conn.counters().rdma_read_bytes > 0;
    for _ in 0..100 {
        if posted(&facing) {
            break;
        }
        facing.raw.turn();
        facing.network.step();
        facing.engine.turn(facing.now);
    }
    assert!(posted(&facing) && facing.network.registered(SimEnd::B) > 0);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    // The RDMA Read is in flight and makes no progress.
    for (now, closes) in [(facing.now + limit - Duration::from_millis(1), false), (facing.now + limit, true)] {
        facing.engine.conn.handle_timeout(now);
        facing.engine.conn.poll_work(&mut facing.engine.qp, now);
        assert_eq!(facing.engine.conn.close_reason().is_some(), closes);
    }
    facing.run();
    let events = &facing.engine.events;
    assert!(
        matches!(events.last(), Some(EngineEvent::Closed(CloseReason::ReadStalled(after))) if *after == limit),
        "{events:?}"
    );
    assert_eq!(facing.network.registered(SimEnd::B), 0);
}

/// RDMA Reads that complete one at a time, with little data, do not keep the connection open.
#[test]
fn slow_rdma_reads_close_the_connection() {
    const SEGMENTS: usize = 64;
    let config = EngineConfig::default();
    let (local, limit) = (PrivateData::new(&config, true), config.fetch_timeout);
    let mut sim = SimConfig::default();
    sim.stepped = true;
    let mut facing = ScriptedPeer::with(Role::Server, config, ConnectionSetup { local, peer: local, xid_seed: 0 }, sim);
    let (handle, base) = facing.raw.source(&[1; 4]);
    let [high, low] = split(base);
    let segment = [1, 8, handle, 4, high, low];
    let words = [&[XID, 1, 8, 0][..], &segment.repeat(SEGMENTS), &NO_CHUNKS, &[XID, 0]].concat();
    facing.raw.send(&words, &[]);
    let begin = facing.now;
    let mut deadlines = Vec::new();
    while facing.engine.conn.close_reason().is_none() {
        facing.raw.turn();
        facing.network.step();
        facing.engine.turn(facing.now);
        if facing.engine.conn.counters().rdma_read_bytes > 0 {
            facing.now += limit / 8;
            facing.engine.conn.handle_timeout(facing.now);
            deadlines.extend(facing.engine.conn.poll_timeout());
        }
        assert!(facing.now < begin + 2 * limit, "progress of a few bytes moves the deadline: {deadlines:?}");
    }
    deadlines.dedup();
    assert!(deadlines.len() > 2, "the RDMA Reads made progress: {deadlines:?}");
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::ReadStalled(limit)));
    facing.run();
    assert_eq!(facing.network.registered(SimEnd::B), 0);
}

/// The fetch timeout ends with the last RDMA Read, even if the provider allows only one in flight.
#[test]
fn fetch_timeout_ends_with_the_rdma_read() {
    for max_reads in 1..3 {
        let config = EngineConfig::default();
        let local = PrivateData::new(&config, true);
        let mut sim = SimConfig::default();
        sim.ends[1].max_reads = max_reads;
        let setup = ConnectionSetup { local, peer: local, xid_seed: 0 };
        let mut facing = ScriptedPeer::with(Role::Server, config, setup, sim);
        let (handle, base) = facing.raw.source(&[1; 64]);
        let [high, low] = split(base);
        let words = [&[XID, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
        assert!(arrive(&mut facing, &words).is_some());
        assert_eq!(facing.engine.conn.poll_timeout(), None, "{max_reads}");
    }
}

/// A failed invalidation of a sink closes the connection, and the call is not announced.
#[test]
fn failed_invalidation_closes_the_connection() {
    let config = EngineConfig::default();
    let local = PrivateData::new(&config, true);
    let mut sim = SimConfig::default();
    sim.faults.push(SimFault::RefuseInvalidation { end: SimEnd::B, nth: 0 });
    let mut facing = ScriptedPeer::with(Role::Server, config, ConnectionSetup { local, peer: local, xid_seed: 0 }, sim);
    let (handle, base) = facing.raw.source(&[1; 64]);
    let [high, low] = split(base);
    let words = [&[XID, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert!(facing.raw.disconnected());
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(CloseReason::Disconnected(_))]));
    assert_eq!(facing.network.registered(SimEnd::B), 0);
}

/// RFC 8166 §3.3.1: a server that is configured with zero credits grants one.
#[test]
fn grants_at_least_one() {
    let mut config = EngineConfig::default();
    config.credits = 0;
    let mut facing = ScriptedPeer::new(Role::Server, config, true);
    facing.raw.send(&[XID, 2, 8, 0, 0, 0, 0], &[]);
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.engine.conn.reply(call.token, reply(&[]));
    for _ in 0..2 {
        assert_eq!(answer(&mut facing).unwrap()[2], 1);
    }
}

/// A provider that allows no RDMA Reads makes the engine refuse calls with Read chunks.
#[test]
fn provider_without_rdma_reads() {
    let config = EngineConfig::default();
    let local = PrivateData::new(&config, true);
    let mut sim = SimConfig::default();
    sim.ends[1].max_reads = 0;
    let mut facing = ScriptedPeer::with(Role::Server, config, ConnectionSetup { local, peer: local, xid_seed: 0 }, sim);
    let words = [&[XID, 1, 8, 0, 1, 8, 7, 64, 0, 0][..], &NO_CHUNKS, &[XID, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
}
