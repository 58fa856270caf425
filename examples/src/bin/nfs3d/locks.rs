//! The lock services, NLM and NSM, which `--locks` enables.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rpcrdma::{
    Channel,
    server::{Server, ServerBuilder, ServerHandle},
    transport::{Scheme, Url},
};
use rpcrdma_examples::{
    command::{RegisterArgs, Registered},
    nfs3d::{
        Export,
        locking::{LockConfig, LockManager, NlmService, NsmService},
    },
};
use rpcrdma_specs::{
    nlm4::nlm4_vers::{self, Nlm4VersClient, Nlm4VersServer},
    nsm1::sm_vers::{self, SmVersClient, SmVersServer},
    rpcbind::{Netid, Rpcbind},
};

/// Maximum number of connections to the lock services. A client host normally has one.
const MAX_CONNECTIONS: usize = 2048;
/// Maximum number of connections of one client host.
const MAX_CONNECTIONS_PER_HOST: usize = 16;
/// Time limit for connecting to a service on this host, and for a call to it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The lock services, bound to their addresses.
pub(crate) struct Locks {
    manager: LockManager,
    server: Server,
    udp: Pin<Box<dyn Future<Output = ()> + Send>>,
    udp_url: String,
}

impl Locks {
    /// Starts the lock manager. Binds NLM and NSM to `url`, and NSM over UDP to the same IP address and port. If the
    /// port of `url` is 0, TCP and UDP each get a free port.
    ///
    /// Fails for example if `url` is not a TCP URL, or if rpcbind is to be used and this host has other lock services.
    pub(crate) async fn bind(
        export: &Arc<Export>,
        state: &std::path::Path,
        url: &str,
        grace: Duration,
        register: &RegisterArgs,
        settings: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> anyhow::Result<Self> {
        let parsed: Url = url.parse().context("--locks")?;
        // RFC 8267 §5.1
        if parsed.scheme() != Scheme::TCP {
            bail!("--locks {url}: NLM and NSM are served over TCP only; use tcp://ADDRESS:PORT");
        }
        if register.rpcbind {
            check_for_other_services().await?;
        }
        let mut config = LockConfig::default();
        config.grace = grace;
        let manager = LockManager::start(Arc::clone(export), state, config);
        let manager = manager.with_context(|| format!("cannot store the hosts with locks in {}", state.display()))?;
        let nsm = NsmService::new(manager.clone());
        let server = Server::builder()
            .service(Nlm4VersServer::new(NlmService::new(manager.clone())))
            .service(SmVersServer::new(nsm.clone()))
            .max_connections(MAX_CONNECTIONS)
            .max_connections_per_host(MAX_CONNECTIONS_PER_HOST);
        let server = settings(server).listen(url).bind().await?;
        let mut addr = server.local_addrs()[0];
        if parsed.port() == 0 {
            addr.set_port(0);
        }
        let (addr, udp) =
            nsm.bind_udp(addr).await.with_context(|| format!("--locks: cannot bind UDP address {addr}"))?;
        Ok(Self { manager, server, udp: Box::pin(udp), udp_url: format!("udp://{addr}") })
    }

    /// Returns the URLs of NLM and NSM, and the URL of NSM over UDP.
    pub(crate) fn urls(&self) -> (&[String], &str) {
        (self.server.urls(), &self.udp_url)
    }

    pub(crate) fn handle(&self) -> ServerHandle {
        self.server.handle()
    }

    pub(crate) fn manager(&self) -> LockManager {
        self.manager.clone()
    }

    /// Registers NLM and NSM with rpcbind, where clients look for them. Without `--rpcbind`, only logs a warning.
    pub(crate) async fn register(&self, args: &RegisterArgs) -> anyhow::Result<[Registered; 2]> {
        if !args.rpcbind {
            tracing::warn!(
                "clients find the services for locks through rpcbind: --locks needs --rpcbind for Linux's client"
            );
        }
        let handle = self.server.handle();
        let nlm = [(nlm4_vers::PROGRAM, nlm4_vers::VERSION)];
        let nsm = [(sm_vers::PROGRAM, sm_vers::VERSION)];
        let nsm_urls: Vec<_> = self.server.urls().iter().cloned().chain([self.udp_url.clone()]).collect();
        Ok([
            args.register_with_rpcbind(&nlm, self.server.urls(), &handle).await?,
            args.register_with_rpcbind(&nsm, &nsm_urls, &handle).await?,
        ])
    }

    /// Serves until the server has shut down, and then stops the lock manager.
    pub(crate) async fn serve(self) {
        tokio::select! {
            () = self.server.serve() => {}
            () = self.udp => {}
        }
        self.manager.stop().await;
    }
}

/// Fails if this host has another lock manager or status monitor, which clients would call instead. Ignores
/// registrations of services that do not answer.
async fn check_for_other_services() -> anyhow::Result<()> {
    let Ok(rpcbind) = Rpcbind::local().await else { return Ok(()) };
    let here: [(Netid, IpAddr); 2] =
        [(Netid::Tcp, Ipv4Addr::LOCALHOST.into()), (Netid::Tcp6, Ipv6Addr::LOCALHOST.into())];
    for (netid, here) in here {
        if let Ok(Some(addr)) = rpcbind.lookup(nlm4_vers::PROGRAM, nlm4_vers::VERSION, netid).await
            && let Some(channel) = connect(addr, here).await
            && Nlm4VersClient::new(channel).nlmproc4_null().await.is_ok()
        {
            bail!(
                "--locks: port {} of this host has another lock manager (NLM): the kernel starts one for its NFS server and for \
                 mounts of NFS 3; stop that server, mount with `nolock`, or leave out --locks",
                addr.port()
            );
        }
        if let Ok(Some(addr)) = rpcbind.lookup(sm_vers::PROGRAM, sm_vers::VERSION, netid).await
            && let Some(channel) = connect(addr, here).await
            && SmVersClient::new(channel).sm_null().await.is_ok()
        {
            bail!(
                "--locks: port {} of this host has another status monitor (NSM), which is usually rpc.statd: stop it \
                 (systemctl stop rpc-statd), or leave out --locks",
                addr.port()
            );
        }
    }
    Ok(())
}

/// Connects to a service on this host, at `here` if it is registered for all addresses.
async fn connect(mut addr: SocketAddr, here: IpAddr) -> Option<Channel> {
    if addr.ip().is_unspecified() {
        addr.set_ip(here);
    }
    Channel::builder().connect_timeout(TIMEOUT).call_timeout(TIMEOUT).connect(&format!("tcp://{addr}")).await.ok()
}
