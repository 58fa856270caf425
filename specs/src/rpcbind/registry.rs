//! A client of rpcbind.

use std::{net::SocketAddr, time::Duration};

use rpcrdma::{CallError, CallOptions, Channel, ConnectError, rpc::RpcError};

use super::{
    IPPROTO_TCP, Mapping, Netid, RPCB_PORT, Rpcb, UniversalAddr, pmap_vers::PmapVersClient, rpcbvers4::Rpcbvers4Client,
};

/// The path of rpcbind's local socket.
#[cfg(unix)]
const SOCKET: &str = "/run/rpcbind.sock";

/// The time limit for connecting and for each call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A client of rpcbind on one host, which registers the addresses of programs and looks them up (RFC 1833).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use rpcrdma_specs::rpcbind::{Netid, Rpcbind};
///
/// let rpcbind = Rpcbind::connect("server.example").await?;
/// if let Some(addr) = rpcbind.lookup(100_003, 3, Netid::Rdma).await? {
///     println!("NFS version 3 over RDMA: {addr}");
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Rpcbind {
    channel: Channel,
}

impl Rpcbind {
    /// Connects to rpcbind on `host`, a name or an IP address, at TCP port 111 (RFC 1833 §2).
    ///
    /// # Errors
    /// Returns [`ConnectError`] if no connection can be established. Connecting to each address of the host times out
    /// after 10 s.
    pub async fn connect(host: &str) -> Result<Self, ConnectError> {
        Self::connect_to_port(host, RPCB_PORT as u16).await
    }

    /// Connects to rpcbind on `host` at another TCP port.
    ///
    /// # Errors
    /// See [`connect`](Self::connect).
    pub async fn connect_to_port(host: &str, port: u16) -> Result<Self, ConnectError> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let builder = Channel::builder().connect_timeout(TIMEOUT).call_timeout(TIMEOUT);
        builder.connect(&format!("tcp://{host}:{port}")).await.map(Self::new)
    }

    /// Connects to rpcbind on this host, through `/run/rpcbind.sock`. Servers register themselves through this socket.
    /// rpcbind records the user of the connecting process as the owner of a registration, and lets only the owner and
    /// the superuser remove it.
    ///
    /// # Errors
    /// See [`ConnectError`].
    #[cfg(unix)]
    pub async fn local() -> Result<Self, ConnectError> {
        let builder = Channel::builder().connect_timeout(TIMEOUT).call_timeout(TIMEOUT);
        builder.connect_unix(SOCKET).await.map(Self::new)
    }

    /// Waits until the connection to rpcbind is closed.
    #[cfg(unix)]
    pub(super) async fn closed(&self) {
        self.channel.closed().await;
    }

    /// Creates a client over a channel to rpcbind.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self { channel }
    }

    /// Returns the address at which a version of a program is registered for a transport. Returns `None` if it is not
    /// registered.
    ///
    /// rpcbind can be asked directly only about the transport of the call. For other transports, and over the local
    /// socket, this function lists all registrations (RFC 1833 §2.2.1). It replaces a wildcard address by the address
    /// of rpcbind. A port mapper (version 2) is asked only about TCP over IPv4.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn lookup(&self, program: u32, version: u32, netid: Netid) -> Result<Option<SocketAddr>, CallError> {
        let peer = self.channel.info().peer_addr;
        let client = Rpcbvers4Client::new(self.channel.clone());
        let own = if peer.is_ipv4() { Netid::Tcp } else { Netid::Tcp6 };
        let found = if netid == own && !peer.ip().is_unspecified() {
            // RFC 1833 §2.2.2: GETADDR may return the address of another version.
            client.rpcbproc_getversaddr(&entry(program, version, netid, "")).await.map(|addr| parse(addr.0.as_bytes()))
        } else {
            client.rpcbproc_dump().await.map(|list| {
                let mut entries = list.0.into_iter().map(|node| node.rpcb_map);
                let wanted = |entry: &Rpcb| {
                    (entry.r_prog, entry.r_vers, entry.r_netid.as_bytes())
                        == (program, version, netid.as_str().as_bytes())
                };
                entries.find(wanted).and_then(|map| parse(map.r_addr.as_bytes()))
            })
        };
        let found = match found {
            Err(CallError::Rpc { source: RpcError::ProgramMismatch { .. }, .. }) if netid == Netid::Tcp => {
                // RFC 1833 §3.2: the port of the question is ignored, and a port of zero means that nothing is
                // registered.
                let question = Mapping { prog: program, vers: version, prot: IPPROTO_TCP, port: 0 };
                let port = PmapVersClient::new(self.channel.clone()).pmapproc_getport(&question).await?;
                u16::try_from(port).ok().map(|port| SocketAddr::new(peer.ip(), port))
            }
            found => found?,
        };
        Ok(found
            .filter(|addr| addr.port() != 0)
            .map(|addr| if addr.ip().is_unspecified() { SocketAddr::new(peer.ip(), addr.port()) } else { addr }))
    }

    /// Registers the address of a version of a program for a transport. Returns `false` if rpcbind refuses, for example
    /// because another address is registered.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn register(
        &self,
        program: u32,
        version: u32,
        netid: Netid,
        addr: SocketAddr,
    ) -> Result<bool, CallError> {
        let entry = entry(program, version, netid, &UniversalAddr(addr).to_string());
        Rpcbvers4Client::new(self.channel.clone()).rpcbproc_set(&entry).await
    }

    /// Removes the registration of a version of a program for a transport. Returns `false` if there is none, or if
    /// rpcbind refuses.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn unregister(&self, program: u32, version: u32, netid: Netid) -> Result<bool, CallError> {
        Rpcbvers4Client::new(self.channel.clone())
            .rpcbproc_unset_with(&entry(program, version, netid, ""), CallOptions::new().repeatable())
            .await
    }
}

fn entry(program: u32, version: u32, netid: Netid, addr: &str) -> Rpcb {
    Rpcb {
        r_prog: program,
        r_vers: version,
        r_netid: netid.as_str().into(),
        r_addr: addr.into(),
        // rpcbind determines the owner itself.
        r_owner: "".into(),
    }
}

fn parse(addr: &[u8]) -> Option<SocketAddr> {
    let addr: UniversalAddr = std::str::from_utf8(addr).ok()?.parse().ok()?;
    Some(addr.0)
}
