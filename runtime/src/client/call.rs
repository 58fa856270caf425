//! The options of a call, the encoding of its message, and the decoding of its reply.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use super::{
    error::{CallError, Retries},
    link::ChannelLink,
    retry::RetryScope,
};
use crate::{
    engine::{
        CallFailure, CallPolicy, ChunkItems, IncomingReply, MessageFault, MessagePayload, OutgoingCall, ReplyResources,
        ResultChunk, SpareLists, inline_message_buf,
    },
    memory::{LandingPool, PayloadBuf},
    rpc::{self, CallHeader, OpaqueAuth, ReplyHeader, ReplyHeaderError},
    security::{Secured, Security},
    service::{Procedure, ReplyBounds},
    session::ChannelConfig,
    trace::ObservedCall,
    xdr::{DecodeError, DecodeLimits, Decoder, ReducingSink, XdrEncode},
};

/// The options of one call. They take precedence over the channel's defaults.
///
/// ```
/// use std::time::Duration;
///
/// use rpcrdma::{client::CallOptions, rpc::Credential};
///
/// let credential = Credential::sys("client.example", 1000, 100, [4, 24]).to_opaque()?;
/// let options = CallOptions::new().timeout(Duration::from_secs(5)).credential(credential);
/// // channel.call::<Read>(&args, options).await?
/// # drop(options); Ok::<(), rpcrdma::xdr::EncodeError>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct CallOptions {
    pub(super) deadline: Option<Instant>,
    landing: SmallVec<[Landing; 1]>,
    pub(super) credential: Option<OpaqueAuth>,
    pub(super) security: Option<Arc<dyn Security>>,
    repeatable: bool,
    /// The maximum size of the reply. Boxed because it is rarely set, and would enlarge every call.
    reply_bounds: Option<Box<ReplyBounds>>,
    reply_limit: Option<u64>,
}

/// The memory for one eligible result.
#[derive(Debug)]
enum Landing {
    /// A buffer from the channel's pool.
    Pooled,
    /// A pool of the caller. Each attempt of the call uses a new buffer.
    From(LandingPool),
    Buffer(PayloadBuf),
    /// A buffer of the caller that an attempt of the call has used.
    Taken,
}

impl Landing {
    /// Returns the length of the memory in bytes, if the caller provides it.
    fn len(&self) -> Option<usize> {
        match self {
            Self::Pooled | Self::Taken => None,
            Self::From(pool) => Some(pool.buffer_len()),
            Self::Buffer(memory) => Some(memory.len()),
        }
    }

    fn take(&mut self) -> Option<PayloadBuf> {
        match self {
            Self::Pooled | Self::Taken => None,
            Self::From(pool) => Some(pool.alloc()),
            Self::Buffer(_) => match std::mem::replace(self, Self::Taken) {
                Self::Buffer(memory) => Some(memory),
                _ => None,
            },
        }
    }
}

impl CallOptions {
    /// Returns a copy, or `None` if there is a landing buffer that only one attempt can use.
    #[cfg(feature = "tower")]
    pub(super) fn try_clone(&self) -> Option<Self> {
        let copy = |landing: &Landing| match landing {
            Landing::Pooled => Some(Landing::Pooled),
            Landing::From(pool) => Some(Landing::From(pool.clone())),
            Landing::Buffer(_) | Landing::Taken => None,
        };
        Some(Self {
            deadline: self.deadline,
            landing: self.landing.iter().map(copy).collect::<Option<_>>()?,
            credential: self.credential.clone(),
            security: self.security.clone(),
            repeatable: self.repeatable,
            reply_bounds: self.reply_bounds.clone(),
            reply_limit: self.reply_limit,
        })
    }

    /// Creates options in which nothing is set, so that the channel's defaults apply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the deadline. A call that has no reply by then fails, but the server may still execute it. The call's
    /// memory is invalidated when the reply arrives, or when
    /// [`ConnectionConfig::abandoned_call_timeout`](crate::config::ConnectionConfig::abandoned_call_timeout) has
    /// passed.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the deadline to `timeout` from now.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = tokio::time::Instant::now().into_std().checked_add(timeout);
        self
    }

    /// Provides a landing buffer for the next eligible result, in the order of the reply's encoding. The server writes
    /// the result to it by RDMA Write, and the result's `Bytes` are a view of it. The buffer must have at least the
    /// maximum length of the result, or the call fails with [`CallError::Landing`]. Over TCP nothing is placed
    /// directly: the buffer is dropped, and the `Bytes` are a view of the reply.
    ///
    /// A call with such a buffer is not retried after a failure. If the channel has to send the call again, for example
    /// because the server has denied its security context, the result is placed in a buffer of the channel's pool
    /// instead. To get the memory back, make the buffer by [`LandingLoan::new`](crate::memory::LandingLoan::new). To
    /// reuse buffers, see [`landing_from`](Self::landing_from).
    pub fn landing(mut self, memory: PayloadBuf) -> Self {
        self.landing.push(Landing::Buffer(memory));
        self
    }

    /// Provides a buffer of `pool` for the next eligible result, in the order of the reply's encoding. The result's
    /// `Bytes` are a view of the buffer, which returns to `pool` when the last view is dropped. The call fails with
    /// [`CallError::Landing`] if the result may be longer than the pool's buffers. Over TCP the result is a view of the
    /// received record, and no buffer is used.
    ///
    /// ```no_run
    /// use rpcrdma::{client::{CallOptions, Channel}, memory::LandingPool};
    /// # use rpcrdma::{client::CallError, service::Procedure};
    /// # async fn read<Read: Procedure>(channel: &Channel, ranges: &[Read::Args]) -> Result<(), CallError>
    /// # where Read::Args: Sync {
    /// let landing = LandingPool::new(channel.pool(), 1 << 20);
    /// for range in ranges {
    ///     let options = CallOptions::new().landing_from(&landing);
    ///     let result = channel.call::<Read>(range, options).await?;
    ///     // The next call uses the same buffer once `result` has been dropped.
    ///     drop(result);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn landing_from(mut self, pool: &LandingPool) -> Self {
        self.landing.push(Landing::From(pool.clone()));
        self
    }

    /// Places the next eligible result in a buffer of the channel's pool. Use it to skip a result before you provide a
    /// buffer for a later result.
    pub fn landing_pooled(mut self) -> Self {
        self.landing.push(Landing::Pooled);
        self
    }

    /// Returns `true` if the call can be retried. A landing buffer of the caller is only good for one attempt.
    pub(super) fn can_retry(&self) -> bool {
        !self.landing.iter().any(|landing| matches!(landing, Landing::Buffer(_) | Landing::Taken))
    }

    /// Sets the maximum size of the reply, in place of the bounds that the procedure's binding computes from the
    /// arguments (RFC 8267 §3, §3.1, §6.2.1). Use it if you know a better bound, for example from an object's size, or
    /// to retry a call with more room after its reply did not fit.
    pub fn reply_bounds(mut self, bounds: ReplyBounds) -> Self {
        self.reply_bounds = Some(Box::new(bounds));
        self
    }

    /// Limits the memory provided for the inline part of the reply to `bytes`, and the memory for each eligible result
    /// to `bytes` as well. Use it if the server has agreed never to return more, as an NFS 4.1 server does by
    /// `ca_maxresponsesize` (RFC 8267 §6.2.2).
    pub fn reply_limit(mut self, bytes: u64) -> Self {
        self.reply_limit = Some(bytes);
        self
    }

    /// Returns the maximum size of the reply. `computed` returns the bounds of the procedure's binding.
    pub(super) fn bounds(&mut self, computed: impl FnOnce() -> ReplyBounds) -> ReplyBounds {
        let mut bounds = self.reply_bounds.take().map_or_else(computed, |bounds| *bounds);
        if let Some(limit) = self.reply_limit {
            bounds.inline = bounds.inline.min(limit);
            bounds.chunks.iter_mut().for_each(|chunk| *chunk = (*chunk).min(limit));
        }
        bounds
    }

    /// Allows the call to be executed twice, as if its procedure were declared `@idempotent`. Channels, pools and retry
    /// policies retry the call after its connection was lost. Version 2 of RPC-over-RDMA resends the call with more
    /// room for the reply if the responder reports too little (RPC-over-RDMA v2 §6.4).
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Sets the credential of the call, made by [`Credential::to_opaque`](crate::rpc::Credential::to_opaque).
    pub fn credential(mut self, credential: OpaqueAuth) -> Self {
        self.credential = Some(credential);
        self
    }

    /// Secures the call with `security` in place of the security of the channel. Use this if one connection carries the
    /// calls of several users.
    ///
    /// The channel does not [close](Security::close) this security.
    pub fn security(mut self, security: Arc<dyn Security>) -> Self {
        self.security = Some(security);
        self
    }

    /// Returns `true` if the server may execute the call twice.
    pub(super) fn is_idempotent(&self, callee: &CallTarget) -> bool {
        // RPC-over-RDMA v2 §6.4: such a call may be resent with more room for its reply.
        callee.idempotent || self.repeatable
    }

    /// Returns the Write chunks of one attempt of the call. Fails with [`CallError::Landing`] if a landing buffer is
    /// too short, or belongs to no result.
    fn result_chunks(
        &mut self,
        procedure: &'static str,
        bounds: &ReplyBounds,
        spare: &SpareLists,
    ) -> Result<ChunkItems<ResultChunk>, CallError> {
        let surplus = self.landing.iter().enumerate().skip(bounds.chunks.len());
        if let Some((index, len)) = surplus.filter_map(|(index, landing)| Some((index, landing.len()?))).next() {
            return Err(CallError::Landing { procedure, index, len, needed: 0 });
        }
        let mut chunks = SmallVec::new();
        // RFC 8166 §4.3.2.2: each chunk has room for the longest item allowed by the bounds.
        for (index, &max_len) in bounds.chunks.iter().enumerate() {
            let landing = self.landing.get_mut(index);
            if let Some(len) = landing.as_ref().and_then(|landing| landing.len())
                && (len as u64) < max_len
            {
                return Err(CallError::Landing { procedure, index, len, needed: max_len });
            }
            let landing = landing.and_then(Landing::take);
            chunks.push(ResultChunk { max_len, landing });
        }
        Ok(ChunkItems::with(chunks, &spare.results))
    }
}

/// The numbers and the properties of the procedure to call.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTarget {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) number: u32,
    /// `VERSION.PROCEDURE`, for error messages and traces.
    pub(super) name: &'static str,
    pub(super) idempotent: bool,
}

impl CallTarget {
    pub(super) const fn of<P: Procedure>() -> Self {
        let (program, version, number) = (P::PROGRAM, P::VERSION, P::NUMBER);
        Self { program, version, number, name: P::NAME, idempotent: P::IDEMPOTENT }
    }

    /// Returns the header of a call with `credential`. The XID and the verifier are set later.
    pub(super) fn header(&self, credential: &OpaqueAuth) -> CallHeader {
        let header = CallHeader::new(0, self.program, self.version, self.number);
        CallHeader { credential: credential.clone(), ..header }
    }
}

/// The procedure, arguments and options of a call, and the decoder of its result.
pub(super) struct CallParameters<'a, A, F> {
    pub(super) target: &'a CallTarget,
    pub(super) bounds: &'a ReplyBounds,
    pub(super) args: &'a A,
    pub(super) options: &'a mut CallOptions,
    /// The decoder of the result.
    pub(super) read: &'a F,
    /// The connections on which the call may be retried.
    pub(super) scope: RetryScope,
}

/// An outbound call, with the state that all its attempts share.
pub(super) struct OutboundCall<'a, A, F> {
    pub(super) parameters: CallParameters<'a, A, F>,
    pub(super) observed: &'a ObservedCall<'a>,
    /// The deadline in the options or, by default, from the channel's call timeout.
    pub(super) deadline: Option<Instant>,
    /// The XID of all attempts, if the server recognizes the call when it is sent again.
    pub(super) xid: Option<u32>,
}

impl<A, F> OutboundCall<'_, A, F> {
    /// Returns `true` if the server may execute the call twice.
    pub(super) fn is_idempotent(&self) -> bool {
        self.parameters.options.is_idempotent(self.parameters.target)
    }

    /// Returns the restrictions on how the call is sent. `protected` is `true` if the bodies of the call are protected.
    pub(super) fn policy(&self, protected: bool) -> CallPolicy {
        CallPolicy { idempotent: self.is_idempotent(), protected, xid: self.xid, ..CallPolicy::default() }
    }
}

static NO_VERIFIER: OpaqueAuth = OpaqueAuth::NONE;

/// Returns a call to encode into, with memory from the connection's pool.
// Calls are encoded in place, because moving one costs as much as copying a short message.
#[inline(always)]
pub(super) fn unencoded<A, F>(config: &ChannelConfig, call: &OutboundCall<'_, A, F>) -> OutgoingCall {
    let engine = &config.connection.engine;
    OutgoingCall {
        // The buffer has about the size of the longest inline message, and grows on demand. The engine decides what is
        // sent inline.
        message: inline_message_buf(&engine.pool, engine.send_size as usize),
        reduced: ChunkItems::new(),
        reply: ReplyResources { max_inline: 0, chunks: ChunkItems::new() },
        deadline: call.deadline,
        policy: call.policy(false),
    }
}

/// Encodes one call into `outgoing`. If the call is `secured`, its security must leave the bodies unprotected. Fails if
/// a landing buffer does not fit the results, or if the credential or the arguments cannot be encoded.
#[inline(always)]
pub(super) fn encode<A: XdrEncode, F>(
    outgoing: &mut OutgoingCall,
    link: &ChannelLink,
    config: &ChannelConfig,
    call: &mut OutboundCall<'_, A, F>,
    secured: Option<&Secured>,
) -> Result<(), CallError> {
    let CallParameters { target, bounds, args, ref mut options, .. } = call.parameters;
    let engine = &config.connection.engine;
    if !bounds.chunks.is_empty() || !options.landing.is_empty() {
        outgoing.reply.chunks = options.result_chunks(target.name, bounds, &engine.spare)?;
    }
    let credential = match secured {
        None => options.credential.as_ref().unwrap_or(&config.credential),
        Some(secured) => &secured.credential,
    };
    outgoing.reply.max_inline = rpc::max_reply_len(rpc::max_reply_verifier(credential), bounds.inline);
    // A secured call has a verifier of its own.
    let trace = config.trace.as_ref().filter(|_| secured.is_none());
    let trace = trace.and_then(|source| source.context(call.observed.span()));
    let verifier = trace.map(|trace| trace.verifier());
    let verifier = verifier.as_ref().unwrap_or(&NO_VERIFIER);
    let mut sink = ReducingSink::for_engine(&mut outgoing.message, engine.min_reduce);
    // The engine assigns the XID.
    CallHeader::encode_parts([0, target.program, target.version, target.number], credential, verifier, &mut sink)
        .map_err(|_| CallError::Credential { procedure: target.name, len: credential.body.len() })?;
    args.encode(&mut sink).map_err(|source| CallError::Encode { procedure: target.name, source })?;
    let (reduced, copied) = sink.finish();
    if !reduced.is_empty() {
        outgoing.reduced = ChunkItems::with(reduced, &engine.spare.reduced);
    }
    link.port.add_copied_eligible(copied);
    Ok(())
}

/// Returns a decoder of the message of a reply. It takes reduced results from the reply's Write chunks, and applies
/// `limits`.
#[inline(always)]
pub(super) fn decoder(reply: &IncomingReply, limits: DecodeLimits) -> Decoder<'_> {
    let decoder = match &reply.payload {
        MessagePayload::Inline(message) => Decoder::new(message),
        MessagePayload::Long(bytes) => Decoder::shared(bytes),
    };
    decoder.with_write_chunks(&reply.writes).with_limits(limits)
}

#[cold]
pub(super) fn decode_header(procedure: &'static str, decoder: &mut Decoder<'_>) -> Result<ReplyHeader, CallError> {
    ReplyHeader::decode(decoder).map_err(|error| match error {
        ReplyHeaderError::Malformed(source) => CallError::from_decode(procedure, source),
        _ => CallError::Transport {
            procedure,
            failure: CallFailure::BadReply(MessageFault::NotAReply),
            retries: Retries::default(),
        },
    })
}

/// Decodes the message of a reply, and its result with `read`. Fails if the reply has an error status, is malformed, or
/// has bytes after the result.
#[inline]
pub(super) fn decode<R>(
    procedure: &'static str,
    reply: &IncomingReply,
    limits: DecodeLimits,
    read: impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CallError> {
    let mut decoder = decoder(reply, limits);
    if ReplyHeader::take_plain_success(&mut decoder).is_none() {
        let header = decode_header(procedure, &mut decoder)?;
        header.outcome.map_err(|source| CallError::Rpc { procedure, source })?;
    }
    decode_body(procedure, &mut decoder, read)
}

/// Decodes the result of a call. Fails if anything follows it in the message.
#[inline(always)]
pub(super) fn decode_body<R>(
    procedure: &'static str,
    decoder: &mut Decoder<'_>,
    read: impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CallError> {
    let result = read(decoder).map_err(|source| CallError::from_decode(procedure, source))?;
    decoder.finish().map_err(|source| CallError::from_decode(procedure, source))?;
    Ok(result)
}
