//! Tests of the aggregation of the durations and sizes of calls, and of the identification of procedures.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::{
    DURATION_BUCKETS,
    calls::ServiceMetrics,
    procedures::{self, OTHER, Side},
    threads,
    values::{NewValues, ProcedureId, ReportedValues, Shard, Sizes},
};

const SIZES: Sizes = Sizes { request: 40, response: 24 };

/// Returns `count` pseudo-random numbers that are spread over the powers of two below 2^44. Some of them are 0.
fn numbers(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|n| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 20) >> (mixed % 40)
    })
}

fn shard() -> Shard {
    Shard::new(ProcedureId(7), "P.A")
}

fn total(values: &[(f64, u32)]) -> (u64, f64) {
    let count = values.iter().map(|&(_, count)| u64::from(count)).sum();
    (count, values.iter().map(|&(value, count)| value * f64::from(count)).sum())
}

/// Returns each value as many times as it was counted, in ascending order.
fn sorted(values: &[(f64, u32)]) -> Vec<f64> {
    let mut all: Vec<_> = values.iter().flat_map(|&(value, count)| (0..count).map(move |_| value)).collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Takes the new values of a procedure. Returns empty lists if there are no new values.
fn take(side: Side, method: &'static str) -> NewValues {
    let taken = procedures::take(|of, name| of == side && name == method);
    taken.into_iter().map(|(.., values)| values).next().unwrap_or_default()
}

/// Returns the number of successful calls of a server's procedure since the last query.
pub(crate) fn served_calls(method: &'static str) -> u64 {
    total(&take(Side::Server, method).durations).0
}

/// The reported value of a number that is alone in its bucket differs from the number by rounding only. Other values
/// differ by less than the width of the bucket, which is at most 1/32 of the number. Numbers below 64 are exact.
#[test]
fn values_stay_in_their_buckets() {
    let mut reported = ReportedValues::new();
    let shard = shard();
    let edges = (0..50).flat_map(|power| [1 << power, (1 << power) + 1, (2 << power) - 1]);
    for number in (1..3000).chain(edges).chain(numbers(3000)).filter(|number| *number > 0) {
        shard.add_any(number, SIZES);
        let [(value, 1)] = reported.take(&[&shard]).durations[..] else { panic!("{number} is not one value") };
        assert!((value - number as f64).abs() <= number as f64 * 1e-9, "{number} became {value}");
    }
    let mut all: Vec<_> = numbers(20_000).filter(|number| *number > 0).collect();
    all.iter().for_each(|number| shard.add_any(*number, SIZES));
    all.sort_unstable();
    let values = sorted(&reported.take(&[&shard]).durations);
    assert_eq!(values.len(), all.len());
    for (value, number) in values.into_iter().zip(all) {
        assert!((value - number as f64).abs() <= number as f64 / 32.0, "{number} became {value}");
        assert!(number >= 64 || value == number as f64, "{number} has a bucket of its own, and became {value}");
    }
}

/// Counts and sums match the calls, whenever they are taken. Nothing is taken twice.
#[test]
fn sums_are_exact() {
    let (shards, mut reported) = ([shard(), shard()], ReportedValues::new());
    let refs: Vec<_> = shards.iter().collect();
    let (mut counts, mut sums, mut expected) = ([0; 3], [0.0; 3], [0.0; 3]);
    for (round, number) in numbers(5000).enumerate() {
        // 300 pairs of sizes have no counters of their own.
        let sizes = Sizes { request: 40 + 4 * (round as u64 % 300), response: 24 + number % 1_000_000 };
        shards[round % 2].add_any(number, sizes);
        for (sum, value) in expected.iter_mut().zip([number, sizes.request, sizes.response]) {
            *sum += value as f64;
        }
        if round % 700 == 0 || round == 4999 {
            let NewValues { durations, requests, responses } = reported.take(&refs);
            for (index, values) in [durations, requests, responses].iter().enumerate() {
                let (count, sum) = total(values);
                counts[index] += count;
                sums[index] += sum;
                assert_eq!(counts[index], round as u64 + 1);
                assert!((sums[index] / expected[index] - 1.0).abs() < 1e-9, "{sums:?}, {expected:?}");
            }
        }
    }
    let NewValues { durations, requests, responses } = reported.take(&refs);
    assert!(durations.is_empty() && requests.is_empty() && responses.is_empty());
}

/// The sizes of requests and responses are exact if there are only a few different pairs, in any order of the calls.
#[test]
fn usual_sizes_are_exact() {
    let (shard, mut reported) = (shard(), ReportedValues::new());
    let pairs = [(40, 24), (1_048_620, 32), (44, 1_048_604), (5_000_000_000, 28)];
    for round in 0..400 {
        let (request, response) = pairs[if round < 200 { round } else { round / 50 } % pairs.len()];
        shard.add_any(1, Sizes { request, response });
    }
    let NewValues { mut requests, mut responses, .. } = reported.take(&[&shard]);
    requests.sort_by(|a, b| a.0.total_cmp(&b.0));
    responses.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(requests, [(40.0, 100), (44.0, 100), (1_048_620.0, 100), (5_000_000_000.0, 100)]);
    assert_eq!(responses, [(24.0, 100), (28.0, 100), (32.0, 100), (1_048_604.0, 100)]);
}

/// The shard of a thread that has ended keeps its values. Another thread reuses the shard.
#[test]
fn threads_end() {
    let method = "TESTS.THREADS_END";
    let id = threads::procedure(Side::Client, method);
    for number in 0..50 {
        thread::spawn(move || (0..3).for_each(|_| threads::called(method, 1 + number, SIZES))).join().unwrap();
    }
    assert_eq!(procedures::shards(id), 1);
    let NewValues { durations, requests, .. } = take(Side::Client, method);
    assert_eq!(total(&durations), (150, f64::from(3 * (1..=50).sum::<u32>())));
    assert_eq!(requests, [(40.0, 150)]);
}

/// A call that a destructor of a thread-local value makes after the thread has released its shards is counted, too.
#[test]
fn calls_at_the_end_of_a_thread() {
    struct AtEnd;
    impl Drop for AtEnd {
        fn drop(&mut self) {
            threads::called("TESTS.AT_END", 5, SIZES);
            threads::served(threads::procedure(Side::Server, "TESTS.AT_END"), 5, SIZES);
        }
    }
    thread_local!(static AT_END: AtEnd = const { AtEnd });
    for _ in 0..2 {
        thread::spawn(|| {
            // Destroyed in this order or in the other one.
            AT_END.with(|_| ());
            threads::called("TESTS.AT_END", 5, SIZES);
        })
        .join()
        .unwrap();
        thread::spawn(|| {
            threads::called("TESTS.AT_END", 5, SIZES);
            AT_END.with(|_| ());
        })
        .join()
        .unwrap();
    }
    assert_eq!(total(&take(Side::Client, "TESTS.AT_END").durations), (8, 40.0));
    assert_eq!(total(&take(Side::Server, "TESTS.AT_END").durations), (4, 20.0));
}

/// No call is lost or counted twice when values are taken while threads add them, begin and end. Values never leave
/// their buckets, and later calls make up for the calls that ended while values were taken.
#[test]
fn concurrent_calls() {
    const THREADS: u64 = 4;
    const PARTS: u64 = 10;
    const CALLS: u64 = 6000;
    let method = "TESTS.CONCURRENT";
    let id = threads::procedure(Side::Server, method);
    let sizes = |call: u64| Sizes { request: 40, response: 24 + 4 * (call / 100) };
    // Each part runs on a thread of its own.
    let run = move |part: u64| {
        let part = move || (0..CALLS).for_each(|call| threads::served(id, 1 + part * CALLS + call, sizes(call)));
        thread::spawn(part).join().unwrap();
    };
    let (done, mut taken) = (AtomicBool::new(false), [(0, 0.0); 3]);
    let mut take = || {
        let NewValues { durations, requests, responses } = take(Side::Server, method);
        for (sum, values) in taken.iter_mut().zip([durations, requests, responses]) {
            let (count, value) = total(&values);
            *sum = (sum.0 + count, sum.1 + value);
        }
        taken
    };
    // Checks the counts, and returns the greatest relative error of the sums.
    let check = |taken: [(u64, f64); 3], parts: u64| {
        let calls = parts * CALLS;
        let responses = (0..CALLS).map(|call| sizes(call).response).sum::<u64>() * parts;
        let expected = [(1..=calls).sum(), 40 * calls, responses];
        let errors = taken.into_iter().zip(expected).map(|((count, sum), expected)| {
            assert_eq!(count, calls);
            (sum / expected as f64 - 1.0).abs()
        });
        errors.fold(0.0, f64::max)
    };
    thread::scope(|scope| {
        let run = &run;
        let worker = |worker| move || (0..PARTS).for_each(|part| run(worker * PARTS + part));
        let workers: Vec<_> = (0..THREADS).map(|number| scope.spawn(worker(number))).collect();
        let done = &done;
        scope.spawn(move || {
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            take();
        }
    });
    let mut parts = THREADS * PARTS;
    let mut error = check(take(), parts);
    assert!(error <= 1.0 / 32.0, "{error}");
    // Each part makes up for as many of its values as fit into their buckets.
    while error > 1e-9 {
        assert!(parts < 20 * THREADS * PARTS, "{error} after {parts} parts");
        run(parts);
        parts += 1;
        error = check(take(), parts);
    }
    assert!(procedures::shards(id) <= THREADS as usize);
}

/// The percentiles of reported durations are at most one recommended bucket away from the exact percentiles.
#[test]
fn percentiles() {
    let (shard, mut reported) = (shard(), ReportedValues::new());
    // Nanoseconds, from 1 µs to 10 s.
    let mut durations: Vec<_> = numbers(30_000).map(|number| 1000 + number % 10_000_000_000).collect();
    durations.iter().for_each(|duration| shard.add_any(*duration, SIZES));
    durations.sort_unstable();
    let values = sorted(&reported.take(&[&shard]).durations);
    let bucket = |nanos: f64| DURATION_BUCKETS.partition_point(|&bound| bound < nanos * 1e-9);
    for percent in [1, 10, 50, 90, 99] {
        let rank = durations.len() * percent / 100;
        let (exact, reported) = (bucket(durations[rank] as f64), bucket(values[rank]));
        assert!(exact.abs_diff(reported) <= 1, "{percent} %: {} and {}", durations[rank], values[rank]);
    }
}

/// Names with equal text have the same identifier on one side, wherever the text is stored.
#[test]
fn procedures_by_name() {
    let other_address: &'static str = String::leak("TESTS.BY_NAME".to_owned());
    let id = threads::procedure(Side::Client, "TESTS.BY_NAME");
    assert_eq!(threads::procedure(Side::Client, other_address), id);
    assert_ne!(threads::procedure(Side::Server, "TESTS.BY_NAME"), id);
    threads::called("TESTS.BY_NAME", 1, SIZES);
    threads::called(other_address, 1, SIZES);
    // Slices of one text have the same address, and are different names.
    threads::called(&other_address[..5], 1, SIZES);
    assert_eq!(total(&take(Side::Client, "TESTS.BY_NAME").durations).0, 2);
    assert_eq!(total(&take(Side::Client, "TESTS").durations).0, 1);
}

/// A procedure is identified by its name, whatever its number in the program is. All procedures without a name have the
/// identifier of [`OTHER`].
#[test]
fn procedures_by_number() {
    let name = |number: u32| (number != 1 && number != 1000).then(|| &*String::leak(format!("TESTS.{number}")));
    let service = ServiceMetrics::new(name);
    for number in [0, 1, 63, 64, 1000, u32::MAX] {
        let expected = threads::procedure(Side::Server, name(number).unwrap_or(OTHER));
        assert_eq!(service.clone().find(number, || name(number)), expected);
    }
}
