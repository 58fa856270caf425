//! A client that reads the state of a server through the program INTROSPECTION
//! ([`rpcrdma::introspection`](rpcrdma::introspection)).

use std::time::Duration;

use rpcrdma::{
    client::{CallError, CallOptions, Channel},
    introspection::protocol::{
        InspectCall, InspectConnection, InspectCounters, InspectProcedure, InspectProceduresArgs, InspectServer,
        InspectService, InspectTransport, introspection_v1::IntrospectionV1Client,
    },
    rpc::RpcError,
};
use serde_json::{Value, json};

/// Number of entries after which the client stops reading a list of the server.
const MAX_SHOWN: usize = 4096;

/// The state of a server, read with several calls, one after the other.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The state of the server as a whole.
    pub server: InspectServer,
    /// The services with their procedures.
    pub services: Vec<(InspectService, Vec<InspectProcedure>)>,
    /// The open connections. The list ends once it has 4096 connections or more.
    pub connections: Vec<InspectConnection>,
    /// The slowest calls, the slowest first.
    pub slowest: Vec<InspectCall>,
}

/// A client of the program INTROSPECTION.
#[derive(Debug, Clone)]
pub struct Inspector {
    client: IntrospectionV1Client,
    timeout: Duration,
}

impl Inspector {
    /// Creates a client whose calls have the time limit `timeout`.
    #[must_use]
    pub fn new(channel: Channel, timeout: Duration) -> Self {
        Self { client: IntrospectionV1Client::new(channel), timeout }
    }

    fn options(&self) -> CallOptions {
        CallOptions::new().timeout(self.timeout)
    }

    /// Returns the services, in ascending order of program and version. Stops reading the list once it has 4096
    /// services or more.
    ///
    /// # Errors
    /// Returns the error of the first call that fails.
    pub async fn services(&self) -> Result<Vec<InspectService>, CallError> {
        let mut services = Vec::new();
        loop {
            let page = self.client.services_with(services.len() as u32, self.options()).await?;
            let done = page.last || page.services.is_empty();
            services.extend(page.services);
            if done || services.len() >= MAX_SHOWN {
                return Ok(services);
            }
        }
    }

    async fn procedures(&self, service: &InspectService) -> Result<Vec<InspectProcedure>, CallError> {
        let mut procedures = Vec::<InspectProcedure>::new();
        let mut first = Some(0);
        while let Some(number) = first {
            let InspectService { program, version, .. } = *service;
            let args = InspectProceduresArgs { program, version, first: number };
            let page = self.client.procedures_with(&args, self.options()).await?;
            // Numbers ascend, so that the loop ends.
            let last = page.procedures.iter().map(|procedure| procedure.number).max();
            first = last.filter(|&last| !page.last && last >= number).and_then(|last| last.checked_add(1));
            procedures.extend(page.procedures);
            if procedures.len() >= MAX_SHOWN {
                break;
            }
        }
        Ok(procedures)
    }

    async fn connections(&self) -> Result<Vec<InspectConnection>, CallError> {
        let mut connections = Vec::<InspectConnection>::new();
        let mut first = Some(0);
        while let Some(id) = first {
            let page = self.client.connections_with(id, self.options()).await?;
            let last = page.connections.iter().map(|connection| connection.id).max();
            first = last.filter(|&last| !page.last && last >= id).and_then(|last| last.checked_add(1));
            connections.extend(page.connections);
            if connections.len() >= MAX_SHOWN {
                break;
            }
        }
        Ok(connections)
    }

    /// Reads the state of the server with several calls, one after the other.
    ///
    /// # Errors
    /// Returns the error of the first call that fails.
    pub async fn snapshot(&self) -> Result<Snapshot, CallError> {
        let server = self.client.server_with(self.options()).await?;
        let mut services = Vec::new();
        for service in self.services().await? {
            let procedures = self.procedures(&service).await?;
            services.push((service, procedures));
        }
        let connections = self.connections().await?;
        let slowest = self.client.slowest_with(self.options()).await?.calls;
        Ok(Snapshot { server, services, connections, slowest })
    }
}

/// Returns a message for the user that explains why a server could not be inspected.
#[must_use]
pub fn explain(url: &str, error: &CallError) -> String {
    match error {
        CallError::Rpc { source: RpcError::ProgramUnavailable, .. } => {
            format!(
                "the server at {url} cannot be inspected: start it with --introspection, or add ServerBuilder::introspection"
            )
        }
        CallError::Rpc { source: RpcError::Authentication(_), .. } => {
            format!("the server at {url} does not allow this caller to inspect it: {}", super::command::chain(error))
        }
        error => super::command::chain(error),
    }
}

/// Returns the program, the version and the name of a service as a JSON object.
#[must_use]
pub fn service_json(service: &InspectService) -> Value {
    json!({ "program": service.program, "version": service.version, "name": service.name.to_string() })
}

fn counters_json(counters: &InspectCounters) -> Value {
    json!({
        "calls_sent": counters.calls_sent,
        "calls_received": counters.calls_received,
        "replies_sent": counters.replies_sent,
        "replies_received": counters.replies_received,
        "bytes_sent": counters.bytes_sent,
        "bytes_received": counters.bytes_received,
        "rdma_read_bytes": counters.rdma_read_bytes,
        "rdma_write_bytes": counters.rdma_write_bytes,
        "registrations": counters.registrations,
        "credits_granted": counters.credits_granted,
        "calls_queued": counters.calls_queued,
        "exposed_regions": counters.exposed_regions,
        "registered_bytes": counters.registered_bytes,
        "errors_sent": counters.errors_sent,
        "errors_received": counters.errors_received,
        "messages_discarded": counters.messages_discarded,
    })
}

/// Converts nanoseconds to seconds.
#[must_use]
pub fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

impl Snapshot {
    /// Returns the state as JSON. Durations are in seconds, and sizes in bytes.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let server = &self.server;
        let bound = |bound: u64, none: u64| (bound != none).then_some(bound);
        let procedure = |procedure: &InspectProcedure| {
            let binding = |binding: &rpcrdma::introspection::protocol::InspectBinding| {
                json!({
                    "max_inline": bound(binding.max_inline, u64::MAX),
                    "max_eligible": bound(binding.max_eligible.into(), u32::MAX.into()),
                })
            };
            json!({
                "number": procedure.number,
                "name": procedure.name.to_string(),
                "idempotent": procedure.idempotent,
                "arguments": binding(&procedure.arguments),
                "results": binding(&procedure.results),
                "calls": procedure.calls,
                "failed": procedure.failed,
                "active": procedure.active,
                "total_time": seconds(procedure.total_time),
                "max_time": seconds(procedure.max_time),
            })
        };
        let services = self.services.iter().map(|(service, procedures)| {
            let mut value = service_json(service);
            value["procedures"] = procedures.iter().map(procedure).collect();
            value
        });
        let connections = self.connections.iter().map(|connection| {
            json!({
                "id": connection.id,
                "peer": connection.peer.to_string(),
                "local": connection.local.to_string(),
                "transport": if connection.transport == InspectTransport::InspectTcp { "tcp" } else { "rdma" },
                "rpcrdma_version": (connection.version != 0).then_some(connection.version),
                "age": seconds(connection.age),
                "counters": counters_json(&connection.counters),
            })
        });
        let slowest = self.slowest.iter().map(|call| {
            json!({
                "program": call.program,
                "version": call.version,
                "procedure": call.procedure,
                "name": call.name.to_string(),
                "peer": call.peer.to_string(),
                "xid": call.xid,
                "duration": seconds(call.duration),
                "ago": seconds(call.ago),
                "failed": call.failed,
            })
        });
        json!({
            "implementation": server.implementation.to_string(),
            "uptime": seconds(server.uptime),
            "draining": server.draining,
            "credits": server.credits,
            "accepted": server.accepted,
            "open": server.open,
            "setup_failed": server.setup_failed,
            "closed": server.closed,
            "memory": { "held": server.memory_held, "limit": server.memory_limit, "waiting": server.memory_waiting },
            "pool": { "buffers": server.pool_buffers, "kept": server.pool_kept },
            "counters": counters_json(&server.counters),
            "services": services.collect::<Vec<_>>(),
            "connections": connections.collect::<Vec<_>>(),
            "slowest": slowest.collect::<Vec<_>>(),
        })
    }
}
