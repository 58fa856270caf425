//! A limit on the memory that all connections of a server hold for calls.
//!
//! Within the limit, taking and returning memory costs one atomic operation each. Beyond it, connections queue. The first in
//! the queue takes memory first, so that small calls cannot starve a large one. A connection in the queue continues with
//! everything else: Receives, replies, and calls in progress.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    task::Waker,
};

/// The limit and the memory currently held, in bytes.
#[doc(hidden)]
pub struct MemoryBudget {
    limit: u64,
    held: AtomicU64,
    /// Number of connections in the queue.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<BudgetWaiter>>>,
}

/// A connection's entry in the queue.
#[derive(Default)]
struct BudgetWaiter {
    /// Set when memory may be available; cleared when the owner tries again.
    called: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl BudgetWaiter {
    fn call(&self) {
        self.called.store(true, SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl MemoryBudget {
    #[doc(hidden)]
    pub fn new(limit: u64) -> Arc<Self> {
        let (held, waiting, queue) = (AtomicU64::new(0), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { limit, held, waiting, queue })
    }

    /// Returns the limit, in bytes.
    #[doc(hidden)]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the memory currently held, in bytes.
    #[doc(hidden)]
    pub fn held(&self) -> u64 {
        self.held.load(SeqCst)
    }

    /// Returns the number of waiting connections.
    #[doc(hidden)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(SeqCst)
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Arc<BudgetWaiter>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_add(&self, bytes: u64) -> bool {
        let within = |held: u64| held.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.held.fetch_update(SeqCst, SeqCst, within).is_ok()
    }

    // A connection tries once more after it has entered the queue. Either it sees the memory returned here, or this function
    // sees the connection in the queue.
    fn give_back(&self, bytes: u64) {
        self.held.fetch_sub(bytes, SeqCst);
        if self.waiting.load(SeqCst) > 0
            && let Some(first) = self.queue().front()
        {
            first.call();
        }
    }

    /// Removes a connection from the queue and notifies the first one in it.
    fn leave(&self, turn: &Arc<BudgetWaiter>) {
        let mut queue = self.queue();
        queue.retain(|other| !Arc::ptr_eq(other, turn));
        self.waiting.store(queue.len(), SeqCst);
        if let Some(first) = queue.front() {
            first.call();
        }
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("limit", &self.limit).field("held", &self.held()).finish_non_exhaustive()
    }
}

/// Memory charged to a budget, returned on drop.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct BudgetCharge(Option<(Arc<MemoryBudget>, u64)>);

impl BudgetCharge {
    /// Returns the charged memory in bytes; 0 without a budget.
    #[doc(hidden)]
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    /// Merges another charge of the same budget into this one.
    #[doc(hidden)]
    pub fn absorb(&mut self, mut other: Self) {
        match (&mut self.0, other.0.take()) {
            (Some((_, bytes)), Some((_, more))) => *bytes = bytes.saturating_add(more),
            (none, more) => *none = none.take().or(more),
        }
    }

    /// Returns the memory above `bytes` to the budget.
    #[doc(hidden)]
    pub fn shrink(&mut self, bytes: u64) {
        if let Some((budget, held)) = &mut self.0
            && *held > bytes
        {
            budget.give_back(*held - bytes);
            *held = bytes;
        }
    }
}

impl Drop for BudgetCharge {
    fn drop(&mut self) {
        if let Some((budget, bytes)) = &self.0 {
            budget.give_back(*bytes);
        }
    }
}

/// One connection's access to a budget. Without a budget, nothing is limited.
#[derive(Default)]
pub struct MemoryShare {
    budget: Option<Arc<MemoryBudget>>,
    turn: Arc<BudgetWaiter>,
    /// True while the connection is in the queue.
    waits: bool,
}

impl MemoryShare {
    #[doc(hidden)]
    pub fn of(budget: Option<Arc<MemoryBudget>>) -> Self {
        Self { budget, turn: Arc::default(), waits: false }
    }

    /// Takes `bytes`, which must not exceed the limit. If they are not available, the connection enters the queue, and calls
    /// this again with the same amount once it [is called](Self::is_called).
    #[doc(hidden)]
    pub fn take(&mut self, bytes: u64) -> Option<BudgetCharge> {
        let Some(budget) = &self.budget else { return Some(BudgetCharge::default()) };
        if !self.waits {
            if let Some(charge) = self.take_now(bytes) {
                return Some(charge);
            }
            let mut queue = budget.queue();
            queue.push_back(Arc::clone(&self.turn));
            budget.waiting.store(queue.len(), SeqCst);
            self.waits = true;
            tracing::debug!(bytes, held = budget.held(), limit = budget.limit, "a call waits for memory");
        }
        self.turn.called.store(false, SeqCst);
        let first = budget.queue().front().is_some_and(|first| Arc::ptr_eq(first, &self.turn));
        if !(first && budget.try_add(bytes)) {
            return None;
        }
        let charge = BudgetCharge(Some((Arc::clone(budget), bytes)));
        self.stop_waiting();
        Some(charge)
    }

    /// Takes `bytes` if they are available and no connection is waiting.
    #[doc(hidden)]
    pub fn take_now(&self, bytes: u64) -> Option<BudgetCharge> {
        let Some(budget) = &self.budget else { return Some(BudgetCharge::default()) };
        (budget.waiting() == 0 && budget.try_add(bytes)).then(|| BudgetCharge(Some((Arc::clone(budget), bytes))))
    }

    /// Takes `bytes` for a use that cannot wait, even beyond the limit.
    #[doc(hidden)]
    pub fn overcommit(&self, bytes: u64) -> BudgetCharge {
        BudgetCharge(self.budget.as_ref().map(|budget| {
            budget.held.fetch_add(bytes, SeqCst);
            (Arc::clone(budget), bytes)
        }))
    }

    /// Leaves the queue.
    #[doc(hidden)]
    pub fn stop_waiting(&mut self) {
        if std::mem::take(&mut self.waits)
            && let Some(budget) = &self.budget
        {
            budget.leave(&self.turn);
        }
    }

    /// Returns whether the connection is in the queue.
    #[inline]
    #[doc(hidden)]
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Returns whether the connection is in the queue and memory may be available.
    #[inline]
    #[doc(hidden)]
    pub fn is_called(&self) -> bool {
        self.waits && self.turn.called.load(SeqCst)
    }

    /// Registers `waker`, to be woken when the connection is called. Has no effect outside of the queue.
    #[inline]
    #[doc(hidden)]
    pub fn wait(&self, waker: &Waker) {
        if self.waits {
            self.register(waker);
        }
    }

    fn register(&self, waker: &Waker) {
        *self.turn.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        // The connection may have been called before the waker was registered.
        if self.is_called() {
            waker.wake_by_ref();
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}

impl fmt::Debug for MemoryShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryShare").field("budget", &self.budget).field("waits", &self.waits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        sync::atomic::Ordering::Relaxed,
        task::Wake,
        thread::{self, Thread},
        time::Duration,
    };

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn without_a_budget_nothing_is_limited() {
        let mut share = MemoryShare::default();
        assert_eq!(share.take(u64::MAX).unwrap().bytes(), 0);
        assert!(!share.waits());
    }

    #[test]
    fn charged_memory_is_returned() {
        let budget = MemoryBudget::new(100);
        let mut share = MemoryShare::of(Some(Arc::clone(&budget)));
        let (mut a, b) = (share.take(60).unwrap(), share.take(40).unwrap());
        assert_eq!((budget.held(), a.bytes(), b.bytes()), (100, 60, 40));
        a.shrink(10);
        a.shrink(30);
        assert_eq!((budget.held(), a.bytes()), (50, 10));
        let mut over = share.overcommit(900);
        over.absorb(share.overcommit(100));
        over.absorb(BudgetCharge::default());
        drop((a, b));
        assert_eq!(budget.held(), 1000);
        drop(over);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn the_first_in_the_queue_takes_first() {
        let budget = MemoryBudget::new(100);
        let share = || MemoryShare::of(Some(Arc::clone(&budget)));
        let (mut a, mut b, mut c) = (share(), share(), share());
        let woken: [Arc<Woken>; 2] = Default::default();
        let most = a.take(90).unwrap();
        assert!(b.take(100).is_none() && b.waits());
        b.wait(&Waker::from(Arc::clone(&woken[0])));
        // Memory is available, but another connection waits.
        assert!(c.take(10).is_none());
        c.wait(&Waker::from(Arc::clone(&woken[1])));
        assert_eq!(budget.waiting(), 2);
        let count = || [woken[0].0.load(Relaxed), woken[1].0.load(Relaxed)];
        assert_eq!(count(), [0, 0]);
        drop(most);
        assert_eq!(count(), [1, 0]);
        assert!(b.is_called() && !c.is_called() && c.take(10).is_none());
        let all = b.take(100).unwrap();
        assert!(!b.waits() && c.is_called(), "c is first in the queue");
        assert_eq!(count(), [1, 1]);
        assert!(c.take(10).is_none() && !c.is_called());
        c.wait(&Waker::from(Arc::clone(&woken[1])));
        drop(all);
        assert_eq!(count(), [1, 2]);
        assert_eq!(c.take(10).unwrap().bytes(), 10);
        assert_eq!((budget.held(), budget.waiting()), (0, 0));
    }

    #[test]
    fn a_dropped_waiter_does_not_block_the_queue() {
        let budget = MemoryBudget::new(100);
        let share = || MemoryShare::of(Some(Arc::clone(&budget)));
        let (mut a, mut b, mut c) = (share(), share(), share());
        let most = a.take(90).unwrap();
        assert!(b.take(50).is_none() && c.take(10).is_none());
        drop(b);
        assert!(c.is_called());
        assert_eq!(c.take(10).unwrap().bytes(), 10);
        drop(most);
        assert_eq!((budget.held(), budget.waiting()), (0, 0));
    }

    /// Every thread gets its turn, and the limit holds, for any interleaving.
    #[test]
    fn threads_take_turns() {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let budget = MemoryBudget::new(100);
        let threads: Vec<_> = (0..4_u64)
            .map(|nth| {
                let budget = Arc::clone(&budget);
                thread::spawn(move || {
                    let mut share = MemoryShare::of(Some(Arc::clone(&budget)));
                    let waker = Waker::from(Arc::new(Unpark(thread::current())));
                    for round in 0..5000 {
                        let bytes = (nth * 31 + round * 7) % 101;
                        let charge = loop {
                            if let Some(charge) = share.take(bytes) {
                                break charge;
                            }
                            share.wait(&waker);
                            while !share.is_called() {
                                // Far longer than a turn takes, so that a lost notification fails the test.
                                let started = std::time::Instant::now();
                                thread::park_timeout(Duration::from_secs(20));
                                assert!(started.elapsed() < Duration::from_secs(15), "the connection was not called");
                            }
                        };
                        assert!(budget.held() <= 100);
                        drop(charge);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!((budget.held(), budget.waiting()), (0, 0));
    }
}
