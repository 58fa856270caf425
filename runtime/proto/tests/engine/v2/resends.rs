//! Calls that are refused and perhaps sent again (§6.4, §7.3), with random refusals in random order.

use rpcrdma_proto::engine::Engine as _;
use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use rpcrdma::{rpc::CallHeader, xdr::FlatSink};
use rpcrdma_proto::{
    engine::{
        CallFailure, CallPolicy, EngineConfig, EngineEvent, OutgoingCall, ReplyResources, Role, TransportError,
        message_buf,
    },
    memory::BufferPool,
    provider::sim::{SimEnd, SimFault},
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER, stepped},
    scripted::{CREDIT, ERROR, Facing, MORE, RESPONSE, plain},
};
use crate::support::Script;

/// Maximum number of times that a call is sent: once, and three repetitions.
const MAX_SENDS: u32 = 4;

/// A responder's reaction to a call.
#[derive(Debug, Clone, Copy)]
enum Move {
    /// Executes the call and replies.
    Reply,
    /// Refuses the call with this error.
    Refuse(TransportError),
    /// Disconnects.
    Leave,
}

/// Returns the code and words of an error (§8, `rpcrdma2_errcode`), independent of the generated code.
fn words(refusal: TransportError) -> Vec<u32> {
    match refusal {
        TransportError::Version { low, high } => vec![1, low, high],
        TransportError::BadXdr => vec![2],
        TransportError::BadProperty => vec![3],
        TransportError::HeaderType => vec![4],
        TransportError::Continuation => vec![5],
        TransportError::ReadChunks { max } => vec![6, max],
        TransportError::WriteChunks { max } => vec![7, max],
        TransportError::Segments { max } => vec![8, max],
        TransportError::WriteResource { chunk, needed } => vec![9, chunk, needed],
        TransportError::ReplyResource { needed } => vec![10, needed],
        _ => vec![100],
    }
}

/// Returns `true` if a call that was refused with this error was executed (§7.3.4, §7.3.5) or may have been executed
/// (§7.4.1).
fn executed(refusal: TransportError) -> bool {
    matches!(
        refusal,
        TransportError::WriteResource { .. } | TransportError::ReplyResource { .. } | TransportError::System
    )
}

/// Returns `true` if the error names a limit or a requirement that another attempt can respect.
fn can_be_met(refusal: TransportError) -> bool {
    executed(refusal) && refusal != TransportError::System
        || matches!(
            refusal,
            TransportError::ReadChunks { .. } | TransportError::WriteChunks { .. } | TransportError::Segments { .. }
        )
}

fn refusal() -> impl Strategy<Value = TransportError> {
    prop_oneof![
        2 => (0u32..4).prop_map(|max| TransportError::ReadChunks { max }),
        2 => (0u32..3).prop_map(|max| TransportError::WriteChunks { max }),
        2 => (0u32..12).prop_map(|max| TransportError::Segments { max }),
        3 => (0u32..4, 0u32..30_000).prop_map(|(chunk, needed)| TransportError::WriteResource { chunk, needed }),
        3 => (0u32..90_000).prop_map(|needed| TransportError::ReplyResource { needed }),
        1 => prop_oneof![
            Just(TransportError::Version { low: 1, high: 3 }),
            Just(TransportError::BadXdr),
            Just(TransportError::BadProperty),
            Just(TransportError::HeaderType),
            Just(TransportError::Continuation),
            Just(TransportError::System),
        ],
    ]
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    vec(prop_oneof![20 => refusal().prop_map(Move::Refuse), 10 => Just(Move::Reply), 1 => Just(Move::Leave)], 0..20)
}

fn script() -> impl Strategy<Value = Script> {
    let results = vec((0usize..9000, 0u64..9000), 0..3);
    (0usize..9000, vec(0usize..5000, 0..4), 0usize..9000, results, any::<bool>()).prop_map(
        |(inline, args, reply_inline, results, idempotent)| Script {
            inline,
            args,
            reduce: true,
            reply_inline,
            results,
            policy: CallPolicy { idempotent, ..CallPolicy::default() },
            ..Script::default()
        },
    )
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    vec(script(), 1..8).prop_map(|mut scripts| {
        (0..).zip(&mut scripts).for_each(|(number, script)| script.number = number);
        scripts
    })
}

/// A scripted responder's record of a call.
#[derive(Debug, Default)]
struct Known {
    sends: u32,
    executions: u32,
    last: Option<TransportError>,
    replied: bool,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..ProptestConfig::default() })]

    /// Against a responder with random refusals, a call is executed at most once unless it is idempotent. It is sent at
    /// most four times, each time with a new XID. It finishes once, with a result that the responder's reactions
    /// explain.
    #[test]
    fn any_responder(
        scripts in scripts(),
        moves in moves(),
        order in vec(any::<prop::sample::Index>(), 1..40),
        cancelled in proptest::option::of((0usize..8, 0usize..20)),
    ) {
        let mut facing = Facing::new(Role::Client, EngineConfig::default());
        let mut ids = Vec::new();
        for script in &scripts {
            let call = script.outgoing(&facing.engine.conn, facing.now);
            ids.push(facing.engine.conn.start_call(call));
        }
        facing.run();
        let mut known: HashMap<u32, Known> = HashMap::new();
        let (mut xids, mut started, mut waiting) = (HashMap::new(), HashSet::new(), Vec::new());
        let (mut moves, mut order) = (moves.into_iter(), order.iter().cycle());
        for turn in 0.. {
            while let Some(words) = facing.next() {
                // The first message of a sequence has the number of the call; the last one completes it.
                let (xid, lists) = (words[0], lists_len(&words[5..]));
                if started.insert(xid) {
                    prop_assert!(xids.insert(xid, words[5 + lists + 2]).is_none(), "XID used twice");
                    known.entry(xids[&xid]).or_default().sends += 1;
                }
                if words[4] & MORE == 0 {
                    started.remove(&xid);
                    waiting.push(xid);
                }
            }
            if let Some((n, _)) = cancelled.filter(|&(n, at)| at == turn && n < ids.len()) {
                facing.engine.conn.cancel_call(ids[n], facing.now);
            }
            if waiting.is_empty() {
                break;
            }
            let xid = waiting.swap_remove(order.next().unwrap().index(waiting.len()));
            let call = known.get_mut(&xids[&xid]).unwrap();
            match moves.next().unwrap_or(Move::Reply) {
                Move::Reply => {
                    call.executions += 1;
                    call.replied = true;
                    facing.send(&plain(xid, CREDIT, 1, xids[&xid]));
                }
                Move::Refuse(refusal) => {
                    call.executions += u32::from(executed(refusal));
                    call.last = Some(refusal);
                    facing.send(&[&[xid, 2, CREDIT, ERROR, RESPONSE], &words(refusal)[..]].concat());
                }
                Move::Leave => {
                    use rpcrdma_proto::provider::QueuePair as _;
                    facing.raw.qp.disconnect();
                    facing.run();
                    waiting.clear();
                }
            }
        }
        facing.now += EngineConfig::default().abandoned_call_timeout;
        facing.run();
        let mut finished = HashMap::new();
        for event in facing.engine.events.drain(..) {
            if let EngineEvent::CallFinished { id, result } = event {
                prop_assert!(finished.insert(id, result).is_none(), "call finished twice");
            }
        }
        let fresh = Known::default();
        for (script, id) in scripts.iter().zip(&ids) {
            let call = known.get(&script.number).unwrap_or(&fresh);
            prop_assert!(call.sends <= MAX_SENDS);
            prop_assert!(call.executions <= 1 || script.policy.idempotent, "executed {} times", call.executions);
            match finished.remove(id).expect("call not finished") {
                Ok(_) => prop_assert!(call.replied),
                // §7.1.2: after a call was refused for its header type, that type is not sent again.
                Err(CallFailure::Refused(TransportError::HeaderType)) => {
                    prop_assert!(known.values().any(|call| call.last == Some(TransportError::HeaderType)));
                }
                Err(CallFailure::Refused(last)) => prop_assert!(Some(last) == call.last || executed(last) && call.executions > 0),
                Err(CallFailure::VersionMismatch { low, high }) => {
                    prop_assert_eq!(Some(TransportError::Version { low, high }), call.last);
                }
                // With the limits that the responder named, the call fits no more.
                Err(CallFailure::TooLarge(_)) => prop_assert!(known.values().any(|call| call.last.is_some_and(can_be_met))),
                Err(CallFailure::Cancelled { .. }) => prop_assert_eq!(cancelled.map(|(n, _)| ids[n]), Some(*id)),
                Err(CallFailure::Closed { sent, .. }) => prop_assert!(sent || call.executions == 0),
                Err(failure) => prop_assert!(false, "{failure}"),
            }
        }
        prop_assert_eq!((facing.network.registered(SimEnd::A), facing.network.registered(SimEnd::B)), (0, 0));
        prop_assert_eq!(facing.engine.conn.counters().exposed_regions, 0);
    }

    /// Between two engines with wrong reply bounds and low limits for chunks and segments, a call is executed at most
    /// once unless it is idempotent. This holds in both directions, even if the connection is lost.
    #[test]
    fn engines_with_wrong_reply_bounds(
        calls in (scripts(), scripts()),
        limits in (1u32..4, 3u32..9, 1500u32..6000),
        order in any::<u64>(),
        lost in proptest::option::of(0u64..300),
    ) {
        let mut config = EngineConfig::default();
        (config.max_chunks, config.max_segments, config.max_segment_len) = limits;
        // The announced sizes are as large as the bindings say; the results may be larger.
        let mut sim = stepped();
        sim.faults.extend(lost.map(SimFault::Disconnect));
        let mut duo = PeerPair::new(config.clone(), config, sim);
        let mut scripts = [HashMap::new(), HashMap::new()];
        for (end, calls) in [calls.0, calls.1].into_iter().enumerate() {
            for script in calls {
                scripts[end].insert(script.number, script.clone());
                duo.call(end, script);
            }
        }
        let mut state = order | 1;
        duo.run_shuffled(|n| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % n
        });
        duo.advance(Duration::from_secs(10));
        duo.run();
        for end in [CLIENT, SERVER] {
            prop_assert!(duo.sides[end].calls.is_empty(), "calls never finished: {:?}", duo.sides[end].calls);
            for (number, result) in std::mem::take(&mut duo.sides[end].outcomes) {
                let script = &scripts[end][&number];
                let served = duo.sides[1 - end].served.get(&number).copied().unwrap_or(0);
                let most = if script.policy.idempotent { MAX_SENDS } else { 1 };
                prop_assert!(served <= most);
                match result {
                    Ok(_) => prop_assert!(served >= 1),
                    Err(CallFailure::Refused(refusal @ TransportError::WriteResource { .. })) => {
                        let short = |&(len, max): &(usize, u64)| len as u64 > max;
                        prop_assert!(script.results.iter().any(short) && served >= 1, "{refusal}");
                        prop_assert!(!script.policy.idempotent || served > 1);
                    }
                    Err(CallFailure::TooLarge(_)) => prop_assert!(served == 0 || script.policy.idempotent),
                    Err(CallFailure::Closed { sent, .. }) => prop_assert!(lost.is_some() && (sent || served == 0)),
                    Err(failure) => prop_assert!(false, "{failure}"),
                }
            }
            prop_assert_eq!(duo.sides[end].replies_sent, duo.sides[end].arrived);
        }
        duo.assert_nothing_exposed();
    }
}

/// Returns the number of words of `rdma_inv_handle` and the chunk lists.
fn lists_len(words: &[u32]) -> usize {
    let mut at = 1;
    while words[at] == 1 {
        at += 6;
    }
    at += 1;
    while words[at] == 1 {
        at += 2 + 4 * words[at + 1] as usize;
    }
    at += 1;
    if words[at] == 1 { at + 2 + 4 * words[at + 1] as usize } else { at + 1 }
}

/// RFC 2203 §5.3.3.1: a sequence number is valid for one call. So a sealed call is not sent again, even if it is
/// idempotent or was not executed.
#[test]
fn sealed_calls_are_sent_once() {
    let mut facing = Facing::new(Role::Client, EngineConfig::default());
    for n in 0..2 {
        let mut message = message_buf(&BufferPool::default(), 64);
        CallHeader::new(0, 7, 8, 9).encode(&mut FlatSink::new(&mut message)).unwrap();
        let xid = 0x5000 + n;
        facing.engine.conn.start_call(OutgoingCall {
            message,
            reduced: Default::default(),
            reply: ReplyResources { max_inline: 9000, ..ReplyResources::default() },
            deadline: None,
            policy: CallPolicy { idempotent: true, sealed: true, xid: Some(xid), ..CallPolicy::default() },
        });
        facing.run();
        let call = facing.next().unwrap();
        assert_eq!((call[0], &call[9..]), (xid, &[xid, 0, 2, 7, 8, 9, 0, 0, 0, 0][..]));
        let refusal = [TransportError::Segments { max: 2 }, TransportError::ReplyResource { needed: 9000 }][n as usize];
        facing.send(&[&[call[0], 2, CREDIT, ERROR, RESPONSE], &words(refusal)[..]].concat());
        let failure = facing.finished().unwrap().unwrap_err();
        assert!(matches!(failure, CallFailure::Refused(refused) if refused == refusal), "{failure}");
        assert!(facing.next().is_none());
    }
    assert_eq!(facing.engine.conn.counters().calls_resent, 0);
}
