//! The tracing spans of calls. A client creates a span for each call of the application, and a server for each call
//! that it passes to a service: name `call`, level DEBUG, target `rpcrdma::call`.
//!
//! Fields follow OpenTelemetry's semantic conventions for RPC and ONC RPC where these define a name, so that
//! `tracing-opentelemetry` can export them. The other fields begin with `rpcrdma`. If no subscriber enables the span,
//! the values are not computed.
//!
//! | field | at | value |
//! | --- | --- | --- |
//! | `otel.name`, `rpc.method` | both | `VERSION.PROCEDURE` as named in XDR |
//! | `otel.kind` | both | `client`, `server` |
//! | `rpc.system.name` | both | `onc_rpc` |
//! | `onc_rpc.program.number`, `onc_rpc.version`, `onc_rpc.procedure.number` | both | |
//! | `network.peer.address`, `network.peer.port` | both | the peer |
//! | `rpcrdma.xid` | both | the XID; on a client once the reply has arrived |
//! | `rpcrdma.call.size`, `rpcrdma.reply.size` | both | length of the RPC message in bytes, chunks included |
//! | `rpcrdma.call.read_chunks` | both | number of eligible arguments that the server reads by RDMA Read |
//! | `rpcrdma.call.write_chunks` | both | number of eligible results for which the client provided memory |
//! | `rpcrdma.reply.write_chunks` | both | number of eligible results returned by RDMA Write |
//! | `rpcrdma.call.format` | both | the message format of the call: `Short`, `Chunked`, `Continued`, `Long`, `Record`, `Extension` |
//! | `rpcrdma.reply.format` | client | the message format of the reply |
//! | `rpcrdma.call.format.reason`, `rpcrdma.reply.format.reason` | client | the reason for the format, in words |
//! | `error.type`, `otel.status_code` | client | for a failed call: the status of the reply, such as `PROC_UNAVAIL`, or the kind of error, such as `deadline`; `ERROR` |
//!
//! Over TCP, nothing moves by RDMA: in `rpcrdma.call.read_chunks` and `rpcrdma.reply.write_chunks`, the sender counts
//! the eligible items that it sends without a copy, and the receiver counts none.
//!
//! A server's call back to its client has the same fields, with the roles swapped.
//!
//! [`ChannelBuilder::trace_context`](crate::client::ChannelBuilder::trace_context) and
//! [`ServerBuilder::trace_context`](crate::server::ServerBuilder::trace_context) join the spans of both sides in one
//! trace.

mod context;
#[cfg(test)]
pub(crate) mod log;

use std::net::SocketAddr;

pub use self::context::TraceContext;
pub(crate) use self::context::{TraceJoin, TraceSource};
use tracing::{
    Span,
    field::{self, Empty},
};

use crate::{
    driver::ReplyCommand,
    engine::{IncomingCall, IncomingReply, OutgoingCall},
    metrics::{CallMetrics, CancelGuard, ClientCall},
};

macro_rules! call_span {
    ($kind:literal, $program:expr, $version:expr, $procedure:expr) => {
        tracing::debug_span!(
            target: "rpcrdma::call",
            "call",
            otel.name = Empty,
            otel.kind = $kind,
            otel.status_code = Empty,
            error.type = Empty,
            rpc.system.name = "onc_rpc",
            rpc.method = Empty,
            onc_rpc.program.number = $program,
            onc_rpc.version = $version,
            onc_rpc.procedure.number = $procedure,
            network.peer.address = Empty,
            network.peer.port = Empty,
            rpcrdma.xid = Empty,
            rpcrdma.call.format = Empty,
            rpcrdma.call.format.reason = Empty,
            rpcrdma.call.size = Empty,
            rpcrdma.call.read_chunks = Empty,
            rpcrdma.call.write_chunks = Empty,
            rpcrdma.reply.format = Empty,
            rpcrdma.reply.format.reason = Empty,
            rpcrdma.reply.size = Empty,
            rpcrdma.reply.write_chunks = Empty,
        )
    };
}

/// The span and the metrics of an outbound call.
pub(crate) struct ObservedCall<'a> {
    span: &'a Span,
    metrics: ClientCall,
}

impl<'a> ObservedCall<'a> {
    /// Starts to record an outbound call. `name` is the procedure as `VERSION.PROCEDURE`.
    #[inline(always)]
    pub(crate) fn begin(span: &'a Span, metrics: &CallMetrics, name: &'static str) -> Self {
        Self { span, metrics: metrics.client(name) }
    }

    /// Returns the span of the call.
    pub(crate) fn span(&self) -> &Span {
        self.span
    }

    /// Returns a guard for the time until the call succeeds or fails. Dropping the guard records that the call was
    /// cancelled.
    #[inline(always)]
    pub(crate) fn guard(&self) -> CancelGuard<'_> {
        self.metrics.guard()
    }

    /// Records an attempt that is sent to `peer`.
    #[inline(always)]
    pub(crate) fn sent(&self, call: &OutgoingCall, peer: SocketAddr) {
        if !self.span.is_disabled() {
            record_peer(self.span, peer);
            record_sent(self.span, call);
        }
        self.metrics.sent(call);
    }

    /// Records a reply in the span and in the metrics.
    #[inline(always)]
    pub(crate) fn replied(&self, reply: &IncomingReply) {
        if !self.span.is_disabled() {
            record_reply(self.span, reply);
        }
        self.metrics.replied(reply);
    }

    /// Records a failed attempt, after which the call is sent again.
    pub(crate) fn attempt_failed(&self) {
        self.metrics.attempt_failed();
    }

    /// Records that the channel retries the call after its connection was lost.
    pub(crate) fn retried(&self) {
        self.metrics.retried();
    }

    /// Records that the call has succeeded.
    #[inline(always)]
    pub(crate) fn succeed(&self, metrics: &CallMetrics) {
        self.metrics.succeed(metrics);
    }

    /// Records that the call has failed. `kind` is the value of `error.type`: the status of the reply if `has_reply` is
    /// `true`, and otherwise the kind of error.
    #[cold]
    pub(crate) fn fail(&self, kind: &'static str, has_reply: bool) {
        if !self.span.is_disabled() {
            self.span.record("error.type", kind).record("otel.status_code", "ERROR");
        }
        self.metrics.fail(kind, has_reply);
    }
}

/// Creates the span of an outbound call.
pub(crate) fn called(program: u32, version: u32, procedure: u32, name: &'static str) -> Span {
    let span = call_span!("client", program, version, procedure);
    if !span.is_disabled() {
        named(&span, name);
    }
    span
}

/// Creates the span of an inbound call.
pub(crate) fn taken(program: u32, version: u32, procedure: u32, peer: SocketAddr) -> Span {
    let span = call_span!("server", program, version, procedure);
    if !span.is_disabled() {
        record_peer(&span, peer);
    }
    span
}

/// Records the name of the procedure in the span.
#[inline]
pub(crate) fn named(span: &Span, name: &'static str) {
    if !span.is_disabled() {
        record_name(span, name);
    }
}

#[cold]
fn record_name(span: &Span, name: &'static str) {
    span.record("otel.name", name).record("rpc.method", name);
}

/// Records the address of the peer.
#[cold]
fn record_peer(span: &Span, peer: SocketAddr) {
    span.record("network.peer.address", field::display(peer.ip())).record("network.peer.port", peer.port());
}

fn sum(bytes: usize, chunks: impl Iterator<Item = usize>) -> u64 {
    chunks.fold(bytes as u64, |sum, len| sum.saturating_add(len as u64))
}

/// Records the size and the chunks of an outbound call. (Over a byte stream, the items are sent in the record, not in
/// chunks.)
#[cold]
fn record_sent(span: &Span, call: &OutgoingCall) {
    let chunks = call.reduced.iter().map(|item| item.data.len());
    span.record("rpcrdma.call.size", sum(call.message.len(), chunks))
        .record("rpcrdma.call.read_chunks", call.reduced.len())
        .record("rpcrdma.call.write_chunks", call.reply.chunks.len());
}

/// Records the XID, format, size and chunks of an inbound call.
pub(crate) fn arrived(span: &Span, call: &IncomingCall) {
    if !span.is_disabled() {
        let chunks = call.reads().iter().map(|chunk| chunk.data.len());
        span.record("rpcrdma.xid", call.xid)
            .record("rpcrdma.call.format", field::debug(call.format))
            .record("rpcrdma.call.size", sum(call.payload.as_slice().len(), chunks))
            .record("rpcrdma.call.read_chunks", call.reads().len())
            .record("rpcrdma.call.write_chunks", call.write_chunks().iter().flatten().count());
    }
}

/// Records the size and the chunks of the reply to an inbound call.
pub(crate) fn answered(span: &Span, answer: &ReplyCommand) {
    if let ReplyCommand::Reply(reply) = answer
        && !span.is_disabled()
    {
        let chunks = reply.reduced.iter().map(|item| item.data.len());
        span.record("rpcrdma.reply.size", sum(reply.message.len(), chunks))
            .record("rpcrdma.reply.write_chunks", reply.reduced.len());
    }
}

/// Records the XID, formats, size and chunks of the reply to an outbound call.
#[cold]
fn record_reply(span: &Span, reply: &IncomingReply) {
    let message = reply.payload.as_slice();
    let xid = message.first_chunk().copied().map_or(0, u32::from_be_bytes);
    let placed = || reply.writes.iter().filter(|chunk| !chunk.data.is_empty());
    span.record("rpcrdma.xid", xid)
        .record("rpcrdma.call.format", field::debug(reply.call.format))
        .record("rpcrdma.call.format.reason", field::display(reply.call.reason))
        .record("rpcrdma.reply.format", field::debug(reply.format))
        .record("rpcrdma.reply.format.reason", field::display(reply.reason))
        .record("rpcrdma.reply.size", sum(message.len(), placed().map(|chunk| chunk.data.len())))
        .record("rpcrdma.reply.write_chunks", placed().count());
}
