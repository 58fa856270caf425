//! Which version a connection has (RPC-over-RDMA v2 §4.2.3).

use rpcrdma::engine::Engine as _;
use std::{ops::RangeInclusive, time::Duration};

use rpcrdma::engine::{CallFailure, CloseReason, Connection, EngineConfig, Role};

use super::{
    duo::{CLIENT, Duo, SERVER, stepped},
    facing::{CONNPROP, CREDIT, Facing, XID, connprop},
};
use crate::support::{self, Script, take_call};

fn allows(versions: RangeInclusive<u32>) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.versions = versions;
    config
}

fn duo(client: RangeInclusive<u32>, server: RangeInclusive<u32>) -> Duo {
    Duo::with(allows(client), allows(server), stepped())
}

/// §4.2.3: the highest version that both allow, on the connection there is; calls made at once go out afterwards.
#[test]
fn highest_common_version() {
    for (client, server, version) in [
        (1..=2, 1..=2, 2),
        (1..=2, 1..=1, 1),
        (1..=1, 1..=2, 1),
        (2..=2, 1..=2, 2),
        (1..=2, 2..=2, 2),
        (1..=1, 1..=1, 1),
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

/// §7.1.1: no version in common: no call goes out, and the reason says which versions the server has.
#[test]
fn no_common_version() {
    let mut duo = duo(2..=2, 1..=1);
    let failure = duo.one(CLIENT, Script::default()).unwrap_err();
    let CallFailure::Closed { reason: CloseReason::Negotiation { versions, .. }, sent } = failure else {
        panic!("{failure:?}")
    };
    assert_eq!((versions, sent), (Some((1, 1)), false));
    assert_eq!(duo.sides[SERVER].arrived, 0);
}

/// §7.1.1, RFC 8166 §4.5.1: a client of version 1 is told by a server that has version 2 only, as version 1 has it.
#[test]
fn a_version_1_client_of_a_version_2_server() {
    let mut duo = duo(1..=1, 2..=2);
    let failure = duo.one(CLIENT, Script::default()).unwrap_err();
    assert!(matches!(failure, CallFailure::VersionMismatch { low: 2, high: 2 }), "{failure}");
}

fn raw(role: Role) -> Facing {
    Facing::with(role, EngineConfig::default())
}

/// §4.2.3: one message of version 2, and no more than 1024 octets, before the server is heard; then Linux's answer, which
/// carries the client's version, and calls in version 1.
#[test]
fn linux_server() {
    let mut facing = raw(Role::Client);
    facing.call(&Script { number: 7, ..Script::default() });
    let (first, _) = facing.raw.received.pop_front().expect("sent");
    assert!(facing.raw.received.is_empty());
    assert!(first.len() <= 1024);
    assert_eq!([support::word(&first, 0), support::word(&first, 1), support::word(&first, 3)], [XID, 2, CONNPROP]);
    facing.send(&[XID, 2, 64, 4, 1, 1, 1]);
    let call = facing.raw.next().expect("the call");
    assert_eq!(call[1..8], [1, 32, 0, 0, 0, 0, call[0]]);
    facing.send(&support::plain(call[0], 32, 1, 7));
    facing.finished().unwrap().unwrap();
    assert_eq!(facing.engine.conn.version(), Some(1));
}

/// §4.2.3.2: the answer of a server that has other versions, and version 1 among them, by a header of version 2.
#[test]
fn answer_of_a_later_server() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.raw.received.clear();
    facing.send(&[XID, 2, 64, 4, 1, 1, 1, 1]);
    assert_eq!(facing.raw.next().expect("the call")[1], 1);
}

/// §4.2.3.2: a connection that is dropped at once, with or without an answer, says that version 2 may be why; no call was
/// sent, or its outcome is unknown.
#[test]
fn dropped() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.network.cut();
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    let expected = |failure, versions, was_sent| {
        matches!(failure, CallFailure::Closed { reason: CloseReason::Negotiation { versions: v, .. }, sent }
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

/// A call whose turn comes when the connection is ending, and the engine has not been told yet, is lost with it, unsent: that its
/// memory can no longer be registered is no fault of its own.
#[test]
fn dropped_and_not_told_of_yet() {
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

/// §4.2.3.2: a server that says nothing is given up.
#[test]
fn silence() {
    let mut facing = raw(Role::Client);
    facing.call(&Script::default());
    facing.now += Duration::from_secs(9);
    facing.run();
    assert!(facing.finished().is_none());
    facing.now += Duration::from_secs(2);
    facing.run();
    let failure = facing.finished().unwrap().unwrap_err();
    assert!(matches!(failure, CallFailure::Closed { reason: CloseReason::Negotiation { .. }, sent: false }));
}

/// §4.2.3.3: the first message decides; §7.1.1: versions that there are not yet are answered with those that there are.
#[test]
fn server_goes_by_the_first_message() {
    let mut facing = raw(Role::Server);
    facing.send(&[9, 3, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(facing.raw.next().unwrap(), [9, 3, 32, 4, 1, 1, 1, 2]);
    assert_eq!(facing.engine.conn.version(), None);
    facing.send(&support::plain(5, 1, 0, 1));
    assert_eq!(facing.engine.conn.version(), Some(1));
    assert!(take_call(&mut facing.engine).is_some());
    // From now on, version 2 is refused as version 1 does it.
    facing.send(&[6, 2, 1, 5, 0, 0, 0]);
    assert_eq!(facing.raw.next().unwrap()[1..], [2, 32, 4, 1, 1, 1]);
}

/// §7: what is too short to be trusted, or an error, decides nothing, and is not answered.
#[test]
fn server_waits_for_a_first_message() {
    let mut facing = raw(Role::Server);
    for words in [&[9, 2, 1][..], &[9, 2, 1, 5], &[9, 1], &[], &[9, 3, 1, 4, 1, 1, 1]] {
        facing.send(words);
        assert!(facing.raw.next().is_none());
        assert_eq!(facing.engine.conn.version(), None);
    }
    assert_eq!(facing.engine.conn.counters().discarded, 5);
    facing.send(&super::facing::connprop(3, 0, &[]));
    assert_eq!(facing.raw.next().unwrap()[3], CONNPROP);
    assert_eq!(facing.engine.conn.version(), Some(2));
}

/// Peers that never come to a version are not answered for ever.
#[test]
fn no_version_at_all() {
    let mut facing = raw(Role::Server);
    for _ in 0..20 {
        facing.send(&[9, 3, 1, 0, 0, 0, 0, 0, 0]);
    }
    assert!(facing.raw.disconnected());
    assert_eq!(facing.raw.received.len(), 8);
}

/// A pinned client behaves as version 1 alone.
#[test]
fn pinned_to_version_1() {
    let mut facing = Facing::with(Role::Client, allows(1..=1));
    facing.call(&Script::default());
    assert_eq!(facing.raw.next().unwrap()[1], 1);
    let params = Connection::setup_params(&EngineConfig::default(), true);
    assert_eq!(params.private_data, Connection::setup_params(&EngineConfig::default(), true).private_data);
}

/// RFC 8166 §4.5: a message that is too short for a header of version 1 is not parsed, and says nothing of the version.
#[test]
fn short_message_of_version_1() {
    for words in [5, 6] {
        let mut facing = raw(Role::Server);
        facing.send(&[3, 1, CREDIT, 0, 0, 0][..words]);
        assert_eq!((facing.engine.conn.version(), facing.raw.next()), (None, None));
        facing.send(&connprop(7, 0, &[]));
        assert_eq!(facing.engine.conn.version(), Some(2));
    }
}
