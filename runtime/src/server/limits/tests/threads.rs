//! Tests of calls that wait until a limit allows them to run, in random interleavings chosen by `shuttle`.

// The queue is compiled twice, and parts of it are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code)]

#[path = "../queue.rs"]
mod queue;

use std::{net::Ipv4Addr, sync::Arc};

use shuttle::{
    future::block_on,
    thread::{self, JoinHandle},
};

use self::queue::{Arrival, CallSource, Limiter, Permit};
use crate::{
    server::limits::{LimitScope, LimitStats, Limits, turns},
    sync::model::{self as sync, check, give_up},
};

fn limiter(limits: Limits) -> Arc<Limiter> {
    Arc::new(Limiter::new(LimitScope::Server, limits))
}

async fn admitted(limiter: &Arc<Limiter>, host: u8) -> Option<Permit> {
    let source = || CallSource { peer: (Ipv4Addr::new(10, 0, 0, host), 1).into(), principal: None };
    match limiter.arrive(source) {
        Arrival::Admitted(permit) => permit,
        Arrival::Waits(waiting) => waiting.admitted().await,
        Arrival::Refused => None,
    }
}

/// Makes calls of `host` one after the other in a new thread, which returns the number of calls that ran. Checks that
/// the number of running handlers stays within the limit.
fn calls(limiter: &Arc<Limiter>, host: u8, calls: usize) -> JoinHandle<usize> {
    let limiter = Arc::clone(limiter);
    thread::spawn(move || {
        let ran = (0..calls).filter_map(|_| block_on(admitted(&limiter, host)));
        ran.inspect(|_permit| assert!(limiter.stats().running <= limiter.limits.concurrency)).count()
    })
}

/// Makes a call of `host` in a new thread, and cancels it after up to `polls` polls. The thread returns 1 if the call
/// ran, and 0 otherwise.
fn gives_up(limiter: &Arc<Limiter>, host: u8, polls: usize) -> JoinHandle<usize> {
    let limiter = Arc::clone(limiter);
    thread::spawn(move || usize::from(block_on(give_up(admitted(&limiter, host), polls)).flatten().is_some()))
}

fn assert_idle(limiter: &Limiter) {
    let stats = limiter.stats();
    assert_eq!((stats.running, stats.waiting), (0, 0));
    assert!(limiter.is_empty());
}

/// Every call runs, although other calls are cancelled while they wait or as they are admitted.
#[test]
fn every_call_runs() {
    check(|| {
        let limiter = limiter(Limits::new().concurrency(1).queue(8));
        let callers =
            [calls(&limiter, 1, 2), calls(&limiter, 2, 2), gives_up(&limiter, 1, 1), gives_up(&limiter, 3, 2)];
        let [first, second, ..] = callers.map(|caller| caller.join().unwrap());
        assert_eq!((first, second), (2, 2));
        assert_eq!(limiter.stats().refused, 0);
        assert_idle(&limiter);
    });
}

/// If the queue is full, each call either runs or is refused. A call may be refused while it waits.
#[test]
fn a_full_queue_refuses_calls() {
    check(|| {
        let limiter = limiter(Limits::new().concurrency(1).queue(2));
        let callers = [calls(&limiter, 1, 1), calls(&limiter, 1, 1), calls(&limiter, 1, 1), calls(&limiter, 2, 1)];
        let ran: usize = callers.map(|caller| caller.join().unwrap()).iter().sum();
        assert_eq!(ran as u64 + limiter.stats().refused, 4);
        assert!(ran >= 3);
        assert_idle(&limiter);
    });
}

/// Calls of a caller at its own limit run when its other calls end.
#[test]
fn callers_have_limits() {
    check(|| {
        let limiter = limiter(Limits::new().concurrency(4).per_caller(1).queue(8));
        let callers = [calls(&limiter, 1, 2), calls(&limiter, 1, 1), gives_up(&limiter, 1, 1), calls(&limiter, 2, 1)];
        let [first, second, _, other] = callers.map(|caller| caller.join().unwrap());
        assert_eq!((first, second, other), (2, 1, 1));
        assert_idle(&limiter);
    });
}
