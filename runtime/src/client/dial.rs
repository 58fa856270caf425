//! The set-up of a client's connections.

#[cfg(unix)]
use std::path::PathBuf;
use std::{
    future::{Future, ready},
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::{
    error::{ConnectError, UnusedPath},
    link::ChannelLink,
    version_1_servers,
};
#[cfg(feature = "tls")]
use crate::tls;
use crate::{
    ErrorChain,
    driver::{self, DriverConfig, DriverCore, DriverPort, EngineIo, NoInboundCalls},
    engine::{Role, Versions},
    metrics::{self, ConnectionRole},
    provider::{IoError, SetupError, iwarp::socket},
    session::{CallHandlers, ChannelConfig, ChannelInfo, ServedConnection, ServiceRegistry, SetUp},
    transport::{AnyConnector, BoxStream, Scheme, SchemeKind, Transport, Url},
};

pub(super) type DialFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<ChannelLink>, ConnectError>> + Send + 'a>>;

/// The conditions for a new connection.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DialRules {
    /// `true` to offer only version 1 of RPC-over-RDMA, unless the channel is configured for version 2 only.
    pub(super) version_1_only: bool,
    /// `true` if the server has to answer a call before the connection is used. The operating system also accepts
    /// connections for a server that hangs. With version 1, a new connection has one credit, so that no probe could
    /// follow its first call.
    pub(super) must_answer: bool,
}

impl DialRules {
    /// Returns the versions of RPC-over-RDMA to offer, which are all or some of `allowed`.
    // RPC-over-RDMA v2 §4.2.3.2: do not offer again the version that the server does not support.
    fn offered(self, allowed: Versions) -> Versions {
        if allowed == Versions::Both && self.version_1_only { Versions::V1 } else { allowed }
    }

    /// Waits until the server has answered a call, if `must_answer` is `true`.
    async fn fulfilled(self, link: Arc<ChannelLink>, config: &ChannelConfig) -> Result<Arc<ChannelLink>, ConnectError> {
        if self.must_answer { link.answered(config.connection.keepalive.timeout).await } else { Ok(link) }
    }
}

/// A dialer, which makes connections to one server over any provider.
pub(super) trait Dial: Send + Sync {
    /// Makes a connection that fulfils `rules`.
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a>;

    /// Makes a connection over a path that is better than the path `rank`. By default, there is no better path, and the
    /// attempt fails.
    fn dial_better<'a>(&'a self, _rank: usize, _config: &'a Arc<ChannelConfig>, _rules: DialRules) -> DialFuture<'a> {
        Box::pin(ready(Err(ConnectError::EmptyPool)))
    }

    /// Returns the paths that are better than the path `rank`, with the reasons why they are not used.
    fn better_paths(&self, _rank: usize) -> Vec<UnusedPath> {
        Vec::new()
    }
}

/// A dialer for one address, through a provider chosen by the caller.
pub(super) struct Dialer {
    pub(super) connector: Box<dyn AnyConnector>,
    pub(super) addr: SocketAddr,
    /// The services that the server may call.
    pub(super) callbacks: Option<Arc<ServiceRegistry>>,
}

impl Dial for Dialer {
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
        Box::pin(async move {
            let settings = LinkSettings { config, callbacks: self.callbacks.as_ref(), scheme: None };
            let versions = rules.offered(config.connection.engine.versions);
            let link = connect(&*self.connector, self.addr, settings, versions)
                .await
                .map_err(|source| ConnectError::Setup { peer: self.addr, source })?;
            rules.fulfilled(link, config).await
        })
    }
}

/// A dialer for a URL. The host is resolved for each attempt, because its addresses may change.
pub(super) struct UrlDialer {
    pub(super) url: Url,
    /// The versions of RPC-over-RDMA to offer.
    pub(super) versions: Versions,
    /// The services that the server may call.
    pub(super) callbacks: Option<Arc<ServiceRegistry>>,
    /// The TLS settings, if TLS is in use.
    #[cfg(feature = "tls")]
    pub(super) tls: Option<tls::TlsTarget>,
}

/// A dialer for a local socket.
#[cfg(unix)]
pub(super) struct UnixDialer {
    pub(super) path: PathBuf,
    /// The services that the server may call.
    pub(super) callbacks: Option<Arc<ServiceRegistry>>,
}

#[cfg(unix)]
impl Dial for UnixDialer {
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
        Box::pin(async move {
            let settings = LinkSettings { config, callbacks: self.callbacks.as_ref(), scheme: None };
            let failed = |source| ConnectError::Local { path: self.path.clone(), source };
            let limit = config.connection.connect_timeout;
            let stream = tokio::time::timeout(limit, UnixStream::connect(&self.path)).await;
            let stream = stream.map_err(|_| failed(SetupError::TimedOut(limit)))?;
            let stream = stream.map_err(|error| failed(error.into()))?;
            rules.fulfilled(link(SetUp::unix(&config.connection, Role::Client, stream), false, settings), config).await
        })
    }
}

/// The settings of a new connection.
#[derive(Clone, Copy)]
struct LinkSettings<'a> {
    config: &'a Arc<ChannelConfig>,
    callbacks: Option<&'a Arc<ServiceRegistry>>,
    /// The scheme whose addresses mean the same server on every channel, so that the server's version may be cached.
    /// `None` for a local socket, and for a connector of the caller, whose addresses may mean other servers.
    scheme: Option<Scheme>,
}

impl Dial for UrlDialer {
    fn dial<'a>(&'a self, config: &'a Arc<ChannelConfig>, rules: DialRules) -> DialFuture<'a> {
        Box::pin(async move {
            let unresolved = |source: IoError| ConnectError::Resolve { host: self.url.host().to_owned(), source };
            let (scheme, local) = (self.url.scheme(), self.url.options().local());
            let settings = LinkSettings { config, callbacks: self.callbacks.as_ref(), scheme: Some(scheme) };
            let mut last = None;
            let peers = self.url.resolve().await.map_err(|error| unresolved(error.into()))?;
            // A local address reaches only peers of its own family.
            for peer in peers.into_iter().filter(|peer| local.is_none_or(|local| local.is_ipv4() == peer.is_ipv4())) {
                let connected = match scheme.kind() {
                    SchemeKind::Rdma(provider) => {
                        let version_1_only =
                            rules.version_1_only || version_1_servers::has_version_1_only(scheme, peer);
                        let versions = DialRules { version_1_only, ..rules }.offered(self.versions);
                        connect(&*provider.connector(self.url.options()), peer, settings, versions).await
                    }
                    #[cfg(feature = "tls")]
                    SchemeKind::Tcp(_) => match &self.tls {
                        Some(target) => connect_tls(peer, local, settings, target).await,
                        None => connect_tcp(peer, local, settings).await,
                    },
                    #[cfg(not(feature = "tls"))]
                    SchemeKind::Tcp(_) => connect_tcp(peer, local, settings).await,
                    SchemeKind::Stream(provider) => {
                        connect_stream(provider.connect(self.url.options(), peer), peer, settings).await
                    }
                };
                let connected = match connected {
                    Ok(link) => rules.fulfilled(link, config).await,
                    Err(source) => Err(ConnectError::Setup { peer, source }),
                };
                match connected {
                    Ok(link) => return Ok(link),
                    Err(error) => {
                        tracing::debug!(%peer, error = %ErrorChain(&error), "connection attempt failed");
                        last = Some(error);
                    }
                }
            }
            Err(last.unwrap_or_else(|| unresolved(std::io::ErrorKind::NotFound.into())))
        })
    }
}

async fn connect(
    connector: &dyn AnyConnector,
    peer: SocketAddr,
    settings: LinkSettings<'_>,
    versions: Versions,
) -> Result<Arc<ChannelLink>, SetupError> {
    let connection = &settings.config.connection;
    let negotiates = versions == Versions::Both;
    let params = connection.setup_params();
    // Providers apply the timeout themselves. This one is for providers that do not.
    let connected = tokio::time::timeout(connection.connect_timeout, connector.connect(peer, params))
        .await
        .map_err(|_| SetupError::TimedOut(connection.connect_timeout))??;
    let set_up = SetUp::rdma(connection, Role::Client, versions, connected);
    Ok(link(set_up, negotiates, settings))
}

/// Connects over TCP, from the address `local`, if given. There is nothing to negotiate (RFC 5531 §11), so only the
/// first reply shows that an RPC server is listening.
async fn connect_tcp(
    peer: SocketAddr,
    local: Option<IpAddr>,
    settings: LinkSettings<'_>,
) -> Result<Arc<ChannelLink>, SetupError> {
    let stream = open_tcp(peer, local, settings).await?;
    Ok(link(SetUp::tcp(&settings.config.connection, Role::Client, stream)?, false, settings))
}

/// Sets up a connection to `peer` over the stream that `connecting` returns.
async fn connect_stream(
    connecting: impl Future<Output = io::Result<BoxStream>>,
    peer: SocketAddr,
    settings: LinkSettings<'_>,
) -> Result<Arc<ChannelLink>, SetupError> {
    let connection = &settings.config.connection;
    let connected = tokio::time::timeout(connection.connect_timeout, connecting);
    let stream = connected.await.map_err(|_| SetupError::TimedOut(connection.connect_timeout))??;
    let local = ChannelInfo::unconnected(Transport::Tcp).local_addr;
    Ok(link(SetUp::stream(connection, Role::Client, stream, (peer, local)), false, settings))
}

/// Connects over TCP, and starts TLS if the server offers it (RFC 9289). Tries once more if the server offered TLS but
/// was silent during the handshake.
#[cfg(feature = "tls")]
async fn connect_tls(
    peer: SocketAddr,
    local: Option<IpAddr>,
    settings: LinkSettings<'_>,
    target: &tls::TlsTarget,
) -> Result<Arc<ChannelLink>, SetupError> {
    let mut is_retry = false;
    loop {
        let stream = open_tcp(peer, local, settings).await?;
        socket::prepare(&stream)?;
        let addrs = (stream.peer_addr()?, stream.local_addr()?);
        match tls::connect(stream, target, is_retry).await {
            // The second attempt has the whole time, and is not silence.
            Err(error) if tls::is_silence(&error, target) => is_retry = true,
            set_up => {
                let set_up = SetUp::tls(&settings.config.connection, Role::Client, addrs, set_up?);
                return Ok(link(set_up, false, settings));
            }
        }
    }
}

async fn open_tcp(
    peer: SocketAddr,
    local: Option<IpAddr>,
    settings: LinkSettings<'_>,
) -> Result<TcpStream, SetupError> {
    let limit = settings.config.connection.connect_timeout;
    let connected = tokio::time::timeout(limit, socket::connect(peer, local)).await;
    Ok(connected.map_err(|_| SetupError::TimedOut(limit))??)
}

fn link<I: EngineIo>(
    SetUp { engine, io, info }: SetUp<I>,
    negotiates: bool,
    LinkSettings { config, callbacks, scheme }: LinkSettings<'_>,
) -> Arc<ChannelLink> {
    let span = tracing::info_span!(target: "rpcrdma", "connection", role = "client", peer = %info.peer_addr);
    let port = Arc::new(DriverPort::new(config.max_calls));
    // A server may need the reply to a callback before it can reply to the client's call.
    let driver = DriverConfig {
        idle_timeout: config.connection.idle_timeout,
        first_call_timeout: None,
        keepalive: config.connection.keepalive(),
        serves_to_the_end: true,
    };
    let observer = metrics::connection(ConnectionRole::Client, info.transport, &port, &config.connection.engine);
    match callbacks {
        None => driver::spawn(DriverCore::new(engine, io, NoInboundCalls, Arc::clone(&port), driver), span, observer),
        Some(registry) => {
            let connection = ServedConnection::new(info.clone(), Arc::clone(&port), Arc::clone(config));
            let handlers = CallHandlers::new(Arc::clone(registry), Arc::new(connection), None);
            driver::spawn(DriverCore::new(engine, io, handlers, Arc::clone(&port), driver), span, observer);
        }
    }
    Arc::new(ChannelLink::new(port, info, negotiates).dialed(scheme))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{sync::atomic::Ordering, time::Duration};

    use super::*;
    use crate::{
        client::tests::fakes,
        provider::{
            ConnectRequest as _, Incoming as _, Listener as _,
            sim::{SimConnector, SimFabric, SimListener},
        },
        transport::{SchemeProvider, UrlOptions},
    };

    #[test]
    fn versions_that_are_offered() {
        for (allowed, after_failure) in
            [(Versions::V1, Versions::V1), (Versions::V2, Versions::V2), (Versions::Both, Versions::V1)]
        {
            let rules = |version_1_only| DialRules { version_1_only, must_answer: false };
            assert_eq!((rules(false).offered(allowed), rules(true).offered(allowed)), (allowed, after_failure));
        }
    }

    /// A connection is used at once, unless the server has to answer first.
    #[tokio::test(start_paused = true)]
    async fn answers_that_are_needed() {
        for must_answer in [false, true] {
            let link = fakes::link(0);
            let rules = DialRules { version_1_only: false, must_answer };
            let config = fakes::config();
            let mut fulfilled = Box::pin(rules.fulfilled(Arc::clone(&link), &config));
            assert_eq!(fakes::poll(&mut fulfilled).is_pending(), must_answer);
            assert_eq!(fakes::sent(&link.port).len(), usize::from(must_answer));
        }
    }

    /// A local address reaches no address of the other family, so no attempt to connect is made.
    #[tokio::test(start_paused = true)]
    async fn families_of_addresses() {
        for url in ["tcp://[::1]:1?local=127.0.0.1", "tcp://127.0.0.1:1?local=::1"] {
            let error = crate::Channel::connect(url).await.unwrap_err();
            assert!(matches!(error, ConnectError::Resolve { .. }), "{url}: {error:?}");
        }
    }

    struct Network(SimFabric);

    impl SchemeProvider for Network {
        type Connector = SimConnector;
        type Listener = SimListener;

        fn connector(&self, _: &UrlOptions) -> SimConnector {
            self.0.connector()
        }

        fn listen(&self, _: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
            self.0.listen(addr.port())
        }
    }

    /// A channel that has fallen back to version 1 does not negotiate with any address of its server.
    #[tokio::test(start_paused = true)]
    async fn a_fallback_holds_for_all_addresses() {
        let network = SimFabric::default();
        let listener = network.listen(1).unwrap();
        Scheme::register("x-fallback", Network(network)).unwrap();
        let (url, config) = ("x-fallback://127.0.0.1:1".parse().unwrap(), fakes::config());
        let dialer = UrlDialer {
            url,
            versions: Versions::Both,
            callbacks: None,
            #[cfg(feature = "tls")]
            tls: None,
        };
        for version_1_only in [false, true] {
            let rules = DialRules { version_1_only, must_answer: false };
            let accepted = async {
                let request = listener.accept().await.unwrap().request(Duration::from_secs(1)).await.unwrap();
                request.accept(config.connection.setup_params()).await.unwrap()
            };
            let (link, _accepted) = tokio::join!(dialer.dial(&config, rules), accepted);
            assert_eq!(link.unwrap().negotiates.load(Ordering::Relaxed), !version_1_only);
        }
    }
}
