//! One call: its options, its message, its result.

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
    landing: SmallVec<[Landing; 2]>,
    pub(super) credential: Option<OpaqueAuth>,
    repeatable: bool,
    /// Boxed, because they are rare, and every call would have to be as large.
    reply_bounds: Option<Box<ReplyBounds>>,
    reply_limit: Option<u64>,
}

/// Memory for one eligible result.
#[derive(Debug)]
enum Landing {
    /// From the channel's pool.
    Pooled,
    /// From a pool of the caller's: another attempt of the call takes another buffer.
    From(LandingPool),
    Buffer(PayloadBuf),
    /// A buffer that an attempt of the call has taken.
    Taken,
}

impl Landing {
    /// The length of the memory in bytes, if the caller provides it.
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
    /// Nothing said: the channel's defaults hold.
    pub fn new() -> Self {
        Self::default()
    }

    /// When to give up. The call then fails and what it exposed is invalidated; the server may still carry it out.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// How long it may take from now on.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.deadline = tokio::time::Instant::now().into_std().checked_add(timeout);
        self
    }

    /// Memory for the next eligible result, in the order of the reply's encoding: the server's RDMA Write lands in it,
    /// and the result's `Bytes` are a view of it. It must be as long as the result may be. Over TCP nothing is placed:
    /// the memory is let go, and the `Bytes` are a view of the reply.
    ///
    /// A call with such memory is never retried. To use memory for one call after the other, see
    /// [`landing_from`](Self::landing_from).
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

    /// No memory for the next eligible result: it lands in the channel's pool.
    pub fn landing_pooled(mut self) -> Self {
        self.landing.push(Landing::Pooled);
        self
    }

    /// Returns whether the call may be made more than once. Each attempt needs memory for its results.
    pub(super) fn can_retry(&self) -> bool {
        !self.landing.iter().any(|landing| matches!(landing, Landing::Buffer(_) | Landing::Taken))
    }

    /// What the reply takes at most, in place of what the binding of the procedure computes from its arguments: for a
    /// caller that knows better, as one does that has asked for an object's size, or whose reply did not fit and who asks
    /// again with room for more (RFC 8267 §3, §3.1).
    pub fn reply_bounds(mut self, bounds: ReplyBounds) -> Self {
        self.reply_bounds = Some(Box::new(bounds));
        self
    }

    /// The server never returns more than `octets`, as was agreed with it: no more is provided, whether inline or for any
    /// of the eligible results. That of a session of NFS 4.1 is its `ca_maxresponsesize` (RFC 8267 §6.2.2).
    pub fn reply_limit(mut self, octets: u64) -> Self {
        self.reply_limit = Some(octets);
        self
    }

    /// What the reply takes at most; `computed` is what the binding says.
    pub(super) fn bounds(&mut self, computed: impl FnOnce() -> ReplyBounds) -> ReplyBounds {
        let mut bounds = self.reply_bounds.take().map_or_else(computed, |bounds| *bounds);
        if let Some(limit) = self.reply_limit {
            bounds.inline = bounds.inline.min(limit);
            bounds.chunks.iter_mut().for_each(|chunk| *chunk = (*chunk).min(limit));
        }
        bounds
    }

    /// The call may be carried out twice, though its procedure is not declared `@idempotent`. Version 2 of RPC-over-RDMA then
    /// sends it again, with more room for the reply, where its responder says that there is too little.
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Who this call is made for; from [`Credential::to_opaque`](crate::rpc::Credential::to_opaque).
    pub fn credential(mut self, credential: OpaqueAuth) -> Self {
        self.credential = Some(credential);
        self
    }
}

/// Which procedure is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallTarget {
    pub(super) program: u32,
    pub(super) version: u32,
    pub(super) number: u32,
    /// For messages and traces.
    pub(super) name: &'static str,
    pub(super) idempotent: bool,
}

impl CallTarget {
    pub(super) const fn of<P: Procedure>() -> Self {
        let (program, version, number) = (P::PROGRAM, P::VERSION, P::NUMBER);
        Self { program, version, number, name: P::NAME, idempotent: P::IDEMPOTENT }
    }
}

/// How a call is secured, if it is.
pub(super) struct CallSecurity {
    seal: Arc<dyn Seal>,
    protection: Option<Arc<dyn Protection>>,
}

/// Encodes one call; memory is taken from the connection's pool. What secures it is to be handed to [`decode`].
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
    // RPC-over-RDMA v2 §6.4: whether it may be sent again with more room for its reply.
    let idempotent = callee.idempotent || options.repeatable;
    let surplus = options.landing.iter().enumerate().skip(bounds.chunks.len());
    if let Some((index, len)) = surplus.filter_map(|(index, landing)| Some((index, landing.len()?))).next() {
        return Err(CallError::Landing { procedure, index, len, needed: 0 });
    }
    let mut chunks = SmallVec::new();
    // RFC 8166 §4.3.2.2: each chunk takes the largest item that may come to it, as the bounds tell.
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
    // The engine assigns the XID, and has the verifier made over it.
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
        // RFC 8166 §8.2.2.3: results come as they are wrapped, none of them in a Write chunk.
        let reply = ReplyResources {
            max_inline: rpc::max_reply_len(max_verifier, protection.max_wrapped(bounds.whole())),
            chunks: SmallVec::new(),
        };
        let policy = CallPolicy { idempotent, protected: true };
        return Ok((OutgoingCall { message, reduced: SmallVec::new(), reply, deadline, policy, seal }, guard));
    }
    // As long as may be sent inline; it grows where that is too little. The engine decides what goes inline.
    let mut message = message_buf(&engine.pool, engine.send_size as usize);
    let mut sink = ReducingSink::for_engine(&mut message, engine.min_reduce);
    header
        .encode(&mut sink)
        .and_then(|()| args.encode(&mut sink))
        .map_err(|source| CallError::Encode { procedure, source })?;
    let (reduced, copied): (SmallVec<[ReducedItem; 2]>, u64) = sink.finish();
    link.port.add_copied_eligible(copied);
    let max_inline = rpc::max_reply_len(max_verifier, bounds.inline);
    let reply = ReplyResources { max_inline, chunks };
    let policy = CallPolicy { idempotent, protected: false };
    Ok((OutgoingCall { message, reduced, reply, deadline, policy, seal }, guard))
}

/// Encodes a call whose arguments are protected: all of them, whatever is eligible (RFC 8166 §8.2.2.3).
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

/// Decodes one reply, its result by `read`.
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
            // RFC 2203 §5.3.3.2: what is accepted has a verifier; what is denied has none (RFC 5531 §9).
            if let Some(guard) = &guard
                && !header.outcome.as_ref().is_err_and(RpcError::is_denied)
            {
                guard.seal.verify(&header.verifier).map_err(insecure)?;
            }
            // RFC 2203 §5.3.3.4: only the results are protected.
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
