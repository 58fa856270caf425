//! Runs of the simulation in the usual tests: a few seeds, the seeds that once failed, and the checks of a run.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{collections::BTreeMap, time::Duration};

use rpcrdma_simulation::{
    disk::Applied,
    fault::{Fault, FaultKind},
    files::{FileCall, FileReply},
    history::{CallOutcome, Excuse, FailureCause, Record, check},
    network::Direction,
    registers::check_histories,
    run::run,
    scenario::{CallKind, Operation, Scenario},
};

/// Seeds whose runs once had violations.
const FAILED_BEFORE: [u64; 10] =
    [50287, 1_002_685, 1_007_645, 1_032_872, 1_040_341, 1_040_385, 1_046_487, 1_047_305, 1_056_228, 1_077_416];

#[test]
fn seeds_hold_what_is_promised() {
    for seed in (0..60).chain(FAILED_BEFORE) {
        let report = run(&Scenario::of(seed), false).unwrap();
        assert!(report.wrong.is_empty(), "seed {seed}: {:#?}", report.wrong);
    }
}

/// Runs with the same seed are equal, also in another thread and after other runs. Runs with consecutive seeds differ.
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

/// The check of a history accepts a correct call, and finds wrong effects, results, errors and durations.
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
    ] {
        let found = wrong(&records, &applied);
        assert!(found.iter().any(|found| found.contains(what)), "{what}: {found:?}");
    }
}

/// The check reports an object whose results no order of the calls explains. Servers that share a disk have the same
/// objects.
#[test]
fn the_checks_find_histories_without_an_order() {
    let wrong = |records: &[Record], shares_disk| check_histories(records, shares_disk).wrong;
    let done = |number, call, times, value| record(number, call, times, CallOutcome::Done(value));
    let later = done(2, VALUE, (11, 12), 4);
    let add = done(1, ADD, (0, 10), 5);
    assert!(wrong(&[add.clone(), later.clone()], false)[0].contains("Counter(1, Some(1))"));
    // Calls at the same time may come in any order.
    assert_eq!(wrong(&[add.clone(), done(2, VALUE, (10, 12), 0)], false), [""; 0]);
    // Each server has its own disk, or all have the same.
    let elsewhere = Record { server: Some(2), ..done(2, VALUE, (11, 12), 0) };
    assert_eq!(wrong(&[add.clone(), elsewhere.clone()], false), [""; 0]);
    assert_eq!(wrong(&[add.clone(), elsewhere], true).len(), 1);
    // An addition without a reply may have happened, unless its error says that it has not.
    let pending = |is_retry_safe| record(1, ADD, (0, 10), failed(is_retry_safe));
    let value = |value| done(2, VALUE, (11, 12), value);
    for (records, count) in [
        ([pending(false), value(0)], 0),
        ([pending(false), value(5)], 0),
        ([pending(false), value(4)], 1),
        ([pending(true), value(0)], 0),
        ([pending(true), value(5)], 1),
    ] {
        assert_eq!(wrong(&records, true).len(), count, "{records:?}");
    }
    let (put, get) = (CallKind::Put { key: 1, len: 1 }, CallKind::Get { key: 1 });
    assert_eq!(wrong(&[done(3, put, (0, 1), 3), done(4, get, (2, 3), 0)], false).len(), 1);
    // A lower version is not stored.
    let puts = [done(3, put, (0, 1), 3), done(2, put, (2, 3), 2)];
    assert_eq!(wrong(&[&puts[..], &[done(4, get, (4, 5), 3)]].concat(), false), [""; 0]);
    let file = |number, call, reply| {
        let call = CallKind::File { directory: 1, block_len: 8, call };
        record(number, call, (number, number), CallOutcome::FileDone(reply))
    };
    let files = [
        file(1, FileCall::Create { name: 1, file: 1 }, FileReply::Done),
        file(2, FileCall::Write { name: 1, file: 1, block: 0, number: 2 }, FileReply::Done),
        file(3, FileCall::Rename { from: 1, to: 2 }, FileReply::Done),
        file(4, FileCall::Read { name: 1, file: 1, block: 0 }, FileReply::Block(2)),
        file(5, FileCall::List, FileReply::Names(vec![(2, 1)])),
        file(6, FileCall::Remove { name: 1 }, FileReply::Missing),
        file(7, FileCall::Remove { name: 2 }, FileReply::Done),
        file(8, FileCall::Read { name: 1, file: 1, block: 0 }, FileReply::Stale),
    ];
    assert_eq!(wrong(&files, true), [""; 0]);
    // Each call but the last is needed to explain the results.
    for missing in 0..files.len() - 2 {
        let rest: Vec<_> =
            files.iter().enumerate().filter(|(index, _)| *index != missing).map(|(_, file)| file.clone()).collect();
        let is_needed = !matches!(
            rest_call(&files[missing]),
            FileCall::List | FileCall::Read { .. } | FileCall::Remove { name: 1 }
        );
        assert_eq!(!wrong(&rest, true).is_empty(), is_needed, "without {:?}", files[missing]);
    }
}

fn rest_call(record: &Record) -> FileCall {
    match record.operation.call {
        CallKind::File { call, .. } => call,
        _ => FileCall::List,
    }
}

/// Returns a call that ended at its deadline of 100 ms.
fn failed_at_deadline(outcome: CallOutcome) -> Record {
    let mut record = record(2, VALUE, (100, 200), outcome);
    record.operation.timeout = 100;
    record
}

/// A fault explains the failure of a call if it affects the call's server and client, overlaps with the call in time,
/// and can cause the error. The kill of a server does not explain that a call gives up before its deadline although its
/// client may retry.
#[test]
fn faults_explain_failures() {
    let excuse = |kind, server, (from, until)| {
        let [from, until] = [from, until].map(Duration::from_millis);
        Excuse { fault: fault(kind, server), from, until }
    };
    let calls = [failed_at_deadline(failed(false))];
    let explains = |excuse| check(&calls, &[excuse], &BTreeMap::new(), &[1], &Scenario::of(0)).is_empty();
    assert!(explains(excuse(FaultKind::Kill, 1, (0, 100))) && explains(excuse(FaultKind::Kill, 1, (200, 300))));
    assert!(!explains(excuse(FaultKind::Kill, 1, (0, 99))) && !explains(excuse(FaultKind::Kill, 1, (201, 300))));
    assert!(!explains(excuse(FaultKind::Kill, 2, (0, 300))) && explains(excuse(FaultKind::ClockJump, 2, (0, 300))));
    // A fault has its own errors.
    let with = |cause| {
        let outcome = CallOutcome::Failed { error: "failed".into(), is_retry_safe: false, cause };
        [failed_at_deadline(outcome)]
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
    // Not even a fault explains that a call gives up before its deadline, unless its client does not repeat calls.
    let excuses = [excuse(FaultKind::Kill, 1, (0, 300))];
    let mut scenario = Scenario::of(0);
    let early = [Record { client: scenario.clients[0].host, ..record(2, VALUE, (100, 200), failed(false)) }];
    (scenario.clients[0].backoff, scenario.clients[0].retries) = ((1, 10), 1);
    let wrong = check(&early, &excuses, &BTreeMap::new(), &[1], &scenario);
    assert!(wrong.iter().any(|wrong| wrong.contains("gave up after 100ms")), "{wrong:?}");
    scenario.clients[0].retries = 0;
    assert_eq!(check(&early, &excuses, &BTreeMap::new(), &[1], &scenario), [""; 0]);
}
