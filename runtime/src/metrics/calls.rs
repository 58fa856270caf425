//! Metrics of calls.

use std::{fmt, mem::ManuallyDrop, sync::Arc};

use metrics::counter;

use super::{
    describe,
    procedures::{CLIENT, ProcedureMetrics, Procedures, SERVER, SYSTEM, ServiceMetrics},
};
use crate::{
    driver::ReplyCommand,
    engine::{IncomingCall, IncomingReply, OutgoingCall},
    rpc,
};

/// The kind of error of a call whose future was dropped.
const CANCELLED: &str = "cancelled";

/// The metrics of the calls of a channel or a server, in both directions. Clones share the handles.
#[derive(Clone)]
pub(crate) struct CallMetrics(Arc<[Procedures; 2]>);

impl Default for CallMetrics {
    fn default() -> Self {
        Self(Arc::new([Procedures::new(&CLIENT), Procedures::new(&SERVER)]))
    }
}

impl fmt::Debug for CallMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallMetrics").finish_non_exhaustive()
    }
}

impl CallMetrics {
    /// Begins an outbound call of the procedure `name`.
    // Not inlined, because the caller would need more registers, and save them.
    #[inline(never)]
    pub(crate) fn client(&self, name: &'static str) -> ClientCall<'_> {
        let [client, _] = &*self.0;
        let metrics = &**client.find(name);
        ClientCall { metrics, begun: metrics.now() }
    }

    /// Begins an inbound call of a procedure of `service`. `name` returns the name of the procedure.
    #[inline]
    pub(crate) fn server<'a>(
        &'a self,
        service: &'a ServiceMetrics,
        procedure: u32,
        name: impl FnOnce() -> Option<&'static str>,
    ) -> ServerCall<'a> {
        let [_, server] = &*self.0;
        let metrics = service.find(procedure, name, server);
        ServerCall { metrics, begun: metrics.now() }
    }

    /// Records an inbound call that was refused before its service was found.
    pub(crate) fn refused(&self, status: &'static str) {
        let [_, server] = &*self.0;
        let other = server.other();
        other.fail(other.now(), status, true);
    }
}

/// An outbound call in progress. Dropping it records that the call was cancelled.
#[must_use]
pub(crate) struct ClientCall<'a> {
    metrics: &'a ProcedureMetrics,
    /// Time at which the call began, in ticks.
    begun: u64,
}

impl ClientCall<'_> {
    /// Records the size of one attempt.
    #[inline]
    pub(crate) fn sent(&self, call: &OutgoingCall) {
        self.metrics.request(size(call.message.byte_len(), &call.reduced, |item| item.data.len()));
    }

    /// Records the size of a reply.
    #[inline]
    pub(crate) fn replied(&self, reply: &IncomingReply) {
        self.metrics.response(size(reply.payload.byte_len(), &reply.writes, |chunk| chunk.data.len()));
    }

    /// Records that the channel tries the call again.
    pub(crate) fn retried(&self) {
        self.metrics.retried();
    }

    /// Ends a successful call.
    // As `CallMetrics::client`.
    #[inline(never)]
    pub(crate) fn succeed(self) {
        let Self { metrics, begun } = *ManuallyDrop::new(self);
        metrics.succeed(begun);
    }

    /// Ends a failed call. `error_type` is the status of the reply if `has_reply` is `true`.
    pub(crate) fn fail(self, error_type: &'static str, has_reply: bool) {
        let Self { metrics, begun } = *ManuallyDrop::new(self);
        metrics.fail(begun, error_type, has_reply);
    }
}

impl Drop for ClientCall<'_> {
    fn drop(&mut self) {
        self.metrics.fail(self.begun, CANCELLED, false);
    }
}

/// An inbound call in progress. Dropping it records that the handler was cancelled.
#[must_use]
pub(crate) struct ServerCall<'a> {
    metrics: &'a Arc<ProcedureMetrics>,
    /// Time at which the call began, in ticks.
    begun: u64,
}

impl ServerCall<'_> {
    /// Records the size of the call.
    #[inline]
    pub(crate) fn arrived(&self, call: &IncomingCall) {
        self.metrics.request(size(call.payload.byte_len(), call.reads(), |chunk| chunk.data.len()));
    }

    /// Returns the call for a handler that waits, in a task of its own.
    pub(crate) fn detach(self) -> DetachedServerCall {
        let Self { metrics, begun } = *ManuallyDrop::new(self);
        DetachedServerCall { metrics: Arc::clone(metrics), begun, is_over: false }
    }

    /// Ends the call with its reply. `unprotected` is the length of the results that still have to be protected, in bytes.
    #[inline(always)]
    pub(crate) fn finish(self, reply: &ReplyCommand, unprotected: usize) {
        let Self { metrics, begun } = *ManuallyDrop::new(self);
        finish(metrics, begun, reply, unprotected);
    }
}

impl Drop for ServerCall<'_> {
    #[inline]
    fn drop(&mut self) {
        self.metrics.fail(self.begun, CANCELLED, false);
    }
}

/// An inbound call whose handler waits. Dropping it records that the handler was cancelled.
#[must_use]
pub(crate) struct DetachedServerCall {
    metrics: Arc<ProcedureMetrics>,
    begun: u64,
    is_over: bool,
}

impl DetachedServerCall {
    /// Ends the call like [`ServerCall::finish`].
    pub(crate) fn finish(mut self, reply: &ReplyCommand, unprotected: usize) {
        self.is_over = true;
        finish(&self.metrics, self.begun, reply, unprotected);
    }
}

impl Drop for DetachedServerCall {
    fn drop(&mut self) {
        if !self.is_over {
            self.metrics.fail(self.begun, CANCELLED, false);
        }
    }
}

/// Records the end of an inbound call.
#[inline(always)]
fn finish(metrics: &ProcedureMetrics, begun: u64, reply: &ReplyCommand, unprotected: usize) {
    let error = match reply {
        ReplyCommand::Reply(reply) => {
            let bytes = reply.message.byte_len() + unprotected;
            metrics.response(size(bytes, &reply.reduced, |item| item.data.len()));
            rpc::encoded_error(&reply.message)
        }
        ReplyCommand::ChunkError => Some("ERR_CHUNK"),
        ReplyCommand::Discard => return metrics.fail(begun, "discarded", false),
    };
    match error {
        None => metrics.succeed(begun),
        Some(error) => metrics.fail(begun, error, true),
    }
}

/// Counts a retry above the channels. Such retries are rare, so that their handles are not kept.
#[cold]
pub(crate) fn retried(method: &'static str) {
    counter!(describe::RETRIES, "rpc.system.name" => SYSTEM, "rpc.method" => method).increment(1);
}

/// Returns the size of a message with its chunks in bytes.
#[inline]
fn size<T>(bytes: usize, chunks: &[T], len: impl Fn(&T) -> usize) -> f64 {
    let bytes = if chunks.is_empty() { bytes } else { chunks.iter().map(len).fold(bytes, usize::saturating_add) };
    // A signed conversion is one instruction, and memory is shorter than 2^63 bytes.
    bytes as i64 as f64
}
