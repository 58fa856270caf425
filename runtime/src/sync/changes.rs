//! Tasks that wait for a change of shared state.

use std::pin::pin;

use super::Notify;

/// A notifier of tasks that wait for changes of a shared state.
#[derive(Debug, Default)]
pub(crate) struct Changes(Notify);

impl Changes {
    /// Wakes all tasks that wait. Call it after the state was changed.
    pub(crate) fn notify(&self) {
        self.0.notify_waiters();
    }

    /// Waits until `look` returns a value. `look` is called again after each change.
    pub(crate) async fn find<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.0.notified());
            // Enabled before the look, so that a change in between is not lost.
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }
}
