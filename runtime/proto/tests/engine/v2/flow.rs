//! Credits (RPC-over-RDMA v2 §4.2.1).

use rpcrdma_proto::engine::Engine as _;
use rpcrdma_proto::{
    engine::{EngineConfig, Role},
    provider::sim::SimEnd,
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NO_NEW, NOMSG, RESPONSE, XID, connprop, plain},
};
use crate::support::{Script, take_call};

fn credits(credits: u32, reverse: u32) -> EngineConfig {
    let mut config = EngineConfig::default();
    (config.credits, config.reverse_credits) = (credits, reverse);
    config
}

/// Returns a separate grant of `new` credits.
fn grant(new: u32) -> [u32; 9] {
    [0, 2, NO_NEW | new, NOMSG, 0, 0, 0, 0, 0]
}

/// Returns the first message of a peer, with the credit field `credit`.
fn properties(credit: u32) -> Vec<u32> {
    let mut words = connprop(9, 0, &[]);
    words[2] = credit;
    words
}

/// Makes the engine reply to the oldest call that it has received, with the reply of the script.
fn answer(facing: &mut Facing, script: &Script) {
    let call = take_call(&mut facing.engine).expect("no call");
    facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
    facing.run();
}

/// §4.2.1.1: the maximum number of credits is in the high half of the field, and the number of new credits in the low
/// half. §4.2.1.2: there is at least one Receive more than granted credits.
#[test]
fn maximum_and_new_credits() {
    let mut facing = Facing::silent(Role::Server, credits(10, 0));
    facing.send(&connprop(1, 0, &[]));
    // The client's message has used the credit that it may assume.
    let first = facing.next().unwrap();
    assert_eq!(first[2], 10 << 16 | 10);
    assert!(facing.network.receives(SimEnd::B) > 10);
    // A call in progress keeps its credit until the reply.
    facing.send(&plain(5, CREDIT, 0, 1));
    facing.send(&plain(6, CREDIT, 0, 2));
    assert!(facing.next().is_none());
    let call = take_call(&mut facing.engine).unwrap();
    facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
    facing.run();
    assert_eq!(facing.next().unwrap()[2], 10 << 16 | 1);
}

/// §4.2.3: a client sends one message until the server grants credits, then as many messages as the grants add up to.
#[test]
fn client_waits_for_credits() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.run();
    assert_eq!(facing.raw.received.len(), 1);
    facing.send(&properties(5 << 16 | 2));
    facing.raw.received.clear();
    for number in 0..6 {
        facing.call(&Script { number, ..Script::default() });
    }
    assert_eq!(facing.raw.received.len(), 2);
    // §4.2.1.2, §6.3.2: an asynchronous credit grant.
    facing.send(&[0, 2, 5 << 16 | 2, NOMSG, 0, 0, 0, 0, 0]);
    assert_eq!(facing.raw.received.len(), 4);
    // The peer's maximum also limits the number of calls in flight.
    facing.send(&[0, 2, 5 << 16 | 9, NOMSG, 0, 0, 0, 0, 0]);
    assert_eq!(facing.raw.received.len(), 5);
    assert_eq!(facing.engine.conn.counters().grants_received, 2);
}

/// §4.2.1.1: both halves of the field have 16 bits, and the maximum is at least one, whatever the configuration is.
#[test]
fn bounds_of_credits() {
    for (configured, max) in [(0, 1), (1, 1), (0xffff, 0xffff), (0x1_0000, 0xffff), (u32::MAX, 0xffff)] {
        let mut facing = Facing::silent(Role::Server, credits(configured.min(70_000), 0));
        facing.send(&properties(CREDIT));
        assert_eq!(facing.next().unwrap()[2], max << 16 | max, "{configured}");
        facing.engine.conn.set_credits(configured);
        facing.send(&plain(5, CREDIT, 0, 1));
        answer(&mut facing, &Script::default());
        let fields: Vec<_> = std::iter::from_fn(|| facing.raw.next()).map(|words| words[2]).collect();
        assert!(fields.iter().all(|field| field >> 16 == max), "{configured}: {fields:?}");
        assert_eq!(fields.iter().map(|field| field & 0xffff).sum::<u32>(), 1, "{configured}");
    }
    // A peer that states a maximum of zero still gets one call at a time.
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.send(&properties(4));
    facing.raw.received.clear();
    (0..2).for_each(|number| facing.call(&Script { number, ..Script::default() }));
    assert_eq!(facing.raw.received.len(), 1);
}

/// §4.2.1.1: a peer whose calls are all in progress still gets credits. It may need them for replies that its calls
/// wait for.
#[test]
fn calls_in_progress_leave_credits() {
    for max in [1, 2, 3] {
        let mut facing = Facing::silent(Role::Server, credits(max, 0));
        facing.send(&properties(CREDIT));
        facing.raw.received.clear();
        (0..max).for_each(|xid| facing.send(&plain(5 + xid, CREDIT, 0, xid)));
        let granted: u32 = std::iter::from_fn(|| facing.raw.next()).map(|words| words[2] & 0xffff).sum();
        assert_eq!(granted, max.min(2));
    }
}

/// §4.2.1.1: newly granted credits are added to the credits that are left.
#[test]
fn newly_granted_credits_add_up() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.send(&properties(NO_NEW | 2));
    facing.send(&grant(1));
    facing.send(&grant(2));
    facing.raw.received.clear();
    (0..9).for_each(|number| facing.call(&Script { number, ..Script::default() }));
    assert_eq!(facing.raw.received.len(), 5);
}

/// §4.2.1.1: a short reply, each part of a long reply, and an error use a credit each. §4.2.1.2: a separate grant uses
/// no credit, and is sent even without credits.
#[test]
fn each_message_uses_a_credit() {
    let mut facing = Facing::silent(Role::Server, credits(4, 0));
    facing.send(&properties(NO_NEW | 1));
    facing.next().expect("no properties");
    for (xid, reply_inline) in [(5, 0), (6, 5000)] {
        facing.send(&plain(xid, NO_NEW, 0, xid));
        answer(&mut facing, &Script { reply_inline, ..Script::default() });
    }
    for xid in [7, 8] {
        facing.send(&[xid, 2, NO_NEW, 77, 0]);
    }
    let sent: Vec<_> = std::iter::from_fn(|| facing.raw.next()).map(|words| (words[0], words[3])).collect();
    assert_eq!(sent, [(0, NOMSG)], "other messages than a grant without a credit");
    let mut sent = Vec::new();
    for _ in 0..5 {
        facing.send(&grant(1));
        let words = facing.next().expect("credit not used");
        sent.push((words[0], words[3]));
        assert!(facing.next().is_none(), "two messages with one credit");
    }
    assert_eq!(sent, [(5, MSG), (6, MSG), (6, MSG), (7, ERROR), (8, ERROR)]);
}

/// §4.2.1.1: a credit is a Receive, which is posted before the peer learns of the credit.
#[test]
fn receives_come_before_grants() {
    let mut facing = Facing::silent(Role::Server, credits(2, 0));
    facing.send(&properties(CREDIT));
    facing.send(&plain(5, CREDIT, 0, 1));
    facing.raw.received.clear();
    facing.engine.conn.set_credits(10);
    let call = take_call(&mut facing.engine).expect("no call");
    facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
    // The reply is posted, and nothing else happens.
    facing.engine.turn(facing.now);
    let receives = facing.network.receives(SimEnd::B);
    facing.run();
    assert_eq!(facing.next().unwrap()[2], 10 << 16 | 9);
    assert!(receives > 10, "{receives} Receives for 10 credits");
}

/// §4.2.1.2: a peer gets no second separate grant until it has used a credit of the first grant, because it has only
/// one Receive for separate grants.
#[test]
fn one_separate_grant_at_a_time() {
    let mut facing = Facing::silent(Role::Server, credits(8, 0));
    facing.send(&properties(CREDIT));
    facing.raw.received.clear();
    let grants: Vec<u32> = (0..12)
        .map(|_| {
            facing.send(&[5, 2, NO_NEW, MSG, MORE, 0, 0, 0, 0, 5, 0]);
            std::iter::from_fn(|| facing.raw.next()).map(|words| words[2] & 0xffff).sum()
        })
        .collect();
    assert_eq!(grants, [0, 0, 0, 4, 0, 0, 0, 0, 5, 0, 0, 0]);
}

/// §4.1: no other message is sent between the parts of a call, however many messages wait for credits.
#[test]
fn messages_are_not_interleaved() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.send(&properties(NO_NEW | 1));
    facing.raw.received.clear();
    // The first of four parts uses the only credit.
    facing.call(&Script { number: 1, inline: 13_000, ..Script::default() });
    facing.call(&Script { number: 2, ..Script::default() });
    facing.send(&plain(5, NO_NEW, 0, 3));
    answer(&mut facing, &Script::default());
    facing.send(&[6, 2, NO_NEW, 77, 0]);
    for new in [1, 1, 4] {
        facing.send(&grant(new));
    }
    let sent: Vec<_> = std::iter::from_fn(|| facing.next()).map(|words| (words[0], words[3], words[4])).collect();
    let part = (XID + 1, MSG, MORE);
    let others = [(XID + 1, MSG, 0), (5, MSG, RESPONSE), (6, ERROR, RESPONSE), (XID + 2, MSG, 0)];
    assert_eq!(sent, [&[part; 3][..], &others].concat());
}

/// §6.2.2.2: if the sender's credits run out within a sequence, the receiver grants new credits by RDMA2_NOMSG without
/// chunks and with XID zero.
#[test]
fn grants_within_a_sequence() {
    let mut facing = Facing::silent(Role::Server, credits(4, 0));
    facing.send(&connprop(1, 0, &[]));
    facing.next().unwrap();
    let fragment = |flags| [5, 2, NO_NEW, MSG, flags, 0, 0, 0, 0, 5, 0];
    let mut granted = 4;
    for _ in 0..20 {
        assert!(granted > 0, "no credits left in the middle of a sequence");
        facing.send(&fragment(MORE));
        granted -= 1;
        while let Some(words) = facing.raw.next() {
            assert_eq!([words[0], words[1], words[2] >> 16, words[3]], [0, 2, 4, NOMSG]);
            assert_eq!(words[4..], [0; 5]);
            assert_ne!(words[2] & 0xffff, 0, "a separate grant of zero credits");
            granted += words[2] & 0xffff;
            assert!(facing.network.receives(SimEnd::B) as u32 > granted);
        }
    }
    facing.send(&fragment(0));
    assert_eq!(take_call(&mut facing.engine).unwrap().payload.as_slice().len(), 21 * 8);
}

/// §6.2.2.2: a sender without credits waits within a sequence, and then sends as many messages as it is granted. The
/// length of a sequence is not limited by the credits. All its messages have the same XID and header type.
#[test]
fn sequence_waits_for_credits() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    facing.run();
    let mut properties = connprop(9, 0, &[]);
    properties[2] = 3 << 16 | 3;
    facing.send(&properties);
    facing.raw.received.clear();
    facing.call(&Script { inline: 40_000 - 12, ..Script::default() });
    let mut messages = Vec::new();
    for (sent, granted) in [(3, 1), (1, 2), (2, 3), (3, 3), (1, 0)] {
        let before = messages.len();
        messages.extend(std::iter::from_fn(|| facing.raw.next()));
        assert_eq!(messages.len() - before, sent);
        facing.send(&[0, 2, 3 << 16 | granted, NOMSG, 0, 0, 0, 0, 0]);
    }
    let (last, others) = messages.split_last().unwrap();
    assert!(others.iter().all(|words| words[3..5] == [MSG, MORE] && words[0] == last[0]));
    assert_eq!(last[3..5], [MSG, 0]);
    assert_eq!(messages.iter().map(|words| 4 * (words.len() - 9)).sum::<usize>(), 40_000);
}

/// §4.2.1, §6.2.2.2: continued messages in both directions at once do not deadlock, even with the smallest numbers of
/// credits.
#[test]
fn no_deadlock() {
    let mut grants = 0;
    for (client, server) in [(1, 1), (1, 3), (2, 1), (8, 8)] {
        let mut duo = PeerPair::new(credits(client, 1), credits(server, 1), stepped());
        for end in [CLIENT, SERVER] {
            for number in 0..6 {
                duo.call(end, Script { number, inline: 40_000, reply_inline: 40_000, ..Script::default() });
            }
        }
        duo.run();
        for side in &mut duo.sides {
            assert_eq!(side.outcomes.len(), 6);
            side.outcomes.values().for_each(|result| assert!(result.is_ok(), "{result:?}"));
        }
        grants += duo.sides.iter().map(|side| side.peer.conn.counters().grants_sent).sum::<u64>();
        duo.assert_nothing_exposed();
    }
    assert!(grants > 0);
}

/// Simple calls and replies carry the grants. Separate grants would double the number of messages.
#[test]
fn no_needless_grants() {
    let mut duo = PeerPair::plain();
    for number in 0..200 {
        duo.call(CLIENT, Script { number, ..Script::default() });
        if number % 7 == 0 {
            duo.run();
        }
    }
    duo.run();
    assert_eq!(duo.sides[CLIENT].outcomes.len(), 200);
    let grants = duo.sides.iter().map(|side| side.peer.conn.counters().grants_sent).sum::<u64>();
    assert!(grants <= 2, "{grants}");
}

/// §4.2.1.1: the number of credits can change while the connection is in use.
#[test]
fn credits_can_change() {
    let mut facing = Facing::silent(Role::Server, credits(2, 0));
    facing.send(&connprop(1, 0, &[]));
    facing.next().unwrap();
    let exchange = |facing: &mut Facing, xid| {
        facing.send(&plain(xid, CREDIT, 0, 1));
        let call = take_call(&mut facing.engine).unwrap();
        facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
        facing.run();
        // The last maximum, and the sum of the new credits.
        std::iter::from_fn(|| facing.raw.next())
            .fold((0, 0), |(_, sum), words| (words[2] >> 16, sum + (words[2] & 0xffff)))
    };
    assert_eq!(exchange(&mut facing, 1), (2, 1));
    facing.engine.conn.set_credits(10);
    assert_eq!(exchange(&mut facing, 2), (10, 9));
    assert!(facing.network.receives(SimEnd::B) > 10);
    facing.engine.conn.set_credits(8);
    // The peer has two credits more than it should, so it gets none until it has used them.
    assert_eq!([3, 4, 5].map(|xid| exchange(&mut facing, xid)), [(8, 0), (8, 0), (8, 1)]);
}

/// A peer that sends calls or unknown messages, but grants no credits for the responses, is disconnected before its
/// 200th message.
#[test]
fn peer_that_grants_no_credits_is_disconnected() {
    for call in [true, false] {
        let mut facing = Facing::silent(Role::Server, credits(4, 0));
        facing.send(&connprop(1, 0, &[]));
        let mut sent = 0;
        while !facing.raw.disconnected() {
            sent += 1;
            assert!(sent < 200);
            let words = if call { plain(sent, NO_NEW, 0, sent) } else { vec![sent, 2, NO_NEW, 99, 0] };
            facing.raw.send(&words, &[]);
            facing.run();
            while let Some(call) = take_call(&mut facing.engine) {
                facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
            }
        }
        assert!(sent > 30);
    }
}

/// A server that grants `n` credits serves at most `2 * n + 2` calls of a client at a time. It refuses further calls.
#[test]
fn peer_with_too_many_calls_is_refused() {
    let mut facing = Facing::silent(Role::Server, credits(2, 0));
    facing.send(&connprop(1, 0, &[]));
    for xid in 10..40 {
        facing.send(&plain(xid, CREDIT, 0, xid));
    }
    let taken = std::iter::from_fn(|| take_call(&mut facing.engine)).count();
    assert_eq!(taken, 6);
    let refused = std::iter::from_fn(|| facing.next()).filter(|words| words[3] == 4 && words[5] == 100).count();
    assert_eq!(refused, 24);
}
