//! Headers of RPC calls: encoding, decoding and errors.

use super::{
    AuthFailure, ReplyHeader, RpcError,
    wire::{AuthStat, CallBody, MsgType, OpaqueAuth, RPC_VERS, RpcMsg, RpcMsgBody},
    words::{end_of_auth, is_regular, peek_words, put_auth, put_words, take_auth, take_known_auth},
};
use crate::xdr::{DecodeError, DecodeErrorKind, Decoder, EncodeError, PathSegment, Sink, XdrEncode};

/// The header of a call, without its arguments (RFC 5531 §9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    /// Transaction identifier.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number in this version of the program.
    pub procedure: u32,
    /// Credential, which identifies the caller.
    pub credential: OpaqueAuth,
    /// Verifier, which authenticates the credential.
    pub verifier: OpaqueAuth,
}

impl CallHeader {
    /// Creates the header of a call without authentication (AUTH_NONE, RFC 5531 §10.1).
    #[must_use]
    pub fn new(xid: u32, program: u32, version: u32, procedure: u32) -> Self {
        let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
        Self { xid, program, version, procedure, credential, verifier }
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.to_wire().encoded_len()
    }

    /// Appends the encoding. The arguments must follow. Does not allocate.
    ///
    /// # Errors
    /// Returns an error if the credential or verifier is longer than 400 bytes (RFC 5531 §8.2).
    pub fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        let Self { xid, program, version, procedure, credential, verifier } = self;
        Self::encode_parts([*xid, *program, *version, *procedure], credential, verifier, sink)
    }

    /// Appends the encoding of a header as [`encode`](Self::encode) does. `numbers` are its XID, program, version and
    /// procedure.
    #[inline]
    #[doc(hidden)]
    pub fn encode_parts<S: Sink + ?Sized>(
        numbers: [u32; 4],
        credential: &OpaqueAuth,
        verifier: &OpaqueAuth,
        sink: &mut S,
    ) -> Result<(), EncodeError> {
        let [xid, program, version, procedure] = numbers;
        if !is_regular(credential) || !is_regular(verifier) {
            let (credential, verifier) = (credential.clone(), verifier.clone());
            return Self { xid, program, version, procedure, credential, verifier }.to_wire().encode(sink);
        }
        if credential.body.is_empty() && verifier.body.is_empty() {
            let (credential, verifier) = (credential.flavor, verifier.flavor);
            put_words([xid, CALL, RPC_VERS, program, version, procedure, credential, 0, verifier, 0], sink);
            return Ok(());
        }
        put_words([xid, CALL, RPC_VERS, program, version, procedure], sink);
        put_auth(credential, sink);
        put_auth(verifier, sink);
        Ok(())
    }

    pub(super) fn to_wire(&self) -> RpcMsg {
        let body = CallBody {
            rpcvers: RPC_VERS,
            prog: self.program,
            vers: self.version,
            proc: self.procedure,
            cred: self.credential.clone(),
            verf: self.verifier.clone(),
        };
        RpcMsg { xid: self.xid, body: RpcMsgBody::Call(body) }
    }

    /// Returns `true` if the credential of an encoded call has an empty body. Returns `false` if `message` is too
    /// short.
    #[inline]
    #[doc(hidden)]
    pub fn has_no_credential(message: &[u8]) -> bool {
        // RFC 5531 §9: six words and the flavor precede the length.
        peek_words(message).is_some_and(|words: [u32; 8]| words[7] == 0)
    }

    /// Splits an encoded call before its verifier. Returns the length of the part before the verifier and the length of
    /// the verifier, both in bytes. Returns `None` if the message is truncated, or if the credential or the verifier is
    /// longer than 400 bytes (RFC 5531 §8.2).
    #[inline]
    #[doc(hidden)]
    pub fn split_verifier(message: &[u8]) -> Option<(usize, usize)> {
        // RFC 5531 §9: XID, msg_type, rpcvers, prog, vers and proc precede the credential.
        let verifier_at = end_of_auth(message, 24)?;
        Some((verifier_at, end_of_auth(message, verifier_at)? - verifier_at))
    }

    /// Decodes the header of a call of ONC RPC version 2 that is complete and within its bounds. Returns `None` and
    /// reads nothing for any other header. Fails if the header exceeds the decoder's memory limit. A credential that
    /// equals `known` shares its memory.
    #[inline]
    fn decode_regular(decoder: &mut Decoder<'_>, known: Option<&OpaqueAuth>) -> Result<Option<Self>, CallHeaderError> {
        let message = decoder.rest();
        let Some([xid, CALL, RPC_VERS, program, version, procedure]) = peek_words(message) else { return Ok(None) };
        if Self::split_verifier(message).is_none() {
            return Ok(None);
        }
        // Only the limit on the memory of a decoded value is not checked yet.
        let malformed = |error| CallHeaderError::Malformed { xid, error };
        decoder.take(24).map_err(malformed)?;
        let credential = match known {
            None => take_auth(decoder),
            Some(known) => take_known_auth(decoder, known),
        };
        let credential = credential.map_err(malformed)?;
        let verifier = take_auth(decoder).map_err(malformed)?;
        Ok(Some(Self { xid, program, version, procedure, credential, verifier }))
    }

    /// Decodes the header of a call received by a server. The arguments are next in `decoder`.
    ///
    /// # Errors
    /// Returns an error whose [`reply`](CallHeaderError::reply) is the response to the caller, if there is one.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, CallHeaderError> {
        Self::decode_knowing(decoder, None)
    }

    /// Decodes a header as [`decode`](Self::decode) does. A credential that equals `known` shares its memory.
    #[inline]
    #[doc(hidden)]
    pub fn decode_knowing(decoder: &mut Decoder<'_>, known: Option<&OpaqueAuth>) -> Result<Self, CallHeaderError> {
        if let Some(header) = Self::decode_regular(decoder, known)? {
            return Ok(header);
        }
        let mut ahead = Decoder::new(decoder.rest());
        let xid = ahead.take_u32().map_err(CallHeaderError::NotACall)?;
        match ahead.read::<MsgType>().map_err(CallHeaderError::NotACall)? {
            MsgType::Call => {}
            MsgType::Reply => return Err(CallHeaderError::NotACall(ahead.error(DecodeErrorKind::Invalid("a reply")))),
        }
        // The fields after rpcvers have this form in version 2 only.
        let rpcvers = ahead.take_u32().map_err(|error| CallHeaderError::Malformed { xid, error })?;
        if rpcvers != RPC_VERS {
            return Err(CallHeaderError::RpcMismatch { xid, rpcvers });
        }
        match decoder.read::<RpcMsg>().map_err(|error| CallHeaderError::of(xid, error))?.body {
            RpcMsgBody::Call(body) => Ok(Self {
                xid,
                program: body.prog,
                version: body.vers,
                procedure: body.proc,
                credential: body.cred,
                verifier: body.verf,
            }),
            RpcMsgBody::Reply(_) => Err(CallHeaderError::NotACall(decoder.error(DecodeErrorKind::Invalid("a reply")))),
        }
    }
}

/// `msg_type` of a call (RFC 5531 §9).
const CALL: u32 = 0;

/// An error that a server finds in the header of a received message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallHeaderError {
    /// The message is not an RPC call. There is no caller to respond to.
    #[error("not an RPC call")]
    NotACall(#[source] DecodeError),
    /// The call uses an unsupported version of ONC RPC.
    #[error("unsupported ONC RPC version {rpcvers}, expected 2")]
    RpcMismatch {
        /// XID of the call.
        xid: u32,
        /// Received ONC RPC version.
        rpcvers: u32,
    },
    /// The credential or verifier is longer than the maximum of RFC 5531 §8.2.
    #[error("{failure}")]
    BadAuth {
        /// XID of the call.
        xid: u32,
        /// Authentication status to return to the caller.
        failure: AuthFailure,
        /// Underlying decoding error.
        #[source]
        error: DecodeError,
    },
    /// The header is truncated or otherwise malformed, or exceeds the decoder's memory limit.
    #[error("malformed RPC call")]
    Malformed {
        /// XID of the call.
        xid: u32,
        /// Underlying decoding error.
        #[source]
        error: DecodeError,
    },
}

impl CallHeaderError {
    /// Converts the decoding error of a call header: to `BadAuth` if the credential or verifier is too long, otherwise
    /// to `Malformed`.
    fn of(xid: u32, error: DecodeError) -> Self {
        if matches!(error.kind(), DecodeErrorKind::LengthExceedsMaximum { .. }) {
            let is_verifier = error.path().any(|step| step == PathSegment::Field("call_body", "verf"));
            let stat = if is_verifier { AuthStat::AuthBadverf } else { AuthStat::AuthBadcred };
            return Self::BadAuth { xid, failure: stat.into(), error };
        }
        Self::Malformed { xid, error }
    }

    /// Returns the reply to send to the caller; `None` if the message is not a call.
    ///
    /// The reply to a malformed header is GARBAGE_ARGS because RFC 5531 defines no better status. Without a reply, the
    /// caller would wait, and the call would hold a credit.
    #[must_use]
    pub fn reply(&self) -> Option<ReplyHeader> {
        let (xid, error) = match *self {
            Self::NotACall(_) => return None,
            // RFC 5531 §9: the lowest and highest version supported.
            Self::RpcMismatch { xid, .. } => (xid, RpcError::RpcMismatch { low: RPC_VERS, high: RPC_VERS }),
            Self::BadAuth { xid, failure, .. } => (xid, RpcError::Authentication(failure)),
            Self::Malformed { xid, .. } => (xid, RpcError::GarbageArguments),
        };
        Some(ReplyHeader::failure(xid, error))
    }
}
