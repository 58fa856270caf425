//! Locations on the command line: `nfs3+rdma://host:port/export/path`, or a local path.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::PathBuf,
};

/// A source or destination on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A local path.
    Local(PathBuf),
    /// A path on a server.
    Remote(NfsUrl),
}

/// A URL of the form `nfs3+TRANSPORT://host[:port]/path[?option]`.
///
/// TRANSPORT is a scheme of [`Channel::connect`](rpcrdma::client::Channel::connect) (`rdma`, `iwarp` or `tcp`), and
/// `option` is an option of that transport. The path is percent-encoded (RFC 3986 §2.1). All characters of the path
/// other than `%` and `?` stand for themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsUrl {
    scheme: String,
    /// The host name or address. IPv6 addresses include their brackets.
    host: String,
    port: u16,
    /// `true` if the URL contains the port.
    has_port: bool,
    query: Option<String>,
    path: Vec<u8>,
}

/// The reason why a URL is invalid. All variants contain the URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// The scheme begins with `nfs` but is not supported.
    #[error("`{0}`: expected nfs3+rdma://, nfs3+iwarp:// or nfs3+tcp://; for a local path, write ./{0}")]
    Scheme(String),
    /// The host is missing or invalid.
    #[error("`{0}`: invalid host; write IPv6 addresses in brackets, as in nfs3+iwarp://[::1]:20049/export")]
    Host(String),
    /// The port is invalid.
    #[error("`{0}`: invalid port; expected a number from 1 to 65535")]
    Port(String),
    /// The path is missing.
    #[error("`{0}`: missing path; to name a whole export, write e.g. {0}/export")]
    Path(String),
    /// A `%` is not followed by two hexadecimal digits.
    #[error("`{0}`: a % in the path must be followed by two hexadecimal digits; write %25 for a %")]
    Escape(String),
}

impl Location {
    /// Parses a command-line argument.
    ///
    /// # Errors
    /// Fails if the argument is an invalid NFS URL.
    pub fn parse(argument: OsString) -> Result<Self, LocationError> {
        let bytes = argument.as_bytes();
        let Some(at) = bytes.windows(3).position(|window| window == b"://") else {
            return Ok(Self::Local(argument.into()));
        };
        let (scheme, rest) = (&bytes[..at], &bytes[at + 3..]);
        if !scheme.starts_with(b"nfs") || scheme.contains(&b'/') {
            return Ok(Self::Local(argument.into()));
        }
        NfsUrl::parse_parts(scheme, rest, &argument.to_string_lossy()).map(Self::Remote)
    }
}

impl NfsUrl {
    /// The transports with their default ports, for NFS over RDMA (RFC 8267 §9) and over TCP (RFC 1813 §2.3).
    const PORTS: [(&'static str, u16); 3] = [("rdma", 20049), ("iwarp", 20049), ("tcp", 2049)];

    fn parse_parts(scheme: &[u8], rest: &[u8], whole: &str) -> Result<Self, LocationError> {
        let scheme = scheme.strip_prefix(b"nfs3+").and_then(|scheme| std::str::from_utf8(scheme).ok());
        let known = scheme.and_then(|scheme| Self::PORTS.iter().find(|(name, _)| *name == scheme));
        let &(scheme, default_port) = known.ok_or_else(|| LocationError::Scheme(whole.to_owned()))?;

        let slash = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        if path.is_empty() {
            return Err(LocationError::Path(whole.to_owned()));
        }
        let bad_host = || LocationError::Host(whole.to_owned());
        let authority = std::str::from_utf8(authority).map_err(|_| bad_host())?;
        // The port follows the last colon, after the bracket of an IPv6 address.
        let after_bracket = authority.rfind(']').map_or(0, |at| at + 1);
        let (host, port, has_port) = match authority[after_bracket..].rfind(':') {
            Some(colon) => {
                let (host, port) = authority.split_at(after_bracket + colon);
                let port = port[1..].parse().ok().filter(|port| *port != 0);
                (host, port.ok_or_else(|| LocationError::Port(whole.to_owned()))?, true)
            }
            None => (authority, default_port, false),
        };
        let bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
        if host.is_empty() || (host.contains([':', '[', ']']) && !bracketed) {
            return Err(bad_host());
        }

        let (path, query) = match path.iter().position(|byte| *byte == b'?') {
            Some(at) => (&path[..at], Some(String::from_utf8_lossy(&path[at + 1..]).into_owned())),
            None => (path, None),
        };
        let path = unescape(path).ok_or_else(|| LocationError::Escape(whole.to_owned()))?;
        Ok(Self { scheme: scheme.to_owned(), host: host.to_owned(), port, has_port, query, path })
    }

    /// Returns the transport's URL, `scheme://host:port[?option]`, for
    /// [`Channel::connect`](rpcrdma::client::Channel::connect). If this URL has no port, the result has the default
    /// port of the transport.
    #[must_use]
    pub fn transport_url(&self) -> String {
        self.transport_url_at(self.port)
    }

    /// Returns the [transport's URL](Self::transport_url) with `port` as its port.
    #[must_use]
    pub fn transport_url_at(&self, port: u16) -> String {
        let query = self.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}://{}:{port}{query}", self.scheme, self.host)
    }

    /// Returns `true` if the URL contains a port.
    #[must_use]
    pub fn has_port(&self) -> bool {
        self.has_port
    }

    /// Returns `true` if the transport is TCP. Otherwise it is RPC-over-RDMA.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.scheme == "tcp"
    }

    /// Returns the name or address of the host. IPv6 addresses are in brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the URL of another service on the same host, such as MOUNT, over TCP (RFC 8267 §5.1).
    #[must_use]
    pub fn tcp_url(&self, port: u16) -> String {
        format!("tcp://{}:{port}", self.host)
    }

    /// Returns the decoded path on the server. It begins with `/`.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        &self.path
    }
}

impl fmt::Display for NfsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nfs3+{}://{}:{}{}", self.scheme, self.host, self.port, String::from_utf8_lossy(&self.path))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Remote(url) => url.fmt(f),
        }
    }
}

fn unescape(path: &[u8]) -> Option<Vec<u8>> {
    let mut unescaped = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        unescaped.push(match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(|digit| char::from(*digit).to_digit(16));
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    Some(unescaped)
}

/// Returns a path's last component, unless it is `.` or `..`.
pub(super) fn base_name(path: &[u8]) -> Option<&[u8]> {
    path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()).filter(|part| !matches!(*part, b"." | b".."))
}

pub(super) fn os_name(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

pub(super) fn os_path(path: &[u8]) -> PathBuf {
    OsString::from_vec(path.to_vec()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> NfsUrl {
        match Location::parse(text.into()) {
            Ok(Location::Remote(url)) => url,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn urls() {
        let url = remote("nfs3+iwarp://server:20050/export/a%20b%25?crc=off");
        assert_eq!((url.transport_url(), url.path()), ("iwarp://server:20050?crc=off".into(), &b"/export/a b%"[..]));
        assert_eq!(url.tcp_url(111), "tcp://server:111");
        assert!(url.has_port() && !url.is_tcp());
        let url = remote("nfs3+rdma://server/x");
        assert_eq!(url.transport_url(), "rdma://server:20049");
        assert_eq!(url.transport_url_at(7), "rdma://server:7");
        assert!(!url.has_port() && !url.is_tcp());
        let url = remote("nfs3+tcp://[fd09::1]/");
        assert_eq!((url.transport_url(), url.path()), ("tcp://[fd09::1]:2049".into(), &b"/"[..]));
        assert_eq!(url.tcp_url(111), "tcp://[fd09::1]:111");
        assert_eq!(remote("nfs3+tcp://[::1]:77/x:y").transport_url(), "tcp://[::1]:77");
    }

    #[test]
    fn other_arguments_are_local_paths() {
        for path in ["a", "/a/b", "./nfs3+tcp://x", "http://x/y", "nfs3+tcp:x", "-"] {
            assert_eq!(Location::parse(path.into()), Ok(Location::Local(path.into())), "{path}");
        }
    }

    #[test]
    fn invalid_urls_are_rejected() {
        let error = |text: &str| Location::parse(text.into()).unwrap_err().to_string();
        assert!(error("nfs://h/x").contains("expected nfs3+rdma://"));
        assert!(error("nfs3+quic://h/x").contains("expected nfs3+rdma://"));
        assert!(error("nfs3+tcp://h").contains("missing path"));
        for bad in ["nfs3+tcp:///x", "nfs3+tcp://:20/x", "nfs3+tcp://fd09::1/x", "nfs3+tcp://[]/x", "nfs3+tcp://a]/x"] {
            assert!(error(bad).contains("invalid host"), "{bad}");
        }
        for bad in ["nfs3+tcp://h:0/x", "nfs3+tcp://h:/x", "nfs3+tcp://h:65536/x", "nfs3+tcp://[::1]:x/x"] {
            assert!(error(bad).contains("invalid port"), "{bad}");
        }
        for bad in ["nfs3+tcp://h/%", "nfs3+tcp://h/%2", "nfs3+tcp://h/%zz"] {
            assert!(error(bad).contains("hexadecimal"), "{bad}");
        }
    }

    #[test]
    fn last_components() {
        assert_eq!(base_name(b"/a/b/"), Some(&b"b"[..]));
        assert_eq!(base_name(b"x"), Some(&b"x"[..]));
        for none in [&b"/"[..], b"", b"/a/..", b"."] {
            assert_eq!(base_name(none), None);
        }
    }
}
