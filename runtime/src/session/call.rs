//! Inbound calls as services see them, and the answers to them.

use std::{fmt, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use smallvec::SmallVec;
use tracing::Span;

use super::{config::ChannelConfig, info::ChannelInfo};
use crate::{
    chain::ErrorChain,
    driver::{DriverPort, ReplyCommand},
    engine::{ConnectionCounters, IncomingCall, MessagePayload, OutgoingReply, message_buf},
    memory::{BufferPool, Output as _},
    rpc::{AuthFailure, AuthenticatedCaller, Credential, OpaqueAuth, Protection, ReplyHeader, RpcError, SecurityError},
    service::Procedure,
    trace,
    transport::Transport,
    xdr::{
        DecodeError, DecodeErrorKind, DecodeLimits, Decoder, EncodeError, FlatSink, ReducedItem, ReducingSink,
        XdrDecode, XdrEncode, encode_to_bytes,
    },
};

/// The state that all inbound calls of one connection share.
pub(crate) struct ServedConnection {
    pub(crate) info: ChannelInfo,
    pub(crate) port: Arc<DriverPort>,
    /// The settings of the connection, and of channels back to the caller.
    pub(crate) back: Arc<ChannelConfig>,
}

impl ServedConnection {
    /// The pool of messages and payload.
    pub(super) fn pool(&self) -> &BufferPool {
        &self.back.connection.engine.pool
    }

    /// The bounds on decoding a call.
    pub(super) fn limits(&self) -> DecodeLimits {
        self.back.connection.decode_limits
    }
}

/// The origin of a call: its connection and its caller.
#[derive(Clone)]
pub struct Context {
    pub(crate) connection: Arc<ServedConnection>,
    xid: u32,
    credential: Credential,
}

impl Context {
    /// The client's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.connection.info.peer_addr
    }

    /// The address that the client connected to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.connection.info.local_addr
    }

    /// The kind of transport that carried the call.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.connection.info.transport
    }

    /// The call's XID.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.xid
    }

    /// The caller's credential, as the authenticator has accepted it.
    #[must_use]
    pub fn credential(&self) -> &Credential {
        &self.credential
    }

    /// The pool to allocate eligible results from: `pool().alloc(len)`, filled, then frozen. The memory is reused once sent.
    #[must_use]
    pub fn pool(&self) -> &BufferPool {
        self.connection.pool()
    }

    /// The counters of the call's connection.
    #[must_use]
    pub fn counters(&self) -> ConnectionCounters {
        self.connection.port.counters()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("peer_addr", &self.peer_addr())
            .field("xid", &self.xid)
            .field("credential", &self.credential)
            .finish()
    }
}

/// The failure of a handler, and what the client is answered. Other errors (`?`) become SYSTEM_ERR.
#[derive(Debug)]
#[non_exhaustive]
pub enum HandlerError {
    /// SYSTEM_ERR. The reason is traced locally, and not sent.
    System(Box<dyn std::error::Error + Send + Sync>),
    /// GARBAGE_ARGS: the arguments are invalid.
    GarbageArguments,
    /// PROC_UNAVAIL: the procedure is not implemented.
    ProcedureUnavailable,
    /// AUTH_ERROR: the caller lacks permission.
    Rejected(AuthFailure),
}

impl HandlerError {
    /// Returns SYSTEM_ERR with a reason for the local traces.
    pub fn system(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::System(reason.into())
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::System(Box::new(error))
    }
}

/// An encoded answer.
#[derive(Debug)]
#[must_use]
pub struct EncodedReply(pub(super) ReplyCommand);

/// An inbound call, with its eligible arguments already pulled.
pub struct InboundCall {
    incoming: IncomingCall,
    procedure: u32,
    /// Length of the RPC header, in bytes.
    arguments_at: usize,
    pub(super) verifier: OpaqueAuth,
    protection: Option<Arc<dyn Protection>>,
    context: Context,
    pub(super) span: Span,
}

impl InboundCall {
    pub(super) fn new(
        incoming: IncomingCall,
        procedure: u32,
        arguments_at: usize,
        authenticated: AuthenticatedCaller,
        protection: Option<Arc<dyn Protection>>,
        connection: Arc<ServedConnection>,
        span: Span,
    ) -> Self {
        trace::arrived(&span, &incoming);
        let context = Context { connection, xid: incoming.xid, credential: authenticated.credential };
        Self { incoming, procedure, arguments_at, verifier: authenticated.verifier, protection, context, span }
    }

    /// The number of the procedure called.
    #[must_use]
    pub fn procedure(&self) -> u32 {
        self.procedure
    }

    /// The origin of the call.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Decodes the arguments.
    ///
    /// # Errors
    /// The answer to malformed arguments: GARBAGE_ARGS (RFC 8166 §4.5.2), or ERR_CHUNK if a Read chunk replaces an item that is
    /// not eligible (RFC 8166 §6.1).
    // An answer is moved once, and rarely; boxed, every answer would be allocated.
    #[allow(clippy::result_large_err)]
    #[doc(alias = "svc_getargs")]
    pub fn decode<P: Procedure>(&self) -> Result<P::Args, EncodedReply> {
        trace::named(&self.span, P::NAME);
        if let Some(protection) = &self.protection {
            return self.decode_protected::<P>(&**protection);
        }
        self.try_decode::<P>().map_err(|error| {
            tracing::info!(
                target: "rpcrdma::call", procedure = P::NAME, xid = self.incoming.xid, %error,
                "arguments cannot be decoded"
            );
            // RFC 8166 §6.1: a call in which an argument is reduced that is not DDP-eligible MUST NOT be
            // processed, and is reported as in §4.5.2.
            if matches!(error.kind(), DecodeErrorKind::StrayChunk { .. }) {
                return EncodedReply(ReplyCommand::ChunkError);
            }
            self.refuse(RpcError::GarbageArguments)
        })
    }

    #[allow(clippy::result_large_err)]
    fn decode_protected<P: Procedure>(&self, protection: &dyn Protection) -> Result<P::Args, EncodedReply> {
        let refused = |error: &dyn fmt::Display| {
            tracing::info!(
                target: "rpcrdma::call", procedure = P::NAME, xid = self.incoming.xid, %error,
                "protected arguments refused"
            );
        };
        // RFC 8166 §8.2.2.3: nothing is eligible where the body is protected; what is reduced all the same is a violation as
        // any other (§6.1).
        if !self.incoming.reads.is_empty() {
            refused(&"reduced");
            return Err(EncodedReply(ReplyCommand::ChunkError));
        }
        let body = self.incoming.payload.as_slice().get(self.arguments_at..).unwrap_or_default();
        // RFC 2203 §5.3.3.4.2: GARBAGE_ARGS.
        let body = protection.unwrap(Bytes::copy_from_slice(body)).map_err(|error| {
            refused(&error);
            self.refuse(RpcError::GarbageArguments)
        })?;
        let mut decoder = Decoder::shared(&body).with_limits(self.context.connection.limits());
        let decoded = decoder.read::<P::Args>().and_then(|arguments| decoder.finish().map(|()| arguments));
        decoded.map_err(|error| {
            refused(&error);
            self.refuse(RpcError::GarbageArguments)
        })
    }

    fn try_decode<P: Procedure>(&self) -> Result<P::Args, DecodeError> {
        let decoder = match &self.incoming.payload {
            MessagePayload::Inline(message) => Decoder::new(message),
            MessagePayload::Long(bytes) => Decoder::shared(bytes),
        };
        let limits = self.context.connection.limits();
        let mut decoder = decoder.with_read_chunks(&self.incoming.reads).with_limits(limits);
        decoder.take(self.arguments_at)?;
        let arguments = P::Args::decode(&mut decoder).map_err(|error| match error.kind() {
            // It stands for an eligible item, and is of the wrong length.
            DecodeErrorKind::ChunkLength { .. } => error,
            // A chunk that no item takes is at fault before the items that it displaced are.
            _ => decoder.stray_chunk().unwrap_or(error),
        })?;
        decoder.finish()?;
        Ok(arguments)
    }

    /// Encodes the answer to the call from the result of its handler.
    #[doc(alias = "svc_sendreply")]
    pub fn finish<P: Procedure>(self, result: Result<P::Reply, HandlerError>) -> EncodedReply {
        let xid = self.incoming.xid;
        let error = match result {
            Ok(result) => match self.encode(&result) {
                Ok(reply) => {
                    tracing::debug!(
                        target: "rpcrdma::call", procedure = P::NAME, xid,
                        octets = reply.message.len(), reduced = reply.reduced.len(), "answered"
                    );
                    return EncodedReply(ReplyCommand::Reply(reply));
                }
                Err(error) => {
                    tracing::error!(
                        target: "rpcrdma::call", procedure = P::NAME, xid, %error, "the result cannot be encoded"
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
        };
        self.refuse(error)
    }

    /// Answers PROC_UNAVAIL.
    pub fn procedure_unavailable(self) -> EncodedReply {
        self.refuse(RpcError::ProcedureUnavailable)
    }

    fn encode<T: XdrEncode>(&self, result: &T) -> Result<OutgoingReply, ResultEncodeError> {
        let connection = &self.context.connection;
        let header = ReplyHeader::success(self.incoming.xid).with_verifier(self.verifier.clone());
        let engine = &connection.back.connection.engine;
        let is_rdma = connection.info.transport == Transport::Rdma;
        // Grows where the reply is longer.
        let room = if is_rdma { self.incoming.reply.max_inline } else { engine.send_size.into() };
        let mut message = message_buf(&engine.pool, usize::try_from(room).unwrap_or(usize::MAX));
        if let Some(protection) = &self.protection {
            // RFC 8166 §8.2.2.3: nothing is reduced, whatever chunks there are.
            header.encode(&mut FlatSink::new(&mut message))?;
            message.append(&protection.wrap(encode_to_bytes(result)?)?);
            return Ok(OutgoingReply { message, reduced: SmallVec::new() });
        }
        let chunks = self.incoming.reply.write_chunks.iter().map(Option::is_some);
        let mut sink = if is_rdma {
            ReducingSink::for_reply(&mut message, chunks)
        } else {
            // Sent from where they lie, in their places in the record.
            ReducingSink::for_engine(&mut message, engine.min_reduce)
        };
        header.encode(&mut sink)?;
        result.encode(&mut sink)?;
        let (reduced, copied): (SmallVec<[ReducedItem; 2]>, u64) = sink.finish();
        connection.port.add_copied_eligible(copied);
        Ok(OutgoingReply { message, reduced })
    }

    fn refuse(&self, error: RpcError) -> EncodedReply {
        let header = ReplyHeader::failure(self.incoming.xid, error).with_verifier(self.verifier.clone());
        EncodedReply(refusal(&header, self.context.connection.pool()))
    }
}

/// An error in encoding a result.
#[derive(Debug, thiserror::Error)]
enum ResultEncodeError {
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Security(#[from] SecurityError),
}

impl fmt::Debug for InboundCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("procedure", &self.procedure).field("context", &self.context).finish()
    }
}

/// Encodes a reply without results.
pub(super) fn refusal(header: &ReplyHeader, pool: &BufferPool) -> ReplyCommand {
    let mut message = message_buf(pool, 512);
    match header.encode(&mut crate::xdr::FlatSink::new(&mut message)) {
        Ok(()) => ReplyCommand::Reply(OutgoingReply { message, reduced: SmallVec::new() }),
        // An authenticator's verifier of more than 400 octets.
        Err(error) => {
            tracing::error!(target: "rpcrdma::call", %error, "a reply's header cannot be encoded");
            ReplyCommand::ChunkError
        }
    }
}
