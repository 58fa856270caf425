//! The limit of a memory budget, and the memory currently held.

use std::{fmt, sync::Arc, task::Waker};

use super::{
    state::{self, BudgetState, BudgetWakers},
    sync::{AtomicU64, AtomicUsize, Mutex, Ordering::Relaxed, PoisonError},
};

/// A memory budget: its limit, and the memory currently held, in bytes.
#[doc(hidden)]
pub struct MemoryBudget {
    limit: u64,
    state: Mutex<BudgetState>,
    /// Memory currently held, in bytes. This field and `waiting` copy values of `state`, so that readers need no lock.
    held: AtomicU64,
    waiting: AtomicUsize,
}

impl MemoryBudget {
    #[doc(hidden)]
    pub fn new(limit: u64) -> Arc<Self> {
        let state = Mutex::new(BudgetState::new(limit));
        Arc::new(Self { limit, state, held: AtomicU64::new(0), waiting: AtomicUsize::new(0) })
    }

    /// Returns the limit, in bytes.
    #[doc(hidden)]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the maximum memory for the arguments of one call, in bytes. The maximum for its results is the same.
    #[doc(hidden)]
    pub fn max_of_call(&self) -> u64 {
        state::most_of_call(self.limit)
    }

    /// Returns the memory currently held, in bytes.
    #[doc(hidden)]
    pub fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }

    /// Returns the number of calls and connections that wait for memory.
    #[doc(hidden)]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Applies `change` to the state of the budget, and wakes the waiters that got memory.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut BudgetState, &mut BudgetWakers) -> R) -> R {
        let mut wakers = BudgetWakers::new();
        let result = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let result = change(&mut state, &mut wakers);
            self.held.store(state.held(), Relaxed);
            self.waiting.store(state.waiting(), Relaxed);
            result
        };
        wakers.into_iter().for_each(Waker::wake);
        result
    }
}

impl fmt::Debug for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudget").field("limit", &self.limit).field("held", &self.held()).finish_non_exhaustive()
    }
}
