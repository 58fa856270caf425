//! Tests of the limits of plans: the bytes, segments and memory of calls and their replies, the positions of arguments,
//! and the copies for resends.

use bytes::Bytes;

use super::super::*;
use super::item;
use crate::engine::{
    CallPolicy, EngineConfig, OutgoingCall, ReplyResources, ResultChunk, Role, common::shared::ConnectionRules,
};

/// Length of a header of version 1 without chunks, in bytes.
const HEADER: u64 = 28;
/// Length of a segment of the Read list in bytes.
const READ: u64 = 24;

/// Returns the state of a client of version 1 with inline thresholds of 1000 bytes, after `change`.
fn shared(change: impl FnOnce(&mut EngineShared)) -> EngineShared {
    let config = EngineConfig { min_reduce: 100, ..EngineConfig::default() };
    let rules =
        ConnectionRules { lists_offset: 16, has_credits: true, ..ConnectionRules::without_header(Role::Client) };
    let mut shared = EngineShared::new(config, rules);
    (shared.max_transfer, shared.send_threshold, shared.receive_threshold) = (u32::MAX, 1000, 1000);
    change(&mut shared);
    shared
}

/// Returns the state of a client of version 2 with inline thresholds of 4096 bytes, after `change`.
fn continued(change: impl FnOnce(&mut EngineShared)) -> EngineShared {
    shared(|shared| {
        let rules = ConnectionRules {
            lists_offset: 24,
            min_last_payload: 4,
            continuation: true,
            continued_calls: 64 << 10,
            continued_replies: 64 << 10,
            segments: 100,
            ..shared.rules
        };
        shared.rules = rules;
        (shared.send_threshold, shared.receive_threshold) = (4096, 4096);
        change(shared);
    })
}

struct Planned {
    call: LocalCall,
    message: MessageBuf,
    result: Result<MessageFormat, CallFailure>,
}

impl Planned {
    /// Returns the format of the call, the number of its Read chunks, and the number of segments.
    fn outcome(&self) -> (MessageFormat, usize, u64) {
        assert_eq!(self.result.as_ref().ok(), Some(&self.call.choice.format));
        (self.call.choice.format, self.call.reduced.len(), self.call.segments)
    }
}

/// Plans a call with a payload stream of `len` bytes, arguments with these positions and lengths, results with these
/// maximum lengths, and `max_inline` bytes for the rest of the reply.
fn plan(shared: &mut EngineShared, len: u64, args: &[(u64, usize)], max_inline: u64, results: &[u64]) -> Planned {
    plan_with_policy(shared, len, args, max_inline, results, CallPolicy::default())
}

fn plan_with_policy(
    shared: &mut EngineShared,
    len: u64,
    args: &[(u64, usize)],
    max_inline: u64,
    results: &[u64],
    policy: CallPolicy,
) -> Planned {
    let mut call = LocalCall::default();
    let args = args.iter().map(|&(position, len)| ReducedItem { position, chunk: 0, data: vec![7; len].into() });
    let results = results.iter().map(|&max_len| ResultChunk { max_len, landing: None });
    let reply = ReplyResources { max_inline, chunks: results.collect() };
    let message = || copy(&vec![0; len as usize], &BufferPool::default());
    call.begin(OutgoingCall { message: message(), reduced: args.collect(), reply, deadline: None, policy });
    let mut message = message();
    let result = call.plan(&mut message, shared);
    Planned { call, message, result }
}

/// Small arguments go inline if they fit in the Send, to the last byte. Larger arguments go in Read chunks.
#[test]
fn small_arguments_go_inline_if_they_fit() {
    let mut shared = shared(|shared| shared.config.max_segment_len = 100);
    let most = 1000 - HEADER - 100;
    for (len, arg, outcome) in [
        (most, 99, (MessageFormat::Short, 0, 0)),
        (most + 4, 99, (MessageFormat::Chunked, 1, 1)),
        (40, 99, (MessageFormat::Short, 0, 0)),
        (40, 100, (MessageFormat::Chunked, 1, 1)),
        (40, 101, (MessageFormat::Chunked, 1, 2)),
    ] {
        let planned = plan(&mut shared, len, &[(40, arg)], 0, &[]);
        assert_eq!(planned.outcome(), outcome, "{len} and {arg} bytes");
        let inline = if outcome.1 == 0 { padded_len(arg) as u64 } else { 0 };
        assert_eq!(planned.message.len() as u64, len + inline);
    }
    // A large argument takes two segments of the header.
    let most = most - 2 * READ;
    for (len, outcome) in [(most, (MessageFormat::Chunked, 1, 2)), (most + 4, (MessageFormat::Chunked, 2, 3))] {
        let planned = plan(&mut shared, len, &[(40, 200), (244, 99)], 0, &[]);
        assert_eq!(planned.outcome(), outcome, "{len} bytes");
    }
}

/// An argument without bytes has no Read chunk.
#[test]
fn empty_arguments_have_no_chunk() {
    let mut shared = shared(|shared| shared.config.min_reduce = 0);
    assert_eq!(plan(&mut shared, 60, &[(40, 0), (44, 8)], 0, &[]).outcome(), (MessageFormat::Chunked, 1, 1));
    assert_eq!(plan(&mut shared, 60, &[(40, 0)], 0, &[]).outcome(), (MessageFormat::Short, 0, 0));
}

/// RFC 8166 §3.4.5: positions are multiples of four, nonzero, ascending, and have 32 bits. Arguments may be adjacent.
#[test]
fn positions_are_checked() {
    let check = |positions: &[(u64, &'static [u8])]| {
        let items: Vec<_> = positions.iter().map(|&(position, data)| item(position, data)).collect();
        check_positions(&items)
    };
    let order = |position| Err(CallFailure::Malformed(MalformedCall::ItemOrder { position }));
    let most = u64::from(u32::MAX) - 3;
    assert_eq!(check(&[(4, b"1234"), (8, b"5"), (12, b"6")]), Ok(()));
    assert_eq!(check(&[(0, b"1")]), order(0));
    assert_eq!(check(&[(6, b"1")]), order(6));
    assert_eq!(check(&[(4, b"12345"), (8, b"6")]), order(8));
    assert_eq!(check(&[(8, b"1"), (4, b"2")]), order(4));
    assert_eq!(check(&[(most, b"1")]), Ok(()));
    let beyond = CallFailure::TooLarge(CallLimit::Position { position: most + 4 });
    assert_eq!(check(&[(most + 4, b"1")]), Err(beyond));
}

/// RPC-over-RDMA v2 §5.2.3, §5.2.4: a peer that accepts only empty segments, or no segments, gets no chunks. Results
/// then need no memory in advance.
#[test]
fn peers_without_segments_get_no_chunks() {
    for (segment_len, segments) in [(0, 100), (1 << 20, 0)] {
        let mut shared = continued(|shared| {
            (shared.rules.segment_len, shared.rules.segments) = (segment_len, segments);
            (shared.config.min_reduce, shared.config.max_call_len) = (10, 2000);
        });
        let planned = plan(&mut shared, 60, &[(40, 50)], 0, &[]);
        assert_eq!(planned.outcome(), (MessageFormat::Short, 0, 0), "{segment_len}, {segments}");
        let planned = plan(&mut shared, 60, &[], 40, &[2001]);
        assert_eq!(planned.outcome(), (MessageFormat::Short, 0, 0), "{segment_len}, {segments}");
        assert_eq!(planned.call.reply_chunks.provided, 0);
    }
}

/// The memory for a reply is bounded, to the byte.
#[test]
fn memory_for_a_reply_is_bounded() {
    let mut shared = shared(|shared| shared.config.max_call_len = 5000);
    let too_large = |needed| Err(CallFailure::TooLarge(CallLimit::ReplyMemory { needed, max: 5000 }));
    assert_eq!(plan(&mut shared, 60, &[], 0, &[5000]).result, Ok(MessageFormat::Short));
    assert_eq!(plan(&mut shared, 60, &[], 0, &[5001]).result, too_large(5001));
    assert_eq!(plan(&mut shared, 60, &[], 0, &[3000, u64::MAX]).result, too_large(u64::MAX));
    assert_eq!(plan(&mut shared, 60, &[], 2000, &[3000]).result, Ok(MessageFormat::Short));
    assert_eq!(plan(&mut shared, 60, &[], 2001, &[3000]).result, too_large(5004));
    assert_eq!(plan(&mut shared, 60, &[], 5000, &[]).result, Ok(MessageFormat::Short));
    assert_eq!(plan(&mut shared, 60, &[], 5001, &[]).result, too_large(5004));
}

/// RFC 8166 §3.4.6: the header of the reply repeats the Write list, and has to fit in its Send.
#[test]
fn reply_headers_are_bounded() {
    let header = HEADER + 8 + 16 * 60;
    for (threshold, result) in
        [(header, Ok(MessageFormat::Short)), (header - 1, Err(CallFailure::TooLarge(CallLimit::ReplyHeader)))]
    {
        let mut shared = shared(|shared| {
            (shared.config.max_segment_len, shared.receive_threshold, shared.send_threshold) = (100, threshold, 4096);
        });
        assert_eq!(plan(&mut shared, 60, &[], 0, &[6000]).result, result, "{threshold}");
    }
}

/// RFC 8166 §3.5.3: the segments of a Long call fit in its header. Version 1 has no other format for a longer call.
#[test]
fn long_calls_are_bounded_by_their_header() {
    let header = HEADER + 40 * READ;
    for (threshold, is_sent) in [(header, true), (header - 1, false)] {
        let mut shared = shared(|shared| {
            (shared.config.max_segment_len, shared.send_threshold) = (100, threshold);
        });
        let planned = plan(&mut shared, 4000, &[], 0, &[]);
        if is_sent {
            assert_eq!(planned.outcome(), (MessageFormat::Long, 0, 40));
        } else {
            assert_eq!(planned.result, Err(CallFailure::TooLarge(CallLimit::Segments)));
        }
    }
}

/// Small results without memory of the caller go inline if the reply fits in its Send, to the last byte. Other results
/// with bytes have a Write chunk.
#[test]
fn small_results_go_inline_if_they_fit() {
    let mut shared = shared(|_| {});
    let most = 1000 - HEADER - 100;
    for (max_inline, max_len, provided) in [(most, 99, 0), (most + 1, 99, 1), (0, 99, 0), (0, 100, 1), (0, 1, 0)] {
        let planned = plan(&mut shared, 60, &[], max_inline, &[max_len]);
        assert_eq!(planned.call.reply_chunks.provided, provided, "{max_inline}, {max_len}");
        assert_eq!(planned.call.reply_chunks.reply_chunk, None, "{max_inline}, {max_len}");
    }
    // Memory of the caller is used for any result with bytes.
    for (max_len, provided) in [(0, 0), (1, 1)] {
        let landing = Some(crate::memory::PayloadBuf::from(vec![0; 8]));
        let chunks = [ResultChunk { max_len, landing }];
        assert_eq!(ReplyChunks::plan(0, &chunks, usize::MAX, &shared).provided, provided);
        assert_eq!(ReplyChunks::plan(0, &chunks, 0, &shared).provided, 0);
    }
}

/// A copy is kept of an idempotent call, of a call with chunks and of a Long call, because these may be sent again. No
/// copy is kept of a sealed call.
#[test]
fn copies_are_kept_of_calls_that_may_be_sent_again() {
    let idempotent = CallPolicy { idempotent: true, ..CallPolicy::default() };
    let sealed = CallPolicy { sealed: true, ..idempotent };
    let plain = CallPolicy::default();
    for (policy, len, args, results, is_kept) in [
        (plain, 60, &[][..], &[][..], false),
        (idempotent, 60, &[], &[], true),
        (sealed, 60, &[], &[], false),
        (plain, 60, &[(40, 200)], &[], true),
        (plain, 60, &[], &[200], true),
        (plain, 2000, &[], &[], true),
        (sealed, 2000, &[(40, 200)], &[200], false),
    ] {
        let mut planned = plan_with_policy(&mut shared(|_| {}), len, args, 0, results, policy);
        planned.call.keep(|| ResendableMessage::Whole(Bytes::new()));
        assert_eq!(planned.call.kept.is_some(), is_kept, "{policy:?}, {len}, {args:?}, {results:?}");
    }
}
