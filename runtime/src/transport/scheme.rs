//! The table of URL schemes, and the trait of the RDMA providers in it.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{PoisonError, RwLock},
};

use super::{
    Transport,
    erased::{AnyConnector, AnyListener},
    options::{UrlOption, UrlOptions},
    stream::{AnyStreamProvider, StreamProvider},
};
use crate::provider::{Connector, Listener};

/// The registered schemes. No scheme is ever removed, because channels and servers keep references to schemes.
static REGISTERED: RwLock<Vec<Scheme>> = RwLock::new(Vec::new());

/// The scheme of a transport URL: an RDMA provider, TCP, or another provider of byte streams.
///
/// The constants are the schemes of this crate. [`register`](Self::register) and
/// [`register_stream`](Self::register_stream) add other schemes.
#[derive(Clone, Copy)]
pub struct Scheme(pub(super) &'static SchemeEntry);

/// An entry of the table of schemes.
pub(super) struct SchemeEntry {
    pub(super) name: &'static str,
    pub(super) kind: SchemeKind,
}

/// The transport of a scheme.
#[derive(Clone, Copy)]
pub(crate) enum SchemeKind {
    /// RPC-over-RDMA over a provider.
    Rdma(&'static dyn AnyProvider),
    /// TCP, with these options.
    Tcp(&'static [UrlOption]),
    /// Byte streams of a provider.
    Stream(&'static dyn AnyStreamProvider),
}

/// An RDMA provider that URLs select by their scheme.
///
/// The host and the port of a URL become the [`SocketAddr`] for [`Connector::connect`] and [`listen`](Self::listen). A
/// host name is resolved by the system's resolver. A client tries the addresses in order until it is connected, and a
/// server listens on each of them. A provider whose addresses are not IP addresses can map them to this form, for
/// example to the port alone.
///
/// ```
/// use std::{io, net::SocketAddr};
///
/// use rpcrdma::{
///     provider::sim::{SimConnector, SimFabric, SimListener},
///     transport::{Scheme, SchemeProvider, Url, UrlOptions},
/// };
///
/// struct Simulated(SimFabric);
///
/// impl SchemeProvider for Simulated {
///     type Connector = SimConnector;
///     type Listener = SimListener;
///
///     fn connector(&self, _options: &UrlOptions) -> SimConnector {
///         self.0.connector()
///     }
///
///     fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<SimListener> {
///         self.0.listen(addr.port())
///     }
/// }
///
/// let scheme = Scheme::register("x-sim", Simulated(SimFabric::default()))?;
/// let url: Url = "x-sim://localhost:7".parse()?;
/// assert_eq!(url.scheme(), scheme);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait SchemeProvider: Send + Sync + 'static {
    /// The type of connector that [`connector`](Self::connector) returns.
    type Connector: Connector;
    /// The type of listener that [`listen`](Self::listen) returns.
    type Listener: Listener;

    /// Returns the options that URLs of the scheme may have besides `version`, `priority` and `weight`. Default: none.
    fn options(&self) -> &'static [UrlOption] {
        &[]
    }

    /// Returns the connector for a URL with these options. Called for each attempt to connect to an address.
    fn connector(&self, options: &UrlOptions) -> Self::Connector;

    /// Listens on `addr`, which is an address of the host of a URL with these options. Port 0 selects a free port.
    ///
    /// # Errors
    /// Returns an error of the operating system or the provider.
    fn listen(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<Self::Listener>;

    /// Listens on `addr` together with other listeners of the same port, for
    /// [`ServerBuilder::share_ports`](crate::server::ServerBuilder::share_ports).
    ///
    /// # Errors
    /// Returns an error of the operating system or the provider. By default, [`io::ErrorKind::Unsupported`].
    fn listen_on_shared_port(&self, _options: &UrlOptions, _addr: SocketAddr) -> io::Result<Self::Listener> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "listeners of this URL scheme cannot share a port"))
    }
}

/// A type-erased [`SchemeProvider`].
pub(crate) trait AnyProvider: Send + Sync {
    fn options(&self) -> &'static [UrlOption];

    fn connector(&self, options: &UrlOptions) -> Box<dyn AnyConnector>;

    fn listen(&self, options: &UrlOptions, addr: SocketAddr, shares_port: bool) -> io::Result<Box<dyn AnyListener>>;
}

impl<P: SchemeProvider> AnyProvider for P {
    fn options(&self) -> &'static [UrlOption] {
        SchemeProvider::options(self)
    }

    fn connector(&self, options: &UrlOptions) -> Box<dyn AnyConnector> {
        Box::new(SchemeProvider::connector(self, options))
    }

    fn listen(&self, options: &UrlOptions, addr: SocketAddr, shares_port: bool) -> io::Result<Box<dyn AnyListener>> {
        let listener = if shares_port {
            self.listen_on_shared_port(options, addr)
        } else {
            SchemeProvider::listen(self, options, addr)
        };
        Ok(Box::new(listener?))
    }
}

/// The error of [`Scheme::register`] and [`Scheme::register_stream`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemeError {
    /// The name is not a URL scheme (RFC 3986 §3.1) in lower case.
    #[error(
        "`{name}` is not a URL scheme, expected a lower-case letter, then lower-case letters, digits, `+`, `-` or `.`"
    )]
    BadName {
        /// The rejected name.
        name: &'static str,
    },
    /// A scheme of this name exists. `rdma` exists even if verbs are not built in.
    #[error("the URL scheme `{name}` is registered already")]
    Taken {
        /// The name of both schemes.
        name: &'static str,
    },
    /// The name of an option is empty, contains characters other than lower-case letters, digits and `-`, or is not
    /// unique. `version`, `priority` and `weight` are reserved.
    #[error(
        "the option `{option}` of the URL scheme `{name}` is not lower-case letters, digits and `-`, or exists already"
    )]
    BadOption {
        /// The name of the scheme.
        name: &'static str,
        /// The name of the option.
        option: &'static str,
    },
}

impl Scheme {
    /// Adds a scheme to the table of this process. From then on, URLs of the scheme lead to `provider` in channels,
    /// pools, service discovery and servers. A scheme stays in the table until the process ends.
    ///
    /// `name` begins with a letter, followed by letters, digits, `+`, `-` and `.` (RFC 3986 §3.1), all in lower case.
    ///
    /// # Errors
    /// See [`SchemeError`]: the name or an option is malformed, or a scheme of this name exists.
    pub fn register(name: &'static str, provider: impl SchemeProvider) -> Result<Self, SchemeError> {
        let options = SchemeProvider::options(&provider);
        Self::add(name, options, || SchemeKind::Rdma(Box::leak(Box::new(provider))))
    }

    /// Adds a scheme for byte streams to the table of this process, as [`register`](Self::register) does for RDMA.
    ///
    /// # Errors
    /// See [`SchemeError`]: the name or an option is malformed, or a scheme of this name exists.
    pub fn register_stream(name: &'static str, provider: impl StreamProvider) -> Result<Self, SchemeError> {
        let options = StreamProvider::options(&provider);
        Self::add(name, options, || SchemeKind::Stream(Box::leak(Box::new(provider))))
    }

    fn add(
        name: &'static str,
        own: &'static [UrlOption],
        kind: impl FnOnce() -> SchemeKind,
    ) -> Result<Self, SchemeError> {
        if !is_scheme(name) {
            return Err(SchemeError::BadName { name });
        }
        let mut options =
            [UrlOption::VERSION, UrlOption::PRIORITY, UrlOption::WEIGHT].map(|option| option.name()).to_vec();
        for option in own.iter().map(UrlOption::name) {
            let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            if option.is_empty() || !option.bytes().all(is_allowed) || options.contains(&option) {
                return Err(SchemeError::BadOption { name, option });
            }
            options.push(option);
        }
        let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
        // `rdma` is reserved even if verbs are not built in, so that the name means the same in each program.
        let is_taken =
            name == "rdma" || Self::BUILT_IN.iter().chain(&*registered).any(|scheme| scheme.as_str() == name);
        if is_taken {
            return Err(SchemeError::Taken { name });
        }
        let scheme = Self(Box::leak(Box::new(SchemeEntry { name, kind: kind() })));
        registered.push(scheme);
        Ok(scheme)
    }

    /// Returns the scheme with this name, ignoring the case of ASCII letters (RFC 3986 §3.1).
    pub(super) fn find(name: &str) -> Option<Self> {
        let is_it = |scheme: &&Self| scheme.as_str().eq_ignore_ascii_case(name);
        if let Some(scheme) = Self::BUILT_IN.iter().find(is_it) {
            return Some(*scheme);
        }
        REGISTERED.read().unwrap_or_else(PoisonError::into_inner).iter().find(is_it).copied()
    }

    /// Returns the names of all schemes, for error messages.
    pub(super) fn names() -> Vec<&'static str> {
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        Self::BUILT_IN.iter().chain(&*registered).map(|scheme| scheme.as_str()).collect()
    }

    /// Returns the scheme as it is written in a URL.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0.name
    }

    /// Returns the kind of transport.
    #[must_use]
    pub fn transport(self) -> Transport {
        match self.0.kind {
            SchemeKind::Rdma(_) => Transport::Rdma,
            SchemeKind::Tcp(_) | SchemeKind::Stream(_) => Transport::Tcp,
        }
    }

    pub(crate) fn kind(self) -> SchemeKind {
        self.0.kind
    }

    /// Returns the options that a URL with this scheme may have.
    pub(super) fn options(self) -> impl Iterator<Item = &'static UrlOption> {
        const COMMON: &[UrlOption] = &[UrlOption::VERSION, UrlOption::PRIORITY, UrlOption::WEIGHT];
        let (own, common) = match self.0.kind {
            SchemeKind::Rdma(provider) => (provider.options(), COMMON),
            SchemeKind::Tcp(options) => (options, &COMMON[1..]),
            SchemeKind::Stream(provider) => (provider.options(), &COMMON[1..]),
        };
        own.iter().chain(common)
    }
}

/// Returns `true` if `name` is a scheme in its canonical form (RFC 3986 §3.1).
fn is_scheme(name: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.');
    name.bytes().next().is_some_and(|first| first.is_ascii_lowercase()) && name.bytes().all(rest)
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Scheme").field(&self.as_str()).finish()
    }
}

/// Compares the names, because no two schemes have the same name.
impl PartialEq for Scheme {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Scheme {}

impl std::hash::Hash for Scheme {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
