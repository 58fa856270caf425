//! The exchange of properties: its messages and its end (RPC-over-RDMA v2 §6.2.2.3, §6.3.4).

use rpcrdma_proto::engine::Engine as _;
use std::sync::Arc;

use rpcrdma_proto::engine::{
    CallFailure, CloseReason, EngineConfig, Extension, ExtensionFactory, ExtensionProperty, Role,
};

use super::{
    refusals::{refused, serves},
    scripted::{CONNPROP, CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, XID, connprop, plain},
};
use crate::support::{Script, take_call};

/// An extension with `count` properties of `words` words each, numbered from 5000.
#[derive(Debug, Clone, Copy)]
struct Announced {
    count: u32,
    words: usize,
}

impl ExtensionFactory for Announced {
    fn extension(&self, _: Role) -> Box<dyn Extension> {
        Box::new(*self)
    }
}

impl Extension for Announced {
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        let words = vec![0u32; self.words];
        (0..self.count).map(|n| ExtensionProperty { which: 5000 + n, value: words_as_bytes(&words) }).collect()
    }
}

fn words_as_bytes(words: &[u32]) -> bytes::Bytes {
    words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>().into()
}

fn announces(count: u32, words: usize) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.extensions.push(Arc::new(Announced { count, words }));
    config
}

/// Returns the messages with which this role announces its properties.
fn announced(role: Role, config: EngineConfig) -> Vec<Vec<u32>> {
    let mut facing = Facing::silent(role, config);
    facing.call(&Script::default());
    if role == Role::Server {
        assert!(facing.raw.received.is_empty(), "a server's message before the client's first");
    }
    facing.send(&connprop(7, TPMORE, &[]));
    std::iter::from_fn(|| facing.raw.next()).collect()
}

/// §6.3.4: the first message is RDMA2_CONNPROP, and no message of the exchange exceeds the default inline threshold.
/// RDMA2_F_TPMORE is set in all of them except the last. A client's first message has at most 1024 bytes (§4.2.3).
#[test]
fn many_properties() {
    let roles = [(Role::Client, 4096), (Role::Client, 16_384), (Role::Server, 4096), (Role::Server, 16_384)];
    // Lengths around those with which the messages are full.
    for (count, words) in std::iter::once((1400, 1)).chain((220..260).chain(970..1010).map(|words| (3, words))) {
        for (role, send_size) in roles {
            let mut config = announces(count, words);
            config.send_size = send_size;
            let messages = announced(role, config);
            let (last, others) = messages.split_last().expect("no properties");
            assert!(!others.is_empty() && others.iter().all(|words| words[4] == TPMORE) && last[4] == 0);
            let first = if role == Role::Client { 1024 } else { 4096 };
            assert!(4 * messages[0].len() <= first, "{} words", messages[0].len());
            let mut numbers = Vec::new();
            for message in &messages {
                assert_eq!(message[3], CONNPROP);
                assert!(4 * message.len() <= 4096, "{} words", message.len());
                let mut rest = &message[6..];
                for _ in 0..message[5] {
                    numbers.push(rest[0]);
                    rest = &rest[2 + rest[1] as usize / 4..];
                }
                assert!(rest.is_empty());
            }
            numbers.retain(|&number| number >= 5000);
            assert_eq!(numbers, (5000..5000 + count).collect::<Vec<_>>());
        }
    }
}

/// §6.2.2.3: RDMA2_F_TPMORE in a header type other than RDMA2_CONNPROP gets RDMA2_ERR_INVAL_HTYPE, during the exchange
/// and after it.
#[test]
fn more_properties_flag_in_other_header_types() {
    for is_done in [false, true] {
        let mut facing = Facing::silent(Role::Server, EngineConfig::default());
        facing.send(&connprop(7, if is_done { 0 } else { TPMORE }, &[]));
        facing.raw.received.clear();
        for htype in [MSG, NOMSG, 2, 77] {
            let mut words = plain(3, CREDIT, 0, 1);
            (words[3], words[4]) = (htype, TPMORE);
            refused(&mut facing, &words, &[4]);
        }
        refused(&mut facing, &[0, 2, CREDIT, NOMSG, TPMORE, 0, 0, 0, 0], &[4]);
        assert_eq!(facing.engine.conn.counters().grants_received, 0);
        if !is_done {
            facing.send(&connprop(7, 0, &[]));
        }
        serves(&mut facing);
    }
}

/// §6.2.2.3: an RDMA2_CONNPROP after the peer's last RDMA2_CONNPROP gets RDMA2_ERR_INVAL_HTYPE, whatever its flags and
/// content. Its properties are not applied.
#[test]
fn properties_after_the_last_one() {
    for role in [Role::Client, Role::Server] {
        let mut facing = Facing::said(role, EngineConfig::default(), &[(2, &[8192]), (5, &[3])]);
        for flags in [0, TPMORE, MORE, MORE | TPMORE] {
            let contents: [&[(u32, &[u32])]; 3] = [&[], &[(2, &[2048])], &[(2, &[1])]];
            for properties in contents {
                refused(&mut facing, &connprop(3, flags, properties), &[4]);
            }
        }
        let limits = facing.engine.conn.peer_limits();
        assert_eq!((limits.properties.unwrap().receive_size, limits.send_threshold), (8192, 4096));
        serves(&mut facing);
        facing.call(&Script { inline: 4096 - 36 - 12, ..Script::default() });
        assert_eq!(facing.next().expect("no call")[4], 0, "a later property was applied");
    }
}

/// §6.2.2.3: while a server waits for credits to send its own properties, it refuses calls. It also refuses any
/// RDMA2_CONNPROP after the client's last RDMA2_CONNPROP.
#[test]
fn properties_after_the_last_one_before_the_end_of_the_exchange() {
    let mut facing = Facing::silent(Role::Server, announces(1, 900));
    let mut last = connprop(7, 0, &[(2, &[8192])]);
    last[2] = 16 << 16 | 1;
    facing.send(&last);
    assert_eq!(facing.raw.next().unwrap()[3..5], [CONNPROP, TPMORE]);
    assert!(facing.raw.next().is_none());
    let mut call = plain(3, 16 << 16, 0, 1);
    facing.send(&call);
    let mut late = connprop(8, 0, &[(2, &[2048])]);
    late[2] = CREDIT;
    facing.send(&late);
    assert!(take_call(&mut facing.engine).is_none(), "call accepted before the last local property was sent");
    let messages = [(); 3].map(|()| facing.next().expect("no response"));
    assert_eq!(messages[0][3..5], [CONNPROP, 0]);
    assert_eq!((messages[1][0], &messages[1][3..]), (3, &[ERROR, RESPONSE, 100][..]));
    assert_eq!((messages[2][0], &messages[2][3..]), (8, &[ERROR, RESPONSE, 4][..]));
    assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().receive_size, 8192);
    call[2] = CREDIT;
    facing.send(&call);
    assert!(take_call(&mut facing.engine).is_some());
}

/// §6.2.2.3: a call that arrives right after the client's last property is refused if the server has not sent its own
/// properties.
#[test]
fn call_right_behind_the_last_property() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.raw.send(&connprop(7, 0, &[]), &[]);
    facing.raw.send(&plain(3, CREDIT, 0, 1), &[]);
    facing.run();
    assert!(take_call(&mut facing.engine).is_none());
    assert_eq!(facing.next().unwrap()[3], CONNPROP);
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 100]);
    serves(&mut facing);
}

/// §6.2.2.3: a reply before the peer's last property is discarded without an error.
#[test]
fn reply_before_the_last_property() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 4, ..Script::default() });
    facing.send(&connprop(7, TPMORE, &[]));
    facing.raw.received.clear();
    for mut reply in [plain(1, CREDIT, 1, 4), plain(XID + 1, CREDIT, 1, 4)] {
        facing.send(&reply);
        reply[3] = NOMSG;
        facing.send(&reply);
    }
    assert_eq!(facing.engine.conn.counters().messages_discarded, 4);
    assert!(facing.next().is_none() && facing.finished().is_none());
    facing.send(&connprop(7, 0, &[]));
    let call = facing.next().expect("no call");
    facing.send(&plain(call[0], CREDIT, 1, 4));
    facing.finished().unwrap().unwrap();
}

/// §7.2.2: a client and a server refuse a malformed value of each property. No property of the message with the
/// malformed value is applied, and this message does not end the exchange.
#[test]
fn malformed_value_of_each_property() {
    for role in [Role::Client, Role::Server] {
        for which in 1..=6 {
            // Seven, eight and three bytes; and a count of material that is longer than the value.
            let values: [&[u32]; 3] = [&[which, 7, 8192, 0], &[which, 8, 8192, 1 << 24], &[which, 3, 0x0102_0300]];
            for value in values {
                let mut facing = Facing::silent(role, EngineConfig::default());
                facing.send(&connprop(7, TPMORE, &[]));
                facing.raw.received.clear();
                let words = [&[3, 2, CREDIT, CONNPROP, 0, 2, 4, 4, 77][..], value].concat();
                refused(&mut facing, &words, &[3]);
                assert_eq!(facing.engine.conn.peer_limits().properties, None, "exchange over after {value:?}");
                facing.send(&connprop(7, 0, &[]));
                assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().segments, 16, "{value:?}");
            }
        }
    }
}

/// §6.3.4: properties that the receiver does not know are ignored without an error, whatever their values.
#[test]
fn unknown_properties() {
    for role in [Role::Client, Role::Server] {
        let mut facing = Facing::silent(role, EngineConfig::default());
        facing.send(&connprop(7, TPMORE, &[(0, &[]), (7, &[1]), (1 << 31, &[1, 2, 3]), (2, &[8192]), (u32::MAX, &[])]));
        facing.send(&connprop(7, 0, &[(8, &[9; 100])]));
        while let Some(words) = facing.next() {
            assert_eq!(words[3], CONNPROP);
        }
        assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().receive_size, 8192);
    }
}

/// §7.1.2, §7.2.2: a peer that refuses the local properties gets no calls. The connection is closed.
#[test]
fn refused_properties() {
    for code in [2, 3, 4, 5, 100] {
        let mut facing = Facing::silent(Role::Client, EngineConfig::default());
        facing.call(&Script::default());
        let xid = facing.raw.next().expect("no properties")[0];
        facing.send(&[xid, 2, CREDIT, ERROR, RESPONSE, code]);
        assert!(facing.raw.next().is_none(), "a message after error {code}");
        let failure = facing.finished().expect("call not finished").unwrap_err();
        let CallFailure::Closed { reason: CloseReason::NegotiationFailed { .. }, sent: false } = failure else {
            panic!("{failure:?} after error {code}")
        };
    }
}
