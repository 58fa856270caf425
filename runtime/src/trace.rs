//! What is traced of each call: a span at either end, of level DEBUG and target `rpcrdma::call`, named `call`.
//!
//! Fields have the names of OpenTelemetry's semantic conventions for RPC and ONC RPC where those have one, so that
//! `tracing-opentelemetry` hands on what its users look for; the others begin with `rpcrdma`. Where nobody is interested in the
//! span, none of it is worked out.
//!
//! | field | at | what |
//! | --- | --- | --- |
//! | `otel.name`, `rpc.method` | both | `PROGRAM.PROCEDURE`, as the XDR names them; at a server once the arguments are decoded |
//! | `otel.kind` | both | `client`, `server` |
//! | `rpc.system.name` | both | `onc_rpc` |
//! | `onc_rpc.program.number`, `onc_rpc.version`, `onc_rpc.procedure.number` | both | |
//! | `network.peer.address`, `network.peer.port` | both | the other end |
//! | `rpcrdma.xid` | both | the XID; at a client once there is a reply |
//! | `rpcrdma.call.size`, `rpcrdma.reply.size` | both | octets of the RPC message, what is in chunks included |
//! | `rpcrdma.call.read_chunks` | both | eligible arguments that the server pulls by RDMA Read |
//! | `rpcrdma.call.write_chunks` | both | eligible results that memory was provided for |
//! | `rpcrdma.reply.write_chunks` | both | eligible results returned by RDMA Write |
//! | `rpcrdma.call.format` | both | how the call was conveyed: `Short`, `Chunked`, `Continued`, `Long`, `Record`, `Extension` |
//! | `rpcrdma.reply.format` | client | the same of the reply |
//! | `rpcrdma.call.format.reason`, `rpcrdma.reply.format.reason` | client | why so, in words |
//! | `error.type`, `otel.status_code` | client | what came of a call that failed, as in `"deadline"`; `ERROR` |
//!
//! A call of a server's back to its client has the same, the ends swapped.

use std::net::SocketAddr;

use tracing::{
    Span,
    field::{self, Empty},
};

use crate::{
    driver::ReplyCommand,
    engine::{IncomingCall, IncomingReply, OutgoingCall},
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

/// The span of a call that this end makes.
pub(crate) fn made(program: u32, version: u32, procedure: u32, name: &'static str) -> Span {
    let span = call_span!("client", program, version, procedure);
    named(&span, name);
    span
}

/// The span of a call that this end answers.
pub(crate) fn taken(program: u32, version: u32, procedure: u32, peer: SocketAddr) -> Span {
    let span = call_span!("server", program, version, procedure);
    with_peer(&span, peer);
    span
}

/// What is called has a name.
pub(crate) fn named(span: &Span, name: &'static str) {
    span.record("otel.name", name).record("rpc.method", name);
}

/// Who is at the other end.
pub(crate) fn with_peer(span: &Span, peer: SocketAddr) {
    if !span.is_disabled() {
        span.record("network.peer.address", field::display(peer.ip())).record("network.peer.port", peer.port());
    }
}

fn sum(octets: usize, chunks: impl Iterator<Item = usize>) -> u64 {
    chunks.fold(octets as u64, |sum, len| sum.saturating_add(len as u64))
}

/// A call goes out. (Over a byte stream what is in chunks otherwise is sent in its place.)
pub(crate) fn sent(span: &Span, call: &OutgoingCall) {
    if !span.is_disabled() {
        let chunks = call.reduced.iter().map(|item| item.data.len());
        span.record("rpcrdma.call.size", sum(call.message.len(), chunks))
            .record("rpcrdma.call.read_chunks", call.reduced.len())
            .record("rpcrdma.call.write_chunks", call.reply.chunks.len());
    }
}

/// A call has arrived.
pub(crate) fn arrived(span: &Span, call: &IncomingCall) {
    if !span.is_disabled() {
        let chunks = call.reads.iter().map(|chunk| chunk.data.len());
        span.record("rpcrdma.xid", call.xid)
            .record("rpcrdma.call.format", field::debug(call.format))
            .record("rpcrdma.call.size", sum(call.payload.as_slice().len(), chunks))
            .record("rpcrdma.call.read_chunks", call.reads.len())
            .record("rpcrdma.call.write_chunks", call.reply.write_chunks.iter().flatten().count());
    }
}

/// A call has been answered.
pub(crate) fn answered(span: &Span, answer: &ReplyCommand) {
    if let ReplyCommand::Reply(reply) = answer
        && !span.is_disabled()
    {
        let chunks = reply.reduced.iter().map(|item| item.data.len());
        span.record("rpcrdma.reply.size", sum(reply.message.len(), chunks))
            .record("rpcrdma.reply.write_chunks", reply.reduced.len());
    }
}

/// A call's reply is here.
pub(crate) fn replied(span: &Span, reply: &IncomingReply) {
    if !span.is_disabled() {
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
}

/// Records that a call failed. `kind` is one of a few words, the value of `error.type`.
pub(crate) fn failed(span: &Span, kind: &'static str) {
    if !span.is_disabled() {
        span.record("error.type", kind).record("otel.status_code", "ERROR");
    }
}
