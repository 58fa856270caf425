//! The calls that a server has accepted, and the order in which a server with limits starts their handlers.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rpcrdma::{
    security::{Authentication, Authenticator, ReceivedCall},
    service::Procedure as _,
};

use crate::{
    network::{Host, Network},
    protocol::simulated_v1::{Add, PROGRAM},
};

/// Maximum number of calls of one client that start while the first call of another client waits and may start.
const MAX_PASSED: u32 = 3;
/// The flavor of calls with protected bodies (RFC 2203 §3).
const RPCSEC_GSS: u32 = 6;
/// Maximum length in bytes of a protected body that the server decrypts or verifies in the task of the call. While a
/// longer body of a security context is in progress, its short bodies also wait for another thread.
const MAX_SMALL_BODY: usize = 4096;

/// The calls of a client that have arrived and have not started.
#[derive(Debug, Default)]
struct WaitingClient {
    calls: VecDeque<(SocketAddr, u32)>,
    /// Number of calls that each other client has started since the latest start of a call of this client, or since the
    /// first of `calls` arrived.
    passed: BTreeMap<Host, u32>,
}

#[derive(Debug, Default)]
struct QueueState {
    clients: BTreeMap<Host, WaitingClient>,
    /// Number of accepted calls whose handlers have not started, by the address of the connection and the XID.
    accepted: BTreeMap<(SocketAddr, u32), u32>,
}

/// The calls that wait at a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Queues {
    /// `true` to check the order. The check is off in runs that lose connections or give up calls, because calls that
    /// are lost or given up leave the server's queues without notice.
    checks_order: bool,
    state: Arc<Mutex<QueueState>>,
}

impl Queues {
    /// Creates queues without calls.
    #[must_use]
    pub fn new(checks_order: bool) -> Self {
        Self { checks_order, state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that the filter of the authenticator has accepted. `is_queued` is `true` if the server's limits
    /// apply to the call, so that the order of its start is checked.
    fn accept(&self, from: SocketAddr, xid: u32, is_queued: bool) {
        let mut state = self.lock();
        *state.accepted.entry((from, xid)).or_default() += 1;
        if self.checks_order && is_queued {
            let waiting = state.clients.entry(Network::host(from)).or_default();
            if waiting.calls.is_empty() {
                waiting.passed.clear();
            }
            waiting.calls.push_back((from, xid));
        }
    }

    /// Records that the handler of a call starts, and checks the order of the calls. `has_room` returns `true` if
    /// another handler of a client may start.
    ///
    /// # Errors
    /// Returns an error if no filter has accepted the call, or if other calls should have started before.
    pub(crate) fn start(&self, from: SocketAddr, xid: u32, has_room: impl Fn(Host) -> bool) -> Result<(), String> {
        let client = Network::host(from);
        let mut state = self.lock();
        match state.accepted.get_mut(&(from, xid)) {
            Some(count) if *count > 0 => *count -= 1,
            _ => return Err(format!("call {xid:#x} of client {client} was executed, but the filter has not seen it")),
        }
        if !self.checks_order {
            return Ok(());
        }
        let mut wrong = None;
        if let Some(own) = state.clients.get_mut(&client) {
            own.passed.clear();
            let mut of_connection = own.calls.iter().filter(|(addr, _)| *addr == from);
            // `None` if the call was not noted.
            let earlier = of_connection.position(|(_, other)| *other == xid);
            if let Some(earlier @ 1..) = earlier {
                wrong =
                    Some(format!("call {xid:#x} of client {client} starts before {earlier} that arrived before it"));
            }
            own.calls.retain(|call| *call != (from, xid));
        }
        let waits =
            |other: &Host, waiting: &WaitingClient| *other != client && !waiting.calls.is_empty() && has_room(*other);
        for (other, waiting) in state.clients.iter_mut().filter(|(other, waiting)| waits(other, waiting)) {
            let passed = waiting.passed.entry(client).or_default();
            *passed += 1;
            if *passed > MAX_PASSED {
                wrong = Some(format!("client {client} starts {passed} calls while those of client {other} wait"));
            }
        }
        wrong.map_or(Ok(()), Err)
    }
}

/// An authenticator that decides like `inner`. Its filter notes the accepted calls in `queues`.
#[derive(Debug)]
pub(crate) struct NotingAuthenticator<A> {
    pub(crate) inner: A,
    pub(crate) queues: Queues,
}

impl<A: Authenticator> Authenticator for NotingAuthenticator<A> {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        let (header, from) = (call.header, call.peer_addr);
        let decision = self.inner.authenticate(call);
        // Limits do not apply to NULL. An addition waits for the store of replies before it waits for a handler, and a
        // call with a large protected body for another thread, which opens it.
        let is_large = header.credential.flavor == RPCSEC_GSS && call.arguments.len() > MAX_SMALL_BODY;
        let is_queued = header.program == PROGRAM && !matches!(header.procedure, 0 | Add::NUMBER) && !is_large;
        let (queues, xid) = (self.queues.clone(), header.xid);
        decision.filter(move |_| {
            queues.accept(from, xid, is_queued);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(client: u8) -> SocketAddr {
        (Network::ip(client), 40_000).into()
    }

    #[test]
    fn calls_of_a_connection_start_in_order() {
        let queues = Queues::new(true);
        (1..=3).for_each(|xid| queues.accept(addr(100), xid, true));
        assert_eq!(queues.start(addr(100), 1, |_| true), Ok(()));
        assert!(queues.start(addr(100), 3, |_| true).unwrap_err().contains("before 1 that arrived"));
        assert_eq!(queues.start(addr(100), 2, |_| true), Ok(()));
        assert!(queues.start(addr(100), 2, |_| true).unwrap_err().contains("has not seen it"));
        // An addition is not noted in order, so it may start before a call that waits.
        queues.accept(addr(100), 4, true);
        queues.accept(addr(100), 5, false);
        assert_eq!(queues.start(addr(100), 5, |_| true), Ok(()));
        assert_eq!(queues.start(addr(100), 4, |_| true), Ok(()));
    }

    #[test]
    fn clients_take_turns() {
        let queues = Queues::new(true);
        (1..=9).for_each(|xid| queues.accept(addr(100), xid, true));
        queues.accept(addr(101), 1, true);
        for xid in 1..=MAX_PASSED {
            assert_eq!(queues.start(addr(100), xid, |_| true), Ok(()));
        }
        assert!(
            queues.start(addr(100), MAX_PASSED + 1, |_| true).unwrap_err().contains("while those of client 101 wait")
        );
        assert_eq!(queues.start(addr(101), 1, |_| true), Ok(()));
        assert_eq!(queues.start(addr(100), MAX_PASSED + 2, |_| true), Ok(()));
    }

    #[test]
    fn a_client_without_room_is_passed_over() {
        let queues = Queues::new(true);
        (1..=9).for_each(|xid| queues.accept(addr(100), xid, true));
        queues.accept(addr(101), 1, true);
        for xid in 1..=9 {
            assert_eq!(queues.start(addr(100), xid, |client| client != 101), Ok(()));
        }
    }
}
