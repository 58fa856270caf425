//! Header types, properties and error codes that an application adds (RPC-over-RDMA v2 appendix B).
//!
//! An extension describes its XDR in a separate `.x` file, compiled by [`include_xdr!`](crate::include_xdr) or
//! [`xdr!`](crate::xdr!). The base protocol remains unchanged.

use std::fmt;

use bytes::Bytes;

use super::{transport_error::TransportError, types::Role};
use crate::xdr::XdrEncode;

/// A message with an extension's header type.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExtensionMessage {
    /// Header type (`rdma_htype`). It must not be one of the base protocol's.
    pub header_type: u32,
    /// XID, whose meaning the extension defines. The peer identifies a message that it rejects by this XID
    /// (RPC-over-RDMA v2 §7.1.2), so use different XIDs for messages of different header types.
    pub xid: u32,
    /// Flags that the extension defines (RPC-over-RDMA v2 appendix B.3). The engine clears the flags of the base
    /// protocol.
    pub flags: u32,
    /// XDR of the header type, which follows the prefix.
    pub body: Bytes,
}

impl ExtensionMessage {
    /// Creates a message with `value` as its body. The body is empty if `value` cannot be encoded.
    #[must_use]
    pub fn new(header_type: u32, xid: u32, value: &impl XdrEncode) -> Self {
        Self { header_type, xid, flags: 0, body: encoded(value) }
    }
}

/// A transport property that an extension defines (RPC-over-RDMA v2 appendix B.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtensionProperty {
    /// Identifier of the property (`rpcrdma2_propid`). It must not be one of the base protocol's.
    pub which: u32,
    /// XDR of the property's value.
    pub value: Bytes,
}

impl ExtensionProperty {
    /// Creates a property with this value. The value is empty if `value` cannot be encoded.
    #[must_use]
    pub fn new(which: u32, value: &impl XdrEncode) -> Self {
        Self { which, value: encoded(value) }
    }
}

fn encoded(value: &impl XdrEncode) -> Bytes {
    crate::xdr::encode_to_bytes(value).unwrap_or_default()
}

/// An RPC message that is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RpcMessage<'a> {
    /// XID of the message.
    pub xid: u32,
    /// `true` for a reply, `false` for a call.
    pub is_reply: bool,
    /// Payload stream of the complete RPC message.
    pub payload: &'a [u8],
}

/// Result of [`Extension::property`] or [`Extension::message`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtensionOutcome {
    /// The message or property does not belong to this extension.
    Unknown,
    /// The extension handled the message or property. The engine sends these messages in response.
    Done(Vec<ExtensionMessage>),
    /// The message conveys this RPC message (RPC-over-RDMA v2 appendix B.2). The engine handles it like an RDMA2_MSG
    /// without chunks, with the XID and the RDMA2_F_RESPONSE flag of the extension's message.
    Conveys(Bytes),
    /// The message belongs to this extension but is invalid, and the engine reports this error. A property always gets
    /// RDMA2_ERR_BAD_PROPVAL. Reject a property that cannot be parsed in [`Extension::check_property`], before other
    /// properties are applied.
    Refused(TransportError),
}

/// An extension on one connection.
///
/// The engine offers everything that the base protocol does not know to each extension, in the order of registration,
/// until one recognizes it. The rules of RPC-over-RDMA v2 §5.1, §6.1 and §7 apply to the rest: the engine ignores
/// unknown properties, rejects unknown header types, and discards unknown error codes.
pub trait Extension: fmt::Debug + Send {
    /// Returns the properties to send to the peer.
    fn properties(&mut self) -> Vec<ExtensionProperty> {
        Vec::new()
    }

    /// Returns `true` if a property from the peer can be parsed, or is unknown to this extension. The engine checks all
    /// properties of a message before it calls [`property`](Self::property) for any of them. If one check fails, the
    /// engine replies with RDMA2_ERR_BAD_PROPVAL and applies none of them (RPC-over-RDMA v2 §7.2.2).
    fn check_property(&self, which: u32, value: &[u8]) -> bool {
        let _ = (which, value);
        true
    }

    /// Applies a property from the peer that passed [`check_property`](Self::check_property).
    fn property(&mut self, which: u32, value: &[u8]) -> ExtensionOutcome {
        let _ = (which, value);
        ExtensionOutcome::Unknown
    }

    /// Handles a message from the peer.
    fn message(&mut self, message: &ExtensionMessage) -> ExtensionOutcome {
        let _ = message;
        ExtensionOutcome::Unknown
    }

    /// Returns a message of the extension's header type that conveys a local RPC message in place of RDMA2_MSG, or
    /// `None` to send the RPC message unchanged.
    ///
    /// The engine asks only about messages that fit in one Send and have no chunks. The engine always sets XID and
    /// RDMA2_F_RESPONSE to the values of the RPC message, whatever the returned message contains. A returned message
    /// that does not fit in one Send is not used.
    ///
    /// If the peer rejects the header type, the engine sends a call again as RDMA2_MSG, unless the call is
    /// [sealed](crate::engine::CallPolicy::sealed). It cannot do so for a reply. An extension should therefore convey
    /// messages only after its peer has announced support, for example by a property (RPC-over-RDMA v2 appendix B.2).
    fn convey(&mut self, message: RpcMessage<'_>) -> Option<ExtensionMessage> {
        let _ = message;
        None
    }

    /// Handles an RDMA2_ERROR with a code that the base protocol does not know (RPC-over-RDMA v2 appendix B.5). Returns
    /// `true` if this extension defines the code. If it does, a call in flight with this XID fails with the code.
    fn error(&mut self, xid: u32, code: u32) -> bool {
        let _ = (xid, code);
        false
    }
}

/// A factory of extensions, one for each connection. Add it to
/// [`EngineConfig::extensions`](crate::engine::EngineConfig::extensions).
pub trait ExtensionFactory: fmt::Debug + Send + Sync {
    /// Creates the extension of a new connection.
    fn extension(&self, role: Role) -> Box<dyn Extension>;
}
