//! How a channel is configured.

use std::{fmt, net::SocketAddr, ops::RangeInclusive, sync::Arc, time::Duration};

use super::{
    channel::Channel,
    dial::{Dialer, UrlDialer},
    error::ConnectError,
    reconnect::Reconnect,
};
use crate::{
    config::ConnectionConfig,
    engine::stream::StreamConfig,
    memory::BufferPool,
    provider::Connector,
    rpc::{Authenticator, OpaqueAuth, Security, StandardAuthenticator},
    session::{ChannelConfig, Service, ServiceRegistry},
    transport::Url,
};

/// Configures and connects a [`Channel`].
///
/// ```no_run
/// # async fn example() -> Result<(), rpcrdma::client::ConnectError> {
/// use std::time::Duration;
///
/// use rpcrdma::Channel;
///
/// let channel = Channel::builder()
///     .call_timeout(Duration::from_secs(30))
///     .credits(64)
///     .connect("iwarp://server:20100")
///     .await?;
/// # drop(channel); Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ChannelBuilder {
    config: ChannelConfig,
    reconnect: Reconnect,
    services: Vec<Arc<dyn Service>>,
    authenticator: Arc<dyn Authenticator>,
}

impl Default for ChannelBuilder {
    fn default() -> Self {
        Self {
            config: ChannelConfig {
                connection: ConnectionConfig::default(),
                max_calls: 4096,
                call_timeout: None,
                credential: OpaqueAuth::none(),
                security: None,
            },
            reconnect: Reconnect::default(),
            services: Vec::new(),
            authenticator: Arc::new(StandardAuthenticator),
        }
    }
}

impl ChannelBuilder {
    /// Everything about the connection, in place of the defaults and of what was set before.
    pub fn connection(mut self, config: ConnectionConfig) -> Self {
        self.config.connection = config;
        self
    }

    /// Most calls under way at a time that this end asks the server to allow. Default 32.
    pub fn credits(mut self, credits: u32) -> Self {
        self.config.connection.engine.credits = credits.max(1);
        self
    }

    /// Versions of RPC-over-RDMA, within 1 to 2. Default both: the connection begins with version 2, and goes on with version 1
    /// where the server has no other (RPC-over-RDMA v2 §4.2.3), on the same connection or, if the server ends that over it, on a
    /// new one; which it was is remembered for a while. With `1..=1` nothing is negotiated. A URL may say it for itself.
    pub fn versions(mut self, versions: RangeInclusive<u32>) -> Self {
        self.config.connection.engine.versions = versions;
        self
    }

    /// Inline thresholds in octets, rounded down to whole KiB: the longest message sent, and received, without RDMA
    /// (RFC 8166 §3.3.2, RFC 8797). Default 4096; the smaller of both ends' counts.
    pub fn inline_size(mut self, octets: u32) -> Self {
        self.config.connection.engine.send_size = octets;
        self.config.connection.engine.receive_size = octets;
        self
    }

    /// Where message buffers and landing memory come from.
    pub fn pool(mut self, pool: BufferPool) -> Self {
        self.config.connection.engine.pool = pool;
        self
    }

    /// Limits of a connection by TCP: records, fragments, the time that a record may take.
    pub fn stream(mut self, config: StreamConfig) -> Self {
        self.config.connection.stream = config;
        self
    }

    /// How long connecting may take. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connection.setup_timeout = timeout;
        self
    }

    /// How long a call may take that has no deadline of its own. Default: any time.
    #[doc(alias = "clnt_control")]
    #[doc(alias = "CLSET_TIMEOUT")]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.config.call_timeout = Some(timeout);
        self
    }

    /// Most calls that may be under way or waiting for a credit; later ones wait their turn before they take memory.
    /// Default 4096.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.config.max_calls = calls.max(1);
        self
    }

    /// Sets what the channel does after it has lost its connection. Default [`Reconnect::on_demand`]: the next call connects again,
    /// and calls that cannot be executed twice by accident are retried.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// Who the calls are made for, unless one says otherwise; from
    /// [`Credential::to_opaque`](crate::rpc::Credential::to_opaque). Default AUTH_NONE.
    pub fn credential(mut self, credential: OpaqueAuth) -> Self {
        self.config.credential = credential;
        self
    }

    /// What secures the calls, in place of [`credential`](Self::credential) and of what one call says
    /// ([`CallOptions::credential`](super::CallOptions::credential)). Of calls whose bodies it protects nothing is placed
    /// directly, and memory of the caller's for results is let go (RFC 8166 §8.2.2.3).
    pub fn security(mut self, security: impl Security) -> Self {
        self.config.security = Some(Arc::new(security));
        self
    }

    /// Serves one version of a program to the server, which calls it over the channel's connection: callbacks. A server does
    /// so once it has been told, in a call, that it may (RFC 8167 §6).
    ///
    /// Over RDMA calls and replies of the reverse direction are no longer than one inline message, and nothing in them
    /// is placed directly (RFC 8167 §5.3). Handlers run as a server's do, and end with their connection no sooner: what they
    /// return then goes nowhere. As long as the channel lives, its connection is not closed for being idle (RFC 8167 §5.4).
    pub fn serve(mut self, service: impl Service) -> Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Decides whose callbacks are served (RFC 8167 §8). Default: [`StandardAuthenticator`], AUTH_NONE and AUTH_SYS.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Arc::new(authenticator);
        self
    }

    /// Most calls of the server's that are under way at a time. Default 8. Without a [service](Self::serve) there are none.
    pub fn reverse_credits(mut self, credits: u32) -> Self {
        self.config.connection.engine.reverse_credits = credits.max(1);
        self
    }

    /// Returns the configuration of the channel, and the services that its server may call.
    fn config(self) -> Result<(ChannelConfig, Option<Arc<ServiceRegistry>>), ConnectError> {
        let mut config = self.config;
        if self.services.is_empty() {
            // RFC 8167 §6: calls of the server's are discarded.
            config.connection.engine.reverse_credits = 0;
            Ok((config, None))
        } else {
            // RFC 8167 §5.4: a connection of which calls may come SHOULD be maintained.
            config.connection.idle_timeout = None;
            let registry = ServiceRegistry::new(self.services, self.authenticator)
                .map_err(|(program, version)| ConnectError::DuplicateService { program, version })?;
            registry.provide(&mut config.connection.engine);
            Ok((config, Some(Arc::new(registry))))
        }
    }

    /// Connects to `scheme://host:port`; see [`Url`].
    ///
    /// # Errors
    /// When the URL cannot be used, two services collide, or none of the host's addresses answers as it should.
    pub async fn connect(mut self, url: &str) -> Result<Channel, ConnectError> {
        let url: Url = url.parse()?;
        if let Some(version) = url.version() {
            self.config.connection.engine.versions = version..=version;
        }
        let reconnect = self.reconnect;
        let (config, callbacks) = self.config()?;
        Channel::open(Box::new(UrlDialer { url, callbacks }), config, reconnect).await
    }

    /// Connects to `addr` by a provider of the caller's.
    ///
    /// # Errors
    /// When two services collide, or the peer does not answer as it should.
    pub async fn connect_with<C: Connector>(self, connector: C, addr: SocketAddr) -> Result<Channel, ConnectError> {
        let reconnect = self.reconnect;
        let (config, callbacks) = self.config()?;
        Channel::open(Box::new(Dialer { connector, addr, callbacks }), config, reconnect).await
    }
}

impl Channel {
    /// Connects to `scheme://host:port`, with all defaults; see [`Url`](crate::transport::Url).
    ///
    /// # Errors
    /// When the URL cannot be used, or none of the host's addresses answers as it should.
    #[doc(alias = "clnt_create")]
    #[doc(alias = "clnt_tli_create")]
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Connects to `addr` by a provider of the caller's.
    ///
    /// # Errors
    /// When the peer does not answer as it should.
    pub async fn connect_with<C: Connector>(connector: C, addr: SocketAddr) -> Result<Self, ConnectError> {
        Self::builder().connect_with(connector, addr).await
    }

    /// Returns a builder, to configure a channel before it connects.
    pub fn builder() -> ChannelBuilder {
        ChannelBuilder::default()
    }
}

impl fmt::Debug for ChannelBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services: Vec<_> = self.services.iter().map(|service| service.name()).collect();
        f.debug_struct("ChannelBuilder")
            .field("config", &self.config)
            .field("reconnect", &self.reconnect)
            .field("services", &services)
            .finish()
    }
}
