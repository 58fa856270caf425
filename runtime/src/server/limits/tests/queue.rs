#![allow(clippy::unwrap_used)]

use std::{
    future::Future,
    net::Ipv4Addr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use crate::server::limits::{
    LimitScope, LimitStats, Limits,
    queue::{Arrival, CallSource, Limiter, Permit},
};

type Admission = Pin<Box<dyn Future<Output = Option<Permit>>>>;

fn limiter(limits: Limits) -> Arc<Limiter> {
    Arc::new(Limiter::new(LimitScope::Server, limits))
}

/// Begins a call, which joins the queue if it cannot run.
///
/// The source is a letter for the host, a digit for the connection if not 0, and the principal after a colon.
fn begin(limiter: &Arc<Limiter>, source: &str) -> (Admission, Poll<Option<Permit>>) {
    let arrival = limiter.arrive(|| {
        let (address, principal) =
            source.split_once(':').map_or((source, None), |(address, name)| (address, Some(name)));
        let port = address[1..].parse().unwrap_or(0);
        let peer = (Ipv4Addr::new(10, 0, 0, address.as_bytes()[0]), port).into();
        CallSource { peer, principal: principal.map(Arc::from) }
    });
    let mut admission: Admission = Box::pin(async move {
        match arrival {
            Arrival::Admitted(permit) => permit,
            Arrival::Waits(waiting) => waiting.admitted().await,
            Arrival::Refused => None,
        }
    });
    let polled = poll(&mut admission);
    (admission, polled)
}

fn poll(admission: &mut Admission) -> Poll<Option<Permit>> {
    admission.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn run(limiter: &Arc<Limiter>, caller: &str) -> Permit {
    let Poll::Ready(Some(permit)) = begin(limiter, caller).1 else { panic!("{caller} does not run") };
    permit
}

fn wait(limiter: &Arc<Limiter>, caller: &str) -> Admission {
    let (admission, polled) = begin(limiter, caller);
    assert!(polled.is_pending(), "{caller} does not wait");
    admission
}

fn counts(limiter: &Limiter) -> (usize, usize, u64) {
    let stats = limiter.stats();
    (stats.running, stats.waiting, stats.refused)
}

/// Ends the running call, and each call that runs after it. Returns the sources of `waiting` in the order in which
/// their calls run.
fn order<'a>(limiter: &Limiter, mut running: Permit, mut waiting: Vec<(&'a str, Admission)>) -> Vec<&'a str> {
    let (mut order, refused) = (Vec::new(), limiter.stats().refused);
    while !waiting.is_empty() {
        drop(running);
        let next = waiting.iter_mut().enumerate().find_map(|(n, (_, admission))| match poll(admission) {
            Poll::Ready(permit) => Some((n, permit.unwrap())),
            Poll::Pending => None,
        });
        let (n, permit) = next.unwrap();
        order.push(waiting.remove(n).0);
        running = permit;
        assert_eq!(counts(limiter), (1, waiting.len(), refused));
    }
    drop(running);
    assert_eq!(counts(limiter), (0, 0, refused));
    order
}

/// Callers take turns, although one caller made many calls before the others.
#[test]
fn callers_take_turns() {
    let limiter = limiter(Limits::new().concurrency(1));
    let running = run(&limiter, "a");
    let waiting: Vec<_> = ["a", "a", "a", "b", "c", "b"].map(|caller| (caller, wait(&limiter, caller))).into();
    assert_eq!(order(&limiter, running, waiting), ["a", "b", "c", "a", "b", "a"]);
    assert!(limiter.is_empty());
}

/// Callers whose calls have all left the queue, whether they ran or not, rejoin it in the last place.
#[test]
fn callers_return_to_the_queue() {
    let limiter = limiter(Limits::new().concurrency(1));
    for _ in 0..3 {
        let running = run(&limiter, "a1");
        let waiting: Vec<_> = ["a1", "b", "a2"].map(|caller| (caller, wait(&limiter, caller))).into();
        assert_eq!(order(&limiter, running, waiting), ["a1", "b", "a2"]);
        assert!(limiter.is_empty());
        // A connection that gives up loses its turn.
        let running = run(&limiter, "z");
        drop(wait(&limiter, "a1"));
        let waiting: Vec<_> = ["a2", "a1"].map(|caller| (caller, wait(&limiter, caller))).into();
        drop(wait(&limiter, "a3"));
        assert_eq!(order(&limiter, running, waiting), ["a2", "a1"]);
        let running = run(&limiter, "z");
        let (first, second) = (wait(&limiter, "a1"), wait(&limiter, "a2"));
        drop(first);
        let waiting = vec![("a2", second), ("a1", wait(&limiter, "a1"))];
        assert_eq!(order(&limiter, running, waiting), ["a2", "a1"]);
        assert!(limiter.is_empty());
    }
    assert_eq!((limiter.stats().refused, limiter.stats().executed), (0, 0));
}

/// Arriving calls are not counted if the number of calls is not limited.
#[test]
fn unlimited_calls_are_not_counted() {
    let limiter = limiter(Limits::new().queue(0));
    for _ in 0..3 {
        assert!(matches!(limiter.arrive(|| panic!("the source is needed")), Arrival::Admitted(None)));
    }
    let LimitStats { running, waiting, executed, refused, timed_out, cancelled, .. } = limiter.stats();
    assert_eq!((running, waiting, executed, refused, timed_out, cancelled), (0, 0, 0, 0, 0, 0));
}

/// A caller at its own limit does not hold up other callers.
#[test]
fn the_limit_of_a_caller_does_not_affect_others() {
    let limiter = limiter(Limits::new().concurrency(4).per_caller(2));
    let (first, second) = (run(&limiter, "a"), run(&limiter, "a"));
    let mut third = wait(&limiter, "a");
    let b = run(&limiter, "b");
    let mut other = wait(&limiter, "b");
    drop(b);
    let Poll::Ready(Some(_b)) = poll(&mut other) else { panic!("b does not run") };
    assert!(poll(&mut third).is_pending());
    drop(first);
    assert!(matches!(poll(&mut third), Poll::Ready(Some(_))));
    drop(second);
}

/// A principal is one caller at all of its addresses, and other callers at these addresses are not affected.
#[test]
fn a_principal_has_one_limit_at_all_addresses() {
    let limiter = limiter(Limits::new().per_caller(2));
    let (first, second) = (run(&limiter, "a:x"), run(&limiter, "b:x"));
    let (mut third, mut fourth) = (wait(&limiter, "a:x"), wait(&limiter, "c:x"));
    // Another principal, and callers without one, at these addresses.
    let others = ["a:y", "a:y", "b", "b", "c:z"].map(|caller| run(&limiter, caller));
    let another = wait(&limiter, "b:y");
    drop(others);
    assert!(poll(&mut third).is_pending() && poll(&mut fourth).is_pending());
    drop(first);
    assert!(matches!(poll(&mut third), Poll::Ready(Some(_))));
    // The permit was dropped with the result.
    assert!(matches!(poll(&mut fourth), Poll::Ready(Some(_))));
    drop((second, another));
    assert!(limiter.is_empty());
}

/// If the queue is full, a new call displaces the latest call of the caller with the most waiting calls. If that caller
/// has fewer than two waiting calls more than the new call's caller, the new call is refused.
#[test]
fn a_full_queue_drops_from_the_longest() {
    let limiter = limiter(Limits::new().concurrency(1).queue(3));
    let running = run(&limiter, "a");
    let mut waiting = [wait(&limiter, "a"), wait(&limiter, "a"), wait(&limiter, "a")];
    assert!(matches!(begin(&limiter, "a").1, Poll::Ready(None)));
    let mut b = wait(&limiter, "b");
    assert!(matches!(poll(&mut waiting[2]), Poll::Ready(None)), "the latest call of a");
    // Now a has two, and b one.
    assert!(matches!(begin(&limiter, "b").1, Poll::Ready(None)));
    let mut c = wait(&limiter, "c");
    assert!(matches!(poll(&mut waiting[1]), Poll::Ready(None)));
    assert!(matches!(begin(&limiter, "d").1, Poll::Ready(None)), "nobody has two");
    assert_eq!(counts(&limiter), (1, 3, 5));
    for next in [&mut waiting[0], &mut b, &mut c] {
        assert!(poll(next).is_pending());
    }
    drop((running, waiting, b, c));
    assert_eq!(counts(&limiter), (0, 0, 5));
}

/// A call that is given up leaves the queue, or returns its slot if it was admitted.
#[test]
fn calls_are_given_up() {
    let limiter = limiter(Limits::new().concurrency(1));
    let running = run(&limiter, "a");
    let (first, second, mut third) = (wait(&limiter, "b"), wait(&limiter, "c"), wait(&limiter, "d"));
    drop(second);
    assert_eq!(counts(&limiter), (1, 2, 0));
    // Admits the first, which is dropped before it is polled.
    drop(running);
    assert_eq!(counts(&limiter), (1, 1, 0));
    drop(first);
    let Poll::Ready(Some(_third)) = poll(&mut third) else { panic!("the third does not run") };
    assert_eq!(counts(&limiter), (1, 0, 0));
    // Only a handler that runs counts as executed.
    assert_eq!(limiter.stats().executed, 0);
    limiter.execute();
    assert_eq!(limiter.stats().executed, 1);
}

#[test]
fn without_a_queue_calls_are_refused_at_once() {
    let limiter = limiter(Limits::new().per_caller(1).queue(0));
    let _running = run(&limiter, "a");
    assert!(matches!(begin(&limiter, "a").1, Poll::Ready(None)));
    let _other = run(&limiter, "b");
    assert_eq!(counts(&limiter), (2, 0, 1));
}

/// Calls of other peers run at once, however many calls a connection or a host sends, if there are several handlers.
#[test]
fn no_peer_takes_all_handlers() {
    for (handlers, of_connection, of_host) in [(1, 1, 1), (2, 1, 1), (3, 2, 2), (4, 2, 3), (16, 10, 12)] {
        let limiter = limiter(Limits::new().concurrency(handlers));
        let mut running = Vec::new();
        let mut waiting = Vec::new();
        let mut fill = |source: &str, total: usize| {
            for n in 0..20 {
                match begin(&limiter, source) {
                    (_, Poll::Ready(permit)) => running.push(permit.unwrap()),
                    (admission, Poll::Pending) => waiting.push(admission),
                }
                let of_host = usize::min(n + 1, total);
                assert!(counts(&limiter).0 >= of_host, "{handlers} handlers, call {n} of {source}");
            }
            assert_eq!(counts(&limiter).0, total, "{handlers} handlers, after {source}");
        };
        fill("a1", of_connection);
        for (principal, connection) in [("a2:x", "a2"), ("a3:y", "a3")] {
            fill(principal, of_host);
            fill(connection, of_host);
        }
        if handlers > 1 {
            let total = limiter.stats().running;
            let _other = run(&limiter, "b");
            assert_eq!(limiter.stats().running, total + 1);
        }
        // All calls run in the end, and no slot is lost.
        while !running.is_empty() {
            drop(running.pop());
            waiting.retain_mut(|admission| match poll(admission) {
                Poll::Ready(permit) => {
                    running.push(permit.unwrap());
                    false
                }
                Poll::Pending => true,
            });
            assert!(counts(&limiter).0 <= of_host);
        }
        assert!(waiting.is_empty());
        assert_eq!(counts(&limiter), (0, 0, 0));
    }
}

/// A host with many connections and principals gets no more turns than another host.
#[test]
fn hosts_take_turns_before_their_connections() {
    let limiter = limiter(Limits::new().concurrency(1));
    let running = run(&limiter, "z");
    let sources = ["a1", "a1", "a2:x", "a3:x", "a2:y", "a3", "b1", "b1", "b1", "b1"];
    let waiting: Vec<_> = sources.iter().map(|source| (*source, wait(&limiter, source))).collect();
    assert_eq!(order(&limiter, running, waiting), ["a1", "b1", "a2:x", "b1", "a2:y", "b1", "a3", "b1", "a1", "a3:x"]);
}

/// A full queue drops or refuses a call of the host that has the most calls in it. Within this host, it selects the
/// connection that has the most calls.
#[test]
fn a_full_queue_drops_from_the_longest_of_a_host() {
    let limiter = limiter(Limits::new().concurrency(1).queue(4));
    let _running = run(&limiter, "a1");
    let mut waiting = [wait(&limiter, "a1"), wait(&limiter, "a1"), wait(&limiter, "a1"), wait(&limiter, "b")];
    let _second = wait(&limiter, "a2");
    assert!(matches!(poll(&mut waiting[2]), Poll::Ready(None)), "the latest call of the first connection");
    assert!(matches!(begin(&limiter, "a2").1, Poll::Ready(None)), "now the first has two, and the second one");
    let _third = wait(&limiter, "b");
    assert!(matches!(poll(&mut waiting[1]), Poll::Ready(None)), "the host with the most");
    assert_eq!(counts(&limiter), (1, 4, 3));
}

/// A connection or a host that has no call in a full queue gets a place in it, if another party has two calls there.
#[test]
fn a_full_queue_has_a_place_for_new_parties() {
    let limiter = limiter(Limits::new().concurrency(1).queue(2));
    let running = run(&limiter, "z");
    let (first, mut second) = (wait(&limiter, "a1"), wait(&limiter, "a1"));
    let mut third = wait(&limiter, "a2");
    assert!(matches!(poll(&mut second), Poll::Ready(None)), "the connection with two calls");
    let fourth = wait(&limiter, "b");
    assert!(matches!(poll(&mut third), Poll::Ready(None)), "the host with two calls, one of each connection");
    assert!(matches!(begin(&limiter, "a2").1, Poll::Ready(None)), "nobody has two");
    assert_eq!(counts(&limiter), (1, 2, 3));
    drop((first, fourth, running));
    assert!(limiter.is_empty());
}

/// A connection whose only call was dropped from the queue has lost its turn.
#[test]
fn a_dropped_call_has_no_turn() {
    let limiter = limiter(Limits::new().concurrency(1).queue(3));
    let running = run(&limiter, "z");
    let (first, second, mut third) = (wait(&limiter, "a1"), wait(&limiter, "a2"), wait(&limiter, "a3"));
    let other = wait(&limiter, "b");
    assert!(matches!(poll(&mut third), Poll::Ready(None)));
    drop((first, other));
    let waiting = vec![("a2", second), ("a4", wait(&limiter, "a4")), ("a3", wait(&limiter, "a3"))];
    assert_eq!(order(&limiter, running, waiting), ["a2", "a4", "a3"]);
    assert!(limiter.is_empty());
}
