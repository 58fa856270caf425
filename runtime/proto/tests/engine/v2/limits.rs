//! The limits and timers of a connection, and its state after it has ended.

use std::{sync::Arc, time::Duration};

use rpcrdma_proto::{
    engine::{
        CallFailure, CallPolicy, CloseReason, Engine as _, EngineConfig, Extension, ExtensionFactory, ExtensionMessage,
        ExtensionOutcome, ExtensionProperty, HostAuth, HostAuthError, HostAuthStep, HostAuthenticator,
        ProtocolViolation, ReverseDirection, Role, Versions,
    },
    memory::{BufferPool, MemoryBudget},
    provider::{
        DisconnectReason,
        sim::{SimEnd, SimEndConfig},
    },
};

use super::{
    refusals::{reads, segment},
    scripted::{CREDIT, ERROR, Facing, MORE, MSG, NO_NEW, NOMSG, RESPONSE, connprop, plain},
};
use crate::support::{Script, take_call, take_reply_sent, with_versions};

fn config(change: impl FnOnce(&mut EngineConfig)) -> EngineConfig {
    let mut config = EngineConfig::default();
    change(&mut config);
    config
}

/// Takes the messages that have arrived at the peer, and returns their number. Grants of credits do not count.
fn sent(facing: &mut Facing) -> usize {
    std::iter::from_fn(|| facing.next()).count()
}

/// §4.2.1: one of eight credits is kept for urgent calls. A client that is configured with zero credits makes one call
/// at a time.
#[test]
fn calls_in_flight_are_bounded() {
    let mut facing = Facing::silent(Role::Client, config(|config| (config.keeps_credit, config.credits) = (true, 8)));
    facing.send(&connprop(7, 0, &[]));
    facing.raw.received.clear();
    (0..9).for_each(|number| facing.call(&Script { number, ..Script::default() }));
    assert_eq!(sent(&mut facing), 7);
    let policy = CallPolicy { urgent: true, ..CallPolicy::default() };
    facing.call(&Script { number: 9, policy, ..Script::default() });
    assert_eq!(sent(&mut facing), 1);
    assert_eq!(facing.engine.conn.counters().credits_granted, 16);
    let mut facing = Facing::new(Role::Client, config(|config| config.credits = 0));
    (0..2).for_each(|number| facing.call(&Script { number, ..Script::default() }));
    assert_eq!(sent(&mut facing), 1);
}

/// §4.2.1.1: every message but a grant uses a credit, which the engine's next message renews.
#[test]
fn credits_are_renewed() {
    let messages: [&[u32]; 7] = [
        &[3, 2, NO_NEW],
        &[3, 3, NO_NEW, ERROR, RESPONSE],
        &[3, 2, NO_NEW, ERROR, RESPONSE, 200],
        &[3, 2, NO_NEW, MSG, RESPONSE, 0, 0, 0, 0, 3, 1, 1],
        &[3, 2, NO_NEW, MSG, RESPONSE, 0, 7],
        &[3, 2, NO_NEW, NOMSG, RESPONSE, 0, 0, 0, 0],
        &[0, 2, NO_NEW, NOMSG, 0, 0, 0, 0, 0],
    ];
    for (n, message) in messages.iter().enumerate() {
        let mut facing = Facing::new(Role::Server, EngineConfig::default());
        (0..5).for_each(|_| facing.send(message));
        facing.send(&plain(9, CREDIT, 0, 1));
        let call = take_call(&mut facing.engine).expect("no call");
        facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
        facing.run();
        let granted = if n < 6 { 6 } else { 1 };
        assert_eq!(facing.next().expect("no reply")[2] & 0xffff, granted, "{message:?}");
    }
    // A message that only grants credits uses a spare Receive, which is posted again.
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    for _ in 0..100 {
        facing.send(&[0, 2, NO_NEW, NOMSG, 0, 0, 0, 0, 0]);
        assert!(facing.network.receives(SimEnd::A) > EngineConfig::default().credits as usize);
    }
    assert!(!facing.raw.disconnected());
}

/// §4.2.1: a call in progress keeps its credit. The parts of a message that is being sent do not grant the credit
/// again.
#[test]
fn calls_in_progress_keep_their_credits() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    let mut first = connprop(7, 0, &[]);
    first[2] = NO_NEW | 1;
    facing.send(&first);
    facing.raw.received.clear();
    facing.call(&Script { number: 1, inline: 9000, ..Script::default() });
    assert_eq!(facing.next().expect("no part")[2] & 0xffff, 1, "for the properties");
    facing.send(&plain(5, NO_NEW | 1, 0, 2));
    let part = facing.next().expect("no part");
    assert_eq!((part[3], part[2] & 0xffff), (MSG, 0));
}

/// A call beyond the maximum number of calls in progress is refused. A copy of a call in progress is discarded instead.
#[test]
fn calls_in_progress_are_bounded() {
    for (credits, most) in [(0, 4), (1, 4), (2, 6)] {
        let mut facing = Facing::new(Role::Server, config(|config| config.credits = credits));
        (0..most).for_each(|xid| facing.send(&plain(10 + xid, CREDIT, 0, xid)));
        assert_eq!(std::iter::from_fn(|| take_call(&mut facing.engine)).count() as u32, most);
        facing.send(&plain(10, CREDIT, 0, 0));
        assert!(facing.next().is_none(), "the call is in progress");
        assert_eq!(facing.engine.conn.counters().messages_discarded, 1);
        facing.send(&plain(99, CREDIT, 0, 0));
        assert_eq!(facing.next().expect("no error")[3..6], [ERROR, RESPONSE, 100]);
    }
}

/// A reply that uses the last credit is reported as sent, although another reply waits.
#[test]
fn replies_with_the_last_credit_are_reported() {
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    let mut first = connprop(7, 0, &[]);
    first[2] = NO_NEW | 1;
    facing.send(&first);
    (5..7).for_each(|xid| facing.send(&plain(xid, NO_NEW, 0, xid)));
    let calls = [take_call(&mut facing.engine).unwrap(), take_call(&mut facing.engine).unwrap()];
    let [first, _] = calls.map(|call| {
        facing.engine.conn.reply(call.token, Script::default().reply(std::iter::empty()));
        call.token
    });
    facing.send(&[0, 2, NO_NEW | 1, NOMSG, 0, 0, 0, 0, 0]);
    assert_eq!(take_reply_sent(&mut facing.engine), Some((first, true)));
    assert_eq!(take_reply_sent(&mut facing.engine), None);
    // A reply that takes both credits.
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    let mut properties = connprop(7, 0, &[]);
    properties[2] = NO_NEW | 1;
    facing.send(&properties);
    (5..7).for_each(|xid| facing.send(&plain(xid, NO_NEW, 0, xid)));
    let calls = [take_call(&mut facing.engine).unwrap(), take_call(&mut facing.engine).unwrap()];
    for (call, reply_inline) in calls.iter().zip([5000, 0]) {
        let script = Script { reply_inline, ..Script::default() };
        facing.engine.conn.reply(call.token, script.reply(std::iter::empty()));
    }
    facing.send(&[0, 2, NO_NEW | 2, NOMSG, 0, 0, 0, 0, 0]);
    assert_eq!(take_reply_sent(&mut facing.engine), Some((calls[0].token, true)));
    assert_eq!(take_reply_sent(&mut facing.engine), None);
}

/// A peer that grants credits is responsive, although a call timed out while it waited for credits.
#[test]
fn new_credits_show_that_a_peer_responds() {
    let grace = EngineConfig::default().abandoned_call_timeout;
    for is_granted in [true, false] {
        let mut facing = Facing::silent(Role::Client, EngineConfig::default());
        let mut first = connprop(7, 0, &[]);
        first[2] = NO_NEW | 1;
        facing.send(&first);
        let deadline = Some(Duration::from_secs(1));
        facing.call(&Script { deadline, ..Script::default() });
        for passed in [Duration::from_secs(1), grace] {
            facing.now += passed;
            facing.run();
        }
        facing.call(&Script { number: 1, deadline, ..Script::default() });
        facing.now += Duration::from_secs(1);
        if is_granted {
            facing.raw.send(&[0, 2, NO_NEW | 1, NOMSG, 0, 0, 0, 0, 0], &[]);
        }
        facing.run();
        assert_eq!(facing.engine.conn.close_reason().is_none(), is_granted);
    }
}

/// If the provider allows no RDMA Reads, a call with a Read chunk gets RDMA2_ERR_SYSTEM in the turn in which it
/// arrives.
#[test]
fn calls_that_cannot_be_fetched_are_refused_at_once() {
    let mut base = SimEndConfig::default();
    base.max_reads = 0;
    let config = with_versions(EngineConfig::default(), Versions::V2);
    let mut facing = Facing::with_ends(Role::Server, config, true, &base);
    facing.send(&connprop(7, 0, &[]));
    facing.raw.received.clear();
    facing.raw.send(&[reads(MSG, 0, &[12]), vec![3, 0, 1]].concat(), &[]);
    while facing.network.step() {}
    facing.engine.turn(facing.now);
    while facing.raw.turn() {}
    assert_eq!(facing.next().expect("no error")[3..], [ERROR, RESPONSE, 100]);
}

/// §11.1.4: RDMA Reads that stall close the connection.
#[test]
fn stalled_rdma_reads_close_the_connection() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    let limit = EngineConfig::default().fetch_timeout;
    let (handle, offset) = facing.raw.source(&[1; 64]);
    let words = [vec![3, 2, CREDIT, MSG, 0, 0, 1], segment(Some(12), handle, 64, offset), vec![0, 0, 0, 3, 0, 1]];
    facing.raw.send(&words.concat(), &[]);
    while facing.network.step() {}
    facing.engine.turn(facing.now);
    assert_eq!(facing.engine.conn.poll_timeout(), Some(facing.now + limit));
    facing.engine.conn.handle_timeout(facing.now + limit);
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::ReadStalled(limit)));
}

/// A call that times out before the version is agreed does not end the connection. The negotiation timeout does not
/// change the reason of a connection that is already closing.
#[test]
fn calls_time_out_before_the_negotiation_does() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    let limit = EngineConfig::default().negotiation_timeout;
    facing.call(&Script { deadline: Some(Duration::from_secs(1)), ..Script::default() });
    facing.now += Duration::from_secs(1);
    facing.run();
    assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::DeadlineExceeded { sent: false });
    assert_eq!(facing.engine.conn.close_reason(), None);
    // A connection that is closing has the reason that it was closed for.
    let reason = CloseReason::Idle(Duration::ZERO);
    facing.engine.conn.close_with(reason.clone());
    facing.engine.conn.handle_timeout(facing.now + limit);
    facing.engine.conn.connection_lost(DisconnectReason::Remote);
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), Some(&reason));
}

/// An authenticator that fails at its start, before anything is sent.
#[derive(Debug, Clone, Copy)]
struct Rejects;

impl HostAuth for Rejects {
    fn authenticator(&self, _: Role) -> Box<dyn HostAuthenticator> {
        Box::new(*self)
    }
}

impl HostAuthenticator for Rejects {
    fn start(&mut self) -> Result<HostAuthStep, HostAuthError> {
        Err(HostAuthError("no key".into()))
    }

    fn received(&mut self, _: &[u8]) -> Result<HostAuthStep, HostAuthError> {
        Ok(HostAuthStep::default())
    }

    fn peer_finished(&mut self) -> Result<(), HostAuthError> {
        Ok(())
    }
}

/// §4.2.3, §11.1.1: a server that cannot authenticate itself closes the connection. It sends no properties, and
/// therefore no errors and no credits either.
#[test]
fn nothing_is_sent_before_the_properties() {
    let rejects = config(|config| config.host_auth = Some(Arc::new(Rejects)));
    for first in [&[7, 2, CREDIT, 99, 0][..], &connprop(7, 0, &[])] {
        let mut facing = Facing::silent(Role::Server, rejects.clone());
        facing.send(first);
        assert!(facing.raw.received.is_empty(), "{:?}", facing.raw.received);
        let reason = facing.engine.conn.close_reason();
        assert!(matches!(reason, Some(CloseReason::HostAuthentication(_))), "{reason:?}");
    }
}

/// A peer that answers no call is unresponsive when abandoned calls reach the maximum number of calls in flight,
/// although there are credits.
#[test]
fn unresponsive_peers_with_credits() {
    let mut facing = Facing::silent(Role::Client, EngineConfig::default());
    let grace = EngineConfig::default().abandoned_call_timeout;
    let mut first = connprop(7, 0, &[]);
    first[2] = 2 << 16 | 16;
    facing.send(&first);
    let deadline = Some(Duration::from_secs(1));
    (0..2).for_each(|number| facing.call(&Script { number, deadline, ..Script::default() }));
    facing.now += Duration::from_secs(1);
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), None);
    facing.now += grace;
    facing.run();
    assert_eq!(facing.engine.conn.close_reason(), Some(&CloseReason::Unresponsive(grace)));
}

/// §5.2.5: calls in the reverse direction fail as soon as it is known that they are not accepted. Calls of a client do
/// not fail.
#[test]
fn calls_that_are_not_accepted_fail() {
    let script = Script::default();
    let mut facing = Facing::silent(Role::Server, EngineConfig::default());
    facing.call(&script);
    assert!(facing.finished().is_none());
    facing.send(&connprop(7, 0, &[]));
    assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::ReverseNotSupported);
    facing.call(&script);
    assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::ReverseNotSupported);
    let without = config(|config| config.reverse_credits = 0);
    let mut facing = Facing::said(Role::Server, without.clone(), &[(5, &[3])]);
    facing.call(&script);
    assert_eq!(facing.finished().unwrap().unwrap_err(), CallFailure::ReverseDisabled);
    let mut facing = Facing::silent(Role::Client, without);
    facing.call(&script);
    facing.send(&connprop(7, 0, &[]));
    assert!(facing.finished().is_none());
    let none = config(|config| config.reverse_direction = ReverseDirection::None);
    let limits = Facing::silent(Role::Client, none).engine.conn.peer_limits();
    assert_eq!((limits.send_threshold, limits.receive_threshold), (4096, 4096));
}

/// A connection that closes or is lost drops incomplete calls of the peer. A lost connection also drops unsent parts of
/// its own calls.
#[test]
fn ended_connections_hold_no_memory() {
    for is_closed in [true, false] {
        let budget = MemoryBudget::new(1 << 30);
        let pool = BufferPool::default();
        let account = budget.account(1);
        let mut facing =
            Facing::new(Role::Server, config(|config| (config.budget, config.pool) = (Some(account), pool.clone())));
        for _ in 0..80 {
            facing.send(&[[5, 2, CREDIT, MSG, MORE, 0, 0, 0, 0].to_vec(), vec![5; 1000]].concat());
        }
        assert_eq!(budget.held(), 320_000 - (64 << 10));
        if is_closed {
            facing.engine.conn.close();
        } else {
            facing.network.cut();
            facing.run();
        }
        assert_eq!(budget.held(), 0);
        // Nothing that arrives now is served.
        facing.send(&plain(7, CREDIT, 0, 1));
        assert!(take_call(&mut facing.engine).is_none());
        assert!(!facing.engine.conn.send_extension(ExtensionMessage { header_type: 9999, ..Default::default() }));
    }
    // A call of which a part has been sent.
    let pool = BufferPool::default();
    let mut facing = Facing::silent(Role::Client, config(|config| config.pool = pool.clone()));
    let mut first = connprop(7, 0, &[]);
    first[2] = NO_NEW | 2;
    facing.send(&first);
    facing.call(&Script { inline: 60_000, ..Script::default() });
    facing.network.cut();
    facing.run();
    assert!(facing.finished().expect("not finished").is_err());
    facing.engine.events.clear();
    assert_eq!(pool.stats().outstanding, 0);
}

/// A call is not served if it arrives behind a message that violates the protocol, although the engine receives both in
/// one turn.
#[test]
fn nothing_is_served_behind_a_violation() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    for xid in 10..19 {
        let mut words = reads(MSG, MORE, &[12]);
        words[0] = xid;
        facing.raw.send(&[words, vec![xid, 0, 1]].concat(), &[]);
    }
    facing.raw.send(&plain(7, CREDIT, 0, 1), &[]);
    while facing.network.step() {}
    facing.engine.turn(facing.now);
    facing.run();
    let reason = CloseReason::PeerViolation(ProtocolViolation::TooManyBrokenSequences);
    assert_eq!(facing.engine.conn.close_reason(), Some(&reason));
    assert!(take_call(&mut facing.engine).is_none());
}

/// §7.1.3: at most eight sequences may be broken at a time. A sequence that is broken again counts once.
#[test]
fn broken_sequences_are_bounded() {
    let mut facing = Facing::new(Role::Server, EngineConfig::default());
    let broken = |xid: u32| vec![xid, 2, CREDIT, MSG, MORE, 0, 7];
    let early = |xid: u32| [vec![xid], reads(MSG, MORE, &[12])[1..].to_vec(), vec![xid, 0, 1]].concat();
    for xid in 10..18 {
        facing.send(&broken(xid));
    }
    for xid in 10..18 {
        facing.send(&early(xid));
        facing.send(&broken(xid));
    }
    assert_eq!(facing.engine.conn.close_reason(), None);
    facing.send(&[17, 2, CREDIT, MSG, 0, 0, 7]);
    facing.send(&broken(18));
    assert_eq!(facing.engine.conn.close_reason(), None, "one sequence has ended");
    facing.send(&broken(19));
    assert!(facing.engine.conn.close_reason().is_some());
}

/// An extension that answers each of its messages with this number of copies, and with a message of the base protocol.
#[derive(Debug, Clone, Copy)]
struct Chatty(usize);

/// The header type of the messages of [`Chatty`].
const CHAT: u32 = 5000;

impl ExtensionFactory for Chatty {
    fn extension(&self, _: Role) -> Box<dyn Extension> {
        Box::new(*self)
    }
}

impl Extension for Chatty {
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        Vec::new()
    }

    fn property(&mut self, which: u32, _: &[u8]) -> ExtensionOutcome {
        let first = ExtensionMessage { header_type: CHAT, xid: 1, ..ExtensionMessage::default() };
        if which == CHAT { ExtensionOutcome::Done(vec![first]) } else { ExtensionOutcome::Unknown }
    }

    fn message(&mut self, message: &ExtensionMessage) -> ExtensionOutcome {
        let base = ExtensionMessage { header_type: MSG, ..message.clone() };
        ExtensionOutcome::Done(std::iter::once(base).chain(vec![message.clone(); self.0]).collect())
    }
}

#[test]
fn extension_messages_are_bounded() {
    let chatty = |count| config(|config| config.extensions.push(Arc::new(Chatty(count))));
    let message = |xid| ExtensionMessage { header_type: CHAT, xid, ..ExtensionMessage::default() };
    for (count, is_open) in [(1024, true), (1025, false)] {
        let mut facing = Facing::new(Role::Server, chatty(count));
        facing.send(&[3, 2, NO_NEW, CHAT, 0]);
        assert_eq!(facing.engine.conn.close_reason().is_none(), is_open, "{count}");
    }
    let mut facing = Facing::new(Role::Client, chatty(1));
    facing.send(&[3, 2, NO_NEW, CHAT, 8 | RESPONSE]);
    let answer = facing.next().expect("no answer");
    assert_eq!((answer[0], answer[3], answer[4]), (3, CHAT, 8));
    assert!(facing.next().is_none(), "a message of the base protocol");
    // Without credits they wait.
    let mut facing = Facing::silent(Role::Client, chatty(1));
    assert!((0..1024).all(|xid| facing.engine.conn.send_extension(message(xid))));
    assert!(!facing.engine.conn.send_extension(message(1024)));
    let mut facing = Facing::silent(Role::Client, chatty(1));
    assert!((0..1023).all(|xid| facing.engine.conn.send_extension(message(xid))));
    // Those of a type that the peer refuses meanwhile are not sent.
    let mut first = connprop(7, 0, &[(CHAT, &[1])]);
    first[2] = NO_NEW | 2;
    facing.send(&first);
    facing.next().expect("no properties");
    assert_eq!(sent(&mut facing), 2);
    assert_eq!((0..9).filter(|_| facing.engine.conn.send_extension(message(3))).count(), 2, "one is for the property");
    facing.send(&[1, 2, NO_NEW, ERROR, RESPONSE, 100]);
    assert!(facing.engine.conn.close_reason().is_none());
    facing.send(&[0, 2, NO_NEW, ERROR, RESPONSE, 4]);
    facing.send(&[0, 2, NO_NEW | 16, NOMSG, 0, 0, 0, 0, 0]);
    assert_eq!(sent(&mut facing), 0);
    assert!(!facing.engine.conn.send_extension(message(3)));
    // Another error does not refuse the type.
    let mut facing = Facing::new(Role::Client, chatty(1));
    assert!(facing.engine.conn.send_extension(message(3)));
    facing.run();
    facing.send(&[3, 2, NO_NEW, ERROR, RESPONSE, 100]);
    assert!(facing.engine.conn.send_extension(message(4)));
}
