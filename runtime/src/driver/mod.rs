//! The task that runs a connection.
//!
//! One task owns engine, queue pair and completions of one connection ([`Core`]). Others reach it through one
//! queue ([`Port`]), and a caller's result comes back in a slot that is used again. The task posts everything that is
//! ready before it waits for anything.
//!
//! A caller that finds its connection idle does not wake the task to send: it takes the core's lock and sends in its
//! own task, so a lone call costs one task switch (the reply's) instead of two. While other calls are under way,
//! calls are queued and the task is woken once for all of them, so they share system calls.

mod core;
mod port;
mod timer;

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use tracing::Instrument as _;

pub(crate) use self::{
    core::{Answer, Core, DriverConfig, NoUpcalls, Upcalls},
    port::{CallResult, Command, Notify, Port, Slot},
};
use crate::{
    engine::CloseReason,
    provider::{DisconnectReason, QueuePair},
};

/// A connection's driver as its users see it, whatever the provider.
pub(crate) trait Drive: Send + Sync {
    /// Does in this task all that can be done without waiting. `false` when the driver's task is at it, or has not
    /// begun: then it is to be woken.
    fn try_drive(&self) -> bool;
}

struct Shared<Q: QueuePair, U: Upcalls> {
    core: Mutex<Option<Core<Q, U>>>,
    port: Arc<Port>,
}

impl<Q: QueuePair, U: Upcalls> Shared<Q, U> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.port.set_task(cx.waker());
        let mut guard = self.core.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(core) = guard.as_mut() else { return Poll::Ready(()) };
        if core.drive(cx).is_ready() {
            *guard = None;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<Q: QueuePair, U: Upcalls> Drive for Shared<Q, U> {
    fn try_drive(&self) -> bool {
        let Some(task) = self.port.task() else { return false };
        let Ok(mut guard) = self.core.try_lock() else { return false };
        let Some(core) = guard.as_mut() else { return true };
        // Readiness and timers go on waking the driver's task, whoever polls.
        if core.drive(&mut Context::from_waker(task)).is_ready() {
            *guard = None;
            task.wake_by_ref();
        }
        true
    }
}

/// Closes the port when the driver's task goes away for whatever reason: its runtime shut down, or it panicked.
struct CloseOnDrop<Q: QueuePair, U: Upcalls>(Arc<Shared<Q, U>>);

impl<Q: QueuePair, U: Upcalls> Drop for CloseOnDrop<Q, U> {
    fn drop(&mut self) {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.0.port.close(&CloseReason::Disconnected(DisconnectReason::Local));
    }
}

/// Starts the task that runs `core`.
pub(crate) fn spawn<Q: QueuePair, U: Upcalls>(core: Core<Q, U>, span: tracing::Span) -> Arc<dyn Drive> {
    let port = Arc::clone(core.port());
    let shared = Arc::new(Shared { core: Mutex::new(Some(core)), port });
    let guard = CloseOnDrop(Arc::clone(&shared));
    tokio::spawn(
        async move {
            poll_fn(|cx| guard.0.poll(cx)).await;
        }
        .instrument(span),
    );
    shared
}
