//! The decisions of a server, without I/O and clock (RFC 2203 §5.2.3, §5.3.3, §5.4).

use std::{sync::Arc, time::Instant};

use bytes::Bytes;

use super::{
    body::BodyProtection,
    contexts::{ContextHandle, ContextTable, GssServerConfig, PendingSetup, ServerContext},
    credential::{GssCredential, flavor, gss_auth, is_null},
    mechanism::{ContextSetup, GssError, SetupStep, major},
    window::Position,
    wire::{MAXSEQ, RpcGssInitArg, RpcGssInitRes, RpcGssProcT},
};
use crate::{
    rpc::{AuthFailure, AuthStat, Credential, OpaqueAuth, RpcError},
    security::{
        AuthenticatedCaller, Authentication, BlockingQueue, ControlReply, HostAddr, Protection, ProtectionLevel,
        ReceivedCall, ReplySecurity,
    },
    xdr::{Decoder, encode_to_bytes},
};

/// The contexts and the configuration of a server with RPCSEC_GSS.
pub(super) struct GssServer {
    pub(super) contexts: ContextTable,
    pub(super) config: GssServerConfig,
}

/// The decision on a call, or the work that has to precede the decision.
pub(super) enum Decision {
    Done(Authentication),
    /// The mechanism has to execute a step, which may block. [`GssServer::finish_round`] creates the reply.
    Round(SetupRound),
    /// The context is busy with a large body. The call has to be received again, on the thread for blocking work of
    /// this queue.
    Busy(BlockingQueue),
}

/// A round in the creation of a context.
pub(super) struct SetupRound {
    /// The handle of the context. `None` in the first round.
    handle: Option<ContextHandle>,
    /// The mechanism's state of the context in creation. `None` in the first round.
    pub(super) setup: Option<Box<dyn ContextSetup>>,
    rounds: u32,
    started: Instant,
    pub(super) host: HostAddr,
    pub(super) token: Bytes,
}

impl From<AuthStat> for Decision {
    fn from(stat: AuthStat) -> Self {
        Self::Done(Authentication::Rejected(stat.into()))
    }
}

impl GssServer {
    pub(super) fn new(config: GssServerConfig) -> Self {
        Self { contexts: ContextTable::new(), config }
    }

    /// Decides on a call with flavor RPCSEC_GSS.
    ///
    /// If `may_block` is `true`, waits for a context that is busy. Otherwise returns [`Decision::Busy`].
    pub(super) fn receive(&self, call: &ReceivedCall<'_>, may_block: bool, now: Instant) -> Decision {
        let credential = match GssCredential::decode(&call.header.credential.body) {
            Ok(credential) => credential,
            Err(failure) => return Decision::Done(Authentication::Rejected(failure)),
        };
        let uses_context = matches!(credential.procedure, RpcGssProcT::RpcsecGssData | RpcGssProcT::RpcsecGssDestroy);
        if uses_context
            && !may_block
            && let Some(context) = ContextHandle::of(&credential.handle).and_then(|handle| self.contexts.find(handle))
        {
            let decision = context.queue.try_run(|| self.decide(call, &credential, now));
            return decision.unwrap_or_else(|_| Decision::Busy(context.queue.clone()));
        }
        self.decide(call, &credential, now)
    }

    fn decide(&self, call: &ReceivedCall<'_>, credential: &GssCredential, now: Instant) -> Decision {
        match credential.procedure {
            RpcGssProcT::RpcsecGssInit | RpcGssProcT::RpcsecGssContinueInit => self.create(call, credential, now),
            RpcGssProcT::RpcsecGssData => Decision::Done(self.data(call, credential, now)),
            RpcGssProcT::RpcsecGssDestroy => Decision::Done(self.destroy(call, credential, now)),
        }
    }

    /// Decides on a request that creates a context. Its sequence number and service are ignored (RFC 2203 §5.2.2).
    fn create(&self, call: &ReceivedCall<'_>, credential: &GssCredential, now: Instant) -> Decision {
        let is_first = credential.procedure == RpcGssProcT::RpcsecGssInit;
        // RFC 2203 §5.2.2: NULLPROC, and no handle in the first request.
        if call.header.procedure != 0 || (is_first && !credential.handle.is_empty()) {
            return AuthStat::AuthBadcred.into();
        }
        // RFC 2203 §5.2.2: all creation requests have the NULL verifier.
        if !is_null(&call.header.verifier) {
            return AuthStat::AuthBadverf.into();
        }
        // RFC 8166 §8.2.2: control messages are not reduced.
        let token = if call.is_reduced { None } else { self.token(call.arguments) };
        let Some(token) = token else {
            return Decision::Done(Authentication::Answered(ControlReply {
                verifier: OpaqueAuth::none(),
                outcome: Err(RpcError::GarbageArguments),
                results: Bytes::new(),
            }));
        };
        if is_first {
            let host = HostAddr::of(call.peer_addr);
            return Decision::Round(SetupRound { handle: None, setup: None, rounds: 0, started: now, host, token });
        }
        let handle = ContextHandle::of(&credential.handle);
        let pending = handle.and_then(|handle| self.contexts.take_setup(handle, &self.config, now));
        let Some(PendingSetup { setup, rounds, started, host }) = pending else {
            // RFC 2203 §5.2.3.2: RPCSEC_GSS_CREDPROBLEM and CTXPROBLEM cannot be returned here.
            let error = GssError::new(major::NO_CONTEXT, "no context in creation has this handle");
            return Decision::Done(Authentication::Answered(refusal(&error)));
        };
        Decision::Round(SetupRound { handle, setup: Some(setup), rounds, started, host, token })
    }

    fn token(&self, arguments: &[u8]) -> Option<Bytes> {
        let mut decoder = Decoder::new(arguments);
        let RpcGssInitArg { gss_token } = decoder.read().ok()?;
        decoder.finish().ok()?;
        (gss_token.len() <= self.config.max_token).then_some(gss_token)
    }

    /// Completes a round in the creation of a context with the result of the mechanism's step. Returns the reply to the
    /// creation request (RFC 2203 §5.2.3).
    pub(super) fn finish_round(
        &self,
        round: SetupRound,
        result: Result<(Box<dyn ContextSetup>, SetupStep), GssError>,
        now: Instant,
    ) -> ControlReply {
        let finished = result.and_then(|(setup, step)| self.accept_step(&round, setup, step, now));
        finished.unwrap_or_else(|error| {
            tracing::info!(target: "rpcrdma::gss", %error, "security context refused");
            refusal(&error)
        })
    }

    fn accept_step(
        &self,
        round: &SetupRound,
        setup: Box<dyn ContextSetup>,
        step: SetupStep,
        now: Instant,
    ) -> Result<ControlReply, GssError> {
        let gss_token: Bytes = step.token.unwrap_or_default().into();
        let window = self.config.sequence_window;
        let (handle, gss_major, verifier) = match step.context {
            Some(context) => {
                // RFC 2203 §5.2.3.1: the checksum of the window.
                let verifier = gss_auth(context.get_mic(&window.to_be_bytes())?.into());
                let peer = context.peer().to_owned();
                let handle = self.contexts.establish(round.handle, context, round.host, &self.config, now)?;
                tracing::debug!(target: "rpcrdma::gss", peer, "security context created");
                (handle, major::COMPLETE, verifier)
            }
            None => {
                let rounds = round.rounds + 1;
                if gss_token.is_empty() {
                    return Err(GssError::new(major::FAILURE, "the mechanism needs a token but sends none"));
                }
                if rounds >= self.config.max_rounds {
                    return Err(GssError::new(major::FAILURE, "the creation of the context takes too many rounds"));
                }
                let setup = PendingSetup { setup, rounds, started: round.started, host: round.host };
                let handle = self.contexts.wait(round.handle, setup, &self.config, now)?;
                (handle, major::CONTINUE_NEEDED, OpaqueAuth::none())
            }
        };
        let result = RpcGssInitRes {
            handle: Bytes::copy_from_slice(&handle.0),
            gss_major,
            gss_minor: 0,
            seq_window: window,
            gss_token,
        };
        let results = encode_to_bytes(&result).map_err(|error| GssError::new(major::FAILURE, error.to_string()))?;
        Ok(ControlReply { verifier, outcome: Ok(()), results })
    }

    /// Decides on a data request. Rejects services below the minimum level of the configuration.
    fn data(&self, call: &ReceivedCall<'_>, credential: &GssCredential, now: Instant) -> Authentication {
        match self.check(call, credential, now) {
            Err(refused) => refused,
            // RFC 2203 §5.2.1.
            Ok(accepted) if accepted.level < self.config.min_level => {
                Authentication::Rejected(AuthStat::AuthTooweak.into())
            }
            Ok(accepted) => {
                let caller = AuthenticatedCaller::new(Credential::Other(call.header.credential.clone()));
                let caller = caller.with_principal(accepted.context.principal(accepted.level));
                Authentication::Accepted(caller.with_security(Arc::new(accepted)))
            }
        }
    }

    /// Decides on a request that destroys a context (RFC 2203 §5.4).
    fn destroy(&self, call: &ReceivedCall<'_>, credential: &GssCredential, now: Instant) -> Authentication {
        if call.header.procedure != 0 {
            return Authentication::Rejected(AuthStat::AuthBadcred.into());
        }
        let accepted = match self.check(call, credential, now) {
            Ok(accepted) => accepted,
            Err(refused) => return refused,
        };
        if let Some(handle) = ContextHandle::of(&credential.handle) {
            self.contexts.destroy(handle);
        }
        // RFC 2203 §5.4: a response as to a data request. Its results are empty, and protected all the same.
        let results = match accepted.protection.map(|protection| protection.wrap(Bytes::new())) {
            None => Bytes::new(),
            Some(Ok(results)) => results,
            Some(Err(error)) => {
                tracing::warn!(target: "rpcrdma::gss", %error, "a reply cannot be protected");
                // RFC 2203 §5.3.3.4.1, §5.3.3.4.4: no RPC response is sent.
                return Authentication::Discarded;
            }
        };
        Authentication::Answered(ControlReply { verifier: accepted.verifier, outcome: Ok(()), results })
    }

    /// Checks the credential and the verifier of a request for data or for the destruction of a context, and records
    /// the sequence number of the request (RFC 2203 §5.3.3.1, §5.3.3.3). Also creates the verifier of the reply
    /// (§5.3.3.2).
    // The error is moved once. Boxing it would require an allocation.
    #[allow(clippy::result_large_err)]
    fn check(
        &self,
        call: &ReceivedCall<'_>,
        credential: &GssCredential,
        now: Instant,
    ) -> Result<AcceptedCall, Authentication> {
        let reject = |stat: AuthStat| Authentication::Rejected(stat.into());
        let level = credential.level().map_err(Authentication::Rejected)?;
        // RFC 2203 §5.3.3.3: the context was destroyed, or the server has restarted.
        let handle = ContextHandle::of(&credential.handle).ok_or_else(|| reject(AuthStat::RpcsecGssCredproblem))?;
        let context = self.contexts.find(handle).ok_or_else(|| reject(AuthStat::RpcsecGssCredproblem))?;
        // RFC 2203 §5.3.3.3: the credentials have become stale.
        if context.has_expired(now) {
            self.contexts.destroy(handle);
            return Err(reject(AuthStat::RpcsecGssCtxproblem));
        }
        // RFC 2203 §5.3.3.3: the sequence number exceeds the maximum.
        let sequence = credential.sequence;
        if sequence > MAXSEQ {
            return Err(reject(AuthStat::RpcsecGssCtxproblem));
        }
        // RFC 2203 §7.2.2: such a call is discarded in any case, so its checksum need not be verified.
        if matches!(context.position(sequence), Position::Seen | Position::Below) {
            return Err(Authentication::Discarded);
        }
        if call.header.verifier.flavor != flavor() {
            return Err(reject(AuthStat::AuthBadverf));
        }
        // RFC 2203 §5.3.1: the checksum of the header up to the credential.
        if let Err(error) = context.gss.verify_mic(call.signed, &call.header.verifier.body) {
            tracing::info!(target: "rpcrdma::gss", peer = %call.peer_addr, %error, "verifier refused");
            // RFC 2203 §5.3.3.3, §5.3.3.4.2.
            let expired = error.is_expired();
            return Err(reject(if expired { AuthStat::RpcsecGssCtxproblem } else { AuthStat::RpcsecGssCredproblem }));
        }
        // RFC 2203 §5.3.3.1: the window moves only for an authentic call. A repeated number is silently discarded.
        if !context.record(sequence) {
            return Err(Authentication::Discarded);
        }
        self.contexts.touch(&context);
        // RFC 2203 §5.3.3.2: the checksum of the sequence number. RFC 2203 §5.3.3.4.1: CTXPROBLEM if there is none. It
        // is made before the call is executed, because a client resends a denied call.
        let verifier = context.gss.get_mic(&sequence.to_be_bytes()).map_err(|error| {
            tracing::warn!(target: "rpcrdma::gss", %error, "replies cannot be signed");
            reject(AuthStat::RpcsecGssCtxproblem)
        })?;
        let protection = BodyProtection::of(&context.gss, &context.queue, sequence, level);
        Ok(AcceptedCall { context, level, verifier: gss_auth(verifier.into()), protection })
    }
}

/// The security of an accepted call.
#[derive(Debug)]
struct AcceptedCall {
    context: Arc<ServerContext>,
    level: ProtectionLevel,
    verifier: OpaqueAuth,
    protection: Option<Arc<dyn Protection>>,
}

impl ReplySecurity for AcceptedCall {
    fn verifier(&self) -> Result<OpaqueAuth, AuthFailure> {
        Ok(self.verifier.clone())
    }

    fn protection(&self) -> Option<Arc<dyn Protection>> {
        self.protection.clone()
    }
}

/// Returns the reply to a creation request that failed.
// RFC 2203 §5.2.3.1: handle and token are NULL, and so is the verifier.
fn refusal(error: &GssError) -> ControlReply {
    let gss_major = if major::is_error(error.major) { error.major } else { major::FAILURE };
    let result = RpcGssInitRes {
        handle: Bytes::new(),
        gss_major,
        gss_minor: error.minor,
        seq_window: 0,
        gss_token: Bytes::new(),
    };
    match encode_to_bytes(&result) {
        Ok(results) => ControlReply { verifier: OpaqueAuth::none(), outcome: Ok(()), results },
        Err(_) => {
            ControlReply { verifier: OpaqueAuth::none(), outcome: Err(RpcError::SystemError), results: Bytes::new() }
        }
    }
}
