//! Header types, properties and error codes that an application adds (RPC-over-RDMA v2 appendix B).
//!
//! An extension describes them in a `.x` of its own, compiled by [`include_xdr!`](crate::include_xdr) or
//! [`xdr!`](crate::xdr!); the base stays as it is.

use std::{collections::VecDeque, fmt};

use bytes::Bytes;
use smallvec::SmallVec;

use super::Refusal;
use crate::{engine::Role, xdr::XdrEncode};

/// A message of an extension's header type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtensionMessage {
    /// Header type (`rdma_htype`): none of the base's.
    pub header_type: u32,
    /// XID: its meaning is the extension's.
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

/// What an extension makes of something that the base does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handled {
    /// It is not this extension's.
    Unknown,
    /// It has been dealt with, and these messages are to be sent in consequence.
    Done(Vec<ExtensionMessage>),
    /// It is this extension's, and wrong. A property: RDMA2_ERR_BAD_PROPVAL, whatever stands here.
    Refused(Refusal),
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

    /// A property of the peer's.
    fn property(&mut self, which: u32, value: &[u8]) -> Handled {
        let _ = (which, value);
        Handled::Unknown
    }

    /// A message of the peer's.
    fn message(&mut self, message: &ExtensionMessage) -> Handled {
        let _ = message;
        Handled::Unknown
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

/// Messages of extensions' that are remembered, so that a refusal is known to be about one of them.
const REMEMBERED: usize = 32;

/// Header types that the peer does not support.
#[derive(Debug, Default)]
pub(super) struct RefusedTypes {
    /// XID and header type of the last messages sent.
    sent: VecDeque<(u32, u32)>,
    refused: SmallVec<[u32; 2]>,
}

impl RefusedTypes {
    /// A message is about to be sent.
    pub(super) fn sent(&mut self, xid: u32, header_type: u32) {
        if self.sent.len() >= REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((xid, header_type));
    }

    /// The peer has answered a message with RDMA2_ERR_INVAL_HTYPE.
    // RPC-over-RDMA v2 §7.1.2: its header type is not sent again.
    pub(super) fn refuse(&mut self, xid: u32) {
        if let Some(&(_, header_type)) = self.sent.iter().find(|(sent, _)| *sent == xid)
            && !self.contains(header_type)
        {
            self.refused.push(header_type);
        }
    }

    /// Whether the peer has said that it does not support this one.
    pub(super) fn contains(&self, header_type: u32) -> bool {
        self.refused.contains(&header_type)
    }
}
