//! A version 1 responder's replies: placement of results, returned chunk lists, and replies that do not fit.

use crate::support::{ScriptedPeer, UNWRITTEN, join, plain, split, take_call, take_reply_sent};
use rpcrdma::xdr::ReducedItem;
use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{ConnectionSetup, EngineConfig, EngineEvent, IncomingCall, OutgoingReply, PrivateData, Role},
    memory::{MessageBuf, Output},
    provider::{
        Completion, MemoryHandle, QueuePair,
        sim::{SimConfig, SimEnd},
    },
};

const XID: u32 = 0xabcd_0001;

fn server() -> ScriptedPeer {
    ScriptedPeer::new(Role::Server, EngineConfig::default(), true)
}

/// Sends a call and returns it as the engine announces it, or `None` if the engine refuses it.
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

fn reduced(chunk: usize, data: &[u8]) -> ReducedItem {
    ReducedItem { position: 8, chunk, data: data.to_vec().into() }
}

/// Returns the next message to the requester.
fn answer(facing: &mut ScriptedPeer) -> Option<Vec<u32>> {
    facing.run();
    facing.raw.next()
}

/// A requester that offers a Write list of three chunks (two segments, none, one) and a Reply chunk.
struct Sinks {
    facing: ScriptedPeer,
    handles: [u32; 3],
    lists: Vec<u32>,
}

impl Sinks {
    fn call(&mut self, xid: u32) -> IncomingCall {
        let words = [&[xid, 1, 8, 0, 0][..], &self.lists, &[xid, 0, 0]].concat();
        arrive(&mut self.facing, &words).expect("arrived")
    }

    /// Returns the chunk lists with these lengths in the segments.
    fn with_lengths(&self, lengths: [u32; 4]) -> Vec<u32> {
        let mut lists = self.lists.clone();
        for ((at, provided), length) in [(3, 20), (7, 10), (15, 10), (22, 5000)].into_iter().zip(lengths) {
            assert_eq!(lists[at], provided);
            lists[at] = length;
        }
        lists
    }
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

/// RFC 8166 §3.4.6, §4.3.2.2, §4.3.2.3, §4.3.3: a reply returns the chunks with the lengths that were written. The test
/// covers chunks that are filled in order, unused or empty, and a Reply chunk that is unused or has a Long reply.
#[test]
fn returned_chunks() {
    let mut sinks = with_sinks();
    // No chunk is used.
    let call = sinks.call(XID);
    assert_eq!(&call.reply().write_chunks[..], &[Some(30), None, Some(10)]);
    assert_eq!((call.reply().reply_chunk, call.reply().max_inline), (Some(5000), 4096 - 4 * (5 + 25)));
    sinks.facing.engine.conn.reply(call.token, reply(&[7]));
    let words = answer(&mut sinks.facing).unwrap();
    let expected = [&[XID, 1, 32, 0, 0][..], &sinks.with_lengths([0, 0, 0, 0]), &[XID, 1, 7]].concat();
    assert_eq!(words, expected);
    assert!(matches!(take_reply_sent(&mut sinks.facing.engine), Some((token, true)) if token == call.token));

    // The first and third chunk are used, the first up to the middle of its second segment.
    let call = sinks.call(XID + 1);
    let mut both = reply(&[7]);
    both.reduced = [reduced(0, &[1; 23]), reduced(2, &[2; 10])].into_iter().collect();
    sinks.facing.engine.conn.reply(call.token, both);
    let words = answer(&mut sinks.facing).unwrap();
    let expected = [&[XID + 1, 1, 32, 0, 0][..], &sinks.with_lengths([20, 3, 10, 0]), &[XID + 1, 1, 7]].concat();
    assert_eq!(words, expected);

    // A Long reply: one byte more than fits inline.
    let call = sinks.call(XID + 2);
    let mut long = reply(&[]);
    long.message.append(&vec![9; call.reply().max_inline as usize - 8 + 4]);
    let len = long.message.len() as u32;
    long.reduced = [reduced(0, &[3; 1])].into_iter().collect();
    sinks.facing.engine.conn.reply(call.token, long);
    let words = answer(&mut sinks.facing).unwrap();
    assert_eq!(words, [&[XID + 2, 1, 32, 1, 0][..], &sinks.with_lengths([1, 0, 0, len])].concat());

    let [first, third, last] = sinks.handles.map(|handle| sinks.facing.raw.take_back(handle));
    assert_eq!((first[0], &first[1..23], &first[23..]), (3, &[1; 22][..], &[UNWRITTEN; 7][..]));
    assert_eq!(third, [2; 10]);
    assert_eq!(last[..8], [&(XID + 2).to_be_bytes()[..], &1u32.to_be_bytes()].concat());
    assert_eq!(last[8..len as usize], vec![9; len as usize - 8]);
    let counters = sinks.facing.engine.conn.counters();
    assert_eq!((counters.rdma_write_bytes, counters.replies_sent), (23 + 10 + 1 + u64::from(len), 3));
}

/// A reply that just fits inline is sent inline (RFC 8166 §4.3.3).
#[test]
fn longest_inline_reply() {
    let mut sinks = with_sinks();
    let call = sinks.call(XID);
    let mut fits = reply(&[]);
    fits.message.append(&vec![9; call.reply().max_inline as usize - 8]);
    sinks.facing.engine.conn.reply(call.token, fits);
    sinks.facing.run();
    let (bytes, _) = sinks.facing.raw.received.pop_front().unwrap();
    assert_eq!((bytes.len(), bytes[15]), (4096, 0));
}

/// RFC 8166 §4.5.3, §6.1: a reply that does not fit into the chunks, is not an RPC message, or is refused by the upper
/// layer becomes ERR_CHUNK. No data is written to the chunks, and no handle is invalidated.
#[test]
fn replies_that_do_not_fit() {
    type Edit = fn(&mut OutgoingReply);
    let cases: [(&str, Edit); 8] = [
        ("a result longer than its chunk", |r| r.reduced.push(reduced(0, &[0; 31]))),
        ("a result for an empty chunk", |r| r.reduced.push(reduced(1, &[0; 1]))),
        ("a result for no chunk", |r| r.reduced.push(reduced(3, &[0; 1]))),
        ("two results for one chunk", |r| r.reduced.extend([reduced(0, &[0; 1]), reduced(0, &[0; 1])])),
        ("the second of two too long", |r| r.reduced.extend([reduced(0, &[0; 1]), reduced(2, &[0; 11])])),
        ("a payload stream one word longer than the Reply chunk", |r| r.message.append(&[0; 5000 - 8 + 4])),
        ("a result and a payload stream, the latter too long", |r| {
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
        let (bytes, invalidated) = sinks.facing.raw.received.pop_front().expect(what);
        assert_eq!((&bytes[..4], &bytes[12..]), (&XID.to_be_bytes()[..], &[0, 0, 0, 4, 0, 0, 0, 2][..]), "{what}");
        assert_eq!(invalidated, None);
        assert!(matches!(take_reply_sent(&mut sinks.facing.engine), Some((_, false))), "{what}");
        assert_eq!(sinks.facing.engine.conn.counters().rdma_write_bytes, 0, "{what}");
    }
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.engine.conn.reply_error(call.token, rpcrdma_proto::engine::TransportError::BadXdr);
    // The second reply to the same call is ignored.
    facing.engine.conn.reply(call.token, reply(&[]));
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
    assert!(matches!(take_reply_sent(&mut facing.engine), Some((_, true))));
    assert!(facing.raw.next().is_none() && facing.engine.events.is_empty());
}

/// RFC 8166 §4.5.3: if a call has no Reply chunk, a reply that does not fit inline becomes ERR_CHUNK.
#[test]
fn long_reply_without_a_reply_chunk() {
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    assert_eq!((call.reply().reply_chunk, call.reply().max_inline), (None, 4096 - 28));
    let mut long = reply(&[]);
    long.message.append(&[0; 4096 - 28 - 8 + 1]);
    facing.engine.conn.reply(call.token, long);
    assert_eq!(answer(&mut facing).unwrap(), [XID, 1, 32, 4, 2]);
}

/// RFC 8797 §4.1: Send with Invalidate is used only if both peers set R, and only for a handle of the call that is
/// replied to. If a call has several handles, none is invalidated, because Linux clients also offer a handle whose
/// memory stays registered.
#[test]
fn remote_invalidation() {
    for (local, peer) in [(true, true), (true, false), (false, true)] {
        let config = EngineConfig::default();
        let says = |remote_invalidation| PrivateData { remote_invalidation, ..PrivateData::new(&config, false) };
        let setup = ConnectionSetup { local: says(local), peer: says(peer), xid_seed: 0 };
        let mut facing = ScriptedPeer::with(Role::Server, config, setup, SimConfig::default());
        let (handle, base) = facing.raw.sink(64);
        let [high, low] = split(base);
        let two = [handle, 32, high, low, handle, 32, high, low];
        let call = arrive(&mut facing, &[&[XID, 1, 8, 0, 0, 1, 2][..], &two, &[0, 0, XID, 0, 0]].concat()).unwrap();
        facing.engine.conn.reply(call.token, reply(&[]));
        facing.run();
        let expected = (local && peer).then_some(MemoryHandle(handle));
        assert_eq!(facing.raw.received.pop_front().unwrap().1, expected);
    }
    let mut sinks = with_sinks();
    let call = sinks.call(XID);
    sinks.facing.engine.conn.reply(call.token, reply(&[]));
    sinks.facing.run();
    assert_eq!(sinks.facing.raw.received.pop_front().unwrap().1, None);
}

/// Linux clients append a segment of 4 bytes in other memory to a Write chunk whose length is not a multiple of four.
/// The segment is for padding, which a responder must not write (RFC 8166 §3.4.6.2). It is returned unused, and no
/// handle is invalidated.
#[test]
fn linux_segment_for_padding_is_returned_unused() {
    let mut facing = server();
    let (data, pad) = (facing.raw.sink(5), facing.raw.sink(4));
    let [segment, padding] = [(data, 5), (pad, 4)].map(|((handle, base), length)| {
        let [high, low] = split(base);
        [handle, length, high, low]
    });
    let words = [&[XID, 1, 8, 0, 0, 1, 2][..], &segment, &padding, &[0, 0, XID, 0, 0]].concat();
    let call = arrive(&mut facing, &words).unwrap();
    let mut full = reply(&[5]);
    full.reduced.push(reduced(0, b"12345"));
    facing.engine.conn.reply(call.token, full);
    facing.run();
    assert_eq!(facing.raw.received.front().unwrap().1, None);
    let words = facing.raw.next().unwrap();
    assert_eq!((words[8], words[12]), (5, 0));
    assert_eq!((facing.raw.take_back(data.0), facing.raw.take_back(pad.0)), (b"12345".to_vec(), vec![UNWRITTEN; 4]));
}

/// RFC 8166 §3.3.1: the Receive for the next call is posted before the reply that frees its credit arrives. A peer that
/// does not read its replies ties up at most one window of Receives.
#[test]
fn receives_come_before_replies() {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (4, 0);
    let mut facing = ScriptedPeer::new(Role::Server, config, true);
    facing.raw.qp.post_receives(6);
    facing.network.stall(SimEnd::B, true);
    let mut xid = XID;
    for receives in [6, 0] {
        for _ in 0..6 {
            let call = arrive(&mut facing, &plain(xid, 8, 0, 0)).unwrap();
            facing.engine.conn.reply(call.token, reply(&[]));
            xid += 1;
        }
        facing.run();
        assert_eq!(facing.network.receives(SimEnd::B), receives);
        assert!(facing.raw.received.is_empty());
    }
    assert_eq!(facing.engine.conn.counters().replies_sent, 6);
    facing.network.stall(SimEnd::B, false);
    facing.run();
    assert_eq!((facing.raw.received.len(), facing.network.receives(SimEnd::B)), (12, 6));
}

/// A result of 4001 bytes is written completely, although the provider transfers at most 1000 bytes at a time.
#[test]
fn results_are_split_into_transfers() {
    let config = EngineConfig::default();
    let local = PrivateData::new(&config, false);
    let mut sim = SimConfig::default();
    sim.ends[1].max_transfer = 1000;
    let mut facing = ScriptedPeer::with(Role::Server, config, ConnectionSetup { local, peer: local, xid_seed: 0 }, sim);
    let (handle, base) = facing.raw.sink(5000);
    let [high, low] = split(base);
    let call = arrive(&mut facing, &[XID, 1, 8, 0, 0, 1, 1, handle, 5000, high, low, 0, 0, XID, 0, 0]).unwrap();
    let data = crate::support::pattern(1, 4001);
    let mut long = reply(&[]);
    long.reduced.push(ReducedItem { position: 8, chunk: 0, data: data.clone() });
    facing.engine.conn.reply(call.token, long);
    let words = answer(&mut facing).unwrap();
    assert_eq!((words[8], join(words[9], words[10])), (4001, base));
    assert_eq!(&facing.raw.take_back(handle)[..4001], &data[..]);
}

/// When the connection ends, the engine reports that the replies to announced calls are not delivered. Later replies
/// are dropped.
#[test]
fn lost_connection() {
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.network.cut();
    facing.run();
    assert!(matches!(take_reply_sent(&mut facing.engine), Some((token, false)) if token == call.token));
    facing.engine.conn.reply(call.token, reply(&[]));
    facing.run();
    assert!(matches!(facing.engine.events[..], [EngineEvent::Closed(_)]));
    assert!(facing.raw.completed.iter().any(|c| matches!(c, Completion::Disconnected { .. })));
}

/// An orderly close delivers the reply that was posted before it.
#[test]
fn orderly_close() {
    let mut facing = server();
    let call = arrive(&mut facing, &plain(XID, 8, 0, 0)).unwrap();
    facing.engine.conn.reply(call.token, reply(&[]));
    facing.engine.turn(facing.now);
    facing.engine.conn.close();
    facing.run();
    assert_eq!(facing.raw.next().unwrap(), plain(XID, 32, 1, 0)[..9]);
    assert!(facing.raw.disconnected());
}

/// RFC 8166 §3.3.1: responses beyond the number that may be in flight follow when the last response in flight has been
/// sent.
#[test]
fn more_replies_than_may_be_in_flight() {
    let mut config = EngineConfig::default();
    config.credits = 1;
    let mut facing = ScriptedPeer::new(Role::Server, config, true);
    // Errors for messages that are no calls end when they have been sent, too.
    for xid in 1..9 {
        facing.raw.send(&[xid, 1, 8, 7, 0, 0, 0], &[]);
        assert_eq!(answer(&mut facing).expect("no error")[0], xid);
    }
    let calls: Vec<_> =
        (0..8).map(|xid| arrive(&mut facing, &plain(0x100 + xid, 8, 0, xid)).expect("no call")).collect();
    for call in calls {
        facing.engine.conn.reply(call.token, reply(&[0; 2]));
    }
    facing.run();
    let xids: Vec<_> = std::iter::from_fn(|| facing.raw.next()).map(|words| words[0]).collect();
    assert_eq!(xids, (0x100..0x108).collect::<Vec<_>>());
}
