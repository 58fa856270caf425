//! Memory that handlers take for results.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use rustc_hash::FxHashMap;

use crate::{engine::ReplyToken, memory::BudgetCharge};

/// The memory for the results of a connection's calls, from the time that a handler takes it until the reply has been
/// sent.
#[derive(Debug, Default)]
pub(crate) struct ResultReservations {
    /// Number of calls with memory, so that a reply costs little if no call has memory.
    calls: AtomicUsize,
    state: Mutex<ReservationState>,
}

#[derive(Debug, Default)]
struct ReservationState {
    held: FxHashMap<u64, BudgetCharge>,
    is_closed: bool,
}

impl ResultReservations {
    fn state(&self) -> MutexGuard<'_, ReservationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds memory until the call has been answered. Returns `false`, and releases the memory, if the connection is
    /// closed.
    pub(super) fn hold(&self, call: ReplyToken, charge: BudgetCharge) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.held.entry(call.0).or_default().absorb(charge);
        self.calls.store(state.held.len(), Ordering::Release);
        true
    }

    /// Reduces the memory that a call holds to `bytes`. Has no effect if the call holds less.
    pub(super) fn shrink(&self, call: ReplyToken, bytes: u64) {
        if let Some(charge) = self.state().held.get_mut(&call.0) {
            charge.shrink(bytes);
        }
    }

    /// Releases the memory of a call whose reply has been sent, or never will be.
    #[inline]
    pub(super) fn release(&self, call: ReplyToken) {
        if self.calls.load(Ordering::Acquire) > 0 {
            let mut state = self.state();
            let charge = state.held.remove(&call.0);
            self.calls.store(state.held.len(), Ordering::Release);
            drop(state);
            drop(charge);
        }
    }

    /// Releases the memory of all calls. Later calls get no memory.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        let held = std::mem::take(&mut state.held);
        drop(state);
        drop(held);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future as _,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;
    use crate::memory::{MemoryAccount, MemoryBudget};

    fn take(account: &MemoryAccount, bytes: u64) -> BudgetCharge {
        let turn = account.take_results(bytes).expect("less than the limit");
        match pin!(turn).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(charge) => charge,
            Poll::Pending => panic!("memory is free"),
        }
    }

    /// A call holds all memory that was taken for it, until the call is answered.
    #[test]
    fn calls_hold_memory_until_their_end() {
        let budget = MemoryBudget::new(1 << 20);
        let account = budget.account(1);
        let reservations = ResultReservations::default();
        for call in [1, 2] {
            assert!(reservations.hold(ReplyToken(call), take(&account, 300)));
            assert!(reservations.hold(ReplyToken(call), take(&account, 200)));
            assert_eq!(budget.held(), 500);
            reservations.release(ReplyToken(call + 1));
            assert_eq!(budget.held(), 500);
            reservations.release(ReplyToken(call));
            assert_eq!(budget.held(), 0);
        }
    }

    #[test]
    fn calls_of_a_closed_connection_hold_nothing() {
        let budget = MemoryBudget::new(1 << 20);
        let account = budget.account(1);
        let reservations = ResultReservations::default();
        assert!(reservations.hold(ReplyToken(1), take(&account, 1000)));
        assert!(reservations.hold(ReplyToken(2), take(&account, 500)));
        reservations.shrink(ReplyToken(1), 200);
        reservations.shrink(ReplyToken(2), 5000);
        reservations.shrink(ReplyToken(3), 0);
        assert_eq!(budget.held(), 700);
        reservations.release(ReplyToken(2));
        assert_eq!(budget.held(), 200);
        reservations.close();
        assert_eq!(budget.held(), 0);
        assert!(!reservations.hold(ReplyToken(3), take(&account, 1000)));
        assert_eq!(budget.held(), 0);
    }
}
