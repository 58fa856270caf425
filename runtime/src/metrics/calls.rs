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
    pub(crate) fn server(
        &self,
        service: &ServiceMetrics,
        procedure: u32,
        name: impl FnOnce() -> Option<&'static str>,
    ) -> ServerCall {
        let [_, server] = &*self.0;
        let metrics = service.find(procedure, name, server);
        ServerCall(Some((Arc::clone(metrics), metrics.now())))
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
pub(crate) struct ServerCall(Option<(Arc<ProcedureMetrics>, u64)>);

impl ServerCall {
    /// Returns a call that is not measured.
    pub(crate) fn unmeasured() -> Self {
        Self(None)
    }

    /// Records the size of the call.
    #[inline]
    pub(crate) fn arrived(&self, call: &IncomingCall) {
        if let Some((metrics, _)) = &self.0 {
            metrics.request(size(call.payload.byte_len(), call.reads(), |chunk| chunk.data.len()));
        }
    }

    /// Ends the call with its reply. `unprotected` is the length of the results that still have to be protected, in bytes.
    #[inline(always)]
    pub(crate) fn finish(mut self, reply: &ReplyCommand, unprotected: usize) {
        let Some((metrics, begun)) = self.0.take() else { return };
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
}

impl ServerCall {
    #[cold]
    #[inline(never)]
    fn cancelled(&mut self) {
        if let Some((metrics, begun)) = self.0.take() {
            metrics.fail(begun, CANCELLED, false);
        }
    }
}

impl Drop for ServerCall {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() {
            self.cancelled();
        }
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
