//! Runs the fuzz targets of connections without a fuzzer: on their seeds, and on some other plans. Inputs that failed
//! once become seeds.
#![allow(clippy::unwrap_used, missing_docs)]

use std::path::Path;

use rpcrdma_hostile::{
    Plan, Role, Target, plan,
    plan::{Exchange, Step},
    run,
};

#[test]
fn seeds() {
    for (name, target) in Target::ALL {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(name);
        let mut count = 0;
        for seed in std::fs::read_dir(seeds).unwrap() {
            let path = seed.unwrap().path();
            eprintln!("{}", path.display());
            run(target, &plan(&std::fs::read(path).unwrap()));
            count += 1;
        }
        assert!(count > 0, "{name} has no seeds");
    }
}

/// A plan without mistakes leads to replies of a server, and to calls of a client that succeed. A peer that cannot
/// speak the protocol would test little.
#[test]
fn correct_peers_are_understood() {
    for (name, target) in Target::ALL {
        let mut steps = Vec::new();
        // Without calls that wait or call back.
        for number in 0..5 {
            let exchange = Exchange { number, len: 500, ..Exchange::default() };
            match target.role {
                Role::Server => {
                    steps.extend([0, 1, 2, 3, 16, 32].map(|shape| Step::Call(Exchange { shape, ..exchange })))
                }
                Role::Client => {
                    // Four calls are in progress at the beginning.
                    steps.push(Step::Begin(Exchange { amount: 1, ..exchange }));
                    steps.extend([Exchange { number: 0, ..exchange }; 2].map(Step::Answer));
                }
            }
        }
        let summary = run(target, &Plan { steps: steps.into_iter().take(47).collect(), ..Plan::default() });
        eprintln!("{name}: {summary:?}");
        match target.role {
            Role::Server => assert!(summary.received >= 30, "{name}: {summary:?}"),
            Role::Client => assert_eq!(summary.calls, (9, 0), "{name}: {summary:?}"),
        }
    }
}

/// An empty input is a plan without steps, which does not disturb a healthy client.
#[test]
fn idle_peers_do_not_disturb() {
    for (name, target) in Target::ALL {
        let summary = run(target, &plan(&[]));
        assert!(summary.healthy >= 8, "{name}: {summary:?}");
    }
}

/// Plans of arbitrary bytes do not disturb a healthy client. The bytes are the same in each run.
#[test]
fn arbitrary_peers_do_not_disturb() {
    for (name, target) in Target::ALL {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut byte = || {
            // Xorshift of 64 bits.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        for number in 0..12 {
            // The set-up of every other plan has no faults.
            let mut bytes = vec![0; 2 * (number % 2)];
            bytes.extend((0..40 + number * 30).map(|_| byte()));
            eprintln!("{name}: plan {number}");
            run(target, &plan(&bytes));
        }
    }
}

/// The server sends at least one message to a peer whose call has a Read chunk with an end that overflows.
#[test]
fn overflowing_segments_are_answered() {
    for wire in ["v1", "v2", "iwarp"] {
        let target = Target::named(&format!("connection_server_{wire}")).unwrap();
        let exchange = Exchange { number: 1, len: 500, shape: 1, faults: 1 << 4, ..Exchange::default() };
        let summary = run(target, &Plan { steps: vec![Step::Call(exchange)], ..Plan::default() });
        assert!(summary.received > 0, "{wire}: {summary:?}");
    }
}
