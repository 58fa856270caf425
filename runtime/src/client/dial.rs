//! Setting a client's connection up.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc};

use super::{builder::ChannelConfig, channel::ChannelInfo, error::ConnectError, link::Link};
use crate::{
    driver::{self, Core, DriverConfig, NoUpcalls, Port},
    engine::Role,
    provider::{Connector, SetupError},
    transport::{Scheme, Url},
};

pub(super) type Dialing<'a> = Pin<Box<dyn Future<Output = Result<Arc<Link>, ConnectError>> + Send + 'a>>;

/// Makes connections to one server, whatever the provider.
pub(super) trait Dial: Send + Sync {
    fn dial<'a>(&'a self, config: &'a ChannelConfig) -> Dialing<'a>;
}

/// By a provider that the caller chose, to one address.
pub(super) struct Dialer<C> {
    pub(super) connector: C,
    pub(super) addr: SocketAddr,
}

impl<C: Connector> Dial for Dialer<C> {
    fn dial<'a>(&'a self, config: &'a ChannelConfig) -> Dialing<'a> {
        Box::pin(async move {
            connect(&self.connector, self.addr, config)
                .await
                .map_err(|source| ConnectError::Setup { peer: self.addr, source })
        })
    }
}

/// By the provider that a URL names. The host is resolved each time: it may have moved.
pub(super) struct UrlDialer {
    pub(super) url: Url,
}

impl Dial for UrlDialer {
    fn dial<'a>(&'a self, config: &'a ChannelConfig) -> Dialing<'a> {
        Box::pin(async move {
            let unresolved = |source| ConnectError::Resolve { host: self.url.host().to_owned(), source };
            let mut last = None;
            for peer in self.url.resolve().await.map_err(unresolved)? {
                let connected = match self.url.scheme() {
                    Scheme::Iwarp => connect(&crate::transport::iwarp_connector(&self.url), peer, config).await,
                };
                match connected {
                    Ok(link) => return Ok(link),
                    Err(source) => {
                        tracing::debug!(%peer, error = %source, "connection attempt failed");
                        last = Some(ConnectError::Setup { peer, source });
                    }
                }
            }
            Err(last.unwrap_or_else(|| unresolved(std::io::ErrorKind::NotFound.into())))
        })
    }
}

async fn connect<C: Connector>(
    connector: &C,
    peer: SocketAddr,
    config: &ChannelConfig,
) -> Result<Arc<Link>, SetupError> {
    let connection = &config.connection;
    let params = connection.setup_params();
    // The provider keeps to the time as well; this holds where one does not.
    let connected = tokio::time::timeout(connection.setup_timeout, connector.connect(peer, params))
        .await
        .map_err(|_| SetupError::TimedOut(connection.setup_timeout))??;
    let (engine, agreed) = connection.engine(Role::Client, &connected.private_data);
    let info = ChannelInfo {
        peer_addr: connected.peer_addr,
        local_addr: connected.local_addr,
        private_data: connected.private_data,
        send_threshold: agreed.send_threshold,
        receive_threshold: agreed.receive_threshold,
        remote_invalidation: agreed.remote_invalidation,
    };
    let span = tracing::info_span!(target: "rpcrdma", "connection", role = "client", peer = %info.peer_addr);
    let port = Arc::new(Port::new(config.max_calls));
    let driver = DriverConfig { idle_timeout: connection.idle_timeout };
    let core = Core::new(engine, connected.queue_pair, NoUpcalls, Arc::clone(&port), driver);
    Ok(Arc::new(Link { drive: driver::spawn(core, span), port, info }))
}
