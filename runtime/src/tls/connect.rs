//! The part of a client's connection set-up that starts TLS.

use std::{io, sync::Arc, time::Duration};

use rustls::pki_types::ServerName;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};
use tokio_rustls::TlsConnector;

use super::{
    TlsClientConfig, TlsError, TlsPolicy,
    probe::{self, MAX_REPLY_LEN, ShortRecord},
    stream::TlsSetUp,
};
use crate::{
    provider::{IoError, SetupError},
    rpc::ReplyHeader,
    xdr::Decoder,
};

/// A client's TLS settings for one URL.
#[derive(Debug, Clone)]
pub(crate) struct TlsTarget {
    pub(crate) config: TlsClientConfig,
    /// The policy, which is not [`TlsPolicy::Off`].
    pub(crate) policy: TlsPolicy,
    /// The name that the server's certificate must have (RFC 9289 §5.2.1).
    pub(crate) name: ServerName<'static>,
}

/// Delay of the ClientHello on the second connection to a server that did not answer the first ClientHello.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Starts TLS on a new connection, on which nothing has been sent or received. If the server does not offer TLS,
/// returns the connection without TLS, or fails if the policy requires TLS.
///
/// nfs-ganesha loses a ClientHello that arrives too soon after the offer of TLS. The handshake of the first attempt is
/// therefore limited to a third of the time limit. If [`is_silence`] returns `true` for the error, the caller makes a
/// second connection and passes `true` for `is_retry`. The ClientHello is then delayed by [`RETRY_PAUSE`].
pub(crate) async fn connect(mut stream: TcpStream, target: &TlsTarget, is_retry: bool) -> Result<TlsSetUp, SetupError> {
    let limit = target.config.handshake_timeout();
    tokio::time::timeout(limit, async {
        let TlsTarget { config, policy, name } = target;
        let xid = crate::config::xid_seed();
        // RFC 9289 §4.1: without an offer, no handshake begins.
        if let Some(reply) = refused(&mut stream, config.probed(), xid).await? {
            if *policy == TlsPolicy::Required {
                return Err(TlsError::NotOffered { reply }.into());
            }
            tracing::info!(target: "rpcrdma", reply, "the server does not offer TLS, continuing without it");
            return Ok(TlsSetUp::plain(stream, Vec::new()));
        }
        // What follows the offer is sent by somebody without the keys (RFC 9289 §5.1.1). Bytes that arrive later go to
        // the TLS library, which accepts only a handshake.
        if matches!(stream.try_read(&mut [0]), Ok(1..)) {
            return Err(TlsError::SpuriousData.into());
        }
        // RFC 9289 §4.1: on the same connection.
        let connector = TlsConnector::from(Arc::clone(&config.current()));
        if is_retry {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let patience = if is_retry { limit } else { limit / 3 };
        let stream = tokio::time::timeout(patience, connector.connect(name.clone(), stream)).await;
        let stream = stream.map_err(|_| TlsError::TimedOut(patience))?;
        let stream = stream.map_err(|error| TlsError::Handshake(error.into()))?;
        // RFC 9289 §5: a session with a server that has replied incorrectly is not used.
        let secured = TlsSetUp::secured(stream.into(), config.may_lack_alpn())?;
        tracing::info!(target: "rpcrdma", session = ?secured.session, "TLS session established");
        Ok(secured)
    })
    .await
    .map_err(|_| TlsError::TimedOut(limit))?
}

/// Returns `true` if the peer has refused the session by an alert. In TLS 1.3, a server can send this alert after the
/// client has finished its handshake.
pub(crate) fn is_alert(error: &IoError) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::AlertReceived(_)))
}

/// Returns `true` if the server has offered TLS, but did not finish the handshake of the first attempt within its time
/// limit.
pub(crate) fn is_silence(error: &SetupError, target: &TlsTarget) -> bool {
    matches!(TlsError::find(error), Some(TlsError::TimedOut(after)) if *after < target.config.handshake_timeout())
}

/// Sends the AUTH_TLS probe and reads the reply. Returns `None` if the reply offers TLS, and otherwise a description of
/// the reply. Fails if the server does not send a well-formed reply with the XID of the probe.
async fn refused(
    stream: &mut TcpStream,
    (program, version): (u32, u32),
    xid: u32,
) -> Result<Option<String>, SetupError> {
    let probe = probe::probe(xid, program, version).map_err(io::Error::other)?;
    stream.write_all(&probe).await?;
    let wrong = |detail: String| SetupError::NotOurProtocol { expected: "ONC RPC over TCP", detail };
    let ShortRecord { message, .. } = probe::read_record(stream, MAX_REPLY_LEN).await?;
    let message = message.ok_or_else(|| wrong("its reply to a NULL call is too long".into()))?;
    let mut decoder = Decoder::new(&message);
    let reply = ReplyHeader::decode(&mut decoder)
        .map_err(|error| wrong(format!("its reply to a NULL call is malformed ({error})")))?;
    if reply.xid != xid || decoder.finish().is_err() {
        return Err(wrong("its reply does not match the NULL call".into()));
    }
    if probe::offers_tls(&reply) {
        return Ok(None);
    }
    Ok(Some(match reply.outcome {
        Ok(()) => "success without an offer".into(),
        Err(error) => format!("`{error}`"),
    }))
}
