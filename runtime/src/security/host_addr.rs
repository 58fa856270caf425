//! The hosts to which the limits of a server apply.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The address of a host, to which limits apply: an IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostAddr(IpAddr);

impl HostAddr {
    pub(crate) fn of(addr: SocketAddr) -> Self {
        Self(match addr.ip().to_canonical() {
            // A host often has all addresses with its prefix (RFC 4291 §2.5.4).
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
            ip @ IpAddr::V4(_) => ip,
        })
    }

    /// Returns a number that identifies the host.
    pub(crate) fn number(self) -> u128 {
        match self.0 {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_distinguished() {
        let host = |text: &str| text.parse::<IpAddr>().map(|ip| HostAddr::of((ip, 1).into()));
        let is_one = |one: &str, other: &str| {
            let is_one = host(one) == host(other);
            assert_eq!(host(one).map(HostAddr::number) == host(other).map(HostAddr::number), is_one);
            is_one
        };
        assert!(is_one("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!is_one("10.0.0.1", "10.0.0.2"));
        assert!(is_one("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!is_one("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(!is_one("10.0.0.1", "::1"));
    }
}
