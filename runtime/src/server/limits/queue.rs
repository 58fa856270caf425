//! The fair queue of the calls of one scope.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use super::{super::keyed_hash::KeyedHash, LimitScope, LimitStats, Limits};

/// The identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Caller {
    /// The name of the caller's principal.
    Principal(Arc<str>),
    /// The address of a caller without a principal.
    Address(IpAddr),
}

/// The limits of a scope, with the calls that run and wait.
#[derive(Debug)]
pub(in crate::server) struct Limiter {
    pub(in crate::server) limits: Limits,
    state: Mutex<LimiterState>,
}

#[derive(Debug)]
struct LimiterState {
    stats: LimitStats,
    /// The callers with calls that wait, and with calls that run if these are limited for each caller.
    callers: HashMap<Caller, CallerState, KeyedHash>,
    /// The callers with waiting calls, in the order of their turns.
    turns: VecDeque<Caller>,
    next_id: u64,
}

#[derive(Debug, Default)]
struct CallerState {
    /// Number of handlers that run and whose permits name the caller.
    running: usize,
    waiting: VecDeque<Waiter>,
}

/// A call that waits.
#[derive(Debug)]
struct Waiter {
    id: u64,
    /// Dropped if the call is refused.
    admitted: oneshot::Sender<()>,
}

/// The outcome of a call that was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    Refused,
    TimedOut,
    Cancelled,
}

/// The outcome of the arrival of a call.
pub(in crate::server) enum Arrival {
    /// `None` if nothing limits the number of calls.
    Admitted(Option<Permit>),
    Waits(WaitingCall),
    Refused,
}

impl Limiter {
    pub(in crate::server) fn new(scope: LimitScope, limits: Limits) -> Self {
        let state = LimiterState {
            stats: LimitStats::new(scope),
            callers: HashMap::default(),
            turns: VecDeque::new(),
            next_id: 0,
        };
        Self { limits, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::server) fn stats(&self) -> LimitStats {
        self.state().stats
    }

    /// Counts a call whose handler runs. A call that was admitted may be given up before.
    pub(super) fn execute(&self) {
        self.state().stats.executed += 1;
    }

    /// Counts a call that was not executed to its end.
    pub(super) fn count(&self, end: CallEnd) {
        let stats = &mut self.state().stats;
        match end {
            CallEnd::Refused => stats.refused += 1,
            CallEnd::TimedOut => stats.timed_out += 1,
            CallEnd::Cancelled => stats.cancelled += 1,
        }
    }

    /// Admits a call if there is room, and puts it into the queue otherwise. `caller` returns the identity of the caller.
    pub(super) fn arrive(self: &Arc<Self>, caller: impl FnOnce() -> Caller) -> Arrival {
        let permit = |caller| Arrival::Admitted(Some(Permit { limiter: Arc::clone(self), caller }));
        let limits = &self.limits;
        if limits.concurrency == usize::MAX && limits.per_caller == usize::MAX {
            return Arrival::Admitted(None);
        }
        let mut state = self.state();
        // If the scope has room, no call waits that could run.
        if state.stats.running < limits.concurrency && limits.per_caller == usize::MAX {
            state.stats.running += 1;
            return permit(None);
        }
        let caller = caller();
        match state.arrive(&caller, limits) {
            Place::Admitted => permit(Some(caller)),
            Place::Refused => Arrival::Refused,
            Place::Waits(id, admitted) => {
                Arrival::Waits(WaitingCall { limiter: Arc::clone(self), caller, id, admitted, is_over: false })
            }
        }
    }
}

/// The place of a call that arrives.
enum Place {
    Admitted,
    Waits(u64, oneshot::Receiver<()>),
    Refused,
}

impl LimiterState {
    fn arrive(&mut self, caller: &Caller, limits: &Limits) -> Place {
        let state = self.callers.entry(caller.clone()).or_default();
        // If the scope has room, no call waits that could run.
        if self.stats.running < limits.concurrency && state.running < limits.per_caller {
            state.running += 1;
            self.stats.running += 1;
            return Place::Admitted;
        }
        if self.stats.waiting >= limits.queue && !self.make_room(caller) {
            self.forget_if_idle(caller);
            self.stats.refused += 1;
            return Place::Refused;
        }
        let (admitted, waits) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let state = self.callers.entry(caller.clone()).or_default();
        if state.waiting.is_empty() {
            self.turns.push_back(caller.clone());
        }
        state.waiting.push_back(Waiter { id, admitted });
        self.stats.waiting += 1;
        Place::Waits(id, waits)
    }

    /// Drops the latest call of the caller with the most waiting calls, if it has at least two more than `caller`. Then `caller`
    /// has not more after its call than the other one.
    fn make_room(&mut self, caller: &Caller) -> bool {
        let own = self.callers.get(caller).map_or(0, |state| state.waiting.len());
        let longest = self.turns.iter().max_by_key(|caller| self.callers.get(*caller).map_or(0, |s| s.waiting.len()));
        let Some(longest) = longest.cloned() else { return false };
        let Some(state) = self.callers.get_mut(&longest).filter(|state| state.waiting.len() > own + 1) else {
            return false;
        };
        state.waiting.pop_back();
        self.stats.waiting -= 1;
        self.stats.refused += 1;
        true
    }

    /// Ends a call that ran, and admits the next ones.
    fn release(&mut self, caller: Option<Caller>, limits: &Limits) {
        self.stats.running -= 1;
        if let Some(caller) = caller {
            if let Some(state) = self.callers.get_mut(&caller) {
                state.running -= 1;
            }
            self.forget_if_idle(&caller);
        }
        self.admit_next(limits);
    }

    /// Admits waiting calls while there is room. Callers take turns.
    fn admit_next(&mut self, limits: &Limits) {
        // The callers that had no call that could run.
        let mut passed = 0;
        while self.stats.running < limits.concurrency && passed < self.turns.len() {
            let Some(caller) = self.turns.pop_front() else { return };
            let Some(state) = self.callers.get_mut(&caller) else { continue };
            if state.running >= limits.per_caller {
                passed += 1;
                self.turns.push_back(caller);
                continue;
            }
            let Some(waiter) = state.waiting.pop_front() else { continue };
            state.running += 1;
            self.stats.waiting -= 1;
            self.stats.running += 1;
            if !state.waiting.is_empty() {
                self.turns.push_back(caller);
            }
            // A receiver that is dropped returns the permit.
            let _ = waiter.admitted.send(());
            passed = 0;
        }
    }

    /// Takes a call out of the queue.
    fn leave(&mut self, caller: &Caller, id: u64) {
        let Some(state) = self.callers.get_mut(caller) else { return };
        let before = state.waiting.len();
        state.waiting.retain(|waiter| waiter.id != id);
        self.stats.waiting -= before - state.waiting.len();
        if state.waiting.is_empty() {
            self.turns.retain(|other| other != caller);
        }
        self.forget_if_idle(caller);
    }

    fn forget_if_idle(&mut self, caller: &Caller) {
        if let hash_map::Entry::Occupied(entry) = self.callers.entry(caller.clone())
            && entry.get().running == 0
            && entry.get().waiting.is_empty()
        {
            entry.remove();
        }
    }
}

/// A call in the queue.
pub(in crate::server) struct WaitingCall {
    limiter: Arc<Limiter>,
    caller: Caller,
    id: u64,
    admitted: oneshot::Receiver<()>,
    is_over: bool,
}

impl WaitingCall {
    /// Waits until the call may run. Returns `None` if it is refused.
    pub(super) async fn admitted(mut self) -> Option<Permit> {
        let is_admitted = (&mut self.admitted).await.is_ok();
        self.is_over = true;
        is_admitted.then(|| Permit { limiter: Arc::clone(&self.limiter), caller: Some(self.caller.clone()) })
    }
}

impl Drop for WaitingCall {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut state = self.limiter.state();
        match self.admitted.try_recv() {
            // Admitted, but the call is given up.
            Ok(()) => state.release(Some(self.caller.clone()), &self.limiter.limits),
            Err(oneshot::error::TryRecvError::Empty) => state.leave(&self.caller, self.id),
            Err(oneshot::error::TryRecvError::Closed) => {}
        }
    }
}

/// The right of a call to run. Dropping it ends the call.
#[derive(Debug)]
pub(in crate::server) struct Permit {
    limiter: Arc<Limiter>,
    /// The caller for whom the call is counted.
    caller: Option<Caller>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.limiter.state().release(self.caller.take(), &self.limiter.limits);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        future::Future,
        pin::Pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    type Admission = Pin<Box<dyn Future<Output = Option<Permit>>>>;

    fn limiter(limits: Limits) -> Arc<Limiter> {
        Arc::new(Limiter::new(LimitScope::Server, limits))
    }

    /// Begins a call, which joins the queue if it cannot run.
    fn begin(limiter: &Arc<Limiter>, caller: &str) -> (Admission, Poll<Option<Permit>>) {
        let arrival = limiter.arrive(|| Caller::Principal(caller.into()));
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

    /// Callers take turns, although one of them came first with many calls.
    #[test]
    fn callers_take_turns() {
        let limiter = limiter(Limits::new().concurrency(1));
        let mut running = run(&limiter, "a");
        let mut waiting: Vec<_> = ["a", "a", "a", "b", "c", "b"].map(|caller| (caller, wait(&limiter, caller))).into();
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(running);
            let next = waiting.iter_mut().enumerate().find_map(|(n, (_, admission))| match poll(admission) {
                Poll::Ready(permit) => Some((n, permit.unwrap())),
                Poll::Pending => None,
            });
            let (n, permit) = next.unwrap();
            order.push(waiting.remove(n).0);
            running = permit;
            assert_eq!(counts(&limiter), (1, waiting.len(), 0));
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "a"]);
        drop(running);
        assert_eq!(counts(&limiter), (0, 0, 0));
        let state = limiter.state();
        assert!(state.callers.is_empty() && state.turns.is_empty());
    }

    /// A caller at its own limit does not hold up others.
    #[test]
    fn the_limit_of_a_caller_does_not_affect_others() {
        let limiter = limiter(Limits::new().concurrency(3).per_caller(2));
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

    /// A full queue refuses the caller that has most calls in it.
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

    /// A call that is given up leaves the queue, and returns the right to run if it had got it.
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
}
