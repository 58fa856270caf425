//! Calls of a channel with a security flavor, and the calls of the flavor itself.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    call::{self, CallParameters, CallTarget, OutboundCall},
    error::CallError,
    link::{ChannelLink, within},
    retry::ExchangeError,
    seal::{set_verifier, signed_header},
};
use crate::{
    ErrorChain,
    engine::{CallFailure, CallPolicy, ChunkItems, IncomingReply, OutgoingCall, ReplyResources, message_buf},
    memory::Output as _,
    rpc::{self, CallHeader, OpaqueAuth, ReplyHeader, RpcError},
    security::{
        CallSecurity, ControlCall, ControlPort, ControlReply, Seal, Secured, Security, SecurityError, SecurityFuture,
        SecurityLink, UnwrapError,
    },
    service::ProcedureId,
    session::{self, ChannelConfig},
    xdr::{DecodeError, Decoder, FlatSink, XdrEncode, encode_to_bytes},
};

/// A secured call in progress. Reports the end of the call when it is dropped.
struct ActiveCall(Arc<dyn CallSecurity>);

impl Drop for ActiveCall {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Makes one attempt of a call that `security` secures.
pub(super) async fn attempt<A: XdrEncode + Sync, R>(
    security: &dyn Security,
    link: &ChannelLink,
    config: &ChannelConfig,
    call: &mut OutboundCall<'_, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
) -> Result<R, ExchangeError> {
    let OutboundCall { observed, deadline, .. } = *call;
    let CallParameters { target: callee, bounds, args, read, .. } = call.parameters;
    let procedure = callee.name;
    let identity = ProcedureId::new(callee.program, callee.version, callee.number);
    let unsent = |source| CallError::Security { procedure, sent: false, source };
    let late = CallFailure::DeadlineExceeded { sent: false };
    let too_late = || CallFailure::DeadlineExceeded { sent: true };
    let port = ControlConnection::new(link, config, deadline);
    let secured = match within(deadline, security.secure(identity, port.link())).await {
        Some(Ok(secured)) => secured,
        Some(Err(source)) => {
            return Err(port.failure().map_or_else(|| unsent(source).into(), ExchangeError::Failed));
        }
        None => return Err(late.into()),
    };
    let active = ActiveCall(Arc::clone(&secured.call));
    let mut outgoing = match secured.call.protection() {
        None => {
            let mut outgoing = call::unencoded(config, call);
            call::encode(&mut outgoing, link, config, call, Some(&secured))?;
            outgoing
        }
        Some(protection) => {
            let policy = call.policy(true);
            let body = encode_to_bytes(args).map_err(|source| CallError::Encode { procedure, source })?;
            // RFC 8166 §8.2.2.3: wrapped results are not reduced, so they need no Write chunks.
            let results = protection.max_wrapped(bounds.whole());
            // A short body waits for a large one of the same context.
            let wrapped = match within(deadline, session::wrap(protection, body)).await {
                Some(Ok(wrapped)) => wrapped,
                Some(Err(source)) => return Err(not_secured(&secured, unsent(source)).await),
                None => return Err(late.into()),
            };
            protect(config, callee, &wrapped, results, policy, deadline, &secured.credential)?
        }
    };
    let xid = call.xid.unwrap_or_else(|| link.sealed_xid());
    let seal = Arc::clone(&secured.call) as Arc<dyn Seal>;
    match within(deadline, sign(&mut outgoing, xid, &seal, config)).await {
        Some(Ok(())) => {}
        Some(Err(source)) => return Err(not_secured(&secured, unsent(source)).await),
        None => return Err(late.into()),
    }
    observed.sent(&outgoing, link.info.peer_addr);
    let reply = link.send(outgoing, deadline).await?;
    observed.replied(&reply);
    let limits = config.connection.decode_limits;
    let (protection, body) = {
        let mut decoder = call::decoder(&reply, limits);
        let header = call::decode_header(procedure, &mut decoder)?;
        // RFC 2203 §5.3.3.3: the call is made again if the context was the reason.
        if let Err(source @ RpcError::Authentication(failure)) = header.outcome
            && secured.call.denied(failure)
        {
            return Err(ExchangeError::Denied(CallError::Rpc { procedure, source }));
        }
        within(deadline, check(procedure, &active.0, &header)).await.ok_or_else(too_late)??;
        // RFC 2203 §5.3.3.4: only results are protected, so an error status is not.
        header.outcome.map_err(|source| CallError::Rpc { procedure, source })?;
        match secured.call.protection() {
            None => return Ok(call::decode_body(procedure, &mut decoder, read)?),
            Some(protection) => (protection, Bytes::copy_from_slice(decoder.rest())),
        }
    };
    drop(reply);
    let insecure = |error: UnwrapError| {
        let source = match error {
            UnwrapError::Refused(source) => source,
            expired @ UnwrapError::Expired => SecurityError(expired.to_string()),
        };
        CallError::Security { procedure, sent: true, source }
    };
    let body = within(deadline, session::unwrap(protection, body)).await.ok_or_else(too_late)?.map_err(insecure)?;
    Ok(call::decode_body(procedure, &mut Decoder::shared(&body).with_limits(limits), read)?)
}

/// Returns the error of a call that could not be secured.
async fn not_secured(secured: &Secured, error: CallError) -> ExchangeError {
    match session::expired(&secured.call).await {
        true => ExchangeError::SecurityExpired(error),
        false => ExchangeError::Final(error),
    }
}

/// Checks the verifier of a reply. A denied reply has no verifier to check.
// RFC 2203 §5.3.3.2: an accepted reply has a verifier. A denied reply has none (RFC 5531 §9).
async fn check(
    procedure: &'static str,
    security: &Arc<dyn CallSecurity>,
    header: &ReplyHeader,
) -> Result<(), CallError> {
    if header.outcome.as_ref().is_err_and(RpcError::is_denied) {
        return Ok(());
    }
    session::verify(security, &header.verifier).await.map_err(|source| CallError::Security {
        procedure,
        sent: true,
        source,
    })
}

/// Encodes a call with protected arguments. No eligible item is reduced (RFC 8166 §8.2.2.3). `max_results` is the
/// maximum length of the protected results in bytes.
#[allow(clippy::too_many_arguments)]
fn protect(
    config: &ChannelConfig,
    callee: &CallTarget,
    arguments: &[u8],
    max_results: u64,
    policy: CallPolicy,
    deadline: Option<Instant>,
    credential: &OpaqueAuth,
) -> Result<OutgoingCall, CallError> {
    let procedure = callee.name;
    let header = callee.header(credential);
    unreduced(config, &header, arguments, max_results, policy, deadline)
        .map_err(|_| CallError::Credential { procedure, len: credential.body.len() })
}

/// Sets the XID and the verifier of a call.
async fn sign(
    call: &mut OutgoingCall,
    xid: u32,
    seal: &Arc<dyn Seal>,
    config: &ChannelConfig,
) -> Result<(), SecurityError> {
    let header = signed_header(call, xid)?;
    let verifier = session::seal(seal, header.clone()).await?;
    set_verifier(call, &header, &verifier, &config.connection.engine.pool)
}

/// Returns a call with the encoded `arguments`. No eligible item is reduced. `max_results` is the maximum length of the
/// results in bytes.
fn unreduced(
    config: &ChannelConfig,
    header: &CallHeader,
    arguments: &[u8],
    max_results: u64,
    policy: CallPolicy,
    deadline: Option<Instant>,
) -> Result<OutgoingCall, crate::xdr::EncodeError> {
    let engine = &config.connection.engine;
    let mut message = message_buf(&engine.pool, engine.send_size as usize);
    header.encode(&mut FlatSink::new(&mut message))?;
    message.append(arguments);
    let max_inline = rpc::max_reply_len(rpc::max_reply_verifier(&header.credential), max_results);
    let reply = ReplyResources { max_inline, chunks: ChunkItems::new() };
    Ok(OutgoingCall { message, reduced: ChunkItems::new(), reply, deadline, policy })
}

/// Time limit of the calls that destroy security contexts when a channel is closed.
// RFC 2203 §5.4: a failure to destroy a context needs no action.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that carries the control calls of a [`Security`], for example to create a security context. Records
/// their failures.
pub(super) struct ControlConnection<'a> {
    link: &'a ChannelLink,
    config: &'a ChannelConfig,
    /// The deadline of all control calls. At the end of a connection, it is set by the first call.
    deadline: OnceLock<Option<Instant>>,
    /// The latest failure of a control call because of the connection or the deadline.
    failure: Mutex<Option<CallFailure>>,
}

impl<'a> ControlConnection<'a> {
    fn new(link: &'a ChannelLink, config: &'a ChannelConfig, deadline: Option<Instant>) -> Self {
        Self { link, config, deadline: deadline.into(), failure: Mutex::new(None) }
    }

    /// Creates a connection for the control calls before the end of `link`. All of them together get
    /// [`CLOSE_TIMEOUT`], which begins with the first one.
    pub(super) fn closing(link: &'a ChannelLink, config: &'a ChannelConfig) -> Self {
        Self { link, config, deadline: OnceLock::new(), failure: Mutex::new(None) }
    }

    pub(super) fn link(&self) -> SecurityLink<'_> {
        let info = &self.link.info;
        let link = SecurityLink::new(info.peer_addr, info.local_addr, self.deadline.get().copied().flatten(), self);
        #[cfg(feature = "tls")]
        let link = link.with_tls(info.tls.as_deref());
        link
    }

    /// Returns the failure of the call that had to be secured, if a control call failed because of the connection or
    /// the deadline.
    fn failure(&self) -> Option<CallFailure> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn record(&self, failure: &CallFailure) {
        // The control call was sent, but not the call that has to be secured.
        let failure = match failure {
            CallFailure::Closed { reason, .. } => CallFailure::Closed { reason: reason.clone(), sent: false },
            CallFailure::DeadlineExceeded { .. } => CallFailure::DeadlineExceeded { sent: false },
            _ => return,
        };
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }
}

impl ControlConnection<'_> {
    async fn send(
        &self,
        call: ControlCall,
        unanswered: bool,
    ) -> Result<Result<IncomingReply, CallFailure>, SecurityError> {
        let ControlCall { program, version, credential, seal, arguments, max_results } = call;
        let header = CallHeader { credential, ..CallHeader::new(0, program, version, 0) };
        // RFC 8166 §8.2.2: control messages are not reduced.
        let policy = CallPolicy { protected: true, unanswered, ..CallPolicy::default() };
        let closing = || tokio::time::Instant::now().into_std().checked_add(CLOSE_TIMEOUT);
        let deadline = *self.deadline.get_or_init(closing);
        let mut outgoing = unreduced(self.config, &header, &arguments, max_results, policy, deadline)
            .map_err(|error| SecurityError(format!("cannot encode a call for a security context: {error}")))?;
        if let Some(seal) = seal {
            sign(&mut outgoing, self.link.sealed_xid(), &seal, self.config).await?;
        }
        Ok(self.link.send(outgoing, deadline).await)
    }

    fn failed(&self, failure: &CallFailure) -> SecurityError {
        self.record(failure);
        SecurityError(format!("a call for a security context failed: {}", ErrorChain(failure)))
    }
}

impl ControlPort for ControlConnection<'_> {
    fn call(&self, call: ControlCall) -> SecurityFuture<'_, Result<ControlReply, SecurityError>> {
        Box::pin(async move {
            let reply = self.send(call, false).await?.map_err(|failure| self.failed(&failure))?;
            let mut decoder = call::decoder(&reply, self.config.connection.decode_limits);
            let ReplyHeader { verifier, outcome, .. } = ReplyHeader::decode(&mut decoder)
                .map_err(|error| SecurityError(format!("bad reply to a call for a security context: {error}")))?;
            Ok(ControlReply { verifier, outcome, results: Bytes::copy_from_slice(decoder.rest()) })
        })
    }

    fn post(&self, call: ControlCall) -> SecurityFuture<'_, Result<(), SecurityError>> {
        Box::pin(async move {
            match self.send(call, true).await? {
                Ok(_) | Err(CallFailure::Cancelled { sent: true }) => Ok(()),
                Err(failure) => Err(self.failed(&failure)),
            }
        })
    }
}
