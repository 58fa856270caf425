//! Record marking and the engine, without a socket.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};

use super::*;
use crate::{
    engine::{
        CallFailure, CallId, CloseReason, EngineConfig, Event, IncomingReply, OutgoingCall, OutgoingReply,
        ReplyResources, ReplyToken, Role,
    },
    memory::{MessageBuf, Output as _},
    provider::DisconnectReason,
    xdr::Reduced,
};

fn message(words: &[u32]) -> MessageBuf {
    let mut message = MessageBuf::new(EngineConfig::default().pool.alloc(64), 4);
    words.iter().for_each(|word| message.append(&word.to_be_bytes()));
    message
}

fn call(words: &[u32], reduced: SmallVec<[Reduced; 2]>, deadline: Option<Instant>) -> OutgoingCall {
    OutgoingCall {
        message: message(words),
        reduced,
        reply: ReplyResources::default(),
        deadline,
        policy: Default::default(),
        seal: None,
    }
}

fn simple(deadline: Option<Instant>) -> OutgoingCall {
    call(&[0, 0, 42], smallvec![], deadline)
}

fn engine(role: Role, change: impl FnOnce(&mut EngineConfig, &mut StreamConfig)) -> StreamConnection {
    let (mut config, mut stream) = (EngineConfig::default(), StreamConfig::default());
    change(&mut config, &mut stream);
    StreamConnection::new(role, config, stream, u32::MAX - 1)
}

/// All that goes out now, `at_once` octets at a time.
fn drain(engine: &mut StreamConnection, now: Instant, at_once: usize) -> Vec<u8> {
    let mut octets = Vec::new();
    loop {
        engine.poll_work(now);
        let next: Vec<u8> = engine.output().iter().flat_map(|slice| slice.to_vec()).take(at_once).collect();
        if next.is_empty() {
            return octets;
        }
        engine.sent(next.len());
        octets.extend(next);
    }
}

fn feed(engine: &mut StreamConnection, octets: &[u8]) {
    engine.receive(octets);
    engine.handle_records(usize::MAX);
}

fn finished(event: Option<Event>) -> (CallId, Result<IncomingReply, CallFailure>) {
    match event {
        Some(Event::CallFinished { id, result }) => (id, result),
        other => panic!("{other:?}"),
    }
}

/// The failure of a call that has finished.
fn failed(event: Option<Event>) -> (CallId, CallFailure) {
    let (id, result) = finished(event);
    (id, result.expect_err("it failed"))
}

fn arrived(engine: &mut StreamConnection) -> (ReplyToken, u32) {
    match engine.poll_event() {
        Some(Event::CallArrived(call)) => (call.token, call.xid),
        other => panic!("{other:?}"),
    }
}

fn reply(engine: &mut StreamConnection, (token, xid): (ReplyToken, u32)) {
    engine.reply(token, OutgoingReply { message: message(&[xid, 1, xid]), reduced: smallvec![] });
}

#[test]
fn items_go_back_to_their_places_in_any_fragments() {
    let data = |len: usize| bytes::Bytes::from(vec![7; len]);
    // After the third word, and after the fourth.
    let reduced = smallvec![
        Reduced { position: 12, chunk: 0, data: data(5) },
        Reduced { position: 24, chunk: 1, data: data(4) },
    ];
    let whole =
        [&[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 5][..], &[7, 7, 7, 7, 7, 0, 0, 0], &[0, 0, 0, 4], &[7; 4]]
            .concat();
    for (fragment_size, at_once) in [(u32::MAX, usize::MAX), (28, 1), (27, 3), (1, 7), (0, 64), (5, 1)] {
        let mut client = engine(Role::Client, |_, stream| stream.fragment_size = fragment_size);
        client.start_call(call(&[0, 0, 5, 4], reduced.clone(), None));
        let octets = drain(&mut client, Instant::now(), at_once);
        let mut assembler = Assembler::new(StreamConfig::default());
        assembler.extend(&octets);
        let record = assembler.next_record().unwrap().unwrap();
        assert_eq!(record, whole, "fragments of {fragment_size}");
        assert_eq!((assembler.begun(), client.counters().sent), (None, octets.len() as u64));
    }
}

/// XIDs wrap, replies come in reverse, and one comes for nobody.
#[test]
fn replies_are_matched() {
    let now = Instant::now();
    let (mut client, mut server) = (engine(Role::Client, |_, _| {}), engine(Role::Server, |_, _| {}));
    let ids: Vec<_> = (0..4).map(|_| client.start_call(simple(None))).collect();
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    let calls: Vec<_> = (0..4).map(|_| arrived(&mut server)).collect();
    assert_eq!(calls.iter().map(|call| call.1).collect::<Vec<_>>(), [u32::MAX - 1, u32::MAX, 0, 1]);
    calls.iter().rev().for_each(|call| reply(&mut server, *call));
    // A second answer to the same call is none.
    reply(&mut server, calls[0]);
    let replies = drain(&mut server, now, usize::MAX);
    feed(&mut client, &replies);
    for id in ids.iter().rev() {
        let (finished, result) = finished(client.poll_event());
        assert_eq!(finished, *id);
        assert_eq!(result.unwrap().payload.as_slice().len(), 12);
    }
    feed(&mut client, &replies);
    assert!(client.poll_event().is_none());
    assert_eq!((client.counters().discarded, client.counters().replies_received), (4, 4));
    for _ in 0..4 {
        assert!(matches!(server.poll_event(), Some(Event::ReplySent { delivered: true, .. })));
    }
}

#[test]
fn calls_wait_their_turn_and_can_be_given_up() {
    let now = Instant::now();
    let grace = Duration::from_secs(5);
    let mut client = engine(Role::Client, |config, _| (config.credits, config.abandon_grace) = (2, grace));
    let first = client.start_call(simple(Some(now + Duration::from_secs(1))));
    let second = client.start_call(simple(None));
    let third = client.start_call(simple(Some(now + Duration::from_secs(2))));
    let fourth = client.start_call(simple(None));
    drain(&mut client, now, usize::MAX);
    assert_eq!((client.counters().calls_sent, client.counters().calls_queued), (2, 2));
    // Given up before it went out: as if it had never been made.
    client.cancel_call(fourth, now);
    assert_eq!(failed(client.poll_event()), (fourth, CallFailure::Cancelled { sent: false }));
    client.cancel_call(second, now);
    assert_eq!(failed(client.poll_event()), (second, CallFailure::Cancelled { sent: true }));
    assert_eq!(client.poll_timeout(), Some(now + Duration::from_secs(1)));
    let later = now + Duration::from_secs(2);
    client.handle_timeout(later);
    let late = |sent| CallFailure::DeadlineExceeded { sent };
    assert_eq!(failed(client.poll_event()), (first, late(true)));
    assert_eq!(failed(client.poll_event()), (third, late(false)));
    // Both places are taken until the grace is over.
    let fifth = client.start_call(simple(None));
    assert_eq!(drain(&mut client, later, usize::MAX), []);
    assert_eq!((client.counters().calls_abandoned, client.poll_timeout()), (2, Some(now + grace)));
    client.handle_timeout(now + grace);
    assert!(!drain(&mut client, now + grace, usize::MAX).is_empty());
    assert_eq!((client.counters().calls_abandoned, client.counters().calls_sent), (1, 3));
    client.lost(CloseReason::Disconnected(DisconnectReason::Remote));
    let closed = CallFailure::Closed { reason: CloseReason::Disconnected(DisconnectReason::Remote), sent: true };
    assert_eq!(failed(client.poll_event()), (fifth, closed));
}

#[test]
fn a_server_stops_reading_at_its_credits() {
    let now = Instant::now();
    let timeout = Duration::from_secs(1);
    let mut server = engine(Role::Server, |config, stream| (config.credits, stream.record_timeout) = (2, timeout));
    let mut client = engine(Role::Client, |_, _| {});
    for _ in 0..3 {
        client.start_call(simple(None));
    }
    let octets = drain(&mut client, now, usize::MAX);
    let (most, rest) = octets.split_at(octets.len() - 1);
    feed(&mut server, most);
    let (first, _second) = (arrived(&mut server), arrived(&mut server));
    assert!(!server.wants_input() && server.poll_event().is_none());
    // While it does not read, the third record's time does not pass.
    server.poll_work(now);
    server.handle_timeout(now + 10 * timeout);
    assert_eq!(server.close_reason(), None);
    reply(&mut server, first);
    assert!(!server.wants_input(), "the reply has not gone out");
    let now = now + 10 * timeout;
    drain(&mut server, now, usize::MAX);
    assert!(matches!(server.poll_event(), Some(Event::ReplySent { delivered: true, .. })));
    server.handle_records(8);
    server.poll_work(now);
    assert_eq!(server.poll_timeout(), Some(now + timeout));
    feed(&mut server, rest);
    arrived(&mut server);
    server.poll_work(now);
    server.handle_timeout(now + timeout);
    assert_eq!(server.close_reason(), None, "it was complete in time");
}

#[test]
fn a_record_has_its_time_and_no_more() {
    let now = Instant::now();
    let timeout = Duration::from_secs(1);
    let mut server = engine(Role::Server, |_, stream| {
        (stream.record_timeout, stream.max_record) = (timeout, u64::MAX);
    });
    for tenths in 0..10 {
        feed(&mut server, if tenths == 0 { &[0x80] } else { &[1] });
        server.poll_work(now + tenths * timeout / 10);
    }
    assert_eq!(server.poll_timeout(), Some(now + timeout));
    server.handle_timeout(now + timeout);
    server.poll_work(now + timeout);
    let reason = CloseReason::Stream(StreamError::ReceiveTimedOut { timeout });
    assert!(matches!(server.poll_event(), Some(Event::Closed(why)) if why == reason));

    let mut client = engine(Role::Client, |_, stream| stream.record_timeout = timeout);
    client.start_call(simple(None));
    client.poll_work(now);
    client.handle_timeout(now + timeout);
    client.poll_work(now + timeout);
    let reason = CloseReason::Stream(StreamError::SendTimedOut { timeout });
    assert!(
        matches!(finished(client.poll_event()).1, Err(CallFailure::Closed { reason: why, sent: true }) if why == reason)
    );
    assert!(matches!(client.poll_event(), Some(Event::Closed(why)) if why == reason));
    assert_eq!(client.poll_timeout(), None);
}

/// Calls both ways at once, with the same XIDs; each end has its own limits.
#[test]
fn both_directions() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| (config.credits, config.reverse_credits) = (3, 2));
    let mut server = engine(Role::Server, |config, _| (config.credits, config.reverse_credits) = (4, 1));
    let forward: Vec<_> = (0..4).map(|_| client.start_call(simple(None))).collect();
    let reverse: Vec<_> = (0..3).map(|_| server.start_call(simple(None))).collect();
    let (calls, callbacks) = (drain(&mut client, now, usize::MAX), drain(&mut server, now, usize::MAX));
    assert_eq!((client.counters().calls_sent, server.counters().calls_sent), (3, 1));
    feed(&mut server, &calls);
    feed(&mut client, &callbacks);
    let call = arrived(&mut server);
    let callback = arrived(&mut client);
    assert_eq!((call.1, callback.1), (u32::MAX - 1, u32::MAX - 1), "XIDs are each end's own");
    // A reply does not end the other end's call of the same XID.
    reply(&mut server, call);
    feed(&mut client, &drain(&mut server, now, usize::MAX));
    assert_eq!(finished(client.poll_event()).0, forward[0]);
    assert!(server.poll_event().is_some_and(|event| !matches!(event, Event::CallFinished { .. })));
    reply(&mut client, callback);
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    let ended = std::iter::from_fn(|| server.poll_event()).find(|event| matches!(event, Event::CallFinished { .. }));
    assert_eq!(finished(ended).0, reverse[0]);
    drain(&mut server, now, usize::MAX);
    assert_eq!(server.counters().calls_sent, 2, "the next one has its turn");
    // The end of the stream is the end of all of them.
    server.lost(CloseReason::Disconnected(DisconnectReason::Remote));
    let failed = std::iter::from_fn(|| server.poll_event()).filter(|event| matches!(event, Event::CallFinished { .. }));
    assert_eq!(failed.count(), 2);
}

/// An end that may take no more calls reads on as long as it waits for a reply: it may be what its handlers wait for.
#[test]
fn a_reply_behind_calls_is_read() {
    let now = Instant::now();
    let mut server = engine(Role::Server, |config, _| (config.credits, config.reverse_credits) = (1, 1));
    let mut client = engine(Role::Client, |_, _| {});
    for _ in 0..3 {
        client.start_call(simple(None));
    }
    let calls = drain(&mut client, now, usize::MAX);
    feed(&mut server, &calls[..16]);
    let first = arrived(&mut server);
    assert!(!server.wants_input());
    let callback = server.start_call(simple(None));
    feed(&mut client, &drain(&mut server, now, usize::MAX));
    assert!(server.wants_input());
    feed(&mut server, &calls[16..]);
    assert!(server.poll_event().is_none(), "they are put by, one call is all it may have");
    let arrived_there = arrived(&mut client);
    reply(&mut client, arrived_there);
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    assert_eq!(finished(server.poll_event()).0, callback);
    assert!(!server.wants_input());
    // Those put by come in turn.
    let mut next = first;
    for xid in [u32::MAX, 0] {
        reply(&mut server, next);
        drain(&mut server, now, usize::MAX);
        assert!(matches!(server.poll_event(), Some(Event::ReplySent { delivered: true, .. })));
        next = arrived(&mut server);
        assert_eq!(next.1, xid);
    }
    reply(&mut server, next);
    drain(&mut server, now, usize::MAX);
    assert!(server.wants_input());
    assert_eq!(server.counters().calls_received, 3);
}

/// Without the reverse direction a client discards calls, and a server makes none.
#[test]
fn one_way() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.reverse_credits = 0);
    let mut server = engine(Role::Server, |_, _| {});
    server.start_call(simple(None));
    feed(&mut client, &drain(&mut server, now, usize::MAX));
    assert!(client.poll_event().is_none() && client.wants_input());
    assert_eq!(client.counters().discarded, 1);
    let mut server = engine(Role::Server, |config, _| config.reverse_credits = 0);
    let id = server.start_call(simple(None));
    assert_eq!(failed(server.poll_event()), (id, CallFailure::NoReverse));
    assert_eq!(drain(&mut server, now, usize::MAX), []);
}

/// What is queued goes out before this end's side is closed; calls fail when the peer has closed its own.
#[test]
fn closing_in_order() {
    let now = Instant::now();
    let mut server = engine(Role::Server, |_, _| {});
    let mut client = engine(Role::Client, |_, _| {});
    client.start_call(simple(None));
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    let call = arrived(&mut server);
    reply(&mut server, call);
    server.close_with(CloseReason::Disconnected(DisconnectReason::Local));
    assert!(!server.wants_shutdown());
    assert_eq!(drain(&mut server, now, 3).len(), 16);
    assert!(server.wants_shutdown());
    server.shut_down();
    // What the peer still sends is not looked at.
    feed(&mut server, &[0xff; 100]);
    server.ended();
    server.poll_work(now);
    assert!(matches!(server.poll_event(), Some(Event::ReplySent { delivered: true, .. })));
    let local = CloseReason::Disconnected(DisconnectReason::Local);
    assert!(matches!(server.poll_event(), Some(Event::Closed(reason)) if reason == local));
    assert!(!server.wants_input());
    let late = server.start_call(simple(None));
    assert!(matches!(finished(server.poll_event()), (id, Err(CallFailure::Closed { sent: false, .. })) if id == late));
}

/// Memory follows what has arrived, not what is announced.
#[test]
fn nothing_is_allocated_for_an_announcement() {
    let mut assembler = Assembler::new(StreamConfig { max_record: u64::MAX, ..StreamConfig::default() });
    assembler.extend(&0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(assembler.next_record(), Ok(None));
    let room = assembler.room();
    assert!(room.get_ref().capacity() <= 256 << 10, "{}", room.get_ref().capacity());
}

proptest! {
    /// Any octets, in any pieces: records within the limits, or an error; and the same whatever the pieces.
    #[test]
    fn pieces_make_no_difference(
        lens in prop::collection::vec((0_u8..20, any::<bool>()), 0..40),
        tail in prop::collection::vec(any::<u8>(), 0..6),
        piece in 1_usize..50,
    ) {
        let mut octets = Vec::new();
        for (n, (len, last)) in lens.into_iter().enumerate() {
            octets.extend((u32::from(len) | if last { 1 << 31 } else { 0 }).to_be_bytes());
            octets.extend(vec![n as u8; len.into()]);
        }
        octets.extend(tail);
        let config = StreamConfig { max_record: 60, max_fragments: 5, ..StreamConfig::default() };
        let records = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut assembler, mut records) = (Assembler::new(config), Vec::new());
            for piece in pieces {
                assembler.extend(piece);
                loop {
                    match assembler.next_record() {
                        Ok(Some(record)) => {
                            assert!(record.len() <= 60);
                            records.push(record);
                        }
                        Ok(None) => break,
                        Err(error) => return (records, Some(error), None),
                    }
                }
            }
            let begun = assembler.begun();
            (records, None, begun)
        };
        prop_assert_eq!(records(&mut std::iter::once(&octets[..])), records(&mut octets.chunks(piece)));
    }

    /// Whatever arrives, an engine says so or goes on.
    #[test]
    fn any_octets(octets in prop::collection::vec(any::<u8>(), 0..200), server in any::<bool>()) {
        let mut engine = engine(if server { Role::Server } else { Role::Client }, |_, _| {});
        engine.start_call(simple(None));
        engine.poll_work(Instant::now());
        feed(&mut engine, &octets);
        engine.ended();
        engine.poll_work(Instant::now());
        let mut closed = false;
        while let Some(event) = engine.poll_event() {
            closed |= matches!(event, Event::Closed(_));
        }
        prop_assert!(closed);
    }
}
