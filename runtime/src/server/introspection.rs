//! The program INTROSPECTION of a server.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, Weak, atomic::Ordering},
    time::{Duration, Instant},
};

use super::handle::{ServerHandle, ServerShared};
use crate::{
    engine::ConnectionCounters,
    introspection::{
        ObservedCalls, SlowCall,
        protocol::{
            INSPECT_NAME, INSPECT_PAGE, InspectBinding, InspectCall, InspectCalls, InspectConnection,
            InspectConnections, InspectCounters, InspectProcedure, InspectProcedures, InspectProceduresArgs,
            InspectServer, InspectService, InspectServices, InspectTransport,
            introspection_v1::{IntrospectionV1, IntrospectionV1Server},
        },
    },
    rpc::AuthStat,
    service::MessageBounds,
    session::{Context, HandlerError, Service},
    transport::Transport,
    xdr::XdrString,
};

/// Maximum number of entries in one reply.
const PAGE: usize = INSPECT_PAGE as usize;

/// The function that decides which callers may look into the server.
pub(super) type IntrospectionFilter = Box<dyn Fn(&Context) -> bool + Send + Sync>;

/// The service of the program INTROSPECTION.
pub(super) struct Introspection {
    allows: IntrospectionFilter,
    server: OnceLock<Observed>,
}

/// The state of a bound server that the service reports.
struct Observed {
    /// The state of the server. Weak, because the server owns the service.
    shared: Weak<ServerShared>,
    /// The calls of each service, in ascending order of program and version.
    services: Vec<Arc<ObservedCalls>>,
    started: Instant,
}

impl Introspection {
    /// Creates the service. Calls fail until it is [attached](Self::attach) to a server.
    pub(super) fn new(allows: IntrospectionFilter) -> Arc<Self> {
        Arc::new(Self { allows, server: OnceLock::new() })
    }

    /// Returns the service that the server registers.
    pub(super) fn service(this: &Arc<Self>) -> Arc<dyn Service> {
        Arc::new(IntrospectionV1Server::from_arc(Arc::clone(this)))
    }

    /// Connects the service to its server after the server was bound.
    pub(super) fn attach(&self, shared: &Arc<ServerShared>, mut services: Vec<Arc<ObservedCalls>>) {
        services.sort_by_key(|service| (service.program, service.version));
        let observed = Observed { shared: Arc::downgrade(shared), services, started: Instant::now() };
        // Called once.
        let _ = self.server.set(observed);
    }

    /// Returns the server. Fails with AUTH_TOOWEAK if the caller may not look into the server, and with a system error
    /// before the service is attached and after the server has ended.
    fn inspect(&self, cx: &Context) -> Result<(&Observed, ServerHandle), HandlerError> {
        if !(self.allows)(cx) {
            return Err(HandlerError::Rejected(AuthStat::AuthTooweak.into()));
        }
        let observed = self.server.get();
        let shared = observed.and_then(|observed| Some((observed, observed.shared.upgrade()?)));
        let (observed, shared) = shared.ok_or_else(|| HandlerError::system("the server has ended"))?;
        Ok((observed, ServerHandle(shared)))
    }
}

impl IntrospectionV1 for Introspection {
    async fn null(&self, cx: &Context) -> Result<(), HandlerError> {
        self.inspect(cx).map(|_| ())
    }

    async fn server(&self, cx: &Context) -> Result<InspectServer, HandlerError> {
        let (observed, handle) = self.inspect(cx)?;
        let (stats, memory) = (handle.stats(), handle.memory());
        let engine = &handle.0.callbacks.connection.engine;
        let pool = engine.pool.stats();
        Ok(InspectServer {
            implementation: concat!("rpcrdma ", env!("CARGO_PKG_VERSION")).into(),
            uptime: nanos(observed.started.elapsed()),
            draining: !handle.is_ready(),
            credits: engine.credits,
            accepted: stats.accepted,
            open: stats.open,
            setup_failed: stats.setup_failed,
            closed: stats.ended.total(),
            memory_held: memory.held,
            memory_limit: memory.limit,
            memory_waiting: u32::try_from(memory.waiting).unwrap_or(u32::MAX),
            pool_buffers: pool.outstanding as u64,
            pool_kept: pool.kept as u64,
            counters: counters(&stats.counters),
        })
    }

    async fn services(&self, cx: &Context, skip: u32) -> Result<InspectServices, HandlerError> {
        let (observed, _) = self.inspect(cx)?;
        let rest = observed.services.get(skip as usize..).unwrap_or_default();
        let service = |service: &Arc<ObservedCalls>| InspectService {
            program: service.program,
            version: service.version,
            name: name(service.name),
        };
        Ok(InspectServices { services: rest.iter().take(PAGE).map(service).collect(), last: rest.len() <= PAGE })
    }

    async fn procedures(&self, cx: &Context, args: InspectProceduresArgs) -> Result<InspectProcedures, HandlerError> {
        let (observed, _) = self.inspect(cx)?;
        let InspectProceduresArgs { program, version, first } = args;
        let service = observed.services.iter().find(|service| (service.program, service.version) == (program, version));
        let procedures = service.map_or(&[][..], |service| &service.procedures);
        let rest = procedures.get(procedures.partition_point(|procedure| procedure.number < first)..);
        let rest = rest.unwrap_or_default();
        let page = rest.iter().take(PAGE).map(|procedure| InspectProcedure {
            number: procedure.number,
            name: name(procedure.info.name),
            idempotent: procedure.info.idempotent,
            arguments: binding(procedure.info.arguments),
            results: binding(procedure.info.results),
            calls: procedure.calls.load(Ordering::Relaxed),
            failed: procedure.failed.load(Ordering::Relaxed),
            total_time: procedure.total_time.load(Ordering::Relaxed),
            max_time: procedure.max_time.load(Ordering::Relaxed),
            active: procedure.active.load(Ordering::Relaxed),
        });
        Ok(InspectProcedures { procedures: page.collect(), last: rest.len() <= PAGE })
    }

    async fn connections(&self, cx: &Context, first: u64) -> Result<InspectConnections, HandlerError> {
        let (_, handle) = self.inspect(cx)?;
        let mut rest = handle.connections();
        rest.retain(|connection| connection.id >= first);
        rest.sort_unstable_by_key(|connection| connection.id);
        let page = rest.iter().take(PAGE).map(|connection| InspectConnection {
            id: connection.id,
            peer: address(connection.peer_addr),
            local: address(connection.local_addr),
            transport: match connection.transport {
                Transport::Rdma => InspectTransport::InspectRdma,
                Transport::Tcp => InspectTransport::InspectTcp,
            },
            version: connection.version.unwrap_or(0),
            age: nanos(connection.age),
            counters: counters(&connection.counters),
        });
        Ok(InspectConnections { connections: page.collect(), last: rest.len() <= PAGE })
    }

    async fn slowest(&self, cx: &Context) -> Result<InspectCalls, HandlerError> {
        let (observed, _) = self.inspect(cx)?;
        let calls = observed.services.first().map(|service| service.slowest()).unwrap_or_default();
        let call = |call: SlowCall| InspectCall {
            program: call.program,
            version: call.version,
            procedure: call.procedure,
            name: name(call.name),
            peer: address(call.peer),
            xid: call.xid,
            duration: nanos(call.duration),
            ago: nanos(call.ended.elapsed()),
            failed: call.failed,
        };
        Ok(InspectCalls { calls: calls.into_iter().take(PAGE).map(call).collect() })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a name, truncated to [`INSPECT_NAME`] bytes. Names in XDR have only ASCII characters.
fn name(name: &str) -> XdrString {
    name.get(..INSPECT_NAME as usize).unwrap_or(name).into()
}

fn address(addr: SocketAddr) -> XdrString {
    addr.to_string().into()
}

fn binding(bounds: MessageBounds) -> InspectBinding {
    InspectBinding {
        max_inline: bounds.max_inline.unwrap_or(u64::MAX),
        max_eligible: bounds.max_eligible.unwrap_or(u32::MAX),
    }
}

fn counters(counters: &ConnectionCounters) -> InspectCounters {
    InspectCounters {
        calls_sent: counters.calls_sent,
        calls_received: counters.calls_received,
        replies_sent: counters.replies_sent,
        replies_received: counters.replies_received,
        bytes_sent: counters.bytes_sent,
        bytes_received: counters.bytes_received,
        rdma_read_bytes: counters.rdma_read_bytes,
        rdma_write_bytes: counters.rdma_write_bytes,
        registrations: counters.registrations,
        credits_granted: counters.credits_granted,
        calls_queued: counters.calls_queued,
        exposed_regions: counters.exposed_regions,
        registered_bytes: counters.registered_bytes,
        errors_sent: counters.errors_sent,
        errors_received: counters.errors_received,
        messages_discarded: counters.messages_discarded,
    }
}
