//! Metrics of calls.

use std::{
    fmt,
    mem::ManuallyDrop,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use metrics::counter;

use super::{
    clock::Stopwatch,
    describe,
    procedures::{self, OTHER, SYSTEM, Side},
    threads,
    values::{ProcedureId, Sizes},
};
use crate::{
    driver::{EncodedReply, ReplyOutcome},
    engine::{IncomingCall, IncomingReply, OutgoingCall},
};

/// The kind of error of a call whose future was dropped.
const CANCELLED: &str = "cancelled";

/// The metrics of the calls of a channel or a server, in both directions.
#[derive(Clone)]
pub(crate) struct CallMetrics(Stopwatch);

impl Default for CallMetrics {
    fn default() -> Self {
        Self(Stopwatch::shared().clone())
    }
}

impl fmt::Debug for CallMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMetrics").finish_non_exhaustive()
    }
}

impl CallMetrics {
    /// Starts to measure an outbound call of the procedure `name`.
    #[inline(always)]
    pub(crate) fn client(&self, name: &'static str) -> ClientCall {
        let (request, response) = (AtomicU64::new(0), AtomicU64::new(0));
        ClientCall { method: name, started: self.0.now(), request, response }
    }

    /// Starts to measure an inbound call of a procedure of `service`. `name` returns the name of the procedure.
    #[inline(always)]
    pub(crate) fn server(
        &self,
        service: &ServiceMetrics,
        procedure: u32,
        call: &IncomingCall,
        name: impl FnOnce() -> Option<&'static str>,
    ) -> ServerCall {
        let request = size(call.payload.byte_len(), call.reads(), |chunk| chunk.data.len());
        ServerCall { id: service.find(procedure, name), request, started: self.0.now() }
    }

    /// Records an inbound call that was refused before its service was found.
    pub(crate) fn refused(&self, status: &'static str) {
        let other = threads::procedure(Side::Server, OTHER);
        procedures::record_failure(other, self.0.now(), Sizes { request: 0, response: 0 }, status, true);
    }
}

/// An outbound call in progress.
#[must_use]
pub(crate) struct ClientCall {
    method: &'static str,
    /// Time at which the call began, in ticks.
    started: u64,
    /// Sizes of the call and the reply of the current attempt in bytes, 0 if not known. Atomic, so that the future of a
    /// call can be sent to another thread.
    request: AtomicU64,
    response: AtomicU64,
}

impl ClientCall {
    /// Returns a guard for the time until the call succeeds or fails.
    #[inline(always)]
    pub(crate) fn guard(&self) -> CancelGuard<'_> {
        CancelGuard(self)
    }

    /// Records the size of the call in one attempt.
    #[inline(always)]
    pub(crate) fn sent(&self, call: &OutgoingCall) {
        self.request.store(size(call.message.byte_len(), &call.reduced, |item| item.data.len()), Relaxed);
    }

    /// Records the size of a reply.
    #[inline(always)]
    pub(crate) fn replied(&self, reply: &IncomingReply) {
        self.response.store(size(reply.payload.byte_len(), &reply.writes, |chunk| chunk.data.len()), Relaxed);
    }

    fn sizes(&self) -> Sizes {
        Sizes { request: self.request.load(Relaxed), response: self.response.load(Relaxed) }
    }

    /// Records the sizes of a failed attempt, after which the call is sent again.
    #[cold]
    pub(crate) fn attempt_failed(&self) {
        procedures::record_sizes(threads::procedure(Side::Client, self.method), self.sizes());
        self.request.store(0, Relaxed);
        self.response.store(0, Relaxed);
    }

    /// Records that the channel retries the call after a loss of its connection.
    #[cold]
    pub(crate) fn retried(&self) {
        retried(self.method);
    }

    /// Records that the call has succeeded.
    #[inline(always)]
    pub(crate) fn succeed(&self, metrics: &CallMetrics) {
        threads::called(self.method, metrics.0.now().wrapping_sub(self.started), self.sizes());
    }

    /// Records that the call has failed. `error_type` is the status of the reply if `has_reply` is `true`.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail(&self, error_type: &'static str, has_reply: bool) {
        let id = threads::procedure(Side::Client, self.method);
        procedures::record_failure(id, self.started, self.sizes(), error_type, has_reply);
    }
}

/// A guard that records the cancellation of an outbound call if it is dropped before it is disarmed. The guard only
/// refers to the call, because forgetting a reference costs nothing.
#[must_use]
pub(crate) struct CancelGuard<'a>(&'a ClientCall);

impl CancelGuard<'_> {
    #[inline(always)]
    pub(crate) fn disarm(self) {
        std::mem::forget(self);
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        self.0.fail(CANCELLED, false);
    }
}

/// An inbound call in progress.
#[derive(Clone, Copy)]
#[must_use]
pub(crate) struct ServerCall {
    id: ProcedureId,
    /// Size of the call in bytes.
    request: u64,
    /// Time at which the call began, in ticks.
    started: u64,
}

impl ServerCall {
    /// Returns the call in a form that records the cancellation of a handler that waits.
    pub(crate) fn wait(self) -> WaitingServerCall {
        WaitingServerCall(self)
    }

    /// Records the end of the call and its reply.
    #[inline(always)]
    pub(crate) fn finish(&self, metrics: &CallMetrics, reply: &EncodedReply) {
        self.end(metrics.0.now(), reply);
    }

    #[inline(always)]
    fn end(&self, now: u64, reply: &EncodedReply) {
        let Self { id, request, started } = *self;
        if let Some(message) = reply.results() {
            let response = size(message.message.byte_len(), &message.reduced, |item| item.data.len());
            threads::served(id, now.wrapping_sub(started), Sizes { request, response });
        } else {
            Self::end_rarely(id, request, now, started, reply);
        }
    }

    /// Records the end of a call that has no results, or results that still have to be protected. Such results count
    /// with their unprotected length. `request` is the size of the call in bytes. `now` and `started` are in ticks.
    #[cold]
    #[inline(never)]
    fn end_rarely(id: ProcedureId, request: u64, now: u64, started: u64, reply: &EncodedReply) {
        let chunks = reply.rpc_reply().map_or(&[][..], |message| &message.reduced);
        let sizes = Sizes { request, response: size(reply.inline_len(), chunks, |item| item.data.len()) };
        match reply.outcome() {
            ReplyOutcome::Success | ReplyOutcome::Unprotected(_) => {
                threads::served(id, now.wrapping_sub(started), sizes)
            }
            ReplyOutcome::Error(error) => procedures::record_failure(id, started, sizes, error.status(), true),
            ReplyOutcome::None if reply.is_discarded() => {
                procedures::record_failure(id, started, sizes, "discarded", false);
            }
            ReplyOutcome::None => procedures::record_failure(id, started, sizes, "ERR_CHUNK", true),
        }
    }
}

/// An inbound call whose handler can be cancelled. Dropping it records the cancellation.
#[must_use]
pub(crate) struct WaitingServerCall(ServerCall);

impl WaitingServerCall {
    /// Records the end of the call and its reply.
    pub(crate) fn finish(self, reply: &EncodedReply) {
        ManuallyDrop::new(self).0.end(Stopwatch::shared().now(), reply);
    }
}

impl Drop for WaitingServerCall {
    fn drop(&mut self) {
        let ServerCall { id, request, started } = self.0;
        procedures::record_failure(id, started, Sizes { request, response: 0 }, CANCELLED, false);
    }
}

/// Number of procedures of a service that are found by number. Further procedures are found by name.
const NUMBERED: usize = 64;

/// The identifiers of a service's procedures, by procedure number. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ServiceMetrics(Arc<[ProcedureId; NUMBERED]>);

impl ServiceMetrics {
    /// Creates the metrics of a service. `name` returns the name of a procedure.
    pub(crate) fn new(name: impl Fn(u32) -> Option<&'static str>) -> Self {
        let id = |number| threads::procedure(Side::Server, name(number as u32).unwrap_or(OTHER));
        Self(Arc::new(std::array::from_fn(id)))
    }

    #[inline(always)]
    pub(super) fn find(&self, number: u32, name: impl FnOnce() -> Option<&'static str>) -> ProcedureId {
        match self.0.get(number as usize) {
            Some(id) => *id,
            None => Self::find_by_name(name()),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_by_name(name: Option<&'static str>) -> ProcedureId {
        threads::procedure(Side::Server, name.unwrap_or(OTHER))
    }
}

/// Counts a retry, or the second attempt of a hedged call. Both are rare, so they go to the recorder at once.
#[cold]
pub(crate) fn retried(method: &'static str) {
    counter!(describe::RETRIES, "rpc.system.name" => SYSTEM, "rpc.method" => method).increment(1);
}

/// Returns the size of a message in bytes, chunks included.
#[inline(always)]
fn size<T>(bytes: usize, chunks: &[T], len: impl Fn(&T) -> usize) -> u64 {
    let size = if chunks.is_empty() { bytes } else { chunks.iter().map(len).fold(bytes, usize::saturating_add) };
    size as u64
}
