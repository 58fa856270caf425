//! The header of a reply.

use super::{
    AuthFailure, RpcError,
    wire::{
        AcceptedReply, AcceptedReplyData, AuthFlavor, MAX_AUTH_BODY, MismatchInfo, OpaqueAuth, RejectedReply,
        ReplyBody, RpcMsg, RpcMsgBody,
    },
};
use crate::xdr::{DecodeError, Decoder, EncodeError, Sink, XdrEncode, padded_len};

/// The header of a reply, up to where the results start (RFC 5531 §9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The transaction identifier of the call.
    pub xid: u32,
    /// What proves that the server is the server. A call that is denied gets none: it is AUTH_NONE then.
    pub verifier: OpaqueAuth,
    /// Whether the results follow.
    pub outcome: Result<(), RpcError>,
}

impl ReplyHeader {
    /// A successful reply, without authentication of the server (AUTH_NONE).
    #[must_use]
    pub fn success(xid: u32) -> Self {
        Self { xid, verifier: OpaqueAuth::none(), outcome: Ok(()) }
    }

    /// A reply without results, without authentication of the server.
    #[must_use]
    pub fn failure(xid: u32, error: RpcError) -> Self {
        Self { xid, verifier: OpaqueAuth::none(), outcome: Err(error) }
    }

    /// The same with another verifier.
    #[must_use]
    pub fn with_verifier(mut self, verifier: OpaqueAuth) -> Self {
        self.verifier = verifier;
        self
    }

    /// Length of its encoding in octets.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.to_wire().encoded_len()
    }

    /// Appends the encoding; after [`success`](Self::success), the results are to follow. Allocates nothing.
    ///
    /// # Errors
    /// When the verifier is longer than 400 octets (RFC 5531 §8.2).
    pub fn encode<S: Sink + ?Sized>(&self, sink: &mut S) -> Result<(), EncodeError> {
        self.to_wire().encode(sink)
    }

    fn to_wire(&self) -> RpcMsg {
        let accepted = |reply_data| ReplyBody::MsgAccepted(AcceptedReply { verf: self.verifier.clone(), reply_data });
        let body = match self.outcome {
            Ok(()) => accepted(AcceptedReplyData::Success),
            Err(RpcError::ProgramUnavailable) => accepted(AcceptedReplyData::ProgUnavail),
            Err(RpcError::ProgramMismatch { low, high }) => {
                accepted(AcceptedReplyData::ProgMismatch(MismatchInfo { low, high }))
            }
            Err(RpcError::ProcedureUnavailable) => accepted(AcceptedReplyData::ProcUnavail),
            Err(RpcError::GarbageArguments) => accepted(AcceptedReplyData::GarbageArgs),
            Err(RpcError::SystemError) => accepted(AcceptedReplyData::SystemErr),
            Err(RpcError::RpcMismatch { low, high }) => {
                ReplyBody::MsgDenied(RejectedReply::RpcMismatch(MismatchInfo { low, high }))
            }
            Err(RpcError::Authentication(failure)) => ReplyBody::MsgDenied(RejectedReply::AuthError(failure.0)),
        };
        RpcMsg { xid: self.xid, body: RpcMsgBody::Reply(body) }
    }

    /// Reads the header of a reply at a client. When the outcome is success, the results are next.
    ///
    /// # Errors
    /// When it is no reply of RFC 5531.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<Self, ReplyHeaderError> {
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
                    AcceptedReplyData::SystemErr => Err(RpcError::SystemError),
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
}

/// Why a message received by a client is not a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyHeaderError {
    /// It is a call.
    #[error("an RPC call, not a reply")]
    NotAReply,
    /// It is not a message of RFC 5531.
    #[error("malformed RPC reply")]
    Malformed(#[source] DecodeError),
}

/// Most octets that the body of a reply's verifier takes, for a call with this credential.
///
/// The reply to AUTH_NONE has an AUTH_NONE verifier, which is empty (RFC 5531 §10.1: RECOMMENDED, and what every
/// implementation does). A server may answer AUTH_SYS with AUTH_SHORT (appendix A), and what it answers other flavors with is
/// theirs to say: up to 400 octets (§8.2).
#[must_use]
pub fn max_reply_verifier(credential: &OpaqueAuth) -> u32 {
    if credential.is(AuthFlavor::AuthNone) { 0 } else { MAX_AUTH_BODY }
}

/// Most octets of a reply's payload stream: the header of any reply with a verifier of `max_verifier` octets,
/// followed, if it is a success, by `results` octets. What a requester provides for (RFC 8166 §3.4.6, §6.2).
#[must_use]
pub fn max_reply_len(max_verifier: u32, results: u64) -> u64 {
    /// xid, mtype, reply_stat, the verifier's flavor and length, accept_stat. MSG_DENIED takes no more.
    const HEADER: u64 = 6 * 4;
    /// PROG_MISMATCH is longer than a small result: low and high.
    const MISMATCH: u64 = 2 * 4;
    let verifier = padded_len(max_verifier as usize) as u64;
    results.max(MISMATCH).saturating_add(HEADER + verifier)
}
