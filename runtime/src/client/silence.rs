//! Connections that are open, but on which calls get no replies.

use std::{ops::Deref, time::Duration};

use tokio::time::Instant;

#[cfg(feature = "tower")]
use super::sync::Notify;
use super::{
    error::CallError,
    reconnect::Reconnect,
    sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError},
};
use crate::engine::CallFailure;

/// Detects that calls on a connection get no replies. While a pause is in progress, a pool prefers other connections
/// for new calls, and an endpoint is not ready.
#[derive(Debug)]
pub(super) struct Silence {
    /// The shortest and the longest pause.
    pauses: (Duration, Duration),
    /// Number of calls that got a reply.
    replies: AtomicU64,
    /// The end of the latest pause, and its length. `None` before the first pause, and after a reply.
    pause: Mutex<Option<(Instant, Duration)>>,
    /// `true` if `pause` is set, so that a reply does not need the lock otherwise.
    has_pause: AtomicBool,
    /// Notifies waiting tasks when a reply ends a pause.
    #[cfg(feature = "tower")]
    ended: Notify,
}

impl Silence {
    /// Creates the state of a connection that is not silent. Its pauses are as long as the pauses of `reconnect`
    /// between attempts to connect.
    pub(super) fn new(reconnect: Reconnect) -> Self {
        Self {
            pauses: reconnect.pauses(),
            replies: AtomicU64::new(0),
            pause: Mutex::default(),
            has_pause: AtomicBool::new(false),
            #[cfg(feature = "tower")]
            ended: Notify::new(),
        }
    }

    fn pause(&self) -> MutexGuard<'_, Option<(Instant, Duration)>> {
        self.pause.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the end of the pause that is in progress at `now`, if any.
    pub(super) fn until(&self, now: Instant) -> Option<Instant> {
        self.pause().and_then(|(end, _)| (now < end).then_some(end))
    }

    /// Waits for the end of the pause. Needs a tokio runtime.
    #[cfg(feature = "tower")]
    pub(super) async fn passed(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            let Some(end) = self.until(Instant::now()) else { return };
            tokio::select! {
                biased;
                () = ended => {}
                () = tokio::time::sleep_until(end) => {}
            }
        }
    }

    /// Begins a pause because of a call that began at `start`, if no call got a reply since the number of replies was
    /// `replies`. Has no effect if the call began before the end of the latest pause.
    fn no_reply(&self, start: Instant, replies: u64) {
        let mut pause = self.pause();
        // Several calls that were in flight when the silence began prolong it only once.
        if pause.is_some_and(|(end, _)| start < end) {
            return;
        }
        // Set before the replies are read, as `WatchedCall::end` counts its reply before it reads the flag. One of them
        // sees the other.
        self.has_pause.store(true, Ordering::SeqCst);
        if self.replies.load(Ordering::SeqCst) != replies {
            self.has_pause.store(pause.is_some(), Ordering::SeqCst);
            return;
        }
        let (shortest, longest) = self.pauses;
        let len = pause.map_or(shortest, |(_, last)| last.saturating_mul(2)).min(longest);
        *pause = Instant::now().checked_add(len).map(|end| (end, len));
    }

    /// Ends the pause after a reply.
    fn reply(&self) {
        let mut pause = self.pause();
        *pause = None;
        self.has_pause.store(false, Ordering::SeqCst);
        drop(pause);
        #[cfg(feature = "tower")]
        self.ended.notify_waiters();
    }
}

/// A call in flight, which shows whether its connection is silent.
pub(super) struct WatchedCall<S: Deref<Target = Silence>> {
    silence: S,
    start: Instant,
    /// Number of replies when the call began.
    replies: u64,
    /// `true` if the call has ended. Otherwise its caller gave it up.
    has_ended: bool,
}

impl<S: Deref<Target = Silence>> WatchedCall<S> {
    pub(super) fn new(silence: S) -> Self {
        let replies = silence.replies.load(Ordering::Relaxed);
        Self { silence, start: Instant::now(), replies, has_ended: false }
    }

    /// Ends the call. `result` shows whether the server has replied.
    pub(super) fn end<R>(mut self, result: &Result<R, CallError>) {
        self.has_ended = true;
        let is_late = |failure: &CallFailure| matches!(failure, CallFailure::DeadlineExceeded { sent: true });
        match result {
            Err(CallError::Transport { failure, .. }) if is_late(failure) => {
                self.silence.no_reply(self.start, self.replies);
            }
            Ok(_) | Err(CallError::Rpc { .. } | CallError::Decode { .. } | CallError::DirectPlacement { .. }) => {
                self.silence.replies.fetch_add(1, Ordering::SeqCst);
                if self.silence.has_pause.load(Ordering::SeqCst) {
                    self.silence.reply();
                }
            }
            // A local error, for example, says nothing about the server.
            Err(_) => {}
        }
    }
}

impl<S: Deref<Target = Silence>> Drop for WatchedCall<S> {
    fn drop(&mut self) {
        // A time-out of middleware drops the call. A caller who gives up sooner says nothing about the connection.
        if !self.has_ended && self.start.elapsed() >= self.silence.pauses.0 {
            self.silence.no_reply(self.start, self.replies);
        }
    }
}
