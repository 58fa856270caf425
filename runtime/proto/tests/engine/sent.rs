//! Version 1 messages as an engine sends them, around the inline thresholds: their XIDs, procedures, chunk lists and
//! lengths.

use std::collections::BTreeMap;

use rpcrdma_proto::{
    engine::{
        CallFailure, CallPolicy, Engine as _, EngineConfig, OutgoingReply, Role,
        v1::header::{RdmaBody, RdmaMsg, RpcRdmaError, RpcRdmaHeaderNomsg, XdrWriteChunk},
    },
    memory::{MessageBuf, Output},
};

use crate::support::{Script, ScriptedPeer, plain, split, take_call, take_finished};
use rpcrdma::xdr::{Decoder, ReducedItem, XdrDecode, padded_len};

/// The inline threshold of both directions in these tests, in bytes.
const THRESHOLD: usize = 1024;
/// Maximum length of the engine's segments, in bytes.
const MAX_SEGMENT: usize = 1000;
const XID: u32 = 0x1000;

fn engine(role: Role) -> ScriptedPeer {
    let mut config = EngineConfig::default();
    (config.send_size, config.receive_size) = (THRESHOLD as u32, THRESHOLD as u32);
    (config.max_segment_len, config.min_reduce) = (MAX_SEGMENT as u32, 0);
    ScriptedPeer::new(role, config, false)
}

/// A sent message with the procedure RDMA_MSG or RDMA_NOMSG.
struct Sent {
    lists: RpcRdmaHeaderNomsg,
    /// The payload stream, or `None` with RDMA_NOMSG.
    payload: Option<Vec<u8>>,
}

impl Sent {
    /// Takes the only message that the engine has sent. Returns `None` for ERR_CHUNK.
    fn take(facing: &mut ScriptedPeer) -> Option<Self> {
        let (bytes, _) = facing.raw.received.pop_front().expect("nothing sent");
        assert!(facing.raw.received.is_empty(), "more than one message");
        assert!(bytes.len() <= THRESHOLD, "{} bytes exceed the threshold", bytes.len());
        let mut decoder = Decoder::new(&bytes);
        let header = RdmaMsg::decode(&mut decoder).expect("header");
        assert_eq!((header.rdma_xid, header.rdma_vers), (XID, 1));
        let payload = decoder.rest().to_vec();
        match header.rdma_body {
            RdmaBody::RdmaMsg(body) => {
                let lists = RpcRdmaHeaderNomsg {
                    rdma_reads: body.rdma_reads,
                    rdma_writes: body.rdma_writes,
                    rdma_reply: body.rdma_reply,
                };
                Some(Self { lists, payload: Some(payload) })
            }
            RdmaBody::RdmaNomsg(lists) => {
                assert!(payload.is_empty(), "RDMA_NOMSG with a payload stream");
                Some(Self { lists, payload: None })
            }
            RdmaBody::RdmaError(RpcRdmaError::ErrChunk) => None,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the lengths of the Read chunks by position.
    fn reads(&self) -> BTreeMap<u32, usize> {
        let mut reads = BTreeMap::new();
        for read in &self.lists.rdma_reads {
            *reads.entry(read.entry.position).or_default() += read.entry.target.length as usize;
        }
        reads
    }

    fn writes(&self) -> Vec<usize> {
        self.lists.rdma_writes.iter().map(|write| chunk_len(&write.entry)).collect()
    }

    fn reply_chunk(&self) -> Option<usize> {
        self.lists.rdma_reply.as_ref().map(chunk_len)
    }
}

fn chunk_len(chunk: &XdrWriteChunk) -> usize {
    chunk.target.iter().map(|segment| segment.length as usize).sum()
}

/// Returns the length in bytes of a header whose chunks have these lengths. Each chunk has as few segments as possible.
fn header_len(reads: &[usize], writes: &[usize], reply: Option<usize>) -> usize {
    let segments = |len: &usize| len.div_ceil(MAX_SEGMENT);
    let array = |len| 4 + 16 * segments(len);
    28 + reads.iter().map(|len| 24 * segments(len)).sum::<usize>()
        + writes.iter().map(|len| 4 + array(len)).sum::<usize>()
        + reply.as_ref().map_or(0, array)
}

/// RFC 8166 §3.5.3, §4.2.4, §4.3.1, §4.3.2: a call is inline if it fits with its header, and a Long call otherwise. It
/// has a Read chunk for each eligible argument and a Write chunk for each eligible result, without padding. The only
/// other chunk is the Position-Zero Read chunk of a Long call.
#[test]
fn calls_fit_the_threshold() {
    let cases: [(&[usize], &[usize]); 5] =
        [(&[], &[]), (&[3001], &[]), (&[], &[3003]), (&[5, 2002], &[1003, 2, 1001]), (&[4000; 4], &[])];
    for (args, results) in cases {
        let mut formats = [0; 2];
        for inline in (400..1000).step_by(4) {
            let mut facing = engine(Role::Client);
            let script = Script {
                inline,
                args: args.to_vec(),
                reduce: true,
                results: results.iter().map(|&max| (0, max as u64)).collect(),
                ..Script::default()
            };
            facing.call(&script);
            facing.run();
            let sent = Sent::take(&mut facing).expect("no call");
            let mut position = 12 + inline;
            let mut reads = BTreeMap::new();
            for len in args {
                position += 4;
                reads.insert(position as u32, *len);
                position += padded_len(*len);
            }
            let payload = 12 + inline + 4 * args.len();
            let fits = header_len(args, results, None) + payload <= THRESHOLD;
            match &sent.payload {
                Some(bytes) => assert_eq!(bytes.len(), payload),
                None => assert_eq!(reads.insert(0, payload), None),
            }
            assert_eq!((sent.payload.is_some(), sent.reads(), sent.writes()), (fits, reads, results.to_vec()));
            assert_eq!(sent.reply_chunk(), None);
            formats[usize::from(fits)] += 1;

            facing.raw.send(&plain(XID, 8, 1, 0), &[]);
            facing.run();
            assert!(take_finished(&mut facing.engine).is_some());
            assert!(facing.raw.received.is_empty(), "sent after the reply");
        }
        assert!(formats.into_iter().all(|count| count > 0), "{formats:?}");
    }
}

/// RFC 8166 §3.4.5, §3.5.3: all segments of a Read chunk have its position. The segments of a Long call's payload
/// stream have position zero.
#[test]
fn segments_of_a_chunk_share_its_position() {
    let mut facing = engine(Role::Client);
    facing.call(&Script { inline: 2996, args: vec![2001, 7], reduce: true, ..Script::default() });
    facing.run();
    let sent = Sent::take(&mut facing).expect("no call");
    assert!(sent.payload.is_none());
    let (first, second) = (12 + 2996 + 4, 12 + 2996 + 4 + 2004 + 4);
    let segments: Vec<_> =
        sent.lists.rdma_reads.iter().map(|read| (read.entry.position, read.entry.target.length)).collect();
    let expected = [(0, 1000), (0, 1000), (0, 1000), (0, 16), (first, 1000), (first, 1000), (first, 1), (second, 7)];
    assert_eq!(segments, expected);
    // Each segment continues where the one before ends, in the same memory.
    for pair in sent.lists.rdma_reads.windows(2) {
        let (one, two) = (&pair[0].entry, &pair[1].entry);
        let follows = two.target.offset == one.target.offset + u64::from(one.target.length);
        assert_eq!(one.position == two.position, follows && one.target.handle == two.target.handle);
    }
}

/// RFC 8166 §4.3.3, §6.2: a call has a Reply chunk if the longest reply, with a header that repeats the Write list,
/// exceeds the threshold, and only then. RFC 8166 §3.4.6, §3.4.6.2: Write chunks have the maximum lengths of their
/// results.
#[test]
fn longest_replies_determine_the_reply_chunk() {
    for results in [&[][..], &[3001], &[1003, 2, 2000]] {
        let mut provided = [0; 2];
        for reply_inline in (700..1020).step_by(4) {
            let mut facing = engine(Role::Client);
            let results_with_max = results.iter().map(|&max: &usize| (0, max as u64)).collect();
            facing.call(&Script { reply_inline, results: results_with_max, ..Script::default() });
            facing.run();
            let sent = Sent::take(&mut facing).expect("no call");
            let payload = 12 + reply_inline + 4 * results.len();
            let long = header_len(&[], results, None) + payload > THRESHOLD;
            assert_eq!((sent.writes(), sent.reply_chunk()), (results.to_vec(), long.then_some(payload)));
            provided[usize::from(long)] += 1;
        }
        assert!(provided.into_iter().all(|count| count > 0), "{provided:?}");
    }
}

/// RFC 8166 §8.2.2.3: nothing is reduced in a protected call. A call or a reply that exceeds the threshold is
/// transferred as a whole by RDMA.
#[test]
fn protected_calls_are_not_reduced() {
    let policy = CallPolicy { protected: true, ..CallPolicy::default() };
    for (arg, result) in [(100, 200), (3001, 200), (100, 4003), (3001, 4003)] {
        let mut facing = engine(Role::Client);
        let (args, results) = (vec![arg], vec![(0, result as u64)]);
        facing.call(&Script { args, reduce: true, results, policy, ..Script::default() });
        facing.run();
        let sent = Sent::take(&mut facing).expect("no call");
        let (call, reply) = (12 + 4 + padded_len(arg), 12 + 4 + padded_len(result));
        let long = |len: usize| (len > THRESHOLD).then_some(len);
        assert_eq!(sent.payload.as_ref().map(Vec::len), (arg == 100).then_some(call));
        assert_eq!(sent.reads(), long(call).map(|len| (0, len)).into_iter().collect());
        assert_eq!((sent.writes(), sent.reply_chunk()), (vec![], long(reply)));
    }
}

/// RFC 8166 §3.5.3, §4.2.4, §4.3.1, §4.3.3: a reply is inline if it fits with its header. Otherwise it uses the Reply
/// chunk, or is refused with ERR_CHUNK if there is none. A Reply chunk is returned in any case. The Read list of a
/// reply is empty.
#[test]
fn replies_fit_the_threshold() {
    for (has_write, has_reply) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut formats = [0; 3];
        for inline in (700..1020).step_by(4) {
            let mut facing = engine(Role::Server);
            let (source, write, reply) = (facing.raw.source(&[7; 8]), facing.raw.sink(3), facing.raw.sink(THRESHOLD));
            let segment = |(handle, base): (u32, u64), length: u32| {
                let [high, low] = split(base);
                [handle, length, high, low]
            };
            let mut words = [&[XID, 1, 8, 0, 1, 12][..], &segment(source, 8), &[0]].concat();
            if has_write {
                words.extend([&[1, 1][..], &segment(write, 3)].concat());
            }
            words.push(0);
            match has_reply {
                true => words.extend([&[1, 1][..], &segment(reply, THRESHOLD as u32)].concat()),
                false => words.push(0),
            }
            words.extend([XID, 0, 8]);
            facing.raw.send(&words, &[]);
            facing.run();
            let call = take_call(&mut facing.engine).expect("no call");
            let mut message = MessageBuf::new(Vec::new().into(), 0);
            [0, 1].iter().for_each(|word: &u32| message.append(&word.to_be_bytes()));
            message.append_zeros(inline);
            let payload = message.len();
            let mut answer = OutgoingReply { message, reduced: Default::default() };
            if has_write {
                answer.reduced.push(ReducedItem { position: 8, chunk: 0, data: (&b"abc"[..]).into() });
            }
            facing.engine.conn.reply(call.token, answer);
            facing.run();

            let writes = if has_write { &[3][..] } else { &[] };
            let fits = header_len(&[], writes, has_reply.then_some(1)) + payload <= THRESHOLD;
            let format = if fits { 0 } else { 1 + usize::from(!has_reply) };
            formats[format] += 1;
            let Some(sent) = Sent::take(&mut facing) else {
                assert_eq!(format, 2, "a reply of {payload} bytes is refused");
                continue;
            };
            assert_eq!(sent.payload.as_ref().map(Vec::len), fits.then_some(payload));
            assert_eq!((sent.reads().len(), sent.writes()), (0, writes.to_vec()));
            assert_eq!(sent.reply_chunk(), has_reply.then_some(if fits { 0 } else { payload }));
        }
        let expected = [true, has_reply, !has_reply];
        assert_eq!(formats.map(|count| count > 0), expected, "{formats:?}");
    }
}

/// RFC 8166 §4.2.3: calls request the configured credits, and replies and errors grant them, whatever the credit values
/// of the peer are.
#[test]
fn credits_are_requested_and_granted() {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (20, 3);
    let credit = |facing: &mut ScriptedPeer| {
        facing.run();
        facing.raw.next().expect("nothing sent")[2]
    };
    for (role, requested, granted) in [(Role::Client, 20, 3), (Role::Server, 3, 20)] {
        let mut facing = ScriptedPeer::new(role, config.clone(), true);
        for (xid, grant) in (XID..).zip([1, 2, 30]) {
            facing.call(&Script::default());
            assert_eq!(credit(&mut facing), requested, "requested by the {role:?}");
            facing.raw.send(&plain(xid, grant, 1, 0), &[]);
            facing.run();
        }
        for words in [plain(7, 9, 0, 0), vec![7, 1, 9, 7, 0, 0, 0], vec![7, 9, 9, 0, 0, 0, 0]] {
            facing.raw.send(&words, &[]);
            facing.run();
            if let Some(call) = take_call(&mut facing.engine) {
                let mut message = MessageBuf::new(Vec::new().into(), 0);
                [0, 1].iter().for_each(|word: &u32| message.append(&word.to_be_bytes()));
                facing.engine.conn.reply(call.token, OutgoingReply { message, reduced: Default::default() });
            }
            assert_eq!(credit(&mut facing), granted, "granted by the {role:?}");
        }
    }
}

/// The policy of a call can determine its XID. While the call is in flight, no other call gets this XID.
#[test]
fn calls_have_their_own_xids() {
    let mut facing = ScriptedPeer::new(Role::Client, EngineConfig::default(), true);
    let finish = |facing: &mut ScriptedPeer| {
        facing.run();
        take_finished(&mut facing.engine).map(|(_, result)| result)
    };
    let start = |facing: &mut ScriptedPeer, xid| {
        let mut call = Script::default().outgoing(&facing.engine.conn, facing.now);
        call.policy.xid = xid;
        facing.engine.conn.start_call(call);
        facing.run();
        facing.raw.next().map(|call| call[0])
    };
    assert_eq!(start(&mut facing, None), Some(XID));
    facing.raw.send(&plain(XID, 8, 1, 0), &[0; 4]);
    assert!(finish(&mut facing).expect("replied").is_ok());
    assert_eq!(start(&mut facing, Some(XID + 1)), Some(XID + 1));
    assert_eq!(start(&mut facing, None), Some(XID + 2));
    assert_eq!(start(&mut facing, Some(XID + 1)), None);
    let failure = finish(&mut facing).expect("refused").unwrap_err();
    assert_eq!(failure, CallFailure::XidInUse { xid: XID + 1 });
    // The XID can be used again after the reply.
    facing.raw.send(&plain(XID + 1, 8, 1, 0), &[0; 4]);
    assert!(finish(&mut facing).expect("replied").is_ok());
    assert_eq!(start(&mut facing, Some(XID + 1)), Some(XID + 1));
}
