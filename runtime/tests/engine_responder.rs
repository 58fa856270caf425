//! A responder that faces requesters of every kind.

mod engine_support;

use engine_support::{Facing, NO_CHUNKS, join, plain, split, take_call, take_reply_sent};
use rpcrdma::{
    engine::{
        CloseReason, EngineConfig, Event, IncomingCall, OutgoingReply, Payload, Role,
        v1::{PrivateData, Setup},
    },
    memory::{MessageBuf, Output},
    provider::{
        Completion, Handle, QueuePair,
        sim::{End, SimConfig},
    },
    xdr::Reduced,
};

const XID: u32 = 0xabcd_0001;

fn server() -> Facing {
    Facing::new(Role::Server, EngineConfig::default(), true)
}

/// Sends a call and returns it as it arrives.
fn arrive(facing: &mut Facing, words: &[u32]) -> Option<IncomingCall> {
    facing.raw.send(words, &[]);
    facing.run();
    take_call(&mut facing.engine)
}

/// A reply of these words after XID and `msg_type`.
fn reply(words: &[u32]) -> OutgoingReply {
    let mut message = MessageBuf::new(Vec::new().into(), 0);
    [0, 1].iter().chain(words).for_each(|word| message.append(&word.to_be_bytes()));
    OutgoingReply { message, reduced: Default::default() }
}

fn reduced(chunk: usize, data: &[u8]) -> Reduced {
    Reduced { position: 8, chunk, data: data.to_vec().into() }
}

/// The next message to the requester.
fn answer(facing: &mut Facing) -> Option<Vec<u32>> {
    facing.run();
    facing.raw.next()
}

/// RFC 8166 §4.5, §4.2.4, §4.6.2, RFC 8167 §6: silently discarded, and the Receive is posted again.
#[test]
fn discards() {
    let bad: &[&[u32]] = &[
        &[],
        &[XID, 1, 8, 0, 0, 0],               // 24 octets
        &[XID, 1, 8, 4, 2],                  // RDMA_ERROR
        &[XID, 1, 8, 4, 1, 1, 1],            // RDMA_ERROR
        &[XID, 9, 8, 4, 1, 1, 1],            // RDMA_ERROR of another version
        &[XID, 1, 8, 4, 7, 7, 7],            // RDMA_ERROR that does not decode
        &[XID, 1, 8, 3, 0, 0, 0],            // RDMA_DONE
        &[XID, 1, 8, 0, 0, 0, 0, XID, 1, 0], // a reply in the reverse direction
    ];
    let mut facing = server();
    let receives = facing.network.receives(End::B);
    for _ in 0..10 {
        for words in bad {
            assert!(arrive(&mut facing, words).is_none());
            assert_eq!(facing.raw.next(), None, "{words:?} was answered");
        }
    }
    assert_eq!(facing.engine.conn.counters().discarded, 10 * bad.len() as u64);
    assert_eq!(facing.network.receives(End::B), receives);
    assert!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_some());
}

/// RFC 8166 §4.5.1: the XID and version of the call, the versions supported, and a grant.
#[test]
fn another_version() {
    for vers in [0, 2, u32::MAX] {
        let mut facing = server();
        assert!(arrive(&mut facing, &[XID, vers, 8, 77, 1, 2, 3]).is_none());
        assert_eq!(answer(&mut facing).unwrap(), [XID, vers, 32, 4, 1, 1, 1]);
        assert_eq!(facing.engine.conn.counters().errors_sent, 1);
    }
}

/// RFC 8166 §4.5.2, §4.6.1, §8.1.4: what cannot be parsed or used is answered with ERR_CHUNK, and nothing is pulled.
#[test]
fn refused() {
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
        ("more segments than octets", vec![XID, 1, 8, 0, 0, 1, 0x1000_0000, 0, 0]),
        ("RDMA_NOMSG without lists", vec![XID, 1, 8, 1, 0, 0, 0]),
        ("RDMA_NOMSG without Position Zero", nomsg(&[read(4, 64)])),
        ("RDMA_NOMSG with a Reply chunk only", vec![XID, 1, 8, 1, 0, 0, 1, 1, 0x77, 64, 0, 0]),
        ("an empty Position-Zero Read chunk", nomsg(&[read(0, 0)])),
        ("RDMA_MSG with Position Zero", msg(&[read(0, 64)])),
        ("no RPC message", vec![XID, 1, 8, 0, 0, 0, 0]),
        ("half of one", vec![XID, 1, 8, 0, 0, 0, 0, XID]),
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
        ("a position that is not a multiple of four", msg(&[read(10, 64)])),
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
        let mut facing = Facing::new(Role::Server, config.clone(), true);
        let receives = facing.network.receives(End::B);
        assert!(arrive(&mut facing, &words).is_none(), "{what} arrived");
        assert_eq!(answer(&mut facing).expect(what), [XID, 1, 32, 4, 2], "{what}");
        assert_eq!(facing.network.registered(End::B), 0, "{what}");
        assert_eq!(facing.network.receives(End::B), receives, "{what}");
        assert!(facing.engine.events.is_empty(), "{what}");
        // The connection goes on.
        assert!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_some(), "{what}");
    }
}

/// A call whose reply's header would not fit the requester's Receives gets no other answer than ERR_CHUNK.
#[test]
fn reply_header_too_long() {
    let mut config = EngineConfig::default();
    config.receive_size = 4096;
    let local = PrivateData::new(&config, true);
    let setup = Setup { local, peer: PrivateData { receive_size: 1024, ..local }, xid_seed: 0 };
    let mut facing = Facing::with(Role::Server, config, setup, SimConfig::default());
    let array = [0x77, 4, 0, 0].repeat(63);
    let words = [&[XID, 1, 8, 0, 0, 1, 63][..], &array, &[0, 0, XID, 0, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
}

/// RFC 8166 §3.4.5: segments are put together by position in list order, whatever the order of the positions; empty
/// segments and odd lengths are in order.
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
    let call = arrive(&mut facing, &words).expect("arrived");
    assert_eq!((call.xid, call.payload.as_slice().len()), (XID, 16));
    let chunks: Vec<_> = call.reads.iter().map(|read| (read.position, &read.data[..])).collect();
    assert_eq!(chunks, [(12, &b"efgabcd"[..]), (24, b"0123456789")]);
    assert_eq!(facing.network.registered(End::B), 0, "sinks are taken back before the call is handed over");
    assert_eq!(facing.engine.conn.counters().rdma_read, 17);
}

/// RFC 8166 §3.4.5.2: a Read chunk may include its padding, or a segment of padding. §3.4.4: it may be empty.
#[test]
fn read_chunk_with_padding() {
    let mut facing = server();
    let (handle, base) = facing.raw.source(b"abcde\0\0\0");
    let [high, low] = split(base);
    let list = [1, 12, handle, 8, high, low, 1, 20, handle, 0, high, low];
    let call = arrive(&mut facing, &[&[XID, 1, 8, 0][..], &list, &NO_CHUNKS, &[XID, 0, 5]].concat()).unwrap();
    assert_eq!((&call.reads[0].data[..], call.reads[1].data.len()), (&b"abcde\0\0\0"[..], 0));
}

/// RFC 8166 §3.5.3: a Long call in a Position-Zero Read chunk, whose XID must be that of the header.
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
            Some(call) => assert!(matches!(call.payload, Payload::Long(bytes) if bytes == payload)),
            // RFC 8166 §4.5.2; a reply in the reverse direction is for nobody.
            None if msg_type == 0 => assert_eq!(facing.raw.next().unwrap(), [XID, 1, 32, 4, 2]),
            None => assert!(facing.raw.next().is_none()),
        }
        assert_eq!(facing.engine.conn.counters().discarded, u64::from(msg_type == 1));
        // Whatever came of it, its XID is free again unless it is being served.
        assert_eq!(arrive(&mut facing, &plain(XID, 8, 0, 0)).is_some(), !arrives);
    }
}

/// A Write list of a chunk of two segments, an empty one, and one of a segment; and a Reply chunk.
struct Sinks {
    facing: Facing,
    handles: [u32; 3],
    lists: Vec<u32>,
}

fn with_sinks() -> Sinks {
    let mut facing = server();
    let sinks = [facing.raw.sink(30), facing.raw.sink(10), facing.raw.sink(5000)];
    let [first, third, last] = sinks.map(|(handle, base)| (handle, split(base), split(base + 20)));
    let lists = [
        &[1, 2, first.0, 20][..],
        &first.1,
        &[first.0, 10],
        &first.2,
        &[1, 0],
        &[1, 1, third.0, 10],
        &third.1,
        &[0],
        &[1, 1, last.0, 5000],
        &last.1,
    ]
    .concat();
    Sinks { facing, handles: sinks.map(|sink| sink.0), lists }
}

impl Sinks {
    fn call(&mut self, xid: u32) -> IncomingCall {
        let words = [&[xid, 1, 8, 0, 0][..], &self.lists, &[xid, 0, 0]].concat();
        arrive(&mut self.facing, &words).expect("arrived")
    }

    /// The lists with these lengths.
    fn with_lengths(&self, lengths: [u32; 4]) -> Vec<u32> {
        let mut lists = self.lists.clone();
        for ((at, provided), length) in [(3, 20), (7, 10), (15, 10), (22, 5000)].into_iter().zip(lengths) {
            assert_eq!(lists[at], provided);
            lists[at] = length;
        }
        lists
    }
}

/// RFC 8166 §3.4.6, §4.3.2.2, §4.3.2.3, §4.3.3: chunks come back with the lengths in use: filled in order, unused,
/// empty; the Reply chunk unused, or with a Long reply.
#[test]
fn returned_chunks() {
    let mut sinks = with_sinks();
    // Nothing used.
    let call = sinks.call(XID);
    assert_eq!(&call.reply.write_chunks[..], &[Some(30), None, Some(10)]);
    assert_eq!((call.reply.reply_chunk, call.reply.max_inline), (Some(5000), 4096 - 4 * (5 + 25)));
    sinks.facing.engine.conn.reply(call.token, reply(&[7]));
    let words = answer(&mut sinks.facing).unwrap();
    let expected = [&[XID, 1, 32, 0, 0][..], &sinks.with_lengths([0, 0, 0, 0]), &[XID, 1, 7]].concat();
    assert_eq!(words, expected);
    assert!(matches!(take_reply_sent(&mut sinks.facing.engine), Some((token, true)) if token == call.token));

    // The first and the third, the first in part of its second segment.
    let call = sinks.call(XID + 1);
    let mut both = reply(&[7]);
    both.reduced = [reduced(0, &[1; 23]), reduced(2, &[2; 10])].into_iter().collect();
    sinks.facing.engine.conn.reply(call.token, both);
    let words = answer(&mut sinks.facing).unwrap();
    let expected = [&[XID + 1, 1, 32, 0, 0][..], &sinks.with_lengths([20, 3, 10, 0]), &[XID + 1, 1, 7]].concat();
    assert_eq!(words, expected);

    // Long: just one octet more than fits.
    let call = sinks.call(XID + 2);
    let mut long = reply(&[]);
    long.message.append(&vec![9; call.reply.max_inline as usize - 8 + 4]);
    let len = long.message.len() as u32;
    long.reduced = [reduced(0, &[3; 1])].into_iter().collect();
    sinks.facing.engine.conn.reply(call.token, long);
    let words = answer(&mut sinks.facing).unwrap();
    assert_eq!(words, [&[XID + 2, 1, 32, 1, 0][..], &sinks.with_lengths([1, 0, 0, len])].concat());

    let [first, third, last] = sinks.handles.map(|handle| sinks.facing.raw.take_back(handle));
    assert_eq!((first[0], &first[1..23], &first[23..]), (3, &[1; 22][..], &[0; 7][..]));
    assert_eq!(third, [2; 10]);
    assert_eq!(last[..8], [&(XID + 2).to_be_bytes()[..], &1u32.to_be_bytes()].concat());
    assert_eq!(last[8..len as usize], vec![9; len as usize - 8]);
    let counters = sinks.facing.engine.conn.counters();
    assert_eq!((counters.rdma_written, counters.replies_sent), (23 + 10 + 1 + u64::from(len), 3));
}

/// A reply that just fits inline goes inline (RFC 8166 §4.3.3).
#[test]
fn longest_inline_reply() {
    let mut sinks = with_sinks();
    let call = sinks.call(XID);
    let mut fits = reply(&[]);
    fits.message.append(&vec![9; call.reply.max_inline as usize - 8]);
    sinks.facing.engine.conn.reply(call.token, fits);
    sinks.facing.run();
    let (octets, _) = sinks.facing.raw.received.pop_front().unwrap();
    assert_eq!((octets.len(), octets[15]), (4096, 0));
}

/// RFC 8166 §4.5.3, §6.1: a reply that the chunks cannot take, and one that the upper layer refuses, end in ERR_CHUNK,
/// before anything is written; no handle is invalidated.
#[test]
fn replies_that_do_not_fit() {
    type Edit = fn(&mut OutgoingReply);
    let cases: [(&str, Edit); 8] = [
        ("a result longer than its chunk", |r| r.reduced.push(reduced(0, &[0; 31]))),
        ("a result for an empty chunk", |r| r.reduced.push(reduced(1, &[0; 1]))),
        ("a result for no chunk", |r| r.reduced.push(reduced(3, &[0; 1]))),
        ("two results for one chunk", |r| r.reduced.extend([reduced(0, &[0; 1]), reduced(0, &[0; 1])])),
        ("the second of two too long", |r| r.reduced.extend([reduced(0, &[0; 1]), reduced(2, &[0; 11])])),
        ("a payload stream longer than the Reply chunk", |r| r.message.append(&[0; 5000])),
        ("both", |r| {
            r.message.append(&[0; 5000]);
            r.reduced.push(reduced(0, &[0; 1]));
        }),
        ("no RPC message", |r| r.message.advance(8)),
    ];
    for (what, edit) in cases {
        let mut sinks = with_sinks();
        let call = sinks.call(XID);
        let mut reply = reply(&[]);
        edit(&mut reply);
        sinks.facing.engine.conn.reply(call.token, reply);
        sinks.facing.run();
        let (octets, invalidated) = sinks.facing.raw.received.pop_front().expect(what);
        assert_eq!((&octets[..4], &octets[12..]), (&XID.to_be_bytes()[..], &[0, 0, 0, 4, 0, 0, 0, 2][..]), "{what}");
        assert_eq!(invalidated, None);
        assert!(matches!(take_reply_sent(&mut sinks.facing.engine), Some((_, false))), "{what}");
        assert_eq!(sinks.facing.engine.conn.counters().rdma_written, 0, "{what}");
    }
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.engine.conn.reply_error(call.token);
    // Once is enough.
    facing.engine.conn.reply(call.token, reply(&[]));
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
    assert!(matches!(take_reply_sent(&mut facing.engine), Some((_, true))));
    assert!(facing.raw.next().is_none() && facing.engine.events.is_empty());
}

/// Without a Reply chunk a reply that is too long for inline cannot be sent.
#[test]
fn no_reply_chunk() {
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    assert_eq!((call.reply.reply_chunk, call.reply.max_inline), (None, 4096 - 28));
    let mut long = reply(&[]);
    long.message.append(&[0; 4096 - 28 - 8 + 1]);
    facing.engine.conn.reply(call.token, long);
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
}

/// RFC 8797 §4.1: Send with Invalidate only where both ends set R, and for a handle of that call. Where a call names
/// several handles, none: Linux's client offers one of memory that stays registered.
#[test]
fn remote_invalidation() {
    for (local, peer) in [(true, true), (true, false), (false, true)] {
        let config = EngineConfig::default();
        let says = |remote_invalidation| PrivateData { remote_invalidation, ..PrivateData::new(&config, false) };
        let setup = Setup { local: says(local), peer: says(peer), xid_seed: 0 };
        let mut facing = Facing::with(Role::Server, config, setup, SimConfig::default());
        let (handle, base) = facing.raw.sink(64);
        let [high, low] = split(base);
        let two = [handle, 32, high, low, handle, 32, high, low];
        let call = arrive(&mut facing, &[&[XID, 1, 8, 0, 0, 1, 2][..], &two, &[0, 0, XID, 0, 0]].concat()).unwrap();
        facing.engine.conn.reply(call.token, reply(&[]));
        facing.run();
        let expected = (local && peer).then_some(Handle(handle));
        assert_eq!(facing.raw.received.pop_front().unwrap().1, expected);
    }
    let mut sinks = with_sinks();
    let call = sinks.call(XID);
    sinks.facing.engine.conn.reply(call.token, reply(&[]));
    sinks.facing.run();
    assert_eq!(sinks.facing.raw.received.pop_front().unwrap().1, None);
}

/// A requester that invalidates what it cannot know of is cut off.
#[test]
fn invalidation_by_a_requester() {
    let mut facing = server();
    let call = plain(XID, 8, 0, 0);
    // A handle of the engine's own, in use for an RDMA Read, that a peer guessed.
    let (handle, base) = facing.raw.source(&[0; 64]);
    let [high, low] = split(base);
    facing.raw.send(&[&[XID + 1, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID + 1, 0]].concat(), &[]);
    facing.raw.send_invalidating(&call, &[], Some(Handle(1)));
    facing.run();
    assert!(facing.raw.disconnected());
    assert!(matches!(facing.engine.events.last(), Some(Event::Closed(_))));
    assert_eq!(facing.network.registered(End::B), 0);
}

/// A call with the XID of one in progress is discarded; once that is answered, the XID is free.
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

/// RFC 8166 §3.3.1: a requester that sends more than it has credits for meets no Receive.
#[test]
fn credits_exceeded() {
    let mut config = EngineConfig::default();
    config.credits = 4;
    let mut facing = Facing::new(Role::Server, config, true);
    for n in 0..6 {
        assert!(arrive(&mut facing, &plain(XID + n, 8, 0, 0)).is_some());
    }
    assert_eq!(facing.network.receives(End::B), 0);
    assert!(arrive(&mut facing, &plain(XID + 6, 8, 0, 0)).is_none());
    assert!(facing.raw.disconnected());
    // Each call that arrived is told of once.
    for _ in 0..6 {
        assert!(matches!(take_reply_sent(&mut facing.engine), Some((_, false))));
    }
    assert!(matches!(facing.engine.events[..], [Event::Closed(CloseReason::Disconnected(_))]));
}

/// RFC 8166 §3.3.1: the Receive for the next call is posted before the reply that frees its credit arrives; but a peer
/// that does not read its replies ties up no more than a window of them.
#[test]
fn receives_come_before_replies() {
    let mut config = EngineConfig::default();
    config.credits = 4;
    let mut facing = Facing::new(Role::Server, config, true);
    facing.raw.qp.post_receives(6);
    facing.network.stall(End::B, true);
    let mut xid = XID;
    for receives in [6, 0] {
        for _ in 0..6 {
            let call = arrive(&mut facing, &plain(xid, 8, 0, 0)).unwrap();
            facing.engine.conn.reply(call.token, reply(&[]));
            xid += 1;
        }
        facing.run();
        assert_eq!(facing.network.receives(End::B), receives);
        assert!(facing.raw.received.is_empty());
    }
    assert_eq!(facing.engine.conn.counters().replies_sent, 6);
    facing.network.stall(End::B, false);
    facing.run();
    assert_eq!((facing.raw.received.len(), facing.network.receives(End::B)), (12, 6));
}

/// What is pulled and not answered is bounded: calls beyond that wait their turn, and none is lost.
#[test]
fn pulls_are_bounded() {
    let mut config = EngineConfig::default();
    config.max_pulled = 100;
    let mut facing = Facing::new(Role::Server, config, false);
    let (handle, base) = facing.raw.source(&[1; 64]);
    let [high, low] = split(base);
    let long = |xid| [&[xid, 1, 8, 0, 1, 8, handle, 60, high, low][..], &NO_CHUNKS, &[xid, 0]].concat();
    for n in 0..3 {
        facing.raw.send(&long(XID + n), &[]);
    }
    facing.raw.send(&plain(XID + 3, 8, 0, 0), &[]);
    facing.run();
    // One is pulled; that which needs no pulling passes by the others.
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
    assert_eq!((facing.raw.received.len(), facing.engine.conn.counters().rdma_read), (4, 180));
    // More than that in one call is refused.
    let huge = [&[XID, 1, 8, 0, 1, 8, handle, 104, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
    facing.raw.received.clear();
    assert!(arrive(&mut facing, &huge).is_none());
    assert_eq!(facing.raw.next().unwrap(), [XID, 1, 32, 4, 2]);
}

/// A Read chunk that is not there ends the connection (RFC 8166 §4.5.3), and leaves nothing registered.
#[test]
fn read_chunk_out_of_bounds() {
    let mut facing = server();
    let (handle, base) = facing.raw.source(&[1; 64]);
    let [high, low] = split(base + 1);
    let words = [&[XID, 1, 8, 0, 1, 8, handle, 64, high, low][..], &NO_CHUNKS, &[XID, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert!(facing.raw.disconnected());
    assert!(matches!(facing.engine.events[..], [Event::Closed(CloseReason::Disconnected(_))]));
    assert_eq!(facing.network.registered(End::B), 0);
}

/// A provider that may have no RDMA Reads under way pulls nothing.
#[test]
fn no_reads_allowed() {
    let config = EngineConfig::default();
    let local = PrivateData::new(&config, true);
    let mut sim = SimConfig::default();
    sim.ends[1].max_reads = 0;
    let mut facing = Facing::with(Role::Server, config, Setup { local, peer: local, xid_seed: 0 }, sim);
    let words = [&[XID, 1, 8, 0, 1, 8, 7, 64, 0, 0][..], &NO_CHUNKS, &[XID, 0]].concat();
    assert!(arrive(&mut facing, &words).is_none());
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
}

/// Results go out from where they lie, cut as the provider's transfers and the segments demand.
#[test]
fn transfers_are_cut() {
    let config = EngineConfig::default();
    let local = PrivateData::new(&config, false);
    let mut sim = SimConfig::default();
    sim.ends[1].max_transfer = 1000;
    let mut facing = Facing::with(Role::Server, config, Setup { local, peer: local, xid_seed: 0 }, sim);
    let (handle, base) = facing.raw.sink(5000);
    let [high, low] = split(base);
    let call = arrive(&mut facing, &[XID, 1, 8, 0, 0, 1, 1, handle, 5000, high, low, 0, 0, XID, 0, 0]).unwrap();
    let data = engine_support::pattern(1, 4001);
    let mut long = reply(&[]);
    long.reduced.push(Reduced { position: 8, chunk: 0, data: data.clone() });
    facing.engine.conn.reply(call.token, long);
    let words = answer(&mut facing).unwrap();
    assert_eq!((words[8], join(words[9], words[10])), (4001, base));
    assert_eq!(&facing.raw.take_back(handle)[..4001], &data[..]);
}

/// Calls that were handed over are told of when the connection ends; replies after that go nowhere.
#[test]
fn loss() {
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.network.cut();
    facing.run();
    assert!(matches!(take_reply_sent(&mut facing.engine), Some((token, false)) if token == call.token));
    facing.engine.conn.reply(call.token, reply(&[]));
    facing.run();
    assert!(matches!(facing.engine.events[..], [Event::Closed(_)]));
    assert!(facing.raw.completed.iter().any(|c| matches!(c, Completion::Disconnected { .. })));
}

/// The engine closes in order: what it has sent arrives.
#[test]
fn close() {
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.engine.conn.reply(call.token, reply(&[]));
    facing.engine.turn(facing.now);
    facing.engine.conn.close();
    facing.run();
    assert_eq!(facing.raw.next().unwrap(), plain(XID, 32, 1, 0)[..9]);
    assert!(facing.raw.disconnected());
}
