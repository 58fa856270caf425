//! The access of one connection to a memory budget, and the memory charged to it.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use super::{
    limit::MemoryBudget,
    state::{BudgetParts, BudgetWaiter, MemoryUse},
};

/// The account of one connection of a host. Clones refer to the same account.
#[derive(Clone)]
#[doc(hidden)]
pub struct MemoryAccount(Arc<AccountOwner>);

/// The owner of an open account. Closes the account on drop.
struct AccountOwner {
    budget: Arc<MemoryBudget>,
    host: u128,
    id: u64,
}

impl Drop for AccountOwner {
    fn drop(&mut self) {
        self.budget.change(|state, _| state.close(self.host, self.id));
    }
}

impl MemoryBudget {
    /// Opens the account of a connection of `host`. All accounts of a `host` share the memory that one host may take.
    #[doc(hidden)]
    pub fn account(self: &Arc<Self>, host: u128) -> MemoryAccount {
        MemoryAccount::open(self, host)
    }
}

impl MemoryAccount {
    pub(super) fn open(budget: &Arc<MemoryBudget>, host: u128) -> Self {
        let id = budget.change(|state, _| state.open(host));
        Self(Arc::new(AccountOwner { budget: Arc::clone(budget), host, id }))
    }

    /// Returns the budget of the account.
    #[doc(hidden)]
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.0.budget
    }

    /// Returns a future that takes `bytes` for the results of a call, at most [`MemoryBudget::max_of_call`]. It waits
    /// only for memory that other results hold.
    ///
    /// # Errors
    /// Fails if `bytes` is larger than the maximum. The error is the maximum in bytes.
    #[doc(hidden)]
    pub fn take_results(&self, bytes: u64) -> Result<MemoryTurn, u64> {
        let most = self.budget().max_of_call();
        if bytes > most {
            return Err(most);
        }
        Ok(MemoryTurn { account: self.clone(), bytes, waiter: None })
    }

    fn charge(&self, parts: BudgetParts) -> BudgetCharge {
        BudgetCharge(Some(HeldMemory { account: self.clone(), parts }))
    }

    fn take_now(&self, bytes: u64, usage: MemoryUse) -> Option<BudgetCharge> {
        let AccountOwner { budget, host, id } = &*self.0;
        let parts = budget.change(|state, _| state.take_now(*host, *id, bytes, usage))?;
        Some(self.charge(parts))
    }

    /// Takes `bytes` if they are available. Otherwise, stores a queued waiter in `waiter` and returns `None`. The first
    /// call after the waiter was granted the memory takes this memory.
    fn take_in_turn(
        &self,
        waiter: &mut Option<Arc<BudgetWaiter>>,
        bytes: u64,
        usage: MemoryUse,
    ) -> Option<BudgetCharge> {
        if waiter.is_none() {
            if let Some(charge) = self.take_now(bytes, usage) {
                return Some(charge);
            }
            *waiter = Some(self.enqueue(bytes, usage));
        }
        let granted = waiter.take_if(|waiter| waiter.is_granted())?;
        Some(self.charge(granted.granted()))
    }

    fn enqueue(&self, bytes: u64, usage: MemoryUse) -> Arc<BudgetWaiter> {
        let AccountOwner { budget, host, id } = &*self.0;
        let waiter = BudgetWaiter::new(bytes, usage);
        budget.change(|state, wakers| state.enqueue(*host, *id, &waiter, wakers));
        if !waiter.is_granted() {
            tracing::debug!(bytes, held = budget.held(), limit = budget.limit(), "a call waits for memory");
        }
        waiter
    }

    /// Removes `waiter` from the queue. If its memory was granted already, returns this memory to the budget.
    fn leave(&self, waiter: &Arc<BudgetWaiter>) {
        let AccountOwner { budget, host, id } = &*self.0;
        budget.change(|state, wakers| {
            if waiter.is_granted() {
                state.give_back(*host, *id, waiter.granted(), wakers);
            } else {
                state.leave(*host, *id, waiter, wakers);
            }
        });
    }
}

impl fmt::Debug for MemoryAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryAccount").field("budget", self.budget()).finish_non_exhaustive()
    }
}

/// Memory charged to a budget, returned on drop.
#[derive(Default)]
#[doc(hidden)]
pub struct BudgetCharge(Option<HeldMemory>);

struct HeldMemory {
    account: MemoryAccount,
    parts: BudgetParts,
}

impl HeldMemory {
    fn give_back(&self, parts: BudgetParts) {
        let AccountOwner { budget, host, id } = &*self.account.0;
        budget.change(|state, wakers| state.give_back(*host, *id, parts, wakers));
    }
}

impl BudgetCharge {
    /// Returns the charged memory in bytes; 0 without a budget.
    #[doc(hidden)]
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |held| held.parts.total())
    }

    /// Merges another charge of the same connection, for the same use, into this one.
    #[doc(hidden)]
    pub fn absorb(&mut self, mut other: Self) {
        match (&mut self.0, other.0.take()) {
            (Some(held), Some(more)) => {
                held.parts.add(more.parts);
            }
            (none, more) => *none = none.take().or(more),
        }
    }

    /// Returns the memory above `bytes` to the budget.
    #[doc(hidden)]
    pub fn shrink(&mut self, bytes: u64) {
        let Some(held) = &mut self.0 else { return };
        let more = held.parts.total().saturating_sub(bytes);
        if more > 0 {
            let returned = held.parts.split(more);
            held.give_back(returned);
        }
    }
}

impl Drop for BudgetCharge {
    fn drop(&mut self) {
        if let Some(held) = &self.0 {
            held.give_back(held.parts);
        }
    }
}

impl fmt::Debug for BudgetCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BudgetCharge").field(&self.bytes()).finish()
    }
}

/// A future that takes memory for the results of a call when its turn comes. Dropping it gives up the turn.
#[derive(Debug)]
#[doc(hidden)]
pub struct MemoryTurn {
    account: MemoryAccount,
    bytes: u64,
    waiter: Option<Arc<BudgetWaiter>>,
}

impl Future for MemoryTurn {
    type Output = BudgetCharge;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BudgetCharge> {
        let Self { account, bytes, waiter } = &mut *self;
        if let Some(charge) = account.take_in_turn(waiter, *bytes, MemoryUse::Results) {
            return Poll::Ready(charge);
        }
        if let Some(waiter) = waiter {
            waiter.wait(cx.waker());
        }
        Poll::Pending
    }
}

impl Drop for MemoryTurn {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter {
            self.account.leave(waiter);
        }
    }
}

/// One connection's access to a memory budget, for the arguments of calls. Without a budget, nothing is limited.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct MemoryShare {
    account: Option<MemoryAccount>,
    /// The place of the connection in the queue for memory, while the connection waits.
    waiter: Option<Arc<BudgetWaiter>>,
}

impl MemoryShare {
    #[doc(hidden)]
    pub fn of(account: Option<MemoryAccount>) -> Self {
        Self { account, waiter: None }
    }

    /// Returns `true` if there is a budget.
    #[inline]
    #[doc(hidden)]
    pub fn is_limited(&self) -> bool {
        self.account.is_some()
    }

    /// Takes `bytes`, or [`MemoryBudget::max_of_call`] if `bytes` is larger. Returns `None` if they are not available.
    /// The connection then waits for them. It calls this function again with the same amount when
    /// [`is_called`](Self::is_called) returns `true`.
    #[doc(hidden)]
    pub fn take(&mut self, bytes: u64) -> Option<BudgetCharge> {
        let Some(account) = self.account.clone() else { return Some(BudgetCharge::default()) };
        // A larger amount would wait for ever.
        let bytes = bytes.min(account.budget().max_of_call());
        if self.waiter.as_ref().is_some_and(|waiter| waiter.bytes != bytes) {
            self.stop_waiting();
        }
        account.take_in_turn(&mut self.waiter, bytes, MemoryUse::Arguments)
    }

    /// Takes `bytes` if they are available without waiting.
    #[doc(hidden)]
    pub fn take_now(&self, bytes: u64) -> Option<BudgetCharge> {
        let Some(account) = &self.account else { return Some(BudgetCharge::default()) };
        account.take_now(bytes, MemoryUse::Arguments)
    }

    /// Takes `bytes` for a use that cannot wait, even beyond the limit.
    #[doc(hidden)]
    pub fn overcommit(&self, bytes: u64) -> BudgetCharge {
        let Some(account) = &self.account else { return BudgetCharge::default() };
        let AccountOwner { budget, host, id } = &*account.0;
        let parts = BudgetParts::main(bytes, MemoryUse::Arguments);
        budget.change(|state, _| state.add(*host, *id, parts));
        account.charge(parts)
    }

    /// Stops waiting for memory. Has no effect unless the connection waits.
    #[doc(hidden)]
    pub fn stop_waiting(&mut self) {
        if let Some((waiter, account)) = self.waiter.take().zip(self.account.as_ref()) {
            account.leave(&waiter);
        }
    }

    /// Returns `true` while the connection waits for memory.
    #[inline]
    #[doc(hidden)]
    pub fn waits(&self) -> bool {
        self.waiter.is_some()
    }

    /// Returns `true` if the memory that the connection waits for was granted.
    #[inline]
    #[doc(hidden)]
    pub fn is_called(&self) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.is_granted())
    }

    /// Registers `waker`, which is woken when the memory that the connection waits for is granted. Has no effect unless
    /// the connection waits.
    #[inline]
    #[doc(hidden)]
    pub fn wait(&self, waker: &Waker) {
        if let Some(waiter) = &self.waiter {
            waiter.wait(waker);
        }
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.stop_waiting();
    }
}
