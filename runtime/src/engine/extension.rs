//! Header types, properties and error codes that an application adds (RPC-over-RDMA v2 appendix B).
//!
//! An extension describes them in a `.x` of its own, compiled by [`include_xdr!`](crate::include_xdr) or
//! [`xdr!`](crate::xdr!); the base stays as it is.

use std::fmt;

use bytes::Bytes;

use super::{Role, TransportError};
use crate::xdr::XdrEncode;

/// A message of an extension's header type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtensionMessage {
    /// Header type (`rdma_htype`): none of the base's.
    pub header_type: u32,
    /// XID: its meaning is the extension's. By it the peer says which message it refuses (§7.1.2): messages of different header
    /// types should have different ones.
    pub xid: u32,
    /// Flags of the extension's own (appendix B.3); those of the base are masked out.
    pub flags: u32,
    /// What follows the prefix: the XDR of the header type.
    pub body: Bytes,
}

impl ExtensionMessage {
    /// A message with `value` for its body.
    #[must_use]
    pub fn new(header_type: u32, xid: u32, value: &impl XdrEncode) -> Self {
        Self { header_type, xid, flags: 0, body: encoded(value) }
    }
}

/// A property of an extension's (appendix B.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionProperty {
    /// Which (`rpcrdma2_propid`): none of the base's.
    pub which: u32,
    /// The XDR of its value.
    pub value: Bytes,
}

impl ExtensionProperty {
    /// A property with this value.
    #[must_use]
    pub fn new(which: u32, value: &impl XdrEncode) -> Self {
        Self { which, value: encoded(value) }
    }
}

fn encoded(value: &impl XdrEncode) -> Bytes {
    crate::xdr::encode_to_bytes(value).unwrap_or_default()
}

/// An RPC message about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RpcMessage<'a> {
    /// Its XID.
    pub xid: u32,
    /// Whether it is a reply.
    pub is_reply: bool,
    /// All of it: its payload stream.
    pub payload: &'a [u8],
}

/// What an extension makes of something that the base does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtensionOutcome {
    /// It is not this extension's.
    Unknown,
    /// It has been dealt with, and these messages are to be sent in consequence.
    Done(Vec<ExtensionMessage>),
    /// A message, which conveys this RPC message (appendix B.2): it is taken as if it had come in an RDMA2_MSG without chunks, of the
    /// same XID and RDMA2_F_RESPONSE.
    Conveys(Bytes),
    /// It is this extension's, and wrong. A property gets RDMA2_ERR_BAD_PROPVAL, whatever stands here; one that cannot be parsed
    /// should fail [`Extension::check_property`], before others are applied.
    Refused(TransportError),
}

/// An extension on one connection.
///
/// It is asked about what the base does not know, in the order of registration, until one extension knows it. What none
/// knows is treated as §5.1, §6.1 and §7 say: properties are ignored, header types are refused, error codes are discarded.
pub trait Extension: fmt::Debug + Send {
    /// Properties of its own that this end sends.
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        Vec::new()
    }

    /// Returns whether a property of the peer's can be parsed. All properties of a message are checked before
    /// [`property`](Self::property) is called for any of them: if one cannot be parsed, the message gets RDMA2_ERR_BAD_PROPVAL
    /// and none is applied (§7.2.2).
    fn check_property(&self, which: u32, value: &[u8]) -> bool {
        let _ = (which, value);
        true
    }

    /// Applies a property of the peer's, which [`check_property`](Self::check_property) has accepted.
    fn property(&mut self, which: u32, value: &[u8]) -> ExtensionOutcome {
        let _ = (which, value);
        ExtensionOutcome::Unknown
    }

    /// A message of the peer's.
    fn message(&mut self, message: &ExtensionMessage) -> ExtensionOutcome {
        let _ = message;
        ExtensionOutcome::Unknown
    }

    /// A message of a header type of its own that conveys an RPC message of this end's, in the place of RDMA2_MSG; `None` leaves
    /// it as it is. It is asked about messages that fit in one Send and have no chunks. XID and RDMA2_F_RESPONSE are the RPC
    /// message's, whatever the one returned says; one that does not fit in a Send is not used.
    ///
    /// A call is sent again as the base has it where the peer refuses the header type; a reply cannot be. So an extension
    /// does this when its peer has said that it can read it, best by a property (appendix B.2).
    fn convey(&mut self, message: RpcMessage<'_>) -> Option<ExtensionMessage> {
        let _ = message;
        None
    }

    /// An RDMA2_ERROR of the peer's with a code that the base does not know (appendix B.5). Where it is known, and a call is
    /// in flight with its XID, that call fails with it.
    fn error(&mut self, xid: u32, code: u32) -> bool {
        let _ = (xid, code);
        false
    }
}

/// Makes an extension for each connection:
/// [`EngineConfig::extensions`](crate::engine::EngineConfig::extensions).
pub trait ExtensionFactory: fmt::Debug + Send + Sync {
    /// That of a new connection.
    fn extension(&self, role: Role) -> Box<dyn Extension>;
}
