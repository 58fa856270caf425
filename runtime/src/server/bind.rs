//! The start of a server from its configuration.

use std::{sync::Arc, time::Duration};

#[cfg(feature = "tls")]
use super::accept::TlsSource;
#[cfg(feature = "introspection")]
use super::introspection::Introspection;
#[cfg(feature = "tower")]
use super::layers::Layers;
use super::{
    accept::{Accept, RdmaSource, SourceAcceptor, StreamSource, TcpSource},
    builder::ServerBuilder,
    duplicates,
    handle::ServerShared,
    health::ServerHealth,
    hooks::ServerHooks,
    limits,
    listening::Server,
    room::ConnectionRoom,
    runtimes::Runtimes,
};
#[cfg(feature = "introspection")]
use crate::introspection::{ObservedCalls, protocol::introspection_v1::PROGRAM as INTROSPECTION};
#[cfg(feature = "tls")]
use crate::tls::{self, TlsPolicy, TlsServerConfig};
use crate::{
    config::ConfigError,
    health::protocol::health_v1::PROGRAM as HEALTH,
    memory::MemoryBudget,
    provider::iwarp::socket,
    session::{ChannelConfig, ServiceRegistry},
    transport::{SchemeKind, Url, UrlError},
};

/// Maximum number of calls back to one client that are in flight or waiting for a credit. Further calls wait before
/// they allocate memory.
const MAX_CALLBACKS: usize = 1024;
/// The default of [`ServerBuilder::idle_timeout`].
const IDLE_TIMEOUT: Duration = Duration::from_secs(360);
/// The default of [`ServerBuilder::first_call_timeout`].
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// The error of [`ServerBuilder::bind`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// A URL is invalid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The server cannot listen on a URL.
    #[error("cannot listen on {url}")]
    Listen {
        /// The URL, as it was passed to [`ServerBuilder::listen`].
        url: String,
        /// The error of the resolver or the listener.
        source: std::io::Error,
    },
    /// A URL asks for TLS, but the server has no certificate.
    #[cfg(feature = "tls")]
    #[error("TLS on {url} needs a certificate: call ServerBuilder::tls")]
    NoTlsConfig {
        /// The URL that asks for TLS.
        url: String,
    },
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No listener was configured.
    #[error("no listener configured: call ServerBuilder::listen or listen_with")]
    NoListener,
    /// Two services have the same program and version.
    #[error("two services for program {program:#010x} version {version}")]
    DuplicateService {
        /// The program number.
        program: u32,
        /// The program version.
        version: u32,
    },
    /// A setting refers to a program without a service.
    #[error("no service for program {program:#010x}: call ServerBuilder::service")]
    UnknownProgram {
        /// The program number.
        program: u32,
    },
}

impl ServerBuilder {
    /// Starts listening. Connections wait until [`Server::serve`] accepts them.
    ///
    /// # Errors
    /// See [`BindError`]: a setting is out of its range or refers to a program without a service, a URL is invalid or
    /// asks for TLS without a certificate, the server cannot listen on a URL, there is no listener, or two services
    /// have the same program and version.
    pub async fn bind(mut self) -> Result<Server, BindError> {
        self.config.check()?;
        for limiter in self.limits.values() {
            limiter.limits.check()?;
        }
        let mut urls = Vec::new();
        for text in &self.urls {
            let url: Url = text.parse()?;
            let listen = |source| BindError::Listen { url: text.clone(), source };
            for addr in url.resolve().await.map_err(listen)? {
                let acceptor: Box<dyn Accept> = match url.scheme().kind() {
                    SchemeKind::Rdma(provider) => {
                        let listener = provider.listen(url.options(), addr, self.shares_ports).map_err(listen)?;
                        Box::new(SourceAcceptor(Arc::new(RdmaSource(listener))))
                    }
                    SchemeKind::Stream(provider) => {
                        let listener = provider.listen(url.options(), addr, self.shares_ports).map_err(listen)?;
                        Box::new(SourceAcceptor(Arc::new(StreamSource(listener))))
                    }
                    SchemeKind::Tcp(_) => {
                        let tcp = socket::listen(addr, self.shares_ports).map_err(listen)?;
                        self.tcp_acceptor(&url, TcpSource::new(tcp).map_err(listen)?)?
                    }
                };
                urls.push(url.with_addr(acceptor.local_addr()).to_string());
                self.acceptors.push(acceptor);
            }
        }
        if self.acceptors.is_empty() {
            return Err(BindError::NoListener);
        }
        #[cfg(feature = "introspection")]
        let introspection = self.introspection.map(Introspection::new);
        #[cfg(feature = "introspection")]
        self.services.extend(introspection.as_ref().map(Introspection::service));
        let health = self.health.map(|health| ServerHealth::new(health, &self.services));
        self.services.extend(health.as_ref().map(ServerHealth::service));
        let unknown = |program| BindError::UnknownProgram { program };
        if let Some(program) = limits::unknown_program(&self.services, &self.limits) {
            return Err(unknown(program));
        }
        let caches = duplicates::caches(&self.services, self.duplicates).map_err(unknown)?;
        #[cfg(feature = "introspection")]
        let observed = introspection.as_ref().map(|_| ObservedCalls::of(&self.services)).unwrap_or_default();
        // A saturated server still reports its health, and stays inspectable.
        let exempt = health.as_ref().map(|_| HEALTH).into_iter();
        #[cfg(feature = "introspection")]
        let exempt = exempt.chain(introspection.as_ref().map(|_| INTROSPECTION));
        let exempt: Vec<u32> = exempt.collect();
        let hooks = ServerHooks {
            caches: &caches,
            limiters: &self.limits,
            exempt: &exempt,
            #[cfg(feature = "tower")]
            layers: Layers::new(self.layers).map(Arc::new),
            #[cfg(feature = "introspection")]
            observed: &observed,
        };
        let services = self.services.into_iter().map(|service| hooks.of(service));
        let registry = ServiceRegistry::new(services, self.authenticator, self.trace)
            .map_err(|(program, version)| BindError::DuplicateService { program, version })?;
        let budget = MemoryBudget::new(self.max_memory);
        let mut connection = self.config;
        connection.idle_timeout.get_or_insert(IDLE_TIMEOUT);
        connection.first_call_timeout.get_or_insert(FIRST_CALL_TIMEOUT);
        registry.provide(&mut connection.engine);
        connection.engine.max_fetched = connection.engine.max_fetched.min(budget.max_of_call());
        connection.stream.max_record = connection.stream.max_record.min(budget.max_of_call());
        let callbacks = ChannelConfig {
            call_timeout: Some(self.callback_timeout),
            ..ChannelConfig::new(connection, MAX_CALLBACKS)
        };
        let room = ConnectionRoom::new(self.max_connections, self.max_connections_per_host);
        let mut shared = ServerShared::new(registry, callbacks, budget, room, self.grace, self.drain_delay);
        shared.duplicates = caches;
        shared.limiters = self.limits.into_values().collect();
        shared.runtimes = Runtimes::new(self.runtimes);
        #[cfg(feature = "metrics")]
        {
            shared.measured = Some(super::measured::server(&shared.duplicates, &shared.limiters));
        }
        let shared = Arc::new(shared);
        if let Some(health) = health {
            health.attach(&shared);
        }
        #[cfg(feature = "introspection")]
        if let Some(introspection) = introspection {
            introspection.attach(&shared, observed);
        }
        Ok(Server::new(self.acceptors, urls, shared))
    }
}

#[cfg(feature = "tls")]
impl ServerBuilder {
    /// Returns the acceptor for a `tcp` URL, with TLS unless the policy turns TLS off. Fails if the URL asks for TLS,
    /// but the server has no certificate.
    fn tcp_acceptor(&self, url: &Url, source: TcpSource) -> Result<Box<dyn Accept>, BindError> {
        let configured = self.tls.as_ref().map(TlsServerConfig::policy);
        let policy = tls::effective_policy(configured, url.tls(), true)
            .map_err(|_| BindError::NoTlsConfig { url: url.to_string() })?;
        match &self.tls {
            Some(config) if policy != TlsPolicy::Off => {
                Ok(Box::new(SourceAcceptor(Arc::new(TlsSource::new(source, config.clone(), policy)))))
            }
            _ => Ok(Box::new(SourceAcceptor(Arc::new(source)))),
        }
    }
}

#[cfg(not(feature = "tls"))]
impl ServerBuilder {
    /// Returns the acceptor for a `tcp` URL.
    // The same signature as with TLS.
    #[allow(clippy::unnecessary_wraps, clippy::unused_self)]
    fn tcp_acceptor(&self, _url: &Url, source: TcpSource) -> Result<Box<dyn Accept>, BindError> {
        Ok(Box::new(SourceAcceptor(Arc::new(source))))
    }
}
