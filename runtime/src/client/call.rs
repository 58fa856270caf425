//! The options of a call, the encoding of its message, and the decoding of its reply.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{error::CallError, link::ChannelLink};
use crate::{
    engine::{
        CallFailure, CallPolicy, IncomingReply, MessagePayload, OutgoingCall, ReplyResources, ResultChunk, message_buf,
    },
    memory::{LandingPool, MessageBuf, Output as _, PayloadBuf},
    rpc::{self, CallHeader, OpaqueAuth, Protection, ReplyHeader, ReplyHeaderError, RpcError, Seal, Secured},
    service::{Procedure, ReplyBounds},
    session::ChannelConfig,
    xdr::{DecodeError, DecodeLimits, Decoder, FlatSink, ReducedItem, ReducingSink, XdrEncode, encode_to_bytes},
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
    repeatable: bool,
    /// Boxed because it is rarely set, and would enlarge every call.
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
    /// Creates options in which nothing is set, so that the channel's defaults apply.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the deadline. A call that has no reply by then fails, and its memory is invalidated. The server may still execute it.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the deadline to `timeout` from now.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = tokio::time::Instant::now().into_std().checked_add(timeout);
        self
    }

    /// Provides a landing buffer for the next eligible result, in the order of the reply's encoding. The server writes the result
    /// to it by RDMA Write, and the result's `Bytes` are a view of it. The buffer must have at least the maximum length of the
    /// result, or the call fails with [`CallError::Landing`]. Over TCP nothing is placed directly: the buffer is dropped, and the
    /// `Bytes` are a view of the reply.
    ///
    /// A call with such a buffer is never retried. To reuse buffers, see [`landing_from`](Self::landing_from).
    pub fn landing(mut self, memory: PayloadBuf) -> Self {
        self.landing.push(Landing::Buffer(memory));
        self
    }

    /// Provides a buffer of `pool` for the next eligible result, in the order of the reply's encoding. The result's `Bytes` are a
    /// view of the buffer, which returns to `pool` when the last view is dropped. The call fails with
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

    /// Places the next eligible result in a buffer of the channel's pool. This skips one result in the order of the encoding.
    pub fn landing_pooled(mut self) -> Self {
        self.landing.push(Landing::Pooled);
        self
    }

    /// Returns `true` if the call can be retried: each attempt needs memory for its results.
    pub(super) fn can_retry(&self) -> bool {
        !self.landing.iter().any(|landing| matches!(landing, Landing::Buffer(_) | Landing::Taken))
    }

    /// Sets the maximum size of the reply, in place of the bounds that the procedure's binding computes from the arguments (RFC
    /// 8267 §3, §3.1). Use it if you know a better bound, for example from an object's size, or to retry with more room a call
    /// whose reply did not fit.
    pub fn reply_bounds(mut self, bounds: ReplyBounds) -> Self {
        self.reply_bounds = Some(Box::new(bounds));
        self
    }

    /// Limits the memory provided for the reply to `bytes`: for the inline part, and for each eligible result. Use it
    /// if the server has agreed never to return more, as an NFS 4.1 server does by `ca_maxresponsesize` (RFC 8267 §6.2.2).
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

    /// Allows the call to be executed twice although its procedure is not declared `@idempotent`. Version 2 of RPC-over-RDMA then
    /// resends the call with more room for the reply if the responder reports too little (RPC-over-RDMA v2 §6.4).
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Sets the credential of the call, made by [`Credential::to_opaque`](crate::rpc::Credential::to_opaque).
    pub fn credential(mut self, credential: OpaqueAuth) -> Self {
        self.credential = Some(credential);
        self
    }
}

/// The procedure that is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTarget {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) number: u32,
    /// `PROGRAM.PROCEDURE`, for error messages and traces.
    pub(super) name: &'static str,
    pub(super) idempotent: bool,
}

impl CallTarget {
    pub(super) const fn of<P: Procedure>() -> Self {
        let (program, version, number) = (P::PROGRAM, P::VERSION, P::NUMBER);
        Self { program, version, number, name: P::NAME, idempotent: P::IDEMPOTENT }
    }
}

/// The security of one call.
pub(super) struct CallSecurity {
    seal: Arc<dyn Seal>,
    protection: Option<Arc<dyn Protection>>,
}

/// Encodes one call into memory from the connection's pool. The returned security, if any, is an argument of [`decode`].
pub(super) fn encode<A: XdrEncode>(
    link: &ChannelLink,
    config: &ChannelConfig,
    callee: CallTarget,
    bounds: &ReplyBounds,
    args: &A,
    options: &mut CallOptions,
    deadline: Option<Instant>,
) -> Result<(OutgoingCall, Option<CallSecurity>), CallError> {
    let procedure = callee.name;
    // RPC-over-RDMA v2 §6.4: such a call may be resent with more room for its reply.
    let idempotent = callee.idempotent || options.repeatable;
    let surplus = options.landing.iter().enumerate().skip(bounds.chunks.len());
    if let Some((index, len)) = surplus.filter_map(|(index, landing)| Some((index, landing.len()?))).next() {
        return Err(CallError::Landing { procedure, index, len, needed: 0 });
    }
    let mut chunks = SmallVec::new();
    // RFC 8166 §4.3.2.2: each chunk has room for the longest item allowed by the bounds.
    for (index, &max_len) in bounds.chunks.iter().enumerate() {
        let landing = options.landing.get_mut(index);
        if let Some(len) = landing.as_ref().and_then(|landing| landing.len())
            && (len as u64) < max_len
        {
            return Err(CallError::Landing { procedure, index, len, needed: max_len });
        }
        let landing = landing.and_then(Landing::take);
        chunks.push(ResultChunk { max_len, landing });
    }

    let engine = &config.connection.engine;
    let secured = match &config.security {
        None => None,
        Some(security) => {
            Some(security.secure().map_err(|source| CallError::Security { procedure, sent: false, source })?)
        }
    };
    let credential = match &secured {
        None => options.credential.as_ref().unwrap_or(&config.credential),
        Some(secured) => &secured.credential,
    };
    // The engine assigns the XID. The verifier covers the XID, so it is made later.
    let header = CallHeader {
        credential: credential.clone(),
        ..CallHeader::new(0, callee.program, callee.version, callee.number)
    };
    let max_verifier = rpc::max_reply_verifier(credential);
    let guard = secured.map(|Secured { seal, protection, .. }| CallSecurity { seal, protection });
    let seal = guard.as_ref().map(|guard| Arc::clone(&guard.seal));
    if let Some(protection) = guard.as_ref().and_then(|guard| guard.protection.as_deref()) {
        let message = message_buf(&engine.pool, engine.send_size as usize);
        let message = protect(message, &header, args, protection, procedure)?;
        // RFC 8166 §8.2.2.3: wrapped results are not reduced, so they need no Write chunks.
        let reply = ReplyResources {
            max_inline: rpc::max_reply_len(max_verifier, protection.max_wrapped(bounds.whole())),
            chunks: SmallVec::new(),
        };
        let policy = CallPolicy { idempotent, protected: true };
        return Ok((OutgoingCall { message, reduced: SmallVec::new(), reply, deadline, policy, seal }, guard));
    }
    // The buffer has the size of the longest inline message, and grows on demand. The engine decides what is sent inline.
    let mut message = message_buf(&engine.pool, engine.send_size as usize);
    let mut sink = ReducingSink::for_engine(&mut message, engine.min_reduce);
    header
        .encode(&mut sink)
        .and_then(|()| args.encode(&mut sink))
        .map_err(|source| CallError::Encode { procedure, source })?;
    let (reduced, copied): (SmallVec<[ReducedItem; 1]>, u64) = sink.finish();
    link.port.add_copied_eligible(copied);
    let max_inline = rpc::max_reply_len(max_verifier, bounds.inline);
    let reply = ReplyResources { max_inline, chunks };
    let policy = CallPolicy { idempotent, protected: false };
    Ok((OutgoingCall { message, reduced, reply, deadline, policy, seal }, guard))
}

/// Encodes a call whose arguments are protected. No eligible item is reduced (RFC 8166 §8.2.2.3).
fn protect<A: XdrEncode>(
    mut message: MessageBuf,
    header: &CallHeader,
    args: &A,
    protection: &dyn Protection,
    procedure: &'static str,
) -> Result<MessageBuf, CallError> {
    let encode = |source| CallError::Encode { procedure, source };
    header.encode(&mut FlatSink::new(&mut message)).map_err(encode)?;
    let wrapped = encode_to_bytes(args).map_err(encode).and_then(|body| {
        protection.wrap(body).map_err(|source| CallError::Security { procedure, sent: false, source })
    })?;
    message.append(&wrapped);
    Ok(message)
}

/// Decodes one reply. `read` decodes the result.
pub(super) fn decode<R>(
    procedure: &'static str,
    reply: &IncomingReply,
    limits: DecodeLimits,
    guard: Option<CallSecurity>,
    read: impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CallError> {
    let decoder = match &reply.payload {
        MessagePayload::Inline(message) => Decoder::new(message),
        MessagePayload::Long(bytes) => Decoder::shared(bytes),
    };
    let mut decoder = decoder.with_write_chunks(&reply.writes).with_limits(limits);
    match ReplyHeader::decode(&mut decoder) {
        Ok(header) => {
            let insecure = |source| CallError::Security { procedure, sent: true, source };
            // RFC 2203 §5.3.3.2: an accepted reply has a verifier. A denied reply has none (RFC 5531 §9).
            if let Some(guard) = &guard
                && !header.outcome.as_ref().is_err_and(RpcError::is_denied)
            {
                guard.seal.verify(&header.verifier).map_err(insecure)?;
            }
            // RFC 2203 §5.3.3.4: only results are protected, so an error status is not.
            header.outcome.map_err(|source| CallError::Rpc { procedure, source })?;
            if let Some(protection) = guard.and_then(|guard| guard.protection) {
                let body = Bytes::copy_from_slice(decoder.rest());
                let body = protection.unwrap(body).map_err(insecure)?;
                return decode_body(procedure, Decoder::shared(&body).with_limits(limits), read);
            }
        }
        Err(ReplyHeaderError::Malformed(source)) => return Err(CallError::from_decode(procedure, source)),
        Err(fault) => {
            let failure = CallFailure::BadReply(fault.to_string());
            return Err(CallError::Transport { procedure, failure });
        }
    }
    decode_body(procedure, decoder, read)
}

fn decode_body<R>(
    procedure: &'static str,
    mut decoder: Decoder<'_>,
    read: impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CallError> {
    let result = read(&mut decoder).map_err(|source| CallError::from_decode(procedure, source))?;
    decoder.finish().map_err(|source| CallError::from_decode(procedure, source))?;
    Ok(result)
}
