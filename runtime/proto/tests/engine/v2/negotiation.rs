//! Negotiation of the protocol version (RPC-over-RDMA v2 §4.2.3).

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use rpcrdma_proto::engine::{CallFailure, CloseReason, EngineConfig, Role, Versions};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CONNPROP, CREDIT, ERROR, Facing, MSG, RESPONSE, XID, connprop, plain},
};
use crate::support::{self, Script, take_call};

fn allows(versions: Versions) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.versions = versions;
    config
}

fn duo(client: Versions, server: Versions) -> PeerPair {
    PeerPair::with(allows(client), allows(server), stepped())
}

/// §4.2.3: client and server use the highest version that both allow, without a new connection. Calls that were started
/// before the end of the negotiation are sent after it.
#[test]
fn highest_common_version() {
    for (client, server, version) in [
        (Versions::Both, Versions::Both, 2),
        (Versions::Both, Versions::V1, 1),
        (Versions::V1, Versions::Both, 1),
        (Versions::V2, Versions::Both, 2),
        (Versions::Both, Versions::V2, 2),
        (Versions::V1, Versions::V1, 1),
    ] {
        let mut duo = duo(client, server);
        for number in 0..5 {
            duo.call(CLIENT, Script { number, inline: 2000, results: vec![(9000, 9000)], ..Script::default() });
        }
        duo.run();
        for number in 0..5 {
            duo.sides[CLIENT].outcomes.remove(&number).unwrap().unwrap();
        }
        assert_eq!(duo.sides[CLIENT].peer.conn.version(), Some(version));
        assert_eq!(duo.sides[SERVER].peer.conn.version(), Some(version));
        let reverse = duo.one(SERVER, Script { number: 9, inline: 100, reply_inline: 100, ..Script::default() });
        reverse.unwrap();
        duo.assert_nothing_exposed();
    }
}

/// §7.1.1: without a common version no call is sent, and the close reason has the server's versions.
#[test]
fn no_common_version() {
    let mut duo = duo(Versions::V2, Versions::V1);
    let failure = duo.one(CLIENT, Script::default()).unwrap_err();
    let CallFailure::Closed { reason: CloseReason::NegotiationFailed { versions, .. }, sent } = failure else {
        panic!("{failure:?}")
    };
    assert_eq!((versions, sent), (Some((1, 1)), false));
    assert_eq!(duo.sides[SERVER].arrived, 0);
}

/// §7.1.1: the client uses no version that the server does not report as supported.
#[test]
fn versions_without_a_common_one() {
    for (low, high) in [(3, 4), (0, 0), (2, 1), (u32::MAX, u32::MAX)] {
        let mut facing = raw(Role::Client);
        facing.call(&Script::default());
        facing.raw.received.clear();
        facing.send(&[XID, 2, 64, 4, 1, 1, low, high]);
        assert!(facing.raw.next().is_none(), "a message to a server with versions {low} to {high}");
        let failure = facing.finished().expect("call not finished").unwrap_err();
        let CallFailure::Closed { reason: CloseReason::NegotiationFailed { versions, .. }, sent: false } = failure
        else {
            panic!("{failure:?}")
        };
        assert_eq!(versions, Some((low, high)));
    }
}

/// §7.1.1, RFC 8166 §4.5.1: a server with only version 2 refuses a version 1 client with a version 1 error.
#[test]
fn a_version_1_client_of_a_version_2_server() {
    let mut duo = duo(Versions::V1, Versions::V2);
    let failure = duo.one(CLIENT, Script::default()).unwrap_err();
    assert!(matches!(failure, CallFailure::VersionMismatch { low: 2, high: 2 }), "{failure}");
}

fn raw(role: Role) -> Facing {
    Facing::with(role, EngineConfig::default())
}

/// §4.2.3: before the server's first message, the client sends one version 2 message of at most 1024 bytes. A Linux
/// server responds with an error that has the client's version. The client then sends its calls in version 1.
#[test]
fn linux_server() {
    let mut facing = raw(Role::Client);
    facing.call(&Script { number: 7, ..Script::default() });
    let (first, _) = facing.raw.received.pop_front().expect("no first message");
    assert!(facing.raw.received.is_empty());
    assert!(first.len() <= 1024);
    assert_eq!([support::word(&first, 0), support::word(&first, 1), support::word(&first, 3)], [XID, 2, CONNPROP]);
    facing.send(&[XID, 2, 64, 4, 1, 1, 1]);
    let call = facing.raw.next().expect("no call");
    assert_eq!(call[1..8], [1, 32, 0, 0, 0, 0, call[0]]);
    facing.send(&support::plain(call[0], 32, 1, 7));
    facing.finished().unwrap().unwrap();
    assert_eq!(facing.engine.conn.version(), Some(1));
}

/// §4.2.3.2: a client falls back to version 1 if the server reports it as supported in an error with a version 2
/// header.
#[test]
fn response_of_a_later_server() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.raw.received.clear();
    facing.send(&[XID, 2, 64, 4, 1, 1, 1, 1]);
    assert_eq!(facing.raw.next().expect("no call")[1], 1);
}

/// §4.2.3.2: a server without version 2 responds with RDMA_ERROR, ERR_VERS, the XID of the message and the range of its
/// versions. It then serves the version that the client chooses.
#[test]
fn server_without_version_2() {
    let mut facing = Facing::with(Role::Server, allows(Versions::V1));
    facing.send(&connprop(9, 0, &[(1, &[8192])]));
    assert_eq!(facing.raw.next().expect("no response"), [9, 2, 32, ERROR, 1, 1, 1]);
    facing.send(&support::plain(5, 1, 0, 1));
    assert!(take_call(&mut facing.engine).is_some());
    assert!(facing.raw.next().is_none());
}

/// §4.2.3.2: a client goes on with version 1 only if the range of the server's versions contains it.
#[test]
fn version_in_the_range() {
    for (low, high) in [(0, 0), (1, 1), (0, 1), (1, 3), (2, 3), (3, 4), (3, 1)] {
        let mut facing = raw(Role::Client);
        facing.call(&Script::default());
        facing.raw.received.clear();
        facing.send(&[XID, 2, 64, ERROR, 1, low, high]);
        if (low..=high).contains(&1) {
            assert_eq!(facing.raw.next().expect("no call")[1], 1, "{low} to {high}");
            continue;
        }
        let failure = facing.finished().expect("call not finished").unwrap_err();
        let CallFailure::Closed { reason: CloseReason::NegotiationFailed { versions, .. }, sent: false } = failure
        else {
            panic!("{low} to {high}: {failure:?}")
        };
        assert_eq!(versions, Some((low, high)));
        assert!(facing.raw.next().is_none());
    }
}

/// §4.2.3.2: an error whose XID differs from the XID of the client's message does not end the negotiation.
#[test]
fn error_for_another_message() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.raw.received.clear();
    for xid in [0, XID + 1] {
        facing.send(&[xid, 2, 64, ERROR, 1, 1, 1]);
        assert!(facing.raw.next().is_none());
    }
    facing.send(&connprop(3, 0, &[]));
    assert_eq!(facing.raw.next().expect("no call")[1], 2);
}

/// §4.2.3.2: if the connection is dropped during negotiation, the reason is a failed negotiation, even if the server
/// has responded. No call was sent.
#[test]
fn connection_dropped_during_negotiation() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.network.cut();
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    let expected = |failure, versions, was_sent| {
        matches!(failure, CallFailure::Closed { reason: CloseReason::NegotiationFailed { versions: v, .. }, sent }
            if v == versions && sent == was_sent)
    };
    assert!(expected(failure, None, false));

    let mut facing = raw(Role::Client);
    facing.run();
    facing.send(&[XID, 2, 64, 4, 1, 1, 1]);
    facing.network.cut();
    facing.call(&Script::default());
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(expected(failure, Some((1, 1)), false));
}

/// A call that is posted after the connection was lost, but before the engine was notified, fails as not sent. The
/// refused registration of its memory is not reported as the cause.
#[test]
fn lost_connection_before_its_notification() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.network.cut();
    let call = Script { reply_inline: 200_000, ..Script::default() }.outgoing(&facing.engine.conn, facing.now);
    facing.engine.conn.start_call(call);
    facing.engine.conn.poll_work(&mut facing.engine.qp, facing.now);
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    let CallFailure::Closed { reason: CloseReason::Disconnected(_), sent: false } = failure else {
        panic!("{failure}");
    };
}

/// §4.2.3.2: the client gives up on a server that sends nothing.
#[test]
fn silent_server() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.now += Duration::from_secs(9);
    facing.run();
    assert!(facing.finished().is_none());
    facing.now += Duration::from_secs(2);
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(matches!(failure, CallFailure::Closed { reason: CloseReason::NegotiationFailed { .. }, sent: false }));
}

/// §4.2.3.3: the client's first message decides the version. §7.1.1: if that version is unknown, the server reports the
/// versions that it supports.
#[test]
fn server_goes_by_the_first_message() {
    let mut facing = raw(Role::Server);
    facing.send(&[9, 3, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(facing.raw.next().unwrap(), [9, 3, 32, 4, 1, 1, 1, 2]);
    assert_eq!(facing.engine.conn.version(), None);
    facing.send(&support::plain(5, 1, 0, 1));
    assert_eq!(facing.engine.conn.version(), Some(1));
    assert!(take_call(&mut facing.engine).is_some());
    // After that, version 2 messages get the error of version 1.
    facing.send(&[6, 2, 1, 5, 0, 0, 0]);
    assert_eq!(facing.raw.next().unwrap()[1..], [2, 32, 4, 1, 1, 1]);
}

/// §4.2.3.3: after a first message of version 1 or 2, a server sends and serves that version only.
#[test]
fn server_keeps_its_version() {
    let mut facing = raw(Role::Server);
    let serve = |facing: &mut Facing, words: &[u32]| {
        facing.send(words);
        let call = take_call(&mut facing.engine).expect("call not served");
        facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
        facing.run();
        facing.next().expect("no reply")
    };
    facing.send(&connprop(3, 0, &[]));
    assert_eq!(facing.next().expect("no properties")[..2], [XID, 2]);
    for xid in [5, 6] {
        assert_eq!(serve(&mut facing, &plain(xid, CREDIT, 0, 1))[..2], [xid, 2]);
        facing.send(&support::plain(9, 1, 0, 1));
        assert_eq!(facing.next().expect("no error")[3..], [ERROR, RESPONSE, 1, 2, 2]);
        assert!(take_call(&mut facing.engine).is_none());
        assert_eq!(facing.engine.conn.version(), Some(2));
    }
    facing.call(&Script::default());
    let failure = facing.finished().expect("call not finished").unwrap_err();
    assert_eq!(failure, CallFailure::ReverseNotSupported);

    let mut facing = raw(Role::Server);
    for xid in [5, 6] {
        assert_eq!(serve(&mut facing, &support::plain(xid, 1, 0, 1))[..2], [xid, 1]);
        for other in [connprop(9, 0, &[(1, &[8192])]), plain(9, CREDIT, 0, 1)] {
            facing.send(&other);
            assert_eq!(facing.next().expect("no error"), [9, 2, 32, ERROR, 1, 1, 1]);
            assert!(take_call(&mut facing.engine).is_none());
        }
        assert_eq!(facing.engine.conn.version(), Some(1));
    }
    facing.call(&Script::default());
    assert_eq!(facing.next().expect("no call in the reverse direction")[..2], [XID + 1, 1]);
}

/// §4.2.3.3: after the first message of version 2 from a server, the client keeps that version, whatever the server
/// sends later.
#[test]
fn client_keeps_its_version() {
    let mut facing = raw(Role::Client);
    facing.run();
    facing.send(&connprop(3, 0, &[]));
    facing.raw.received.clear();
    let later = [
        vec![XID, 2, 64, ERROR, 1, 1, 1],
        vec![XID, 2, CREDIT, ERROR, RESPONSE, 1, 1, 1],
        vec![XID, 1, 64, ERROR, 1, 1, 1],
        support::plain(7, 32, 0, 1),
    ];
    for (number, words) in (0..).zip(later) {
        facing.send(&words);
        facing.raw.received.clear();
        assert_eq!(facing.engine.conn.version(), Some(2));
        facing.call(&Script { number, ..Script::default() });
        let call = facing.next().expect("no call");
        assert_eq!((call[1], call[3]), (2, MSG));
    }

    // After the fallback to version 1, it is the version of all messages.
    let mut facing = raw(Role::Client);
    facing.run();
    facing.send(&[XID, 2, 64, ERROR, 1, 1, 2]);
    facing.raw.received.clear();
    for number in 0..3 {
        facing.call(&Script { number, ..Script::default() });
        let call = facing.raw.next().expect("no call");
        assert_eq!(call[1], 1);
        facing.send(&connprop(3, 0, &[]));
        assert_eq!(facing.engine.conn.version(), Some(1));
        while facing.raw.next().is_some() {}
        facing.send(&support::plain(call[0], 32, 1, number));
        facing.finished().expect("call not finished").unwrap();
    }
}

/// §7: a message that is too short, and an error message, do not decide the version and get no response.
#[test]
fn server_waits_for_a_first_message() {
    let mut facing = raw(Role::Server);
    for words in [&[9, 2, 1][..], &[9, 2, 1, 5], &[9, 1], &[], &[9, 3, 1, 4, 1, 1, 1]] {
        facing.send(words);
        assert!(facing.raw.next().is_none());
        assert_eq!(facing.engine.conn.version(), None);
    }
    assert_eq!(facing.engine.conn.counters().messages_discarded, 5);
    facing.send(&connprop(3, 0, &[]));
    assert_eq!(facing.raw.next().unwrap()[3], CONNPROP);
    assert_eq!(facing.engine.conn.version(), Some(2));
}

/// The server disconnects a peer that keeps sending unsupported versions.
#[test]
fn unsupported_versions_only() {
    let mut facing = raw(Role::Server);
    for _ in 0..20 {
        facing.send(&[9, 3, 1, 0, 0, 0, 0, 0, 0]);
    }
    assert!(facing.raw.disconnected());
    assert_eq!(facing.raw.received.len(), 8);
}

/// A client that is limited to version 1 begins with a version 1 call.
#[test]
fn pinned_to_version_1() {
    let mut facing = Facing::with(Role::Client, allows(Versions::V1));
    facing.call(&Script::default());
    assert_eq!(facing.raw.next().unwrap()[1], 1);
}

/// RFC 8166 §4.5: a message that is too short for a version 1 header is not parsed, and does not decide the version.
#[test]
fn short_version_1_message() {
    for words in [5, 6] {
        let mut facing = raw(Role::Server);
        facing.send(&[3, 1, CREDIT, 0, 0, 0][..words]);
        assert_eq!((facing.engine.conn.version(), facing.raw.next()), (None, None));
        facing.send(&connprop(7, 0, &[]));
        assert_eq!(facing.engine.conn.version(), Some(2));
    }
}

/// §4.2.3: the first message of a server makes version 2 the agreed version if it has that version and a whole prefix.
/// The XID and the rest of that message do not matter.
#[test]
fn messages_that_agree_on_version_2() {
    let mut short_prefix = vec![7, 2, CREDIT, CONNPROP];
    for (words, version) in [
        (short_prefix.clone(), None),
        (vec![7, 3, CREDIT, CONNPROP, 0, 0], None),
        (vec![7, 1, 32, 0, 0, 0, 0], None),
        (connprop(XID, 0, &[(1, &[4096])]), Some(2)),
        (connprop(XID, 1, &[(1, &[4096])]), Some(2)),
    ] {
        let mut facing = raw(Role::Client);
        facing.run();
        facing.send(&words);
        assert_eq!(facing.engine.conn.version(), version, "{words:?}");
    }
    short_prefix.push(0);
    let mut facing = raw(Role::Client);
    facing.run();
    facing.send(&short_prefix);
    assert_eq!(facing.engine.conn.version(), Some(2), "a prefix alone");
}

/// RFC 8166 §4.5, RPC-over-RDMA v2 §7: a first message with the shortest header of its version decides the version. A
/// shorter message does not.
#[test]
fn shortest_first_messages() {
    for (words, version) in [
        (vec![7, 1, 32, 0, 0, 0, 0], Some(1)),
        (vec![7, 1, 32, 0, 0, 0], None),
        (vec![7, 2, CREDIT, CONNPROP, 0], Some(2)),
        (vec![7, 2, CREDIT, CONNPROP], None),
    ] {
        let mut facing = raw(Role::Server);
        facing.send(&words);
        assert_eq!(facing.engine.conn.version(), version, "{words:?}");
    }
    // A server grants at least one credit with an error.
    for credits in [0, 1, 5] {
        let mut config = allows(Versions::Both);
        config.credits = credits;
        let mut facing = Facing::with(Role::Server, config);
        facing.send(&[7, 3, CREDIT, 0, 0, 0, 0]);
        assert_eq!(facing.raw.next().expect("no error")[2], credits.max(1));
    }
    // A server that has received nothing was not refused.
    let mut facing = raw(Role::Server);
    facing.network.cut();
    facing.run();
    assert!(matches!(facing.engine.conn.close_reason(), Some(CloseReason::Disconnected(_))));
}

/// RFC 8166 §4.5: a server that cannot parse the header may respond with a version 1 error such as ERR_CHUNK. The
/// client then falls back to version 1. ERR_VERS without a range of versions is not such an error.
#[test]
fn servers_that_cannot_parse_the_header() {
    for (code, version) in [(2, 1), (1, 2), (0, 1)] {
        let mut facing = raw(Role::Client);
        facing.call(&Script { number: 7, ..Script::default() });
        facing.raw.received.clear();
        facing.send(&[XID, 2, 64, ERROR, code]);
        if version == 1 {
            let call = facing.raw.next().expect("no call");
            assert_eq!(call[1..4], [1, 32, 0]);
            facing.send(&support::plain(call[0], 32, 1, 7));
            facing.finished().expect("not finished").unwrap();
        }
        assert_eq!(facing.engine.conn.version(), Some(version), "{code}");
    }
}
