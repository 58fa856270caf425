//! The part of a server's connection set-up that starts TLS.

use std::{future::Future, io, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tokio_rustls::TlsAcceptor;

use super::{
    TlsPolicy, TlsServerConfig,
    probe::{self, AUTH_TLS, PROBE_LEN, ShortRecord},
    stream::TlsSetUp,
};
use crate::{
    provider::{SetupError, TlsError},
    rpc::{AuthFailure, AuthStat, HostAddr, ReplyHeader, RpcError, peek_words},
};

/// The content type of the TLS record with which a handshake begins (RFC 8446 §5.1). A record marker cannot have this value as
/// its first byte, unless its fragment is not the last and has more than 352 MiB.
const HANDSHAKE: u8 = 22;
/// `msg_type` of a call (RFC 5531 §9).
const CALL: u32 = 0;

/// Waits for the first call of a connection, and starts TLS if it is a probe.
///
/// `idle` limits the time to the first byte if TLS is not required. The time from the first byte to the end of the handshake is
/// always limited. `null` returns the outcome of a NULL call of a program and a version.
pub(crate) async fn accept(
    mut stream: TcpStream,
    config: &TlsServerConfig,
    policy: TlsPolicy,
    idle: Option<Duration>,
    null: impl Fn(u32, u32) -> Result<(), RpcError>,
) -> Result<TlsSetUp, SetupError> {
    let limit = config.handshake_timeout();
    let host = HostAddr::of(stream.peer_addr()?);
    match policy {
        // A client without TLS may keep a connection for as long as it likes before its first call.
        TlsPolicy::Opportunistic | TlsPolicy::Off => {
            within(idle.unwrap_or(Duration::MAX), first_byte(&stream)).await?;
        }
        TlsPolicy::Required => {
            within(limit, first_byte(&stream)).await?;
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
            return Ok(TlsSetUp::plain(stream, first.raw));
        };
        // RFC 9289 §5.1.1: such data is discarded without a response.
        if matches!(stream.try_read(&mut [0]), Ok(1..)) {
            return Err(TlsError::SpuriousData.into());
        }
        let offer = probe::offer(header.xid, null(header.program, header.version)).map_err(io::Error::other)?;
        stream.write_all(&offer).await?;
        if first_byte(&stream).await? != HANDSHAKE {
            return Err(TlsError::SpuriousData.into());
        }
        // Connections wait in order. One that waits too long fails, and costs no other connection anything.
        let _admission = config.handshakes().admit(host).await;
        let stream = TlsAcceptor::from(config.current()).accept(stream).await;
        let stream = stream.map_err(|error| TlsError::Handshake(error.into()))?;
        let secured = TlsSetUp::secured(stream.into(), config.may_lack_alpn())?;
        tracing::info!(target: "rpcrdma", session = ?secured.session, "TLS session established");
        Ok(secured)
    })
    .await
}

/// Waits for the first byte, and returns it without removing it from the stream.
async fn first_byte(stream: &TcpStream) -> Result<u8, SetupError> {
    let mut byte = [0];
    match stream.peek(&mut byte).await? {
        0 => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        _ => Ok(byte[0]),
    }
}

async fn within<T>(limit: Duration, future: impl Future<Output = Result<T, SetupError>>) -> Result<T, SetupError> {
    tokio::time::timeout(limit, future).await.map_err(|_| TlsError::TimedOut(limit))?
}

/// Denies a call without TLS, and closes the connection.
async fn refuse(mut stream: TcpStream, first: ShortRecord) {
    let ShortRecord { message, mut raw } = first;
    let head = match message {
        Some(message) => message,
        None => {
            // A record with one fragment that is too long. Only its marker has been read.
            let mut head = vec![0; 8];
            if raw.len() != 4 || stream.read_exact(&mut head).await.is_err() {
                return;
            }
            raw.extend_from_slice(&head);
            head
        }
    };
    let Some([xid, CALL]) = peek_words(&head) else { return };
    // RFC 9289 §4.1: AUTH_TLS with any procedure but NULL is a bad credential.
    let has_auth_tls = peek_words::<7>(&head).is_some_and(|words| words[6] == AUTH_TLS);
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
