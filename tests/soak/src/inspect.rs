//! The resources that a server reports: by the program INTROSPECTION (feature `introspection`), or in the lines that
//! the counters server prints.

use std::sync::Arc;

use crate::{
    samples::{Resource, in_report},
    server::{Server, Service},
};

/// A connection that asks a server for its resources, without the server's proxy.
#[derive(Debug)]
pub(crate) struct Inspected {
    #[cfg(feature = "introspection")]
    client: Option<rpcrdma_examples::inspect::Inspector>,
}

impl Inspected {
    /// Prepares to ask a server for its resources. The server must not be one that is killed and restarted, because its
    /// URL would change.
    pub(crate) async fn new(server: &Arc<Server>) -> Self {
        #[cfg(feature = "introspection")]
        {
            use std::time::Duration;
            let client = async {
                if server.service == Service::Counters {
                    return None;
                }
                let url = server.process().await.url(0).ok()?.to_string();
                let channel = rpcrdma::Channel::builder().connect_lazy(&url).ok()?;
                Some(rpcrdma_examples::inspect::Inspector::new(channel, Duration::from_millis(500)))
            };
            Self { client: client.await }
        }
        #[cfg(not(feature = "introspection"))]
        {
            let _ = server;
            Self {}
        }
    }

    /// Returns the resources that the server reports now. Returns an empty list if the server does not report them in
    /// time, or cannot be asked without the feature `introspection`.
    pub(crate) async fn resources(&self, server: &Server) -> Vec<(Resource, f64)> {
        if server.service == Service::Counters {
            let said = server.process().await.last_line("held: ");
            return said.as_deref().map_or_else(Vec::new, in_report);
        }
        #[cfg(feature = "introspection")]
        if let Some(client) = &self.client
            && let Ok(now) = client.snapshot().await
        {
            let now = now.server;
            return vec![
                (Resource::Regions, f64::from(now.counters.exposed_regions)),
                (Resource::Connections, now.open as f64),
                (Resource::Buffers, now.pool_buffers as f64),
                (Resource::Kept, now.pool_kept as f64 / crate::samples::MIB),
            ];
        }
        Vec::new()
    }
}
