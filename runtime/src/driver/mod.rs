//! The task that runs a connection.
//!
//! One task owns a connection ([`Core`]): its engine, and the I/O of that ([`EngineIo`]). Others reach it through one
//! queue ([`Port`]), and a caller's result comes back in a slot that is used again. The task posts everything that is
//! ready before it waits for anything.
//!
//! A caller that finds its connection idle does not wake the task: it takes the core's lock, sends in its own task, and has
//! the connection's next event wake itself, so that a lone call switches tasks no more than a bare socket would. While
//! other calls are under way, calls are queued and the task is woken once for all of them, so they share system calls.

mod core;
mod formats;
mod io;
mod port;
mod tcp;
mod timer;

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use tokio::runtime::Handle;
use tracing::Instrument as _;

pub use self::formats::{FormatCounts, Formats};
pub(crate) use self::{
    core::{Answer, Core, DriverConfig, NoUpcalls, Upcalls},
    io::{EngineIo, RdmaIo},
    port::{CallResult, Command, Notify, Port, Slot},
    tcp::TcpIo,
};
use crate::{engine::CloseReason, provider::DisconnectReason};

/// A connection's driver as its users see it, whatever the provider.
pub(crate) trait Drive: Send + Sync {
    /// Does in this task all that can be done without waiting. `false` when somebody else is at it, or the driver's task
    /// has not begun: then it is to be woken.
    fn try_drive(&self) -> bool;

    /// The same, and what the connection does next wakes `waker` instead of the driver's task: for a caller whose call is
    /// the only one, in `slot`. It has to drive whenever it is woken, and to say [`stop_leading`](Self::stop_leading) when it
    /// leaves, or has its result.
    fn try_lead(&self, slot: Slot, waker: &Waker) -> bool;

    /// Hands the connection back to the driver's task.
    fn stop_leading(&self);
}

struct Shared<I: EngineIo, U: Upcalls> {
    core: Mutex<Option<Core<I, U>>>,
    port: Arc<Port>,
    /// A caller has the connection wake it. Set with the core's lock held.
    led: AtomicBool,
    /// The connection's: timers are made in it, and handlers run in it. A caller that drives may be in another one, or in none.
    runtime: Handle,
}

impl<I: EngineIo, U: Upcalls> Shared<I, U> {
    /// In the current runtime.
    fn new(core: Core<I, U>) -> Self {
        let port = Arc::clone(core.port());
        Self { core: Mutex::new(Some(core)), port, led: AtomicBool::new(false), runtime: Handle::current() }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut guard = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(core) = guard.as_mut() else { return Poll::Ready(()) };
        // Callers lead once they know this waker. Told before, one might come in between, and without a timer.
        core.prepare();
        self.port.set_task(cx.waker());
        // A caller that leads does all there is to do, unless others want something or time is up.
        if self.led.load(Ordering::Relaxed) && !self.port.is_notified() && !core.is_due() {
            return Poll::Pending;
        }
        self.led.store(false, Ordering::Relaxed);
        if core.drive(cx, cx.waker(), None).is_ready() {
            *guard = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn drive_from(&self, leader: Option<(Slot, &Waker)>) -> bool {
        let Some(task) = self.port.task() else { return false };
        let Ok(mut guard) = self.core.try_lock() else { return false };
        let Some(core) = guard.as_mut() else { return true };
        let _within = self.runtime.enter();
        self.led.store(leader.is_some(), Ordering::Relaxed);
        // Timers go on waking the driver's task, whoever polls.
        let (slot, waker) = leader.map_or((None, task), |(slot, waker)| (Some(slot), waker));
        if core.drive(&mut Context::from_waker(waker), task, slot).is_ready() {
            *guard = None;
            task.wake_by_ref();
        }
        true
    }
}

impl<I: EngineIo, U: Upcalls> Drive for Shared<I, U> {
    fn try_drive(&self) -> bool {
        self.drive_from(None)
    }

    fn try_lead(&self, slot: Slot, waker: &Waker) -> bool {
        self.drive_from(Some((slot, waker)))
    }

    fn stop_leading(&self) {
        if self.led.swap(false, Ordering::Relaxed) {
            self.port.wake();
        }
    }
}

/// Closes the port when the driver's task goes away for whatever reason: its runtime shut down, or it panicked.
struct CloseOnDrop<I: EngineIo, U: Upcalls>(Arc<Shared<I, U>>);

impl<I: EngineIo, U: Upcalls> Drop for CloseOnDrop<I, U> {
    fn drop(&mut self) {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.port.close(&CloseReason::Disconnected(DisconnectReason::Local));
    }
}

/// Starts the task that runs `core`.
pub(crate) fn spawn<I: EngineIo, U: Upcalls>(core: Core<I, U>, span: tracing::Span) -> Arc<dyn Drive> {
    let shared = Arc::new(Shared::new(core));
    let guard = CloseOnDrop(Arc::clone(&shared));
    tokio::spawn(
        async move {
            poll_fn(|cx| guard.0.poll(cx)).await;
        }
        .instrument(span),
    );
    shared
}

#[cfg(test)]
mod tests;
