//! The health of endpoints. The list of endpoints opens other endpoints in place of those that cannot take calls.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Waker},
};

use tokio::time::Instant;

use super::sync::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, Mutex, MutexGuard, Ordering, PoisonError};
use crate::client::error::ConnectError;

/// The state of an endpoint that is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::client) enum HealthState {
    /// The endpoint connects, and no attempt has failed yet.
    Connecting,
    /// The endpoint takes calls.
    Usable,
    /// The last attempt to connect failed, or the server is silent or not serving.
    Failed,
    /// The endpoint never connects again.
    Ended,
}

/// The state of an endpoint, and the priority and weight that decide its share of the calls.
pub(in crate::client) struct EndpointHealth {
    url: Arc<str>,
    state: AtomicU8,
    /// The time at which the endpoint began to connect.
    since: Mutex<Instant>,
    priority: AtomicU16,
    weight: AtomicU32,
    events: Arc<HealthEvents>,
}

/// The reason why an endpoint takes no calls.
#[derive(Debug, Clone)]
pub(in crate::client) enum EndpointFailure {
    /// The server does not reply to calls.
    Silent,
    /// The server says that it is not serving.
    NotServing,
    NotConnected(ConnectError),
}

/// The last failure of any endpoint in a list.
#[derive(Debug, Clone, Default)]
pub(in crate::client) struct LastFailure {
    pub(in crate::client) url: Option<Arc<str>>,
    pub(in crate::client) failure: Option<EndpointFailure>,
}

/// The changes that endpoints report to their list.
#[derive(Debug, Default)]
pub(in crate::client) struct HealthEvents {
    /// `true` if the state of an endpoint has changed since the last call of [`take`](Self::take).
    has_changed: AtomicBool,
    waker: Mutex<Option<Waker>>,
    last_failure: Mutex<LastFailure>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl HealthEvents {
    /// Returns `true` if the state of an endpoint has changed since the last call. The task of `cx` is woken at the
    /// next change.
    pub(in crate::client) fn take(&self, cx: &Context<'_>) -> bool {
        {
            let mut waker = lock(&self.waker);
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
        }
        self.has_changed.load(Ordering::Acquire) && self.has_changed.swap(false, Ordering::AcqRel)
    }

    pub(in crate::client) fn last_failure(&self) -> LastFailure {
        lock(&self.last_failure).clone()
    }

    /// Records why no endpoint could be opened for the server at `url`. Replaces the last failure.
    pub(in crate::client) fn record(&self, url: &Arc<str>, error: ConnectError) {
        *lock(&self.last_failure) =
            LastFailure { url: Some(Arc::clone(url)), failure: Some(EndpointFailure::NotConnected(error)) };
    }

    fn announce(&self) {
        self.has_changed.store(true, Ordering::Release);
        let waker = lock(&self.waker).clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

impl EndpointHealth {
    pub(in crate::client) fn new(url: Arc<str>, priority: u16, weight: u32, events: Arc<HealthEvents>) -> Self {
        Self {
            url,
            state: AtomicU8::new(HealthState::Connecting as u8),
            since: Mutex::new(Instant::now()),
            priority: AtomicU16::new(priority),
            weight: AtomicU32::new(weight),
            events,
        }
    }

    pub(in crate::client) fn url(&self) -> &str {
        &self.url
    }

    /// Returns the priority and the weight, which decide the server's share of the calls.
    pub(in crate::client) fn share(&self) -> (u16, u32) {
        (self.priority.load(Ordering::Relaxed), self.weight.load(Ordering::Relaxed))
    }

    pub(in crate::client) fn set_share(&self, priority: u16, weight: u32) {
        self.priority.store(priority, Ordering::Relaxed);
        self.weight.store(weight, Ordering::Relaxed);
    }

    pub(in crate::client) fn state(&self) -> HealthState {
        match self.state.load(Ordering::Acquire) {
            0 => HealthState::Connecting,
            1 => HealthState::Usable,
            2 => HealthState::Failed,
            _ => HealthState::Ended,
        }
    }

    /// Returns the time at which the endpoint began to connect.
    pub(in crate::client) fn since(&self) -> Instant {
        *lock(&self.since)
    }

    fn change(&self, state: HealthState) {
        if self.state.swap(state as u8, Ordering::AcqRel) != state as u8 {
            self.events.announce();
        }
    }

    /// Records that the endpoint takes calls.
    pub(in crate::client) fn usable(&self) {
        if self.state.load(Ordering::Relaxed) != HealthState::Usable as u8 {
            self.change(HealthState::Usable);
        }
    }

    /// Records that the endpoint connects again. Has no effect unless the endpoint was usable.
    pub(in crate::client) fn connecting(&self) {
        if self.state() == HealthState::Usable {
            *lock(&self.since) = Instant::now();
            self.change(HealthState::Connecting);
        }
    }

    /// Records that an attempt to connect failed, or that the server is silent or not serving.
    pub(in crate::client) fn failed(&self, failure: EndpointFailure) {
        // The pause after an attempt is not the reason why it failed.
        let failure = match failure {
            EndpointFailure::NotConnected(ConnectError::BackOff { last, .. }) => EndpointFailure::NotConnected(*last),
            failure => failure,
        };
        *lock(&self.events.last_failure) = LastFailure { url: Some(Arc::clone(&self.url)), failure: Some(failure) };
        self.change(HealthState::Failed);
    }

    /// Records that the endpoint never connects again.
    pub(in crate::client) fn ended(&self) {
        self.change(HealthState::Ended);
    }
}

impl fmt::Debug for EndpointHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointHealth").field("url", &self.url).field("state", &self.state()).finish_non_exhaustive()
    }
}
