//! Connections by URL: iWARP over TCP, and RDMA devices with the feature `verbs` or `verbs-dlopen`.

use std::{fmt, net::SocketAddr, str::FromStr, time::Duration};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use rpcrdma_iwarp::{IwarpConfig, IwarpConnector, IwarpListener};
use rpcrdma_proto::provider::{
    ConnectRequest, Connected, Connector, Incoming, Listener, QueuePair, SetupError, SetupParams,
};
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
use rpcrdma_verbs::{VerbsConfig, VerbsConnector, VerbsListener};

use crate::link::{Link, RECEIVE_SIZE, RECEIVES};

/// The kind of transport, which is the scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fabric {
    /// `iwarp`: iWARP in user space over TCP.
    Iwarp,
    /// `rdma`: an RDMA device. Needs the feature `verbs` or `verbs-dlopen`.
    Rdma,
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iwarp => "iwarp",
            Self::Rdma => "rdma",
        })
    }
}

/// The URL of a server, or of an address to listen on: `iwarp://host:port` or `rdma://host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl {
    /// The transport that the scheme names.
    pub fabric: Fabric,
    /// The host and the port, as in `127.0.0.1:20049`.
    pub authority: String,
}

impl FromStr for PeerUrl {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (scheme, authority) = text.split_once("://").context("not a URL such as iwarp://host:20049")?;
        let fabric = match scheme {
            "iwarp" => Fabric::Iwarp,
            "rdma" if cfg!(any(feature = "verbs", feature = "verbs-dlopen")) => Fabric::Rdma,
            "rdma" => bail!("this program was built without RDMA devices: build it with --features verbs-dlopen"),
            _ => bail!("the scheme {scheme:?} is neither iwarp nor rdma"),
        };
        let authority = authority.trim_end_matches('/').to_owned();
        Ok(Self { fabric, authority })
    }
}

impl PeerUrl {
    /// Resolves the host, and returns its first address.
    ///
    /// # Errors
    /// Fails if the host is unknown, or if the URL has no port.
    pub async fn resolve(&self) -> anyhow::Result<Target> {
        let mut found = tokio::net::lookup_host(&self.authority)
            .await
            .with_context(|| format!("cannot resolve {:?}, which needs a host and a port", self.authority))?;
        let addr = found.next().with_context(|| format!("{:?} has no address", self.authority))?;
        Ok(Target { fabric: self.fabric, addr })
    }
}

/// The address of a server under test, or the address at which the peer waits for a client under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The transport of connections.
    pub fabric: Fabric,
    /// The resolved address.
    pub addr: SocketAddr,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.fabric, self.addr)
    }
}

/// Returns the parameters for the set-up of a connection, with [`RECEIVES`] Receives of [`RECEIVE_SIZE`] bytes.
fn params(private_data: Bytes, timeout: Duration) -> SetupParams {
    let mut params = SetupParams::default();
    (params.private_data, params.timeout) = (private_data, timeout);
    (params.receive_count, params.receive_size) = (RECEIVES, RECEIVE_SIZE);
    params
}

fn link<Q: QueuePair>(connected: Connected<Q>) -> Link {
    Link::new(Box::new(connected.queue_pair), connected.private_data)
}

/// Connects to a server under test.
pub(crate) async fn connect(target: Target, private_data: Bytes, timeout: Duration) -> Result<Link, SetupError> {
    let params = params(private_data, timeout);
    match target.fabric {
        Fabric::Iwarp => IwarpConnector::new(IwarpConfig::default()).connect(target.addr, params).await.map(link),
        #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
        Fabric::Rdma => VerbsConnector::new(VerbsConfig::default()).connect(target.addr, params).await.map(link),
        #[cfg(not(any(feature = "verbs", feature = "verbs-dlopen")))]
        Fabric::Rdma => unreachable!("URLs of devices are refused without the feature"),
    }
}

/// A listener for clients under test.
#[derive(Debug)]
pub(crate) enum Listening {
    Iwarp(IwarpListener),
    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
    Rdma(VerbsListener),
}

impl Listening {
    /// Listens on an address.
    pub(crate) async fn bind(at: Target) -> std::io::Result<Self> {
        match at.fabric {
            Fabric::Iwarp => IwarpListener::bind(at.addr, IwarpConfig::default()).await.map(Self::Iwarp),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            Fabric::Rdma => VerbsListener::bind(at.addr, VerbsConfig::default()).map(Self::Rdma),
            #[cfg(not(any(feature = "verbs", feature = "verbs-dlopen")))]
            Fabric::Rdma => unreachable!("URLs of devices are refused without the feature"),
        }
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        match self {
            Self::Iwarp(listener) => listener.local_addr(),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            Self::Rdma(listener) => listener.local_addr(),
        }
    }

    /// Waits for a client, and accepts its connection with this private data. The link has the client's private data.
    pub(crate) async fn accept(&self, private_data: Bytes, timeout: Duration) -> anyhow::Result<Link> {
        match self {
            Self::Iwarp(listener) => accept_from(listener, private_data, timeout).await,
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            Self::Rdma(listener) => accept_from(listener, private_data, timeout).await,
        }
    }
}

async fn accept_from<L: Listener>(listener: &L, private_data: Bytes, timeout: Duration) -> anyhow::Result<Link> {
    let request = listener.accept().await?.request(timeout).await?;
    let offered = Bytes::copy_from_slice(request.private_data());
    let connected = request.accept(params(private_data, timeout)).await?;
    Ok(Link::new(Box::new(connected.queue_pair), offered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_have_a_scheme_and_a_port() {
        let url: PeerUrl = "iwarp://127.0.0.1:20049/".parse().unwrap();
        let target = url.resolve().await.unwrap();
        assert_eq!(target.to_string(), "iwarp://127.0.0.1:20049");
        for (text, part) in [
            ("127.0.0.1:20049", "not a URL"),
            ("tcp://127.0.0.1:20049", "neither iwarp nor rdma"),
            #[cfg(not(any(feature = "verbs", feature = "verbs-dlopen")))]
            ("rdma://127.0.0.1:20049", "--features"),
        ] {
            let error = text.parse::<PeerUrl>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        let without_port: PeerUrl = "iwarp://127.0.0.1".parse().unwrap();
        assert!(without_port.resolve().await.unwrap_err().to_string().contains("needs a host and a port"));
    }
}
