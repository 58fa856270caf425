//! Properties of a pair of version 1 engines with random sizes, thresholds, chunks, credits, orders and faults.

use rpcrdma_proto::engine::Engine as _;
use std::time::Duration;

use crate::support::{Pair, PairConfig, Script, ScriptedPeer, take_call};
use proptest::{collection::vec, prelude::*};
use rpcrdma_proto::{
    engine::{CallFailure, EngineConfig, Role},
    provider::sim::{SimConfig, SimEnd, SimEndConfig, SimFault},
};

fn engine_config() -> impl Strategy<Value = EngineConfig> {
    let sizes = prop_oneof![Just(1024u32), Just(2048), Just(4096), Just(5000)];
    let segment = prop_oneof![1500u32..6000, Just(1 << 30)];
    (1u32..8, sizes.clone(), sizes, segment, prop_oneof![Just(100_000u64), Just(1 << 28)], 0usize..3000).prop_map(
        |(credits, send_size, receive_size, max_segment_len, max_fetched, min_reduce)| {
            let mut config = EngineConfig::default();
            config.credits = credits;
            config.send_size = send_size;
            config.receive_size = receive_size;
            config.max_segment_len = max_segment_len;
            config.max_fetched = max_fetched;
            config.min_reduce = min_reduce;
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

fn pair_config() -> impl Strategy<Value = PairConfig> {
    let ends = (end_config(), end_config());
    (engine_config(), engine_config(), ends, any::<u64>(), any::<[bool; 2]>()).prop_map(
        |(client, server, ends, seed, private_data)| {
            let mut sim = SimConfig::default();
            sim.seed = seed;
            sim.stepped = true;
            sim.ends = [ends.0, ends.1];
            PairConfig { client, server, sim, private_data }
        },
    )
}

/// Generates lengths of at most `max` bytes. Many of them are close to 0, or to 1024 or 4096 bytes.
fn len(max: usize) -> impl Strategy<Value = usize> {
    prop_oneof![0..8usize, 900..1100usize, 3900..4200usize, 0..max].prop_map(move |len| len.min(max))
}

fn script() -> impl Strategy<Value = Script> {
    let results = vec((len(9000), 0u64..2000), 0..3);
    (len(9000), vec(len(9000), 0..4), any::<bool>(), len(9000), results).prop_map(
        |(inline, args, reduce, reply_inline, results)| Script {
            inline,
            args,
            reduce,
            reply_inline,
            results: results.into_iter().map(|(len, more)| (len, len as u64 + more)).collect(),
            ..Script::default()
        },
    )
}

fn scripts() -> impl Strategy<Value = Vec<Script>> {
    vec(script(), 1..10).prop_map(|mut scripts| {
        (0..).zip(&mut scripts).for_each(|(number, script)| script.number = number);
        scripts
    })
}

fn end() -> impl Strategy<Value = SimEnd> {
    prop_oneof![Just(SimEnd::A), Just(SimEnd::B)]
}

/// Generates plausible values of a header field.
fn header_word() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0u32..6, 2 => Just(0x1000), 2 => (0u32..20).prop_map(|n| 4 * n), 1 => any::<u32>(), 1 => Just(u32::MAX)]
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

proptest! {
    // Half of PROPTEST_CASES, or of 256.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases / 2, ..ProptestConfig::default() })]

    /// Every call is executed exactly once, unless a header cannot hold its segments. Calls and replies arrive
    /// unchanged.
    #[test]
    fn exactly_once(config in pair_config(), scripts in scripts(), order in any::<u64>()) {
        let mut pair = Pair::new(config);
        let count = scripts.len();
        for script in scripts {
            pair.call(script);
        }
        pair.run_shuffled(chooser(order));
        for (number, result) in pair.outcomes() {
            match result {
                Ok(_) => prop_assert_eq!(pair.served.get(&number), Some(&1)),
                // The call has more segments than a header can hold.
                Err(CallFailure::TooLarge(_)) => prop_assert_eq!(pair.served.get(&number), None),
                Err(failure) => prop_assert!(false, "{failure}"),
            }
        }
        prop_assert!(pair.calls.is_empty(), "{} of {count} calls never finished", pair.calls.len());
        prop_assert_eq!(pair.replies_sent, pair.arrived);
        pair.assert_nothing_exposed();
        let counters = pair.client.conn.counters();
        prop_assert_eq!((counters.calls_queued, counters.calls_abandoned, counters.messages_discarded), (0, 0, 0));
        prop_assert_eq!(pair.server.conn.counters().messages_discarded, 0);
        // The connection still has all of its credits and Receives.
        pair.call(Script { number: 1000, ..Script::default() });
        pair.run();
        prop_assert!(pair.outcomes().remove(&1000).is_some_and(|result| result.is_ok()));
    }

    /// Calls that are cancelled, time out, or lose their connection finish once with the right error, and no memory
    /// stays exposed.
    #[test]
    fn faults_and_cancellation(
        config in pair_config(),
        scripts in scripts(),
        order in any::<u64>(),
        cancel in vec((0u32..10, 0u64..200), 0..4),
        deadline in proptest::option::of((0u32..10, 0u64..5)),
        lost in proptest::option::of(0u64..300),
        refused in vec((end(), 0u64..12), 0..3),
        close_at in proptest::option::of(0u64..300),
    ) {
        let mut config = config;
        config.sim.faults.extend(lost.map(SimFault::Disconnect));
        config.sim.faults.extend(refused.iter().map(|&(end, nth)| SimFault::RefuseRegistration { end, nth }));
        let mut pair = Pair::new(config);
        let mut ids = Vec::new();
        for mut script in scripts {
            if let Some((number, after)) = deadline && number == script.number {
                script.deadline = Some(Duration::from_secs(after));
            }
            ids.push(pair.call(script));
        }
        let mut choose = chooser(order);
        for turn in 0..300u64 {
            for &(number, at) in &cancel {
                if at == turn && let Some(&id) = ids.get(number as usize) {
                    pair.client.conn.cancel_call(id, pair.now);
                }
            }
            if close_at == Some(turn) {
                pair.client.conn.close();
            }
            match choose(5) {
                0 => { pair.client.turn(pair.now); }
                1 => { pair.server.turn(pair.now); }
                2 => { pair.take_calls(); }
                3 => { let n = choose(4); pair.answer(n); }
                _ => { pair.network.step(); }
            }
            if turn % 50 == 0 {
                pair.advance(Duration::from_secs(1));
            }
        }
        pair.run_shuffled(chooser(order));
        pair.advance(Duration::from_secs(10));
        pair.run();
        // Let the grace period of abandoned calls pass.
        pair.advance(EngineConfig::default().abandoned_call_timeout);
        pair.run();
        for (number, result) in pair.outcomes() {
            let served = pair.served.get(&number).copied().unwrap_or(0);
            prop_assert!(served <= 1);
            match result {
                Ok(_) => prop_assert_eq!(served, 1),
                Err(CallFailure::Closed { sent, .. } | CallFailure::Cancelled { sent }
                    | CallFailure::DeadlineExceeded { sent }) => prop_assert!(sent || served == 0),
                Err(CallFailure::Registration(_)) => prop_assert!(!refused.is_empty() && served == 0),
                Err(CallFailure::ChunkError) => prop_assert!(!refused.is_empty() && served == 0),
                Err(CallFailure::TooLarge(_)) => prop_assert_eq!(served, 0),
                Err(failure) => prop_assert!(false, "{failure}"),
            }
        }
        prop_assert!(pair.calls.is_empty(), "calls never finished: {:?}", pair.calls.values());
        prop_assert_eq!(pair.replies_sent, pair.arrived);
        pair.assert_nothing_exposed();
        if Pair::closed(&pair.client.events).is_none() {
            // The connection is open and serves further calls, unless the test disconnects it later.
            if lost.is_some() {
                return Ok(());
            }
            pair.call(Script { number: 1000, deadline: Some(Duration::from_secs(1)), ..Script::default() });
            pair.run();
            prop_assert!(pair.outcomes().remove(&1000).is_some_and(|result| result.is_ok()));
        } else {
            prop_assert!(Pair::closed(&pair.server.events).is_some());
        }
    }

    /// Corrupted messages never make an engine panic, leave memory exposed, or lose a call.
    #[test]
    fn corrupted_messages(
        config in pair_config(),
        scripts in scripts(),
        order in any::<u64>(),
        garbled in vec((end(), 0u64..6, 0usize..160, 1u8..), 0..6),
        truncated in vec((end(), 0u64..6, 0usize..120), 0..3),
    ) {
        let mut config = config;
        let faults = &mut config.sim.faults;
        faults.extend(garbled.into_iter().map(|(end, nth, at, mask)| SimFault::Garble { end, nth, at, mask }));
        faults.extend(truncated.into_iter().map(|(end, nth, len)| SimFault::Truncate { end, nth, len }));
        let mut pair = Pair::new(config);
        pair.hostile = true;
        for mut script in scripts {
            script.deadline = Some(Duration::from_secs(5));
            pair.call(script);
        }
        pair.run_shuffled(chooser(order));
        pair.advance(Duration::from_secs(10));
        pair.run();
        // Let the grace period of abandoned calls pass.
        pair.advance(EngineConfig::default().abandoned_call_timeout);
        pair.run();
        pair.outcomes();
        prop_assert!(pair.calls.is_empty());
        prop_assert_eq!(pair.replies_sent, pair.arrived);
        pair.assert_nothing_exposed();
    }

    /// Random messages of plausible words never make an engine panic, expose memory, or run out of Receives.
    #[test]
    fn random_messages(
        server in any::<bool>(),
        messages in vec((vec(header_word(), 0..40), 0usize..4), 1..30),
        fixed in any::<bool>(),
    ) {
        let role = if server { Role::Server } else { Role::Client };
        let mut facing = ScriptedPeer::new(role, EngineConfig::default(), true);
        let receives = |facing: &ScriptedPeer| facing.network.receives(if server { SimEnd::B } else { SimEnd::A });
        facing.call(&Script { results: vec![(0, 5000)], reply_inline: 5000, ..Script::default() });
        facing.run();
        let before = receives(&facing);
        for (mut words, cut) in messages {
            if fixed {
                words.splice(..words.len().min(4), [0x1000, 1, 8, (cut % 2) as u32]);
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
            prop_assert_eq!(receives(&facing), before);
        }
        facing.engine.conn.close();
        facing.run();
        prop_assert!(Pair::closed(&facing.engine.events).is_some());
        prop_assert_eq!((facing.network.registered(SimEnd::A), facing.network.registered(SimEnd::B)), (0, 0));
    }
}
