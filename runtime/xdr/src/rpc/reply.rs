//! Headers of RPC replies: encoding, decoding and errors.

use super::{
    AuthFailure, RpcError,
    wire::{
        AcceptedReply, AcceptedReplyData, AuthFlavor, MAX_AUTH_BODY, MismatchInfo, OpaqueAuth, RejectedReply,
        ReplyBody, RpcMsg, RpcMsgBody,
    },
    words::{is_regular, peek_words, put_auth, put_words},
};
use crate::xdr::{DecodeError, Decoder, EncodeError, Sink, XdrEncode, padded_len};

/// `msg_type` of a reply (RFC 5531 §9).
const REPLY: u32 = 1;
/// `reply_stat` of an accepted call (RFC 5531 §9).
const MSG_ACCEPTED: u32 = 0;
/// `accept_stat` of a successful call (RFC 5531 §9).
const SUCCESS: u32 = 0;
/// The first of two words that may follow SYSTEM_ERR, `rpcr` in ASCII. The second word is the reason. This is an
/// extension of RFC 5531, which defines no data after SYSTEM_ERR. Clients without the extension ignore the words.
const REASON: u32 = 0x7270_6372;
/// The reason of [`RpcError::Unavailable`].
const UNAVAILABLE: u32 = 1;
/// The reason of [`RpcError::HandlerTimedOut`].
const TIMED_OUT: u32 = 2;
/// Flavor of an empty verifier (RFC 5531 §10.1).
const AUTH_NONE: u32 = 0;

/// The header of a reply, without its results (RFC 5531 §9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Transaction identifier of the call.
    pub xid: u32,
    /// Verifier, which authenticates the server. A reply that denies a call carries no verifier, and this field is then
    /// AUTH_NONE.
    pub verifier: OpaqueAuth,
    /// Outcome of the call. After `Ok`, the results follow the header.
    pub outcome: Result<(), RpcError>,
}

impl ReplyHeader {
    /// Creates the header of a successful reply with an AUTH_NONE verifier.
    #[must_use]
    pub fn success(xid: u32) -> Self {
        Self { xid, verifier: OpaqueAuth::none(), outcome: Ok(()) }
    }

    /// Creates the header of an error reply with an AUTH_NONE verifier.
    #[must_use]
    pub fn failure(xid: u32, error: RpcError) -> Self {
        Self { xid, verifier: OpaqueAuth::none(), outcome: Err(error) }
    }

    /// Replaces the verifier.
    #[must_use]
    pub fn with_verifier(mut self, verifier: OpaqueAuth) -> Self {
        self.verifier = verifier;
        self
    }

    /// Returns the encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.to_wire().encoded_len() + if self.reason().is_some() { 8 } else { 0 }
    }

    /// Returns the reason that follows SYSTEM_ERR; `None` if the reply has no such extension.
    fn reason(&self) -> Option<u32> {
        match self.outcome {
            Err(RpcError::Unavailable) => Some(UNAVAILABLE),
            Err(RpcError::HandlerTimedOut) => Some(TIMED_OUT),
            _ => None,
        }
    }

    /// Appends the encoding. The results must follow if the outcome is `Ok`. Does not allocate.
    ///
    /// # Errors
    /// Returns an error if the verifier is longer than 400 bytes (RFC 5531 §8.2). A reply that denies the call has no
    /// verifier.
    pub fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        if self.outcome.is_err() || !is_regular(&self.verifier) {
            self.to_wire().encode(sink)?;
            if let Some(reason) = self.reason() {
                put_words([REASON, reason], sink);
            }
            return Ok(());
        }
        if self.verifier.is(AuthFlavor::AuthNone) && self.verifier.body.is_empty() {
            Self::encode_success(self.xid, sink);
            return Ok(());
        }
        put_words([self.xid, REPLY, MSG_ACCEPTED], sink);
        put_auth(&self.verifier, sink);
        sink.put_u32(SUCCESS);
        Ok(())
    }

    /// Appends the header of a successful reply with the empty verifier of AUTH_NONE.
    #[inline]
    #[doc(hidden)]
    pub fn encode_success<S: Sink + ?Sized>(xid: u32, sink: &mut S) {
        put_words([xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, SUCCESS], sink);
    }

    pub(super) fn to_wire(&self) -> RpcMsg {
        let accepted = |reply_data| ReplyBody::MsgAccepted(AcceptedReply { verf: self.verifier.clone(), reply_data });
        let body = match self.outcome {
            Ok(()) => accepted(AcceptedReplyData::Success),
            Err(RpcError::ProgramUnavailable) => accepted(AcceptedReplyData::ProgUnavail),
            Err(RpcError::ProgramMismatch { low, high }) => {
                accepted(AcceptedReplyData::ProgMismatch(MismatchInfo { low, high }))
            }
            Err(RpcError::ProcedureUnavailable) => accepted(AcceptedReplyData::ProcUnavail),
            Err(RpcError::GarbageArguments) => accepted(AcceptedReplyData::GarbageArgs),
            Err(RpcError::SystemError | RpcError::Unavailable | RpcError::HandlerTimedOut) => {
                accepted(AcceptedReplyData::SystemErr)
            }
            Err(RpcError::RpcMismatch { low, high }) => {
                ReplyBody::MsgDenied(RejectedReply::RpcMismatch(MismatchInfo { low, high }))
            }
            Err(RpcError::Authentication(failure)) => ReplyBody::MsgDenied(RejectedReply::AuthError(failure.0)),
        };
        RpcMsg { xid: self.xid, body: RpcMsgBody::Reply(body) }
    }

    /// Decodes the header of a reply received by a client. If the outcome is `Ok`, the results are next in `decoder`.
    ///
    /// # Errors
    /// Returns an error if the message is not a reply as defined by RFC 5531, or if the header exceeds the decoder's
    /// memory limit.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, ReplyHeaderError> {
        if let Some(xid) = Self::take_plain_success(decoder) {
            return Ok(Self::success(xid));
        }
        let message = decoder.read::<RpcMsg>().map_err(ReplyHeaderError::Malformed)?;
        let xid = message.xid;
        let (verifier, outcome) = match message.body {
            RpcMsgBody::Call(_) => return Err(ReplyHeaderError::NotAReply),
            RpcMsgBody::Reply(ReplyBody::MsgAccepted(accepted)) => {
                let outcome = match accepted.reply_data {
                    AcceptedReplyData::Success => Ok(()),
                    AcceptedReplyData::ProgUnavail => Err(RpcError::ProgramUnavailable),
                    AcceptedReplyData::ProgMismatch(MismatchInfo { low, high }) => {
                        Err(RpcError::ProgramMismatch { low, high })
                    }
                    AcceptedReplyData::ProcUnavail => Err(RpcError::ProcedureUnavailable),
                    AcceptedReplyData::GarbageArgs => Err(RpcError::GarbageArguments),
                    AcceptedReplyData::SystemErr => Err(take_reason(decoder)),
                };
                (accepted.verf, outcome)
            }
            RpcMsgBody::Reply(ReplyBody::MsgDenied(rejected)) => {
                let error = match rejected {
                    RejectedReply::RpcMismatch(MismatchInfo { low, high }) => RpcError::RpcMismatch { low, high },
                    RejectedReply::AuthError(stat) => RpcError::Authentication(AuthFailure(stat)),
                };
                (OpaqueAuth::none(), Err(error))
            }
        };
        Ok(Self { xid, verifier, outcome })
    }

    /// Decodes a header that reports success and has an empty AUTH_NONE verifier, as most replies do, and returns its
    /// XID. Returns `None` and reads nothing for any other header.
    #[inline]
    #[doc(hidden)]
    pub fn take_plain_success(decoder: &mut Decoder<'_>) -> Option<u32> {
        let Some([xid, REPLY, MSG_ACCEPTED, AUTH_NONE, 0, SUCCESS]) = peek_words(decoder.rest()) else { return None };
        decoder.take(24).ok()?;
        Some(xid)
    }
}

/// Reads the reason that may follow SYSTEM_ERR, and returns the error that it stands for. Without a known reason, reads
/// nothing and returns [`RpcError::SystemError`].
fn take_reason(decoder: &mut Decoder<'_>) -> RpcError {
    let error = match peek_words(decoder.rest()) {
        Some([REASON, UNAVAILABLE]) => RpcError::Unavailable,
        Some([REASON, TIMED_OUT]) => RpcError::HandlerTimedOut,
        _ => return RpcError::SystemError,
    };
    match decoder.take(8) {
        Ok(_) => error,
        Err(_) => RpcError::SystemError,
    }
}

/// An error that a client finds in the header of a received message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyHeaderError {
    /// The message is a call.
    #[error("an RPC call, not a reply")]
    NotAReply,
    /// The message does not conform to RFC 5531, or its header exceeds the decoder's memory limit.
    #[error("malformed RPC reply")]
    Malformed(#[source] DecodeError),
}

/// Returns the maximum length of the verifier body in the reply to a call with this credential, in bytes.
///
/// The reply to AUTH_NONE has an empty AUTH_NONE verifier (RFC 5531 §10.1: RECOMMENDED, and what all implementations
/// send). A server may reply to AUTH_SYS with AUTH_SHORT (appendix A). Other flavors define their own verifiers, of up
/// to 400 bytes (§8.2). A requester provides memory for the longest one (RFC 8166 §8.2.2.2).
#[must_use]
pub fn max_reply_verifier(credential: &OpaqueAuth) -> u32 {
    if credential.is(AuthFlavor::AuthNone) { 0 } else { MAX_AUTH_BODY }
}

/// Returns the maximum length of a reply's payload stream in bytes: a header with a verifier of up to `max_verifier`
/// bytes, followed by up to `results` bytes of results. A requester provides memory for this length
/// (RFC 8166 §3.4.6, §6.2, RPC-over-RDMA v2 §11.2.2.2).
#[must_use]
pub fn max_reply_len(max_verifier: u32, results: u64) -> u64 {
    /// Length in bytes of xid, mtype, reply_stat, the verifier's flavor and length, and accept_stat. A reply that
    /// denies the call (MSG_DENIED) is not longer.
    const HEADER: u64 = 6 * 4;
    /// Length in bytes of the data after the header of an error reply: low and high in PROG_MISMATCH, or the two words
    /// after SYSTEM_ERR. An error reply can be longer than a reply with a small result.
    const MISMATCH: u64 = 2 * 4;
    let verifier = padded_len(max_verifier as usize) as u64;
    results.max(MISMATCH).saturating_add(HEADER + verifier)
}
