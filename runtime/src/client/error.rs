//! The errors of calls and of connecting.

use std::{error::Error, fmt, io::ErrorKind, net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    ErrorChain,
    config::ConfigError,
    engine::{CallFailure, CloseReason},
    provider::{IoError, SetupError},
    rpc::RpcError,
    security::SecurityError,
    transport::{Url, UrlError},
    xdr::{DecodeError, DecodeErrorKind, EncodeError},
};

/// The error of an attempt to connect.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is invalid.
    Url(UrlError),
    /// A setting is out of its range.
    Config(ConfigError),
    /// Two services passed to [`ChannelBuilder::service`](super::ChannelBuilder::service) have the same program and
    /// version.
    DuplicateService {
        /// The program number.
        program: u32,
        /// The program version.
        version: u32,
    },
    /// A [`ChannelPool`](super::ChannelPool) needs at least one URL.
    EmptyPool,
    /// The host name could not be resolved, has no address, or has none of the family of the URL's option `local`.
    Resolve {
        /// The host name.
        host: String,
        /// The error of the resolver, or [`NotFound`](ErrorKind::NotFound) if no address can be used.
        source: IoError,
    },
    /// The URL asks for TLS, but the channel has no TLS configuration.
    #[cfg(feature = "tls")]
    NoTlsConfig {
        /// The URL that asks for TLS.
        url: String,
    },
    /// The TLS configuration cannot be used with the URL.
    #[cfg(feature = "tls")]
    TlsConfig(crate::tls::TlsConfigError),
    /// TLS is required, but is not available for this kind of transport.
    #[cfg(feature = "tls")]
    NoTlsTransport {
        /// The URL, the address, or the path of the local socket.
        server: String,
    },
    /// No connection could be set up, for example because the server refused it or a TLS handshake failed. The fields
    /// describe the attempt for the last address of the host.
    Setup {
        /// The address that was tried last.
        peer: SocketAddr,
        /// The error of that attempt.
        source: SetupError,
    },
    /// The connection to a local socket failed.
    #[cfg(unix)]
    Local {
        /// The path of the socket.
        path: std::path::PathBuf,
        /// The error of the attempt.
        source: SetupError,
    },
    /// The server accepted a connection, which ended before the server's first reply: for example, because the server
    /// closed it or was silent.
    Closed {
        /// Address of the server.
        peer: SocketAddr,
        /// The reason why the connection was closed.
        reason: CloseReason,
        /// `true` if the call that failed with this error was sent. The server may have executed it.
        sent: bool,
    },
    /// The deadline of the call passed during an attempt to connect.
    Late {
        /// The error of the previous attempt to connect, if that attempt failed. Its source is also the source of this
        /// error.
        last: Option<Box<ConnectError>>,
    },
    /// The attempt was given up, because a connection over another path was made sooner.
    Overtaken {
        /// The time from the start of the attempt until it was given up.
        after: Duration,
    },
    /// The last attempt to connect failed, and the next attempt is not due yet.
    BackOff {
        /// The time until the next attempt.
        retry_in: Duration,
        /// The error of the last attempt. Its source is also the source of this error.
        last: Box<ConnectError>,
    },
}

/// A path that a channel does not use now, and the reason.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UnusedPath {
    /// The URL of the path.
    pub url: Url,
    /// The error of the last attempt to use the path.
    pub error: ConnectError,
}

impl fmt::Display for UnusedPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.url, ErrorChain(&self.error))
    }
}

/// Returns advice about an error of connection set-up, to append to the message of the error. Returns an empty string
/// if there is no advice.
fn hint(error: &SetupError) -> &'static str {
    match error {
        SetupError::Io(error) if error.kind() == ErrorKind::ConnectionRefused => {
            ": start the server, or check the port"
        }
        SetupError::Rejected { .. } => ": check the port and what the server demands",
        SetupError::NotOurProtocol { .. } => ": check the scheme and the port",
        SetupError::TimedOut(_) => ": check the address and the firewalls",
        _ => "",
    }
}

/// Returns `true` if each new connection will be closed for the same reason until the configuration is changed.
pub(super) fn is_permanent(reason: &CloseReason) -> bool {
    match reason {
        CloseReason::NegotiationFailed { versions: Some(_), .. } | CloseReason::HostAuthentication(_) => true,
        #[cfg(feature = "tls")]
        CloseReason::Disconnected(crate::provider::DisconnectReason::Transport(error)) => crate::tls::is_alert(error),
        _ => false,
    }
}

impl ConnectError {
    /// Returns `true` if each further attempt will fail in the same way until the configuration is changed.
    pub(super) fn is_permanent(&self) -> bool {
        match self {
            Self::Url(_) | Self::Config(_) | Self::DuplicateService { .. } | Self::EmptyPool => true,
            #[cfg(feature = "tls")]
            Self::NoTlsConfig { .. } | Self::NoTlsTransport { .. } | Self::TlsConfig(_) => true,
            #[cfg(feature = "tls")]
            Self::Setup { source, .. } => crate::tls::TlsError::find(source)
                .is_some_and(|error| !matches!(error, crate::tls::TlsError::TimedOut(_))),
            Self::Closed { reason, .. } => is_permanent(reason),
            Self::BackOff { last, .. } | Self::Late { last: Some(last) } => last.is_permanent(),
            _ => false,
        }
    }

    /// Returns `true` if no call can have been sent.
    fn is_unsent(&self) -> bool {
        match self {
            Self::Closed { sent, .. } => !sent,
            Self::BackOff { last, .. } | Self::Late { last: Some(last) } => last.is_unsent(),
            _ => true,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::DuplicateService { program, version } => {
                write!(f, "two services for program {program:#010x} version {version}")
            }
            Self::EmptyPool => f.write_str("a pool needs at least one URL"),
            Self::Resolve { host, .. } => write!(f, "cannot resolve {host}: check the name"),
            Self::Setup { peer, source } => write!(f, "cannot connect to {peer}{}", hint(source)),
            #[cfg(feature = "tls")]
            Self::NoTlsConfig { url } => write!(f, "TLS with {url} needs an authority: call ChannelBuilder::tls"),
            #[cfg(feature = "tls")]
            Self::TlsConfig(error) => error.fmt(f),
            #[cfg(feature = "tls")]
            Self::NoTlsTransport { server } => {
                write!(f, "TLS is required, but not available for {server}: use tcp:// or another policy")
            }
            #[cfg(unix)]
            Self::Local { path, .. } => write!(f, "cannot connect to {}", path.display()),
            Self::Closed { peer, sent, .. } => {
                write!(
                    f,
                    "{peer} closed the connection before its first reply: check the port, the scheme and what the server demands"
                )?;
                if *sent {
                    f.write_str(", and note that the call may have been executed")?;
                }
                Ok(())
            }
            Self::Late { last: None } => f.write_str(
                "the deadline passed during the attempt to connect: check the address, or set a longer deadline",
            ),
            Self::Late { last: Some(last) } => write!(f, "{last}, and the deadline passed during the next attempt"),
            Self::Overtaken { after } => write!(f, "no connection after {after:?}, when another path was connected"),
            Self::BackOff { retry_in, last } => write!(f, "{last}, next attempt in {retry_in:?}"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Url(error) => error.source(),
            Self::Config(_) | Self::DuplicateService { .. } | Self::EmptyPool | Self::Overtaken { .. } => None,
            Self::Resolve { source, .. } => Some(&**source),
            Self::Setup { source, .. } => Some(source),
            #[cfg(unix)]
            Self::Local { source, .. } => Some(source),
            #[cfg(feature = "tls")]
            Self::NoTlsConfig { .. } | Self::NoTlsTransport { .. } => None,
            #[cfg(feature = "tls")]
            Self::TlsConfig(error) => error.source(),
            Self::Closed { reason, .. } => Some(reason),
            Self::Late { last } => last.as_ref()?.source(),
            // The message is that of the last attempt, so the cause is as well.
            Self::BackOff { last, .. } => last.source(),
        }
    }
}

impl From<UrlError> for ConnectError {
    fn from(error: UrlError) -> Self {
        Self::Url(error)
    }
}

impl From<ConfigError> for ConnectError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// The error of a call. Every variant names the procedure.
///
/// [`Transport`](Self::Transport) and [`Connect`](Self::Connect) display the error that they contain after the name of
/// the procedure, and have the same source as that error. [`Landing`](Self::Landing) and
/// [`Credential`](Self::Credential) have no source. All other variants have the error that they contain as their
/// source.
///
/// ```
/// use rpcrdma::client::CallError;
///
/// fn advice(error: &CallError) -> &'static str {
///     match error {
///         CallError::Rpc { .. } => "the server refused the call",
///         error if error.is_retry_safe() => "call again",
///         _ => "call again only if the procedure is idempotent",
///     }
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum CallError {
    /// The call got no valid RPC reply: for example, the connection closed, the deadline passed, or the transport
    /// refused the call.
    Transport {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// The failure that ended the call, or its last attempt.
        failure: CallFailure,
        /// The number of retries of the call, and the time that they took.
        retries: Retries,
    },
    /// No connection could be made, or the server closed the connection before its first reply.
    Connect {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// The error of the last attempt to connect.
        error: ConnectError,
        /// The number of retries of the call, and the time that they took.
        retries: Retries,
    },
    /// The credential is longer than the 400 bytes that RFC 5531 §8.2 allows. Nothing was sent.
    Credential {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// Length of the credential's body, in bytes.
        len: usize,
    },
    /// The arguments cannot be encoded, for example because they exceed a bound of their XDR declaration. Nothing was
    /// sent.
    Encode {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// The item that cannot be encoded, and the reason.
        source: EncodeError,
    },
    /// A landing buffer is shorter than the maximum length of its eligible result, or there is no such result. Nothing
    /// was sent.
    Landing {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// Index of the eligible result in the order of the reply's encoding, from 0.
        index: usize,
        /// Length of the buffer, in bytes.
        len: usize,
        /// Maximum length of the result, in bytes. 0 if there is no such result.
        needed: u64,
    },
    /// The call could not be secured, or its reply failed the security check.
    Security {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// `true` if the call was sent. The server may have executed it.
        sent: bool,
        /// The error of the security mechanism.
        source: SecurityError,
    },
    /// The server replied with an error status (RFC 5531 §9).
    Rpc {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// The status in the reply.
        source: RpcError,
    },
    /// The reply is not a valid encoding of the result, or exceeds the channel's decoding limits.
    Decode {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// The item that cannot be decoded, and the reason.
        source: DecodeError,
    },
    /// The reply breaks the rules of direct data placement (RFC 8166 §6.1). The error is permanent: client and server
    /// do not agree on which results are eligible, or on where they are placed.
    DirectPlacement {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// The item that breaks the rules.
        source: DecodeError,
    },
    /// Middleware between client and channel ended the call (feature `tower`), for example a timeout or a limit. Or the
    /// last attempt was not executed, but the server may have executed an earlier one.
    Middleware {
        /// The name of the procedure, as `VERSION.PROCEDURE`.
        procedure: &'static str,
        /// `true` if the server may have executed an attempt of the call.
        sent: bool,
        /// The error of the middleware, or the error of the last attempt.
        source: Arc<dyn Error + Send + Sync>,
    },
}

/// The retries of a call that failed in the end. Displays nothing if there were none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retries(Option<Box<RetryCount>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct RetryCount {
    count: u32,
    elapsed: Duration,
}

impl Retries {
    /// Returns the record of `count` retries, of which the first followed a failure at `since`.
    pub(super) fn new(count: u32, since: Instant) -> Self {
        Self((count > 0).then(|| Box::new(RetryCount { count, elapsed: since.elapsed() })))
    }

    /// Returns the number of retries.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.as_ref().map_or(0, |retries| retries.count)
    }

    /// Returns the time from the first failure to the last.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |retries| retries.elapsed)
    }
}

impl fmt::Display for Retries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_deref() {
            None => Ok(()),
            Some(RetryCount { count: 1, elapsed }) => write!(f, ", after one retry in {elapsed:.1?}"),
            Some(RetryCount { count, elapsed }) => write!(f, ", after {count} retries in {elapsed:.1?}"),
        }
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.procedure())?;
        match self {
            Self::Transport { failure, retries, .. } => write!(f, "{failure}{retries}"),
            Self::Connect { error, retries, .. } => write!(f, "{error}{retries}"),
            Self::Encode { .. } => f.write_str("cannot encode the arguments"),
            Self::Credential { len, .. } => write!(
                f,
                "the credential has {len} bytes, and may have 400 (RFC 5531 section 8.2): send a longer token as an argument"
            ),
            Self::Landing { index, len, needed: 0, .. } => {
                write!(f, "landing buffer {index} of {len} bytes is for no result: the call has fewer eligible results")
            }
            Self::Landing { index, len, needed, .. } => {
                write!(f, "landing buffer {index} has {len} bytes, but its eligible result may have {needed}")
            }
            Self::Security { sent: false, .. } => f.write_str("cannot secure the call"),
            Self::Security { sent: true, .. } => f.write_str("the reply failed its security check"),
            Self::Rpc { .. } => f.write_str("the server returned an error"),
            Self::Decode { .. } => f.write_str("cannot decode the reply"),
            Self::DirectPlacement { .. } => {
                f.write_str("the reply violates the rules of direct data placement (RFC 8166 section 6.1)")
            }
            Self::Middleware { sent: false, .. } => f.write_str("the call failed before it was sent, a retry is safe"),
            Self::Middleware { sent: true, .. } => f.write_str(
                "the call failed after it was sent, and may have been executed, retry only an idempotent procedure",
            ),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // The message is that of the failure, so the cause is as well.
            Self::Transport { failure, .. } => failure.source(),
            Self::Connect { error, .. } => error.source(),
            Self::Landing { .. } | Self::Credential { .. } => None,
            Self::Encode { source, .. } => Some(source),
            Self::Security { source, .. } => Some(source),
            Self::Rpc { source, .. } => Some(source),
            Self::Decode { source, .. } | Self::DirectPlacement { source, .. } => Some(source),
            Self::Middleware { source, .. } => Some(&**source),
        }
    }
}

impl CallError {
    // RFC 8166 §6.1: a violation is reported to the caller as a permanent error.
    pub(super) fn from_decode(procedure: &'static str, source: DecodeError) -> Self {
        match source.kind() {
            DecodeErrorKind::ChunkLength { .. }
            | DecodeErrorKind::NotReduced { .. }
            | DecodeErrorKind::StrayChunk { .. }
            | DecodeErrorKind::StrayWriteChunk { .. } => Self::DirectPlacement { procedure, source },
            _ => Self::Decode { procedure, source },
        }
    }

    /// Returns the kind of error as a short fixed word, for traces and metrics. An error status has its own name.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. }
            | Self::Connect { error: ConnectError::Late { .. }, .. } => "deadline",
            Self::Transport { failure: CallFailure::Closed { .. }, .. } => "closed",
            Self::Transport { .. } => "transport",
            Self::Connect { .. } => "connect",
            Self::Encode { .. } | Self::Landing { .. } => "arguments",
            Self::Security { .. } | Self::Credential { .. } => "security",
            Self::Rpc { source, .. } => source.status(),
            Self::Decode { .. } | Self::DirectPlacement { .. } => "reply",
            Self::Middleware { .. } => "middleware",
        }
    }

    /// Adds the retries of the call to an error of the connection.
    pub(super) fn retried(mut self, made: Retries) -> Self {
        if let Self::Transport { retries, .. } | Self::Connect { retries, .. } = &mut self {
            *retries = made;
        }
        self
    }

    /// Returns the failure of an attempt that got no valid RPC reply, if the server may have executed it. `None` for
    /// any other error.
    pub(super) fn into_sent(self) -> Option<CallFailure> {
        match self {
            Self::Transport { failure, .. } => Some(failure).filter(|failure| !failure.is_unexecuted()),
            Self::Connect { error: ConnectError::Closed { reason, sent: true, .. }, .. } => {
                Some(CallFailure::Closed { reason, sent: true })
            }
            _ => None,
        }
    }

    /// Returns the name of the procedure that was called: `VERSION.PROCEDURE`.
    #[must_use]
    pub fn procedure(&self) -> &'static str {
        match self {
            Self::Transport { procedure, .. }
            | Self::Connect { procedure, .. }
            | Self::Credential { procedure, .. }
            | Self::Encode { procedure, .. }
            | Self::Landing { procedure, .. }
            | Self::Security { procedure, .. }
            | Self::Rpc { procedure, .. }
            | Self::Decode { procedure, .. }
            | Self::DirectPlacement { procedure, .. }
            | Self::Middleware { procedure, .. } => procedure,
        }
    }

    /// Returns `true` if the server certainly did not execute the call, so that a retry cannot execute it twice.
    ///
    /// A call of an idempotent procedure may be retried in any case.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        match self {
            Self::Connect { error, .. } => error.is_unsent(),
            Self::Encode { .. } | Self::Landing { .. } | Self::Credential { .. } => true,
            Self::Security { sent, .. } | Self::Middleware { sent, .. } => !sent,
            Self::Transport { failure, .. } => failure.is_unexecuted(),
            // RFC 5531 §9: a server sends every status except SYSTEM_ERR before the procedure runs.
            Self::Rpc { source, .. } => source.is_retry_safe(),
            Self::Decode { .. } | Self::DirectPlacement { .. } => false,
        }
    }

    /// Returns `true` if the connection was lost or could not be made. Other calls fail as well until a new connection
    /// is made.
    #[must_use]
    pub fn is_connection_loss(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Transport { failure: CallFailure::Closed { .. }, .. })
    }
}
