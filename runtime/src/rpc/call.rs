//! The header of a call.

use super::{
    AuthFailure, ReplyHeader, RpcError,
    wire::{AuthStat, CallBody, MsgType, OpaqueAuth, RPC_VERS, RpcMsg, RpcMsgBody},
};
use crate::xdr::{DecodeError, DecodeErrorKind, Decoder, EncodeError, PathSegment, Sink, XdrEncode};

/// The header of a call, up to where its arguments start (RFC 5531 §9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    /// The transaction identifier.
    pub xid: u32,
    /// The program's number.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure's number in that version.
    pub procedure: u32,
    /// Who calls.
    pub credential: OpaqueAuth,
    /// What proves it.
    pub verifier: OpaqueAuth,
}

impl CallHeader {
    /// A call without authentication (AUTH_NONE, RFC 5531 §10.1).
    #[must_use]
    pub fn new(xid: u32, program: u32, version: u32, procedure: u32) -> Self {
        let (credential, verifier) = (OpaqueAuth::none(), OpaqueAuth::none());
        Self { xid, program, version, procedure, credential, verifier }
    }

    /// Length of its encoding in octets.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.to_wire().encoded_len()
    }

    /// Appends the encoding; the arguments are to follow. Allocates nothing.
    ///
    /// # Errors
    /// When credential or verifier are longer than 400 octets (RFC 5531 §8.2).
    pub fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.to_wire().encode(sink)
    }

    fn to_wire(&self) -> RpcMsg {
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

    /// The octets of an encoded call from the XID to the end of the credential, and of the verifier behind them; `None` where
    /// it has no such.
    #[cfg(feature = "std")]
    pub(crate) fn split_verifier(message: &[u8]) -> Option<(usize, usize)> {
        // RFC 5531 §9: XID, msg_type, rpcvers, prog, vers, proc, then credential and verifier: flavor, length, body.
        let auth = |at: usize| {
            let len = message.get(at.checked_add(4)?..)?.first_chunk().copied().map(u32::from_be_bytes)?;
            let end = at.checked_add(8)?.checked_add(crate::xdr::padded_len(usize::try_from(len).ok()?))?;
            (end <= message.len()).then_some(end)
        };
        let verifier_at = auth(24)?;
        Some((verifier_at, auth(verifier_at)? - verifier_at))
    }

    /// Reads the header of a call at a server. On success the arguments are next.
    ///
    /// # Errors
    /// The fault says what to answer, if anything: [`CallHeaderError::reply`].
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, CallHeaderError> {
        let mut ahead = Decoder::new(decoder.rest());
        let xid = ahead.take_u32().map_err(CallHeaderError::NotACall)?;
        match ahead.read::<MsgType>().map_err(CallHeaderError::NotACall)? {
            MsgType::Call => {}
            MsgType::Reply => return Err(CallHeaderError::NotACall(ahead.error(DecodeErrorKind::Invalid("a reply")))),
        }
        // What follows rpcvers has this form in version 2 only.
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

/// Why a message received by a server is not a call that it can look at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallHeaderError {
    /// It is not a call at all: there is nobody to answer.
    #[error("not an RPC call")]
    NotACall(#[source] DecodeError),
    /// It is of another version of ONC RPC.
    #[error("ONC RPC version {rpcvers}, not 2")]
    RpcMismatch {
        /// Of the call.
        xid: u32,
        /// The version.
        rpcvers: u32,
    },
    /// Its credential or verifier is too long to be one.
    #[error("{failure}")]
    BadAuth {
        /// Of the call.
        xid: u32,
        /// What to answer.
        failure: AuthFailure,
        /// What is wrong.
        #[source]
        error: DecodeError,
    },
    /// Its header ends too early.
    #[error("malformed RPC call")]
    Malformed {
        /// Of the call.
        xid: u32,
        /// What is wrong.
        #[source]
        error: DecodeError,
    },
}

impl CallHeaderError {
    /// The fault of a call whose header has `error`.
    fn of(xid: u32, error: DecodeError) -> Self {
        if matches!(error.kind(), DecodeErrorKind::LengthExceedsMaximum { .. }) {
            let is_verifier = error.path().any(|step| step == PathSegment::Field("call_body", "verf"));
            let stat = if is_verifier { AuthStat::AuthBadverf } else { AuthStat::AuthBadcred };
            return Self::BadAuth { xid, failure: stat.into(), error };
        }
        Self::Malformed { xid, error }
    }

    /// The reply that the caller is owed; `None` where there is no caller.
    ///
    /// A malformed header is answered GARBAGE_ARGS: RFC 5531 has no other word for it, and a caller that gets no reply
    /// at all keeps waiting, and a credit with it.
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
