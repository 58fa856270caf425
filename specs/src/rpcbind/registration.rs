//! The registration of a server.

use std::{error::Error, fmt, net::SocketAddr};

use rpcrdma::{CallError, transport::Url};

use super::{Netid, Rpcbind};

/// The registration of a server's listeners with rpcbind, until [`unregister`](Self::unregister).
///
/// ```no_run
/// # async fn example(service: impl rpcrdma::server::Service) -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma::Server;
/// use rpcrdma_specs::rpcbind::{Registration, Rpcbind};
///
/// let server = Server::builder().service(service).listen("iwarp://[::]:20100").bind().await?;
/// let registration = Registration::new(Rpcbind::local().await?, &[(0x2000_0001, 1)], server.urls()).await?;
/// let handle = server.handle();
/// tokio::spawn(async move {
///     handle.unready().await;
///     registration.unregister().await
/// });
/// server.serve().await;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "unregister the server before it ends"]
pub struct Registration {
    rpcbind: Rpcbind,
    entries: Vec<(u32, u32, Netid)>,
}

/// The error of a registration.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum RegisterError {
    /// The call to rpcbind failed.
    Call(CallError),
    /// rpcbind refused the registration.
    Refused {
        /// The program number.
        program: u32,
        /// The program version.
        version: u32,
        /// The transport.
        netid: Netid,
        /// The address of the listener.
        addr: SocketAddr,
    },
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Refused { program, version, netid, addr } => write!(
                f,
                "rpcbind refused to register program {program:#x} version {version} over {netid} at {addr}: another server may be \
                 registered, see `rpcinfo`"
            ),
        }
    }
}

impl Error for RegisterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Call(error) => error.source(),
            Self::Refused { .. } => None,
        }
    }
}

/// Returns the netids and addresses to register for a listener.
fn addresses(url: &str) -> Vec<(Netid, SocketAddr)> {
    let Ok(url) = url.parse::<Url>() else { return Vec::new() };
    let Ok(ip) = url.host().parse() else { return Vec::new() };
    let mut addresses = vec![SocketAddr::new(ip, url.port())];
    // A listener on the wildcard address of IPv6 accepts IPv4 as well.
    if ip == std::net::Ipv6Addr::UNSPECIFIED {
        addresses.push(SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), url.port()));
    }
    addresses.into_iter().map(|addr| (Netid::of(url.scheme().transport(), addr.ip()), addr)).collect()
}

impl Registration {
    /// Registers each of `programs`, which are pairs of a number and a version, at each of `urls`
    /// ([`Server::urls`](rpcrdma::server::Server::urls)). For each transport, only the first URL is registered. Registrations that a
    /// predecessor has left are replaced.
    ///
    /// # Errors
    /// See [`RegisterError`]. Nothing stays registered then.
    pub async fn new(rpcbind: Rpcbind, programs: &[(u32, u32)], urls: &[String]) -> Result<Self, RegisterError> {
        let mut registration = Self { rpcbind, entries: Vec::new() };
        let mut listeners: Vec<_> = urls.iter().flat_map(|url| addresses(url)).collect();
        // The sort is stable, so the first URL of each transport stays.
        listeners.sort_by_key(|(netid, _)| *netid);
        listeners.dedup_by_key(|(netid, _)| *netid);
        for &(program, version) in programs {
            for &(netid, addr) in &listeners {
                if let Err(error) = registration.add(program, version, netid, addr).await {
                    registration.unregister().await;
                    return Err(error);
                }
            }
        }
        Ok(registration)
    }

    async fn add(&mut self, program: u32, version: u32, netid: Netid, addr: SocketAddr) -> Result<(), RegisterError> {
        self.rpcbind.unregister(program, version, netid).await.map_err(RegisterError::Call)?;
        if !self.rpcbind.register(program, version, netid, addr).await.map_err(RegisterError::Call)? {
            return Err(RegisterError::Refused { program, version, netid, addr });
        }
        self.entries.push((program, version, netid));
        Ok(())
    }

    /// Removes the registrations. Errors are ignored, because rpcbind may have ended before the server.
    pub async fn unregister(self) {
        for (program, version, netid) in self.entries {
            let _ = self.rpcbind.unregister(program, version, netid).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        let of = |url| addresses(url).iter().map(|(netid, addr)| format!("{netid} {addr}")).collect::<Vec<_>>();
        assert_eq!(of("tcp://192.0.2.1:7"), ["tcp 192.0.2.1:7"]);
        assert_eq!(of("iwarp://[::]:20100?crc=off"), ["rdma6 [::]:20100", "rdma 0.0.0.0:20100"]);
        assert!(of("tcp://a.name:1").is_empty() && of("no URL").is_empty());
    }
}
