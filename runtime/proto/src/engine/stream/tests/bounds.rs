//! Tests of the bounds of a connection over a byte stream, and of the counts that they limit.

use super::*;
use crate::engine::{IncomingCall, MessagePayload, stream::record::SMALL};

/// Returns a record of one fragment with `len` bytes, which begin with these words.
fn record(words: &[u32], len: usize) -> Vec<u8> {
    let mut bytes = (0x8000_0000 | len as u32).to_be_bytes().to_vec();
    words.iter().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend((0..len - 4 * words.len()).map(|n| n as u8));
    bytes
}

fn call_of(engine: &mut StreamConnection) -> IncomingCall {
    match engine.poll_event() {
        Some(EngineEvent::CallArrived(call)) => call,
        other => panic!("{other:?}"),
    }
}

/// A server stops reading while its unanswered calls have `max_fetched` bytes. The bytes of a call no longer count when
/// its reply has been sent.
#[test]
fn bytes_of_unanswered_calls_are_bounded() {
    let now = Instant::now();
    let mut server = engine(Role::Server, |config, _| config.max_fetched = 120);
    for round in 0..5 {
        feed(&mut server, &record(&[2 * round, 0], 60));
        assert!(server.wants_input(), "60 bytes");
        feed(&mut server, &record(&[2 * round + 1, 0], 60));
        assert!(!server.wants_input(), "120 bytes");
        let calls = [arrived(&mut server), arrived(&mut server)];
        for call in calls {
            reply(&mut server, call);
            drain(&mut server, now, usize::MAX);
            assert!(server.wants_input(), "round {round}");
            assert!(matches!(server.poll_event(), Some(EngineEvent::ReplySent { delivered: true, .. })));
        }
        assert_eq!(server.poll_timeout(), None);
    }
    // One call may be longer.
    feed(&mut server, &record(&[100, 0], 121));
    let call = arrived(&mut server);
    assert!(!server.wants_input());
    server.reply_error(call.0, TransportError::System);
    assert!(server.wants_input());
}

/// While a local call waits for its reply, calls of the peer are parked, up to a bound.
#[test]
fn parked_calls_are_bounded() {
    let mut client = engine(Role::Client, |config, _| config.reverse_credits = 1);
    let id = client.start_call(simple(None));
    drain(&mut client, Instant::now(), usize::MAX);
    for xid in 0..1024 {
        feed(&mut client, &record(&[xid, 0], 8));
    }
    assert!(client.wants_input());
    feed(&mut client, &record(&[1024, 0], 8));
    assert!(!client.wants_input());
    assert_eq!(arrived(&mut client).1, 0);
    assert!(client.poll_event().is_none(), "the others are parked");
    client.connection_lost(DisconnectReason::Remote);
    assert_eq!(failed(client.poll_event()).0, id);
}

/// Small records are copied. Longer records are views of the receive buffer. Both have the content that was sent.
#[test]
fn payloads_are_complete() {
    let mut server = engine(Role::Server, |_, _| {});
    let mut bytes = 0;
    for (len, is_copied) in [(8, true), (100, true), (SMALL, true), (SMALL + 1, false)] {
        let sent = record(&[7, 0], len);
        feed(&mut server, &sent);
        bytes += sent.len() as u64;
        let call = call_of(&mut server);
        assert_eq!(call.payload.as_slice(), &sent[4..], "{len}");
        assert_eq!(matches!(call.payload, MessagePayload::Inline(_)), is_copied, "{len}");
        assert_eq!(call.max_inline, 0);
    }
    assert_eq!(server.counters().bytes_received, bytes);
    assert_eq!(server.counters().calls_received, 4);
    let credits = |role| engine(role, |config, _| (config.credits, config.reverse_credits) = (5, 3));
    assert_eq!(credits(Role::Client).counters().credits_granted, 5);
    assert_eq!(credits(Role::Server).counters().credits_granted, 3);
}

/// The number of fragments of a record has a bound, whatever the fragments contain. The count restarts with each
/// record.
#[test]
fn fragments_of_a_record_are_bounded() {
    let fragments = |count: usize| {
        let mut bytes = [0, 0, 0, 1, 7].repeat(count - 1);
        bytes.extend([0x80, 0, 0, 1, 7]);
        bytes
    };
    let mut assembler = RecordAssembler::new(StreamConfig { max_fragments: 3, ..StreamConfig::default() });
    for count in [3, 1, 3, 2] {
        assembler.extend(&fragments(count));
        assert_eq!(assembler.next_record().unwrap().unwrap(), vec![7; count]);
    }
    assembler.extend(&fragments(4));
    assert_eq!(assembler.next_record(), Err(StreamError::TooManyFragments { max: 3 }));
}

/// When a connection closes, the calls that it has not sent fail immediately. The engine asks its driver once to close
/// the local side of the stream.
#[test]
fn closing_fails_queued_calls() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.credits = 1);
    let (sent, queued) = (client.start_call(simple(None)), client.start_call(simple(None)));
    drain(&mut client, now, usize::MAX);
    assert!(client.poll_event().is_none());
    let reason = CloseReason::Idle(Duration::ZERO);
    client.close_with(reason.clone());
    assert_eq!(failed(client.poll_event()), (queued, CallFailure::Closed { reason: reason.clone(), sent: false }));
    assert!(client.poll_event().is_none() && client.wants_shutdown());
    // The first reason is the one that is reported.
    client.close_with(CloseReason::Disconnected(DisconnectReason::Local));
    client.shut_down();
    assert!(!client.wants_shutdown() && client.wants_input());
    client.connection_lost(DisconnectReason::Remote);
    client.connection_lost(DisconnectReason::Local);
    assert_eq!(failed(client.poll_event()), (sent, CallFailure::Closed { reason: reason.clone(), sent: true }));
    for _ in 0..2 {
        client.poll_work(&mut (), now);
    }
    assert!(matches!(client.poll_event(), Some(EngineEvent::Closed(known)) if known == reason));
    assert!(client.poll_event().is_none(), "it closes once");
}

/// The output is bounded: no calls are added to it while much of it is queued.
#[test]
fn output_is_bounded() {
    let now = Instant::now();
    let mut client = engine(Role::Client, |config, _| config.credits = 1000);
    let item = |len| ReducedItem { position: 12, chunk: 0, data: vec![7; len].into() };
    for _ in 0..100 {
        client.start_call(call(&[0, 0, 1 << 20], [item(1 << 20)], None));
    }
    client.poll_work(&mut (), now);
    let before = client.counters().calls_sent;
    assert!(before > 0 && before < 100, "{before} calls are in the output");
    drain(&mut client, now, usize::MAX);
    assert_eq!(client.counters().calls_sent, 100);
}
