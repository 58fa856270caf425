//! The stream of a `tcp://` connection, with or without TLS.

use std::{
    future::Future as _,
    io::{self, IoSlice},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut, buf::Limit};
use rustls::{CommonState, ProtocolVersion};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

use super::TlsError;
use crate::{
    driver::ByteStream,
    security::{TlsIdentity, TlsSession},
};

/// The application protocol of RPC-with-TLS (RFC 9289 §7.2).
pub(super) const ALPN: &[u8] = b"sunrpc";
/// The label of the channel binding `tls-exporter` (RFC 9266 §2).
const BINDING_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// The stream of a connection whose set-up may have started TLS.
pub(crate) enum TlsOrTcp {
    /// The stream of a TLS session. Boxed because it is much larger than the stream of a TCP connection.
    Tls(Box<TlsStream<TcpStream>>),
    Tcp(TcpStream),
}

/// A connection after the part of its set-up that may start TLS.
pub(crate) struct TlsSetUp {
    pub(crate) stream: TlsOrTcp,
    /// The TLS session, if there is one.
    pub(crate) session: Option<Arc<TlsSession>>,
    /// Bytes that were received during set-up and belong to the records of the connection.
    pub(crate) received: Vec<u8>,
}

impl TlsSetUp {
    /// Continues without TLS. `received` contains the bytes that were read from the stream during set-up.
    pub(super) fn plain(stream: TcpStream, received: Vec<u8>) -> Self {
        Self { stream: TlsOrTcp::Tcp(stream), session: None, received }
    }

    /// Checks the TLS version and the ALPN protocol of a session (RFC 9289 §5), and reads the peer's identity and the
    /// channel binding. `may_lack_alpn` is `true` if a session without ALPN is accepted.
    pub(super) fn secured(stream: TlsStream<TcpStream>, may_lack_alpn: bool) -> Result<Self, TlsError> {
        let (_, common) = stream.get_ref();
        check(common, may_lack_alpn)?;
        let certificates: Vec<_> = common.peer_certificates().unwrap_or_default().to_vec();
        let identity = certificates.first().map(|certificate| identity(certificate)).transpose()?;
        // RFC 9289 §4.2.1.
        let mut binding = [0; 32];
        let exported = match &stream {
            TlsStream::Client(stream) => stream.get_ref().1.export_keying_material(&mut binding, BINDING_LABEL, None),
            TlsStream::Server(stream) => stream.get_ref().1.export_keying_material(&mut binding, BINDING_LABEL, None),
        };
        exported.map_err(|error| TlsError::Handshake(io::Error::other(error).into()))?;
        let session = TlsSession {
            certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
            identity,
            cipher_suite: common
                .negotiated_cipher_suite()
                .and_then(|suite| suite.suite().as_str())
                .unwrap_or("unknown"),
            channel_binding: binding,
        };
        Ok(Self { stream: TlsOrTcp::Tls(Box::new(stream)), session: Some(Arc::new(session)), received: Vec::new() })
    }
}

fn check(common: &CommonState, may_lack_alpn: bool) -> Result<(), TlsError> {
    // A configuration of the caller's own may allow earlier versions.
    if common.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Err(TlsError::OldVersion);
    }
    match common.alpn_protocol() {
        Some(ALPN) => Ok(()),
        None if may_lack_alpn => Ok(()),
        _ => Err(TlsError::NoAlpn),
    }
}

/// Returns the identity in a certificate that was verified. Fails if the certificate cannot be parsed, or has a DNS
/// name with a wildcard.
fn identity(certificate: &rustls::pki_types::CertificateDer<'_>) -> Result<TlsIdentity, TlsError> {
    let parsed = webpki::EndEntityCert::try_from(certificate)
        .map_err(|_| TlsError::Certificate { problem: "cannot be parsed" })?;
    let dns_names: Vec<_> = parsed.valid_dns_names().map(str::to_owned).collect();
    // RFC 9289 §5.2.1: DNS names MUST NOT contain the wildcard character.
    if dns_names.iter().any(|name| name.contains('*')) {
        return Err(TlsError::Certificate {
            problem: "has a DNS name with a wildcard, which RPC-with-TLS does not allow",
        });
    }
    Ok(TlsIdentity {
        serial: parsed.serial().to_vec(),
        issuer: parsed.issuer().to_vec(),
        subject: parsed.subject().to_vec(),
        dns_names,
        uris: parsed.valid_uri_names().map(str::to_owned).collect(),
    })
}

impl ByteStream for TlsOrTcp {
    fn poll_write(&mut self, slices: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tcp(stream) => stream.poll_write(slices, cx),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(stream) => AsyncWrite::poll_flush(Pin::new(stream), cx),
            Self::Tcp(stream) => ByteStream::poll_flush(stream, cx),
        }
    }

    fn poll_read(&mut self, room: &mut Limit<&mut BytesMut>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            // Dropping this future loses nothing: it either has read, or returns `Pending`.
            Self::Tls(stream) => pin!(stream.read_buf(room)).poll(cx),
            Self::Tcp(stream) => ByteStream::poll_read(stream, room, cx),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // Sends a closure alert (RFC 9289 §5.1.1).
            Self::Tls(stream) => AsyncWrite::poll_shutdown(Pin::new(stream), cx),
            Self::Tcp(stream) => ByteStream::poll_shutdown(stream, cx),
        }
    }
}
