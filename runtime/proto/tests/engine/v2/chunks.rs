//! The chunks of calls and replies, word by word (RPC-over-RDMA v2 §4.3, §4.4).

use bytes::Bytes;
use rpcrdma::xdr::ReducedItem;
use rpcrdma_proto::engine::{CallFailure, Engine as _, EngineConfig, IncomingCall, MessageFormat, Role};

use super::scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, connprop};
use crate::support::{Script, pattern, split, take_call};

fn server() -> Facing {
    Facing::new(Role::Server, EngineConfig::default())
}

/// Returns the words of segments with these lengths, which follow one another in memory.
fn segments(handle: u32, mut offset: u64, lens: &[u32]) -> Vec<u32> {
    let mut words = Vec::new();
    for &len in lens {
        let [high, low] = split(offset);
        words.extend([handle, len, high, low]);
        offset += u64::from(len);
    }
    words
}

/// Sends a call with these Write chunks and this Reply chunk, each given by the words of its segments. Returns the call
/// as the upper layer gets it.
fn arrive(facing: &mut Facing, writes: &[Vec<u32>], reply: Option<&[u32]>) -> IncomingCall {
    let mut words = vec![3, 2, CREDIT, MSG, 0, 0, 0];
    for chunk in writes {
        words.extend([1, chunk.len() as u32 / 4]);
        words.extend(chunk);
    }
    words.push(0);
    match reply {
        None => words.push(0),
        Some(chunk) => {
            words.extend([1, chunk.len() as u32 / 4]);
            words.extend(chunk);
        }
    }
    words.extend([3, 0, 9]);
    facing.send(&words);
    take_call(&mut facing.engine).expect("no call")
}

/// §4.3.4.4: a Write chunk has one result. A second result for the same chunk is an error, and nothing is written.
#[test]
fn one_result_per_write_chunk() {
    let mut facing = server();
    let (handle, offset) = facing.raw.sink_of(vec![0; 100]);
    let call = arrive(&mut facing, &[segments(handle, offset, &[100])], None);
    let script = Script { results: vec![(5, 50), (6, 50)], ..Script::default() };
    let mut reply = script.reply([true, true].into_iter());
    reply.reduced[1].chunk = 0;
    facing.engine.conn.reply(call.token, reply);
    facing.run();
    assert_eq!(facing.next().expect("no response")[3..], [ERROR, RESPONSE, 9, 1, 6]);
    assert_eq!(facing.raw.take_back(handle), [0; 100]);
}

/// §4.3.6: a result fills the segments of its Write chunk one after the other. The reply returns all chunks and
/// segments with the lengths that were written. §4.3.6.2: no padding is written, even if there is room for it, and a
/// chunk without such room suffices.
#[test]
fn results_are_written_without_padding() {
    for (lens, written) in [(&[3, 4, 5][..], [3, 2, 0].as_slice()), (&[3, 2], &[3, 2]), (&[0, 5, 3], &[0, 5, 0])] {
        let mut facing = server();
        let room = lens.iter().sum::<u32>() as usize;
        let (handle, offset) = facing.raw.sink_of(vec![0xff; room]);
        let (other, other_offset) = facing.raw.sink_of(vec![0; 8]);
        let chunks = [segments(handle, offset, lens), Vec::new(), segments(other, other_offset, &[4, 4])];
        let call = arrive(&mut facing, &chunks, None);
        let script = Script { number: 9, results: vec![(5, room as u64)], ..Script::default() };
        facing.engine.conn.reply(call.token, script.reply([true].into_iter()));
        facing.run();
        let reply = facing.next().expect("no reply");
        let mut returned = [&[1, lens.len() as u32], &chunks[0][..], &[1, 0, 1, 2], &chunks[2][..], &[0, 0]].concat();
        for (n, &len) in written.iter().enumerate() {
            returned[2 + 4 * n + 1] = len;
        }
        let unused = 2 + 4 * lens.len() + 4;
        (returned[unused + 1], returned[unused + 5]) = (0, 0);
        assert_eq!(reply[3..7], [MSG, RESPONSE, 0, 0]);
        assert_eq!(reply[7..], [&returned[..], &[3, 1, 9, 5]].concat());
        let memory = facing.raw.take_back(handle);
        assert_eq!(memory[..5], script.result(0)[..]);
        assert!(memory[5..].iter().all(|&byte| byte == 0xff), "{memory:?}");
        assert_eq!(facing.raw.take_back(other), [0; 8]);
    }
}

/// §4.4.3: a payload stream that exceeds the threshold goes into the Reply chunk. It is continued instead if the chunk
/// is too short. A payload stream within the threshold is sent inline. In the last two cases, the reply returns the
/// chunk unused.
#[test]
fn payload_streams_in_the_reply_chunk() {
    // The header of a reply with a Reply chunk of one segment has 56 bytes.
    let longest = 4096 - 56;
    for (len, room, htype, used) in [
        (longest, longest + 4, MSG, 0),
        (longest + 4, longest + 4, NOMSG, longest + 4),
        (longest + 4, 9000, NOMSG, longest + 4),
        (longest + 4, longest, MSG, 0),
        (70_000, 70_000, NOMSG, 70_000),
        (70_000, 69_996, MSG, 0),
    ] {
        let mut facing = server();
        let (handle, offset) = facing.raw.sink(room);
        let call = arrive(&mut facing, &[], Some(&segments(handle, offset, &[room as u32])));
        let script = Script { number: 9, reply_inline: len - 12, ..Script::default() };
        facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
        facing.run();
        let messages: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
        let (last, before) = messages.split_last().expect("no reply");
        let is_continued = htype == MSG && len > longest;
        assert_eq!(before.is_empty(), !is_continued, "{len} bytes, room for {room}");
        assert!(before.iter().all(|words| words[4] == RESPONSE | MORE && words[5..9] == [0; 4]));
        assert_eq!(last[3..10], [htype, RESPONSE, 0, 0, 0, 1, 1], "{len} bytes, room for {room}");
        assert_eq!(last[10..12], [handle, used as u32]);
        assert_eq!(last.len() == 14, htype == NOMSG);
    }
}

/// §4.3.5: a Read chunk consists of the segments with its position. Their data is concatenated in the order of the
/// list, even if their lengths are not multiples of four and segments of other chunks come between them.
#[test]
fn segments_of_a_read_chunk() {
    let mut facing = server();
    let (first, second) = (pattern(1, 11), pattern(2, 4));
    let (handle, offset) = facing.raw.source(&first);
    let (other, other_offset) = facing.raw.source(&second);
    let read = |position: u32, handle, offset, len| [&[1, position], &segments(handle, offset, &[len])[..]].concat();
    // Both items are opaque items with a count. The first has 11 bytes and a byte of padding.
    let words = [
        vec![3, 2, CREDIT, MSG, 0, 0],
        read(16, handle, offset, 3),
        read(32, other, other_offset, 4),
        read(16, handle, offset + 3, 5),
        read(16, handle, offset + 8, 3),
        vec![0, 0, 0, 3, 0, 9, 11, 4],
    ];
    facing.send(&words.concat());
    let call = take_call(&mut facing.engine).expect("no call");
    let reads: Vec<_> = call.reads().iter().map(|read| (read.position, read.data.clone())).collect();
    assert_eq!(reads, [(16, first), (32, second)]);
    assert_eq!(call.format, MessageFormat::Chunked);
    assert_eq!(call.payload.as_slice().len(), 20);
}

/// §4.3.5: a call with an item at a position that is not a multiple of four is not sent.
#[test]
fn unaligned_items_are_not_sent() {
    for position in [17, 18, 19] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        let script = Script { args: vec![2000], reduce: true, ..Script::default() };
        let mut call = script.outgoing(&facing.engine.conn, facing.now);
        let item = ReducedItem { position, chunk: 0, data: Bytes::from(vec![0; 2000]) };
        call.reduced[0] = item;
        facing.engine.conn.start_call(call);
        facing.run();
        let failure = facing.finished().expect("call not finished").unwrap_err();
        assert!(matches!(failure, CallFailure::Malformed(_)), "{failure}");
        assert!(facing.next().is_none());
    }
}

/// §5.2.4: a responder accepts as many segments as it announced.
#[test]
fn as_many_segments_as_announced() {
    let mut config = EngineConfig::default();
    config.max_segments = 5;
    let mut facing = Facing::silent(Role::Server, config);
    facing.send(&connprop(7, 0, &[]));
    assert_eq!(facing.next().expect("no properties")[5..], [2, 3, 4, u32::MAX, 4, 4, 5]);
    let (handle, offset) = facing.raw.sink(20);
    let call = arrive(&mut facing, &[segments(handle, offset, &[4; 5])], None);
    assert_eq!(call.reply().write_chunks[..], [Some(20)]);
}

/// §4.4.1.1: a reply with a Read list fails its call.
#[test]
fn reply_with_a_read_list() {
    for is_bad in [true, false] {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        facing.call(&Script { number: 4, ..Script::default() });
        let xid = facing.next().expect("no call")[0];
        let read = if is_bad { [&[1, 12], &segments(1, 0, &[4])[..]].concat() } else { Vec::new() };
        facing.send(&[&[xid, 2, CREDIT, MSG, RESPONSE, 0], &read[..], &[0, 0, 0, xid, 1, 4]].concat());
        let result = facing.finished().expect("call not finished");
        assert_eq!(matches!(result, Err(CallFailure::BadReply(_))), is_bad, "{result:?}");
        assert!(facing.next().is_none());
    }
}
