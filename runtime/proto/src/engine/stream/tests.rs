//! Tests of record marking and of [`StreamConnection`], the engine for byte streams, without a socket.

mod bounds;
mod ending;
mod records;

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::{
    engine::{
        CallFailure, CallId, ChunkItems, CloseReason, Engine as _, EngineConfig, EngineEvent, IncomingReply,
        OutgoingCall, OutgoingReply, ReplyResources, ReplyToken, Role, StreamError, TransportError,
    },
    memory::{MemoryBudget, MemoryShare, MessageBuf, Output as _},
    provider::DisconnectReason,
    xdr::ReducedItem,
};

fn message(words: &[u32]) -> MessageBuf {
    let mut message = MessageBuf::new(EngineConfig::default().pool.alloc(64), 4);
    words.iter().for_each(|word| message.append(&word.to_be_bytes()));
    message
}

fn call(words: &[u32], reduced: impl IntoIterator<Item = ReducedItem>, deadline: Option<Instant>) -> OutgoingCall {
    OutgoingCall {
        message: message(words),
        reduced: reduced.into_iter().collect(),
        reply: ReplyResources::default(),
        deadline,
        policy: Default::default(),
    }
}

fn simple(deadline: Option<Instant>) -> OutgoingCall {
    call(&[0, 0, 42], [], deadline)
}

fn engine(role: Role, change: impl FnOnce(&mut EngineConfig, &mut StreamConfig)) -> StreamConnection {
    let (mut config, mut stream) = (EngineConfig::default(), StreamConfig::default());
    change(&mut config, &mut stream);
    StreamConnection::new(role, config, stream, u32::MAX - 1)
}

/// Sends all pending output, at most `at_once` bytes at a time, and returns it.
fn drain(engine: &mut StreamConnection, now: Instant, at_once: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        engine.poll_work(&mut (), now);
        let next: Vec<u8> = engine.output().iter().flat_map(|slice| slice.to_vec()).take(at_once).collect();
        if next.is_empty() {
            return bytes;
        }
        engine.sent(next.len());
        bytes.extend(next);
    }
}

fn feed(engine: &mut StreamConnection, bytes: &[u8]) {
    engine.receive(bytes);
    engine.handle_records(usize::MAX);
}

fn finished(event: Option<EngineEvent>) -> (CallId, Result<IncomingReply, CallFailure>) {
    match event {
        Some(EngineEvent::CallFinished { id, result }) => (id, result),
        other => panic!("{other:?}"),
    }
}

/// Returns the identifier and the failure of a finished call.
fn failed(event: Option<EngineEvent>) -> (CallId, CallFailure) {
    let (id, result) = finished(event);
    (id, result.expect_err("the call should have failed"))
}

fn arrived(engine: &mut StreamConnection) -> (ReplyToken, u32) {
    match engine.poll_event() {
        Some(EngineEvent::CallArrived(call)) => (call.token, call.xid),
        other => panic!("{other:?}"),
    }
}

fn reply(engine: &mut StreamConnection, (token, xid): (ReplyToken, u32)) {
    engine.reply(token, OutgoingReply { message: message(&[xid, 1, xid]), reduced: ChunkItems::new() });
}

#[test]
fn reduced_items_are_restored_for_any_fragment_size() {
    let data = |len: usize| bytes::Bytes::from(vec![7; len]);
    // After the third word, and after the fourth.
    let reduced =
        [ReducedItem { position: 12, chunk: 0, data: data(5) }, ReducedItem { position: 24, chunk: 1, data: data(4) }];
    let whole =
        [&[0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0, 0, 5][..], &[7, 7, 7, 7, 7, 0, 0, 0], &[0, 0, 0, 4], &[7; 4]]
            .concat();
    let fragments = [(u32::MAX, usize::MAX), (28, 1), (27, 3), (13, 2), (1, 7), (0, 64), (5, 1)];
    // Items are sent from their own memory, or copied into the message if they are short.
    let min_reduce = EngineConfig::default().min_reduce;
    for (min_reduce, (fragment_size, at_once)) in
        [0, min_reduce].into_iter().flat_map(|min| fragments.map(|of| (min, of)))
    {
        let mut client = engine(Role::Client, |config, stream| {
            (config.min_reduce, stream.fragment_size) = (min_reduce, fragment_size);
        });
        client.start_call(call(&[0, 0, 5, 4], reduced.clone(), None));
        let bytes = drain(&mut client, Instant::now(), at_once);
        let mut assembler = RecordAssembler::new(StreamConfig::default());
        assembler.extend(&bytes);
        let record = assembler.next_record().unwrap().unwrap();
        assert_eq!(record, whole, "fragments of {fragment_size}");
        assert_eq!((assembler.in_progress(), client.counters().bytes_sent), (None, bytes.len() as u64));
    }
}

/// RFC 5531 §11: the highest bit of a marker flags the last fragment, and the other bits are its length. One record is
/// one message.
#[test]
fn markers() {
    let mut client = engine(Role::Client, |_, stream| stream.fragment_size = 5);
    client.start_call(call(&[0, 0, 42], [], None));
    client.start_call(call(&[0, 0], [], None));
    let sent = drain(&mut client, Instant::now(), usize::MAX);
    let [first, second] = [u32::MAX - 1, u32::MAX].map(u32::to_be_bytes);
    let expected = [
        &[0, 0, 0, 5][..],
        &first,
        &[0],
        &[0, 0, 0, 5],
        &[0, 0, 0, 0, 0],
        &[0x80, 0, 0, 2],
        &[0, 42],
        &[0, 0, 0, 5],
        &second,
        &[0],
        &[0x80, 0, 0, 3],
        &[0, 0, 0],
    ]
    .concat();
    assert_eq!(sent, expected);
    // In one fragment.
    let mut client = engine(Role::Client, |_, _| {});
    client.start_call(call(&[0, 0, 42], [], None));
    let sent = drain(&mut client, Instant::now(), usize::MAX);
    assert_eq!(sent, [&[0x80, 0, 0, 12][..], &first, &[0, 0, 0, 0], &[0, 0, 0, 42]].concat());
    // Fragments of any length, empty ones too, and records back to back.
    let mut assembler = RecordAssembler::new(StreamConfig::default());
    assembler.extend(b"\0\0\0\0\0\0\0\x01a\0\0\0\x02bc\x80\0\0\0\x80\0\0\0\x80\0\0\x01d\0\0\0\x01e");
    let mut records = std::iter::from_fn(|| assembler.next_record().unwrap());
    assert_eq!(records.by_ref().collect::<Vec<_>>(), ["abc", "", "d"]);
    assert_eq!(assembler.in_progress(), Some(1));
    // Every bit of the length counts.
    let max = StreamConfig { max_record: u64::MAX, ..StreamConfig::default() };
    for shift in 0..31 {
        for last in [0, 1 << 31] {
            let mut assembler = RecordAssembler::new(max);
            assembler.extend(&(last | 1_u32 << shift).to_be_bytes());
            assert_eq!((assembler.next_record(), assembler.missing()), (Ok(None), 1 << shift));
        }
    }
}

/// Replies in reverse order finish their calls, also after the XIDs have wrapped. Replies to finished calls are
/// discarded.
#[test]
fn replies_are_matched() {
    let now = Instant::now();
    let (mut client, mut server) = (engine(Role::Client, |_, _| {}), engine(Role::Server, |_, _| {}));
    let ids: Vec<_> = (0..4).map(|_| client.start_call(simple(None))).collect();
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    let calls: Vec<_> = (0..4).map(|_| arrived(&mut server)).collect();
    assert_eq!(calls.iter().map(|call| call.1).collect::<Vec<_>>(), [u32::MAX - 1, u32::MAX, 0, 1]);
    calls.iter().rev().for_each(|call| reply(&mut server, *call));
    // A second reply to the same call is ignored.
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
    assert_eq!((client.counters().messages_discarded, client.counters().replies_received), (4, 4));
    for _ in 0..4 {
        assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: true, .. })));
    }
}

/// A reply whose XID belongs to no call in flight completes no call, even if the XIDs are similar.
#[test]
fn replies_with_another_xid_are_discarded() {
    let mut client = engine(Role::Client, |_, _| {});
    let id = client.start_call(simple(None));
    drain(&mut client, Instant::now(), usize::MAX);
    let record = |xid: u32| [&[0x80, 0, 0, 12][..], &xid.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
    for xid in [u32::MAX, u32::MAX - 2, 0, (u32::MAX - 1) ^ 1 << 31, (u32::MAX - 1).swap_bytes()] {
        feed(&mut client, &record(xid));
        assert!(client.poll_event().is_none(), "{xid:#x}");
    }
    assert_eq!((client.counters().messages_discarded, client.close_reason()), (5, None));
    feed(&mut client, &record(u32::MAX - 1));
    let (finished, result) = finished(client.poll_event());
    assert_eq!((finished, result.is_ok()), (id, true));
}

#[test]
fn queued_calls_time_out_and_can_be_cancelled() {
    let now = Instant::now();
    let grace = Duration::from_secs(5);
    let mut client = engine(Role::Client, |config, _| (config.credits, config.abandoned_call_timeout) = (2, grace));
    let first = client.start_call(simple(Some(now + Duration::from_secs(1))));
    let second = client.start_call(simple(None));
    let third = client.start_call(simple(Some(now + Duration::from_secs(2))));
    let fourth = client.start_call(simple(None));
    drain(&mut client, now, usize::MAX);
    assert_eq!((client.counters().calls_sent, client.counters().calls_queued), (2, 2));
    // Cancelled before it was sent, without a trace.
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
    // Both abandoned calls keep their places until `abandoned_call_timeout` has passed.
    let fifth = client.start_call(simple(None));
    assert_eq!(drain(&mut client, later, usize::MAX), []);
    assert_eq!((client.counters().calls_abandoned, client.poll_timeout()), (2, Some(now + grace)));
    client.handle_timeout(now + grace);
    assert!(!drain(&mut client, now + grace, usize::MAX).is_empty());
    assert_eq!((client.counters().calls_abandoned, client.counters().calls_sent), (1, 3));
    client.connection_lost(DisconnectReason::Remote);
    let closed = CallFailure::Closed { reason: CloseReason::Disconnected(DisconnectReason::Remote), sent: true };
    assert_eq!(failed(client.poll_event()), (fifth, closed));
}

#[test]
fn server_stops_reading_at_its_credits() {
    let now = Instant::now();
    let timeout = Duration::from_secs(1);
    let mut server = engine(Role::Server, |config, stream| (config.credits, stream.record_timeout) = (2, timeout));
    let mut client = engine(Role::Client, |_, _| {});
    for _ in 0..4 {
        client.start_call(simple(None));
    }
    let bytes = drain(&mut client, now, usize::MAX);
    let (most, rest) = bytes.split_at(bytes.len() - 1);
    feed(&mut server, most);
    let (first, _second) = (arrived(&mut server), arrived(&mut server));
    // The third was read because it could have been a probe.
    assert!(!server.wants_input() && server.poll_event().is_none());
    // The timeout of the fourth record does not run while the server does not read.
    server.poll_work(&mut (), now);
    server.handle_timeout(now + 10 * timeout);
    assert_eq!(server.close_reason(), None);
    reply(&mut server, first);
    assert!(!server.wants_input(), "the reply has not been sent");
    let now = now + 10 * timeout;
    drain(&mut server, now, usize::MAX);
    assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: true, .. })));
    arrived(&mut server);
    server.handle_records(8);
    server.poll_work(&mut (), now);
    assert_eq!(server.poll_timeout(), Some(now + timeout));
    feed(&mut server, rest);
    assert!(server.poll_event().is_none());
    server.poll_work(&mut (), now);
    server.handle_timeout(now + timeout);
    assert_eq!(server.close_reason(), None, "the record was complete in time");
}

/// A server at its limit of calls delivers one more call if that is a NULL call, by which a client probes the server.
#[test]
fn probes_do_not_wait_for_calls() {
    let record = |xid: u8, procedure: u8| {
        let words = [[0x80, 0, 0, 24], [0, 0, 0, xid], [0; 4], [0, 0, 0, 2], [0, 0, 0, 9], [0, 0, 0, 1]];
        [words.concat(), vec![0, 0, 0, procedure]].concat()
    };
    for (second, is_delivered) in [(0, true), (1, false)] {
        let mut server = engine(Role::Server, |config, _| config.credits = 1);
        feed(&mut server, &[record(1, 1), record(2, second), record(3, 0)].concat());
        let first = arrived(&mut server);
        if is_delivered {
            assert_eq!(arrived(&mut server).1, 2);
        }
        assert!(server.poll_event().is_none(), "{second}");
        reply(&mut server, first);
        drain(&mut server, Instant::now(), usize::MAX);
        assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { .. })));
        server.handle_records(8);
        assert_eq!(arrived(&mut server).1, if is_delivered { 3 } else { 2 });
    }
}

#[test]
fn slow_records_time_out() {
    let now = Instant::now();
    let timeout = Duration::from_secs(1);
    let mut server = engine(Role::Server, |_, stream| {
        (stream.record_timeout, stream.max_record) = (timeout, u64::MAX);
    });
    for tenths in 0..10 {
        feed(&mut server, if tenths == 0 { &[0x80] } else { &[1] });
        server.poll_work(&mut (), now + tenths * timeout / 10);
    }
    assert_eq!(server.poll_timeout(), Some(now + timeout));
    server.handle_timeout(now + timeout);
    server.poll_work(&mut (), now + timeout);
    let reason = CloseReason::Stream(StreamError::ReceiveTimedOut { timeout });
    assert!(matches!(server.poll_event(), Some(EngineEvent::Closed(why)) if why == reason));

    let mut client = engine(Role::Client, |_, stream| stream.record_timeout = timeout);
    client.start_call(simple(None));
    client.poll_work(&mut (), now);
    client.handle_timeout(now + timeout);
    client.poll_work(&mut (), now + timeout);
    let reason = CloseReason::Stream(StreamError::SendTimedOut { timeout });
    assert!(
        matches!(finished(client.poll_event()).1, Err(CallFailure::Closed { reason: why, sent: true }) if why == reason)
    );
    assert!(matches!(client.poll_event(), Some(EngineEvent::Closed(why)) if why == reason));
    assert_eq!(client.poll_timeout(), None);
}

/// A small record does not count against the memory shared by connections, however many fragments it has. Before a
/// connection reads more of a longer record, it waits for the maximum amount of memory that the record may need.
#[test]
fn fragments_of_small_records_need_no_shared_memory() {
    let budget = MemoryBudget::new(100_000);
    let other = MemoryShare::of(Some(budget.account(1))).overcommit(100_000);
    let mut server = engine(Role::Server, |config, stream| {
        config.budget = Some(budget.account(2));
        stream.max_record = 50_000;
    });
    let fragment = |last: u32, bytes: &[u8]| [&(last << 31 | bytes.len() as u32).to_be_bytes(), bytes].concat();
    feed(&mut server, &fragment(0, &[0, 0, 0, 1, 0]));
    feed(&mut server, &fragment(0, &[0; 3]));
    feed(&mut server, &fragment(1, &[0; 4000]));
    assert_eq!((arrived(&mut server).1, budget.held()), (1, 100_000));
    feed(&mut server, &fragment(0, &[0, 0, 0, 2, 0, 0, 0, 0]));
    feed(&mut server, &fragment(1, &[0; 5000]));
    assert!(server.poll_event().is_none() && !server.wants_input() && budget.waiting() == 1);
    drop(other);
    server.poll_work(&mut (), Instant::now());
    server.handle_records(usize::MAX);
    assert_eq!((budget.held(), budget.waiting(), arrived(&mut server).1), (5008, 0, 2));
}

/// Until 8192 bytes of a record have arrived, the record takes no memory of the server, and reads are short. Then its
/// whole length is charged, or the maximum length of a record if more fragments follow.
#[test]
fn announced_records_cost_nothing() {
    let budget = MemoryBudget::new(1 << 20);
    let mut server = engine(Role::Server, |config, stream| {
        config.budget = Some(budget.account(1));
        stream.max_record = 100_000;
    });
    let (record, part) = ([0; 100_000], 8192);
    feed(&mut server, &(1 << 31 | record.len() as u32).to_be_bytes());
    assert!(server.wants_input() && server.room().limit() <= 16 << 10);
    feed(&mut server, &record[..part - 1]);
    assert_eq!((budget.held(), server.wants_input()), (0, true));
    feed(&mut server, &record[part - 1..part]);
    assert_eq!(budget.held(), record.len() as u64);
    assert!(server.room().limit() > 16 << 10);
    feed(&mut server, &record[part..]);
    assert!(matches!(server.poll_event(), Some(EngineEvent::CallArrived(_))));
    assert_eq!(budget.held(), 0);
    // A record of many fragments, none of which is long.
    for fragment in record[..part].chunks(100) {
        feed(&mut server, &(fragment.len() as u32).to_be_bytes());
        assert_eq!(budget.held(), 0);
        feed(&mut server, fragment);
    }
    feed(&mut server, &1_u32.to_be_bytes());
    assert_eq!(budget.held(), 100_000, "the most that it may become");
}

/// Both sides make calls at once, with the same XIDs. Each side has its own limits.
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
    assert_eq!((call.1, callback.1), (u32::MAX - 1, u32::MAX - 1), "each side chooses its own XIDs");
    // A reply does not finish a call of the other direction that has the same XID.
    reply(&mut server, call);
    feed(&mut client, &drain(&mut server, now, usize::MAX));
    assert_eq!(finished(client.poll_event()).0, forward[0]);
    assert!(server.poll_event().is_some_and(|event| !matches!(event, EngineEvent::CallFinished { .. })));
    reply(&mut client, callback);
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    let ended =
        std::iter::from_fn(|| server.poll_event()).find(|event| matches!(event, EngineEvent::CallFinished { .. }));
    assert_eq!(finished(ended).0, reverse[0]);
    drain(&mut server, now, usize::MAX);
    assert_eq!(server.counters().calls_sent, 2, "the next queued call is sent");
    // Losing the stream fails all calls.
    server.connection_lost(DisconnectReason::Remote);
    let failed =
        std::iter::from_fn(|| server.poll_event()).filter(|event| matches!(event, EngineEvent::CallFinished { .. }));
    assert_eq!(failed.count(), 2);
}

/// A server at its limit of calls keeps reading while it waits for a reply, because its handlers may depend on that
/// reply.
#[test]
fn reply_behind_calls_is_read() {
    let now = Instant::now();
    let mut server = engine(Role::Server, |config, _| (config.credits, config.reverse_credits) = (1, 1));
    let mut client = engine(Role::Client, |_, _| {});
    for _ in 0..4 {
        client.start_call(simple(None));
    }
    let calls = drain(&mut client, now, usize::MAX);
    feed(&mut server, &calls[..32]);
    let first = arrived(&mut server);
    assert!(!server.wants_input());
    let callback = server.start_call(simple(None));
    feed(&mut client, &drain(&mut server, now, usize::MAX));
    assert!(server.wants_input());
    feed(&mut server, &calls[32..]);
    assert!(server.poll_event().is_none(), "the calls are parked: only one may be unanswered");
    let arrived_there = arrived(&mut client);
    reply(&mut client, arrived_there);
    feed(&mut server, &drain(&mut client, now, usize::MAX));
    assert_eq!(finished(server.poll_event()).0, callback);
    assert!(!server.wants_input());
    // Parked calls are delivered in order.
    let mut next = first;
    for xid in [u32::MAX, 0, 1] {
        reply(&mut server, next);
        drain(&mut server, now, usize::MAX);
        assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: true, .. })));
        next = arrived(&mut server);
        assert_eq!(next.1, xid);
    }
    reply(&mut server, next);
    drain(&mut server, now, usize::MAX);
    assert!(server.wants_input());
    assert_eq!(server.counters().calls_received, 4);
}

/// Without the reverse direction a client discards calls, and calls of the server fail.
#[test]
fn one_way() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.reverse_credits = 0);
    let mut server = engine(Role::Server, |_, _| {});
    server.start_call(simple(None));
    feed(&mut client, &drain(&mut server, now, usize::MAX));
    assert!(client.poll_event().is_none() && client.wants_input());
    assert_eq!(client.counters().messages_discarded, 1);
    let mut server = engine(Role::Server, |config, _| config.reverse_credits = 0);
    let id = server.start_call(simple(None));
    assert_eq!(failed(server.poll_event()), (id, CallFailure::ReverseDisabled));
    assert_eq!(drain(&mut server, now, usize::MAX), []);
}

/// Queued output is sent before the local side is closed. After the peer has closed its side too, new calls fail as not
/// sent.
#[test]
fn closing_sends_queued_output_first() {
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
    // Further input from the peer is ignored.
    feed(&mut server, &[0xff; 100]);
    server.ended();
    server.poll_work(&mut (), now);
    assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: true, .. })));
    let local = CloseReason::Disconnected(DisconnectReason::Local);
    assert!(matches!(server.poll_event(), Some(EngineEvent::Closed(reason)) if reason == local));
    assert!(!server.wants_input());
    let late = server.start_call(simple(None));
    assert!(matches!(finished(server.poll_event()), (id, Err(CallFailure::Closed { sent: false, .. })) if id == late));
}

/// A reply that is too long fails only its call, whatever its fragments and the pieces it arrives in.
#[test]
fn overlong_reply_fails_only_its_call() {
    let (now, max) = (Instant::now(), 100);
    let fragment = |last: bool, bytes: &[u8]| {
        let marker = bytes.len() as u32 | if last { 1 << 31 } else { 0 };
        [&marker.to_be_bytes(), bytes].concat()
    };
    let head = |xid: u32| [xid.to_be_bytes(), 1_u32.to_be_bytes()].concat();
    let long = |xid, len: usize| [head(xid), vec![0xff; len - 8]].concat();
    let (first, second, third) = (u32::MAX - 1, u32::MAX, 0);
    let whole = fragment(true, &long(first, 30_000));
    // Too long with the second fragment; with the last of many fragments of three bytes, which split the XID; 20000
    // fragments.
    let two = [fragment(false, &long(first, 90)), fragment(false, &[7; 30]), fragment(true, &[8; 500])].concat();
    let bytes = long(first, 101);
    let few: Vec<u8> = bytes.chunks(3).flat_map(|few| fragment(false, few)).chain(fragment(true, &[])).collect();
    let many =
        [vec![fragment(false, &long(first, 101))], vec![fragment(false, &[]); 20_000], vec![fragment(true, &[1])]];
    let many = many.concat().concat();
    let apart = [fragment(false, &head(first)[..5]), fragment(true, &long(first, 200)[5..])].concat();
    for (what, record, len) in [
        ("whole", whole, "30000 bytes"),
        ("two", two, "at least 120 bytes"),
        ("few", few, "at least 101 bytes"),
        ("many", many, "at least 101 bytes"),
        ("apart", apart, "200 bytes"),
    ] {
        for piece in [1, 7, usize::MAX] {
            let mut client = engine(Role::Client, |_, stream| stream.max_record = max);
            let ids: Vec<_> =
                [None, None, Some(now + Duration::from_secs(1))].map(|at| client.start_call(simple(at))).into();
            drain(&mut client, now, usize::MAX);
            let (most, rest) = record.split_at(record.len() - 1);
            for piece in most.chunks(piece) {
                feed(&mut client, piece);
                assert!(client.input.held() <= 256, "{what}: {} bytes are buffered", client.input.held());
            }
            client.poll_work(&mut (), now);
            let (id, failure) = failed(client.poll_event());
            let text = format!("bad reply: its record is {len} long, more than max_record (100)");
            assert_eq!((id, failure.to_string()), (ids[0], text), "{what}, {piece} bytes at a time");
            // Deadlines of other calls still apply meanwhile.
            client.handle_timeout(now + Duration::from_secs(1));
            assert_eq!(failed(client.poll_event()), (ids[2], CallFailure::DeadlineExceeded { sent: true }));
            assert!(client.poll_event().is_none() && client.wants_input() && client.input.in_progress().is_some());
            feed(
                &mut client,
                &[rest, &fragment(true, &long(third, 300)), &fragment(true, &long(second, 100))].concat(),
            );
            let (id, reply) = finished(client.poll_event());
            assert_eq!((id, reply.unwrap().payload.as_slice().len()), (ids[1], 100), "{what}");
            // A second overlong reply to the same call is discarded.
            feed(&mut client, &fragment(true, &long(first, 300)));
            assert_eq!((client.close_reason(), client.counters().messages_discarded), (None, 3));
            assert_eq!((client.counters().calls_abandoned, client.input.in_progress()), (0, None));
        }
    }
}

/// An overlong record that is not a reply to a local call closes the connection, because the peer may not even speak
/// RPC.
#[test]
fn other_overlong_records_close_the_connection() {
    let record = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>();
    let marker = 1 << 31 | 200;
    for (role, words, calls) in [
        (Role::Client, &[marker, 77, 1][..], 1),
        (Role::Client, &[marker, u32::MAX, 1], 1),
        (Role::Client, &[marker, u32::MAX - 1, 0], 1),
        (Role::Client, &[marker, u32::MAX - 1, 1], 0),
        (Role::Server, &[marker, 5, 0], 1),
        (Role::Server, &[marker], 0),
    ] {
        let mut engine = engine(role, |_, stream| stream.max_record = 100);
        for _ in 0..calls {
            engine.start_call(simple(None));
        }
        drain(&mut engine, Instant::now(), usize::MAX);
        feed(&mut engine, &record(words));
        let too_long = StreamError::RecordTooLong { len: 200, max: 100, marker: marker.to_be_bytes() };
        assert_eq!(engine.close_reason(), Some(&CloseReason::Stream(too_long)), "{role:?} {words:?}");
    }
    // The stream ends before the record can be attributed to a call.
    let mut client = engine(Role::Client, |_, stream| stream.max_record = 100);
    client.start_call(simple(None));
    drain(&mut client, Instant::now(), usize::MAX);
    feed(&mut client, &record(&[marker, u32::MAX - 1]));
    assert_eq!(client.close_reason(), None);
    client.ended();
    assert!(matches!(client.close_reason(), Some(CloseReason::Stream(StreamError::RecordTooLong { .. }))));
}

/// For an announced fragment of almost 2 GiB, at most 256 KiB are allocated before its bytes arrive.
#[test]
fn announced_length_allocates_nothing() {
    let mut assembler = RecordAssembler::new(StreamConfig { max_record: u64::MAX, ..StreamConfig::default() });
    assembler.extend(&0x7fff_ffff_u32.to_be_bytes());
    assert_eq!(assembler.next_record(), Ok(None));
    let room = assembler.room(usize::MAX);
    assert!(room.get_ref().capacity() <= 256 << 10, "{}", room.get_ref().capacity());
}

proptest! {
    /// Any short fragments, and any bytes behind them, result in records within the limits or in an error, and the
    /// result is the same for any split into pieces.
    #[test]
    fn split_of_input_does_not_matter(
        lens in prop::collection::vec((0_u8..20, any::<bool>()), 0..40),
        tail in prop::collection::vec(any::<u8>(), 0..6),
        piece in 1_usize..50,
    ) {
        let mut bytes = Vec::new();
        for (n, (len, last)) in lens.into_iter().enumerate() {
            bytes.extend((u32::from(len) | if last { 1 << 31 } else { 0 }).to_be_bytes());
            bytes.extend(vec![n as u8; len.into()]);
        }
        bytes.extend(tail);
        let config = StreamConfig { max_record: 60, max_fragments: 5, ..StreamConfig::default() };
        let records = |pieces: &mut dyn Iterator<Item = &[u8]>| {
            let (mut assembler, mut records) = (RecordAssembler::new(config), Vec::new());
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
            let in_progress = assembler.in_progress();
            (records, None, in_progress)
        };
        prop_assert_eq!(records(&mut std::iter::once(&bytes[..])), records(&mut bytes.chunks(piece)));
    }

    /// After any input and the end of the stream, the engine reports that the connection is closed.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), server in any::<bool>()) {
        let mut engine = engine(if server { Role::Server } else { Role::Client }, |_, _| {});
        engine.start_call(simple(None));
        engine.poll_work(&mut (), Instant::now());
        feed(&mut engine, &bytes);
        engine.ended();
        engine.poll_work(&mut (), Instant::now());
        let mut closed = false;
        while let Some(event) = engine.poll_event() {
            closed |= matches!(event, EngineEvent::Closed(_));
        }
        prop_assert!(closed);
    }
}

/// Replies that the peer does not accept close the connection once no byte has been sent for `reply_timeout`. A client
/// that only makes calls has no such limit.
#[test]
fn stalled_replies_close_the_connection() {
    let start = Instant::now();
    let limit = Duration::from_secs(1);
    let mut server = engine(Role::Server, |config, _| config.reply_timeout = limit);
    let mut client = engine(Role::Client, |config, stream| {
        (config.reply_timeout, stream.record_timeout) = (limit, 100 * limit);
    });
    client.start_call(simple(None));
    client.poll_work(&mut (), start);
    assert_eq!(client.poll_timeout(), Some(start + 100 * limit));
    feed(&mut server, &drain(&mut client, start, usize::MAX));
    let call = arrived(&mut server);
    server.poll_work(&mut (), start);
    assert_eq!(server.poll_timeout(), None, "nothing is queued");
    reply(&mut server, call);
    // One byte at a time, each just before the timeout.
    let mut now = start;
    for _ in 0..8 {
        server.poll_work(&mut (), now);
        assert_eq!(server.poll_timeout(), Some(now + limit));
        now += limit * 9 / 10;
        server.handle_timeout(now);
        server.sent(1);
        assert_eq!(server.close_reason(), None);
    }
    server.poll_work(&mut (), now);
    server.handle_timeout(now + limit);
    server.poll_work(&mut (), now + limit);
    assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: false, .. })));
    assert!(matches!(server.poll_event(), Some(EngineEvent::Closed(why)) if why == CloseReason::ReplyStalled(limit)));
}

/// A call whose caller does not wait for the reply ends when it is sent. A late reply is dropped.
#[test]
fn posted_calls_end_when_they_are_sent() {
    let (mut engine, now) = (engine(Role::Client, |_, _| ()), Instant::now());
    let mut call = simple(None);
    call.policy.unanswered = true;
    let id = engine.start_call(call);
    assert!(engine.poll_event().is_none());
    let sent = drain(&mut engine, now, usize::MAX);
    assert_eq!(failed(engine.poll_event()), (id, CallFailure::Cancelled { sent: true }));
    let xid: [u8; 4] = sent[4..8].try_into().unwrap();
    feed(&mut engine, &[&[0x80, 0, 0, 24][..], &xid, &[0, 0, 0, 1], &[0; 16]].concat());
    engine.poll_work(&mut (), now);
    assert!(engine.poll_event().is_none() && engine.close_reason().is_none());
}
