//! Calls from the peer that accepted the connection (RPC-over-RDMA v2 §4.5, §5.2.5).

use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::engine::{CallFailure, EngineConfig, MessageFormat, ReverseDirection, Role, TransportError};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NOMSG, RESPONSE, TPMORE, XID, connprop, plain},
};
use crate::support::{Script, take_call};

fn level(level: ReverseDirection) -> EngineConfig {
    let mut config = EngineConfig::default();
    config.reverse_direction = level;
    config
}

fn duo(reverse: ReverseDirection) -> PeerPair {
    PeerPair::new(level(reverse), EngineConfig::default(), stepped())
}

/// §4.5.4: the highest level supports chunks, continued messages and Special Format.
#[test]
fn general_level() {
    let mut duo = duo(ReverseDirection::General);
    for (number, inline) in [(0, 100), (1, 10_000), (2, 100_000)] {
        let results = vec![(9000, 10_000)];
        let script = Script {
            number,
            inline,
            args: vec![5000],
            reduce: true,
            results,
            reply_inline: inline,
            ..Script::default()
        };
        let reply = duo.one(SERVER, script).unwrap();
        let format = [MessageFormat::Chunked, MessageFormat::Continued, MessageFormat::Long][number as usize];
        assert_eq!((reply.call.format, reply.format), (format, format));
        duo.assert_nothing_exposed();
    }
    assert_eq!(duo.sides[CLIENT].peer.conn.counters().rdma_write_bytes, 27_000 + 100_012 + 4);
}

/// §5.2.5: the level `Continued` supports continued messages, but no chunks.
#[test]
fn continued_level() {
    let mut duo = duo(ReverseDirection::Continued);
    let results = vec![(9000, 10_000)];
    let script = Script { inline: 100_000, args: vec![5000], reduce: true, results, ..Script::default() };
    let reply = duo.one(SERVER, script).unwrap();
    assert_eq!((reply.call.format, reply.format), (MessageFormat::Continued, MessageFormat::Continued));
    assert_eq!(duo.sides[SERVER].peer.conn.counters().registrations, 0);
}

/// §5.2.5: the level `Simple` supports one Send in each direction.
#[test]
fn simple_level() {
    let mut duo = duo(ReverseDirection::Simple);
    let reply = duo.one(SERVER, Script { inline: 4048, reply_inline: 4048, ..Script::default() }).unwrap();
    assert_eq!((reply.call.format, reply.format), (MessageFormat::Short, MessageFormat::Short));
    let failure = duo.one(SERVER, Script { number: 1, inline: 4049, ..Script::default() }).unwrap_err();
    assert!(matches!(failure, CallFailure::ReverseTooLong { len: 4064, max: 4060 }), "{failure}");
    let failure = duo.one(SERVER, Script { number: 2, reply_inline: 4049, ..Script::default() }).unwrap_err();
    assert!(matches!(failure, CallFailure::Refused(TransportError::ReplyResource { needed: 4064 })), "{failure}");
}

/// §4.5.1: in each format, a call in the reverse direction has a new XID and the version of the connection in its
/// header, and a clear RDMA2_F_RESPONSE. An RPC message that is sent inline has the XID of the header.
#[test]
fn headers_of_reverse_calls() {
    let mut facing = Facing::said(Role::Server, EngineConfig::default(), &[(5, &[3])]);
    let chunked = Script { args: vec![2001], reduce: true, ..Script::default() };
    // Number of messages, header type, and place of the RPC message in the last one.
    for (n, (script, count, htype, payload)) in (0..).zip([
        (Script::default(), 1, MSG, Some(9)),
        (chunked, 1, MSG, Some(15)),
        (Script { inline: 5000, ..Script::default() }, 2, MSG, None),
        (Script { inline: 90_000, ..Script::default() }, 1, NOMSG, None),
    ]) {
        facing.call(&Script { number: n, ..script });
        let messages: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
        assert_eq!(messages.len(), count);
        for (at, words) in messages.iter().enumerate() {
            let flags = if at + 1 == count { 0 } else { MORE };
            assert_eq!([words[0], words[1], words[3], words[4]], [XID + 1 + n, 2, htype, flags]);
        }
        if let Some(at) = payload {
            assert_eq!(messages[0][at..at + 3], [XID + 1 + n, 0, n]);
        } else if count > 1 {
            assert_eq!(messages[0][9..12], [XID + 1 + n, 0, n]);
        }
    }
}

/// §4.5.2: a reply in the reverse direction has the XID of its call in header and RPC message, the version of the
/// connection, and RDMA2_F_RESPONSE, in each format.
#[test]
fn headers_of_reverse_replies() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    let (handle, offset) = facing.raw.sink(9000);
    let segment = [handle, 9000, (offset >> 32) as u32, offset as u32];
    let writes = [&[0, 0, 1, 1], &segment[..], &[0, 0]].concat();
    let long = [&[0, 0, 0, 1, 1], &segment[..]].concat();
    let none = vec![0; 4];
    // The chunk lists of the call, the reply, its number of messages and header type, and the place of the RPC message.
    for (xid, (lists, script, count, htype, payload)) in (40..).zip([
        (none.clone(), Script::default(), 1, MSG, 9),
        (writes, Script { results: vec![(2001, 9000)], ..Script::default() }, 1, MSG, 15),
        (none, Script { reply_inline: 5000, ..Script::default() }, 2, MSG, 9),
        (long, Script { reply_inline: 5000, ..Script::default() }, 1, NOMSG, 0),
    ]) {
        facing.send(&[&[xid, 2, CREDIT, MSG, 0], &lists[..], &[xid, 0, 1]].concat());
        let call = take_call(&mut facing.engine).expect("no call");
        facing.engine.conn.reply(call.token, script.reply(script.results.iter().map(|_| true)));
        facing.run();
        let messages: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
        assert_eq!(messages.len(), count);
        for (at, words) in messages.iter().enumerate() {
            let flags = RESPONSE | if at + 1 == count { 0 } else { MORE };
            assert_eq!([words[0], words[1], words[3], words[4]], [xid, 2, htype, flags]);
        }
        if htype == MSG {
            assert_eq!(messages[0][payload..payload + 2], [xid, 1]);
        } else {
            assert_eq!(facing.raw.take_back(handle)[..8], [&xid.to_be_bytes()[..], &[0, 0, 0, 1]].concat());
        }
    }
}

/// §4.5.3: a server makes no call before its client has announced that it accepts calls. A client that announces
/// nothing accepts none (§5.2.5).
#[test]
fn reverse_calls_wait_for_the_announcement() {
    for announced in [None, Some(0), Some(1), Some(2), Some(3)] {
        let value = [announced.unwrap_or(0)];
        let properties = [(5, &value[..])];
        let properties = if announced.is_some() { &properties[..] } else { &[] };
        for is_first in [true, false] {
            let mut facing = Facing::silent(Role::Server, EngineConfig::default());
            facing.call(&Script::default());
            assert!(facing.next().is_none() && facing.finished().is_none());
            facing.send(&connprop(7, TPMORE, if is_first { properties } else { &[] }));
            facing.next().expect("no properties");
            assert!(facing.next().is_none() && facing.finished().is_none());
            facing.send(&connprop(7, 0, if is_first { &[] } else { properties }));
            for number in 0..2 {
                if announced.unwrap_or(0) > 0 {
                    assert_eq!(facing.next().expect("no call")[3], MSG);
                } else {
                    assert_eq!(facing.finished().expect("not refused").unwrap_err(), CallFailure::ReverseNotSupported);
                    assert!(facing.next().is_none());
                }
                if number == 0 {
                    facing.call(&Script { number: 1, ..Script::default() });
                }
            }
        }
    }
}

/// §4.5.4: a call to a client without reverse-direction chunks has none, whatever it contains.
#[test]
fn no_chunks_below_the_general_level() {
    for level in [1, 2] {
        let mut facing = Facing::said(Role::Server, EngineConfig::default(), &[(5, &[level])]);
        let results = vec![(2000, 2000)];
        facing.call(&Script { args: vec![2000], reduce: true, results, ..Script::default() });
        assert_eq!(facing.next().expect("no call")[3..9], [MSG, 0, 0, 0, 0, 0]);
        facing.call(&Script { number: 1, reply_inline: 90_000, ..Script::default() });
        assert_eq!(facing.next().expect("no call")[3..9], [MSG, 0, 0, 0, 0, 0]);
        facing.call(&Script { number: 2, args: vec![5000], reduce: true, ..Script::default() });
        let parts: Vec<_> = std::iter::from_fn(|| facing.next()).collect();
        assert_eq!(parts.len(), if level == 1 { 0 } else { 2 });
        assert!(parts.iter().all(|words| words[3] == MSG && words[5..9] == [0; 4]));
    }
}

/// §4.5.3, §5.2.5: the server's calls to a client without reverse-direction support fail, whether they start before or
/// after the exchange of properties.
#[test]
fn no_reverse_direction() {
    let mut no_credits = EngineConfig::default();
    no_credits.reverse_credits = 0;
    for config in [level(ReverseDirection::None), no_credits] {
        let mut duo = PeerPair::new(config, EngineConfig::default(), stepped());
        for number in 0..2 {
            let failure = duo.one(SERVER, Script { number, ..Script::default() }).unwrap_err();
            assert!(matches!(failure, CallFailure::ReverseNotSupported));
        }
        assert_eq!(duo.sides[CLIENT].arrived, 0);
        duo.one(CLIENT, Script::default()).unwrap();
    }
}

/// §4.5.4: a client without reverse-direction chunks refuses them with an error of §7.3. A client without continuation
/// uses RDMA2_ERR_INVAL_CONT, and one without reverse-direction support RDMA2_ERR_SYSTEM.
#[test]
fn unsupported_reverse_calls_are_refused() {
    let answer = |reverse, words: &[u32]| {
        let mut facing = Facing::new(Role::Client, level(reverse));
        facing.send(words);
        assert!(take_call(&mut facing.engine).is_none());
        facing.next().expect("no response")[3..].to_vec()
    };
    let read = [3, 2, CREDIT, MSG, 0, 0, 1, 12, 1, 4, 0, 0, 0, 0, 0, 3, 0, 1];
    let write = [3, 2, CREDIT, MSG, 0, 0, 0, 1, 0, 0, 0, 3, 0, 1];
    let reply = [3, 2, CREDIT, MSG, 0, 0, 0, 0, 1, 1, 1, 4, 0, 0, 3, 0, 1];
    // §7.3.2: RDMA2_ERR_REPLY_RESOURCE if continuation is not supported either.
    for (reverse, code) in [(ReverseDirection::Simple, 10), (ReverseDirection::Continued, 7)] {
        assert_eq!(answer(reverse, &read), [ERROR, RESPONSE, 6, 0]);
        assert_eq!(answer(reverse, &write), [ERROR, RESPONSE, code, 0]);
        assert_eq!(answer(reverse, &reply), [ERROR, RESPONSE, 8, 0]);
    }
    let mut continued = plain(3, CREDIT, 0, 1);
    continued[4] = MORE;
    assert_eq!(answer(ReverseDirection::Simple, &continued), [ERROR, RESPONSE, 5]);
    assert_eq!(answer(ReverseDirection::None, &plain(3, CREDIT, 0, 1)), [ERROR, RESPONSE, 100]);
}

/// §3.1.3.4, §6.2.2.1: XIDs of the two directions may coincide. RDMA2_F_RESPONSE tells calls and replies apart.
#[test]
fn same_xid_in_both_directions() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    facing.call(&Script { number: 1, ..Script::default() });
    let xid = facing.next().unwrap()[0];
    facing.send(&plain(xid, CREDIT, 0, 2));
    let call = take_call(&mut facing.engine).expect("no call");
    assert_eq!(call.xid, xid);
    assert!(facing.finished().is_none());
    facing.send(&plain(xid, CREDIT, 1, 1));
    facing.finished().expect("call not finished").unwrap();
    facing.engine.conn.reply(call.token, Script { number: 2, ..Script::default() }.reply(std::iter::empty()));
    facing.run();
    let reply = facing.next().unwrap();
    assert_eq!([reply[0], reply[4], reply[9], reply[10]], [xid, RESPONSE, xid, 1]);
}

/// §4.5: client and server make calls at the same time, starting with the same XID, in all formats.
#[test]
fn both_directions_at_once() {
    let mut duo = PeerPair::plain();
    for number in 0..30 {
        for end in [CLIENT, SERVER] {
            let len = [10, 5000, 70_000][number as usize % 3];
            let script = Script {
                number,
                inline: len,
                reply_inline: len,
                results: vec![(len, len as u64)],
                ..Script::default()
            };
            duo.call(end, script);
        }
    }
    duo.run();
    for side in &duo.sides {
        assert_eq!(side.outcomes.values().filter(|result| result.is_ok()).count(), 30);
    }
    duo.assert_nothing_exposed();
}
