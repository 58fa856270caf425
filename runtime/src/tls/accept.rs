//! The part of a server's connection set-up that starts TLS.

use std::{future::Future, io, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use super::{
    TlsError, TlsPolicy, TlsServerConfig,
    probe::{self, AUTH_TLS, PROBE_LEN, ShortRecord},
    stream::TlsSetUp,
};
use crate::{
    provider::SetupError,
    rpc::{AuthFailure, AuthStat, ReplyHeader, RpcError, peek_words},
    security::HostAddr,
};

/// The content type of the TLS record with which a handshake begins (RFC 8446 §5.1). A record marker cannot have this
/// value as its first byte, unless its fragment is not the last and has 352 MiB or more.
const HANDSHAKE: u8 = 22;
/// `msg_type` of a call (RFC 5531 §9).
const CALL: u32 = 0;
/// Length in bytes of the header of a call up to the flavor of its credential (RFC 5531 §9).
const HEAD_LEN: usize = 28;

/// Waits for the first call of a connection, and starts TLS if the call is a probe. Fails if the call is not a probe
/// and `policy` requires TLS.
///
/// `idle` limits the time to the first byte if TLS is not required. The time from the first byte to the end of the
/// handshake is always limited. `null` returns the outcome of a NULL call of a program and a version.
pub(crate) async fn accept(
    stream: TcpStream,
    config: &TlsServerConfig,
    policy: TlsPolicy,
    idle: Option<Duration>,
    null: impl Fn(u32, u32) -> Result<(), RpcError>,
) -> Result<TlsSetUp, SetupError> {
    let host = HostAddr::of(stream.peer_addr()?);
    match begin(stream, host, config, policy, idle, null).await? {
        AcceptedStream::Plain { stream, received } => Ok(TlsSetUp::plain(stream, received)),
        AcceptedStream::Tls(stream) => {
            let secured = TlsSetUp::secured((*stream).into(), config.may_lack_alpn())?;
            tracing::info!(target: "rpcrdma", session = ?secured.session, "TLS session established");
            Ok(secured)
        }
    }
}

/// The stream of a client before its first call.
pub(super) trait ClientStream: AsyncRead + AsyncWrite + Unpin {
    /// Waits for the next byte, and returns it without removing it from the stream. Fails at the end of the stream.
    fn first_byte(&self) -> impl Future<Output = io::Result<u8>> + Send;

    /// Returns `true` if the client has sent a byte that was not read yet. May remove that byte from the stream.
    fn has_received(&self) -> bool;
}

impl ClientStream for TcpStream {
    async fn first_byte(&self) -> io::Result<u8> {
        let mut byte = [0];
        match self.peek(&mut byte).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(byte[0]),
        }
    }

    fn has_received(&self) -> bool {
        matches!(self.try_read(&mut [0]), Ok(1..))
    }
}

/// A connection whose client has sent its first call.
pub(super) enum AcceptedStream<S> {
    /// The client does not use TLS.
    Plain { stream: S, received: Vec<u8> },
    /// The handshake is complete, and the session has not been checked yet. Boxed because a TLS stream is much larger
    /// than the other variant.
    Tls(Box<TlsStream<S>>),
}

/// Performs the part of [`accept`] that reads from an unknown client.
pub(super) async fn begin<S: ClientStream>(
    mut stream: S,
    host: HostAddr,
    config: &TlsServerConfig,
    policy: TlsPolicy,
    idle: Option<Duration>,
    null: impl Fn(u32, u32) -> Result<(), RpcError>,
) -> Result<AcceptedStream<S>, SetupError> {
    let limit = config.handshake_timeout();
    match policy {
        // A client without TLS may keep a connection for as long as it likes before its first call.
        TlsPolicy::Opportunistic | TlsPolicy::Off => {
            within(idle.unwrap_or(Duration::MAX), async { Ok(stream.first_byte().await?) }).await?;
        }
        TlsPolicy::Required => {
            within(limit, async { Ok(stream.first_byte().await?) }).await?;
        }
    }
    within(limit, async {
        let first = probe::read_record(&mut stream, PROBE_LEN).await?;
        let Some(header) = first.message.as_deref().and_then(probe::as_probe) else {
            if policy == TlsPolicy::Required {
                refuse(stream, first).await;
                return Err(TlsError::NotRequested.into());
            }
            tracing::info!(target: "rpcrdma", "the client does not use TLS");
            return Ok(AcceptedStream::Plain { stream, received: first.raw });
        };
        // RFC 9289 §5.1.1: such data is discarded without a response.
        if stream.has_received() {
            return Err(TlsError::SpuriousData.into());
        }
        let offer = probe::offer(header.xid, null(header.program, header.version)).map_err(io::Error::other)?;
        stream.write_all(&offer).await?;
        if stream.first_byte().await? != HANDSHAKE {
            return Err(TlsError::SpuriousData.into());
        }
        // Connections wait in order. One that waits too long fails, and costs no other connection anything.
        let _admission = config.handshakes().admit(host).await;
        let stream = TlsAcceptor::from(config.current()).accept(stream).await;
        let stream = stream.map_err(|error| TlsError::Handshake(error.into()))?;
        Ok(AcceptedStream::Tls(Box::new(stream)))
    })
    .await
}

async fn within<T>(limit: Duration, future: impl Future<Output = Result<T, SetupError>>) -> Result<T, SetupError> {
    tokio::time::timeout(limit, future).await.map_err(|_| TlsError::TimedOut(limit))?
}

/// Denies a call without TLS, and closes the connection.
async fn refuse(mut stream: impl ClientStream, first: ShortRecord) {
    let ShortRecord { message, mut raw } = first;
    let head = match message {
        Some(message) => message,
        None => {
            // A record with one fragment that is too long. Only its marker has been read. The record is longer than a
            // probe, so that it has a credential.
            let mut head = vec![0; HEAD_LEN];
            if raw.len() != 4 || stream.read_exact(&mut head).await.is_err() {
                return;
            }
            raw.extend_from_slice(&head);
            head
        }
    };
    let Some([xid, CALL]) = peek_words(&head) else { return };
    // RFC 9289 §4.1: AUTH_TLS with any procedure but NULL is a bad credential.
    let has_auth_tls = peek_words::<{ HEAD_LEN / 4 }>(&head).is_some_and(|words| words[6] == AUTH_TLS);
    let stat = if has_auth_tls { AuthStat::AuthBadcred } else { AuthStat::AuthTooweak };
    let denied = ReplyHeader::failure(xid, AuthFailure::from(stat).into());
    let Ok(reply) = probe::reply(&denied) else { return };
    if stream.write_all(&reply).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    // The kernel would reset the connection, and drop the reply, if data remained unread. The caller limits the time.
    let mut rest = [0; 4096];
    while matches!(stream.read(&mut rest).await, Ok(1..)) {}
}
