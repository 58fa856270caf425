//! A limit on concurrent calls that carry data.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A gate that admits concurrent calls up to a limit, which may change over time.
#[derive(Debug, Default)]
pub struct Window {
    state: Mutex<State>,
    /// Notified when a call ends, or when the limit may allow another call.
    room: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    inside: usize,
    most: usize,
}

/// The place of an admitted call in a [`Window`]. Dropping it makes room for another call.
#[derive(Debug)]
pub struct WindowPlace<'a>(&'a Window);

impl Window {
    /// Waits until the window contains fewer than `limit()` calls, and then admits the caller. A limit of 0 counts as
    /// 1.
    pub async fn enter(&self, limit: impl Fn() -> usize) -> WindowPlace<'_> {
        loop {
            let (entered, more) = {
                let mut state = self.state();
                let limit = limit().max(1);
                let entered = state.inside < limit;
                if entered {
                    state.inside += 1;
                    state.most = state.most.max(state.inside);
                }
                (entered, state.inside < limit)
            };
            if entered {
                // Each admitted call wakes the next one, so that a limit that has grown is used.
                if more {
                    self.room.notify_one();
                }
                return WindowPlace(self);
            }
            // `Notify` stores a wake-up that arrives between the check and this line.
            self.room.notified().await;
        }
    }

    /// Returns the largest number of calls that were admitted at the same time.
    #[must_use]
    pub fn most(&self) -> usize {
        self.state().most
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WindowPlace<'_> {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn calls_are_limited_and_follow_a_growing_limit() {
        let (window, limit) = (Arc::new(Window::default()), Arc::new(AtomicUsize::new(1)));
        let first = window.enter(|| 1).await;
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (window, limit) = (Arc::clone(&window), Arc::clone(&limit));
                tokio::spawn(async move {
                    let _place = window.enter(|| limit.load(Ordering::Relaxed)).await;
                    tokio::task::yield_now().await;
                })
            })
            .collect();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        assert_eq!(window.most(), 1);
        limit.store(5, Ordering::Relaxed);
        drop(first);
        for task in tasks {
            tokio::time::timeout(std::time::Duration::from_secs(60), task).await.unwrap().unwrap();
        }
        assert!((2..=5).contains(&window.most()), "{window:?}");
        assert_eq!(window.state().inside, 0);
    }
}
