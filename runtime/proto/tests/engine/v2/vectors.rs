//! The messages that the engine sends, word by word, for each header type (RPC-over-RDMA v2 §6.2, §6.3).

use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{EngineConfig, Role},
    provider::sim::SimEnd,
};

use super::scripted::{CONNPROP, CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, XID, connprop, plain};
use crate::support::{Script, join, take_call, word};

/// A credit field without new credits: the maximum number of credits, 32, is in the high half.
const MAX_CREDITS: u32 = 32 << 16;

fn client() -> Facing {
    let mut config = EngineConfig::default();
    config.max_segment_len = 3000;
    Facing::new(Role::Client, config)
}

/// §6.3.4: RDMA2_CONNPROP consists of the prefix, the number of properties, and the code and opaque value of each
/// property.
#[test]
fn rdma2_connprop() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.run();
    let expected = [XID, 2, MAX_CREDITS | 32, CONNPROP, 0, 3, 3, 4, u32::MAX, 4, 4, 256, 5, 4, 3];
    assert_eq!(facing.raw.next().unwrap(), expected);
}

/// §6.3.1: a call and a reply without chunks and without a handle to invalidate.
#[test]
fn rdma2_msg() {
    let mut facing = client();
    facing.call(&Script { number: 9, inline: 4, ..Script::default() });
    let words = facing.next().unwrap();
    let xid = XID + 1;
    // The credit that the exchange of properties used is granted again.
    assert_eq!(words[..12], [xid, 2, MAX_CREDITS | 1, MSG, 0, 0, 0, 0, 0, xid, 0, 9]);
    assert_eq!(words.len(), 13);

    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    facing.send(&plain(5, CREDIT, 0, 9));
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply(call.token, Script { number: 9, ..Script::default() }.reply(std::iter::empty()));
    facing.run();
    assert_eq!(facing.next().unwrap(), [5, 2, MAX_CREDITS | 1, MSG, RESPONSE, 0, 0, 0, 0, 5, 1, 9]);
}

/// §6.2.3: a Read chunk of two segments, two Write chunks, and the handle that the reply may invalidate. §4.3.5,
/// §4.3.5.2: the segments of the Read chunk have the position of its item, and together its length.
#[test]
fn rdma2_msg_with_chunks() {
    let mut facing = client();
    let args = vec![5001];
    let results = vec![(4, 2001), (4, 5003)];
    facing.call(&Script { number: 9, args, reduce: true, results, ..Script::default() });
    let words = facing.next().unwrap();
    let handle = words[8];
    assert_eq!((words[4], words[5]), (0, handle));
    // Each entry has 1, position, handle, length and offset.
    assert_eq!([words[6], words[7], words[9]], [1, 16, 3000]);
    assert_eq!([words[12], words[13], words[14], words[15]], [1, 16, handle, 2001]);
    assert_eq!(join(words[16], words[17]), join(words[10], words[11]) + 3000);
    // The end of the Read list, a Write chunk of one segment, and one of two. §4.3.6.2: without room for padding.
    assert_eq!([words[18], words[19], words[20], words[22]], [0, 1, 1, 2001]);
    assert_eq!([words[25], words[26], words[28], words[32]], [1, 2, 3000, 2003]);
    assert_eq!(words[31], words[27]);
    assert_eq!(join(words[33], words[34]), join(words[29], words[30]) + 3000);
    // The end of the Write list, no Reply chunk, and the payload.
    assert_eq!(words[35..], [0, 0, XID + 1, 0, 9, 5001]);
}

/// §6.3.2: Special Format with a Position-Zero Read chunk, a Reply chunk and no payload; and a reply in a Reply chunk.
/// Both chunks of the call have several segments.
#[test]
fn rdma2_nomsg() {
    let mut config = EngineConfig::default();
    (config.max_continued, config.max_segment_len) = (0, 2000);
    let mut facing = Facing::new(Role::Client, config);
    facing.call(&Script { number: 9, inline: 5000, reply_inline: 6000, ..Script::default() });
    let words = facing.next().unwrap();
    assert_eq!(words[..5], [XID + 1, 2, MAX_CREDITS | 1, NOMSG, 0]);
    // §4.4.3: each segment has position zero.
    let handle = words[8];
    assert_eq!(words[5], handle);
    for (n, len) in [2000, 2000, 1012].into_iter().enumerate() {
        assert_eq!(words[6 + 6 * n..][..4], [1, 0, handle, len], "read segment {n}");
    }
    assert_eq!(words[24..28], [0, 0, 1, 4]);
    assert_eq!([words[29], words[33], words[37], words[41]], [2000, 2000, 2000, 12]);
    assert_eq!(words.len(), 44);

    // The reply returns the Reply chunk with the length in use.
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    let (handle, offset) = facing.raw.sink(6000);
    let [high, low] = [(offset >> 32) as u32, offset as u32];
    facing.send(&[5, 2, CREDIT, MSG, 0, handle, 0, 0, 1, 1, handle, 6000, high, low, 5, 0, 9]);
    let call = take_call(&mut facing.engine).unwrap();
    let script = Script { number: 9, reply_inline: 5000, ..Script::default() };
    facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
    facing.run();
    let (bytes, invalidated) = facing.raw.received.pop_front().unwrap();
    assert_eq!(invalidated.map(|handle| handle.0), Some(handle));
    let words: Vec<u32> = bytes.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, [5, 2, MAX_CREDITS | 1, NOMSG, RESPONSE, 0, 0, 0, 1, 1, handle, 5012, high, low]);
    assert_eq!(facing.network.registered(SimEnd::A), 1);
    assert_eq!(facing.raw.take_back(handle)[..12], [0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 9]);
}

/// §6.3.2: a message that only grants credits is RDMA2_NOMSG with XID zero and without chunks.
#[test]
fn rdma2_nomsg_that_grants_credits() {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (4, 0);
    let mut facing = Facing::silent(Role::Server, config);
    facing.send(&connprop(1, 0, &[]));
    facing.raw.received.clear();
    for _ in 0..2 {
        facing.send(&[5, 2, CREDIT, MSG, MORE, 0, 0, 0, 0, 5, 0]);
    }
    assert_eq!(facing.raw.next().unwrap(), [0, 2, 4 << 16 | 2, NOMSG, 0, 0, 0, 0, 0]);
}

/// §6.3.3: RDMA2_ERROR consists of the prefix, the code of the error, and the data of the code, if any.
#[test]
fn rdma2_error() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    facing.send(&[5, 2, CREDIT, 77, 0]);
    assert_eq!(facing.next().unwrap(), [5, 2, MAX_CREDITS | 1, ERROR, RESPONSE, 4]);
    facing.send(&[6, 9, CREDIT, MSG, 0]);
    assert_eq!(facing.next().unwrap(), [6, 9, MAX_CREDITS | 1, ERROR, RESPONSE, 1, 2, 2]);
}

/// §6.2.2.2: a continued message has RDMA2_F_MORE in all parts except the last, which has the chunks. §4.1: the parts
/// have the order of the payload, and each of them follows a header.
#[test]
fn rdma2_msg_continued() {
    let mut facing = client();
    let script = Script { number: 9, inline: 10_000, results: vec![(0, 5000)], ..Script::default() };
    let mut message = script.outgoing(&facing.engine.conn, facing.now).message;
    message[..4].copy_from_slice(&(XID + 1).to_be_bytes());
    facing.call(&script);
    let messages: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
    assert_eq!(messages.len(), 3);
    for (part, new) in messages[..2].iter().zip([1, 0]) {
        assert_eq!(part[..9], [XID + 1, 2, MAX_CREDITS | new, MSG, MORE, 0, 0, 0, 0]);
        assert_eq!(part.len(), 1024);
    }
    // One Write chunk of two segments.
    assert_eq!(messages[2][..5], [XID + 1, 2, MAX_CREDITS, MSG, 0]);
    assert_eq!(messages[2][6..9], [0, 1, 2]);
    assert_eq!(messages[2][17..19], [0, 0]);
    let payload = [&messages[0][9..], &messages[1][9..], &messages[2][19..]].concat();
    assert_eq!(payload, (0..message.len() / 4).map(|n| word(&message, n)).collect::<Vec<_>>());
}

/// §6.3.1: the last message of a sequence has payload, even if the earlier messages have room for the whole payload.
#[test]
fn rdma2_msg_continued_with_payload_to_the_end() {
    for inline in [4048, 4044, 4052] {
        let mut facing = client();
        facing.call(&Script { inline, results: vec![(0, 9000)], ..Script::default() });
        let messages: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
        let [first, last] = &messages[..] else { panic!("{} messages", messages.len()) };
        assert_eq!((first[4], last[4], &last[6..9]), (MORE, 0, &[0, 1, 3][..]));
        // Three segments, the end of the Write list, and no Reply chunk.
        let payload = [first.len() - 9, last.len() - (9 + 12 + 2)];
        assert_eq!(4 * (payload[0] + payload[1]), inline + 12);
        assert!(payload[1] > 0);
    }
}
