//! The registry of services, and the routing of a call to its service.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    task::Context,
};

use super::{
    call::InboundCall, context::ServedConnection, hooks::HookedService, reply, running::StartedHandler,
    service::Service,
};
use crate::{
    ErrorChain,
    driver::ReplyCommand,
    engine::{EngineConfig, IncomingCall},
    metrics::{ServerCall, ServiceMetrics},
    rpc::{AuthFlavor, CallHeader, CallHeaderError, OpaqueAuth, RpcError},
    security::{AuthenticatedCaller, Authentication, Authenticator, ReceivedCall, ReplySecurity},
    trace::{self, TraceJoin},
    xdr::{Decoder, padded_len},
};

/// The local services, and the authenticator of their callers.
pub(crate) struct ServiceRegistry {
    /// The services, in ascending order of program and version.
    services: Vec<RegisteredService>,
    authenticator: Arc<dyn Authenticator>,
    trace: Option<TraceJoin>,
    /// The last AUTH_SYS credential. Most calls of a connection have the same credential, and share its memory.
    last_credential: Mutex<OpaqueAuth>,
}

/// A service with its hooks, and the metrics of its procedures.
struct RegisteredService {
    program: u32,
    version: u32,
    hooked: HookedService,
    metrics: ServiceMetrics,
}

impl Deref for RegisteredService {
    type Target = dyn Service;

    fn deref(&self) -> &(dyn Service + 'static) {
        &*self.hooked.service
    }
}

impl ServiceRegistry {
    /// Creates a registry. If two services have the same program and version, the error is that program and that
    /// version.
    pub(crate) fn new(
        services: impl IntoIterator<Item: Into<HookedService>>,
        authenticator: Arc<dyn Authenticator>,
        trace: Option<TraceJoin>,
    ) -> Result<Self, (u32, u32)> {
        let register = |hooked: HookedService| {
            let metrics = ServiceMetrics::new(|number| procedure_name(&*hooked.service, number));
            let (program, version) = (hooked.service.program(), hooked.service.version());
            RegisteredService { program, version, hooked, metrics }
        };
        let mut services: Vec<_> = services.into_iter().map(Into::into).map(register).collect();
        services.sort_by_key(|service| (service.program, service.version));
        let twice = services.windows(2).find_map(|pair| match pair {
            [a, b] if (a.program, a.version) == (b.program, b.version) => Some((a.program, a.version)),
            _ => None,
        });
        let last_credential = Mutex::new(OpaqueAuth::none());
        twice.map_or(Ok(Self { services, authenticator, trace, last_credential }), Err)
    }

    /// Returns a registry for one connection, without a last credential. It contains the copy of each service that
    /// [`Service::for_connection`] returns, or the service itself if there is no copy.
    pub(crate) fn for_connection(&self) -> Self {
        let services = self.services.iter().map(|service| RegisteredService {
            hooked: service.hooked.for_connection(),
            metrics: service.metrics.clone(),
            ..*service
        });
        Self {
            services: services.collect(),
            authenticator: Arc::clone(&self.authenticator),
            trace: self.trace.clone(),
            last_credential: Mutex::new(OpaqueAuth::none()),
        }
    }

    /// Raises the maximum number of chunks in inbound calls as far as the services need.
    pub(crate) fn provide(&self, config: &mut EngineConfig) {
        config.max_chunks = self.services.iter().map(|service| service.max_chunks()).fold(config.max_chunks, u32::max);
    }

    /// Returns the service for a program and version, or the error to reply with.
    fn find(&self, program: u32, version: u32) -> Result<&RegisteredService, RpcError> {
        let mut versions = self.services.iter().filter(|service| service.program == program).peekable();
        let low = versions.peek().ok_or(RpcError::ProgramUnavailable)?.version;
        let mut high = low;
        for service in versions {
            if service.version == version {
                return Ok(service);
            }
            high = service.version;
        }
        // RFC 5531 §9: PROG_MISMATCH carries the lowest and the highest supported version.
        Err(RpcError::ProgramMismatch { low, high })
    }

    /// Returns the outcome of a NULL call of a program and a version.
    #[cfg(feature = "tls")]
    pub(crate) fn null(&self, program: u32, version: u32) -> Result<(), RpcError> {
        self.find(program, version).map(|_| ())
    }

    /// Decodes the header of a call. A credential that equals the last AUTH_SYS credential shares its memory.
    #[inline]
    fn decode_header(&self, decoder: &mut Decoder<'_>) -> Result<CallHeader, CallHeaderError> {
        let has_credential = !CallHeader::has_no_credential(decoder.rest());
        let mut last = has_credential.then(|| self.last_credential.lock().unwrap_or_else(PoisonError::into_inner));
        let header = CallHeader::decode_knowing(decoder, last.as_deref())?;
        // Credentials of RPCSEC_GSS differ from call to call.
        if let Some(last) = &mut last
            && header.credential.is(AuthFlavor::AuthSys)
            && header.credential != **last
        {
            last.clone_from(&header.credential);
        }
        Ok(header)
    }

    /// Decodes the header of a call, and passes the call to the authenticator. An error is the reply to a header that
    /// is malformed or has an unsupported RPC version.
    // An error is rare and moved once. Boxing it would require an allocation.
    #[allow(clippy::result_large_err)]
    #[inline(always)]
    pub(super) fn authenticate(
        &self,
        incoming: &IncomingCall,
        connection: &ServedConnection,
    ) -> Result<(CallHead, Authentication), ReplyCommand> {
        let message = incoming.payload.as_slice();
        let mut decoder = Decoder::new(message).with_limits(connection.limits());
        let header = match self.decode_header(&mut decoder) {
            Ok(header) => header,
            Err(fault) => {
                tracing::info!(target: "rpcrdma::call", peer = %connection.info.peer_addr, fault = %ErrorChain(&fault), "bad RPC header");
                return Err(match fault.reply() {
                    Some(reply) => reply::encode_header(&reply, connection.pool(), &[]).command,
                    // RFC 8166 §4.5.2: a message that is not an RPC call is reported as a parsing error.
                    None => ReplyCommand::ChunkError,
                });
            }
        };
        let arguments_at = decoder.consumed();
        // The verifier, which has two words in front of its body, ends where the arguments begin.
        let signed = arguments_at.saturating_sub(8 + padded_len(header.verifier.body.len()));
        let mut received = ReceivedCall::new(&header, connection.info.peer_addr);
        received.signed = message.get(..signed).unwrap_or_default();
        received.arguments = message.get(arguments_at..).unwrap_or_default();
        received.is_reduced = !incoming.reads().is_empty();
        received.local_addr = connection.info.local_addr;
        #[cfg(feature = "tls")]
        {
            received.tls = connection.info.tls.as_deref();
        }
        let authentication = match misplaced_probe(&header) {
            Some(refusal) => refusal,
            None => self.authenticator.authenticate(&received),
        };
        let CallHeader { xid, program, version, procedure, .. } = header;
        Ok((CallHead { xid, program, version, procedure, arguments_at }, authentication))
    }

    /// Starts the handler of an accepted call, and returns it with the metrics of the call. An error is the reply to a
    /// call that has no handler. Polls the handler for the first time, with `cx`.
    // As for `authenticate`.
    #[allow(clippy::result_large_err)]
    #[inline(always)]
    pub(super) fn route(
        &self,
        incoming: IncomingCall,
        head: CallHead,
        caller: AuthenticatedCaller,
        connection: &Arc<ServedConnection>,
        cx: &mut Context<'_>,
    ) -> Result<(StartedHandler, ServerCall), ReplyCommand> {
        match self.find(head.program, head.version) {
            Ok(service) => {
                let peer = connection.info.peer_addr;
                let span = trace::taken(head.program, head.version, head.procedure, peer);
                let name = || procedure_name(&**service, head.procedure);
                // Exporters ignore names that are recorded after the span was entered.
                if !span.is_disabled()
                    && let Some(name) = name()
                {
                    trace::named(&span, name);
                }
                if let Some(trace) = &self.trace {
                    trace.join(&span, incoming.payload.as_slice());
                }
                let metrics = connection.back.metrics.server(&service.metrics, head.procedure, &incoming, name);
                let span = (!span.is_disabled()).then(|| Arc::new(span));
                let call =
                    InboundCall::new(incoming, head.procedure, head.arguments_at, caller, Arc::clone(connection), span);
                Ok((StartedHandler::start(&service.hooked, call, connection, cx), metrics))
            }
            Err(error) => Err(head.refuse(error, caller.security.as_deref(), connection)),
        }
    }
}

/// Returns the name of a procedure, or `None` if the service does not know it.
fn procedure_name(service: &dyn Service, number: u32) -> Option<&'static str> {
    match service.procedure(number) {
        Some(info) => Some(info.name),
        // RFC 5531 §12.1: every program has this procedure.
        None => (number == 0).then_some("NULL"),
    }
}

/// Returns the refusal of a call with the flavor AUTH_TLS. Only the first call of a connection may have this flavor,
/// and such a call is not dispatched (RFC 9289 §4.1).
#[cfg(feature = "tls")]
fn misplaced_probe(header: &CallHeader) -> Option<Authentication> {
    let is_probe = header.credential.flavor == crate::tls::AUTH_TLS;
    is_probe.then(|| Authentication::Rejected(crate::rpc::AuthStat::AuthBadcred.into()))
}

#[cfg(not(feature = "tls"))]
fn misplaced_probe(_header: &CallHeader) -> Option<Authentication> {
    None
}

/// Fields of the header of a call that was passed to the authenticator, or refused before authentication.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallHead {
    pub(super) xid: u32,
    program: u32,
    version: u32,
    procedure: u32,
    /// Position of the arguments in the payload, in bytes: the length of the RPC header, or 0 after their protection
    /// was removed.
    pub(super) arguments_at: usize,
}

impl CallHead {
    /// Returns the reply that refuses the call.
    pub(super) fn refuse(
        self,
        error: RpcError,
        security: Option<&dyn ReplySecurity>,
        connection: &ServedConnection,
    ) -> ReplyCommand {
        tracing::info!(
            target: "rpcrdma::call", peer = %connection.info.peer_addr, xid = self.xid, program = self.program,
            version = self.version, procedure = self.procedure, %error, "call refused"
        );
        connection.back.metrics.refused(error.status());
        reply::refusal(self.xid, error, security, connection.pool()).command
    }
}

impl fmt::Debug for ServiceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|service| service.name())).finish()
    }
}
