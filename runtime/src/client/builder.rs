//! The configuration of a channel.

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use tokio::task::JoinSet;

#[cfg(unix)]
use super::dial::UnixDialer;
use super::{
    channel::Channel,
    dial::{Dial, DialRules, Dialer, UrlDialer},
    error::ConnectError,
    paths::PathsDialer,
    pool::ChannelPool,
    reconnect::Reconnect,
    target::Target,
};
use crate::{
    config::{self, ConfigError, ConnectionConfig},
    engine::Versions,
    provider::Connector,
    rpc::{Credential, OpaqueAuth},
    security::{Authenticator, Security, StandardAuthenticator},
    session::{ChannelConfig, ResendableXids, Service, ServiceRegistry},
    trace::{TraceContext, TraceSource},
    transport::{Transport, Url},
};
#[cfg(feature = "tls")]
use crate::{
    tls::{self, TlsClientConfig, TlsPolicy, TlsTarget, TlsUnavailable},
    transport::Scheme,
};

/// A builder that configures and connects a [`Channel`].
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
    /// The programs whose server has a duplicate request cache.
    deduplicated: Deduplicated,
    resend_within: Duration,
    #[cfg(feature = "tls")]
    tls: Option<TlsClientConfig>,
}

/// The programs whose server recognizes calls that are sent again.
#[derive(Debug, Clone)]
enum Deduplicated {
    Programs(Vec<u32>),
    All,
}

/// The default of [`ChannelBuilder::resend_within`]. It is shorter than the default lifetime of a reply in a server's
/// cache, 120 s, so that a call that has to wait on its way is still recognized.
const RESEND_WITHIN: Duration = Duration::from_secs(100);

impl Default for ChannelBuilder {
    fn default() -> Self {
        Self {
            config: ChannelConfig::new(ConnectionConfig::default(), 4096),
            reconnect: Reconnect::default(),
            services: Vec::new(),
            authenticator: Arc::new(StandardAuthenticator),
            deduplicated: Deduplicated::Programs(Vec::new()),
            resend_within: RESEND_WITHIN,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }
}

/// The parts of a channel that is not connected yet.
struct Prepared {
    dialer: Box<dyn Dial>,
    config: ChannelConfig,
    reconnect: Reconnect,
    transport: Transport,
}

impl ChannelBuilder {
    /// Sets the whole configuration of the connection. Replaces earlier settings of [`credits`](Self::credits),
    /// [`versions`](Self::versions), [`inline_size`](Self::inline_size), [`connect_timeout`](Self::connect_timeout) and
    /// [`reverse_credits`](Self::reverse_credits).
    pub fn connection(mut self, config: ConnectionConfig) -> Self {
        self.config.connection = config;
        self
    }

    /// Sets the number of concurrent calls to request from the server, in credits. At least 1. Default 32. The server
    /// may grant fewer (RFC 8166 §3.3.1).
    pub fn credits(mut self, credits: u32) -> Self {
        self.config.connection = self.config.connection.credits(credits);
        self
    }

    /// Sets the versions of RPC-over-RDMA to offer, both by default.
    ///
    /// With both versions, a connection begins with version 2 and falls back to version 1 if the server does not
    /// support version 2 (RPC-over-RDMA v2 §4.2.3). The channel makes a new connection for that if the server closes
    /// the first connection. The client remembers for 10 minutes that a server that was reached by a URL supports only
    /// version 1. With [`Versions::V1`] nothing is negotiated. The `version` option of a [`Url`] takes precedence.
    pub fn versions(mut self, versions: Versions) -> Self {
        self.config.connection = self.config.connection.versions(versions);
        self
    }

    /// Sets the inline threshold of both directions: the maximum length in bytes of a message that is sent or received
    /// in one Send (RFC 8166 §3.3.2, RFC 8797 §4.2, RPC-over-RDMA v2 §5.2.1, §5.2.2). 1 KiB to 256 KiB. Default 4 KiB.
    /// Version 1 rounds the value down to whole KiB. The smaller of the client's and the server's value applies.
    pub fn inline_size(mut self, bytes: u32) -> Self {
        self.config.connection = self.config.connection.inline_size(bytes);
        self
    }

    /// Sets the timeout of each attempt to connect to one address. Default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connection = self.config.connection.connect_timeout(timeout);
        self
    }

    /// Sets the timeout of calls without a deadline of their own. Default: none.
    #[doc(alias = "clnt_control")]
    #[doc(alias = "CLSET_TIMEOUT")]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.config.call_timeout = Some(timeout);
        self
    }

    /// Returns the timeout of calls without a deadline of their own.
    #[cfg(feature = "discover")]
    pub(super) fn default_call_timeout(&self) -> Option<Duration> {
        self.config.call_timeout
    }

    /// Sends the trace context of each call to the server. `context` returns the trace context of the call's
    /// [span](crate::trace), for example with `tracing-opentelemetry`. If it returns `None`, the call is sent without a
    /// context. By default, no call has a context.
    ///
    /// Use this only with servers of this crate: the context is the body of the call's verifier, which RFC 5531 §10.1
    /// recommends to leave empty. Linux's server rejects calls with such a verifier. A call grows by 32 bytes. Calls
    /// with [`Security`] have verifiers of their own, and are sent without a context.
    pub fn trace_context(
        mut self,
        context: impl Fn(&tracing::Span) -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.config.trace = Some(TraceSource::new(context));
        self
    }

    /// Sets the maximum number of calls that are in flight or waiting for a credit. Further calls wait in the order in
    /// which they started. Calls without [`security`](Self::security) allocate no message memory while they wait. At
    /// least 1. Default 4096.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.config.max_calls = calls;
        self
    }

    /// Sets what the channel does after it has lost its connection. Default [`Reconnect::on_demand`]: the next call
    /// connects again, and calls that cannot be executed twice by accident are retried.
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// States that the server has a duplicate request cache for these programs
    /// ([`ServerBuilder::duplicate_requests`](crate::server::ServerBuilder::duplicate_requests), or that of an NFS
    /// server).
    ///
    /// If the connection is lost, the channel sends calls of these programs again with the same XID, although their
    /// procedures are not declared `@idempotent`, as often as [`reconnect`](Self::reconnect) allows. The server returns
    /// the reply of a call that it has executed before. If all attempts fail,
    /// [`CallError::is_retry_safe`](super::CallError::is_retry_safe) is `false`. A new call of the application always
    /// has a new XID.
    ///
    /// A call that the server might not recognize is not sent again. It fails with the error of the lost connection,
    /// and `is_retry_safe` is `false`:
    ///
    /// - The new connection leads to another address or port, for example to another address of the host name. There
    ///   may be another server with another cache.
    /// - The new connection has another local IP address. The server identifies its clients by their addresses.
    /// - The first attempt began more than [`resend_within`](Self::resend_within) ago.
    ///
    /// The channel cannot see an address translation between client and server. If the translated address changes, the
    /// server executes the call again.
    ///
    /// The server has to tell its clients apart. If the channel's [`credential`](Self::credential) is AUTH_SYS with
    /// stamp 0, the stamp is replaced by a random number. Set the stamps of credentials in
    /// [`CallOptions`](super::CallOptions) to different numbers for channels with the same machine name and user. With
    /// AUTH_NONE, only the IP address and the XID distinguish the channels of a host, and in rare cases a call gets the
    /// reply to a call of another channel.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use rpcrdma::{Channel, rpc::Credential};
    ///
    /// const COUNTERS: u32 = 0x2000_0009;
    /// let channel = Channel::builder()
    ///     .deduplicated([COUNTERS])
    ///     .credential(Credential::sys("client.example", 1000, 100, []).to_opaque()?)
    ///     .connect("iwarp://server:20100")
    ///     .await?;
    /// # drop(channel); Ok(()) }
    /// ```
    pub fn deduplicated(mut self, programs: impl IntoIterator<Item = u32>) -> Self {
        match &mut self.deduplicated {
            Deduplicated::Programs(all) => all.extend(programs),
            Deduplicated::All => {}
        }
        self
    }

    /// States that the server has a duplicate request cache for all programs; see [`deduplicated`](Self::deduplicated).
    pub fn deduplicated_all(mut self) -> Self {
        self.deduplicated = Deduplicated::All;
        self
    }

    /// Sets how long after its first attempt a call of a [`deduplicated`](Self::deduplicated) program may be sent
    /// again. Default 100 s. If the connection is lost later than that, the call fails.
    ///
    /// Choose a time below the lifetime of a reply in the server's cache, which is
    /// [`DuplicateRequests::max_age`](crate::server::DuplicateRequests::max_age), by default 120 s. Otherwise, the
    /// server may execute a call twice.
    pub fn resend_within(mut self, window: Duration) -> Self {
        self.resend_within = window;
        self
    }

    /// Sets the credential of calls that have none of their own. It is made by
    /// [`Credential::to_opaque`](crate::rpc::Credential::to_opaque). Default AUTH_NONE.
    pub fn credential(mut self, credential: OpaqueAuth) -> Self {
        self.config.credential = credential;
        self
    }

    /// Secures the calls. `security` supplies their credentials, in place of [`credential`](Self::credential) and of
    /// [`CallOptions::credential`](super::CallOptions::credential). It is also used after a reconnect.
    ///
    /// Direct data placement is disabled for calls whose bodies are protected, and the caller's landing buffers are not
    /// used (RFC 8166 §8.2.2.3).
    pub fn security(mut self, security: impl Security) -> Self {
        self.config.security = Some(Arc::new(security));
        self
    }

    /// Sets the certificates and the policy for TLS on `tcp://` (RFC 9289). The option `tls` of a [`Url`] overrides the
    /// policy. If TLS is required, connecting by another scheme fails.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: TlsClientConfig) -> Self {
        self.tls = Some(config);
        self
    }

    /// Serves one version of a program to the server, which calls it over the channel's connection (callbacks). The
    /// client has to announce in a call that it accepts callbacks (RFC 8167 §6).
    ///
    /// With version 1 of RPC-over-RDMA, calls and replies in the reverse direction must fit one inline message, and
    /// nothing in them is placed directly (RFC 8167 §5.3). Handlers run as on a server. When the connection closes,
    /// handlers in progress run to their end, and their replies are dropped. While the channel exists, its connection
    /// is not closed for being idle (RFC 8167 §5.4).
    pub fn service(mut self, service: impl Service) -> Self {
        self.services.push(Arc::new(service));
        self
    }

    /// Sets the authenticator of the server's calls (RFC 8167 §8). Default: [`StandardAuthenticator`], which accepts
    /// AUTH_NONE and AUTH_SYS.
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticator = Arc::new(authenticator);
        self
    }

    /// Sets the maximum number of the server's calls in progress at a time. At least 1. Default 8. Without a
    /// [service](Self::service), the server's calls are discarded (RFC 8167 §6), or refused by version 2 of
    /// RPC-over-RDMA.
    pub fn reverse_credits(mut self, credits: u32) -> Self {
        self.config.connection = self.config.connection.reverse_credits(credits);
        self
    }

    /// Checks the configuration of the channel, and returns it with the services that the server may call.
    fn config(self) -> Result<(ChannelConfig, Option<Arc<ServiceRegistry>>), ConnectError> {
        let mut config = self.config;
        config.connection.check()?;
        ConfigError::check("ChannelBuilder::max_calls", config.max_calls as u64, 1..=u64::MAX)?;
        config.connection.engine = config.connection.engine.for_connection();
        config.connection.engine.keeps_credit = config.connection.keepalive().is_some();
        let programs = match self.deduplicated {
            Deduplicated::Programs(programs) => (!programs.is_empty()).then_some(Some(programs)),
            Deduplicated::All => Some(None),
        };
        if let Some(programs) = programs {
            config.resendable = Some(Arc::new(ResendableXids::new(programs, config::xid_seed(), self.resend_within)));
            stamp(&mut config.credential);
        }
        if self.services.is_empty() {
            // RFC 8167 §6: the server's calls are discarded.
            config.connection.engine.reverse_credits = 0;
            Ok((config, None))
        } else {
            let credits = config.connection.engine.reverse_credits;
            ConfigError::check("ChannelBuilder::reverse_credits", credits.into(), 1..=u64::MAX)?;
            // RFC 8167 §5.4: a connection on which the server may make calls SHOULD be maintained.
            config.connection.idle_timeout = None;
            let registry = ServiceRegistry::new(self.services, self.authenticator, None)
                .map_err(|(program, version)| ConnectError::DuplicateService { program, version })?;
            registry.provide(&mut config.connection.engine);
            Ok((config, Some(Arc::new(registry))))
        }
    }

    /// Connects to `scheme://host:port`; see [`Url`]. The addresses of the host are tried in the order in which the
    /// system's resolver returns them.
    ///
    /// `target` may also list several URLs of one service, the best first, separated by commas:
    /// `rdma://one:20049,tcp://one:2049`. `rdma,tcp://one:20100` is short for the same host and port with several
    /// schemes. The channel uses the best path that works. It begins with the first path, and tries each further path
    /// 250 ms after the path before it, or as soon as that path has failed. If its path is not the best, the channel
    /// tries the better paths again, first after at most 2 s and then with growing pauses of up to one minute, and
    /// moves to a path that works. Calls in flight finish on the old path. A path is never less protected than another
    /// path: the strongest TLS policy among the URLs and the TLS configuration applies to all, and URLs that cannot
    /// fulfil it are not used.
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, a URL or the configuration is invalid, two services have the same program and
    /// version, or no address of the host accepted a connection. With several URLs, the error of connecting is from the
    /// best one that can be used.
    pub async fn connect(self, target: &str) -> Result<Channel, ConnectError> {
        let Prepared { dialer, config, reconnect, .. } = self.prepare(Target::parse(target)?)?;
        Channel::open(dialer, config, reconnect).await
    }

    /// Creates a channel that connects with its first call, to `scheme://host:port` or to one of several URLs as
    /// [`connect`](Self::connect) does. Use it if the server may be down now, for example for one of several servers.
    ///
    /// Until the first connection is made, the addresses in [`Channel::info`] are unspecified, and
    /// [`Channel::close_reason`] returns a reason. A channel with [`Reconnect::Never`] tries to connect until it has
    /// succeeded once.
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, a URL or the configuration is invalid, or two services have the same program
    /// and version.
    pub fn connect_lazy(self, target: &str) -> Result<Channel, ConnectError> {
        let Prepared { dialer, config, reconnect, transport } = self.prepare(Target::parse(target)?)?;
        Ok(Channel::lazy(dialer, transport, config.into(), reconnect))
    }

    /// Creates a channel as [`connect_lazy`](Self::connect_lazy) does, for a URL that service discovery found. Such a
    /// URL can only strengthen the TLS policy of the configuration: whoever can change the list must not be able to
    /// turn TLS off. If the security has a variant for each server ([`Security::for_other_server`]), the channel gets a
    /// new one.
    #[cfg(feature = "discover")]
    pub(super) fn connect_discovered(mut self, target: &str) -> Result<Channel, ConnectError> {
        if let Some(security) = self.config.security.as_ref().and_then(|security| security.for_other_server()) {
            self.config.security = Some(security);
        }
        let target = Target::parse(target)?;
        #[cfg(feature = "tls")]
        let target = match self.tls.as_ref().map(TlsClientConfig::policy) {
            Some(configured) => target.with_least_tls(configured),
            None => target,
        };
        let Prepared { dialer, config, reconnect, transport } = self.prepare(target)?;
        Ok(Channel::lazy(dialer, transport, config.into(), reconnect))
    }

    /// Connects a [`ChannelPool`] with one connection for each of `urls`, which lead to the same server. Repeat a URL
    /// for several connections on the same path. URLs that differ in the option `local` use several local addresses or
    /// devices.
    ///
    /// Returns as soon as all attempts to connect have ended. At least one connection must be made. The pool makes the
    /// other connections later.
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, there is no URL, a URL or the configuration is invalid, two services have the
    /// same program and version, or no connection could be made. In the last case, the error is that of the first URL.
    pub async fn connect_pool<U: AsRef<str>>(
        self,
        urls: impl IntoIterator<Item = U>,
    ) -> Result<ChannelPool, ConnectError> {
        let prepared: Result<Vec<_>, _> =
            urls.into_iter().map(|url| self.clone().prepare(Target::parse(url.as_ref())?)).collect();
        let mut attempts = JoinSet::new();
        for (index, Prepared { dialer, config, reconnect, transport }) in prepared?.into_iter().enumerate() {
            let config = Arc::new(config);
            attempts.spawn(async move {
                let (channel, error) = match dialer.dial(&config, DialRules::default()).await {
                    Ok(link) => (Channel::dialed(dialer, link, config, reconnect), None),
                    Err(error) => (Channel::lazy(dialer, transport, config, reconnect), Some(error)),
                };
                (index, channel, error)
            });
        }
        let mut outcomes = attempts.join_all().await;
        outcomes.sort_by_key(|(index, ..)| *index);
        if outcomes.iter().all(|(.., error)| error.is_some()) {
            let first = outcomes.into_iter().find_map(|(.., error)| error);
            return Err(first.unwrap_or(ConnectError::EmptyPool));
        }
        Ok(ChannelPool::new(outcomes.into_iter().map(|(_, channel, _)| channel)))
    }

    /// Applies the options of the URLs, and makes the parts of a channel without connecting.
    fn prepare(mut self, target: Target) -> Result<Prepared, ConnectError> {
        #[cfg(feature = "tls")]
        let target = target.evenly_protected(self.tls.as_ref().map(TlsClientConfig::policy));
        let versions = &mut self.config.connection.engine.versions;
        let configured = std::mem::replace(versions, target.best().and_then(Url::versions).unwrap_or(*versions));
        let mut paths = Vec::new();
        #[cfg_attr(not(feature = "tls"), allow(unused_mut))]
        let mut error = ConnectError::EmptyPool;
        for url in target {
            #[cfg(feature = "tls")]
            let tls = match self.tls_to(&url) {
                Ok(tls) => tls,
                // The other paths may do what this one cannot.
                Err(unprotected @ (ConnectError::NoTlsConfig { .. } | ConnectError::NoTlsTransport { .. })) => {
                    tracing::warn!(target: "rpcrdma", error = %unprotected, "path not used");
                    error = unprotected;
                    continue;
                }
                Err(invalid) => return Err(invalid),
            };
            paths.push(UrlDialer {
                versions: url.versions().unwrap_or(configured),
                url,
                callbacks: None,
                #[cfg(feature = "tls")]
                tls,
            });
        }
        let Some(best) = paths.first() else { return Err(error) };
        let (reconnect, transport) = (self.reconnect, best.url.scheme().transport());
        let (config, callbacks) = self.config()?;
        paths.iter_mut().for_each(|path| path.callbacks.clone_from(&callbacks));
        let dialer: Box<dyn Dial> = match <[UrlDialer; 1]>::try_from(paths) {
            Ok([only]) => Box::new(only),
            Err(several) => Box::new(PathsDialer::new(several)),
        };
        Ok(Prepared { dialer, config, reconnect, transport })
    }

    /// Connects to the local socket (`AF_UNIX`) at `path`, over which ONC RPC uses record marking (RFC 5531 §11), as
    /// over TCP. The addresses in [`Channel::info`] are unspecified.
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, the configuration is invalid or requires TLS, two services have the same
    /// program and version, or the socket refused the connection.
    #[cfg(unix)]
    pub async fn connect_unix(self, path: impl Into<std::path::PathBuf>) -> Result<Channel, ConnectError> {
        let path = path.into();
        #[cfg(feature = "tls")]
        self.tls_policy(None, false, || path.display().to_string())?;
        let reconnect = self.reconnect;
        let (config, callbacks) = self.config()?;
        Channel::open(Box::new(UnixDialer { path, callbacks }), config, reconnect).await
    }

    /// Connects to `addr` through `connector`, a provider chosen by the caller.
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, the configuration is invalid or requires TLS, two services have the same
    /// program and version, or the connection could not be set up.
    pub async fn connect_with<C: Connector>(self, connector: C, addr: SocketAddr) -> Result<Channel, ConnectError> {
        #[cfg(feature = "tls")]
        self.tls_policy(None, false, || addr.to_string())?;
        let reconnect = self.reconnect;
        let (config, callbacks) = self.config()?;
        Channel::open(Box::new(Dialer { connector: Box::new(connector), addr, callbacks }), config, reconnect).await
    }
}

/// Replaces stamp 0 of an AUTH_SYS credential by a random number.
fn stamp(credential: &mut OpaqueAuth) {
    if let Ok(Credential::Sys(mut parms)) = Credential::from_opaque(credential)
        && parms.stamp == 0
    {
        parms.stamp = config::xid_seed();
        if let Ok(stamped) = Credential::Sys(parms).to_opaque() {
            *credential = stamped;
        }
    }
}

#[cfg(feature = "tls")]
impl ChannelBuilder {
    /// Returns the TLS settings for a URL. `None` turns TLS off.
    fn tls_to(&self, url: &Url) -> Result<Option<TlsTarget>, ConnectError> {
        let policy = self.tls_policy(url.tls(), url.scheme() == Scheme::TCP, || url.to_string())?;
        let Some(config) = self.tls.as_ref().filter(|_| policy != TlsPolicy::Off) else { return Ok(None) };
        let name = config.server_name(url.name().unwrap_or(url.host())).map_err(ConnectError::TlsConfig)?;
        Ok(Some(TlsTarget { config: config.clone(), policy, name }))
    }

    /// Returns the TLS policy for a server. `requested` is the policy in its URL, if there is one. `is_tcp` is `true`
    /// for a server over TCP, which can use TLS. `server` names the server in errors.
    fn tls_policy(
        &self,
        requested: Option<TlsPolicy>,
        is_tcp: bool,
        server: impl FnOnce() -> String,
    ) -> Result<TlsPolicy, ConnectError> {
        let configured = self.tls.as_ref().map(TlsClientConfig::policy);
        tls::effective_policy(configured, requested, is_tcp).map_err(|error| match error {
            TlsUnavailable::NoConfig => ConnectError::NoTlsConfig { url: server() },
            TlsUnavailable::NoTransport => ConnectError::NoTlsTransport { server: server() },
        })
    }
}

impl Channel {
    /// Connects to `scheme://host:port` with the default configuration; see [`Url`].
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, the URL is invalid, or no address of the host accepted a connection.
    #[doc(alias = "clnt_create")]
    #[doc(alias = "clnt_tli_create")]
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Connects to `addr` through `connector`, a provider chosen by the caller, with the default configuration.
    ///
    /// # Errors
    /// See [`ConnectError`]. For example, the provider could not set up the connection.
    pub async fn connect_with<C: Connector>(connector: C, addr: SocketAddr) -> Result<Self, ConnectError> {
        Self::builder().connect_with(connector, addr).await
    }

    /// Returns a builder that configures a channel before it connects.
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

#[cfg(test)]
mod tests;
