//! Network identifiers and universal addresses (RFC 5665).

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use rpcrdma::transport::Transport;

/// A network identifier (netid): a transport and an address family (RFC 5665 §5.1, RFC 8166 §5, RFC 8267 §4.2,
/// RPC-over-RDMA v2 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Netid {
    /// `tcp`: TCP over IPv4.
    Tcp,
    /// `tcp6`: TCP over IPv6.
    Tcp6,
    /// `udp`: UDP over IPv4.
    Udp,
    /// `udp6`: UDP over IPv6.
    Udp6,
    /// `rdma`: RPC-over-RDMA with IPv4 addresses.
    Rdma,
    /// `rdma6`: RPC-over-RDMA with IPv6 addresses.
    Rdma6,
}

impl Netid {
    /// Returns the netid of a listener with this transport and address (RFC 1833 §2.2.1). Userspace iWARP has the
    /// netids of RDMA.
    #[must_use]
    pub fn of(transport: Transport, ip: IpAddr) -> Self {
        match (transport, ip.is_ipv4()) {
            (Transport::Tcp, true) => Self::Tcp,
            (Transport::Tcp, false) => Self::Tcp6,
            (_, true) => Self::Rdma,
            (_, false) => Self::Rdma6,
        }
    }

    /// Returns the netid as text, in the form that rpcbind uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
            Self::Udp => "udp",
            Self::Udp6 => "udp6",
            Self::Rdma => "rdma",
            Self::Rdma6 => "rdma6",
        }
    }
}

impl fmt::Display for Netid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The universal address of a socket (RFC 1833 §2, RFC 5665 §5.2.3.3, §5.2.3.4).
///
/// It consists of the IP address and of the high and the low byte of the port as decimal numbers, separated by dots.
/// For example, `192.0.2.1.78.81` is port 20049 of `192.0.2.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UniversalAddr(pub SocketAddr);

impl fmt::Display for UniversalAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.0.port().to_be_bytes();
        write!(f, "{}.{high}.{low}", self.0.ip())
    }
}

/// The error for text that is not the universal address of an IP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUniversalAddr(String);

impl fmt::Display for BadUniversalAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a universal address of IP, expected ADDRESS.HIGH.LOW", self.0)
    }
}

impl std::error::Error for BadUniversalAddr {}

impl FromStr for UniversalAddr {
    type Err = BadUniversalAddr;

    fn from_str(text: &str) -> Result<Self, BadUniversalAddr> {
        let parse = || {
            let (rest, low) = text.rsplit_once('.')?;
            let (ip, high) = rest.rsplit_once('.')?;
            let byte = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?;
            Some(Self(SocketAddr::new(ip.parse().ok()?, u16::from_be_bytes([byte(high)?, byte(low)?]))))
        };
        parse().ok_or_else(|| BadUniversalAddr(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn universal_addresses() {
        for (text, addr) in [
            ("192.0.2.1.78.81", "192.0.2.1:20049"),
            ("0.0.0.0.0.111", "0.0.0.0:111"),
            ("::1.8.1", "[::1]:2049"),
            ("2001:db8::7.255.255", "[2001:db8::7]:65535"),
        ] {
            let addr: SocketAddr = addr.parse().unwrap();
            assert_eq!(text.parse(), Ok(UniversalAddr(addr)));
            assert_eq!(UniversalAddr(addr).to_string(), text);
        }
        for bad in ["", "1", "1.2.3.4", "1.2.3.4.256.1", "1.2.3.4.1.+1", "a.b", "/run/rpcbind.sock", "1.2.3.4.1."] {
            let error = bad.parse::<UniversalAddr>().unwrap_err().to_string();
            assert!(error.contains("ADDRESS.HIGH.LOW"), "{bad}: {error}");
        }
    }

    #[test]
    fn netids() {
        let [v4, v6]: [IpAddr; 2] = ["192.0.2.1", "::1"].map(|ip| ip.parse().unwrap());
        let names = [(Transport::Tcp, v4), (Transport::Tcp, v6), (Transport::Rdma, v4), (Transport::Rdma, v6)]
            .map(|(transport, ip)| Netid::of(transport, ip).to_string());
        assert_eq!(names, ["tcp", "tcp6", "rdma", "rdma6"]);
    }
}
