//! Input and output types of an engine, independent of the version.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    chunk_items::{ChunkItems, SpareItems},
    extension::ExtensionFactory,
    failure::{CallFailure, CloseReason},
    host_auth::HostAuth,
    incoming::IncomingCall,
    properties::ReverseDirection,
    versions::Versions,
};
use crate::{
    memory::{BufferPool, MemoryBudget, MessageBuf, PayloadBuf},
    xdr::{ReducedItem, WriteChunk},
};
use bytes::Bytes;

/// Role of the local peer. The client connects, and is the requester of the forward direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Initiated the connection.
    Client,
    /// Accepted the connection.
    Server,
}

/// Identifier of a local call, unique on its connection while the engine knows the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

impl CallId {
    /// Returns the index of the call's slot in the engine, which is used again once the call has finished.
    #[doc(hidden)]
    pub fn index(self) -> usize {
        // The engine's keys have the index in the lower half.
        self.0 as u32 as usize
    }
}

/// Identifier of a received call, unique on its connection. A reply refers to its call by this token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReplyToken(pub u64);

/// A call to send.
#[derive(Debug)]
pub struct OutgoingCall {
    /// RPC message: a payload stream without the items in `reduced`. The engine writes the XID.
    pub message: MessageBuf,
    /// Items removed from the payload stream, in ascending order of position.
    pub reduced: ChunkItems<ReducedItem>,
    /// Upper bounds of the reply.
    pub reply: ReplyResources,
    /// Time at which the call fails with [`CallFailure::DeadlineExceeded`], if it has no reply by then.
    pub deadline: Option<Instant>,
    /// Restrictions on how the transport may convey or resend the call.
    pub policy: CallPolicy,
}

/// Properties of a call that restrict how the transport may convey or resend it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallPolicy {
    /// True if the responder may execute the call twice. If the reply needs more resources than the call provided, the engine
    /// then sends the call again with more (RPC-over-RDMA v2 §6.4, §7.3.4, §7.3.5). Otherwise the call fails.
    pub idempotent: bool,
    /// True if RPCSEC_GSS integrity or privacy protects the call. Neither the call nor its reply is reduced then
    /// (RPC-over-RDMA v2 §11.2.2.3).
    pub protected: bool,
    /// True if the verifier in the message covers the XID and a number that is valid for one call (RFC 2203 §5.3.1, §5.3.3.1). The
    /// engine never sends such a call twice.
    pub sealed: bool,
    /// True if the caller does not wait for the reply. The call ends with [`CallFailure::Cancelled`] as soon as it is sent.
    pub unanswered: bool,
    /// XID of the call, which must not be 0. `None` lets the engine assign one. Set it for a sealed call, and for a call whose
    /// responder recognizes calls that are sent again over another connection.
    pub xid: Option<u32>,
}

/// Upper bounds of the reply to a call (RFC 8166 §6.2).
#[derive(Debug, Default)]
pub struct ReplyResources {
    /// Maximum length in bytes of the reply's payload stream, including the RPC header, when every eligible result is reduced.
    pub max_inline: u64,
    /// DDP-eligible results in order. The engine provides one Write chunk for each.
    pub chunks: ChunkItems<ResultChunk>,
}

/// Size and destination of one DDP-eligible result.
#[derive(Debug)]
pub struct ResultChunk {
    /// Maximum length of the result in bytes.
    pub max_len: u64,
    /// Memory for the result, at least `max_len` bytes. `None` allocates from the engine's pool.
    pub landing: Option<PayloadBuf>,
}

/// Payload stream of a received message.
#[derive(Debug)]
pub enum MessagePayload {
    /// Message buffer from one or more Receives.
    Inline(MessageBuf),
    /// Separate memory: a Position-Zero Read chunk, a Reply chunk, or a long record of a byte stream.
    Long(Bytes),
}

impl MessagePayload {
    /// Returns the bytes of the payload stream.
    #[inline]
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Inline(message) => message,
            Self::Long(bytes) => bytes,
        }
    }

    /// Returns the length of the payload stream in bytes.
    #[inline]
    #[doc(hidden)]
    pub fn byte_len(&self) -> usize {
        match self {
            Self::Inline(message) => message.byte_len(),
            Self::Long(bytes) => bytes.len(),
        }
    }
}

/// Format in which a message was conveyed (RFC 8166 §3.5, RPC-over-RDMA v2 §4.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MessageFormat {
    /// One Send that contains the whole message. Version 2 calls it Simple.
    #[default]
    Short,
    /// One Send, with eligible items in chunks. Version 2 calls it Simple with chunks.
    Chunked,
    /// Several Sends, of which the last has the chunks. Version 2 only.
    Continued,
    /// The payload stream itself is in a chunk. Version 2 calls it Special.
    Long,
    /// A record of a byte stream (RFC 5531 §11).
    Record,
    /// A message of an extension's header type (RPC-over-RDMA v2 appendix B.2).
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

/// Reason for the choice of a [`MessageFormat`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum FormatReason {
    /// The message fits in one Send.
    #[default]
    Fits,
    /// The message fits in one Send when its eligible items are in chunks.
    Reduced,
    /// The message is longer than one Send, but within [`EngineConfig::max_continued`], or the requester provided no Reply chunk
    /// for it.
    WithinContinuation,
    /// The message is longer than one Send and exceeds the limit for Message Continuation, or the version has no continuation.
    TooLong,
    /// The message is longer than one Send, and the peer accepts no chunks for it.
    NoChunks,
    /// The message is longer than one Send, and the requester provided a Reply chunk (RPC-over-RDMA v2 §4.4.3).
    ReplyChunk,
    /// A byte stream has only one format.
    Stream,
    /// An extension conveys the message.
    Extension,
}

impl FormatReason {
    /// All reasons.
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
            Self::WithinContinuation => "longer than one Send, but within the limit for several",
            Self::TooLong => "longer than one Send, and beyond the limit for several",
            Self::NoChunks => "longer than one Send, and the peer accepts no chunks for it",
            Self::ReplyChunk => "longer than one Send, and there is a Reply chunk",
            Self::Stream => "a byte stream has no other format",
            Self::Extension => "an extension conveys it",
        })
    }
}

/// Format of a message and the reason for its choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FormatChoice {
    /// Format in which the message was conveyed.
    pub format: MessageFormat,
    /// Reason for the choice of the format.
    pub reason: FormatReason,
}

/// A received reply. All memory that was exposed for its call has been invalidated.
#[derive(Debug)]
pub struct IncomingReply {
    /// RPC message: its payload stream.
    pub payload: MessagePayload,
    /// Write chunks, as many as the call provided.
    pub writes: ChunkItems<WriteChunk>,
    /// Format of the reply.
    pub format: MessageFormat,
    /// Reason for the format, as far as the receiver can tell.
    pub reason: FormatReason,
    /// Format of the call when it was last sent, and the reason for it.
    pub call: FormatChoice,
}

/// A reply to send.
#[derive(Debug)]
pub struct OutgoingReply {
    /// RPC message: a payload stream without the items in `reduced`.
    pub message: MessageBuf,
    /// Items removed from the payload stream, in order. `chunk` is the index of the Write chunk for the item.
    pub reduced: ChunkItems<ReducedItem>,
}

/// Event that an engine reports. The enumeration is exhaustive, because a driver has to handle every event.
#[derive(Debug)]
pub enum EngineEvent {
    /// A local call has finished. Its identifier is no longer valid.
    CallFinished {
        /// Identifier that `start_call` returned.
        id: CallId,
        /// Reply, or the reason why there is none.
        result: Result<IncomingReply, CallFailure>,
    },
    /// The peer sent a call.
    CallArrived(IncomingCall),
    /// The last Send of a reply was passed to the transport, or the reply could not be sent.
    ReplySent {
        /// Token of the call.
        token: ReplyToken,
        /// `false` if the connection ended first, or if the requester provided too few resources for the reply.
        delivered: bool,
    },
    /// The connection is closed. Every call has finished before this event.
    Closed(CloseReason),
}

/// Configuration of an engine, for all versions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EngineConfig {
    /// Credits of the forward direction: the number that a server grants and that a client requests. Default 32.
    pub credits: u32,
    /// Credits of the reverse direction, which are counted separately (RFC 8167 §4.1): the number that a client grants to its
    /// server and that a server requests. Each credit needs a Receive. 0 disables the reverse direction: a client discards the
    /// calls of its server (RFC 8167 §6), and a server makes none. Default 8.
    pub reverse_credits: u32,
    /// Maximum length in bytes of a message that is sent inline, unless the peer's limit is lower. Default 4096.
    pub send_size: u32,
    /// Size of the local Receives in bytes. Default 4096.
    pub receive_size: u32,
    /// Minimum length in bytes from which an eligible item is reduced. Shorter arguments, and results with a smaller maximum
    /// length, stay inline if they fit. Default 1024.
    pub min_reduce: usize,
    /// Maximum length in bytes of a local segment. A chunk has as many segments as it needs. Default 1 GiB.
    pub max_segment_len: u32,
    /// Maximum number of segments accepted in a received message. Default 256.
    pub max_segments: u32,
    /// Maximum number of Read chunks, and of Write chunks, accepted in one message. A chunk that conveys a whole message does not
    /// count. A service that needs more (`Service::max_chunks` of the crate `rpcrdma`) raises the limit to that
    /// number. Default 16.
    pub max_chunks: u32,
    /// Maximum number of bytes that a responder fetches for one call (Read chunks), or that a requester allocates for one reply.
    /// A call whose eligible results may be longer, by the maxima of their types or `@ddp(max = ...)`, fails before it is sent
    /// ([`CallFailure::TooLarge`]). Raise this limit for it, or supply memory for the results ([`ResultChunk::landing`]), which
    /// does not count. Default 64 MiB.
    pub max_call_len: u64,
    /// Maximum number of bytes on the connection that are being fetched, or were fetched for calls that have no reply yet.
    /// Default 256 MiB.
    pub max_fetched: u64,
    /// Time without progress in RDMA Reads of a peer's Read chunks, or in version 2 in a partially received message, after which
    /// the connection is closed. Both hold memory. Default 60 seconds.
    pub fetch_timeout: Duration,
    /// Time after which the connection is closed if the peer accepts no part of the pending replies. Pending replies hold their
    /// results in memory, and the connection counts against the limits of its server. Every completed Send or RDMA Write counts
    /// as progress, and so do bytes that leave the host. After progress by bytes alone, detection may take up to twice this
    /// time. In version 2 the time without credit from the peer counts too. Default 60 seconds.
    pub reply_timeout: Duration,
    /// Version 2: maximum length in bytes of a payload stream that goes in several Sends (Message Continuation) rather than by
    /// RDMA (Special Format), and maximum length of a reply for which no Reply chunk is provided. Default 64 KiB.
    pub max_continued: u32,
    /// Versions of RPC-over-RDMA to offer and accept. Default both.
    pub versions: Versions,
    /// Maximum time for the negotiation of version and properties. Default 10 seconds.
    pub negotiation_timeout: Duration,
    /// Version 2: level of reverse-direction support that a client announces, unless `reverse_credits` is 0. Default
    /// [`ReverseDirection::General`].
    pub reverse_direction: ReverseDirection,
    /// Version 2: mutual authentication of the hosts. Default none.
    pub host_auth: Option<Arc<dyn HostAuth>>,
    /// Version 2: header types, properties and errors that the application adds. Default none.
    pub extensions: Vec<Arc<dyn ExtensionFactory>>,
    /// Time for which the memory of an abandoned call (cancelled, or past its deadline) stays registered, so that the peer can
    /// still complete its reply. An invalidation while the peer accesses the memory breaks the connection. 0 invalidates
    /// immediately and accepts that risk. Default 5 seconds.
    pub abandoned_call_timeout: Duration,
    /// Pool for message buffers, and for the memory of chunks.
    pub pool: BufferPool,
    /// Memory budget that all connections of a server share. Without it, only the limits of each connection apply.
    #[doc(hidden)]
    pub budget: Option<Arc<MemoryBudget>>,
    #[doc(hidden)]
    pub spare: SpareLists,
}

/// Memory for the lists of later messages of a connection. Clones share it.
#[derive(Debug, Clone, Default)]
#[doc(hidden)]
pub struct SpareLists {
    #[doc(hidden)]
    pub reduced: Arc<SpareItems<ReducedItem>>,
    #[doc(hidden)]
    pub results: Arc<SpareItems<ResultChunk>>,
    #[doc(hidden)]
    pub writes: Arc<SpareItems<WriteChunk>>,
}

impl EngineConfig {
    /// Returns the configuration of one connection, which keeps memory of its own for reuse.
    #[doc(hidden)]
    pub fn for_connection(&self) -> Self {
        Self { pool: self.pool.for_connection(), spare: SpareLists::default(), ..self.clone() }
    }
}

/// Default of [`EngineConfig::min_reduce`].
#[doc(hidden)]
pub const DEFAULT_MIN_REDUCE: usize = 1024;

/// Default of [`EngineConfig::max_continued`].
#[doc(hidden)]
pub const DEFAULT_CONTINUED: u32 = 64 << 10;

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            credits: 32,
            reverse_credits: 8,
            send_size: 4096,
            receive_size: 4096,
            min_reduce: DEFAULT_MIN_REDUCE,
            max_segment_len: 1 << 30,
            max_segments: 256,
            max_chunks: 16,
            max_call_len: 64 << 20,
            max_fetched: 256 << 20,
            fetch_timeout: Duration::from_secs(60),
            reply_timeout: Duration::from_secs(60),
            max_continued: DEFAULT_CONTINUED,
            versions: Versions::default(),
            negotiation_timeout: Duration::from_secs(10),
            reverse_direction: ReverseDirection::default(),
            host_auth: None,
            extensions: Vec::new(),
            abandoned_call_timeout: Duration::from_secs(5),
            pool: BufferPool::default(),
            budget: None,
            spare: SpareLists::default(),
        }
    }
}
