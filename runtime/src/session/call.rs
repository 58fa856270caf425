//! Inbound calls as services see them.

#[cfg(feature = "tower")]
use std::time::Instant;
use std::{fmt, sync::Arc};

use bytes::Bytes;
use tracing::Span;

use super::{
    bounded::{MeasuringSink, ResultExcess},
    context::{Context, HandlerError, ServedConnection},
    recorded::{self, ArgumentsDigest, RecordedCall, RecordedReply, RequestKey, client_identity},
    reply::{self, SuccessHeader},
};
use crate::{
    ErrorChain,
    driver::{EncodedReply, ReplyCommand},
    engine::{ChunkItems, IncomingCall, MessagePayload, OutgoingReply, message_buf},
    memory::MessageBuf,
    rpc::{AuthFailure, RpcError},
    security::{AuthenticatedCaller, ReplySecurity},
    service::{Procedure, ReplyBounds},
    trace,
    transport::Transport,
    xdr::{
        DecodeError, DecodeErrorKind, Decoder, EncodeError, FlatSink, ReducingSink, Sink, XdrDecode as _, XdrEncode,
        XdrType as _,
    },
};

/// The parts of an inbound call that the reply to a failed call needs.
pub(crate) struct Refusal {
    xid: u32,
    security: Option<Arc<dyn ReplySecurity>>,
    connection: Arc<ServedConnection>,
}

impl Refusal {
    pub(super) fn new(xid: u32, security: Option<Arc<dyn ReplySecurity>>, connection: Arc<ServedConnection>) -> Self {
        Self { xid, security, connection }
    }

    /// Returns the XID of the call.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the connection of the call.
    pub(crate) fn connection(&self) -> Arc<ServedConnection> {
        Arc::clone(&self.connection)
    }

    /// Returns the reply to the failed call.
    pub(crate) fn reply(&self, error: RpcError) -> EncodedReply {
        reply::refusal(self.xid, error, self.security.as_deref(), self.connection.pool())
    }
}

#[cfg(feature = "tower")]
impl InboundCall {
    /// Returns the call's message and its chunks.
    pub(crate) fn incoming(&self) -> &IncomingCall {
        &self.incoming
    }

    /// Returns the time at which the server cancels the call.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Records the time at which the server cancels the call.
    pub(crate) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
    }
}

/// An inbound call whose arguments have arrived completely. Generated code decodes it and encodes the reply; a service
/// that is written by hand does the same:
///
/// ```no_run
/// use rpcrdma::{
///     server::{HandlerError, InboundCall, ReplyFuture},
///     service::Procedure,
/// };
///
/// fn dispatch<P: Procedure>(
///     mut call: InboundCall,
///     handler: impl FnOnce(P::Args) -> Result<P::Reply, HandlerError> + Send + 'static,
/// ) -> ReplyFuture {
///     Box::pin(async move {
///         if call.procedure() != P::NUMBER {
///             return call.procedure_unavailable();
///         }
///         match call.decode::<P>() {
///             Ok(args) => call.finish::<P>(handler(args)),
///             Err(reply) => reply,
///         }
///     })
/// }
/// ```
pub struct InboundCall {
    incoming: IncomingCall,
    procedure: u32,
    /// Position of the arguments in the payload, in bytes: the length of the RPC header, which has less than 1 KiB, or
    /// 0 after their protection was removed.
    arguments_at: u32,
    pub(super) security: Option<Arc<dyn ReplySecurity>>,
    context: Context,
    /// Bounds of the result, set when the arguments are decoded. `None` if no result can exceed them, or if they are
    /// estimates. Boxed to keep calls small, because calls are moved several times and most have no bounds.
    bounds: Option<Box<ReplyBounds>>,
    /// The span of the call, if it is enabled.
    pub(super) span: Option<Arc<Span>>,
    /// The time at which the server cancels the call, according to its limits.
    #[cfg(feature = "tower")]
    deadline: Option<Instant>,
}

impl InboundCall {
    #[inline(always)]
    pub(super) fn new(
        incoming: IncomingCall,
        procedure: u32,
        arguments_at: usize,
        caller: AuthenticatedCaller,
        connection: Arc<ServedConnection>,
        span: Option<Arc<Span>>,
    ) -> Self {
        if let Some(span) = &span {
            trace::arrived(span, &incoming);
        }
        let AuthenticatedCaller { credential, principal, security } = caller;
        let context = Context::new(incoming.token, incoming.xid, credential, principal, connection);
        let arguments_at = u32::try_from(arguments_at).unwrap_or(u32::MAX);
        Self {
            incoming,
            procedure,
            arguments_at,
            security,
            context,
            bounds: None,
            span,
            #[cfg(feature = "tower")]
            deadline: None,
        }
    }

    pub(super) fn xid(&self) -> u32 {
        self.incoming.xid
    }

    /// Returns the number of the called procedure.
    #[must_use]
    pub fn procedure(&self) -> u32 {
        self.procedure
    }

    /// Returns the origin of the call: its connection and its caller.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the values that layers add for the handler.
    #[cfg(feature = "tower")]
    pub(crate) fn extensions_mut(&mut self) -> &mut http::Extensions {
        &mut self.context.extensions
    }

    /// Returns the parts of the call that are needed to refuse it after it has been consumed.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal::new(self.incoming.xid, self.security.clone(), Arc::clone(&self.context.connection))
    }

    /// Returns the key of the call for the duplicate request cache. `program` and `version` identify its service. If
    /// `ignores_stamp` is `true`, the stamp of AUTH_SYS is not part of the key.
    pub(crate) fn request_key(&self, program: u32, version: u32, ignores_stamp: bool) -> RequestKey {
        let Self { incoming, context, .. } = self;
        let arguments = ArgumentsDigest::new(incoming.payload.as_slice(), self.arguments_at as usize, incoming.reads());
        let client = client_identity(context.peer_addr().ip(), &context.credential, context.principal(), ignores_stamp);
        RequestKey::new(incoming.xid, (program, version, self.procedure), arguments, client)
    }

    /// Makes [`finish`](Self::finish) record the reply of the handler in `recorded`.
    pub(crate) fn record(&mut self, recorded: &Arc<RecordedCall>) {
        self.context.recorded = Some(Arc::clone(recorded));
    }

    /// Encodes a recorded reply as the reply to this call, which repeats an executed call.
    pub(crate) fn replay(&mut self, reply: &RecordedReply) -> EncodedReply {
        let error = match reply.results().map(|results| self.encode(results)) {
            Some(Ok(reply)) => return reply,
            Some(Err(ReplyError::Denied(failure))) => RpcError::Authentication(failure),
            Some(Err(ReplyError::Encode(_) | ReplyError::TooLong(_))) | None => RpcError::SystemError,
        };
        self.refuse(error)
    }

    /// Decodes the arguments, and stores the bounds of their result ([`Procedure::reply_bounds`]), which
    /// [`finish`](Self::finish) checks.
    ///
    /// # Errors
    /// Returns the reply to malformed arguments: GARBAGE_ARGS (RFC 5531 §9), or ERR_CHUNK if a Read chunk does not
    /// replace an eligible item (RFC 8166 §4.5.2, §6.1, RPC-over-RDMA v2 §7.2).
    // An error is rare and moved once. Boxing it would require an allocation.
    #[allow(clippy::result_large_err)]
    #[doc(alias = "svc_getargs")]
    pub fn decode<P: Procedure>(&mut self) -> Result<P::Args, EncodedReply> {
        self.try_decode::<P>().map_err(|error| {
            tracing::info!(
                target: "rpcrdma::call", procedure = P::NAME, xid = self.incoming.xid, %error,
                "arguments cannot be decoded"
            );
            // RFC 8166 §6.1: a call with a reduced argument that is not DDP-eligible MUST NOT be processed, and is
            // reported as in §4.5.2.
            if matches!(error.kind(), DecodeErrorKind::StrayChunk { .. }) {
                return EncodedReply::without_rpc_reply(ReplyCommand::ChunkError);
            }
            self.refuse(RpcError::GarbageArguments)
        })
    }

    fn try_decode<P: Procedure>(&mut self) -> Result<P::Args, DecodeError> {
        let decoder = match &self.incoming.payload {
            MessagePayload::Inline(message) => Decoder::new(message),
            MessagePayload::Long(bytes) => Decoder::shared(bytes),
        };
        let limits = self.context.connection.limits();
        let mut decoder = decoder.with_read_chunks(self.incoming.reads()).with_limits(limits);
        decoder.take(self.arguments_at as usize)?;
        let arguments = P::Args::decode(&mut decoder).map_err(|error| match error.kind() {
            // The chunk replaces an eligible item, and has the wrong length.
            DecodeErrorKind::ChunkLength { .. } => error,
            // A stray chunk displaces the items after it, so it is reported rather than their errors.
            _ => decoder.stray_chunk().unwrap_or(error),
        })?;
        decoder.finish()?;
        let bounds = P::reply_bounds(&arguments);
        let is_within =
            P::Reply::MAX_DDP_ITEMS == Some(0) && P::Reply::MAX_INLINE.is_some_and(|max| max <= bounds.inline);
        if !is_within && !bounds.is_estimate {
            // A call that is decoded again has the same bounds.
            self.bounds = Some(Box::new(bounds));
        }
        Ok(arguments)
    }

    /// Encodes the reply to the call from the result of its handler. An error of the handler determines the status of
    /// the reply. The reply is SYSTEM_ERR if the result cannot be encoded, or if it exceeds the bounds that the binding
    /// gives for the arguments (RFC 8166 §6.2), unless they are estimates. Callers do not prepare for longer results,
    /// whatever the transport. The call is denied if the verifier of the reply cannot be created (RFC 2203
    /// §5.3.3.4.1).
    #[doc(alias = "svc_sendreply")]
    pub fn finish<P: Procedure>(mut self, result: Result<P::Reply, HandlerError>) -> EncodedReply {
        let xid = self.incoming.xid;
        let error = match result {
            Ok(result) => match self.encode_result(&result) {
                Ok(reply) => return reply,
                Err(ReplyError::Denied(failure)) => RpcError::Authentication(failure),
                Err(ReplyError::Encode(error)) => {
                    tracing::error!(
                        target: "rpcrdma::call", procedure = P::NAME, xid, %error, "result cannot be encoded"
                    );
                    RpcError::SystemError
                }
                Err(ReplyError::TooLong(excess)) => {
                    tracing::warn!(
                        target: "rpcrdma::call", procedure = P::NAME, xid,
                        "{excess} for these arguments: return less, or raise the bound in the binding"
                    );
                    RpcError::SystemError
                }
            },
            Err(HandlerError::System(error)) => {
                tracing::warn!(target: "rpcrdma::call", procedure = P::NAME, xid, error = %ErrorChain(&*error), "handler failed");
                RpcError::SystemError
            }
            Err(HandlerError::GarbageArguments) => RpcError::GarbageArguments,
            Err(HandlerError::ProcedureUnavailable) => RpcError::ProcedureUnavailable,
            Err(HandlerError::Rejected(failure)) => RpcError::Authentication(failure),
            Err(HandlerError::Unavailable) => RpcError::Unavailable,
        };
        if let (Some(recorded), RpcError::SystemError) = (&self.context.recorded, error) {
            recorded.record(RecordedReply::system_error());
        }
        self.refuse(error)
    }

    /// Returns the reply PROC_UNAVAIL (RFC 5531 §9).
    pub fn procedure_unavailable(self) -> EncodedReply {
        self.refuse(RpcError::ProcedureUnavailable)
    }

    #[inline(always)]
    fn encode_result<T: XdrEncode>(&mut self, result: &T) -> Result<EncodedReply, ReplyError> {
        let Some(call) = self.context.recorded.clone() else { return self.encode(result) };
        let results = recorded::encode_results(result)?;
        let reply = self.encode(&results);
        // Also if the reply is denied a verifier: the call was executed. A result that is too long is recorded as an
        // error.
        if !matches!(reply, Err(ReplyError::TooLong(_))) {
            call.record(RecordedReply::of_results(results));
        }
        reply
    }

    fn encode<T: XdrEncode>(&mut self, result: &T) -> Result<EncodedReply, ReplyError> {
        let buffer = self.take_buffer();
        let connection = &self.context.connection;
        // RFC 2203 §5.3.3.4.1: a call whose reply has no verifier is denied.
        let verifier = self.security.as_deref().map(ReplySecurity::verifier).transpose().map_err(ReplyError::Denied)?;
        let header = SuccessHeader { xid: self.incoming.xid, verifier };
        let engine = &connection.back.connection.engine;
        let is_rdma = connection.info.transport == Transport::Rdma;
        let mut message = buffer.unwrap_or_else(|| {
            // The initial size of the buffer, which grows if the reply is longer.
            let room = if is_rdma { self.incoming.max_inline } else { engine.send_size.into() };
            message_buf(&engine.pool, usize::try_from(room).unwrap_or(usize::MAX))
        });
        if self.security.as_ref().is_some_and(|security| security.protection().is_some()) {
            // RFC 8166 §8.2.2.3, RPC-over-RDMA v2 §11.2.2.3: nothing is reduced, even if the call provides Write
            // chunks. Without protection, items remain eligible (RFC 8166 §8.2.2.2, RPC-over-RDMA v2 §11.2.2.2).
            header.encode(&mut FlatSink::new(&mut message))?;
            let mut results = Vec::with_capacity(result.encoded_len());
            self.encode_measured(result, &mut FlatSink::new(&mut results))?;
            let results = results.into();
            return Ok(EncodedReply::unprotected(OutgoingReply { message, reduced: ChunkItems::new() }, results));
        }
        // RFC 8166 §4.3.2: eligible results go to the Write chunks of the call.
        let chunks = self.incoming.write_chunks();
        let mut sink = if is_rdma && chunks.is_empty() {
            // As for nearly all calls.
            ReducingSink::for_reply(&mut message, [])
        } else if is_rdma {
            ReducingSink::for_reply(&mut message, chunks.iter().map(Option::is_some))
        } else {
            // Large eligible items are sent without a copy, at their positions in the record.
            ReducingSink::for_engine(&mut message, engine.min_reduce)
        };
        header.encode(&mut sink)?;
        self.encode_measured(result, &mut sink)?;
        let (reduced, copied) = sink.finish();
        let reduced = ChunkItems::with(reduced, &engine.spare.reduced);
        connection.port.add_copied_eligible(copied);
        tracing::debug!(
            target: "rpcrdma::call", xid = self.incoming.xid, bytes = message.len(), reduced = reduced.len(), "reply encoded"
        );
        Ok(EncodedReply::success(OutgoingReply { message, reduced }))
    }

    /// Encodes a result, and checks its length against the bounds of the reply.
    #[inline(always)]
    fn encode_measured<T: XdrEncode>(&self, result: &T, sink: &mut impl Sink) -> Result<(), ReplyError> {
        let Some(bounds) = &self.bounds else { return Ok(result.encode(sink)?) };
        let mut measuring = MeasuringSink::new(sink, bounds);
        result.encode(&mut measuring)?;
        measuring.excess().map_or(Ok(()), |excess| Err(ReplyError::TooLong(excess)))
    }

    /// Returns the emptied Receive buffer of the call for the reply. `None` if the call provides chunks for the reply,
    /// or is not in such a buffer. The arguments must have been decoded before.
    #[inline(always)]
    fn take_buffer(&mut self) -> Option<MessageBuf> {
        /// Space in front of the reply, in bytes. The transport header of a reply without chunks fits in both versions.
        const HEADROOM: usize = 64;
        let incoming = &mut self.incoming;
        let has_chunks = !incoming.write_chunks().is_empty() || incoming.reply_chunk().is_some();
        if has_chunks {
            return None;
        }
        let MessagePayload::Inline(message) = &mut incoming.payload else { return None };
        message.reset(HEADROOM);
        match std::mem::replace(&mut incoming.payload, MessagePayload::Long(Bytes::new())) {
            MessagePayload::Inline(message) => Some(message),
            MessagePayload::Long(_) => None,
        }
    }

    pub(crate) fn refuse(&self, error: RpcError) -> EncodedReply {
        reply::refusal(self.incoming.xid, error, self.security.as_deref(), self.context.connection.pool())
    }
}

/// The error of encoding a successful reply.
enum ReplyError {
    Encode(EncodeError),
    /// The result exceeds the bounds of the reply.
    TooLong(ResultExcess),
    /// The verifier of the reply could not be created.
    Denied(AuthFailure),
}

impl From<EncodeError> for ReplyError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl fmt::Debug for InboundCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboundCall").field("procedure", &self.procedure).field("context", &self.context).finish()
    }
}
