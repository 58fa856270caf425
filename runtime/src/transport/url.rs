//! Transport URLs: `iwarp://host:port`, `iwarp://[::1]:20049?crc=off`, `rdma://host:port`, `tcp://host:port`.

use std::{fmt, net::SocketAddr, str::FromStr};

use super::{
    options::{UrlOption, UrlOptions},
    scheme::Scheme,
};
use crate::engine::Versions;

/// The use of TLS on a `tcp` connection (RFC 9289), ordered from the weakest to the strongest policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum TlsPolicy {
    /// No TLS. A client does not ask for it, and a server does not offer it.
    Off,
    /// TLS if the peer supports it, and no TLS otherwise. Protects only against passive eavesdropping: an attacker who
    /// can change messages in transit can also remove the offer of TLS (RFC 9289 §6.1.1).
    Opportunistic,
    /// TLS, or no connection.
    #[default]
    Required,
}

impl TlsPolicy {
    /// Returns the policy as it is written in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Opportunistic => "opportunistic",
            Self::Required => "required",
        }
    }
}

impl fmt::Display for TlsPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TlsPolicy {
    type Err = UnknownTlsPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownTlsPolicy> {
        let all = [Self::Off, Self::Opportunistic, Self::Required];
        all.into_iter().find(|policy| policy.as_str() == text).ok_or_else(|| UnknownTlsPolicy(text.to_owned()))
    }
}

/// The error of parsing a [`TlsPolicy`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown TLS policy `{0}`, expected off, opportunistic or required")]
pub struct UnknownTlsPolicy(String);

/// The address of a server, to connect to or to listen on: `scheme://host:port[?option=value[&option=value]]`.
///
/// `host` is a name, an IPv4 address, or an IPv6 address in brackets. A URL has each option at most once. A
/// [registered](Scheme::register) scheme has the options of its provider, `priority` and `weight`, and for RDMA also
/// `version`. "All schemes" below means the schemes of this crate and, for `priority` and `weight`, registered schemes.
///
/// * `crc=on`, `crc=off` (`iwarp`): Requests the CRC of RFC 5044, or not. Default `on`.
/// * `busy=MICROSECONDS` (`iwarp`, `rdma`): Time to poll the socket or the device before waiting for an event, at most
///   1000000. Default 0.
/// * `srq=RECEIVES` (`rdma`): Maximum number of Receives that the connections of a server share on a device, for each
///   of its runtimes, at most 65536. 1 to 63 mean 64. 0 means that each connection has its own Receives. Clients and
///   iWARP devices ignore this option. Default 0.
/// * `tclass=N` (`iwarp`, `rdma`): Traffic class of the packets, 0 to 255: the DSCP in the upper six bits. Default: the
///   system's traffic class.
/// * `ack_timeout=N` (`rdma`): Time that the device waits for an acknowledgment before it repeats packets: 4.096
///   microseconds times 2 to the power of N, 1 to 31. Default: chosen by the connection manager.
/// * `retries=N` (`rdma`): Number of times that both devices repeat packets without an acknowledgment, 0 to 7. Servers
///   ignore it. Default 7.
/// * `rnr_retries=N` (`rdma`): Number of times that the peer's device repeats a Send that finds no Receive, 0 to 7,
///   where 7 means without limit. Default 7 with `srq`, and otherwise 0.
/// * `relaxed=on`, `relaxed=off` (`rdma`): Permits the device to write memory in any order. Default `off`.
/// * `version=1`, `version=2`, `version=both` (`iwarp`, `rdma`): The [versions](Versions) of RPC-over-RDMA that a
///   client offers, in place of the configured versions.
/// * `local=ADDRESS` (all schemes): The local IP address of a client, without a port. It selects the network interface
///   or RDMA device. An IPv6 address has no brackets. Servers ignore it. Default: chosen by the system.
/// * `name=NAME` (`tcp`): The DNS name or IP address that the server's certificate must have, in place of the host.
///   Discovery sets this option if it replaces a name with an address. The name of the TLS configuration takes
///   precedence.
/// * `priority=NUMBER` (all schemes): The priority of a server in [service discovery](crate::client), as in an SRV
///   record (RFC 2782). A balancer uses the servers with the lowest number for which any server can be reached. At most
///   65535. A single channel ignores it. Default 0.
/// * `weight=NUMBER` (all schemes): The share of the calls that a balancer sends to this server among those of its
///   priority, relative to their weights. With 0, the server gets nearly no calls if another weight is larger. A single
///   channel ignores this option. Default 1.
/// * `tls=off`, `tls=opportunistic`, `tls=required` (`tcp`): The [policy](TlsPolicy) for TLS, in place of the policy of
///   the TLS configuration. All but `off` need the feature `tls`.
///
/// ```
/// use rpcrdma::transport::{Scheme, Url};
///
/// let url: Url = "iwarp://[::1]:20049?crc=off".parse()?;
/// assert_eq!((url.scheme(), url.host(), url.port()), (Scheme::IWARP, "::1", 20049));
/// assert_eq!(url.options().get("crc"), Some("off"));
/// # Ok::<(), rpcrdma::transport::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    host: String,
    port: u16,
    options: UrlOptions,
}

/// The error of parsing a transport URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text contains no `://`.
    #[error("`{url}` is not a transport URL, expected scheme://host:port")]
    NoScheme {
        /// The text of the URL.
        url: String,
    },
    /// The scheme is unknown.
    #[error("unknown scheme `{scheme}` in `{url}`, expected one of {}{hint}", Scheme::names().join(", "))]
    UnknownScheme {
        /// The text of the URL.
        url: String,
        /// The unknown scheme.
        scheme: String,
        /// A hint for the user, appended to the message. May be empty.
        hint: &'static str,
    },
    /// The host is missing or malformed.
    #[error("`{url}` has no host, or an IPv6 address without brackets: write iwarp://[::1]:20049")]
    BadHost {
        /// The text of the URL.
        url: String,
    },
    /// The port is missing or not a number up to 65535.
    #[error("`{url}` has no port number after the host, or one above 65535")]
    BadPort {
        /// The text of the URL.
        url: String,
    },
    /// The URL has a path other than `/`.
    #[error("`{url}` has a path: a transport URL has no path")]
    Path {
        /// The text of the URL.
        url: String,
    },
    /// The scheme does not have this option, or the option does not accept this value.
    #[error("`{url}` has the unknown option `{option}`, expected {expected}")]
    UnknownOption {
        /// The text of the URL.
        url: String,
        /// The option and its value.
        option: String,
        /// The options of the scheme and their values.
        expected: String,
    },
    /// The URL has an option twice.
    #[error("`{url}` has the option `{option}` twice")]
    RepeatedOption {
        /// The text of the URL.
        url: String,
        /// The name of the option.
        option: &'static str,
    },
    /// The URL requests TLS, but the feature `tls` is not enabled.
    #[error("`{url}` asks for TLS, which is not part of this build (feature `tls`)")]
    NoTls {
        /// The text of the URL.
        url: String,
    },
}

impl Url {
    /// Creates the URL of `addr` with `scheme`, without options.
    #[must_use]
    pub fn new(scheme: Scheme, addr: SocketAddr) -> Self {
        Self { scheme, host: addr.ip().to_string(), port: addr.port(), options: UrlOptions::default() }
    }

    /// Returns a copy of this URL with the host and the port of `addr`. The options stay.
    #[must_use]
    pub fn with_addr(&self, addr: SocketAddr) -> Self {
        Self { host: addr.ip().to_string(), port: addr.port(), ..self.clone() }
    }

    /// Returns a copy of this URL with `addr`, an address of the server `name` from an untrusted source such as DNS.
    /// The options stay.
    ///
    /// If the scheme has the option `name`, the option is set to `name` without a trailing dot. With TLS, the server's
    /// certificate must then have the name that was looked up. The option is not changed if the URL already has it, or
    /// if `name` is an IP address or not a valid value of the option.
    #[must_use]
    pub fn with_found_addr(&self, addr: SocketAddr, name: &str) -> Self {
        let mut found = self.with_addr(addr);
        let name = name.strip_suffix('.').unwrap_or(name);
        let option = self.scheme.options().find(|option| option.name() == "name" && option.is_valid(name));
        if let Some(option) = option
            && found.name().is_none()
            && name.parse::<std::net::IpAddr>().is_err()
        {
            found.options.add(option, name);
        }
        found
    }

    /// Returns this URL with the option `tls` set to `policy`. Only for URLs of the scheme `tcp`.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(mut self, policy: TlsPolicy) -> Self {
        self.options.set("tls", policy.as_str());
        self
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the host. An IPv6 address has no brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> &UrlOptions {
        &self.options
    }

    /// Returns the versions of RPC-over-RDMA that a client offers (`version=1|2|both`), or `None` if the client's
    /// configuration decides.
    #[must_use]
    pub fn versions(&self) -> Option<Versions> {
        self.options.parsed("version")
    }

    /// Returns the policy for TLS (`tls=off|opportunistic|required`), or `None` if the TLS configuration decides.
    #[must_use]
    pub fn tls(&self) -> Option<TlsPolicy> {
        self.options.parsed("tls")
    }

    /// Returns the name that the certificate of the server must have (`name=NAME`). Without this option, returns
    /// `None`, and the certificate must have the name of the host. The name of the TLS configuration takes precedence.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.options.get("name")
    }

    /// Returns the priority of the server in service discovery (`priority=NUMBER`). Returns 0 if the URL does not have
    /// this option.
    #[must_use]
    pub fn priority(&self) -> u16 {
        self.options.parsed("priority").unwrap_or(0)
    }

    /// Returns the weight of the server among the servers of its priority (`weight=NUMBER`). Returns 1 if the URL does
    /// not have this option.
    #[must_use]
    pub fn weight(&self) -> u32 {
        self.options.parsed("weight").unwrap_or(1)
    }

    /// Returns this URL with the given priority and weight, which replace earlier values of both options.
    #[must_use]
    pub fn with_priority(mut self, priority: u16, weight: u32) -> Self {
        self = self.without_priority();
        self.options.add(&UrlOption::PRIORITY, &priority.to_string());
        self.options.add(&UrlOption::WEIGHT, &weight.to_string());
        self
    }

    /// Returns this URL without the options `priority` and `weight`, which do not affect the connection.
    pub(crate) fn without_priority(mut self) -> Self {
        self.options.remove("priority");
        self.options.remove("weight");
        self
    }

    /// Resolves the host with the system's resolver, and returns its addresses. There is at least one.
    ///
    /// # Errors
    /// Returns the error of the resolver, or [`NotFound`](std::io::ErrorKind::NotFound) if the host has no address.
    pub async fn resolve(&self) -> std::io::Result<Vec<SocketAddr>> {
        let addrs: Vec<_> = tokio::net::lookup_host((self.host.as_str(), self.port)).await?.collect();
        if addrs.is_empty() {
            return Err(std::io::Error::new(std::io::ErrorKind::NotFound, format!("{} has no address", self.host)));
        }
        Ok(addrs)
    }
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let url = || text.to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UrlError::NoScheme { url: url() })?;
        let scheme = Scheme::find(scheme).ok_or_else(|| {
            let hint = match scheme {
                "rdma" => "; verbs are not part of this build (feature `verbs` or `verbs-dlopen`)",
                _ => "",
            };
            UrlError::UnknownScheme { url: url(), scheme: scheme.to_owned(), hint }
        })?;
        let (authority, query) = match rest.split_once('?') {
            Some((authority, query)) => (authority, Some(query)),
            None => (rest, None),
        };
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains('/') {
            return Err(UrlError::Path { url: url() });
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or_else(|| UrlError::BadHost { url: url() })?;
                if host.parse::<std::net::Ipv6Addr>().is_err() {
                    return Err(UrlError::BadHost { url: url() });
                }
                (host, port.strip_prefix(':'))
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        // A second colon means an IPv6 address without brackets.
        if host.is_empty() || port.is_some_and(|port| port.contains(':')) {
            return Err(UrlError::BadHost { url: url() });
        }
        let port = port
            .filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|port| port.parse().ok())
            .ok_or_else(|| UrlError::BadPort { url: url() })?;
        let mut parsed = Self { scheme, host: host.to_owned(), port, options: UrlOptions::default() };
        for text in query.into_iter().flat_map(|query| query.split('&')).filter(|option| !option.is_empty()) {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            let known = scheme.options().find(|option| option.name() == name && option.is_valid(value));
            let known = known.ok_or_else(|| UrlError::UnknownOption {
                url: url(),
                option: text.to_owned(),
                expected: scheme.options().map(UrlOption::to_string).collect::<Vec<_>>().join(", "),
            })?;
            if parsed.options.get(name).is_some() {
                return Err(UrlError::RepeatedOption { url: url(), option: known.name() });
            }
            parsed.options.add(known, value);
        }
        if !cfg!(feature = "tls") && parsed.tls().is_some_and(|policy| policy != TlsPolicy::Off) {
            return Err(UrlError::NoTls { url: url() });
        }
        Ok(parsed)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme.as_str())?;
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            f.write_str(&self.host)?
        }
        write!(f, ":{}{}", self.port, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, versions) in [
            ("iwarp://[::1]:20049", None),
            ("iwarp://host:1?version=1", Some(Versions::V1)),
            ("iwarp://host:1?crc=off&version=2", Some(Versions::V2)),
            ("iwarp://host:1?version=both", Some(Versions::Both)),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.versions(), url.to_string().as_str()), (versions, text));
        }
        for wrong in ["", "0", "3", "1,2", "2..=1", "1..=2", "+1"] {
            let url = format!("iwarp://host:1?version={wrong}");
            let option = format!("version={wrong}");
            let expected =
                "local=ADDRESS, crc=on|off, busy=MICROSECONDS, tclass=0-255, version=1|2|both, priority=0-65535, \
                            weight=NUMBER"
                    .to_owned();
            assert_eq!(url.parse::<Url>(), Err(UrlError::UnknownOption { url, option, expected }));
        }
    }

    #[test]
    fn good() {
        for (text, scheme, host, port, crc) in [
            ("iwarp://localhost:20100", Scheme::IWARP, "localhost", 20100, None),
            ("iwarp://127.0.0.1:0?crc=on", Scheme::IWARP, "127.0.0.1", 0, Some("on")),
            ("iwarp://[::1]:20049?crc=off", Scheme::IWARP, "::1", 20049, Some("off")),
            ("tcp://[::1]:111", Scheme::TCP, "::1", 111, None),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!(
                (url.scheme(), url.host(), url.port(), url.options().get("crc")),
                (scheme, host, port, crc),
                "{text}"
            );
            assert_eq!(url.to_string(), text);
        }
        // RFC 3986 §3.1: schemes are the same in upper case, and are written in lower case.
        let url: Url = "iWARP://host:1".parse().unwrap();
        assert_eq!((url.scheme(), url.to_string().as_str()), (Scheme::IWARP, "iwarp://host:1"));
    }

    #[test]
    fn local_addresses() {
        for (text, local) in [
            ("iwarp://host:1?local=192.0.2.7", "192.0.2.7"),
            ("iwarp://host:1?crc=off&version=2&local=fd09::1", "fd09::1"),
            ("tcp://[::1]:111?local=::1&tls=off", "::1"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.options().local(), url.to_string().as_str()), (Some(local.parse().unwrap()), text));
        }
    }

    #[test]
    fn priorities() {
        for (text, priority, weight) in [
            ("iwarp://host:1", 0, 1),
            ("iwarp://host:1?priority=65535&weight=0&crc=off", 65535, 0),
            ("tcp://[::1]:1?weight=4294967295", 0, u32::MAX),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.priority(), url.weight(), url.to_string().as_str()), (priority, weight, text));
        }
        let url: Url = "iwarp://host:1?priority=7&crc=off".parse().unwrap();
        assert_eq!(url.clone().with_priority(1, 2).to_string(), "iwarp://host:1?crc=off&priority=1&weight=2");
        assert_eq!(url.without_priority().to_string(), "iwarp://host:1?crc=off");
    }

    #[test]
    fn tls_off() {
        let url: Url = "tcp://host:1?tls=off".parse().unwrap();
        assert_eq!((url.tls(), url.to_string().as_str()), (Some(TlsPolicy::Off), "tcp://host:1?tls=off"));
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls() {
        for policy in [TlsPolicy::Opportunistic, TlsPolicy::Required] {
            let text = format!("tcp://[::1]:7?tls={policy}");
            let url: Url = text.parse().unwrap();
            assert_eq!((url.tls(), url.to_string()), (Some(policy), text));
        }
    }

    #[test]
    fn bad() {
        for (text, said) in [
            ("localhost:20100", "scheme://host:port"),
            #[cfg(not(any(feature = "verbs", feature = "verbs-dlopen")))]
            ("rdma://host:1", "verbs are not part of this build"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?busy=1000001", "local=ADDRESS, busy=MICROSECONDS, srq=RECEIVES, tclass=0-255, "),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            (
                "rdma://host:1?tclass=256",
                "tclass=0-255, ack_timeout=1-31, retries=0-7, rnr_retries=0-7, relaxed=on|off",
            ),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?ack_timeout=0", "ack_timeout=1-31"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?ack_timeout=32", "ack_timeout=1-31"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?retries=8", "retries=0-7"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?rnr_retries=8", "rnr_retries=0-7"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?relaxed=yes", "relaxed=on|off"),
            ("iwarp://host:1?tclass=-1", "tclass=0-255"),
            ("iwarp://host:1?tclass=256", "tclass=0-255"),
            ("iwarp://host:1?retries=1", "unknown option `retries=1`"),
            ("tcp://host:1?tclass=1", "unknown option `tclass=1`"),
            ("iwarp://host:1?busy=1000001", "busy=MICROSECONDS"),
            ("iwarp://host:1?busy=", "busy=MICROSECONDS"),
            ("iwarp://host:1?busy=-1", "busy=MICROSECONDS"),
            ("tcp://host:1?busy=50", "local=ADDRESS, tls=off|opportunistic|required"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?srq=65537", "srq=RECEIVES"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?srq=many", "srq=RECEIVES"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?crc=off", "unknown option `crc=off`"),
            ("quic://host:1", "expected one of iwarp, "),
            ("iwarp://:1", "no host"),
            ("iwarp://::1:1", "brackets"),
            ("iwarp://[::1:1", "brackets"),
            ("iwarp://[no]:1", "brackets"),
            ("iwarp://host", "no port"),
            ("iwarp://host:65536", "no port"),
            ("iwarp://host:+1", "no port"),
            ("iwarp://host:1/export", "no path"),
            ("tcp://host:1?crc=off", "unknown option `crc=off`"),
            ("tcp://host:1?priority=65536", "priority=0-65535"),
            ("tcp://host:1?priority=-1", "priority=0-65535"),
            ("iwarp://host:1?weight=+1", "weight=NUMBER"),
            ("iwarp://host:1?weight=", "weight=NUMBER"),
            ("tcp://host:1?tls=yes", "tls=off|opportunistic|required"),
            ("iwarp://host:1?tls=required", "unknown option `tls=required`"),
            #[cfg(not(feature = "tls"))]
            ("tcp://host:1?tls=required", "(feature `tls`)"),
            #[cfg(not(feature = "tls"))]
            ("tcp://host:1?tls=opportunistic", "(feature `tls`)"),
            ("iwarp://host:1?crc=maybe", "crc=on|off"),
            ("iwarp://host:1?crc", "unknown option `crc`"),
            ("iwarp://host:1?crc=on&busy=1&crc=on", "`crc` twice"),
            ("iwarp://host:1?version=3", "version=1|2"),
            ("iwarp://host:1?local=here", "local=ADDRESS"),
            ("tcp://host:1?local=192.0.2.7:80", "local=ADDRESS"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
