//! Header types, properties and error codes that an application adds (RPC-over-RDMA v2 appendix B).
//!
//! An extension describes them in a `.x` of its own, compiled by [`include_xdr!`](crate::include_xdr) or
//! [`xdr!`](crate::xdr!); the base stays as it is.

use std::{collections::VecDeque, fmt};

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Refusal, format::PREFIX_LEN, receive::is_base};
use crate::{engine::Role, xdr::XdrEncode};

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
pub enum Handled {
    /// It is not this extension's.
    Unknown,
    /// It has been dealt with, and these messages are to be sent in consequence.
    Done(Vec<ExtensionMessage>),
    /// A message, which conveys this RPC message (appendix B.2): it is taken as if it had come in an RDMA2_MSG without chunks, of the
    /// same XID and RDMA2_F_RESPONSE.
    Conveys(Bytes),
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

/// The extensions of a connection, and what its peer takes of them.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) list: Vec<Box<dyn Extension>>,
    pub(super) refused: RefusedTypes,
}

impl Extensions {
    /// What conveys an RPC message, if one of them does, in at most `threshold` octets.
    pub(super) fn convey(&mut self, message: RpcMessage<'_>, threshold: u64) -> Option<ExtensionMessage> {
        let conveyed = self.list.iter_mut().find_map(|extension| extension.convey(message))?;
        let fits = (PREFIX_LEN + conveyed.body.len()) as u64 <= threshold;
        if !fits || is_base(conveyed.header_type) || self.refused.contains(conveyed.header_type) {
            return None;
        }
        self.refused.sent(message.xid, conveyed.header_type);
        Some(conveyed)
    }
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
        let mut types = self.sent.iter().filter(|(sent, _)| *sent == xid).map(|&(_, header_type)| header_type);
        // Of several, nobody knows which was meant.
        if let Some(header_type) = types.next()
            && types.all(|other| other == header_type)
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
