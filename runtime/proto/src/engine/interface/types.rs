//! Calls and replies as the upper layer passes and receives them, independent of the version.

use std::{fmt, time::Instant};

use bytes::Bytes;

use super::chunk_items::ChunkItems;
use crate::{
    memory::{MessageBuf, PayloadBuf},
    xdr::{ReducedItem, WriteChunk},
};

/// Role of the local peer. The client connects, and is the requester of the forward direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The local peer initiated the connection.
    Client,
    /// The local peer accepted the connection.
    Server,
}

/// Identifier of a local call, unique on its connection while the engine knows the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u64);

impl CallId {
    /// Returns the index of the call's slot in the engine. The slot is reused after the call has finished.
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
    /// Payload stream of the RPC message, without the items in `reduced`. The engine writes the XID.
    pub message: MessageBuf,
    /// Items removed from the payload stream, in ascending order of position.
    pub reduced: ChunkItems<ReducedItem>,
    /// Upper bounds on the size of the reply, and memory for its results.
    pub reply: ReplyResources,
    /// Time at which the call fails with
    /// [`CallFailure::DeadlineExceeded`](crate::engine::CallFailure::DeadlineExceeded), if it has no reply by then.
    pub deadline: Option<Instant>,
    /// Properties that affect how the engine sends and resends the call.
    pub policy: CallPolicy,
}

/// Properties of a call that affect how the engine sends and resends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallPolicy {
    /// `true` if the responder may execute the call twice. If the reply needs more resources than the call provided,
    /// the engine then sends the call again with more (RPC-over-RDMA v2 §6.4, §7.3.4, §7.3.5). Otherwise the call
    /// fails.
    pub idempotent: bool,
    /// `true` if RPCSEC_GSS integrity or privacy protects the call. In this case, neither the call nor its reply is
    /// reduced (RPC-over-RDMA v2 §11.2.2.3).
    pub protected: bool,
    /// `true` if the verifier in the message covers the XID and a sequence number that is valid for one call only (RFC
    /// 2203 §5.3.1, §5.3.3.1). The engine never sends such a call twice.
    pub sealed: bool,
    /// `true` if the caller does not wait for the reply. The call ends with
    /// [`CallFailure::Cancelled`](crate::engine::CallFailure::Cancelled) as soon as it is sent.
    pub unanswered: bool,
    /// `true` if the call is sent before other queued calls, and may use the credit that [`EngineConfig::keeps_credit`]
    /// reserves.
    ///
    /// [`EngineConfig::keeps_credit`]: crate::engine::EngineConfig::keeps_credit
    pub urgent: bool,
    /// XID of the call, which must not be 0. `None` lets the engine assign one. Set it for a sealed call, and for a
    /// call whose responder recognizes calls that are sent again over another connection.
    pub xid: Option<u32>,
}

/// Upper bounds on the size of the reply to a call (RFC 8166 §6.2), and memory for its results.
#[derive(Debug, Default)]
pub struct ReplyResources {
    /// Maximum length in bytes of the reply's payload stream, including the RPC header, when every eligible result is
    /// reduced.
    pub max_inline: u64,
    /// DDP-eligible results, in the order in which the reply contains them. The engine provides at most one Write chunk
    /// for each. Small results may arrive inline.
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
    /// A message buffer. It holds the contents of one or more Receives, or a copy of a small record of a byte stream.
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
    /// The message is longer than one Send, but within
    /// [`EngineConfig::max_continued`](crate::engine::EngineConfig::max_continued), or the requester provided no Reply
    /// chunk that is long enough.
    WithinContinuation,
    /// The message is longer than one Send and exceeds the limit for Message Continuation, or the version has no
    /// continuation.
    TooLong,
    /// The message is longer than one Send and exceeds the limit for Message Continuation. It is continued, because the
    /// peer accepts no chunk for it, or the chunk needs too many segments.
    NoChunks,
    /// The message is longer than one Send, and the requester provided a Reply chunk (RPC-over-RDMA v2 §4.4.3).
    ReplyChunk,
    /// A byte stream has only one format.
    Stream,
    /// An extension conveys the message.
    Extension,
}

impl FormatReason {
    /// All reasons, in the order of their declaration.
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

/// A received reply. The peer can no longer access the memory that was exposed for its call.
#[derive(Debug)]
pub struct IncomingReply {
    /// Payload stream of the RPC message.
    pub payload: MessagePayload,
    /// Contents of the Write chunks, one for each result of the call ([`ReplyResources::chunks`]).
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
    /// Payload stream of the RPC message, without the items in `reduced`.
    pub message: MessageBuf,
    /// Items removed from the payload stream, in ascending order of position. `ReducedItem::chunk` is the index of the
    /// Write chunk for the item.
    pub reduced: ChunkItems<ReducedItem>,
}
