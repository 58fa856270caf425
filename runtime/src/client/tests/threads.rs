//! Tests in random interleavings chosen by `shuttle`: calls that wait for a connection, silent connections, and the
//! states of endpoints.

// These modules are compiled twice, and parts of them are used only in one of the two places.
#![allow(clippy::duplicate_mod, clippy::unwrap_used, dead_code)]

#[cfg(feature = "discover")]
#[path = "../service/health.rs"]
mod health;
#[path = "../reconnection.rs"]
mod reconnection;
#[path = "../silence.rs"]
mod silence;

use std::sync::Arc;

use shuttle::{
    future::block_on,
    thread::{self, JoinHandle},
};

use self::{
    reconnection::{Reconnection, ReconnectionState},
    silence::{Silence, WatchedCall},
    sync::{AtomicBool, AtomicUsize, Changes, Mutex, Ordering::SeqCst},
};
use crate::{
    client::{
        error::{self, CallError, Retries},
        reconnect::{self, Reconnect},
    },
    engine::CallFailure,
    sync::model::{self as sync, check, give_up},
};

/// A model of the only member of a pool.
#[derive(Default)]
struct Member {
    is_connected: AtomicBool,
    is_closed: AtomicBool,
    /// Number of connections that are lost as soon as they are established.
    losses: AtomicUsize,
    reconnection: Arc<ReconnectionState>,
    changes: Arc<Changes>,
    attempts: Mutex<Vec<JoinHandle<()>>>,
}

impl Member {
    fn new(losses: usize) -> Arc<Self> {
        Arc::new(Self { losses: AtomicUsize::new(losses), ..Self::default() })
    }

    /// Returns `Some(true)` if the member is connected, and `Some(false)` if it never connects again. Otherwise, starts
    /// to connect it in a new thread, unless an attempt is in progress, and returns `None`.
    fn look(self: &Arc<Self>) -> Option<bool> {
        if self.is_connected.load(SeqCst) {
            return Some(true);
        }
        if self.is_closed.load(SeqCst) {
            return Some(false);
        }
        if let Some(attempt) = self.reconnection.begin(&self.changes) {
            let member = Arc::clone(self);
            let attempt = thread::spawn(move || member.connect(attempt));
            self.attempts.lock().unwrap().push(attempt);
        }
        None
    }

    fn connect(&self, attempt: Reconnection) {
        if !self.is_closed.load(SeqCst) {
            self.is_connected.store(true, SeqCst);
            if self.losses.load(SeqCst) > 0 {
                self.losses.fetch_sub(1, SeqCst);
                self.is_connected.store(false, SeqCst);
            }
        }
        drop(attempt);
    }

    fn waits(self: &Arc<Self>) -> JoinHandle<bool> {
        let member = Arc::clone(self);
        thread::spawn(move || block_on(member.changes.find(|| member.look())))
    }

    fn gives_up(self: &Arc<Self>, polls: usize) -> JoinHandle<()> {
        let member = Arc::clone(self);
        thread::spawn(move || {
            block_on(give_up(member.changes.find(|| member.look()), polls));
        })
    }

    /// Waits for the attempts that were begun, and checks that no attempt is running.
    fn end(&self) {
        loop {
            let attempts = std::mem::take(&mut *self.attempts.lock().unwrap());
            if attempts.is_empty() {
                break;
            }
            attempts.into_iter().for_each(|attempt| attempt.join().unwrap());
        }
        assert!(self.reconnection.begin(&self.changes).is_some());
    }
}

/// Calls that wait for a connection of a pool get one, although the first two connections are lost at once and another
/// call is cancelled.
#[test]
fn calls_wait_for_a_connection() {
    check(|| {
        let member = Member::new(2);
        let waiting = [member.waits(), member.waits()];
        let cancelled = member.gives_up(1);
        assert_eq!(waiting.map(|call| call.join().unwrap()), [true; 2]);
        cancelled.join().unwrap();
        member.end();
    });
}

/// When a pool is closed, all calls that wait for one of its connections stop waiting.
#[test]
fn calls_learn_that_a_pool_is_closed() {
    check(|| {
        let member = Member::new(usize::MAX);
        let waiting = [member.waits(), member.waits()];
        let cancelled = member.gives_up(2);
        member.is_closed.store(true, SeqCst);
        for call in waiting {
            call.join().unwrap();
        }
        cancelled.join().unwrap();
        member.end();
    });
}

/// Begins `N` calls on the connection that `silence` watches.
fn watched<const N: usize>(silence: &Arc<Silence>) -> [WatchedCall<Arc<Silence>>; N] {
    [(); N].map(|()| WatchedCall::new(Arc::clone(silence)))
}

/// Ends a call in a new thread, with a reply or because it has reached its deadline.
fn ends(call: WatchedCall<Arc<Silence>>, has_reply: bool) -> JoinHandle<()> {
    let failure = CallFailure::DeadlineExceeded { sent: true };
    let late = CallError::Transport { procedure: "late", failure, retries: Retries::default() };
    let result = if has_reply { Ok(()) } else { Err(late) };
    thread::spawn(move || call.end(&result))
}

/// A connection that replied to one of several calls is not silent, whatever the order in which they end.
#[test]
fn a_connection_with_replies_is_not_silent() {
    check(|| {
        let silence = Arc::new(Silence::new(Reconnect::on_demand()));
        WatchedCall::new(&*silence).end(&Ok(()));
        let [late, replies, later] = watched(&silence);
        let threads = [ends(late, false), ends(replies, true), ends(later, false)];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(silence.until(tokio::time::Instant::now()).is_none());
    });
}

/// A reply wakes endpoints that wait for the end of a silence. The clock does not advance, so nothing else ends the
/// silence.
#[cfg(feature = "tower")]
#[test]
fn a_reply_wakes_endpoints() {
    let _entered = sync::enter_runtime();
    check(|| {
        let silence = Arc::new(Silence::new(Reconnect::on_demand()));
        let [replies, late] = watched(&silence);
        let (replies, late) = (ends(replies, true), ends(late, false));
        let waiting = [(), ()].map(|()| {
            let silence = Arc::clone(&silence);
            thread::spawn(move || block_on(silence.passed()))
        });
        let cancelled = {
            let silence = Arc::clone(&silence);
            thread::spawn(move || {
                block_on(give_up(silence.passed(), 1));
            })
        };
        [replies, late, cancelled].into_iter().chain(waiting).for_each(|thread| thread.join().unwrap());
        assert!(silence.until(tokio::time::Instant::now()).is_none());
    });
}

/// The list of endpoints learns the final state of each endpoint, even if the list moves to another task.
#[cfg(feature = "discover")]
#[test]
fn the_list_learns_the_states_of_endpoints() {
    use std::{future::poll_fn, task::Poll};

    use self::health::{EndpointFailure, EndpointHealth, HealthEvents, HealthState};

    const LAST: [HealthState; 3] = [HealthState::Failed, HealthState::Usable, HealthState::Ended];

    struct List {
        events: Arc<HealthEvents>,
        endpoints: [Arc<EndpointHealth>; 3],
        /// The state of each endpoint that the list saw last.
        seen: [HealthState; 3],
    }

    impl List {
        async fn learns_the_last(&mut self) {
            poll_fn(|cx| {
                while self.events.take(cx) {
                    self.seen = self.endpoints.each_ref().map(|endpoint| endpoint.state());
                }
                if self.seen == LAST { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    }

    check(|| {
        let events = Arc::<HealthEvents>::default();
        let new = |url| Arc::new(EndpointHealth::new(Arc::from(url), 0, 1, Arc::clone(&events)));
        let endpoints = ["a", "b", "c"].map(new);
        let mut list =
            List { events: Arc::clone(&events), endpoints: endpoints.clone(), seen: [HealthState::Connecting; 3] };
        let changes: [fn(&EndpointHealth); 3] = [
            |endpoint| {
                endpoint.usable();
                endpoint.failed(EndpointFailure::Silent);
            },
            |endpoint| {
                endpoint.failed(EndpointFailure::Silent);
                endpoint.usable();
            },
            EndpointHealth::ended,
        ];
        let mut threads = Vec::new();
        for (endpoint, change) in endpoints.into_iter().zip(changes) {
            threads.push(thread::spawn(move || change(&endpoint)));
        }
        let first = thread::spawn(move || {
            block_on(give_up(list.learns_the_last(), 1));
            list
        });
        let mut list = first.join().unwrap();
        block_on(list.learns_the_last());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
