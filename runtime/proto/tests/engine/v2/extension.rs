//! Extensions: header types, properties and errors from an application's own `.x` file (RPC-over-RDMA v2 appendix B).

use rpcrdma_proto::engine::Engine as _;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rpcrdma::xdr::{Decoder, XdrDecode};
use rpcrdma_proto::engine::{
    CallFailure, EngineConfig, Extension, ExtensionFactory, ExtensionMessage, ExtensionOutcome, ExtensionProperty,
    FormatChoice, FormatReason, MessageFormat, Role, RpcMessage, TransportError,
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, ERROR, Facing, RESPONSE, TPMORE, connprop, plain},
};
use crate::support::{self, Script};

mod load {
    //! An extension with which peers report their load to each other: a header type, a property and an error code.
    rpcrdma::xdr! {
        const LOAD_REPORT = 1000;
        const LOAD_PROPID = 2000;
        const LOAD_ERR_TOO_MUCH = 3000;

        /* How often the sender wants reports. */
        struct load_interest { unsigned int interval; };

        struct load_report { unsigned int running; unsigned int waiting<>; };
    }
}
use load::{LOAD_ERR_TOO_MUCH, LOAD_PROPID, LOAD_REPORT, LoadInterest, LoadReport};

#[derive(Debug, Default)]
struct Seen {
    interests: Vec<u32>,
    reports: Vec<LoadReport>,
    errors: Vec<(u32, u32)>,
}

/// An extension for load reports, with a record of the properties, messages and errors that it received.
#[derive(Debug, Default)]
struct Load {
    seen: Arc<Mutex<Seen>>,
}

impl ExtensionFactory for Load {
    fn extension(&self, role: Role) -> Box<dyn Extension> {
        Box::new(LoadEnd { interval: if role == Role::Client { 5 } else { 7 }, seen: Arc::clone(&self.seen) })
    }
}

#[derive(Debug)]
struct LoadEnd {
    interval: u32,
    seen: Arc<Mutex<Seen>>,
}

impl Extension for LoadEnd {
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        vec![ExtensionProperty::new(LOAD_PROPID, &LoadInterest { interval: self.interval })]
    }

    fn check_property(&self, which: u32, value: &[u8]) -> bool {
        which != LOAD_PROPID || LoadInterest::decode(&mut Decoder::new(value)).is_ok()
    }

    fn property(&mut self, which: u32, value: &[u8]) -> ExtensionOutcome {
        if which != LOAD_PROPID {
            return ExtensionOutcome::Unknown;
        }
        match LoadInterest::decode(&mut Decoder::new(value)) {
            Ok(interest) => {
                self.seen.lock().unwrap().interests.push(interest.interval);
                ExtensionOutcome::Done(Vec::new())
            }
            Err(_) => ExtensionOutcome::Refused(TransportError::BadProperty),
        }
    }

    fn message(&mut self, message: &ExtensionMessage) -> ExtensionOutcome {
        if message.header_type != LOAD_REPORT {
            return ExtensionOutcome::Unknown;
        }
        match LoadReport::decode(&mut Decoder::new(&message.body)) {
            Ok(report) if report.running > 100 => {
                ExtensionOutcome::Refused(TransportError::Extension(LOAD_ERR_TOO_MUCH))
            }
            Ok(report) => {
                let answer = (report.running > 0).then(|| {
                    let mine = LoadReport { running: 0, waiting: report.waiting.clone() };
                    ExtensionMessage::new(LOAD_REPORT, message.xid, &mine)
                });
                self.seen.lock().unwrap().reports.push(report);
                ExtensionOutcome::Done(answer.into_iter().collect())
            }
            Err(_) => ExtensionOutcome::Refused(TransportError::BadXdr),
        }
    }

    fn error(&mut self, xid: u32, code: u32) -> bool {
        let known = code == LOAD_ERR_TOO_MUCH;
        if known {
            self.seen.lock().unwrap().errors.push((xid, code));
        }
        known
    }
}

fn with_load() -> (EngineConfig, Arc<Mutex<Seen>>) {
    let load = Load::default();
    let seen = Arc::clone(&load.seen);
    let mut config = EngineConfig::default();
    config.extensions.push(Arc::new(load));
    (config, seen)
}

/// Appendix B.2, B.4: if both peers have the extension, its property is exchanged with the other properties. Its
/// messages are exchanged between calls.
#[test]
fn both_peers_have_the_extension() {
    let ((client, client_seen), (server, server_seen)) = (with_load(), with_load());
    let mut duo = PeerPair::new(client, server, stepped());
    duo.one(CLIENT, Script::default()).unwrap();
    assert_eq!(
        (&client_seen.lock().unwrap().interests[..], &server_seen.lock().unwrap().interests[..]),
        (&[7][..], &[5][..])
    );
    let report = LoadReport { running: 3, waiting: vec![1, 2] };
    assert_eq!(ExtensionMessage::new(LOAD_REPORT, 9, &report).flags, 0);
    assert!(duo.sides[CLIENT].peer.conn.send_extension(ExtensionMessage::new(LOAD_REPORT, 9, &report)));
    duo.one(SERVER, Script { number: 1, ..Script::default() }).unwrap();
    assert_eq!(server_seen.lock().unwrap().reports, [report]);
    assert_eq!(client_seen.lock().unwrap().reports, [LoadReport { running: 0, waiting: vec![1, 2] }]);
    // Appendix B.5: an error code of the extension.
    let report = LoadReport { running: 101, waiting: vec![] };
    duo.sides[CLIENT].peer.conn.send_extension(ExtensionMessage::new(LOAD_REPORT, 10, &report));
    duo.run();
    assert_eq!(client_seen.lock().unwrap().errors, [(10, LOAD_ERR_TOO_MUCH)]);
}

/// §5.1, §6.1: a peer without the extension ignores its property and refuses its messages. Calls still work.
#[test]
fn one_peer_has_the_extension() {
    let (client, _) = with_load();
    let mut duo = PeerPair::new(client, EngineConfig::default(), stepped());
    duo.one(CLIENT, Script::default()).unwrap();
    duo.sides[CLIENT].peer.conn.send_extension(ExtensionMessage::new(LOAD_REPORT, 9, &LoadReport::default()));
    duo.one(CLIENT, Script { number: 1, ..Script::default() }).unwrap();
    assert_eq!(duo.sides[SERVER].peer.conn.counters().errors_sent, 1);
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().errors_received, 1);
    // §7.1.2: the header type is not sent again.
    let again = ExtensionMessage::new(LOAD_REPORT, 10, &LoadReport::default());
    assert!(!duo.sides[CLIENT].peer.conn.send_extension(again));
    duo.run();
    assert_eq!(duo.sides[SERVER].peer.conn.counters().errors_sent, 1);
}

/// §7.2.2, §7.2.1: malformed properties and messages of an extension are refused. Appendix B.5: an error of an
/// extension fails the call that it names.
#[test]
fn malformed_extension_messages() {
    let (config, seen) = with_load();
    let mut facing = Facing::silent(Role::Server, config.clone());
    facing.send(&connprop(3, TPMORE, &[]));
    facing.next().unwrap();
    facing.send(&connprop(3, 0, &[(LOAD_PROPID, &[])]));
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 3]);
    facing.send(&connprop(3, 0, &[(LOAD_PROPID, &[4])]));
    facing.send(&[5, 2, CREDIT, LOAD_REPORT, 0, 1, 7]);
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 2]);
    assert!(seen.lock().unwrap().reports.is_empty());

    let mut facing = Facing::new(Role::Client, config);
    facing.call(&Script::default());
    let call = facing.next().unwrap();
    facing.send(&[call[0], 2, CREDIT, ERROR, RESPONSE, LOAD_ERR_TOO_MUCH]);
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(matches!(failure, CallFailure::Refused(TransportError::Extension(LOAD_ERR_TOO_MUCH))));
}

/// Extensions cannot send the header types of the base protocol.
#[test]
fn base_header_types_cannot_be_sent() {
    let mut duo = PeerPair::plain();
    duo.run();
    for header_type in [0, 1, 4, 5] {
        let message = ExtensionMessage { header_type, ..ExtensionMessage::default() };
        assert!(!duo.sides[CLIENT].peer.conn.send_extension(message));
    }
}

mod wrapped {
    //! RPC messages with a checksum: a header type for them, and a property by which a peer announces that it supports
    //! the header type.
    rpcrdma::xdr! {
        const WRAPPED_MSG = 1001;
        const WRAPPED_PROPID = 2001;

        struct wrapped_msg { unsigned int sum; opaque rpc<>; };
    }
}
use wrapped::{WRAPPED_MSG, WRAPPED_PROPID, WrappedMsg};

/// An extension that conveys RPC messages to peers with the property, or, if `eager`, to all peers.
#[derive(Debug, Clone, Copy)]
struct Wrap {
    eager: bool,
    known: bool,
}

impl ExtensionFactory for Wrap {
    fn extension(&self, _: Role) -> Box<dyn Extension> {
        Box::new(*self)
    }
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(1, |sum, &byte| u32::rotate_left(sum, 5) ^ u32::from(byte))
}

impl Extension for Wrap {
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        vec![ExtensionProperty::new(WRAPPED_PROPID, &true)]
    }

    fn property(&mut self, which: u32, _: &[u8]) -> ExtensionOutcome {
        if which != WRAPPED_PROPID {
            return ExtensionOutcome::Unknown;
        }
        self.known = true;
        ExtensionOutcome::Done(Vec::new())
    }

    fn message(&mut self, message: &ExtensionMessage) -> ExtensionOutcome {
        if message.header_type != WRAPPED_MSG {
            return ExtensionOutcome::Unknown;
        }
        match WrappedMsg::decode(&mut Decoder::new(&message.body)) {
            Ok(wrapped) if wrapped.sum == sum(&wrapped.rpc) => ExtensionOutcome::Conveys(wrapped.rpc),
            _ => ExtensionOutcome::Refused(TransportError::BadXdr),
        }
    }

    fn convey(&mut self, message: RpcMessage<'_>) -> Option<ExtensionMessage> {
        let rpc = Bytes::copy_from_slice(message.payload);
        let wrapped = WrappedMsg { sum: sum(&rpc), rpc };
        (self.known || self.eager).then(|| ExtensionMessage::new(WRAPPED_MSG, 0, &wrapped))
    }
}

fn with_wrap(eager: bool) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.extensions.push(Arc::new(Wrap { eager, known: false }));
    config
}

/// Appendix B.2: a header type may have a payload stream. Calls and replies of both directions are conveyed in it if
/// they fit into one Send without chunks. Other messages use the base formats.
#[test]
fn header_types_convey_rpc_messages() {
    let mut duo = PeerPair::new(with_wrap(false), with_wrap(false), stepped());
    for end in [CLIENT, SERVER] {
        let reply = duo.one(end, Script { inline: 100, reply_inline: 200, ..Script::default() }).unwrap();
        assert_eq!(reply.call, FormatChoice { format: MessageFormat::Extension, reason: FormatReason::Extension });
        let large = Script { number: 1, inline: 9000, reply_inline: 9000, ..Script::default() };
        assert_eq!(duo.one(end, large).unwrap().call.format, MessageFormat::Continued);
        let reduced = Script { number: 3, args: vec![5000], reduce: true, ..Script::default() };
        assert_eq!(duo.one(end, reduced).unwrap().call.format, MessageFormat::Chunked);
        let result = Script { number: 4, results: vec![(5000, 5000)], ..Script::default() };
        assert_eq!(duo.one(end, result).unwrap().call.format, MessageFormat::Short);
    }
    for side in &duo.sides {
        let counters = side.peer.conn.counters();
        assert_eq!((counters.errors_sent, counters.messages_discarded, counters.calls_resent), (0, 0, 0));
    }
    // The replies to calls with Read chunks invalidate them.
    for side in &duo.sides {
        assert_eq!(side.peer.conn.counters().remote_invalidations, 2);
    }
    duo.assert_nothing_exposed();
}

/// Appendix B.2: a reply without chunks is conveyed, and a reply with a Write chunk is not.
#[test]
fn replies_are_conveyed_without_chunks() {
    for (lists, htype) in [(&[0, 0, 0][..], WRAPPED_MSG), (&[0, 1, 1, 9, 4096, 0, 0, 0, 0], 0)] {
        let config = support::with_versions(with_wrap(true), rpcrdma_proto::engine::Versions::V2);
        let mut facing = Facing::with_invalidation(Role::Server, config, false, false);
        facing.send(&connprop(3, 0, &[]));
        facing.raw.received.clear();
        facing.send(&[&[9, 2, CREDIT, 0, 0, 0], lists, &[9, 0, 7]].concat());
        let call = support::take_call(&mut facing.engine).expect("no call");
        facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
        facing.run();
        assert_eq!(facing.next().expect("no reply")[3], htype);
        assert!(support::take_reply_sent(&mut facing.engine).expect("not reported").1);
    }
}

/// An extension that replaces every RPC message by a message with an empty body.
#[derive(Debug, Clone, Copy)]
struct Shrink;

impl ExtensionFactory for Shrink {
    fn extension(&self, _: Role) -> Box<dyn Extension> {
        Box::new(*self)
    }
}

impl Extension for Shrink {
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        Vec::new()
    }

    fn property(&mut self, _: u32, _: &[u8]) -> ExtensionOutcome {
        ExtensionOutcome::Unknown
    }

    fn convey(&mut self, _: RpcMessage<'_>) -> Option<ExtensionMessage> {
        Some(ExtensionMessage { header_type: WRAPPED_MSG, ..ExtensionMessage::default() })
    }
}

/// Appendix B.2: only a reply that fits in one Send is conveyed, even if an extension would shorten a longer reply.
#[test]
fn long_replies_are_not_conveyed() {
    for (reply_inline, htype) in [(4000, WRAPPED_MSG), (5000, 0)] {
        let mut config = EngineConfig::default();
        config.extensions.push(Arc::new(Shrink));
        let mut facing = Facing::new(Role::Server, config);
        facing.send(&plain(9, CREDIT, 0, 7));
        let call = support::take_call(&mut facing.engine).expect("no call");
        let script = Script { reply_inline, ..Script::default() };
        facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
        facing.run();
        assert_eq!(facing.next().expect("no reply")[3], htype, "{reply_inline}");
    }
}

/// §7.1.2, appendix B.2: a peer that does not know the header type has not processed the call. The call is sent again
/// in a base format, and later calls use a base format from the start.
#[test]
fn conveyed_to_a_peer_without_the_extension() {
    let mut duo = PeerPair::new(with_wrap(true), EngineConfig::default(), stepped());
    for number in 0..3 {
        let reply = duo.one(CLIENT, Script { number, inline: 100, ..Script::default() }).unwrap();
        assert_eq!((reply.call.format, duo.sides[SERVER].served[&number]), (MessageFormat::Short, 1));
    }
    let (client, server) = (duo.sides[CLIENT].peer.conn.counters(), duo.sides[SERVER].peer.conn.counters());
    assert_eq!((client.calls_resent, server.errors_sent), (1, 1));
    // The server's calls are not conveyed, because the client did not announce the property.
    assert_eq!(duo.one(SERVER, Script::default()).unwrap().call.format, MessageFormat::Short);
}

/// §7.2.1, §6.2.2.3: an RPC message that an extension conveys is checked like any other RPC message.
#[test]
fn malformed_conveyed_messages() {
    let mut facing = Facing::silent(Role::Server, with_wrap(false));
    let rpc = [9u32, 0, 7].map(u32::to_be_bytes).concat();
    let words =
        |xid: u32, flags: u32, sum: u32| [&[xid, 2, CREDIT, WRAPPED_MSG, flags, sum, 12][..], &[9, 0, 7]].concat();
    let good = sum(&rpc);
    facing.send(&words(9, 0, good));
    facing.next().expect("no properties");
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 100], "a message before the last property is accepted");
    facing.send(&connprop(3, 0, &[]));
    facing.send(&words(9, 0, good + 1));
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 2]);
    // The XID differs from that of the header, then the direction is wrong.
    facing.send(&words(8, 0, good));
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 2]);
    facing.send(&words(9, RESPONSE, good));
    assert!(facing.next().is_none());
    facing.send(&words(9, TPMORE, good));
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 4], "RDMA2_F_TPMORE ignored");
    facing.send(&words(9, 0, good));
    assert!(support::take_call(&mut facing.engine).is_some());
}

/// §6.2.2.1: RDMA2_F_RESPONSE tells a conveyed call from the reply to a call with the same XID.
#[test]
fn conveyed_call_with_the_xid_of_a_local_call() {
    let mut facing = Facing::new(Role::Client, with_wrap(false));
    facing.call(&Script { number: 4, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    let conveyed = |msg_type: u32, number: u32| {
        let payload = [xid, msg_type, number];
        [&[xid, 2, CREDIT, WRAPPED_MSG, msg_type, sum(&payload.map(u32::to_be_bytes).concat()), 12], &payload[..]]
            .concat()
    };
    facing.send(&conveyed(0, 7));
    assert_eq!(support::take_call(&mut facing.engine).expect("call not served").xid, xid);
    assert!(facing.finished().is_none(), "a call taken for a reply");
    facing.send(&conveyed(1, 4));
    facing.finished().expect("reply ignored").unwrap();
    assert!(support::take_call(&mut facing.engine).is_none());
}

/// §7.2.2: if a message has a malformed property, none of its properties is applied, not even a valid property of an
/// extension before it.
#[test]
fn a_malformed_property_discards_the_whole_message() {
    for malformed in [(LOAD_PROPID, &[][..]), (2, &[1, 2][..])] {
        let load = Load::default();
        let seen = Arc::clone(&load.seen);
        let mut config = EngineConfig::default();
        config.extensions.push(Arc::new(load));
        let mut facing = Facing::silent(Role::Server, config);
        facing.send(&connprop(3, TPMORE, &[(LOAD_PROPID, &[7]), malformed]));
        facing.next().expect("no properties");
        assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 3]);
        assert!(seen.lock().unwrap().interests.is_empty(), "applied with {malformed:?} in the same message");
        facing.send(&connprop(4, 0, &[(LOAD_PROPID, &[8])]));
        assert_eq!(seen.lock().unwrap().interests, [8]);
    }
}
