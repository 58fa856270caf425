//! What goes into an engine and comes out of it, whatever its version.

use std::{
    fmt,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{
    extension::ExtensionFactory,
    host_auth::{HostAuth, HostAuthError},
    properties::ReverseDirection,
    refusal::TransportError,
    stream_error::StreamError,
};
use crate::{
    memory::{BudgetCharge, BufferPool, MemoryBudget, MessageBuf, PayloadBuf},
    provider::{DisconnectReason, IoError},
    rpc::{Seal, SecurityError},
    xdr::{ReadChunk, ReducedItem, WriteChunk},
};

/// Which end of the connection this is: who connected is the client, and the requester of the forward direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Connected actively.
    Client,
    /// Accepted the connection.
    Server,
}

/// A call's number on its connection, for as long as the call is known to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A received call's number on its connection: what a reply refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub u64);

/// A call to be sent.
#[derive(Debug)]
pub struct OutgoingCall {
    /// The RPC message: a payload stream from which the items in `reduced` are missing. The engine writes the XID.
    pub message: MessageBuf,
    /// The items removed from it, in ascending order of position.
    pub reduced: SmallVec<[ReducedItem; 2]>,
    /// What the reply may need.
    pub reply: ReplyResources,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// What the transport may do with it.
    pub policy: CallPolicy,
    /// What gives it its verifier, in the place of that which `message` has, once its XID is known (RFC 2203 §5.3.1).
    pub seal: Option<Arc<dyn Seal>>,
}

/// What the transport may do with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallPolicy {
    /// The call may be carried out twice: where the responder found that its reply needs more than the call provided, it is
    /// sent again, with more (RPC-over-RDMA v2 §6.4, §7.3.4, §7.3.5). Otherwise such a call fails.
    pub idempotent: bool,
    /// The call is protected by RPCSEC_GSS integrity or privacy: nothing of it, nor of its reply, is reduced
    /// (RPC-over-RDMA v2 §11.2.2.3).
    pub protected: bool,
}

/// What the reply to a call may need at most (RFC 8166 §6.2).
#[derive(Debug, Default)]
pub struct ReplyResources {
    /// Most octets of the reply's payload stream, RPC header included, when every eligible result is reduced.
    pub max_inline: u64,
    /// One Write chunk for each eligible result, in order.
    pub chunks: SmallVec<[ResultChunk; 2]>,
}

/// Where one eligible result may land.
#[derive(Debug)]
pub struct ResultChunk {
    /// Most octets of the item.
    pub max_len: u64,
    /// Memory the caller supplies; otherwise it comes from the engine's pool. At least `max_len` octets.
    pub landing: Option<PayloadBuf>,
}

/// A message's payload stream, as it arrived.
#[derive(Debug)]
pub enum MessagePayload {
    /// In a Receive.
    Inline(MessageBuf),
    /// By RDMA, in memory of its own (Position-Zero Read chunk, Reply chunk).
    Long(Bytes),
}

impl MessagePayload {
    /// The octets.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(message) => message,
            Self::Long(bytes) => bytes,
        }
    }
}

/// How a message was conveyed (RFC 8166 §3.5, RPC-over-RDMA v2 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MessageFormat {
    /// Whole in one Send. Version 2 calls it Simple.
    #[default]
    Short,
    /// In one Send, eligible items in chunks. Version 2: Simple with chunks.
    Chunked,
    /// In several Sends, chunks with the last of them. Version 2 only.
    Continued,
    /// The payload stream itself in a chunk. Version 2 calls it Special.
    Long,
    /// In a record of a byte stream (RFC 5531 §11).
    Record,
    /// In a message of an extension's header type (RPC-over-RDMA v2 appendix B.2).
    Extension,
}

impl fmt::Display for MessageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "short",
            Self::Chunked => "chunked",
            Self::Continued => "continued",
            Self::Long => "long",
            Self::Record => "record",
            Self::Extension => "extension",
        })
    }
}

/// Why a message was conveyed as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FormatReason {
    /// It fits in one Send as it is.
    #[default]
    Fits,
    /// With its eligible items in chunks, it fits in one Send.
    Reduced,
    /// It is longer than one Send, and no longer than Message Continuation is worth
    /// ([`EngineConfig::max_continued`]); or nothing else was provided for it.
    WithinContinuation,
    /// It is longer than one Send, and than Message Continuation is worth; or the version has none.
    TooLong,
    /// It is longer than one Send, and the peer takes no chunks for it.
    NoChunks,
    /// It is longer than one Send, and the requester provided a Reply chunk (RPC-over-RDMA v2 §4.4.3).
    ReplyChunk,
    /// A byte stream has no other.
    Stream,
    /// An extension conveys it.
    Extension,
}

impl FormatReason {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Fits,
        Self::Reduced,
        Self::WithinContinuation,
        Self::TooLong,
        Self::NoChunks,
        Self::ReplyChunk,
        Self::Stream,
        Self::Extension,
    ];
}

impl fmt::Display for FormatReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fits => "it fits in one Send as it is",
            Self::Reduced => "with its eligible items in chunks, it fits in one Send",
            Self::WithinContinuation => "longer than one Send, and not too long for several",
            Self::TooLong => "longer than one Send, and too long for several",
            Self::NoChunks => "longer than one Send, and no chunk is taken for it",
            Self::ReplyChunk => "longer than one Send, and there is a Reply chunk",
            Self::Stream => "a byte stream has no other form",
            Self::Extension => "an extension conveys it",
        })
    }
}

/// How a message was conveyed, and why so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FormatChoice {
    /// How.
    pub format: MessageFormat,
    /// Why.
    pub reason: FormatReason,
}

/// A reply that has arrived. All memory that was exposed for its call is invalid by now.
#[derive(Debug)]
pub struct IncomingReply {
    /// The RPC message: its payload stream.
    pub payload: MessagePayload,
    /// The Write chunks, as many as the call provided.
    pub writes: SmallVec<[WriteChunk; 2]>,
    /// How the reply was conveyed.
    pub format: MessageFormat,
    /// Why it was conveyed so, as far as its receiver can tell.
    pub reason: FormatReason,
    /// How its call was conveyed, the last time it was sent, and why so.
    pub call: FormatChoice,
}

/// A call that has arrived, its Read chunks pulled.
#[derive(Debug)]
pub struct IncomingCall {
    /// What the reply is to refer to.
    pub token: ReplyToken,
    /// Its XID.
    pub xid: u32,
    /// The RPC message: its payload stream.
    pub payload: MessagePayload,
    /// How it was conveyed.
    pub format: MessageFormat,
    /// Its Read chunks, the Position-Zero one excepted, in ascending order of position.
    pub reads: SmallVec<[ReadChunk; 2]>,
    /// What the requester provided for the reply.
    pub reply: ReplyPlan,
    /// What it holds of its server's memory, until it is dropped.
    #[allow(dead_code, reason = "it is there to be dropped with the call")]
    pub(crate) charge: BudgetCharge,
}

/// What a requester provided for its reply.
#[derive(Debug, Clone, Default)]
pub struct ReplyPlan {
    /// Capacity of each Write chunk in octets, in order; `None` for an empty Write chunk.
    pub write_chunks: SmallVec<[Option<u64>; 4]>,
    /// Capacity of the Reply chunk, where there is one.
    pub reply_chunk: Option<u64>,
    /// Most octets of payload stream that fit inline after the transport header.
    pub max_inline: u64,
}

/// A reply to be sent.
#[derive(Debug)]
pub struct OutgoingReply {
    /// The RPC message: a payload stream from which the items in `reduced` are missing.
    pub message: MessageBuf,
    /// The items removed from it, in order; `chunk` says which Write chunk each goes to.
    pub reduced: SmallVec<[ReducedItem; 2]>,
}

/// What an engine tells.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineEvent {
    /// A call of this end's is over; the call id is free.
    CallFinished {
        /// From `start_call`.
        id: CallId,
        /// What came of it.
        result: Result<IncomingReply, CallFailure>,
    },
    /// A call of the peer's.
    CallArrived(IncomingCall),
    /// The reply's last Send is handed over, or the reply could not be sent.
    ReplySent {
        /// From the call.
        token: ReplyToken,
        /// `false` when the connection ended first, or the requester provided too little for it.
        delivered: bool,
    },
    /// The connection is over; every call has finished before this.
    Closed(CloseReason),
}

/// Why a call got no RPC reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The connection ended. Whether the call was carried out is unknown if it was `sent`.
    #[error("connection closed, {}", outcome(*.sent))]
    Closed {
        /// Why.
        #[source]
        reason: CloseReason,
        /// Whether any of it may have reached the peer: if not, a retry is safe.
        sent: bool,
    },
    /// The deadline passed first. Whether the call was or will be carried out is unknown if it was `sent`.
    #[error("deadline passed, {}", outcome(*.sent))]
    DeadlineExceeded {
        /// Whether any of it may have reached the peer.
        sent: bool,
    },
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled {
        /// Whether any of it may have reached the peer.
        sent: bool,
    },
    /// The responder's transport refused the call with RDMA_ERROR, ERR_VERS (RFC 8166 §4.5.1).
    #[error("the responder supports RPC-over-RDMA versions {low} to {high} only")]
    VersionMismatch {
        /// Lowest version it supports.
        low: u32,
        /// Highest version it supports.
        high: u32,
    },
    /// The responder's transport refused the call with RDMA_ERROR, ERR_CHUNK (RFC 8166 §4.5.2, §4.5.3): it could
    /// not parse the header, or the chunks provided were too small or unusable.
    #[error("the responder reported ERR_CHUNK (RFC 8166 section 4.5): it could not use the header or its chunks")]
    ChunkError,
    /// The reply broke a rule of the protocol.
    #[error("bad reply: {0}")]
    BadReply(String),
    /// Memory could not be registered for the call.
    #[error("cannot register memory for the call")]
    Registration(#[source] IoError),
    /// The call does not fit the protocol's limits: too many chunks or segments, an item of 4 GiB or more.
    #[error("the call cannot be sent: {0}")]
    TooLarge(String),
    /// A call in the reverse direction does not fit in one Send, which is all there is for it: version 1 has no chunks
    /// there (RFC 8167 §5.3), and a peer of version 2 may say so (RPC-over-RDMA v2 §5.2.5). Nothing was sent.
    #[error("a call of {len} octets in the reverse direction, where at most {max} fit inline (RFC 8167 section 5.3)")]
    ReverseTooLong {
        /// Octets of the RPC message.
        len: u64,
        /// Most octets that fit: the inline threshold less the transport header.
        max: u64,
    },
    /// The responder's transport refused the call with RDMA2_ERROR (RPC-over-RDMA v2 §7).
    #[error("the responder refused the call")]
    Refused(#[from] TransportError),
    /// The call could not be sealed. Nothing was sent.
    #[error("cannot seal the call")]
    Security(#[from] SecurityError),
    /// The peer has said that it takes no calls in the reverse direction (RPC-over-RDMA v2 §5.2.5). Nothing was sent.
    #[error("the peer takes no calls in the reverse direction (RPC-over-RDMA v2 section 5.2.5)")]
    ReverseNotSupported,
    /// A call in the reverse direction on a connection that this end has configured without one.
    #[error("no calls in the reverse direction here (RFC 8167 section 6): EngineConfig::reverse_credits is 0")]
    ReverseDisabled,
}

/// Describes what is known about a call that ended without a reply.
fn outcome(sent: bool) -> &'static str {
    if sent {
        "the call was sent and may have been executed, retry only an idempotent procedure"
    } else {
        "the call was not sent, a retry is safe"
    }
}

impl CallFailure {
    /// Whether the responder cannot have seen the call, or has refused it unseen.
    pub(crate) fn is_unseen(&self) -> bool {
        match self {
            Self::Closed { sent, .. } | Self::DeadlineExceeded { sent } | Self::Cancelled { sent } => !sent,
            Self::VersionMismatch { .. }
            | Self::Registration(_)
            | Self::TooLarge(_)
            | Self::Security(_)
            | Self::ReverseTooLong { .. }
            | Self::ReverseNotSupported
            | Self::ReverseDisabled => true,
            Self::Refused(refusal) => refusal.is_unexecuted(),
            // ERR_CHUNK is also what a responder says whose reply did not fit what was provided.
            Self::ChunkError | Self::BadReply(_) => false,
        }
    }
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The provider ended it.
    #[error(transparent)]
    Disconnected(#[from] DisconnectReason),
    /// The peer broke a rule of RPC-over-RDMA.
    #[error("the peer broke RPC-over-RDMA: {0}")]
    PeerViolation(String),
    /// The connection ended, or its peer said nothing for too long, before both ends had agreed on a version and on
    /// properties (RPC-over-RDMA v2 §4.2.3). No call has been sent. A peer that has no version 2 may behave so: a new
    /// connection may be tried with version 1 only ([`EngineConfig::versions`]).
    #[error("no version was agreed on ({why}){}", .versions.map_or(String::new(), |(low, high)| format!("; the peer supports {low} to {high}")))]
    NegotiationFailed {
        /// What happened.
        why: String,
        /// The versions that the peer has said it supports, lowest and highest, if it has.
        versions: Option<(u32, u32)>,
    },
    /// The peer was not let in, or did not let this end in (RPC-over-RDMA v2 §5.2.6).
    #[error(transparent)]
    HostAuthentication(#[from] HostAuthError),
    /// Every credit is held by a call that the peer has not answered, not even for so long after it was given up.
    #[error("the peer answers no calls, not even {0:?} after they were given up")]
    Unresponsive(Duration),
    /// RDMA Reads of what the peer's calls offer brought nothing, or the rest of a message did not come
    /// ([`EngineConfig::fetch_timeout`]).
    #[error("the peer let RDMA Reads of its calls' data, or the rest of a message, wait for {0:?}")]
    ReadStalled(Duration),
    /// The peer took nothing of the answers to its calls, though some were under way, or did not let them go out
    /// ([`EngineConfig::reply_timeout`]).
    #[error("the peer took nothing of the answers to its calls for {0:?}")]
    ReplyStalled(Duration),
    /// The peer broke record marking.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The peer was silent for too long.
    #[error("idle for {0:?}")]
    Idle(Duration),
}

/// What both versions' engines are configured with.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineConfig {
    /// Credits of the forward direction: those a server grants, and those a client asks for. Default 32.
    pub credits: u32,
    /// Credits of the reverse direction, which are apart (RFC 8167 §4.1): those a client grants to its server's calls, and
    /// those a server asks for. Each takes a Receive. With 0 there is no reverse direction at this end: a client discards the
    /// calls of its server (RFC 8167 §6), and a server makes none. Default 8.
    pub reverse_credits: u32,
    /// Most octets this end sends inline unless the peer takes less. Default 4096.
    pub send_size: u32,
    /// Size of this end's Receives. Default 4096.
    pub receive_size: u32,
    /// Eligible arguments shorter than this, and results whose maximum is, stay inline where they fit. Default 1024.
    pub min_reduce: usize,
    /// Longest segment this end makes; a chunk has as many as it needs. Default 1 GiB.
    pub max_segment_len: u32,
    /// Most segments of one chunk, and of one message, that are accepted from a peer. Default 256.
    pub max_segments: u32,
    /// Most Read chunks of one message that are accepted from a peer, and most Write chunks: of eligible items, one that conveys a
    /// whole message is not counted. Services that need more ([`Service::max_chunks`](crate::server::Service::max_chunks)) get as
    /// many. Default 16.
    pub max_chunks: u32,
    /// Most octets pulled for one call (Read chunks) as a responder, or allocated for its reply as a requester. A call whose
    /// eligible results may be longer, by the maxima of their types or `@ddp(max = ...)`, is refused before it is sent
    /// ([`CallFailure::TooLarge`]): it needs a larger limit here, or memory of its own to land them in
    /// ([`ResultChunk::landing`]), which is not counted. Default 64 MiB.
    pub max_call_len: u64,
    /// Most octets of Read chunks being pulled, or pulled and not yet answered, on the connection. Default 256 MiB.
    pub max_fetched: u64,
    /// How long RDMA Reads of a peer's Read chunks, or in version 2 a message that the peer has sent in part, may bring nothing
    /// before the connection is closed: they hold memory meanwhile. Default 60 seconds.
    pub fetch_timeout: Duration,
    /// How long a peer may take nothing of the answers to its calls before the connection is closed: they hold their results, and
    /// the connection its place at a server, meanwhile. What is under way, Sends and RDMA Writes, goes on with each that completes,
    /// and with octets that leave; after such octets it may take up to twice as long until the end is noticed. In version 2
    /// the time for which the peer gives no credit counts as well. Default 60 seconds.
    pub reply_timeout: Duration,
    /// Version 2: longest payload stream in octets that goes in several Sends (Message Continuation) rather than by RDMA
    /// (Special Format), and longest reply for which no Reply chunk is provided. Default 64 KiB.
    pub max_continued: u32,
    /// Versions of RPC-over-RDMA that are offered and taken, within 1 to 2. A client begins with the highest. Default both.
    pub versions: RangeInclusive<u32>,
    /// How long the exchange of versions and properties may take. Default 10 seconds.
    pub negotiation_timeout: Duration,
    /// Version 2: what this end, as a client, takes of the reverse direction, unless `reverse_credits` is 0. Default
    /// everything.
    pub reverse_direction: ReverseDirection,
    /// Version 2: who this end is, and who its peer must be. Default nobody in particular.
    pub host_auth: Option<Arc<dyn HostAuth>>,
    /// Version 2: header types, properties and errors of the application's own.
    pub extensions: Vec<Arc<dyn ExtensionFactory>>,
    /// How long the memory of a call that was given up (cancelled, deadline passed) stays registered, and out of
    /// everybody's reach but the peer's, for the peer's reply to it. Taking it away while the peer is using it costs the
    /// connection, so zero, at once, is for those who prefer that. Default 5 seconds.
    pub abandoned_call_timeout: Duration,
    /// Where message buffers and landing memory come from.
    pub pool: BufferPool,
    /// What the connections of one server may hold for calls, all together; without it each has a limit of its own only.
    pub(crate) budget: Option<Arc<MemoryBudget>>,
}

/// [`EngineConfig::max_continued`], where nothing else is said.
pub(crate) const DEFAULT_CONTINUED: u32 = 64 << 10;

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            credits: 32,
            reverse_credits: 8,
            send_size: 4096,
            receive_size: 4096,
            min_reduce: 1024,
            max_segment_len: 1 << 30,
            max_segments: 256,
            max_chunks: 16,
            max_call_len: 64 << 20,
            max_fetched: 256 << 20,
            fetch_timeout: Duration::from_secs(60),
            reply_timeout: Duration::from_secs(60),
            max_continued: DEFAULT_CONTINUED,
            versions: 1..=2,
            negotiation_timeout: Duration::from_secs(10),
            reverse_direction: ReverseDirection::default(),
            host_auth: None,
            extensions: Vec::new(),
            abandoned_call_timeout: Duration::from_secs(5),
            pool: BufferPool::default(),
            budget: None,
        }
    }
}
