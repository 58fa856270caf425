//! Discovery of servers by rpcbind.

use std::{collections::BTreeSet, time::Duration};

use rpcrdma::{client::discover::Servers, transport::Scheme};

use super::{Netid, Rpcbind};

/// A service whose servers are registered with rpcbind on known hosts.
///
/// A host that does not answer keeps its server in the list, because a load balancer notices by itself that the server is down. A
/// host whose rpcbind does not list the program any more has no server.
///
/// ```no_run
/// use rpcrdma::transport::Scheme;
/// use rpcrdma_specs::rpcbind::RpcbindService;
///
/// let servers = RpcbindService::new(["one.example", "two.example"], 0x2000_0001, 1, Scheme::Iwarp).servers();
/// # drop(servers);
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct RpcbindService {
    hosts: Vec<(String, u16)>,
    program: u32,
    version: u32,
    scheme: Scheme,
    interval: Duration,
}

impl RpcbindService {
    /// Creates the service of one version of a program on `hosts`, over the transport of `scheme`.
    pub fn new<H: Into<String>>(
        hosts: impl IntoIterator<Item = H>,
        program: u32,
        version: u32,
        scheme: Scheme,
    ) -> Self {
        let hosts = hosts.into_iter().map(|host| (host.into(), super::RPCB_PORT as u16)).collect();
        Self { hosts, program, version, scheme, interval: Duration::from_secs(10) }
    }

    /// Sets the TCP port of rpcbind on all hosts. Default 111.
    pub fn port(mut self, port: u16) -> Self {
        self.hosts.iter_mut().for_each(|host| host.1 = port);
        self
    }

    /// Sets the time between two queries of a host. Default 10 s.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Queries the hosts, and again as long as the list is used. The list is unknown until each host has answered or failed once.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime.
    pub fn servers(self) -> Servers {
        let (sender, servers) = Servers::channel();
        tokio::spawn(async move {
            let mut known = vec![BTreeSet::new(); self.hosts.len()];
            loop {
                for ((host, port), known) in self.hosts.iter().zip(&mut known) {
                    if let Some(found) = self.query(host, *port).await {
                        *known = found;
                    }
                }
                sender.set(known.iter().flatten().cloned());
                tokio::select! {
                    () = sender.closed() => return,
                    () = tokio::time::sleep(self.interval) => {}
                }
            }
        });
        servers
    }

    /// Returns the URLs of the server on a host, or `None` if rpcbind does not answer.
    async fn query(&self, host: &str, port: u16) -> Option<BTreeSet<String>> {
        let rpcbind = Rpcbind::connect_to_port(host, port).await.ok()?;
        let netids = match self.scheme {
            Scheme::Tcp => [Netid::Tcp, Netid::Tcp6],
            _ => [Netid::Rdma, Netid::Rdma6],
        };
        let mut urls = BTreeSet::new();
        for netid in netids {
            // One address is enough: both lead to the same server.
            if let Some(addr) = rpcbind.lookup(self.program, self.version, netid).await.ok()?
                && urls.is_empty()
            {
                urls.insert(format!("{}://{addr}", self.scheme.as_str()));
            }
        }
        Some(urls)
    }
}
