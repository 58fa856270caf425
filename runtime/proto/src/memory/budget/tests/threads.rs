//! Tests of threads that share a budget, in random interleavings chosen by `shuttle`.

// The budget is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, dead_code, unreachable_pub)]

#[path = "../limit.rs"]
mod limit;
#[path = "../share.rs"]
mod share;
#[path = "../state.rs"]
mod state;

use std::{
    future::{Future as _, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use shuttle::{
    future::{block_on, yield_now},
    thread::{self, JoinHandle},
};

use self::{
    limit::MemoryBudget,
    share::{BudgetCharge, MemoryShare},
};
use super::LIMIT;
use crate::sync::model::{self as sync, check};

/// Starts a thread in which a connection of `host` takes memory for arguments: each of `amounts` in bytes, one after
/// the other.
fn takes_arguments(budget: &Arc<MemoryBudget>, host: u128, amounts: &'static [u64]) -> JoinHandle<()> {
    let budget = Arc::clone(budget);
    thread::spawn(move || {
        let mut share = MemoryShare::of(Some(budget.account(host)));
        for bytes in amounts {
            assert_eq!(block_on(arguments(&mut share, *bytes)).bytes(), *bytes);
            assert!(budget.held() <= LIMIT);
        }
    })
}

/// Takes memory for arguments as a connection does.
async fn arguments(share: &mut MemoryShare, bytes: u64) -> BudgetCharge {
    poll_fn(|cx| {
        let charge = share.take(bytes);
        if charge.is_none() {
            share.wait(cx.waker());
        }
        charge.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// Starts a thread in which a connection of `host` takes `bytes` for arguments, or begins to wait for them, and ends.
fn disconnects(budget: &Arc<MemoryBudget>, host: u128, bytes: u64) -> JoinHandle<()> {
    let mut share = MemoryShare::of(Some(budget.account(host)));
    thread::spawn(move || {
        let charge = share.take(bytes);
        thread::yield_now();
        drop(charge);
        thread::yield_now();
    })
}

/// Starts a thread in which a call of `host` takes `bytes` for its results, and later returns half of them.
fn takes_results(budget: &Arc<MemoryBudget>, host: u128, bytes: u64) -> JoinHandle<()> {
    let turn = budget.account(host).take_results(bytes).unwrap();
    thread::spawn(move || {
        let mut charge = block_on(turn);
        assert_eq!(charge.bytes(), bytes);
        thread::yield_now();
        charge.shrink(bytes / 2);
    })
}

/// Takes `bytes` for the results of a call of `host`. The returned charge holds them.
fn hold_results(budget: &Arc<MemoryBudget>, host: u128, bytes: u64) -> BudgetCharge {
    block_on(budget.account(host).take_results(bytes).unwrap())
}

/// Starts a thread in which a call of `host` waits for `bytes` for its results. The call is cancelled after it was
/// polled `polls` times, unless it got the memory before.
fn gives_up(budget: &Arc<MemoryBudget>, host: u128, bytes: u64, polls: usize) -> JoinHandle<()> {
    let mut turn = budget.account(host).take_results(bytes).unwrap();
    thread::spawn(move || {
        block_on(async {
            for _ in 0..polls {
                if poll_fn(|cx| Poll::Ready(Pin::new(&mut turn).poll(cx).is_ready())).await {
                    return;
                }
                yield_now().await;
            }
        });
    })
}

fn end(budget: &MemoryBudget, threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((budget.held(), budget.waiting()), (0, 0));
}

/// Connections and calls that wait for memory get it, although others give up or end.
#[test]
fn every_waiter_gets_memory() {
    check(|| {
        let budget = MemoryBudget::new(LIMIT);
        let threads = [
            takes_arguments(&budget, 1, &[500, 400]),
            takes_results(&budget, 2, 500),
            gives_up(&budget, 1, 525, 2),
            disconnects(&budget, 3, 520),
        ];
        end(&budget, threads);
    });
}

#[test]
fn the_connections_of_a_host_take_turns() {
    check(|| {
        let budget = MemoryBudget::new(LIMIT);
        let threads = [
            takes_arguments(&budget, 1, &[300]),
            takes_arguments(&budget, 1, &[400]),
            takes_results(&budget, 1, 500),
            gives_up(&budget, 1, 525, 1),
        ];
        end(&budget, threads);
    });
}

/// A call that begins to wait while memory is returned gets that memory.
#[test]
fn returned_memory_reaches_a_new_waiter() {
    check(|| {
        let budget = MemoryBudget::new(LIMIT);
        let held = [hold_results(&budget, 1, 525), hold_results(&budget, 3, 300)];
        let returning = thread::spawn(move || drop(held));
        end(&budget, [returning, takes_results(&budget, 2, 500)]);
    });
}

/// A call that no longer waits lets others take the memory that was kept for it.
#[test]
fn a_cancelled_call_lets_others_pass() {
    check(|| {
        let budget = MemoryBudget::new(LIMIT);
        let held = [hold_results(&budget, 9, 525), hold_results(&budget, 8, 100)];
        let threads = [gives_up(&budget, 1, 500, 1), takes_results(&budget, 2, 200)];
        // Neither depends on this amount, which is returned only then.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(held);
        assert_eq!((budget.held(), budget.waiting()), (0, 0));
    });
}
