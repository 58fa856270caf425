//! Runs of the simulation in the usual tests: a few seeds, the seeds that once failed, and what a run is built on.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{collections::BTreeMap, time::Duration};

use rpcrdma_simulation::{
    fault::{Fault, FaultKind},
    history::{CallOutcome, Excuse, FailureCause, Record, check},
    network::Direction,
    run::run,
    scenario::{CallKind, Operation, Scenario},
    service::Applied,
};

/// Seeds whose runs once broke a promise.
const FAILED_BEFORE: [u64; 1] = [50287];

#[test]
fn seeds_hold_what_is_promised() {
    for seed in (0..60).chain(FAILED_BEFORE) {
        let report = run(&Scenario::of(seed), false).unwrap();
        assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    }
}

/// The same seed is the same run, also in another thread and after other runs. Other seeds are other runs.
#[test]
fn runs_repeat() {
    let digest = |seed| run(&Scenario::of(seed), false).unwrap().digest;
    let seeds = 100..120;
    let first: Vec<_> = seeds.clone().map(digest).collect();
    let again = std::thread::spawn(move || seeds.rev().map(digest).collect::<Vec<_>>()).join().unwrap();
    assert_eq!(first, again.into_iter().rev().collect::<Vec<_>>());
    assert!(first.windows(2).all(|pair| pair[0] != pair[1]), "{first:?}");
}

fn record(number: u64, call: CallKind, times: (u64, u64), outcome: CallOutcome) -> Record {
    let [start, end] = [times.0, times.1].map(Duration::from_millis);
    let operation = Operation { number, is_last: false, pause: 0, patience: 0, timeout: 1000, call };
    Record { client: 100, server: Some(1), operation, start, end, outcome }
}

const ADD: CallKind = CallKind::Add { counter: 1, amount: 5 };
const VALUE: CallKind = CallKind::Value { counter: 1 };

fn failed(is_retry_safe: bool) -> CallOutcome {
    CallOutcome::Failed { error: "failed".into(), is_retry_safe, cause: FailureCause::Unreachable }
}

fn fault(kind: FaultKind, server: u8) -> Fault {
    Fault { kind, at: 0, len: 0, client: 100, server, direction: Direction::ToServer, number: 50 }
}

/// Each check accepts what is right, and finds what is wrong.
#[test]
fn the_checks_find_violations() {
    let applied = |times| BTreeMap::from([(1, Applied { counter: 1, sum: 5, times })]);
    let done = |sum| record(1, ADD, (0, 10), CallOutcome::Done(sum));
    let wrong =
        |records: &[Record], applied: &BTreeMap<u64, Applied>| check(records, &[], applied, &[1], &Scenario::of(0));
    assert_eq!(wrong(&[done(5)], &applied(1)), [""; 0]);
    for (records, applied, what) in [
        (vec![done(5)], applied(2), "was executed 2 times"),
        (vec![done(5)], BTreeMap::new(), "was acknowledged, but not executed"),
        (vec![done(6)], applied(1), "returned 6"),
        (vec![record(1, ADD, (0, 10), failed(true))], applied(1), "its error says that a retry is safe"),
        (vec![record(1, ADD, (0, 10), failed(false))], applied(1), "no fault explains it"),
        (vec![record(2, VALUE, (0, 10), CallOutcome::InProgress)], applied(1), "never ended"),
        (vec![record(2, VALUE, (0, 10), CallOutcome::Wrong("bad data".into()))], applied(1), "bad data"),
        (vec![record(2, VALUE, (0, 1006), CallOutcome::Done(0))], applied(1), "after its deadline"),
        // Both have the same sum, or a later call sees less.
        (vec![done(5), record(2, VALUE, (11, 12), CallOutcome::Done(4))], applied(1), "returned 4"),
    ] {
        let found = wrong(&records, &applied);
        assert!(found.iter().any(|found| found.contains(what)), "{what}: {found:?}");
    }
    // Calls at the same time may come in any order.
    assert_eq!(wrong(&[done(5), record(2, VALUE, (10, 12), CallOutcome::Done(4))], &applied(1)), [""; 0]);
    let blob = |kind, number, times, version| record(number, kind, times, CallOutcome::Done(version));
    let (put, get) = (CallKind::Put { key: 1, len: 1 }, CallKind::Get { key: 1 });
    let lost = wrong(&[blob(put, 3, (0, 1), 3), blob(get, 4, (2, 3), 0)], &BTreeMap::new());
    assert!(lost.iter().any(|found| found.contains("returned 0")), "{lost:?}");
    assert_eq!(wrong(&[blob(get, 4, (0, 1), 3), blob(put, 2, (2, 3), 2)], &BTreeMap::new()), [""; 0]);
}

/// A fault explains the failure of a call of its server, or of its client, in its time.
#[test]
fn faults_explain_failures() {
    let excuse = |kind, server, (from, until)| {
        let [from, until] = [from, until].map(Duration::from_millis);
        Excuse { fault: fault(kind, server), from, until }
    };
    let calls = [record(2, VALUE, (100, 200), failed(false))];
    let explains = |excuse| check(&calls, &[excuse], &BTreeMap::new(), &[1], &Scenario::of(0)).is_empty();
    assert!(explains(excuse(FaultKind::Kill, 1, (0, 100))) && explains(excuse(FaultKind::Kill, 1, (200, 300))));
    assert!(!explains(excuse(FaultKind::Kill, 1, (0, 99))) && !explains(excuse(FaultKind::Kill, 1, (201, 300))));
    assert!(!explains(excuse(FaultKind::Kill, 2, (0, 300))) && explains(excuse(FaultKind::ClockJump, 2, (0, 300))));
    // A fault has its own errors.
    let with = |cause| {
        let outcome = CallOutcome::Failed { error: "failed".into(), is_retry_safe: false, cause };
        [record(2, VALUE, (100, 200), outcome)]
    };
    let explains = |kind, cause| {
        check(&with(cause), &[excuse(kind, 1, (0, 300))], &BTreeMap::new(), &[1], &Scenario::of(0)).is_empty()
    };
    assert!(explains(FaultKind::DiskFull, FailureCause::Unavailable));
    assert!(!explains(FaultKind::DiskFull, FailureCause::Unreachable));
    assert!(!explains(FaultKind::Kill, FailureCause::Unavailable) && !explains(FaultKind::Kill, FailureCause::Other));
    assert!(explains(FaultKind::NoRegistration, FailureCause::Registration));
    let other = [Record { client: 101, ..calls[0].clone() }];
    let explains =
        |kind| check(&other, &[excuse(kind, 1, (0, 300))], &BTreeMap::new(), &[1], &Scenario::of(0)).is_empty();
    assert!(explains(FaultKind::Kill) && !explains(FaultKind::Cut) && !explains(FaultKind::OneWay));
}
