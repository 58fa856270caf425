//! The response of a call over a `tower` service.

use super::super::{call, error::CallError};
use crate::{
    service::Procedure,
    xdr::{DecodeError, Decoder, DetachedMessage, XdrDecode as _},
};

/// The response type of `tower` services that carry calls: the encoded result of a call.
///
/// Eligible results are in the memory in which they were placed. The rest of an inline message is a copy.
#[derive(Debug, Clone)]
pub struct CallResponse {
    procedure: &'static str,
    message: DetachedMessage,
}

impl CallResponse {
    pub(super) fn new(procedure: &'static str, message: DetachedMessage) -> Self {
        Self { procedure, message }
    }

    /// Returns the length of the part of the result that arrived in the payload stream, in bytes.
    #[must_use]
    pub fn inline_len(&self) -> u64 {
        self.message.inline_len()
    }

    /// Returns the length of the eligible results that were placed directly, in bytes.
    #[must_use]
    pub fn reduced_len(&self) -> u64 {
        self.message.reduced_len()
    }

    /// Decodes the result.
    ///
    /// # Errors
    /// Returns [`CallError::Decode`] or [`CallError::DirectPlacement`] if the result is not an encoding of the type.
    pub fn decode<P: Procedure>(&self) -> Result<P::Reply, CallError> {
        self.read(P::Reply::decode)
    }

    /// Decodes the result in place with `read`; see [`Channel::call_view`](crate::client::Channel::call_view).
    ///
    /// # Errors
    /// Returns the errors of [`decode`](Self::decode). If `read` fails or leaves a part of the result, the error is a
    /// decoding error.
    pub fn read<T>(&self, read: impl Fn(&mut Decoder<'_>) -> Result<T, DecodeError>) -> Result<T, CallError> {
        call::decode_body(self.procedure, &mut self.message.decoder(), read)
    }
}
