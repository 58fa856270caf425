//! The shutdowns of a server, which its tasks wait for.

use std::{sync::Arc, time::Duration};

use super::sync::{Changes, Mutex, MutexGuard, PoisonError};

/// The shutdowns of a server so far.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Shutdowns {
    /// Number of calls of [`ServerHandle::shutdown_within`](super::ServerHandle::shutdown_within).
    pub(super) count: u64,
    /// The grace period of the last shutdown. `None` before the first shutdown.
    pub(super) grace: Option<Duration>,
    /// `true` after the state of the server was dropped.
    is_over: bool,
}

/// The signal by which the tasks of a server learn of shutdowns. The tasks continue in the order in which they began to
/// wait.
#[derive(Debug, Default)]
pub(super) struct ShutdownSignal {
    shutdowns: Mutex<Shutdowns>,
    changes: Changes,
}

impl ShutdownSignal {
    fn lock(&self) -> MutexGuard<'_, Shutdowns> {
        self.shutdowns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shutdowns so far.
    pub(super) fn shutdowns(&self) -> Shutdowns {
        *self.lock()
    }

    /// Begins a shutdown, even if one is in progress.
    pub(super) fn shut_down(&self, grace: Duration) {
        {
            let mut shutdowns = self.lock();
            shutdowns.count += 1;
            shutdowns.grace = Some(grace);
        }
        self.changes.notify();
    }

    /// Waits until more than `count` shutdowns have begun. Returns the shutdowns so far.
    pub(super) async fn after(&self, count: u64) -> Shutdowns {
        self.changes.find(|| Some(self.shutdowns()).filter(|shutdowns| shutdowns.count > count)).await
    }

    /// Waits for a shutdown. Returns `false` if the state of the server is dropped first.
    pub(super) async fn begun(&self) -> bool {
        self.changes
            .find(|| {
                let shutdowns = self.shutdowns();
                (shutdowns.count > 0 || shutdowns.is_over).then_some(shutdowns.count > 0)
            })
            .await
    }
}

/// The signal in the state of a server. Dropping it ends the waits of [`ShutdownSignal::begun`].
#[derive(Debug, Default)]
pub(super) struct OwnedSignal(Arc<ShutdownSignal>);

impl OwnedSignal {
    /// Returns the signal in a form that does not keep the state of the server alive.
    pub(super) fn share(&self) -> Arc<ShutdownSignal> {
        Arc::clone(&self.0)
    }
}

impl std::ops::Deref for OwnedSignal {
    type Target = ShutdownSignal;

    fn deref(&self) -> &ShutdownSignal {
        &self.0
    }
}

impl Drop for OwnedSignal {
    fn drop(&mut self) {
        self.lock().is_over = true;
        self.changes.notify();
    }
}
