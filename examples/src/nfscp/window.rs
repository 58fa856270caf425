//! How many calls carry data at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Admits as many calls as there is room for, by a limit that may change from one to the next.
#[derive(Debug, Default)]
pub struct Window {
    state: Mutex<State>,
    /// Somebody left, or there may be room for another.
    room: Notify,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    inside: usize,
    most: usize,
}

/// A place in the window.
#[derive(Debug)]
pub struct Place<'a>(&'a Window);

impl Window {
    /// Waits until fewer calls than `limit()` are under way.
    pub async fn enter(&self, limit: impl Fn() -> usize) -> Place<'_> {
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
                // One at a time is woken; who gets in wakes the next, so that a limit that has grown is made use of.
                if more {
                    self.room.notify_one();
                }
                return Place(self);
            }
            // A wake-up that comes between the look above and here is kept for who asks next.
            self.room.notified().await;
        }
    }

    /// The most calls that have been under way at a time.
    #[must_use]
    pub fn most(&self) -> usize {
        self.state().most
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
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
    async fn no_more_than_the_limit_and_no_fewer_once_it_grows() {
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
            tokio::time::timeout(std::time::Duration::from_secs(10), task).await.unwrap().unwrap();
        }
        assert!((2..=5).contains(&window.most()), "{window:?}");
        assert_eq!(window.state().inside, 0);
    }
}
