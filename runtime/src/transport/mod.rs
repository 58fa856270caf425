//! Transports, and the URLs that select them.

mod url;

#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
use std::net::SocketAddr;
use std::{fmt, io};

use tokio::net::TcpListener;
pub use url::{Scheme, TlsPolicy, UnknownTlsPolicy, Url, UrlError};

use crate::provider::iwarp::{IwarpConfig, IwarpConnector, IwarpListener};
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
use crate::provider::verbs::{VerbsConfig, VerbsConnector, VerbsListener};

/// The kind of transport that carries the RPC messages of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// RPC-over-RDMA, in any version and on any provider.
    Rdma,
    /// TCP with record marking (RFC 5531 §11). It has no direct data placement, no credits and no private data.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "RPC-over-RDMA",
            Self::Tcp => "TCP with record marking",
        })
    }
}

fn iwarp_config(url: &Url) -> IwarpConfig {
    let mut config = IwarpConfig::default();
    (config.crc, config.local, config.busy_poll) = (url.crc(), url.local(), url.busy_poll());
    config
}

/// Returns the connector for an `iwarp://` URL.
pub(crate) fn iwarp_connector(url: &Url) -> IwarpConnector {
    IwarpConnector::new(iwarp_config(url))
}

/// Returns a listener on `addr` with the options of an `iwarp://` URL.
pub(crate) fn iwarp_listener(url: &Url, listener: TcpListener) -> io::Result<IwarpListener> {
    IwarpListener::from_tcp(listener, iwarp_config(url))
}

#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
fn verbs_config(url: &Url) -> VerbsConfig {
    let mut config = VerbsConfig::default();
    (config.busy_poll, config.shared_receives, config.local) = (url.busy_poll(), url.shared_receives(), url.local());
    config
}

/// Returns the connector for an `rdma://` URL.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
pub(crate) fn rdma_connector(url: &Url) -> VerbsConnector {
    VerbsConnector::new(verbs_config(url))
}

/// Returns a listener on `addr` with the options of an `rdma://` URL.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
pub(crate) fn rdma_listener(url: &Url, addr: SocketAddr) -> io::Result<VerbsListener> {
    VerbsListener::bind(addr, verbs_config(url))
}
