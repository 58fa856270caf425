//! Entry points for fuzzers: data that a peer sends before and during the handshake.

use std::{
    future::Future,
    io,
    pin::{Pin, pin},
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Poll, Waker},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    TlsPolicy, TlsServerConfig,
    accept::{self, AcceptedStream, ClientStream},
    probe::{self, MAX_REPLY_LEN, PROBE_LEN, ShortRecord},
};
use crate::{rpc::ReplyHeader, security::HostAddr, xdr::Decoder};

/// Maximum number of bytes that a server sends before a handshake is complete: an offer and the flight of RFC 8446 §2
/// with one certificate.
const MAX_SENT: usize = 16 << 10;

/// A client that sends `bytes`, and `rest` after the server has replied to the first call.
struct ScriptedClient<'a> {
    bytes: &'a [u8],
    rest: &'a [u8],
    /// Maximum number of bytes that one read returns.
    at_once: usize,
    /// Number of bytes that the server has sent.
    sent: &'a AtomicUsize,
}

impl AsyncRead for ScriptedClient<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let len = self.bytes.len().min(buffer.remaining()).min(self.at_once);
        let (read, later) = self.bytes.split_at(len);
        buffer.put_slice(read);
        self.bytes = later;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ScriptedClient<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.sent.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        assert!(sent <= MAX_SENT, "the server sends much to an unknown client");
        if self.bytes.is_empty() {
            self.bytes = std::mem::take(&mut self.rest);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl ClientStream for ScriptedClient<'_> {
    async fn first_byte(&self) -> io::Result<u8> {
        self.bytes.first().copied().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    fn has_received(&self) -> bool {
        !self.bytes.is_empty()
    }
}

/// Sends `bytes` to a server, either from the start of the connection or after a probe and its reply. The first byte is
/// not sent. It selects one of these two ways, the policy of the server, and the number of bytes that the server reads
/// at once. Returns the number of bytes that the server sends. Must run in a tokio runtime with timers enabled.
///
/// # Panics
/// Panics if the server sends too much before the end of the handshake, continues without TLS although its policy
/// requires TLS or the client has sent a probe, completes the handshake, or loses received bytes.
pub fn tls_accept(config: &TlsServerConfig, bytes: &[u8]) -> usize {
    let Some((&choice, bytes)) = bytes.split_first() else { return 0 };
    let probe = probe::probe(7, 100_003, 3).expect("a short header");
    let (first, rest) = if choice & 1 == 0 { (&probe[..], bytes) } else { (bytes, &[][..]) };
    let policy = if choice & 2 == 0 { TlsPolicy::Required } else { TlsPolicy::Opportunistic };
    let (at_once, sent) = (1 << (choice >> 4), AtomicUsize::new(0));
    let client = ScriptedClient { bytes: first, rest, at_once, sent: &sent };
    let host = HostAddr::of(([127, 0, 0, 1], 1).into());
    let started = pin!(accept::begin(client, host, config, policy, None, |_, _| Ok(())));
    let Poll::Ready(started) = started.poll(&mut Context::from_waker(Waker::noop())) else {
        unreachable!("the stream is always ready, and has an end")
    };
    match started {
        Ok(AcceptedStream::Plain { received, .. }) => {
            assert!(policy != TlsPolicy::Required, "a server that requires TLS goes on without it");
            assert!(choice & 1 == 1 && bytes.starts_with(&received), "bytes are kept in order");
        }
        Ok(AcceptedStream::Tls(_)) => unreachable!("a fuzzer does not know the keys of the session"),
        Err(_) => {}
    }
    sent.load(Ordering::Relaxed)
}

/// Maximum length in bytes of the record markers that are read for one record: one marker for each fragment that a
/// record may have, and one more.
const MARKERS_LEN: usize = 4 * 9;

/// Reads `bytes` as the first call of a client, and as the reply of a server to a probe. Panics if a recognized probe
/// is not encoded as in RFC 9289 §4.1, if an offer for it is not recognized, or if a recognized offer lacks the token
/// STARTTLS.
pub fn tls_probe(bytes: &[u8]) {
    if let Some(ShortRecord { message: Some(message), .. }) = record(bytes, PROBE_LEN)
        && let Some(header) = probe::as_probe(&message)
    {
        let sent = probe::probe(header.xid, header.program, header.version).expect("a short header");
        assert_eq!(sent[4..], message, "a probe has one encoding");
        for outcome in [Ok(()), Err(crate::rpc::RpcError::ProgramUnavailable)] {
            let offer = probe::offer(header.xid, outcome).expect("a short header");
            let reply = record(&offer, MAX_REPLY_LEN).and_then(|record| record.message).expect("a short record");
            assert!(is_offer(&reply), "every reply to a probe is an offer");
        }
    }
    if let Some(ShortRecord { message: Some(message), .. }) = record(bytes, MAX_REPLY_LEN)
        && is_offer(&message)
    {
        assert!(message.windows(8).any(|token| token == b"STARTTLS"), "an offer contains the token");
    }
}

fn is_offer(message: &[u8]) -> bool {
    let mut decoder = Decoder::new(message);
    ReplyHeader::decode(&mut decoder).is_ok_and(|reply| decoder.finish().is_ok() && probe::offers_tls(&reply))
}

/// Reads a record of at most `max` bytes. Returns `None` if `bytes` ends before the record does.
fn record(bytes: &[u8], max: u64) -> Option<ShortRecord> {
    let mut rest = bytes;
    let read: io::Result<ShortRecord> = {
        let mut reading = pin!(probe::read_record(&mut rest, max));
        let Poll::Ready(read) = reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            unreachable!("a slice is always ready")
        };
        read
    };
    let record = read.ok()?;
    assert!(bytes.starts_with(&record.raw) && record.raw.len() + rest.len() == bytes.len(), "bytes are kept in order");
    assert!(record.raw.len() <= max as usize + MARKERS_LEN, "no more is read than a short record");
    Some(record)
}
