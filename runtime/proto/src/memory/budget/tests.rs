#![allow(clippy::unwrap_used)]

mod threads;
mod turns;

use std::{
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering::Relaxed},
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use super::*;

/// A limit whose parts are easy to compute with: 1050 bytes in the main part, of which arguments take at most 525, and
/// 150 bytes for small amounts.
const LIMIT: u64 = 1200;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn share(budget: &Arc<MemoryBudget>, host: u128) -> MemoryShare {
    MemoryShare::of(Some(budget.account(host)))
}

/// Fails unless the budget has forgotten all hosts and connections.
#[track_caller]
fn assert_clear(budget: &MemoryBudget) {
    let state = budget.change(|state, _| format!("{state:?}"));
    assert!(
        state.contains("hosts: {}, turns: UseQueues { arguments: [], results: [] }, active: 0, waiting: 0"),
        "{state}"
    );
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
}

fn poll(turn: &mut MemoryTurn) -> Poll<BudgetCharge> {
    std::future::Future::poll(std::pin::Pin::new(turn), &mut Context::from_waker(Waker::noop()))
}

/// Holds `bytes` for results of `host`.
fn hold_results(budget: &Arc<MemoryBudget>, host: u128, bytes: u64) -> BudgetCharge {
    let mut turn = budget.account(host).take_results(bytes).unwrap();
    let Poll::Ready(charge) = poll(&mut turn) else { panic!("{budget:?}") };
    charge
}

/// Holds the whole main part for results.
fn fill(budget: &Arc<MemoryBudget>) -> [BudgetCharge; 2] {
    [98, 99].map(|host| hold_results(budget, host, 525))
}

#[test]
fn without_a_budget_nothing_is_limited() {
    let mut share = MemoryShare::default();
    assert_eq!(share.take(u64::MAX).unwrap().bytes(), 0);
    assert!(!share.waits());
}

#[test]
fn charged_memory_is_returned() {
    let budget = MemoryBudget::new(LIMIT);
    let mut share = share(&budget, 1);
    let (mut a, b) = (share.take(60).unwrap(), share.take(40).unwrap());
    assert_eq!((budget.held(), a.bytes(), b.bytes()), (100, 60, 40));
    a.shrink(10);
    a.shrink(30);
    assert_eq!((budget.held(), a.bytes()), (50, 10));
    let mut over = share.overcommit(900);
    over.absorb(share.overcommit(100));
    over.absorb(BudgetCharge::default());
    drop((a, b));
    assert_eq!((budget.held(), over.bytes()), (1000, 1000));
    drop(over);
    assert_eq!(budget.held(), 0);
    drop(share);
    assert_clear(&budget);
}

/// However much a host or a connection takes without waiting, it leaves memory that other hosts and connections take
/// without waiting.
#[test]
fn greedy_hosts_and_connections_leave_memory() {
    for bytes in [1, 10, 50] {
        let budget = MemoryBudget::new(LIMIT);
        let hold_all = |shares: &mut [MemoryShare]| {
            let mut held = Vec::new();
            while let Some(charge) = shares.iter_mut().find_map(|share| share.take_now(bytes)) {
                held.push(charge);
            }
            held
        };
        let mut one = [share(&budget, 1)];
        let first = hold_all(&mut one);
        let neighbour = share(&budget, 1);
        assert_eq!(neighbour.take_now(50).unwrap().bytes(), 50, "a connection of the same host, {bytes}");
        let mut more: Vec<_> = (0..100).map(|_| share(&budget, 1)).collect();
        let second = hold_all(&mut more);
        assert!(budget.held() <= 525 + 75, "{budget:?}");
        let other = share(&budget, 2);
        let charge = other.take_now(60).unwrap();
        assert_eq!(charge.bytes(), 60, "a connection of another host, {bytes}");
        let mut hosts: Vec<_> = (10..100).map(|host| share(&budget, host)).collect();
        let third = hold_all(&mut hosts);
        assert!(budget.held() <= LIMIT, "{budget:?}");
        drop((first, second, third, charge));
        assert_eq!((budget.held(), budget.waiting()), (0, 0));
        drop((one, neighbour, more, other, hosts));
        assert_clear(&budget);
    }
}

/// While a connection waits for a large amount, free memory is kept for it, and small amounts are still available.
#[test]
fn memory_is_kept_for_a_large_amount() {
    let budget = MemoryBudget::new(LIMIT);
    let (mut a, mut b, c, mut d) = (share(&budget, 1), share(&budget, 2), share(&budget, 3), share(&budget, 4));
    let (first, second) = (a.take(200).unwrap(), a.take(90).unwrap());
    assert!(b.take(500).is_none() && b.waits());
    let woken = Arc::<Woken>::default();
    b.wait(&Waker::from(Arc::clone(&woken)));
    // 235 are free, but kept. Of the other part, 37 are available.
    assert!(c.take_now(38).is_none());
    let small = c.take_now(37).unwrap();
    assert!(d.take(100).is_none());
    drop(first);
    assert!(!b.is_called() && woken.0.load(Relaxed) == 0 && budget.waiting() == 2);
    drop(second);
    assert!(b.is_called() && woken.0.load(Relaxed) == 1);
    let large = b.take(500).unwrap();
    assert_eq!((large.bytes(), budget.held(), budget.waiting()), (500, 537, 1));
    drop((large, small));
    assert_eq!(d.take(100).unwrap().bytes(), 100);
    assert_eq!(budget.held(), 0);
    drop((a, b, c, d));
    assert_clear(&budget);
}

/// Hosts take turns, and so do the connections of a host, however many calls wait.
#[test]
fn hosts_and_connections_take_turns() {
    let budget = MemoryBudget::new(LIMIT);
    let mut busy = share(&budget, 9);
    let most = fill(&budget);
    let greedy = budget.account(1);
    let mut turns: Vec<_> = (0..20).map(|_| greedy.take_results(100).unwrap()).collect();
    assert!(turns.iter_mut().all(|turn| poll(turn).is_pending()));
    let mut neighbour = share(&budget, 1);
    let mut other = share(&budget, 2);
    assert!(neighbour.take(100).is_none() && other.take(100).is_none());
    assert_eq!(budget.waiting(), 22);
    drop(most);
    // One after the other: the first of host 1, host 2, the quiet connection of host 1.
    assert!(neighbour.is_called() && other.is_called());
    let _held = (neighbour.take(100).unwrap(), other.take(100).unwrap());
    let granted: Vec<_> = turns.iter_mut().map(poll).filter(Poll::is_ready).collect();
    assert!((1..=4).contains(&granted.len()), "{}", granted.len());
    assert!(budget.held() <= 1050);
    drop((turns, granted));
    assert!(busy.take(100).is_some());
    assert_eq!((budget.held(), budget.waiting()), (200, 0));
    drop((busy, greedy, neighbour, other, _held));
    assert_clear(&budget);
}

/// Arguments leave half of the main part to results. Results take that half even if arguments have waited longer, and
/// even if arguments that could not wait exceed their own half.
#[test]
fn results_do_not_wait_for_arguments() {
    let budget = MemoryBudget::new(LIMIT);
    let mut hosts: Vec<_> = (0..8).map(|host| share(&budget, host)).collect();
    let held: Vec<_> = hosts.iter_mut().filter_map(|share| share.take(75)).collect();
    assert_eq!((held.len(), budget.held()), (7, 525));
    let (waiting, others): (Vec<_>, Vec<_>) = hosts.iter().partition(|share| share.waits());
    assert_eq!((waiting.len(), others.len()), (1, 7));
    for beyond in [0, 1, 2000] {
        let beyond = hosts[0].overcommit(beyond);
        assert_eq!(hold_results(&budget, 0, 525).bytes(), 525);
        drop(beyond);
    }
    let results = hold_results(&budget, 0, 100);
    assert_eq!(budget.held(), 625);
    assert_eq!(budget.account(0).take_results(526).unwrap_err(), 525);
    drop((held, results));
    assert!(hosts.iter().any(MemoryShare::is_called));
}

/// Results do not wait behind arguments of the same host or connection. While arguments wait, results leave them their
/// half.
#[test]
fn arguments_and_results_have_separate_queues() {
    for is_same_connection in [true, false] {
        let budget = MemoryBudget::new(LIMIT);
        let account = budget.account(1);
        let mut arguments = MemoryShare::of(Some(account.clone()));
        let small = arguments.take(10).unwrap();
        assert!(arguments.take(520).is_none());
        let account = if is_same_connection { account } else { budget.account(1) };
        let mut turns: Vec<_> = (0..2).map(|_| account.take_results(260).unwrap()).collect();
        let mut granted: Vec<_> = turns.iter_mut().map(poll).filter(Poll::is_ready).collect();
        assert_eq!((granted.len(), budget.held(), budget.waiting()), (1, 270, 2), "{is_same_connection}");
        drop(small);
        granted.push(poll(&mut turns[1]));
        assert!(arguments.is_called() && granted[1].is_ready(), "{is_same_connection}");
        assert_eq!((budget.held(), budget.waiting()), (1040, 0));
    }
}

/// Calls that hold arguments and wait for results do not wait for one another forever.
#[test]
fn calls_with_arguments_get_results() {
    let budget = MemoryBudget::new(LIMIT);
    for results in [10, 90, 175, 525] {
        let mut calls: Vec<_> = (0..7)
            .map(|host| {
                let account = budget.account(host);
                let arguments = MemoryShare::of(Some(account.clone())).take(75).unwrap();
                (arguments, account.take_results(results).unwrap())
            })
            .collect();
        let mut more = share(&budget, 8);
        assert!(more.take(500).is_none());
        while !calls.is_empty() {
            let before = calls.len();
            let mut ready = Vec::new();
            calls.retain_mut(|(_, turn)| match poll(turn) {
                Poll::Ready(charge) => {
                    ready.push(charge);
                    false
                }
                Poll::Pending => true,
            });
            assert!(calls.len() < before && budget.held() <= LIMIT, "{budget:?}");
        }
        assert_eq!(more.take(500).unwrap().bytes(), 500);
    }
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
}

#[test]
fn a_dropped_waiter_does_not_block_the_queue() {
    let budget = MemoryBudget::new(LIMIT);
    let (mut a, mut b, mut c) = (share(&budget, 1), share(&budget, 2), share(&budget, 3));
    let most = a.take(300).unwrap();
    assert!(b.take(500).is_none() && c.take(200).is_none());
    drop(b);
    assert!(c.is_called());
    assert_eq!(c.take(200).unwrap().bytes(), 200);
    // Another amount than the one that was waited for.
    assert!(c.take(500).is_none());
    assert_eq!((c.take(10).unwrap().bytes(), budget.waiting()), (10, 0));
    // Memory that was taken for a connection that no longer wants it.
    assert!(c.take(500).is_none());
    drop(most);
    assert!(c.is_called() && budget.held() == 500);
    drop(c);
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
    let mut turn = budget.account(4).take_results(500).unwrap();
    let more = fill(&budget);
    assert!(poll(&mut turn).is_pending());
    drop(more);
    assert_eq!(budget.held(), 500);
    drop(turn);
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
    // A connection that waits for its turn and leaves, before another one of its host and alone.
    let most = a.take(500).unwrap();
    let (mut d, mut e) = (share(&budget, 5), share(&budget, 5));
    assert!(d.take(400).is_none() && e.take(100).is_none());
    d.stop_waiting();
    assert!(e.waits() && budget.waiting() == 1);
    drop((d, e));
    drop((a, most));
    assert_clear(&budget);
}

/// Threads that compete for memory all get it, and the held memory never exceeds the limit.
#[test]
fn threads_take_turns() {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let budget = MemoryBudget::new(LIMIT);
    let threads: Vec<_> = (0..4_u64)
        .map(|nth| {
            let budget = Arc::clone(&budget);
            thread::spawn(move || {
                let mut share = share(&budget, u128::from(nth / 2));
                let waker = Waker::from(Arc::new(Unpark(thread::current())));
                for round in 0..5000 {
                    let bytes = (nth * 131 + round * 7) % 526;
                    let charge = loop {
                        if let Some(charge) = share.take(bytes) {
                            break charge;
                        }
                        share.wait(&waker);
                        while !share.is_called() {
                            // Far longer than a turn takes, so that a lost notification fails the test.
                            let started = std::time::Instant::now();
                            thread::park_timeout(Duration::from_secs(100));
                            assert!(started.elapsed() < Duration::from_secs(90), "the connection was not called");
                        }
                    };
                    assert!(budget.held() <= LIMIT);
                    drop(charge);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_clear(&budget);
}
