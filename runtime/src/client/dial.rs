//! Setting a client's connection up.

use std::{future::Future, net::SocketAddr, ops::RangeInclusive, pin::Pin, sync::Arc};

use tokio::net::TcpStream;

use super::{error::ConnectError, link::ChannelLink, peers};
use crate::{
    chain::ErrorChain,
    driver::{self, DriverConfig, DriverCore, DriverPort, EngineIo, NoInboundCalls},
    engine::Role,
    provider::{Connector, IoError, SetupError},
    session::{CallHandlers, ChannelConfig, ServedConnection, ServiceRegistry, SetUp},
    transport::{Scheme, Url},
};

pub(super) type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Arc<ChannelLink>, ConnectError>> + Send + 'a>>;

/// Makes connections to one server, whatever the provider.
pub(super) trait Dial: Send + Sync {
    /// Connects; with `pinned`, to a server that is known to have version 1 of RPC-over-RDMA only.
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, pinned: bool) -> Dialing<'a>;

    /// Whether an address means the same to every channel, so that what is known of one server is worth remembering. A provider
    /// of the caller's may have addresses of its own.
    fn has_common_addresses(&self) -> bool;
}

/// By a provider that the caller chose, to one address.
pub(super) struct Dialer<C> {
    pub(super) connector: C,
    pub(super) addr: SocketAddr,
    /// The services that the server may call.
    pub(super) callbacks: Option<Arc<ServiceRegistry>>,
}

impl<C: Connector> Dial for Dialer<C> {
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, pinned: bool) -> Dialing<'a> {
        Box::pin(async move {
            let settings = Settings { config, callbacks: self.callbacks.as_ref() };
            connect(&self.connector, self.addr, settings, pinned)
                .await
                .map_err(|source| ConnectError::Setup { peer: self.addr, source })
        })
    }

    fn has_common_addresses(&self) -> bool {
        false
    }
}

/// By the provider that a URL names. The host is resolved each time: it may have moved.
pub(super) struct UrlDialer {
    pub(super) url: Url,
    /// The services that the server may call.
    pub(super) callbacks: Option<Arc<ServiceRegistry>>,
}

/// The settings of a new connection.
#[derive(Clone, Copy)]
struct Settings<'a> {
    config: &'a Arc<ChannelConfig>,
    callbacks: Option<&'a Arc<ServiceRegistry>>,
}

impl Dial for UrlDialer {
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, pinned: bool) -> Dialing<'a> {
        Box::pin(async move {
            let unresolved = |source: IoError| ConnectError::Resolve { host: self.url.host().to_owned(), source };
            let settings = Settings { config, callbacks: self.callbacks.as_ref() };
            let mut last = None;
            for peer in self.url.resolve().await.map_err(|error| unresolved(error.into()))? {
                let connected = match self.url.scheme() {
                    Scheme::Iwarp => {
                        let connector = crate::transport::iwarp_connector(&self.url);
                        connect(&connector, peer, settings, pinned || peers::has_version_1_only(peer)).await
                    }
                    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
                    Scheme::Rdma => {
                        let connector = crate::transport::rdma_connector(&self.url);
                        connect(&connector, peer, settings, pinned || peers::has_version_1_only(peer)).await
                    }
                    Scheme::Tcp => connect_tcp(peer, settings).await,
                };
                match connected {
                    Ok(link) => return Ok(link),
                    Err(source) => {
                        tracing::debug!(%peer, error = %ErrorChain(&source), "connection attempt failed");
                        last = Some(ConnectError::Setup { peer, source });
                    }
                }
            }
            Err(last.unwrap_or_else(|| unresolved(std::io::ErrorKind::NotFound.into())))
        })
    }

    fn has_common_addresses(&self) -> bool {
        true
    }
}

async fn connect<C: Connector>(
    connector: &C,
    peer: SocketAddr,
    settings: Settings<'_>,
    pinned: bool,
) -> Result<Arc<ChannelLink>, SetupError> {
    let connection = &settings.config.connection;
    let mut versions = connection.engine.versions.clone();
    // RPC-over-RDMA v2 §4.2.3.2: not again with what the server does not have.
    if both_versions(&versions) && pinned {
        versions = 1..=1;
    }
    let negotiates = both_versions(&versions);
    let params = connection.setup_params();
    // The provider keeps to the time as well; this holds where one does not.
    let connected = tokio::time::timeout(connection.setup_timeout, connector.connect(peer, params))
        .await
        .map_err(|_| SetupError::TimedOut(connection.setup_timeout))??;
    let set_up = SetUp::rdma(connection, Role::Client, versions, connected);
    Ok(link(set_up, negotiates, settings))
}

/// RFC 5531 §11: there is nothing to agree on; what answers shows with its first reply.
async fn connect_tcp(peer: SocketAddr, settings: Settings<'_>) -> Result<Arc<ChannelLink>, SetupError> {
    let connection = &settings.config.connection;
    let stream = tokio::time::timeout(connection.setup_timeout, TcpStream::connect(peer))
        .await
        .map_err(|_| SetupError::TimedOut(connection.setup_timeout))??;
    Ok(link(SetUp::tcp(connection, Role::Client, stream)?, false, settings))
}

fn link<I: EngineIo>(
    SetUp { engine, io, info }: SetUp<I>,
    negotiates: bool,
    Settings { config, callbacks }: Settings<'_>,
) -> Arc<ChannelLink> {
    let span = tracing::info_span!(target: "rpcrdma", "connection", role = "client", peer = %info.peer_addr);
    let port = Arc::new(DriverPort::new(config.max_calls));
    // A server may need an answer before it gives its own.
    let driver = DriverConfig { idle_timeout: config.connection.idle_timeout, serves_to_the_end: true };
    match callbacks {
        None => driver::spawn(DriverCore::new(engine, io, NoInboundCalls, Arc::clone(&port), driver), span),
        Some(registry) => {
            let connection = ServedConnection { info: info.clone(), port: Arc::clone(&port), back: Arc::clone(config) };
            let handlers = CallHandlers::new(Arc::clone(registry), Arc::new(connection), None);
            driver::spawn(DriverCore::new(engine, io, handlers, Arc::clone(&port), driver), span);
        }
    }
    Arc::new(ChannelLink { is_owned: true, port, info, negotiates: negotiates.into() })
}

/// Whether there is something to be negotiated.
fn both_versions(versions: &RangeInclusive<u32>) -> bool {
    versions.contains(&1) && versions.contains(&2)
}
