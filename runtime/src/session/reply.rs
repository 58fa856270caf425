//! The headers of replies to inbound calls.

use bytes::Bytes;

use crate::{
    driver::{EncodedReply, ReplyCommand, ReplyOutcome},
    engine::{ChunkItems, OutgoingReply, message_buf},
    memory::{BufferPool, Output as _},
    rpc::{AuthFailure, OpaqueAuth, ReplyHeader, RpcError},
    security::{ControlReply, ReplySecurity},
    xdr::{EncodeError, FlatSink, Sink},
};

/// The header of a successful reply.
pub(super) struct SuccessHeader {
    pub(super) xid: u32,
    /// The verifier. `None` stands for the empty verifier of AUTH_NONE.
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
// RFC 2203 §5.3.3.2, RFC 5531 §9: an error is an accepted reply, so it has the server's verifier. A denial has none.
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

/// Encodes the header of a reply, and appends results that are already encoded. If the verifier is too long for a
/// header, no RPC reply is sent.
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

    const ACCEPTED: [RpcError; 7] = [
        RpcError::ProgramUnavailable,
        RpcError::ProgramMismatch { low: 1, high: 2 },
        RpcError::ProcedureUnavailable,
        RpcError::GarbageArguments,
        RpcError::SystemError,
        RpcError::Unavailable,
        RpcError::HandlerTimedOut,
    ];

    fn denied() -> [RpcError; 2] {
        [RpcError::RpcMismatch { low: 2, high: 2 }, RpcError::Authentication(AuthStat::AuthTooweak.into())]
    }

    /// Returns the header in an encoded reply.
    fn sent(encoded: &EncodedReply) -> ReplyHeader {
        let ReplyCommand::Reply(reply) = &encoded.command else { panic!("{:?}", encoded.command) };
        ReplyHeader::decode(&mut Decoder::new(&reply.message)).unwrap()
    }

    /// A security of replies with a fixed verifier, or with a fixed failure to create one.
    #[derive(Debug)]
    struct Verifier(Result<OpaqueAuth, AuthFailure>);

    impl ReplySecurity for Verifier {
        fn verifier(&self) -> Result<OpaqueAuth, AuthFailure> {
            self.0.clone()
        }
    }

    /// RFC 2203 §5.3.3.2, §5.3.3.4.1: each error of an accepted call has the server's verifier. If there is no
    /// verifier, the call is denied.
    #[test]
    fn verifiers_of_errors() {
        let pool = BufferPool::default();
        let verifier = OpaqueAuth { flavor: 6, body: vec![7; 5].into() };
        let signs = Verifier(Ok(verifier.clone()));
        let failure = AuthFailure::from(AuthStat::RpcsecGssCtxproblem);
        let fails = Verifier(Err(failure));
        for error in ACCEPTED {
            let header = sent(&refusal(7, error, Some(&signs), &pool));
            assert!(!error.is_denied() && header.verifier == verifier, "{error:?}: {header:?}");
            assert_eq!(header.outcome.unwrap_err().status(), error.status());
            let header = sent(&refusal(7, error, Some(&fails), &pool));
            assert_eq!(header.outcome, Err(RpcError::Authentication(failure)), "{error:?}");
            let header = sent(&refusal(7, error, None, &pool));
            assert_eq!(header.verifier, OpaqueAuth::none(), "{error:?}");
        }
        for error in denied() {
            for security in [&signs, &fails] {
                assert_eq!(sent(&refusal(7, error, Some(security), &pool)).outcome, Err(error));
            }
        }
    }

    /// RFC 5531 §9: only a successful reply has results.
    #[test]
    fn control_replies_have_results_if_they_succeed() {
        let pool = BufferPool::default();
        for outcome in [Ok(()), Err(RpcError::GarbageArguments), Err(denied()[1])] {
            let verifier = OpaqueAuth { flavor: 6, body: if outcome.is_ok() { vec![7; 5] } else { vec![] }.into() };
            let results = Bytes::from_static(b"results!");
            let reply = ControlReply { verifier: verifier.clone(), outcome, results: results.clone() };
            let ReplyCommand::Reply(sent) = control_reply(7, reply, &pool).command else { panic!("no reply") };
            let mut decoder = Decoder::new(&sent.message);
            let header = ReplyHeader::decode(&mut decoder).unwrap();
            assert_eq!((header.xid, header.outcome), (7, outcome));
            assert_eq!(decoder.rest(), if outcome.is_ok() { &results[..] } else { &[] });
        }
    }

    /// The reported outcome of a reply is the outcome in its header, whatever the length of the verifier.
    #[test]
    fn outcomes_of_encoded_headers() {
        let pool = BufferPool::default();
        for outcome in [Ok(())].into_iter().chain(ACCEPTED.into_iter().chain(denied()).map(Err)) {
            for len in [0, 1, 4, 37, 400] {
                let verifier = OpaqueAuth { flavor: 6, body: vec![0; len].into() };
                let encoded = encode_header(&ReplyHeader { xid: 7, verifier, outcome }, &pool, &[]);
                match (&encoded.outcome, sent(&encoded).outcome) {
                    (ReplyOutcome::Success, Ok(())) => {}
                    (ReplyOutcome::Error(reported), Err(sent)) => assert_eq!(reported.status(), sent.status()),
                    (reported, sent) => panic!("{reported:?} is reported, {sent:?} is sent"),
                }
            }
        }
    }
}
