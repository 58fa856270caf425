//! Tests of connections that end, of the memory that connections share, of the limit of calls in flight, and of
//! timeouts.

use super::*;
use crate::{
    engine::{CallPolicy, MessageFormat, ResultChunk, stream::record::SMALL},
    memory::BudgetCharge,
};

/// Returns a record of one fragment with `len` bytes, which contains a call other than a NULL call.
fn record(xid: u32, len: usize) -> Vec<u8> {
    let mut bytes = (0x8000_0000 | len as u32).to_be_bytes().to_vec();
    bytes.extend(xid.to_be_bytes());
    bytes.resize(4 + len, 0);
    // Not procedure 0.
    if let Some(procedure) = bytes.get_mut(27) {
        *procedure = 1;
    }
    bytes
}

/// Returns a budget, and a charge for so much of it that another connection must wait if it needs more than [`SMALL`]
/// bytes.
fn exhausted() -> (std::sync::Arc<MemoryBudget>, BudgetCharge) {
    let budget = MemoryBudget::new(130_000);
    let charge = MemoryShare::of(Some(budget.account(1))).overcommit(100_000);
    (budget, charge)
}

fn limited(budget: &std::sync::Arc<MemoryBudget>, role: Role) -> StreamConnection {
    engine(role, |config, _| {
        (config.budget, config.credits, config.reverse_credits) = (Some(budget.account(2)), 4, 1);
    })
}

/// A connection that closes or is lost stops waiting for memory at once. Once it is lost, it holds no memory.
#[test]
fn ended_connections_hold_no_memory() {
    type End = fn(&mut StreamConnection);
    let ends: [End; 3] = [
        |connection| connection.close_with(CloseReason::Idle(Duration::ZERO)),
        |connection| connection.connection_lost(DisconnectReason::Remote),
        StreamConnection::ended,
    ];
    for (n, end) in ends.into_iter().enumerate() {
        // One that waits for memory.
        let (budget, others) = exhausted();
        let mut server = limited(&budget, Role::Server);
        feed(&mut server, &record(1, 20_000));
        assert_eq!((budget.waiting(), server.has_input()), (1, false));
        assert!(server.is_receiving() && !server.wants_input());
        end(&mut server);
        assert_eq!(budget.waiting(), 0, "{n}");
        drop(others);
        // One that has memory for a record in progress, and for a call that is parked.
        let mut client = limited(&budget, Role::Client);
        client.start_call(simple(None));
        drain(&mut client, Instant::now(), usize::MAX);
        let now = Instant::now();
        feed(&mut client, &[record(1, 9_000), record(2, 9_000), record(3, 9_000)[..8_500].to_vec()].concat());
        let first = arrived(&mut client);
        client.reply(first.0, OutgoingReply { message: message(&[1, 1, 1]), reduced: ChunkItems::new() });
        client.poll_work(&mut (), now);
        assert_eq!((budget.held(), client.has_output(), client.is_receiving()), (18_000, true, true));
        end(&mut client);
        assert!(n == 0 || !client.is_receiving());
        client.receive(&[0; 4]);
        client.handle_records(1);
        assert!(!client.is_receiving() && !client.has_input());
        if n > 0 {
            assert!(budget.held() == 0 && !client.has_output() && client.output().is_empty());
            assert!(!client.wants_input());
        }
        for _ in 0..2 {
            client.connection_lost(DisconnectReason::Local);
            client.poll_work(&mut (), now);
        }
        assert_eq!((budget.held(), client.has_output()), (0, false));
        let events: Vec<_> = std::iter::from_fn(|| client.poll_event()).collect();
        let sent = events.iter().filter(|event| matches!(event, EngineEvent::ReplySent { delivered: false, .. }));
        let closed = events.iter().filter(|event| matches!(event, EngineEvent::Closed(_)));
        assert_eq!((sent.count(), closed.count()), (1, 1), "{events:?}");
    }
}

/// A connection that is closing sends the replies that it has accepted before. It accepts no further replies, and
/// delivers no further calls.
#[test]
fn closing_connections_deliver_nothing() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.reverse_credits = 2);
    client.start_call(simple(None));
    drain(&mut client, now, usize::MAX);
    feed(&mut client, &[record(1, 8), record(2, 8), record(3, 8)].concat());
    let calls = [arrived(&mut client), arrived(&mut client)];
    reply(&mut client, calls[0]);
    client.close_with(CloseReason::Idle(Duration::ZERO));
    assert!(client.poll_event().is_none());
    reply(&mut client, calls[1]);
    let lost = client.poll_event();
    assert!(matches!(lost, Some(EngineEvent::ReplySent { delivered: false, .. })), "{lost:?}");
    assert_eq!(client.counters().replies_sent, 1);
    drain(&mut client, now, usize::MAX);
    let sent = client.poll_event();
    assert!(matches!(sent, Some(EngineEvent::ReplySent { delivered: true, .. })), "{sent:?}");
    assert!(client.poll_event().is_none(), "a parked call is delivered");
}

/// Parked calls are delivered before more input is read.
#[test]
fn parked_calls_hold_the_peer_back() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.reverse_credits = 2);
    let id = client.start_call(simple(None));
    let xid = drain(&mut client, now, usize::MAX)[7];
    assert_eq!(xid, 0xfe);
    feed(&mut client, &[record(1, 8), record(2, 8), record(3, 8), record(4, 8)].concat());
    let calls = [arrived(&mut client), arrived(&mut client)];
    let answer =
        [&0x8000_000c_u32.to_be_bytes()[..], &(u32::MAX - 1).to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 9]].concat();
    feed(&mut client, &answer);
    assert_eq!(finished(client.poll_event()).0, id);
    reply(&mut client, calls[0]);
    drain(&mut client, now, usize::MAX);
    assert!(!client.wants_input(), "a call is parked");
    client.poll_event();
    let third = arrived(&mut client);
    reply(&mut client, calls[1]);
    reply(&mut client, third);
    drain(&mut client, now, usize::MAX);
    while client.poll_event().is_some() {}
    assert!(client.wants_input());
}

/// Small records are not charged to the memory budget of the server. Longer records wait until the budget has room,
/// even if the reply to a local call may follow them. A charge beyond the length of the record is returned.
#[test]
fn records_and_memory() {
    let (budget, others) = exhausted();
    let mut server = limited(&budget, Role::Server);
    feed(&mut server, &record(1, SMALL));
    assert_eq!((arrived(&mut server).1, budget.waiting()), (1, 0));
    feed(&mut server, &record(2, SMALL + 1));
    assert!(server.poll_event().is_none() && budget.waiting() == 1);
    server.handle_records(8);
    // The record waits although the reply to a local call may follow it.
    server.start_call(simple(None));
    server.poll_work(&mut (), Instant::now());
    assert!(!server.wants_input() && !server.has_input());
    server.handle_records(8);
    assert_eq!((budget.waiting(), budget.held()), (1, 100_000));
    drop(others);
    server.poll_work(&mut (), Instant::now());
    assert!(server.wants_input() && server.has_input());
    server.handle_records(8);
    assert_eq!((budget.waiting(), budget.held()), (0, SMALL as u64 + 1));
    assert_eq!(arrived(&mut server).1, 2);
    drop(server);

    let mut server = limited(&budget, Role::Server);
    let long = [&20_000_u32.to_be_bytes()[..], &[0, 0, 0, 3], &[0; 19_996], &0x8000_0004_u32.to_be_bytes()].concat();
    feed(&mut server, &long);
    assert!(budget.held() > 50_000, "the longest record");
    assert!(!server.has_input(), "all of it is parsed");
    feed(&mut server, &[1; 4]);
    assert_eq!((budget.held(), server.has_input()), (20_004, false));
    assert_eq!(arrived(&mut server).1, 3);
}

/// A reply that a local call waits for needs no free memory, up to the length for which the call has provided.
#[test]
fn awaited_replies_need_no_free_memory() {
    let (inline, result) = (9_000, 1_002);
    // Together with a result of 1,002 bytes and its padding.
    for (xid, len, is_awaited) in [(u32::MAX - 1, 10_004, true), (u32::MAX - 1, 10_008, false), (7, 10_004, false)] {
        let (budget, _others) = exhausted();
        let mut server = limited(&budget, Role::Server);
        let mut call = simple(None);
        call.reply.max_inline = inline;
        call.reply.chunks = [ResultChunk { max_len: result, landing: None }].into_iter().collect();
        let id = server.start_call(call);
        drain(&mut server, Instant::now(), usize::MAX);
        let mut reply = record(xid, len);
        reply[11] = 1;
        feed(&mut server, &reply);
        assert_eq!(budget.waiting(), usize::from(!is_awaited), "{xid:#x} {len}");
        match server.poll_event() {
            Some(EngineEvent::CallFinished { id: finished, .. }) => assert!(is_awaited && finished == id),
            other => assert!(!is_awaited && other.is_none(), "{other:?}"),
        }
    }
}

/// `handle_records(1)` handles one record. The next read has room for 16 KiB, or for the rest of the fragment in
/// progress. With a memory limit, it has room for the rest only after the record has been charged.
#[test]
fn input_is_handled_record_by_record() {
    let mut server = engine(Role::Server, |_, _| {});
    assert!(!server.has_input());
    server.receive(&[record(1, 8), record(2, 8)].concat());
    for xid in 1..3 {
        assert!(server.has_input());
        server.handle_records(1);
        assert_eq!(arrived(&mut server).1, xid);
        assert!(server.poll_event().is_none());
    }
    server.handle_records(1);
    assert!(!server.has_input());
    assert_eq!(server.room().limit(), 16 << 10);
    server.receive(&record(3, 40_000)[..20_000]);
    server.handle_records(1);
    assert_eq!((server.has_input(), server.missing(), server.room().limit()), (false, 20_004, 20_004));
    // With a limit on memory, reads are short until the record is charged.
    let budget = MemoryBudget::new(1_000_000);
    let mut server = limited(&budget, Role::Server);
    server.receive(&record(3, 40_000)[..4]);
    server.handle_records(1);
    assert_eq!((server.missing(), server.room().limit()), (40_000, 16 << 10));
    server.receive(&record(3, 40_000)[4..10_000]);
    server.handle_records(1);
    assert_eq!((server.missing(), server.room().limit()), (30_004, 30_004));
}

/// A call is answered once. An error after its reply, or another reply, has no effect.
#[test]
fn calls_are_answered_once() {
    let now = Instant::now();
    let mut server = engine(Role::Server, |_, _| {});
    feed(&mut server, &record(1, 8));
    let call = arrived(&mut server);
    reply(&mut server, call);
    server.reply_error(call.0, TransportError::System);
    reply(&mut server, call);
    assert!(server.poll_event().is_none(), "the reply has not been sent");
    assert_eq!(drain(&mut server, now, usize::MAX).len(), 16);
    assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: true, .. })));
    assert!(server.poll_event().is_none());
}

/// The memory for the beginning of a reply that turns out to be too long is returned.
#[test]
fn overlong_replies_return_their_memory() {
    let budget = MemoryBudget::new(1_000_000);
    let mut client = engine(Role::Client, |config, stream| {
        (config.budget, stream.max_record) = (Some(budget.account(1)), 50_000);
    });
    let id = client.start_call(simple(None));
    drain(&mut client, Instant::now(), usize::MAX);
    let mut first = 20_000_u32.to_be_bytes().to_vec();
    first.extend((u32::MAX - 1).to_be_bytes());
    first.extend(1_u32.to_be_bytes());
    first.resize(20_004, 0);
    feed(&mut client, &first);
    assert_eq!(budget.held(), 50_000);
    feed(&mut client, &(0x8000_0000_u32 | 40_000).to_be_bytes());
    assert_eq!((failed(client.poll_event()).0, budget.held()), (id, 0));
}

/// All bytes of unanswered calls count against `max_fetched`. If no call is unanswered, the next call is accepted even
/// at the limit.
#[test]
fn bytes_of_calls_count_from_zero() {
    let mut server = engine(Role::Server, |config, _| config.max_fetched = 0);
    assert!(server.wants_input(), "there is always room for one");
    feed(&mut server, &record(1, 8));
    assert!(!server.wants_input());
    let mut server = engine(Role::Server, |config, _| config.max_fetched = 61);
    feed(&mut server, &record(1, 60));
    assert!(server.wants_input());
    feed(&mut server, &record(2, 8));
    assert!(!server.wants_input());
}

/// Reduced items of calls and replies arrive in the record. Only items shorter than `min_reduce` are copied. A reply
/// with an item beyond the end of its message is not sent.
#[test]
fn calls_with_items() {
    let now = Instant::now();
    for (len, copied) in [(99, 99), (100, 0), (101, 0)] {
        let item = |len| ReducedItem { position: 12, chunk: 0, data: vec![7; len].into() };
        let mut client = engine(Role::Client, |config, _| config.min_reduce = 100);
        let mut call = call(&[0, 0, 42], [item(len)], None);
        call.reply.chunks.push(ResultChunk { max_len: 5000, landing: None });
        let id = client.start_call(call);
        let bytes = drain(&mut client, now, usize::MAX);
        assert_eq!((bytes.len(), client.counters().copied_eligible_bytes), (16 + len.next_multiple_of(4), copied));
        let mut server = engine(Role::Server, |config, _| config.min_reduce = 100);
        feed(&mut server, &bytes);
        let (token, xid) = arrived(&mut server);
        let reduced = [item(len)].into_iter().collect();
        server.reply(token, OutgoingReply { message: message(&[xid, 1, 5]), reduced });
        let reply = drain(&mut server, now, usize::MAX);
        assert_eq!(server.counters().copied_eligible_bytes, copied);
        feed(&mut client, &reply);
        let (finished, result) = finished(client.poll_event());
        let reply = result.unwrap();
        assert_eq!((finished, reply.format, reply.call.format), (id, MessageFormat::Record, MessageFormat::Record));
        assert_eq!((reply.writes.len(), reply.payload.as_slice().len()), (1, 12 + len.next_multiple_of(4)));
        let counters = client.counters();
        assert_eq!((counters.replies_received, counters.written_by_peer_bytes), (1, 0));
    }
    // An item beyond the message.
    let mut server = engine(Role::Server, |_, _| {});
    feed(&mut server, &record(1, 8));
    let (token, xid) = arrived(&mut server);
    let reduced = [ReducedItem { position: 16, chunk: 0, data: vec![7; 8].into() }].into_iter().collect();
    server.reply(token, OutgoingReply { message: message(&[xid, 1, 5]), reduced });
    assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: false, .. })));
    assert!(!server.has_output());
}

/// One of the eight calls that may be in flight is kept for urgent calls. With a limit of zero, one call is made at a
/// time. Urgent calls exceed such low limits by one. No call is added to an output of 256 KiB.
#[test]
fn calls_in_flight_are_bounded() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| (config.credits, config.keeps_credit) = (8, true));
    for _ in 0..9 {
        client.start_call(simple(None));
    }
    drain(&mut client, now, usize::MAX);
    assert_eq!(client.counters().calls_sent, 7);
    let policy = CallPolicy { urgent: true, ..CallPolicy::default() };
    client.start_call(OutgoingCall { policy, ..simple(None) });
    drain(&mut client, now, usize::MAX);
    assert_eq!(client.counters().calls_sent, 8);
    for credits in [0, 1] {
        let mut client = engine(Role::Client, |config, _| (config.credits, config.keeps_credit) = (credits, true));
        for _ in 0..2 {
            client.start_call(simple(None));
        }
        drain(&mut client, now, usize::MAX);
        assert_eq!(client.counters().calls_sent, 1);
        // Urgent calls, such as probes, wait for no other call.
        for sent in [2, 2] {
            client.start_call(OutgoingCall { policy, ..simple(None) });
            drain(&mut client, now, usize::MAX);
            assert_eq!(client.counters().calls_sent, sent);
        }
    }
    // No further call is added to an output of 256 KiB.
    for (len, sent) in [((256 << 10) - 20, 2), ((256 << 10) - 16, 1)] {
        let mut client = engine(Role::Client, |_, _| {});
        for _ in 0..2 {
            let item = ReducedItem { position: 12, chunk: 0, data: vec![7; len].into() };
            client.start_call(call(&[0, 0, 42], [item], None));
        }
        client.poll_work(&mut (), now);
        assert_eq!(client.counters().calls_sent, sent, "{len}");
    }
}

/// The timeout of records starts anew with each record, and the timeout of replies whenever bytes are sent.
#[test]
fn timeouts_begin_anew_with_progress() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut server = engine(Role::Server, |config, stream| {
        (stream.record_timeout, config.reply_timeout) = (Duration::from_secs(100), Duration::from_secs(9));
    });
    let bytes = record(1, 8);
    feed(&mut server, &bytes[..6]);
    server.poll_work(&mut (), now);
    assert_eq!(server.poll_timeout(), Some(at(100)));
    feed(&mut server, &[&bytes[6..], &bytes[..6]].concat());
    server.poll_work(&mut (), at(7));
    assert_eq!(server.poll_timeout(), Some(at(107)), "the second record");
    let call = arrived(&mut server);
    reply(&mut server, call);
    server.poll_work(&mut (), at(8));
    assert_eq!(server.poll_timeout(), Some(at(17)));
    server.sent(0);
    server.poll_work(&mut (), at(9));
    assert_eq!(server.poll_timeout(), Some(at(17)), "nothing was sent");
    server.sent(1);
    server.poll_work(&mut (), at(9));
    assert_eq!(server.poll_timeout(), Some(at(18)));
}

/// An overlong record closes the connection if the whole record is too short for the header of a reply. If only a part
/// of the header has arrived, the connection stays open.
#[test]
fn overlong_records_without_a_header() {
    for (len, max, is_open) in [(7, 4, false), (8, 4, true), (8, 7, true), (4, 3, false)] {
        let mut client = engine(Role::Client, |_, stream| stream.max_record = max);
        client.start_call(simple(None));
        drain(&mut client, Instant::now(), usize::MAX);
        let head = [&(u32::MAX - 1).to_be_bytes()[..], &1_u32.to_be_bytes()].concat();
        feed(&mut client, &(0x8000_0000_u32 | len).to_be_bytes());
        feed(&mut client, &head[..7]);
        assert!(!client.has_input());
        client.poll_work(&mut (), Instant::now());
        assert_eq!(client.close_reason().is_none(), is_open, "{len}, {max}");
        feed(&mut client, &head[7..]);
        client.poll_work(&mut (), Instant::now());
        assert_eq!(client.close_reason().is_none(), is_open, "{len}, {max}");
        assert!(finished(client.poll_event()).1.is_err());
    }
}

/// An engine is pending if it has an event, a call that can be sent, or an end that it has not reported.
#[test]
fn pending_work() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.credits = 1);
    assert!(!client.is_pending());
    client.start_call(simple(None));
    assert!(client.is_pending(), "a call can be sent");
    drain(&mut client, now, usize::MAX);
    assert!(!client.is_pending());
    client.start_call(simple(None));
    assert!(!client.is_pending(), "there is no credit");
    feed(&mut client, &0x8000_0001_u32.to_be_bytes());
    feed(&mut client, &[0]);
    assert!(client.poll_event().is_none() && client.is_pending(), "the record is no message");
    client.poll_work(&mut (), now);
    while client.poll_event().is_some() {}
    assert!(!client.is_pending());
    let mut client = engine(Role::Client, |_, _| {});
    client.connection_lost(DisconnectReason::Remote);
    assert!(client.is_pending(), "the end is not reported");
    client.poll_work(&mut (), now);
    assert!(client.is_pending(), "an event");
    client.poll_event();
    assert!(!client.is_pending());
}
