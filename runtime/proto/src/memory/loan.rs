//! Memory that a call borrows from its caller.

use std::{
    fmt,
    future::poll_fn,
    mem,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
};

use bytes::Bytes;

use super::{LandingMemory, PayloadBuf};

/// A handle to memory that is lent to a call. It gives the memory back to the caller.
///
/// [`new`](Self::new) makes a landing buffer of the memory, for `CallOptions::landing` of the crate `rpcrdma`. The
/// memory comes back when the call no longer uses it and nobody has a view of the result. After a successful call, that
/// is at the latest when the result is dropped. A call that failed before it was sent gives the memory back at once.
/// After any other error, and after a cancellation, the memory comes back when the server can no longer access it. A
/// lost connection ends that access.
///
/// ```
/// use rpcrdma_proto::memory::LandingLoan;
///
/// let (mut landing, loan) = LandingLoan::new(vec![0; 4096]);
/// // A call does the same: RDMA Writes fill the buffer, and the result is a view of it.
/// landing[..5].copy_from_slice(b"hello");
/// landing.truncate(5);
/// let result = landing.freeze();
///
/// let loan = loan.try_take().expect_err("the result is a view of the vector");
/// drop(result);
/// let vector: Vec<u8> = loan.try_take().unwrap();
/// assert_eq!((&vector[..5], vector.len()), (b"hello".as_slice(), 4096));
/// ```
#[must_use]
pub struct LandingLoan<M>(Arc<LoanSlot<M>>);

/// State that a loan shares with the memory that it lent.
struct LoanSlot<M> {
    /// Address range of the memory.
    addresses: Range<usize>,
    state: Mutex<LoanState<M>>,
}

enum LoanState<M> {
    /// The memory is in use. Contains the waker of the task that waits for it.
    Lent(Option<Waker>),
    Returned(M),
}

/// The result of a call in the memory that was lent to the call and has come back.
#[derive(Debug)]
#[non_exhaustive]
pub struct LandedResult<M> {
    /// The memory that was lent.
    pub memory: M,
    /// The part of the memory that contains the result.
    pub range: Range<usize>,
    /// `true` if the result was in other memory and was copied into the lent memory.
    pub is_copied: bool,
}

impl<M: LandingMemory> LandingLoan<M> {
    /// Lends memory. Returns the landing buffer for a call, and the loan by which the memory comes back.
    pub fn new(memory: M) -> (PayloadBuf, Self) {
        let range = memory.as_slice().as_ptr_range();
        let addresses = range.start as usize..range.end as usize;
        let slot = Arc::new(LoanSlot { addresses, state: Mutex::new(LoanState::Lent(None)) });
        let lent = LentMemory { memory: Some(memory), slot: Arc::clone(&slot) };
        (PayloadBuf::from_memory(Box::new(lent)), Self(slot))
    }

    /// Returns the memory.
    ///
    /// # Errors
    /// Returns the loan if the memory is still in use.
    pub fn try_take(self) -> Result<M, Self> {
        let taken = self.0.take().ok();
        taken.ok_or(self)
    }

    /// Waits until the memory is no longer in use, and returns it.
    pub async fn returned(self) -> M {
        poll_fn(|cx| match self.0.take() {
            Ok(memory) => Poll::Ready(memory),
            Err(mut state) => {
                *state = LoanState::Lent(Some(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    /// Waits until the memory is no longer in use, and returns the memory, which then contains the result of the call.
    /// `result` must be the only view of the result, because any other view keeps the memory in use.
    ///
    /// A result that was not placed in the memory is copied into it. The transports for RDMA place eligible results,
    /// unless the bodies of the call are protected or the peer accepts no chunks. Over TCP, nothing is placed.
    ///
    /// # Panics
    /// Panics if the result is longer than the memory, which a result of the call never is.
    pub async fn returned_with(self, result: Bytes) -> LandedResult<M> {
        let start = (result.as_ptr() as usize).checked_sub(self.0.addresses.start);
        let is_within = |start: &usize| start + result.len() <= self.0.addresses.len();
        match start.filter(|_| !result.is_empty()).filter(is_within) {
            Some(start) => {
                let range = start..start + result.len();
                drop(result);
                LandedResult { memory: self.returned().await, range, is_copied: false }
            }
            None => {
                let mut memory = self.returned().await;
                memory.as_mut_slice()[..result.len()].copy_from_slice(&result);
                LandedResult { memory, range: 0..result.len(), is_copied: !result.is_empty() }
            }
        }
    }
}

impl<M> LoanSlot<M> {
    fn state(&self) -> MutexGuard<'_, LoanState<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the memory if it has come back, or else its locked state.
    fn take(&self) -> Result<M, MutexGuard<'_, LoanState<M>>> {
        let mut state = self.state();
        match mem::replace(&mut *state, LoanState::Lent(None)) {
            LoanState::Returned(memory) => Ok(memory),
            LoanState::Lent(_) => Err(state),
        }
    }
}

impl<M> fmt::Debug for LandingLoan<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_returned = matches!(*self.0.state(), LoanState::Returned(_));
        f.debug_struct("LandingLoan").field("is_returned", &is_returned).finish_non_exhaustive()
    }
}

/// Memory on loan. Dropping it gives the memory back.
struct LentMemory<M> {
    /// `None` once the memory has been given back.
    memory: Option<M>,
    slot: Arc<LoanSlot<M>>,
}

impl<M: LandingMemory> LandingMemory for LentMemory<M> {
    fn as_slice(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], LandingMemory::as_slice)
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.as_mut().map_or(&mut [], LandingMemory::as_mut_slice)
    }
}

impl<M> Drop for LentMemory<M> {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // Wakes outside of the lock.
        let before = mem::replace(&mut *self.slot.state(), LoanState::Returned(memory));
        if let LoanState::Lent(Some(waker)) = before {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
        task::{Context, Wake},
    };

    use super::*;
    use crate::memory::AlignedBuf;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Polls a future once.
    fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Returns a view of part of a buffer, as a call does.
    fn placed(mut landing: PayloadBuf, len: usize) -> Bytes {
        landing[..len].fill(7);
        landing.truncate(len);
        landing.freeze()
    }

    #[test]
    fn a_vector_comes_back_whole_when_the_last_view_is_dropped() {
        let mut memory = Vec::with_capacity(1000);
        memory.resize(100, 0);
        let (at, capacity) = (memory.as_ptr(), memory.capacity());
        let (landing, loan) = LandingLoan::new(memory);
        let result = placed(landing, 40);
        let view = result.slice(10..20);
        drop(result);
        let loan = loan.try_take().unwrap_err();
        drop(view);
        let memory = loan.try_take().unwrap();
        assert_eq!((memory.as_ptr(), memory.capacity(), memory.len()), (at, capacity, 100));
        assert_eq!(memory.iter().filter(|&&byte| byte == 7).count(), 40);
    }

    #[test]
    fn waiting_ends_when_the_memory_comes_back() {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut cx = Context::from_waker(&waker);
        let (landing, loan) = LandingLoan::new(vec![0; 10]);
        let mut returned = pin!(loan.returned());
        assert!(returned.as_mut().poll(&mut cx).is_pending());
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        drop(landing);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(returned.poll(&mut cx).is_ready());
    }

    #[test]
    fn results_are_copied_only_from_elsewhere() {
        let memory = AlignedBuf::new(100, 4096);
        let at = memory.as_ptr();
        let (landing, loan) = LandingLoan::new(memory);
        let result = placed(landing, 40).slice(30..);
        let Poll::Ready(landed) = poll(loan.returned_with(result)) else { panic!("it waits") };
        assert_eq!((landed.memory.as_ptr(), landed.range, landed.is_copied), (at, 30..40, false));

        // A result that was not placed, and an empty one.
        for result in [Bytes::from_static(b"elsewhere"), Bytes::new()] {
            let (landing, loan) = LandingLoan::new(vec![0; 100]);
            drop(landing);
            let Poll::Ready(landed) = poll(loan.returned_with(result.clone())) else { panic!("it waits") };
            assert_eq!(landed.memory[landed.range], result);
            assert_eq!(landed.is_copied, !result.is_empty());
        }
    }

    /// A second view keeps the memory in use.
    #[test]
    fn other_views_hold_up_the_return() {
        let (landing, loan) = LandingLoan::new(vec![0; 100].into_boxed_slice());
        let result = placed(landing, 100);
        let view = result.clone();
        let mut returned = pin!(loan.returned_with(result));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(returned.as_mut().poll(&mut cx).is_pending());
        drop(view);
        assert!(returned.poll(&mut cx).is_ready());
    }
}
