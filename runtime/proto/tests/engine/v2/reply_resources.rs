//! Resources for replies, replies that exceed them, and calls that exceed the limits of a responder
//! (RPC-over-RDMA v2 §6.4, §7.3).

use rpcrdma::xdr::ReducedItem;
use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::engine::{EngineConfig, ReverseDirection, Role, TransportError};

use super::{
    refusals::{reads, refused, segment, server, serves},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, plain},
};
use crate::support::{Script, UNWRITTEN, take_call};

/// Returns a call with these Write chunks and this Reply chunk, each given by the lengths of its segments.
fn with_chunks(writes: &[&[u32]], reply: Option<&[u32]>) -> Vec<u32> {
    let chunk = |lens: &[u32]| {
        let segments = lens.iter().flat_map(|&len| segment(None, 1, len, 0));
        [vec![1, lens.len() as u32], segments.collect()].concat()
    };
    let mut words = vec![3, 2, CREDIT, MSG, 0, 0, 0];
    writes.iter().for_each(|lens| words.extend(chunk(lens)));
    words.push(0);
    words.extend(reply.map_or(vec![0], chunk));
    words.extend([3, 0, 1]);
    words
}

/// Serves a call with Write chunks and a Reply chunk of these lengths, and replies according to the script. Returns the
/// messages of the response, and the contents of the Reply chunk.
fn answer(writes: &[u32], reply: Option<u32>, script: &Script) -> (Vec<Vec<u32>>, Vec<u8>) {
    let mut facing = server();
    let mut words = vec![3, 2, CREDIT, MSG, 0, 0, 0];
    for &len in writes {
        let (handle, offset) = facing.raw.sink(len as usize);
        words.extend([1, 1]);
        words.extend(segment(None, handle, len, offset));
    }
    words.push(0);
    let sink = reply.map(|len| facing.raw.sink(len as usize));
    match sink.zip(reply) {
        Some(((handle, offset), len)) => {
            words.extend([1, 1]);
            words.extend(segment(None, handle, len, offset));
        }
        None => words.push(0),
    }
    words.extend([3, 0, 1]);
    facing.send(&words);
    let call = take_call(&mut facing.engine).expect("call not served");
    facing.engine.conn.reply(call.token, script.reply(writes.iter().map(|_| true)));
    facing.run();
    let messages = std::iter::from_fn(|| facing.next()).collect();
    (messages, sink.map(|(handle, _)| facing.raw.take_back(handle)).unwrap_or_default())
}

/// §6.4: a reply that exceeds its Reply chunk, by however little, is continued. The Reply chunk is returned unused. A
/// reply that fits is written to it.
#[test]
fn reply_that_exceeds_its_reply_chunk() {
    let script = |len: usize| Script { reply_inline: len - 12, ..Script::default() };
    let (messages, written) = answer(&[], Some(6000), &script(6000));
    assert_eq!(messages.len(), 1);
    assert_eq!((messages[0][3], messages[0][8..10].to_vec(), messages[0][11]), (NOMSG, vec![1, 1], 6000));
    assert_eq!(written[..12], [0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 0]);

    let (messages, written) = answer(&[], Some(6000), &script(6004));
    let [first, last] = &messages[..] else { panic!("{} messages", messages.len()) };
    assert_eq!((&first[..2], &first[3..9]), (&[3, 2][..], &[MSG, RESPONSE | MORE, 0, 0, 0, 0][..]));
    assert_eq!((&last[..2], &last[3..10], last[11]), (&[3, 2][..], &[MSG, RESPONSE, 0, 0, 0, 1, 1][..], 0));
    assert_eq!(4 * (first.len() - 9 + last.len() - 14), 6004);
    assert_eq!(written, vec![UNWRITTEN; 6000]);
}

/// §6.4: a call provides a Reply chunk if its reply may be longer than the continued messages that the requester
/// accepts, and Write chunks for its results.
#[test]
fn resources_for_the_longest_reply() {
    for (longest, expected) in [(65_536, vec![0]), (65_540, vec![1, 1, 65_540])] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&Script { reply_inline: longest - 16, results: vec![(0, 7000)], ..Script::default() });
        let call = facing.next().unwrap();
        assert_eq!((&call[6..9], call[10], call[13]), (&[0, 1, 1][..], 7000, 0));
        let reply = [&call[14..15], &call[15..16], &call[17..18]].concat();
        assert_eq!(reply[..expected.len()], expected);
    }
}

/// §6.4, §7.3.4: RDMA2_ERR_WRITE_RESOURCE names the first Write chunk that is too short, counted from one, and the
/// length of its result. A chunk of exactly that length suffices.
#[test]
fn first_write_chunk_that_is_too_short() {
    let script =
        |lens: &[usize]| Script { results: lens.iter().map(|&len| (len, len as u64)).collect(), ..Script::default() };
    for (lens, expected) in [
        (&[40, 61, 81][..], vec![2, 61]),
        (&[41, 61, 81], vec![1, 41]),
        (&[40, 60, 5000], vec![3, 5000]),
        (&[40, 60, 81], vec![3, 81]),
    ] {
        let (messages, _) = answer(&[40, 60, 80], None, &script(lens));
        assert_eq!(messages.len(), 1);
        assert_eq!(messages[0][3..], [&[ERROR, RESPONSE, 9][..], &expected].concat());
    }
    let (messages, _) = answer(&[40, 60, 80], None, &script(&[40, 60, 80]));
    assert_eq!((messages.len(), messages[0][3]), (1, MSG));
}

/// §7.3.4: both numbers in RDMA2_ERR_WRITE_RESOURCE are zero for a result without a Write chunk.
#[test]
fn result_without_a_write_chunk() {
    let mut facing = server();
    facing.send(&plain(3, CREDIT, 0, 1));
    let call = take_call(&mut facing.engine).unwrap();
    let mut reply = Script::default().reply(std::iter::empty());
    reply.reduced.push(ReducedItem { position: 12, chunk: 0, data: vec![1; 40].into() });
    facing.engine.conn.reply(call.token, reply);
    facing.run();
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 9, 0, 0]);
}

/// §7.3.5: without continuation, a call whose reply does not fit in one Send gets RDMA2_ERR_REPLY_RESOURCE with the
/// length of the reply.
#[test]
fn reply_that_cannot_be_continued() {
    for (len, fits) in [(4060, true), (4064, false), (20_000, false)] {
        let mut config = EngineConfig::default();
        config.reverse_direction = ReverseDirection::Simple;
        let mut facing = Facing::new(Role::Client, config);
        facing.send(&plain(3, CREDIT, 0, 1));
        let call = take_call(&mut facing.engine).unwrap();
        let script = Script { reply_inline: len - 12, ..Script::default() };
        facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
        facing.run();
        let answer = facing.next().unwrap();
        if fits {
            assert_eq!((answer[3], answer[4], answer.len()), (MSG, RESPONSE, 9 + len / 4));
        } else {
            assert_eq!(answer[3..], [ERROR, RESPONSE, 10, len as u32]);
        }
    }
}

/// §7.3.1 to §7.3.3: the supported number of chunks and segments is accepted. One more chunk or segment is refused,
/// wherever it is in the header.
#[test]
fn limits_of_chunks_and_segments() {
    let limited = |max_chunks, max_segments| {
        let mut config = EngineConfig::default();
        (config.max_chunks, config.max_segments) = (max_chunks, max_segments);
        Facing::new(Role::Server, config)
    };
    let mut facing = limited(2, 5);
    facing.send(&with_chunks(&[&[4, 4], &[4]], Some(&[4, 4])));
    assert!(take_call(&mut facing.engine).is_some(), "five segments refused");
    for words in
        [with_chunks(&[], Some(&[4; 6])), with_chunks(&[&[4; 3]], Some(&[4; 3])), with_chunks(&[&[4; 6]], None)]
    {
        let words = [&[4][..], &words[1..words.len() - 3], &[4, 0, 1]].concat();
        refused(&mut facing, &words, &[8, 5]);
    }
    // A Position-Zero Read chunk contains the call, and is no Read chunk of an argument.
    let mut words = reads(NOMSG, 0, &[0, 4, 8]);
    let (handle, offset) = facing.raw.source(&[5u32, 0, 1].map(u32::to_be_bytes).concat());
    words[0] = 5;
    for (at, len) in [(8, 12), (14, 4), (20, 4)] {
        words[at] = handle;
        words[at + 1] = len;
        (words[at + 2], words[at + 3]) = ((offset >> 32) as u32, offset as u32);
    }
    facing.send(&words);
    let call = take_call(&mut facing.engine).expect("two Read chunks refused");
    assert_eq!((call.xid, call.reads().len()), (5, 2));

    // A responder that supports no chunks says so.
    let mut facing = limited(0, 0);
    refused(&mut facing, &[reads(MSG, 0, &[12]), vec![3, 0, 1]].concat(), &[8, 0]);
    let mut facing = limited(0, 5);
    refused(&mut facing, &[reads(MSG, 0, &[12]), vec![3, 0, 1]].concat(), &[6, 0]);
    refused(&mut facing, &with_chunks(&[&[4]], None), &[7, 0]);
    serves(&mut facing);
}

/// §7.3.3: a call whose segments do not fit in the header of its reply gets RDMA2_ERR_SEGMENTS with a number that fits.
#[test]
fn segments_that_do_not_fit_in_the_reply() {
    // The peer receives 1024 bytes: 24 in front of the lists, 20 in them besides segments, 4 more with a Reply chunk,
    // and a word of payload behind them.
    for (writes, reply, fits) in [(61, None, true), (62, None, false), (30, Some(30), true), (30, Some(31), false)] {
        let mut facing = Facing::said(Role::Server, EngineConfig::default(), &[(2, &[1024])]);
        let reply = reply.map(|segments| vec![4; segments]);
        let words = with_chunks(&[&vec![4; writes]], reply.as_deref());
        if fits {
            facing.send(&words);
            assert!(take_call(&mut facing.engine).is_some(), "{writes} segments refused");
        } else {
            refused(&mut facing, &words, &[8, 40]);
        }
    }
}

/// §7.2.1: segments whose end overflows, invalid positions, and chunk lists that are cut off are refused.
#[test]
fn malformed_chunks() {
    let mut facing = server();
    for list in 0..2 {
        let mut words = with_chunks(&[&[8, 8]], Some(&[8, 8]));
        let at = [9 + 4, 9 + 8 + 3 + 4][list];
        (words[at + 1], words[at + 2], words[at + 3]) = (8, u32::MAX, u32::MAX - 6);
        refused(&mut facing, &words, &[2]);
    }
    let inline = |positions: &[u32]| [reads(MSG, 0, positions), vec![3, 0, 1]].concat();
    // Positions that are not multiples of four, in the first and in a later segment; beyond the stream; in another
    // chunk.
    for positions in [&[6][..], &[4, 7], &[4, 16, 24], &[12, 20]] {
        refused(&mut facing, &inline(positions), &[2]);
    }
    let mut overlap = inline(&[4, 8]);
    overlap[9] = 5;
    refused(&mut facing, &overlap, &[2]);
    // A list that ends within a segment, and one that ends before its last word.
    let whole = with_chunks(&[&[8]], Some(&[8]));
    for len in [8, 10, 13, 15, 18] {
        refused(&mut facing, &whole[..len], &[2]);
    }
    serves(&mut facing);
}

/// §7: the error for a served call has the XID and version of the call, and grants credits as other messages do.
#[test]
fn error_of_a_served_call() {
    let mut facing = server();
    facing.send(&plain(9, CREDIT, 0, 1));
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply_error(call.token, TransportError::System);
    facing.run();
    assert_eq!(facing.next().unwrap(), [9, 2, 32 << 16 | 1, ERROR, RESPONSE, 100]);
}
