//! Owners of locks: hosts and their processes.

use std::{net::IpAddr, sync::Arc};

use crate::command::limited_host;

/// A client host, identified by its address and by the name that it gives itself. Clients behind one address, such as
/// containers, differ by their names. The address keeps a client from acting as a host at another address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Host {
    pub(super) addr: IpAddr,
    pub(super) name: Box<[u8]>,
}

impl Host {
    pub(super) fn new(addr: IpAddr, name: &[u8]) -> Self {
        Self { addr: addr.to_canonical(), name: name.into() }
    }

    /// Returns `true` if `name` is the name of this host, or if one of the two consists of the first labels of the
    /// other. NSM has the canonical name of a host, and NLM often its first label.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        let is_first_label = |long: &[u8], short: &[u8]| {
            long.len() > short.len()
                && long[short.len()] == b'.'
                && !short.is_empty()
                && long[..short.len()].eq_ignore_ascii_case(short)
        };
        self.name.eq_ignore_ascii_case(name) || is_first_label(&self.name, name) || is_first_label(name, &self.name)
    }

    /// Returns the address under which the locks of this host are counted. Hosts of one IPv6 subnet share it.
    pub(super) fn account(&self) -> IpAddr {
        limited_host(self.addr)
    }
}

/// A process on a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub(super) host: Arc<Host>,
    /// The number of the process.
    pub(super) svid: i32,
    /// The identifier that the host has chosen for the process.
    pub(super) oh: Box<[u8]>,
}

impl Owner {
    /// Returns the number of units that one lock of this owner takes, see [`LockLimits`](super::limits::LockLimits):
    /// one, and another one for every 128 bytes of the identifier, which has up to 1024 bytes.
    pub(super) fn weight(&self) -> usize {
        1 + self.oh.len() / 128
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_with_and_without_the_domain() {
        let host = |name: &str| Host::new(IpAddr::from([192, 0, 2, 1]), name.as_bytes());
        assert!(host("alpha").is_named(b"alpha") && host("alpha").is_named(b"ALPHA.example"));
        assert!(host("alpha.example").is_named(b"alpha"));
        for other in ["alphabet", "beta", "", "alpha-2.example"] {
            assert!(!host("alpha").is_named(other.as_bytes()), "{other}");
        }
        assert!(!host("alpha.example").is_named(b"alpha.test"));
    }

    #[test]
    fn accounts_contain_subnets_of_ipv6() {
        let account = |addr: &str| Host::new(addr.parse().unwrap_or(IpAddr::from([0, 0, 0, 0])), b"x").account();
        assert_eq!(account("2001:db8::1"), account("2001:db8::2"));
        assert_ne!(account("2001:db8::1"), account("2001:db8:0:1::1"));
        assert_ne!(account("192.0.2.1"), account("192.0.2.2"));
        assert_eq!(account("::ffff:192.0.2.1"), account("192.0.2.1"));
    }
}
