//! Transport URLs: `iwarp://host:port`, `iwarp://[::1]:20049?crc=off`, `rdma://host:port`, `tcp://host:port`.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
    time::Duration,
};

use super::Transport;
use crate::engine::Versions;

/// The scheme of a transport URL: an RDMA provider, or TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `iwarp`: iWARP in user space over TCP.
    Iwarp,
    /// `rdma`: an RDMA device, accessed through verbs.
    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
    Rdma,
    /// `tcp`: ONC RPC over TCP with record marking (RFC 5531 §11), without RDMA.
    Tcp,
}

impl Scheme {
    /// The schemes built into this library, for error messages.
    pub const BUILT_IN: &'static [&'static str] = &[
        "iwarp",
        #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
        "rdma",
        "tcp",
    ];

    /// Returns the kind of transport.
    pub(crate) fn transport(self) -> Transport {
        if matches!(self, Self::Tcp) { Transport::Tcp } else { Transport::Rdma }
    }

    /// Returns the scheme as it is written in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Iwarp => "iwarp",
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            Self::Rdma => "rdma",
            Self::Tcp => "tcp",
        }
    }
}

/// The use of TLS on a `tcp` connection (RFC 9289).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum TlsPolicy {
    /// No TLS. A client does not ask for it, and a server does not offer it.
    Off,
    /// TLS if the peer supports it, and no TLS otherwise. Protects against eavesdropping only: whoever can change data on its
    /// way can also remove the offer of TLS (RFC 9289 §6.1).
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

/// Maximum of the option `srq`.
#[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
const MAX_SHARED_RECEIVES: u32 = 1 << 16;

/// The address of a server, to connect to or to listen on: `scheme://host:port[?option=value[&option=value]]`.
///
/// `host` is a name, an IPv4 address, or an IPv6 address in brackets.
///
/// | option | scheme | meaning |
/// | --- | --- | --- |
/// | `crc=on`, `crc=off` | `iwarp` | Requests the CRC of RFC 5044, or not. Default `on` |
/// | `busy=MICROSECONDS` | `iwarp`, `rdma` | Time to poll the socket or the device before waiting for an event, at most 1000000. Default 0 |
/// | `srq=RECEIVES` | `rdma` | Maximum number of Receives that the connections of a server share on a device, for each of its runtimes, at most 65536. 0 means that each connection has its own. Clients and iWARP devices ignore it. Default 0 |
/// | `version=1`, `version=2`, `version=both` | `iwarp`, `rdma` | The [versions](Versions) of RPC-over-RDMA that a client offers, in place of those of its configuration |
/// | `local=ADDRESS` | all | The local IP address of a client, without a port. It selects the network interface or RDMA device. An IPv6 address has no brackets. Servers ignore it. Default: chosen by the system |
/// | `tls=off`, `tls=opportunistic`, `tls=required` | `tcp` | The [policy](TlsPolicy) for TLS, in place of that of the TLS configuration. All but `off` need the feature `tls` |
///
/// ```
/// use rpcrdma::transport::{Scheme, Url};
///
/// let url: Url = "iwarp://[::1]:20049?crc=off".parse()?;
/// assert_eq!((url.scheme(), url.host(), url.port(), url.crc()), (Scheme::Iwarp, "::1", 20049, false));
/// # Ok::<(), rpcrdma::transport::UrlError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    scheme: Scheme,
    host: String,
    port: u16,
    crc: bool,
    busy_poll: Duration,
    shared_receives: u32,
    versions: Option<Versions>,
    local: Option<IpAddr>,
    tls: Option<TlsPolicy>,
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
    /// The scheme is unknown, or not built in.
    #[error("unknown scheme `{scheme}` in `{url}`, built in: {}{hint}", Scheme::BUILT_IN.join(", "))]
    UnknownScheme {
        /// The text of the URL.
        url: String,
        /// The scheme.
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
    /// The port is followed by a path.
    #[error("`{url}` has a path: a transport URL has no path")]
    Path {
        /// The text of the URL.
        url: String,
    },
    /// The scheme does not have this option, or the option does not have this value.
    #[error(
        "`{url}` has the unknown option `{option}`, expected crc=on|off (iwarp), busy=MICROSECONDS and version=1|2|both (iwarp, rdma), \
         srq=RECEIVES (rdma), \
         local=ADDRESS (all), tls=off|opportunistic|required (tcp)"
    )]
    UnknownOption {
        /// The text of the URL.
        url: String,
        /// The option and its value.
        option: String,
    },
    /// The URL asks for TLS, which is not built in.
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
        Self {
            scheme,
            host: addr.ip().to_string(),
            port: addr.port(),
            crc: true,
            busy_poll: Duration::ZERO,
            shared_receives: 0,
            versions: None,
            local: None,
            tls: None,
        }
    }

    /// Returns the same URL with another address.
    pub(crate) fn at(&self, addr: SocketAddr) -> Self {
        Self { host: addr.ip().to_string(), port: addr.port(), ..self.clone() }
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

    /// Returns `true` unless the option `crc=off` disables the CRC of MPA (RFC 5044).
    #[must_use]
    pub fn crc(&self) -> bool {
        self.crc
    }

    /// Returns the time to poll the socket or the device before waiting for an event (`busy=MICROSECONDS`). Zero without the option.
    #[must_use]
    pub fn busy_poll(&self) -> Duration {
        self.busy_poll
    }

    /// Returns the maximum number of Receives that the connections of a server share on a device, or 0 if each has its own: the
    /// option `srq=RECEIVES` of `rdma`.
    #[must_use]
    pub fn shared_receives(&self) -> u32 {
        self.shared_receives
    }

    /// Returns the versions of RPC-over-RDMA that a client offers (`version=1|2|both`), or `None` for those of its configuration.
    #[must_use]
    pub fn versions(&self) -> Option<Versions> {
        self.versions
    }

    /// Returns the local address of a client (`local=ADDRESS`), or `None` if the system chooses it.
    #[must_use]
    pub fn local(&self) -> Option<IpAddr> {
        self.local
    }

    /// Returns the policy for TLS (`tls=off|opportunistic|required`), or `None` for that of the TLS configuration.
    #[must_use]
    pub fn tls(&self) -> Option<TlsPolicy> {
        self.tls
    }

    /// Resolves the host with the system's resolver, and returns its addresses. There is at least one.
    ///
    /// # Errors
    /// The error of the resolver, or [`NotFound`](std::io::ErrorKind::NotFound) if the host has no address.
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
        let scheme = match scheme {
            "iwarp" => Scheme::Iwarp,
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            "rdma" => Scheme::Rdma,
            "tcp" => Scheme::Tcp,
            other => {
                let hint = match other {
                    "rdma" => "; verbs are not part of this build (feature `verbs` or `verbs-dlopen`)",
                    _ => "",
                };
                return Err(UrlError::UnknownScheme { url: url(), scheme: other.to_owned(), hint });
            }
        };
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
        let mut parsed = Self {
            scheme,
            host: host.to_owned(),
            port,
            crc: true,
            busy_poll: Duration::ZERO,
            shared_receives: 0,
            versions: None,
            local: None,
            tls: None,
        };
        for option in query.into_iter().flat_map(|query| query.split('&')).filter(|option| !option.is_empty()) {
            let known = match (scheme, option.split_once('=')) {
                (_, Some(("local", address))) => {
                    parsed.local = address.parse().ok();
                    parsed.local.is_some()
                }
                (Scheme::Iwarp, Some(("crc", "on"))) => true,
                (Scheme::Iwarp, Some(("crc", "off"))) => {
                    parsed.crc = false;
                    true
                }
                #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
                (Scheme::Rdma, Some(("srq", receives))) => {
                    parsed.shared_receives = receives.parse().unwrap_or(u32::MAX);
                    parsed.shared_receives <= MAX_SHARED_RECEIVES
                }
                (Scheme::Tcp, Some(("tls", policy))) => {
                    parsed.tls = policy.parse().ok();
                    if !cfg!(feature = "tls") && parsed.tls.is_some_and(|policy| policy != TlsPolicy::Off) {
                        return Err(UrlError::NoTls { url: url() });
                    }
                    parsed.tls.is_some()
                }
                (Scheme::Tcp, _) => false,
                (_, Some(("busy", microseconds))) => {
                    parsed.busy_poll = Duration::from_micros(microseconds.parse().unwrap_or(u64::MAX));
                    parsed.busy_poll <= Duration::from_secs(1)
                }
                (_, Some(("version", versions))) => {
                    parsed.versions = versions.parse().ok();
                    parsed.versions.is_some()
                }
                _ => false,
            };
            if !known {
                return Err(UrlError::UnknownOption { url: url(), option: option.to_owned() });
            }
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
        write!(f, ":{}", self.port)?;
        let mut mark = '?';
        if !self.crc {
            write!(f, "{mark}crc=off")?;
            mark = '&';
        }
        if !self.busy_poll.is_zero() {
            write!(f, "{mark}busy={}", self.busy_poll.as_micros())?;
            mark = '&';
        }
        if self.shared_receives > 0 {
            write!(f, "{mark}srq={}", self.shared_receives)?;
            mark = '&';
        }
        if let Some(versions) = self.versions {
            write!(f, "{mark}version={versions}")?;
            mark = '&';
        }
        if let Some(local) = self.local {
            write!(f, "{mark}local={local}")?;
            mark = '&';
        }
        match self.tls {
            Some(policy) => write!(f, "{mark}tls={policy}"),
            None => Ok(()),
        }
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
            assert_eq!(url.parse::<Url>(), Err(UrlError::UnknownOption { url, option }));
        }
    }

    #[test]
    fn good() {
        for (text, host, port, crc) in [
            ("iwarp://localhost:20100", "localhost", 20100, true),
            ("iwarp://127.0.0.1:0", "127.0.0.1", 0, true),
            ("iwarp://[::1]:20049?crc=off", "::1", 20049, false),
            ("tcp://[::1]:111", "::1", 111, true),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.host(), url.port(), url.crc()), (host, port, crc), "{text}");
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn local_addresses() {
        for (text, local) in [
            ("iwarp://host:1?local=192.0.2.7", "192.0.2.7"),
            ("iwarp://host:1?crc=off&version=2&local=fd09::1", "fd09::1"),
            ("tcp://[::1]:111?local=::1&tls=off", "::1"),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.local(), url.to_string().as_str()), (Some(local.parse().unwrap()), text));
        }
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
    fn busy_polling() {
        for (text, microseconds) in [
            ("iwarp://host:1", 0),
            ("iwarp://host:1?busy=50", 50),
            ("iwarp://host:1?crc=off&busy=1000000&version=2", 1_000_000),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.busy_poll().as_micros(), url.to_string().as_str()), (microseconds, text));
        }
    }

    #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
    #[test]
    fn rdma() {
        for (text, microseconds, receives) in [
            ("rdma://10.0.0.1:20049", 0, 0),
            ("rdma://[fd09::1]:7?busy=50", 50, 0),
            ("rdma://10.0.0.1:20049?busy=50&srq=65536&version=1", 50, 65_536),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.scheme(), url.busy_poll().as_micros()), (Scheme::Rdma, microseconds));
            assert_eq!(url.shared_receives(), receives);
            assert_eq!(url.to_string(), text);
        }
    }

    #[test]
    fn bad() {
        for (text, said) in [
            ("localhost:20100", "scheme://host:port"),
            #[cfg(not(any(feature = "verbs", feature = "verbs-dlopen")))]
            ("rdma://host:1", "verbs are not part of this build"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?busy=1000001", "busy=MICROSECONDS"),
            ("iwarp://host:1?busy=1000001", "busy=MICROSECONDS"),
            ("iwarp://host:1?busy=", "busy=MICROSECONDS"),
            ("iwarp://host:1?busy=-1", "busy=MICROSECONDS"),
            ("tcp://host:1?busy=50", "(iwarp, rdma)"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?srq=65537", "srq=RECEIVES"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?srq=many", "srq=RECEIVES"),
            #[cfg(any(feature = "verbs", feature = "verbs-dlopen"))]
            ("rdma://host:1?crc=off", "crc=on|off (iwarp)"),
            ("quic://host:1", "built in: iwarp"),
            ("iwarp://:1", "no host"),
            ("iwarp://::1:1", "brackets"),
            ("iwarp://[::1:1", "brackets"),
            ("iwarp://[no]:1", "brackets"),
            ("iwarp://host", "no port"),
            ("iwarp://host:65536", "no port"),
            ("iwarp://host:+1", "no port"),
            ("iwarp://host:1/export", "no path"),
            ("tcp://host:1?crc=off", "(iwarp)"),
            ("tcp://host:1?tls=yes", "tls=off|opportunistic|required"),
            ("iwarp://host:1?tls=required", "(tcp)"),
            #[cfg(not(feature = "tls"))]
            ("tcp://host:1?tls=required", "(feature `tls`)"),
            #[cfg(not(feature = "tls"))]
            ("tcp://host:1?tls=opportunistic", "(feature `tls`)"),
            ("iwarp://host:1?crc=maybe", "crc=on|off"),
            ("iwarp://host:1?version=3", "version=1|2"),
            ("iwarp://host:1?local=here", "local=ADDRESS"),
            ("tcp://host:1?local=192.0.2.7:80", "local=ADDRESS"),
        ] {
            let error = text.parse::<Url>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
