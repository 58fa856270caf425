//! Failures of calls and of connections.

use std::time::Duration;

use super::{host_auth::HostAuthError, stream_error::StreamError, transport_error::TransportError};
use crate::provider::{DisconnectReason, IoError, MemoryHandle};

/// Reason why a call received no RPC reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallFailure {
    /// The connection ended. If the call was `sent`, the responder may have executed it.
    #[error("connection closed, {}", outcome(*.sent))]
    Closed {
        /// Reason why the connection ended.
        #[source]
        reason: CloseReason,
        /// `true` if any part of the call may have reached the peer, except if the peer rejected the call without
        /// executing it. If `false`, a retry is safe.
        sent: bool,
    },
    /// The deadline passed. If the call was `sent`, the responder may have executed it or may still do so.
    #[error("deadline passed, {}", outcome(*.sent))]
    DeadlineExceeded {
        /// `true` if any part of the call may have reached the peer, except if the peer rejected the call without
        /// executing it.
        sent: bool,
    },
    /// The caller cancelled the call.
    #[error("cancelled, {}", outcome(*.sent))]
    Cancelled {
        /// `true` if any part of the call may have reached the peer, except if the peer rejected the call without
        /// executing it.
        sent: bool,
    },
    /// The responder's transport rejected the version of the call with ERR_VERS (RFC 8166 §4.5.1, RPC-over-RDMA v2
    /// §7.1.1).
    #[error("the responder supports RPC-over-RDMA versions {low} to {high} only")]
    VersionMismatch {
        /// Lowest version that the responder supports.
        low: u32,
        /// Highest version that the responder supports.
        high: u32,
    },
    /// The responder's transport rejected the call with RDMA_ERROR, ERR_CHUNK (RFC 8166 §4.5.2, §4.5.3). The responder
    /// could not parse the header, the chunks provided were too small or unusable, or another error occurred, for which
    /// version 1 has no code.
    #[error("the responder reported ERR_CHUNK (RFC 8166 section 4.5): it could not use the header or its chunks")]
    ChunkError,
    /// The reply violated the protocol or exceeded a local limit.
    #[error("bad reply: {0}")]
    BadReply(MessageFault),
    /// The memory of the call could not be registered. Nothing was sent.
    #[error("cannot register memory for the call")]
    Registration(#[source] IoError),
    /// The call exceeds a limit of the protocol, the peer or the configuration. Nothing was sent.
    #[error("the call cannot be sent: {0}")]
    TooLarge(CallLimit),
    /// The caller passed a call that does not follow the rules of [`OutgoingCall`](crate::engine::OutgoingCall).
    /// Nothing was sent.
    #[error("the call cannot be sent: {0}")]
    Malformed(MalformedCall),
    /// A call in the reverse direction does not fit in one Send. In version 1, the engine uses no chunks in this
    /// direction, as RFC 8167 §5.3 allows. A peer of version 2 may not support them (RPC-over-RDMA v2 §5.2.5). Nothing
    /// was sent.
    #[error(
        "a reverse-direction call of {len} bytes does not fit inline, the limit is {max} bytes (RFC 8167 section 5.3)"
    )]
    ReverseTooLong {
        /// Length of the RPC message in bytes.
        len: u64,
        /// Maximum length in bytes: the inline threshold minus the transport header.
        max: u64,
    },
    /// Another call in flight has the XID that [`CallPolicy::xid`](crate::engine::CallPolicy::xid) requires. Nothing
    /// was sent.
    #[error("another call in flight has XID {xid:#010x}")]
    XidInUse {
        /// XID that both calls have.
        xid: u32,
    },
    /// The responder's transport rejected the call, or an earlier message of its header type, with RDMA2_ERROR
    /// (RPC-over-RDMA v2 §7, §7.1.2).
    #[error("the responder rejected the call")]
    Refused(#[from] TransportError),
    /// The peer does not accept calls in the reverse direction (RPC-over-RDMA v2 §5.2.5). Nothing was sent.
    #[error("the peer does not accept calls in the reverse direction (RPC-over-RDMA v2 section 5.2.5)")]
    ReverseNotSupported,
    /// The reverse direction is disabled in the local configuration. Nothing was sent.
    #[error("the reverse direction is disabled (RFC 8167 section 6), set EngineConfig::reverse_credits above 0")]
    ReverseDisabled,
}

/// Returns the part of an error message that tells the user whether a retry is safe.
fn outcome(sent: bool) -> &'static str {
    if sent {
        "the call was sent and may have been executed, retry only an idempotent procedure"
    } else {
        "the call was not sent, a retry is safe"
    }
}

impl CallFailure {
    /// Returns `true` if the responder certainly did not execute the call, so that a retry cannot execute it twice.
    #[must_use]
    pub fn is_unexecuted(&self) -> bool {
        match self {
            Self::Closed { sent, .. } | Self::DeadlineExceeded { sent } | Self::Cancelled { sent } => !sent,
            Self::VersionMismatch { .. }
            | Self::Registration(_)
            | Self::TooLarge(_)
            | Self::Malformed(_)
            | Self::ReverseTooLong { .. }
            | Self::XidInUse { .. }
            | Self::ReverseNotSupported
            | Self::ReverseDisabled => true,
            Self::Refused(refusal) => refusal.is_unexecuted(),
            // A responder also reports ERR_CHUNK when its reply does not fit in the chunks provided
            // (RFC 8267 §4, §6.6).
            Self::ChunkError | Self::BadReply(_) => false,
        }
    }
}

/// Reason why a connection was closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Either peer disconnected, or the provider reported a failure.
    #[error(transparent)]
    Disconnected(#[from] DisconnectReason),
    /// The peer violated RPC-over-RDMA.
    #[error("the peer violated RPC-over-RDMA: {0}")]
    PeerViolation(ProtocolViolation),
    /// Version and properties were not negotiated, for example because the connection ended or the negotiation took too
    /// long (RPC-over-RDMA v2 §4.2.3). Calls were sent only in version 1 after a fallback, or if the peer rejected the
    /// version or the properties after the negotiation. A peer without support for version 2 may behave this way: try a
    /// new connection with version 1 only ([`EngineConfig::versions`](crate::engine::EngineConfig::versions)).
    #[error("version negotiation failed ({why}){}", .versions.map_or(String::new(), |(low, high)| format!("; the peer supports versions {low} to {high}")))]
    NegotiationFailed {
        /// Cause of the failure.
        why: NegotiationFailure,
        /// Lowest and highest version that the peer supports, if it reported them.
        versions: Option<(u32, u32)>,
    },
    /// The local [`HostAuthenticator`](crate::engine::HostAuthenticator) rejected the connection (RPC-over-RDMA v2
    /// §5.2.6).
    #[error(transparent)]
    HostAuthentication(#[from] HostAuthError),
    /// Abandoned calls hold every credit, and the peer sent no reply for this time after they were abandoned.
    #[error("the peer did not reply within {0:?} after the calls were abandoned")]
    Unresponsive(Duration),
    /// RDMA Reads from the peer, or the remaining parts of its message, made no progress for this time
    /// ([`EngineConfig::fetch_timeout`](crate::engine::EngineConfig::fetch_timeout)), or were slower than
    /// [`EngineConfig::min_rate`](crate::engine::EngineConfig::min_rate).
    #[error("RDMA Reads from the peer, or the rest of its message, made no progress for {0:?} or were too slow")]
    ReadStalled(Duration),
    /// The peer accepted no part of the pending replies for this time
    /// ([`EngineConfig::reply_timeout`](crate::engine::EngineConfig::reply_timeout)), accepted them too slowly, or
    /// granted no credit for them.
    #[error("the peer accepted no replies for {0:?}, or accepted them too slowly")]
    ReplyStalled(Duration),
    /// A record of the peer exceeds a local limit, ends early with the stream, or is not an RPC message. Or the peer
    /// did not complete or accept a record in time.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// No call was in flight for this time, the idle timeout, and no channel held the connection any more.
    #[error("idle for {0:?}")]
    Idle(Duration),
    /// Nothing arrived from the peer for this time after a keep-alive probe, although the local peer was ready to
    /// receive. Or the server did not reply to the first probe of a new connection within this time.
    #[error("the peer is silent: nothing arrived for {0:?} after a probe")]
    Silent(Duration),
    /// The peer's first call did not arrive within this time.
    #[error("no call arrived within {0:?} of connecting")]
    NoCall(Duration),
}

/// Fault in a message of the peer: in a reply, or in a message of version 2 that conveys a part of a call or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageFault {
    /// The RPC message is a call (RFC 5531 §9).
    #[error("an RPC call, not a reply")]
    NotAReply,
    /// The payload is not an RPC reply, or its XID differs from the XID of the header (RPC-over-RDMA v2 §6.2.2.1,
    /// §7.2).
    #[error("not an RPC reply with its header's XID")]
    XidMismatch,
    /// The content of the Reply chunk is not an RPC reply with the XID of the header (RFC 8166 §4.2.1).
    #[error("the Reply chunk does not contain a reply to this call")]
    ReplyChunkContent,
    /// The reply has a Read list (RFC 8166 §4.3.1).
    #[error("it has a Read list")]
    ReadList,
    /// The number of Write chunks in the reply differs from the number that the call provided (RFC 8166 §3.4.6).
    #[error("its Write list and that of the call differ in the number of chunks")]
    WriteListLength {
        /// Number of Write chunks in the reply.
        returned: usize,
        /// Number of Write chunks in the call.
        provided: usize,
    },
    /// The reply has a Reply chunk that the call did not provide (RFC 8166 §4.3.3).
    #[error("it has a Reply chunk, but the call has none")]
    UnexpectedReplyChunk,
    /// The reply has no payload stream (RFC 8166 §4.2.4).
    #[error("it has neither an inline payload nor data in the Reply chunk")]
    NoPayload,
    /// The reply has two payload streams (RFC 8166 §4.2.4).
    #[error("it has both an inline payload and data in the Reply chunk")]
    TwoPayloads,
    /// The reply has segments in a Write chunk that was empty in the call (RFC 8166 §4.3.2.3).
    #[error("it has segments in an empty Write chunk")]
    FilledEmptyChunk,
    /// A chunk lacks a segment of the call (RFC 8166 §3.4.6).
    #[error("a chunk has fewer segments than in the call")]
    MissingSegment,
    /// A chunk has a segment that the call did not provide (RFC 8166 §3.4.6).
    #[error("a chunk has more segments than in the call")]
    ExtraSegment,
    /// The handle or the offset of a segment differs from the call (RFC 8166 §3.4.6).
    #[error("a segment differs from that of the call")]
    ChangedSegment,
    /// A segment is longer than in the call (RFC 8166 §3.4.6).
    #[error("a segment is longer than in the call")]
    SegmentTooLong {
        /// Length of the segment in the reply, in bytes.
        len: u32,
        /// Length of the segment in the call, in bytes.
        max: u32,
    },
    /// Segments are not filled in order (RFC 8166 §3.4.6).
    #[error("a segment contains data although an earlier one is not full")]
    SegmentGap,
    /// The chunk lists cannot be parsed (RPC-over-RDMA v2 §7.2.1).
    #[error("malformed chunk lists")]
    MalformedChunkLists,
    /// RDMA2_MSG ends after its header (RPC-over-RDMA v2 §6.3.1).
    #[error("RDMA2_MSG without a payload")]
    MessageWithoutPayload,
    /// RDMA2_NOMSG has an XID, but no chunks (RPC-over-RDMA v2 §6.3.2, §7.2).
    #[error("RDMA2_NOMSG without chunks")]
    MessageWithoutChunks,
    /// RDMA2_F_TPMORE is set in a header type other than RDMA2_CONNPROP (RPC-over-RDMA v2 §6.2.2.3).
    #[error("RDMA2_F_TPMORE on a header type other than RDMA2_CONNPROP")]
    MorePropertiesFlag,
    /// RDMA2_F_MORE is set in a header type without continuation (RPC-over-RDMA v2 §6.2.2.2).
    #[error("RDMA2_F_MORE on a header type that cannot be continued")]
    MoreFlag,
    /// A message that is continued has chunks (RPC-over-RDMA v2 §6.2.2.2).
    #[error("chunks before the last message of a sequence")]
    EarlyChunks,
    /// The peer continues a call although the local properties exclude it (RPC-over-RDMA v2 §5.2.5).
    #[error("a continued call in the reverse direction, which is not accepted")]
    ContinuedReverseCall,
    /// A message of another transaction or header type arrived within a sequence (RPC-over-RDMA v2 §6.2.2.2).
    #[error("a message of another transaction or header type within a sequence")]
    Interrupted,
    /// A sequence is longer than the local limit (RPC-over-RDMA v2 §11.1.4).
    #[error("a sequence longer than the limit")]
    SequenceTooLong {
        /// Maximum length in bytes.
        max: u64,
    },
    /// The memory budget has no room for a sequence (RPC-over-RDMA v2 §11.1.4).
    #[error("no memory for a sequence")]
    NoMemory,
    /// An earlier message of the sequence was unusable (RPC-over-RDMA v2 §7.1.3).
    #[error("a broken sequence")]
    BrokenSequence,
    /// The record of the reply is longer than the local limit (RFC 5531 §11).
    #[error(
        "its record is {}{len} bytes long, more than max_record ({max})",
        if *.is_complete { "" } else { "at least " }
    )]
    RecordTooLong {
        /// Number of bytes announced so far.
        len: u64,
        /// Maximum number of bytes in a record.
        max: u64,
        /// `true` if `len` is the length of the whole record.
        is_complete: bool,
    },
}

/// Limit that a call exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallLimit {
    /// The reply repeats the Write list and the Reply chunk of the call, and its header would exceed the inline
    /// threshold (RFC 8166 §3.4.6, §4.3.3).
    #[error("the header of its reply would exceed the inline threshold")]
    ReplyHeader,
    /// The chunks need more segments than fit in a header, or than the peer accepts (RPC-over-RDMA v2 §5.2.4).
    #[error("its chunks need more segments than fit in a header or than the peer accepts")]
    Segments,
    /// The reply may need more memory than [`EngineConfig::max_call_len`](crate::engine::EngineConfig::max_call_len).
    #[error(
        "its reply may need {needed} bytes, more than the {max} allowed (EngineConfig::max_call_len; memory that the \
         caller provides for results is not counted)"
    )]
    ReplyMemory {
        /// Number of bytes that the reply may need.
        needed: u64,
        /// Maximum number of bytes allowed.
        max: u64,
    },
    /// A chunk is longer than the address space.
    #[error("{len} bytes do not fit in memory")]
    AddressSpace {
        /// Length of the chunk in bytes.
        len: u64,
    },
    /// A reduced item has a position that does not fit in 32 bits (RFC 8166 §3.4.5).
    #[error("a reduced item lies beyond 4 GiB")]
    Position {
        /// Position of the item in the payload stream, in bytes.
        position: u64,
    },
}

/// Mistake in an [`OutgoingCall`](crate::engine::OutgoingCall).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedCall {
    /// The message is too short to contain an XID and a message type (RFC 5531 §9).
    #[error("the message is too short for an RPC message")]
    ShortMessage {
        /// Length of the message in bytes.
        len: usize,
    },
    /// A reduced item begins at position 0, before the end of the item before it, or not at a multiple of four (RFC
    /// 8166 §3.4.5).
    #[error("its reduced items are not in ascending order at multiples of four")]
    ItemOrder {
        /// Position of the item in the payload stream, in bytes.
        position: u64,
    },
    /// A reduced item begins after the end of the payload stream (RFC 8166 §3.4.5). Over a byte stream, also an item
    /// that overlaps another one or is out of order.
    #[error("a reduced item lies beyond its payload stream")]
    ItemBeyondMessage {
        /// Position of the item in the payload stream, in bytes.
        position: u64,
    },
    /// A landing buffer has less room than its result may need (RFC 8166 §4.3.2.2).
    #[error("a landing buffer of {len} bytes is too short for {needed} bytes")]
    ShortLanding {
        /// Length of the buffer in bytes.
        len: usize,
        /// Maximum length of the result in bytes.
        needed: usize,
    },
}

/// Violation of RPC-over-RDMA for which the connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolViolation {
    /// The peer sent more invalid messages than it can receive errors for (RFC 8166 §4.5).
    #[error("it sent more invalid messages than it can receive errors for")]
    TooManyErrors,
    /// The peer keeps sending messages of unsupported versions (RFC 8166 §4.5.1, RPC-over-RDMA v2 §7.1.1).
    #[error("no message of a supported version")]
    UnsupportedVersions,
    /// A message invalidated a handle that does not belong to a local call with the XID of the message (RFC 8797 §4.1).
    #[error("it invalidated {handle:?}, which does not belong to the call it replied to")]
    ForeignHandle {
        /// Handle that was invalidated.
        handle: MemoryHandle,
    },
    /// A message invalidated a handle that its call did not offer, or was not the last message of a reply
    /// (RPC-over-RDMA v2 §6.2.4).
    #[error("it invalidated {handle:?}, which no call offered for invalidation")]
    UnofferedHandle {
        /// Handle that was invalidated.
        handle: MemoryHandle,
    },
    /// A call invalidated a handle (RFC 8797 §4.1).
    #[error("it invalidated a handle with a call")]
    InvalidatingCall,
    /// The peer's messages of extensions (RPC-over-RDMA v2 appendix B.2) cause more messages in response than the peer
    /// accepts.
    #[error("it causes more messages of extensions than it receives")]
    TooManyExtensionMessages,
    /// The peer breaks sequences of continued messages without completing them (RPC-over-RDMA v2 §7.1.3).
    #[error("too many broken sequences")]
    TooManyBrokenSequences,
}

/// Cause of a failed negotiation of version and properties.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationFailure {
    /// The peers have no version in common (RPC-over-RDMA v2 §7.1.1).
    #[error("the peer supports none of the versions enabled locally")]
    NoCommonVersion,
    /// The peer rejected a version that it had used before (RPC-over-RDMA v2 §4.2.3.3, §7.1.1).
    #[error("the peer no longer supports this version")]
    VersionWithdrawn,
    /// The peer rejected the properties (RPC-over-RDMA v2 §6.2.2.3, §7.2.2).
    #[error("the peer refused the exchange of properties: {0}")]
    PropertiesRefused(TransportError),
    /// The negotiation was not complete within this time
    /// ([`EngineConfig::negotiation_timeout`](crate::engine::EngineConfig::negotiation_timeout)).
    #[error("not complete after {0:?}")]
    TimedOut(Duration),
    /// The connection was lost (RPC-over-RDMA v2 §4.2.3.2).
    #[error("{0}")]
    Disconnected(DisconnectReason),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `is_unexecuted` returns `true` only for failures that exclude an execution of the call.
    #[test]
    fn failures_before_execution() {
        let reason = CloseReason::Idle(Duration::ZERO);
        for sent in [false, true] {
            let failures = [
                CallFailure::Closed { reason: reason.clone(), sent },
                CallFailure::DeadlineExceeded { sent },
                CallFailure::Cancelled { sent },
            ];
            for failure in failures {
                assert_eq!(failure.is_unexecuted(), !sent, "{failure:?}");
            }
        }
        let unexecuted = [
            CallFailure::VersionMismatch { low: 1, high: 1 },
            CallFailure::ReverseTooLong { len: 2, max: 1 },
            CallFailure::XidInUse { xid: 1 },
            CallFailure::ReverseNotSupported,
            CallFailure::ReverseDisabled,
            CallFailure::Refused(TransportError::Version { low: 1, high: 1 }),
            CallFailure::Refused(TransportError::HeaderType),
            CallFailure::Refused(TransportError::BadXdr),
            CallFailure::Refused(TransportError::Segments { max: 1 }),
        ];
        for failure in unexecuted {
            assert!(failure.is_unexecuted(), "{failure:?}");
        }
        let possibly_executed = [
            CallFailure::ChunkError,
            CallFailure::BadReply(MessageFault::NoPayload),
            CallFailure::Refused(TransportError::WriteResource { chunk: 0, needed: 0 }),
            CallFailure::Refused(TransportError::ReplyResource { needed: 0 }),
            CallFailure::Refused(TransportError::System),
            CallFailure::Refused(TransportError::Extension(1)),
        ];
        for failure in possibly_executed {
            assert!(!failure.is_unexecuted(), "{failure:?}");
        }
    }
}
