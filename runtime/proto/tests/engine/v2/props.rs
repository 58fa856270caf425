//! Property tests of pairs of engines, with random configurations, credits, sizes, formats, directions, orders and
//! faults, and of one version 2 engine with random messages.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use proptest::{collection::vec, prelude::*};
use rpcrdma_proto::{
    engine::{CallFailure, CallPolicy, CloseReason, EngineConfig, ReverseDirection, Role, TransportError, Versions},
    provider::sim::{SimConfig, SimEnd, SimEndConfig, SimFault},
};

use super::{
    peer_pair::{CLIENT, PeerPair, SERVER},
    scripted::{Facing, connprop},
};
use crate::support::{Pair, Script, take_call};

fn engine_config() -> impl Strategy<Value = EngineConfig> {
    let sizes = prop_oneof![Just(1024u32), Just(2048), Just(4096), Just(9000)];
    let segment = prop_oneof![1500u32..6000, Just(1 << 30)];
    let level = prop_oneof![Just(ReverseDirection::Continued), Just(ReverseDirection::General)];
    let limits = (prop_oneof![Just(2u32), Just(16)], prop_oneof![Just(6u32), Just(256)]);
    let chunks = (segment, prop_oneof![Just(0u32), Just(5000), Just(65_536)], 0usize..3000, limits);
    (1u32..8, 1u32..4, sizes.clone(), sizes, chunks, level).prop_map(
        |(credits, reverse, send_size, receive_size, (segment, continued, min_reduce, limits), level)| {
            let mut config = EngineConfig::default();
            (config.credits, config.reverse_credits) = (credits, reverse);
            (config.send_size, config.receive_size) = (send_size, receive_size);
            (config.max_segment_len, config.max_continued, config.min_reduce) = (segment, continued, min_reduce);
            (config.max_chunks, config.max_segments) = limits;
            config.reverse_direction = level;
            config
        },
    )
}

fn end_config() -> impl Strategy<Value = SimEndConfig> {
    (1u32..4, prop_oneof![1000u32..5000, Just(u32::MAX)], any::<bool>()).prop_map(
        |(max_reads, max_transfer, remote_invalidation)| {
            let mut end = SimEndConfig::default();
            end.max_reads = max_reads;
            end.max_transfer = max_transfer;
            end.remote_invalidation = remote_invalidation;
            end
        },
    )
}

fn sim_config() -> impl Strategy<Value = SimConfig> {
    (end_config(), end_config(), any::<u64>()).prop_map(|(a, b, seed)| {
        let mut sim = SimConfig::default();
        (sim.seed, sim.stepped, sim.ends) = (seed, true, [a, b]);
        sim
    })
}

/// Generates lengths of at most `max` bytes. Many of them are close to 0, or to 1024 or 4096 bytes.
fn len(max: usize) -> impl Strategy<Value = usize> {
    prop_oneof![0..8usize, 900..1100usize, 3900..4200usize, 0..max].prop_map(move |len| len.min(max))
}

fn script() -> impl Strategy<Value = Script> {
    let results = vec((len(9000), 0u64..2000), 0..3);
    (len(30_000), vec(len(9000), 0..4), any::<bool>(), len(30_000), results, any::<bool>()).prop_map(
        |(inline, args, reduce, reply_inline, results, protected)| Script {
            inline,
            args,
            reduce,
            reply_inline,
            results: results.into_iter().map(|(len, more)| (len, len as u64 + more)).collect(),
            policy: CallPolicy { protected, ..CallPolicy::default() },
            ..Script::default()
        },
    )
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    vec(script(), 0..8).prop_map(|mut scripts| {
        (0..).zip(&mut scripts).for_each(|(number, script)| script.number = number);
        scripts
    })
}

fn end() -> impl Strategy<Value = SimEnd> {
    prop_oneof![Just(SimEnd::A), Just(SimEnd::B)]
}

/// Generates plausible values of a header field.
fn header_word() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..8, 2 => Just(0x1001), 2 => (0u32..20).prop_map(|n| 4 * n), 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

/// Returns a function that returns pseudorandom numbers below its argument. The sequence depends only on `seed`.
fn chooser(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % n
    }
}

fn exactly_once(duo: &mut PeerPair, calls: [Vec<Script>; 2], order: u64) -> Result<(), TestCaseError> {
    for (end, scripts) in calls.into_iter().enumerate() {
        for script in scripts {
            duo.call(end, script);
        }
    }
    duo.run_shuffled(chooser(order));
    for end in [CLIENT, SERVER] {
        prop_assert!(duo.sides[end].calls.is_empty(), "calls of side {end} never finished: {:?}", duo.sides[end].calls);
        let outcomes = std::mem::take(&mut duo.sides[end].outcomes);
        for (number, result) in outcomes {
            let served = duo.sides[1 - end].served.get(&number).copied().unwrap_or(0);
            match result {
                Ok(_) => prop_assert_eq!(served, 1),
                Err(CallFailure::TooLarge(_) | CallFailure::ReverseTooLong { .. }) => prop_assert_eq!(served, 0),
                Err(failure) => prop_assert!(false, "{failure}"),
            }
        }
        prop_assert_eq!(duo.sides[end].replies_sent, duo.sides[end].arrived);
    }
    duo.assert_nothing_exposed();
    Ok(())
}

proptest! {
    // Half of PROPTEST_CASES, or of 256.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..ProptestConfig::default() })]

    /// Every call of both peers is executed exactly once, unless it is too large to be sent. Calls and replies arrive
    /// unchanged, and the peers do not deadlock.
    #[test]
    fn both_directions_exactly_once(
        client in engine_config(),
        server in engine_config(),
        sim in sim_config(),
        calls in (scripts(), scripts()),
        order in any::<u64>(),
    ) {
        let mut duo = PeerPair::new(client, server, sim);
        exactly_once(&mut duo, [calls.0, calls.1], order)?;
        for side in &duo.sides {
            let counters = side.peer.conn.counters();
            prop_assert_eq!((counters.calls_queued, counters.calls_abandoned, counters.messages_discarded), (0, 0, 0));
        }
        // The connection still has all of its credits and Receives.
        for end in [CLIENT, SERVER] {
            let script = Script { number: 1000, inline: 20_000, reply_inline: 20_000, ..Script::default() };
            duo.one(end, script).expect("call failed");
        }
    }

    /// If the peers have a version in common, every call is executed exactly once, unless it is too large to be sent.
    /// Otherwise, every call fails without being executed.
    #[test]
    fn any_version_exactly_once(
        configs in (engine_config(), engine_config()),
        sim in sim_config(),
        versions in (0usize..3, 0usize..3),
        calls in scripts(),
        order in any::<u64>(),
    ) {
        let selections = [Versions::V1, Versions::Both, Versions::V2];
        let (mut client, mut server) = configs;
        (client.versions, server.versions) = (selections[versions.0], selections[versions.1]);
        // Version 1 does not negotiate these limits, so both peers need those of Linux.
        (client.max_segments, server.max_segments) = (256, 256);
        (client.max_chunks, server.max_chunks) = (16, 16);
        let common = [(0, 2), (2, 0)].iter().all(|&pair| pair != versions);
        let mut duo = PeerPair::with(client, server, sim);
        let mut calls = calls;
        // Version 1 has no protected calls.
        calls.iter_mut().for_each(|script| script.policy = CallPolicy::default());
        if common {
            exactly_once(&mut duo, [calls, Vec::new()], order)?;
            prop_assert_eq!(duo.sides[CLIENT].peer.conn.close_reason(), None);
        } else {
            let count = calls.len();
            calls.into_iter().for_each(|script| { duo.call(CLIENT, script); });
            duo.run_shuffled(chooser(order));
            prop_assert_eq!(duo.sides[SERVER].arrived, 0);
            prop_assert_eq!(duo.sides[CLIENT].outcomes.values().filter(|result| result.is_err()).count(), count);
        }
        duo.assert_nothing_exposed();
    }

    /// Calls that are cancelled, time out, or lose their connection finish once with the right error, and no memory
    /// stays exposed.
    #[test]
    fn faults_and_cancellation(
        client in engine_config(),
        server in engine_config(),
        sim in sim_config(),
        calls in (scripts(), scripts()),
        order in any::<u64>(),
        cancel in vec((0usize..2, 0usize..8, 0u64..300), 0..4),
        deadline in proptest::option::of((0u32..8, 0u64..5)),
        lost in proptest::option::of(0u64..400),
        refused in vec((end(), 0u64..12), 0..3),
        close_at in proptest::option::of((0usize..2, 0u64..400)),
    ) {
        let mut sim = sim;
        sim.faults.extend(lost.map(SimFault::Disconnect));
        sim.faults.extend(refused.iter().map(|&(end, nth)| SimFault::RefuseRegistration { end, nth }));
        let mut duo = PeerPair::new(client, server, sim);
        let mut ids = [Vec::new(), Vec::new()];
        for (end, scripts) in [calls.0, calls.1].into_iter().enumerate() {
            for mut script in scripts {
                if let Some((number, after)) = deadline && number == script.number {
                    script.deadline = Some(Duration::from_secs(after));
                }
                ids[end].push(duo.call(end, script));
            }
        }
        let mut choose = chooser(order);
        for turn in 0..400u64 {
            for &(end, number, at) in &cancel {
                if at == turn && let Some(&id) = ids[end].get(number) {
                    let now = duo.now;
                    duo.sides[end].peer.conn.cancel_call(id, now);
                }
            }
            if let Some((end, at)) = close_at && at == turn {
                duo.sides[end].peer.conn.close();
            }
            let end = choose(2);
            match choose(4) {
                0 => { let now = duo.now; duo.sides[end].peer.turn(now); }
                1 => { duo.take_events(end); }
                2 => { let n = choose(4); duo.answer(end, n); }
                _ => { duo.network.step(); }
            }
            if turn % 50 == 0 {
                duo.advance(Duration::from_secs(1));
            }
        }
        duo.run_shuffled(chooser(order));
        duo.advance(Duration::from_secs(10));
        duo.run();
        // Let the grace period of abandoned calls pass.
        duo.advance(EngineConfig::default().abandoned_call_timeout);
        duo.run();
        for end in [CLIENT, SERVER] {
            let outcomes = std::mem::take(&mut duo.sides[end].outcomes);
            for (number, result) in outcomes {
                let served = duo.sides[1 - end].served.get(&number).copied().unwrap_or(0);
                prop_assert!(served <= 1);
                match result {
                    Ok(_) => prop_assert_eq!(served, 1),
                    Err(CallFailure::Closed { sent, .. } | CallFailure::Cancelled { sent }
                        | CallFailure::DeadlineExceeded { sent }) => prop_assert!(sent || served == 0),
                    Err(CallFailure::Registration(_)) => prop_assert!(!refused.is_empty() && served == 0),
                    Err(CallFailure::Refused(TransportError::System)) => prop_assert!(!refused.is_empty() && served == 0),
                    Err(CallFailure::TooLarge(_)) => prop_assert_eq!(served, 0),
                    Err(failure) => prop_assert!(false, "{failure}"),
                }
            }
            prop_assert!(duo.sides[end].calls.is_empty(), "calls never finished: {:?}", duo.sides[end].calls.values());
            prop_assert_eq!(duo.sides[end].replies_sent, duo.sides[end].arrived);
        }
        duo.assert_nothing_exposed();
        if Pair::closed(&duo.sides[CLIENT].peer.events).is_some() {
            prop_assert!(Pair::closed(&duo.sides[SERVER].peer.events).is_some());
        } else if lost.is_none() {
            // The connection is open and serves further calls.
            let script = Script { number: 1000, deadline: Some(Duration::from_secs(1)), ..Script::default() };
            prop_assert!(duo.one(CLIENT, script).is_ok());
        }
    }

    /// Corrupted messages never make an engine panic, leave memory exposed, or lose a call.
    #[test]
    fn corrupted_messages(
        client in engine_config(),
        server in engine_config(),
        sim in sim_config(),
        calls in (scripts(), scripts()),
        order in any::<u64>(),
        garbled in vec((end(), 0u64..10, 0usize..160, 1u8..), 0..6),
        truncated in vec((end(), 0u64..10, 0usize..120), 0..3),
    ) {
        let mut sim = sim;
        sim.faults.extend(garbled.into_iter().map(|(end, nth, at, mask)| SimFault::Garble { end, nth, at, mask }));
        sim.faults.extend(truncated.into_iter().map(|(end, nth, len)| SimFault::Truncate { end, nth, len }));
        let mut duo = PeerPair::new(client, server, sim);
        duo.hostile = true;
        for (end, scripts) in [calls.0, calls.1].into_iter().enumerate() {
            for mut script in scripts {
                script.deadline = Some(Duration::from_secs(5));
                duo.call(end, script);
            }
        }
        duo.run_shuffled(chooser(order));
        for _ in 0..4 {
            duo.advance(Duration::from_secs(6));
            duo.run_shuffled(chooser(order));
        }
        duo.sides[CLIENT].peer.conn.close();
        duo.run();
        for end in [CLIENT, SERVER] {
            prop_assert!(duo.sides[end].calls.is_empty(), "calls never finished: {:?}", duo.sides[end].calls.values());
            prop_assert!(Pair::closed(&duo.sides[end].peer.events).is_some());
        }
        duo.assert_nothing_exposed();
    }

    /// Random messages of plausible words never make an engine panic, leave memory exposed, or run out of Receives.
    #[test]
    fn random_messages(
        server in any::<bool>(),
        agreed in any::<bool>(),
        messages in vec((vec(header_word(), 0..40), 0usize..4), 1..30),
        fixed in any::<bool>(),
    ) {
        let role = if server { Role::Server } else { Role::Client };
        let mut facing = Facing::silent(role, EngineConfig::default());
        if agreed {
            facing.send(&connprop(7, 0, &[(5, &[3])]));
        }
        facing.call(&Script { results: vec![(0, 5000)], reply_inline: 70_000, ..Script::default() });
        for (mut words, cut) in messages {
            if fixed {
                let credit = 8 << 16 | 8;
                words.splice(..words.len().min(5), [0x1001, 2, credit, (cut % 2) as u32, (cut / 2) as u32]);
            }
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            bytes.truncate(bytes.len().saturating_sub(cut));
            facing.raw.send(&[], &bytes);
            facing.run();
            while let Some(call) = take_call(&mut facing.engine) {
                facing.engine.conn.reply_error(call.token, rpcrdma_proto::engine::TransportError::BadXdr);
            }
            facing.run();
            if facing.raw.disconnected() {
                break;
            }
            let end = if server { SimEnd::B } else { SimEnd::A };
            prop_assert!(facing.network.receives(end) >= 2);
        }
        facing.engine.conn.close();
        facing.run();
        let closed: Option<&CloseReason> = Pair::closed(&facing.engine.events);
        prop_assert!(closed.is_some());
        prop_assert_eq!((facing.network.registered(SimEnd::A), facing.network.registered(SimEnd::B)), (0, 0));
    }
}
