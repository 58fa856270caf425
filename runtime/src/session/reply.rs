//! The replies to inbound calls: their headers and outcomes.

use std::sync::Arc;

use bytes::Bytes;

use super::call::ServedConnection;
use crate::{
    driver::ReplyCommand,
    engine::{ChunkItems, OutgoingReply, message_buf},
    memory::{BufferPool, Output as _},
    rpc::{AuthFailure, ControlReply, OpaqueAuth, ReplyHeader, ReplySecurity, RpcError},
    xdr::{EncodeError, FlatSink, Sink},
};

/// An encoded reply.
#[derive(Debug)]
#[must_use]
pub struct EncodedReply {
    pub(super) command: ReplyCommand,
    pub(super) outcome: ReplyOutcome,
}

/// The outcome that a reply reports.
#[derive(Debug)]
pub(crate) enum ReplyOutcome {
    /// The results of the call.
    Success,
    /// Results that still have to be protected. The message of the reply ends with its header.
    // Boxed because it is rare, and would enlarge every reply.
    Unprotected(Box<Bytes>),
    /// An RPC error.
    #[cfg_attr(
        not(any(test, feature = "metrics", feature = "tower")),
        expect(dead_code, reason = "metrics and layers read it")
    )]
    Error(RpcError),
    /// There is no RPC reply.
    None,
}

impl EncodedReply {
    /// Creates a reply with results.
    #[inline(always)]
    pub(super) fn success(reply: OutgoingReply) -> Self {
        Self { command: ReplyCommand::Reply(reply), outcome: ReplyOutcome::Success }
    }

    /// Creates a reply with results that have to be protected. `header` has the header of the reply only.
    pub(super) fn unprotected(header: OutgoingReply, results: Bytes) -> Self {
        Self { command: ReplyCommand::Reply(header), outcome: ReplyOutcome::Unprotected(Box::new(results)) }
    }

    /// Ends a call by a command other than [`ReplyCommand::Reply`].
    pub(crate) fn without_rpc_reply(command: ReplyCommand) -> Self {
        Self { command, outcome: ReplyOutcome::None }
    }
}

#[cfg(feature = "introspection")]
impl EncodedReply {
    /// Returns `true` if the call has results.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.outcome, ReplyOutcome::Success | ReplyOutcome::Unprotected(_))
    }
}

#[cfg(feature = "metrics")]
impl EncodedReply {
    /// Returns the RPC reply if it has results that need no protection.
    #[inline(always)]
    pub(crate) fn results(&self) -> Option<&OutgoingReply> {
        match (&self.outcome, &self.command) {
            (ReplyOutcome::Success, ReplyCommand::Reply(reply)) => Some(reply),
            _ => None,
        }
    }
}

#[cfg(any(feature = "metrics", feature = "tower"))]
impl EncodedReply {
    /// Returns the outcome that the reply reports.
    pub(crate) fn outcome(&self) -> &ReplyOutcome {
        &self.outcome
    }

    /// Returns the encoded RPC reply.
    pub(crate) fn rpc_reply(&self) -> Option<&OutgoingReply> {
        match &self.command {
            ReplyCommand::Reply(reply) => Some(reply),
            ReplyCommand::ChunkError | ReplyCommand::Discard => None,
        }
    }

    /// Returns the length of the payload stream in bytes, with results that still have to be protected.
    pub(crate) fn inline_len(&self) -> usize {
        let unprotected = if let ReplyOutcome::Unprotected(results) = &self.outcome { results.len() } else { 0 };
        self.rpc_reply().map_or(0, |reply| reply.message.len()).saturating_add(unprotected)
    }

    /// Returns `true` if the caller gets no RPC reply and no transport error that names a fault.
    pub(crate) fn is_discarded(&self) -> bool {
        matches!(self.command, ReplyCommand::Discard)
    }
}

/// The parts of an inbound call that the reply to a failed call needs.
pub(crate) struct Refusal {
    xid: u32,
    security: Option<Arc<dyn ReplySecurity>>,
    connection: Arc<ServedConnection>,
}

impl Refusal {
    pub(super) fn new(xid: u32, security: Option<Arc<dyn ReplySecurity>>, connection: Arc<ServedConnection>) -> Self {
        Self { xid, security, connection }
    }

    /// Returns the XID of the call.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the reply to the failed call.
    pub(crate) fn reply(&self, error: RpcError) -> EncodedReply {
        refusal(self.xid, error, self.security.as_deref(), self.connection.pool())
    }
}

/// The header of a successful reply.
pub(super) struct SuccessHeader {
    pub(super) xid: u32,
    /// `None` for the empty verifier of AUTH_NONE.
    pub(super) verifier: Option<OpaqueAuth>,
}

impl SuccessHeader {
    #[inline(always)]
    pub(super) fn encode<S: Sink>(self, sink: &mut S) -> Result<(), EncodeError> {
        match self.verifier {
            None => ReplyHeader::encode_success(self.xid, sink),
            Some(verifier) => ReplyHeader::success(self.xid).with_verifier(verifier).encode(sink)?,
        }
        Ok(())
    }
}

/// Returns the verifier of the reply to an accepted call.
fn verifier(security: Option<&dyn ReplySecurity>) -> Result<OpaqueAuth, AuthFailure> {
    security.map_or_else(|| Ok(OpaqueAuth::none()), ReplySecurity::verifier)
}

/// Encodes the reply to a call that failed.
// RFC 2203 §5.3.3.2: an error is an accepted reply, so it has the server's verifier. A denial has none.
pub(super) fn refusal(
    xid: u32,
    error: RpcError,
    security: Option<&dyn ReplySecurity>,
    pool: &BufferPool,
) -> EncodedReply {
    let verifier = if error.is_denied() { Ok(OpaqueAuth::none()) } else { verifier(security) };
    let header = match verifier {
        Ok(verifier) => ReplyHeader::failure(xid, error).with_verifier(verifier),
        // RFC 2203 §5.3.3.4.1.
        Err(failure) => ReplyHeader::failure(xid, failure.into()),
    };
    encode_header(&header, pool, &[])
}

/// Encodes the reply of an authenticator to a control call. It is not reduced (RFC 8166 §8.2.2).
pub(super) fn control_reply(xid: u32, reply: ControlReply, pool: &BufferPool) -> EncodedReply {
    let ControlReply { verifier, outcome, results } = reply;
    let results = if outcome.is_ok() { results } else { Bytes::new() };
    encode_header(&ReplyHeader { xid, verifier, outcome }, pool, &results)
}

/// Encodes a reply with encoded results.
pub(super) fn encode_header(header: &ReplyHeader, pool: &BufferPool, results: &[u8]) -> EncodedReply {
    let mut message = message_buf(pool, 512);
    match header.encode(&mut FlatSink::new(&mut message)) {
        Ok(()) => {
            message.append(results);
            let outcome = header.outcome.map_or_else(ReplyOutcome::Error, |()| ReplyOutcome::Success);
            EncodedReply {
                command: ReplyCommand::Reply(OutgoingReply { message, reduced: ChunkItems::new() }),
                outcome,
            }
        }
        // The authenticator's verifier is longer than 400 bytes.
        Err(error) => {
            tracing::error!(target: "rpcrdma::call", %error, "reply header cannot be encoded");
            EncodedReply::without_rpc_reply(ReplyCommand::Discard)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{rpc::AuthStat, xdr::Decoder};

    /// The outcome of a reply is that in its header, with verifiers of any length.
    #[test]
    fn outcomes_of_encoded_headers() {
        let pool = BufferPool::default();
        let outcomes = [
            Ok(()),
            Err(RpcError::ProgramUnavailable),
            Err(RpcError::ProgramMismatch { low: 1, high: 2 }),
            Err(RpcError::ProcedureUnavailable),
            Err(RpcError::GarbageArguments),
            Err(RpcError::SystemError),
            Err(RpcError::Unavailable),
            Err(RpcError::HandlerTimedOut),
            Err(RpcError::RpcMismatch { low: 2, high: 2 }),
            Err(RpcError::Authentication(AuthStat::AuthTooweak.into())),
        ];
        for outcome in outcomes {
            for len in [0, 1, 4, 37, 400] {
                let verifier = OpaqueAuth { flavor: 6, body: vec![0; len].into() };
                let encoded = encode_header(&ReplyHeader { xid: 7, verifier, outcome }, &pool, &[]);
                let ReplyCommand::Reply(reply) = &encoded.command else { panic!("{:?}", encoded.command) };
                let sent = ReplyHeader::decode(&mut Decoder::new(&reply.message)).unwrap().outcome;
                match (&encoded.outcome, sent) {
                    (ReplyOutcome::Success, Ok(())) => {}
                    (ReplyOutcome::Error(reported), Err(sent)) => assert_eq!(reported.status(), sent.status()),
                    (reported, sent) => panic!("{reported:?} is reported, {sent:?} is sent"),
                }
            }
        }
    }
}
