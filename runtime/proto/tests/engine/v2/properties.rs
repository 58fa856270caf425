//! The exchange of transport properties, and host authentication (RPC-over-RDMA v2 §5, §6.2.2.3, §6.3.4).

use rpcrdma_proto::engine::Engine as _;
use std::sync::Arc;

use bytes::Bytes;
use rpcrdma_proto::engine::{
    CallFailure, CloseReason, Connection, EngineConfig, HostAuth, HostAuthError, HostAuthStep, HostAuthenticator,
    MessageFormat, ReverseDirection, Role,
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CONNPROP, CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, connprop, plain},
};
use crate::support::{Pair, Script, take_call, word};

/// §5.2, table 1: each property whose value is not the default is announced in the first message.
#[test]
fn each_property_is_announced() {
    let mut config = EngineConfig::default();
    (config.send_size, config.receive_size, config.max_segments) = (8192, 16_384, 77);
    config.reverse_direction = ReverseDirection::Continued;
    let mut facing = Facing::silent(Role::Client, config);
    facing.run();
    let words = facing.raw.next().unwrap();
    assert_eq!(words[3..6], [CONNPROP, 0, 5]);
    assert_eq!(words[6..], [1, 4, 8192, 2, 4, 16_384, 3, 4, u32::MAX, 4, 4, 77, 5, 4, 2]);
}

/// §5.2: each property is accepted, in any order. §5.1: unknown properties are ignored, and empty data means the
/// default value.
#[test]
fn each_property_is_accepted() {
    let properties: &[(u32, &[u32])] =
        &[(5, &[3]), (99, &[1, 2, 3]), (1, &[2048]), (4, &[7]), (2, &[65_536]), (3, &[512]), (0, &[]), (6, &[])];
    let facing = Facing::said(Role::Server, EngineConfig::default(), properties);
    let peer = facing.engine.conn.peer_limits().properties.unwrap();
    assert_eq!((peer.send_size, peer.receive_size), (2048, 65_536));
    assert_eq!((peer.segment_len, peer.segments, peer.reverse), (512, 7, ReverseDirection::General));
    let others: &[(u32, &[u32])] = &[(1, &[8192]), (2, &[8192]), (3, &[512]), (4, &[7]), (5, &[3])];
    let empty: Vec<(u32, &[u32])> = (1..=6).map(|which| (which, &[][..])).collect();
    let facing = Facing::said(Role::Server, EngineConfig::default(), &[others, &empty].concat());
    let default = Facing::new(Role::Server, EngineConfig::default()).engine.conn.peer_limits().properties;
    assert_eq!(facing.engine.conn.peer_limits().properties, default);
}

/// §5.1: a value whose length does not match the type of its property gets RDMA2_ERR_BAD_PROPVAL.
#[test]
fn values_of_the_wrong_length() {
    for which in 1..=5 {
        for (len, words) in [(1, 1), (2, 1), (3, 1), (5, 2), (8, 2)] {
            let mut facing = Facing::silent(Role::Server, EngineConfig::default());
            facing.send(&connprop(7, TPMORE, &[]));
            facing.next().expect("no properties");
            let mut message = vec![8, 2, CREDIT, CONNPROP, 0, 1, which, len];
            message.resize(8 + words, 0x2000);
            facing.send(&message);
            let error = facing.next().expect("no error");
            assert_eq!((error[0], &error[3..]), (8, &[ERROR, RESPONSE, 3][..]), "property {which} of {len} bytes");
            assert_eq!(facing.engine.conn.peer_limits().properties, None);
        }
    }
}

/// §5.2.5: each level of reverse-direction support has its code. The lowest level is the default, so a client that
/// accepts no calls announces nothing.
#[test]
fn levels_of_reverse_direction() {
    for (level, code) in [
        (ReverseDirection::None, 0),
        (ReverseDirection::Simple, 1),
        (ReverseDirection::Continued, 2),
        (ReverseDirection::General, 3),
    ] {
        for reverse_credits in [0, 1] {
            let mut config = EngineConfig::default();
            (config.reverse_direction, config.reverse_credits) = (level, reverse_credits);
            let mut facing = Facing::silent(Role::Client, config);
            facing.run();
            let words = facing.raw.next().unwrap();
            let announced = if reverse_credits == 0 || code == 0 { &[][..] } else { &[5, 4, code] };
            assert_eq!(words[12..], *announced, "{level:?}, {reverse_credits} credits");
        }
        let facing = Facing::said(Role::Server, EngineConfig::default(), &[(5, &[code])]);
        assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().reverse, level);
    }
}

/// §4.2.2: a peer that announces no sizes can receive and send 4096 bytes, whatever the local sizes are.
#[test]
fn default_thresholds() {
    let mut config = EngineConfig::default();
    (config.send_size, config.receive_size, config.max_continued) = (8192, 8192, 0);
    for (len, is_short) in [(4096 - 36 - 12, true), (4096 - 36 - 8, false)] {
        let mut facing = Facing::new(Role::Client, config.clone());
        facing.call(&Script { inline: len, ..Script::default() });
        assert_eq!(facing.next().unwrap()[3], if is_short { MSG } else { NOMSG });
        facing.call(&Script { number: 1, reply_inline: len, ..Script::default() });
        // The call has a Reply chunk if the reply may be longer than the threshold.
        assert_eq!(facing.next().unwrap()[8], u32::from(!is_short));
        let mut facing = Facing::new(Role::Server, config.clone());
        facing.send(&plain(5, CREDIT, 0, 1));
        let call = take_call(&mut facing.engine).unwrap();
        let script = Script { reply_inline: len, ..Script::default() };
        facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
        facing.run();
        let reply = facing.next().unwrap();
        assert_eq!((reply.len(), reply[4] & MORE), (1024, if is_short { 0 } else { MORE }));
    }
    // Receives are large enough for messages of a peer that does not know the local size yet.
    for (receive_size, posted) in [(1024, 4096), (4096, 4096), (8192, 8192)] {
        config.receive_size = receive_size;
        assert_eq!(Connection::setup_params(&config, false).receive_size, posted);
    }
}

/// §5.2.2, §5.2.5: the properties apply to calls that arrive together with the last property.
#[test]
fn properties_apply_at_once() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.send(&connprop(7, TPMORE, &[]));
    facing.next().expect("no properties");
    facing.raw.send(&connprop(7, 0, &[(2, &[2048])]), &[]);
    facing.raw.send(&plain(9, CREDIT, 0, 1), &[]);
    facing.run();
    let call = take_call(&mut facing.engine).expect("call not served");
    let script = Script { reply_inline: 3000, ..Script::default() };
    facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
    facing.run();
    let reply = facing.next().expect("no reply");
    assert_eq!((4 * reply.len(), reply[4]), (2048, RESPONSE | MORE));
}

/// §5.2: the defaults are messages of 4096 bytes, segments of 1 MiB, 16 segments, and no reverse direction.
#[test]
fn default_properties() {
    let facing = Facing::new(Role::Server, EngineConfig::default());
    let peer = facing.engine.conn.peer_limits().properties.unwrap();
    assert_eq!((peer.send_size, peer.receive_size, peer.segment_len, peer.segments), (4096, 4096, 1 << 20, 16));
    assert_eq!(peer.reverse, ReverseDirection::None);
}

/// §6.2.2.3, §6.3.4: no call is sent before both peers have announced their last property. RDMA2_F_TPMORE announces
/// that more properties follow.
#[test]
fn calls_wait_for_the_last_property() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.call(&Script::default());
    facing.next().unwrap();
    facing.send(&connprop(1, TPMORE, &[(2, &[8192])]));
    facing.send(&connprop(1, TPMORE, &[]));
    assert!(facing.next().is_none());
    facing.send(&connprop(1, 0, &[(1, &[2048])]));
    assert_eq!(facing.next().expect("no call")[3], 0);
    let peer = facing.engine.conn.peer_limits().properties.unwrap();
    assert_eq!((peer.send_size, peer.receive_size), (2048, 8192));
}

/// §6.2.2.2, §6.3.4: RDMA2_CONNPROP may be continued.
#[test]
fn continued_properties() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    let whole = connprop(1, 0, &[(99, &[7; 100]), (2, &[8192])]);
    let (first, second) = whole.split_at(50);
    let mut first = first.to_vec();
    first[4] = MORE;
    facing.send(&first);
    facing.send(&[&whole[..5], second].concat());
    assert_eq!(facing.engine.conn.peer_limits().properties.unwrap().receive_size, 8192);
}

/// An authenticator that sends a fixed number of messages of a fixed length. It accepts only messages of this length
/// that consist of an expected byte.
#[derive(Debug)]
struct Rounds {
    rounds: usize,
    len: usize,
    role: Role,
    said: usize,
    /// The byte that the peer has to send.
    expects: u8,
    says: u8,
}

#[derive(Debug)]
struct Maker {
    rounds: usize,
    len: usize,
    expects: u8,
    says: u8,
}

impl HostAuth for Maker {
    fn authenticator(&self, role: Role) -> Box<dyn HostAuthenticator> {
        let Self { rounds, len, expects, says } = *self;
        Box::new(Rounds { rounds, len, role, said: 0, expects, says })
    }
}

impl Rounds {
    fn speak(&mut self) -> HostAuthStep {
        let done = self.said + 1 == self.rounds;
        self.said += 1;
        HostAuthStep { send: Some(Bytes::from(vec![self.says; self.len])), done }
    }
}

impl HostAuthenticator for Rounds {
    fn start(&mut self) -> Result<HostAuthStep, HostAuthError> {
        Ok(if self.role == Role::Client { self.speak() } else { HostAuthStep::default() })
    }

    fn received(&mut self, material: &[u8]) -> Result<HostAuthStep, HostAuthError> {
        if material.len() != self.len || material.iter().any(|&byte| byte != self.expects) {
            return Err(HostAuthError("unexpected host".into()));
        }
        Ok(self.speak())
    }

    fn peer_finished(&mut self) -> Result<(), HostAuthError> {
        Err(HostAuthError("peer sent no authentication data".into()))
    }
}

fn who(rounds: usize, len: usize, says: u8, expects: u8) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.host_auth = Some(Arc::new(Maker { rounds, len, expects, says }));
    config
}

/// §5.2.6: one or several rounds of authentication material are exchanged before the first call. The material may be
/// longer than a message.
#[test]
fn host_authentication() {
    for (rounds, len) in [(1, 10), (3, 900), (5, 5000), (2, 50_000)] {
        let mut duo = PeerPair::new(who(rounds, len, 1, 2), who(rounds, len, 2, 1), stepped());
        let reply = duo.one(CLIENT, Script { inline: 100, ..Script::default() }).unwrap();
        assert_eq!(reply.format, MessageFormat::Short);
        duo.one(SERVER, Script { number: 1, ..Script::default() }).unwrap();
    }
}

/// §5.2.6: if a peer fails to authenticate or does not try, the connection is closed, and no call is served.
#[test]
fn host_authentication_fails() {
    for (client, server) in [
        (who(2, 100, 1, 2), who(2, 100, 2, 3)),
        (who(2, 100, 1, 3), who(2, 100, 2, 1)),
        (who(2, 100, 1, 2), EngineConfig::default()),
        (EngineConfig::default(), who(1, 100, 1, 2)),
        // Only the server, or only the client, expects something else.
        (who(1, 100, 1, 2), who(1, 100, 2, 3)),
        (who(2, 100, 1, 3), who(1, 100, 2, 1)),
    ] {
        let mut duo = PeerPair::new(client, server, stepped());
        duo.call(CLIENT, Script::default());
        duo.run();
        let closed = |end: usize| Pair::closed(&duo.sides[end].peer.events);
        if matches!(duo.sides[CLIENT].outcomes.get(&0), Some(Ok(_))) {
            panic!("a call succeeded without authentication");
        }
        let refused = |reason: Option<&CloseReason>| matches!(reason, Some(CloseReason::HostAuthentication(_)));
        assert!(refused(closed(CLIENT)) || refused(closed(SERVER)), "{:?} {:?}", closed(CLIENT), closed(SERVER));
        assert_eq!(duo.sides[SERVER].arrived, 0);
    }
}

/// §5.2.6: material that the authenticator rejects ends the connection, in both roles.
#[test]
fn wrong_material_ends_the_connection() {
    for role in [Role::Client, Role::Server] {
        for (byte, is_right) in [(2, true), (3, false)] {
            let mut facing = Facing::silent(role, who(2, 4, 1, 2));
            facing.run();
            facing.send(&connprop(7, TPMORE, &[(6, &[4, u32::from_be_bytes([byte; 4])])]));
            let closed = Pair::closed(&facing.engine.events);
            assert_eq!(matches!(closed, Some(CloseReason::HostAuthentication(_))), !is_right, "{role:?}: {closed:?}");
        }
    }
}

/// §4.2.3: the first message has at most 1024 bytes, however many properties there are. The second message is not sent
/// until a message of the server grants credits. §4.2.2: later messages have at most 4096 bytes.
#[test]
fn first_message_is_short() {
    let mut config = who(1, 20_000, 1, 2);
    config.send_size = 8192;
    let mut facing = Facing::silent(Role::Client, config);
    facing.run();
    let (first, _) = facing.raw.received.pop_front().unwrap();
    assert!(first.len() <= 1024 && facing.raw.received.is_empty());
    // §6.3.4: more properties follow.
    assert_eq!([word(&first, 1), word(&first, 3), word(&first, 4)], [2, CONNPROP, TPMORE]);
    // No credits: a message of another version, one that is too short, and a grant of zero.
    let mut words = connprop(1, TPMORE, &[]);
    for bad in [&[3, 3, CREDIT, 0, 0][..], &[1, 2, CREDIT, CONNPROP], &[&words[..2], &[50 << 16], &words[3..]].concat()]
    {
        facing.send(bad);
        assert!(facing.raw.received.is_empty(), "message sent after {bad:?}");
    }
    words[2] = 50 << 16 | 50;
    facing.send(&words);
    let sent: Vec<_> = std::iter::from_fn(|| facing.next()).filter(|words| words[3] == CONNPROP).collect();
    assert_eq!(sent.iter().map(|words| words[4]).collect::<Vec<_>>(), [MORE, MORE, MORE, MORE, 0]);
    assert_eq!(sent.iter().map(Vec::len).max(), Some(1024));
}

/// §4.2.3: a property goes in the first message as long as the message has at most 1024 bytes.
#[test]
fn longest_first_message() {
    // Prefix, count, four numbers, and the head of the material and its length.
    let others = 20 + 4 + 4 * 12 + 8 + 4;
    for (len, first_len) in [(1024 - others, 1024), (1025 - others, others - 12), (1028 - others, others - 12)] {
        let mut config = who(1, len, 1, 2);
        config.send_size = 8192;
        let mut facing = Facing::silent(Role::Client, config);
        facing.run();
        let (first, _) = facing.raw.received.pop_front().unwrap();
        assert_eq!(first.len(), first_len, "{len} bytes of material");
    }
}

/// The engine gives up on a peer that never announces its last property.
#[test]
fn endless_exchange_times_out() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    for _ in 0..20 {
        facing.send(&connprop(1, TPMORE, &[]));
        facing.now += std::time::Duration::from_secs(1);
        facing.run();
    }
    assert!(matches!(Pair::closed(&facing.engine.events), Some(CloseReason::NegotiationFailed { .. })));
}

/// A server does not time out a client that has sent nothing. The upper layer sets such a limit.
#[test]
fn silent_client() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.run();
    assert_eq!(facing.engine.conn.poll_timeout(), None);
    facing.send(&connprop(1, 0, &[]));
    facing.send(&plain(2, CREDIT, 0, 1));
    assert!(take_call(&mut facing.engine).is_some());
    assert_eq!(facing.engine.conn.poll_timeout(), None);
}

/// §5.2.1, §5.2.2: a size below the minimum is refused. §7.2.2: none of the properties in the refused message is
/// applied.
#[test]
fn too_small_sizes_are_refused() {
    for which in [1, 2] {
        let mut facing = Facing::silent(Role::Server, EngineConfig::default());
        facing.send(&connprop(7, TPMORE, &[(4, &[7]), (which, &[1023])]));
        facing.next().expect("no properties");
        assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 3]);
        facing.send(&connprop(8, 0, &[]));
        let peer = facing.engine.conn.peer_limits().properties.unwrap();
        assert_eq!((peer.segments, peer.send_size, peer.receive_size), (16, 4096, 4096));
    }
}

/// §5.2.5: an unknown level of reverse-direction support counts as the lowest, so the server makes no calls.
#[test]
fn unknown_reverse_direction_level() {
    let mut facing = Facing::said(Role::Server, EngineConfig::default(), &[(5, &[4])]);
    let peer = facing.engine.conn.peer_limits().properties.unwrap();
    assert_eq!(peer.reverse, ReverseDirection::None);
    facing.call(&Script::default());
    assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::ReverseNotSupported);
}

/// §6.3.4, §4.2.1.1: a server's first message is its RDMA2_CONNPROP, even if the client has granted no credits.
#[test]
fn a_server_begins_with_its_properties() {
    for granted in [0, 1, 16] {
        let mut facing = Facing::silent(Role::Server, EngineConfig::default());
        let mut words = connprop(7, TPMORE, &[]);
        words[2] = 16 << 16 | granted;
        facing.send(&words);
        assert_eq!(facing.raw.next().expect("no properties")[3], CONNPROP, "{granted} credits granted");
    }
    // Errors come after the properties, too.
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.send(&plain(3, CREDIT, 0, 1));
    assert_eq!(facing.raw.next().unwrap()[3], CONNPROP);
    assert_eq!(facing.next().unwrap()[3..], [ERROR, RESPONSE, 100]);
}

/// §6.2.2.2, §6.3.4: authentication material that fits in one message is not split, at the beginning or in response to
/// material of the peer.
#[test]
fn material_in_one_message() {
    for (words, messages) in [(500, 1), (1015, 1), (1016, 2)] {
        let len = 4 * words;
        let mut facing = Facing::silent(Role::Client, who(2, len, 1, 1));
        facing.run();
        facing.raw.received.clear();
        facing.send(&connprop(7, TPMORE, &[]));
        let sent = std::iter::from_fn(|| facing.next()).collect::<Vec<_>>();
        assert_eq!(sent.len(), messages, "{words} words at first");
        assert!(sent.iter().all(|words| words[4] & TPMORE != 0));
        let value: Vec<u32> = std::iter::once(len as u32).chain(vec![0x0101_0101; words]).collect();
        let mut material = connprop(7, TPMORE, &[(6, &value)]);
        if messages > 1 {
            // Too long for one Send, so it is continued.
            let rest = material.split_off(1000);
            let mut first = material.clone();
            first[4] |= MORE;
            facing.send(&first);
            material.truncate(5);
            material.extend(rest);
        }
        facing.send(&material);
        let sent = std::iter::from_fn(|| facing.next()).collect::<Vec<_>>();
        assert_eq!(sent.len(), messages, "{words} words in response");
        assert_eq!(sent.last().map(|words| words[4]), Some(0));
    }
}
