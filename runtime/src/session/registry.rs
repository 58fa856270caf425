//! The registry of services, and the routing of a call to its service.

use std::{fmt, sync::Arc};

use super::{
    call::{self, InboundCall, ServedConnection},
    service::Service,
};
use crate::{
    chain::ErrorChain,
    driver::ReplyCommand,
    engine::{EngineConfig, IncomingCall},
    rpc::{Authenticator, CallHeader, OpaqueAuth, ReplyHeader, RpcError},
    trace,
    xdr::Decoder,
};

/// The local services, and the authenticator of their callers.
pub(crate) struct ServiceRegistry {
    /// The services, in ascending order of program and version.
    services: Vec<Arc<dyn Service>>,
    authenticator: Arc<dyn Authenticator>,
}

impl ServiceRegistry {
    /// Creates a registry. If two services have the same program and version, the error is that pair.
    pub(crate) fn new(
        mut services: Vec<Arc<dyn Service>>,
        authenticator: Arc<dyn Authenticator>,
    ) -> Result<Self, (u32, u32)> {
        services.sort_by_key(|service| (service.program(), service.version()));
        let twice = services.windows(2).find_map(|pair| match pair {
            [a, b] if (a.program(), a.version()) == (b.program(), b.version()) => Some((a.program(), a.version())),
            _ => None,
        });
        twice.map_or(Ok(Self { services, authenticator }), Err)
    }

    /// Raises the limits on inbound calls as far as the services need.
    pub(crate) fn provide(&self, config: &mut EngineConfig) {
        config.max_chunks = self.services.iter().map(|service| service.max_chunks()).fold(config.max_chunks, u32::max);
    }

    /// Returns the service for a program and version, or the error to reply with.
    fn find(&self, program: u32, version: u32) -> Result<&Arc<dyn Service>, RpcError> {
        let mut versions = self.services.iter().filter(|service| service.program() == program).peekable();
        let low = versions.peek().ok_or(RpcError::ProgramUnavailable)?.version();
        let mut high = low;
        for service in versions {
            if service.version() == version {
                return Ok(service);
            }
            high = service.version();
        }
        // RFC 5531 §9: PROG_MISMATCH carries the lowest and the highest supported version.
        Err(RpcError::ProgramMismatch { low, high })
    }

    /// Passes a call to `serve` together with its service, or returns the reply that refuses the call.
    // An error is rare and moved once. Boxing it would require an allocation.
    #[allow(clippy::result_large_err)]
    pub(super) fn route<T>(
        &self,
        incoming: IncomingCall,
        connection: &Arc<ServedConnection>,
        serve: impl FnOnce(&Arc<dyn Service>, InboundCall) -> Result<T, ReplyCommand>,
    ) -> Result<T, ReplyCommand> {
        let mut decoder = Decoder::new(incoming.payload.as_slice()).with_limits(connection.limits());
        let header = match CallHeader::decode(&mut decoder) {
            Ok(header) => header,
            Err(fault) => {
                tracing::info!(target: "rpcrdma::call", peer = %connection.info.peer_addr, fault = %ErrorChain(&fault), "bad RPC header");
                return Err(match fault.reply() {
                    Some(reply) => call::refusal(&reply, connection.pool()),
                    // RFC 8166 §4.5.2: a message that is not an RPC call is reported as a parsing error.
                    None => ReplyCommand::ChunkError,
                });
            }
        };
        let arguments_at = decoder.consumed();
        let refuse = |error: RpcError, verifier: OpaqueAuth| {
            tracing::info!(
                target: "rpcrdma::call", peer = %connection.info.peer_addr, xid = header.xid, program = header.program,
                version = header.version, procedure = header.procedure, %error, "call refused"
            );
            let reply = ReplyHeader::failure(header.xid, error).with_verifier(verifier);
            Err(call::refusal(&reply, connection.pool()))
        };
        let signed = CallHeader::split_verifier(incoming.payload.as_slice()).map_or(0, |(len, _)| len);
        let signed = incoming.payload.as_slice().get(..signed).unwrap_or_default();
        let authenticated = match self.authenticator.authenticate(&header, signed) {
            Ok(authenticated) => authenticated,
            Err(failure) => return refuse(failure.into(), OpaqueAuth::none()),
        };
        match self.find(header.program, header.version) {
            Ok(service) => {
                let connection = Arc::clone(connection);
                let protection = self.authenticator.protection(&header);
                let peer = connection.info.peer_addr;
                let span = trace::taken(header.program, header.version, header.procedure, peer);
                let (procedure, at) = (header.procedure, arguments_at);
                let call = InboundCall::new(incoming, procedure, at, authenticated, protection, connection, span);
                serve(service, call)
            }
            // RFC 2203 §5.3.3.2: the reply is an accepted one, so it carries the server's verifier.
            Err(error) => refuse(error, authenticated.verifier),
        }
    }
}

impl fmt::Debug for ServiceRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.services.iter().map(|service| service.name())).finish()
    }
}
