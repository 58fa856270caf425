//! The I/O of a byte-stream connection with record marking.

use std::{
    future::Future as _,
    io::{self, ErrorKind, IoSlice},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::{BytesMut, buf::Limit};
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite},
    net::TcpStream,
};

use super::EngineIo;
use crate::{
    engine::{Engine, stream::StreamConnection},
    provider::DisconnectReason,
    transport::BoxStream,
};

/// Maximum number of system calls in either direction before the engine processes their results.
const MAX_CALLS: usize = 16;

/// A byte stream that carries records: a TCP connection, a TLS session on a TCP connection, a local socket, or a stream
/// of a provider.
///
/// After an error of the kind `WouldBlock` or `Interrupted`, the caller retries the read or write.
pub(crate) trait ByteStream: Send + 'static {
    /// Writes bytes of `slices`, which are not empty. Returns the number of bytes written.
    fn poll_write(&mut self, slices: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Sends written bytes that the stream has buffered.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads available bytes into `room`. Returns their number, 0 at the end of the stream.
    fn poll_read(&mut self, room: &mut Limit<&mut BytesMut>, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Sends buffered bytes and closes the local side of the stream.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Implements [`ByteStream`] for a socket.
macro_rules! socket {
    ($socket:ty) => {
        impl ByteStream for $socket {
            fn poll_write(&mut self, slices: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
                self.poll_write_ready(cx).map(|ready| ready.and_then(|()| self.try_write_vectored(slices)))
            }

            fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_read(&mut self, room: &mut Limit<&mut BytesMut>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
                self.poll_read_ready(cx).map(|ready| ready.and_then(|()| self.try_read_buf(room)))
            }

            fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_shutdown(Pin::new(self), cx)
            }
        }
    };
}

impl ByteStream for BoxStream {
    fn poll_write(&mut self, slices: &[IoSlice<'_>], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.as_mut().poll_write_vectored(cx, slices)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self.as_mut(), cx)
    }

    fn poll_read(&mut self, room: &mut Limit<&mut BytesMut>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Dropping this future loses nothing: it either has read, or returns `Pending`.
        pin!(self.read_buf(room)).poll(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self.as_mut(), cx)
    }
}

socket!(TcpStream);
#[cfg(unix)]
socket!(tokio::net::UnixStream);

/// The I/O of a byte-stream connection with record marking (RFC 5531 §11).
pub(crate) struct TcpIo<S = TcpStream> {
    stream: S,
    /// The port of the engine. It is empty, because the engine of a byte stream posts no work.
    port: (),
    /// `true` if the last poll has sent all output and registered its waker for input.
    is_settled: bool,
    /// `true` if the last attempt to receive found no data and registered its waker.
    is_drained: bool,
}

impl<S: ByteStream> TcpIo<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, port: (), is_settled: false, is_drained: false }
    }

    /// Sends output without waiting, in at most [`MAX_CALLS`] writes. Returns `true` if nothing is left to send.
    fn send(&mut self, engine: &mut StreamConnection, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..MAX_CALLS {
            if !engine.has_output() {
                break;
            }
            let slices = engine.output();
            let Poll::Ready(sent) = self.stream.poll_write(&slices, cx) else { return Ok(false) };
            drop(slices);
            match sent {
                Ok(len) => engine.sent(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        let flushed = self.stream.poll_flush(cx);
        let is_flushed = flushed.is_ready();
        if let Poll::Ready(done) = flushed {
            done?;
        }
        if engine.wants_shutdown()
            && let Poll::Ready(done) = self.stream.poll_shutdown(cx)
        {
            done?;
            engine.shut_down();
        }
        Ok(is_flushed && !engine.has_output())
    }

    /// Receives the available data, in at most [`MAX_CALLS`] reads, until the engine has to process it. Returns `true`
    /// if the stream has no more data for now.
    fn receive(&mut self, engine: &mut StreamConnection, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..MAX_CALLS {
            if !engine.wants_input() || (engine.has_input() && engine.missing() == 0) {
                break;
            }
            let Poll::Ready(received) = self.stream.poll_read(&mut engine.room(), cx) else { return Ok(true) };
            match received {
                Ok(0) => {
                    engine.ended();
                    // Answers the closure alert of a TLS session with one (RFC 8446 §6.1). The connection has ended, so
                    // that nothing depends on it.
                    let _ = self.stream.poll_shutdown(cx);
                    break;
                }
                Ok(len) => engine.received(len),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl<S: ByteStream> EngineIo for TcpIo<S> {
    type Engine = StreamConnection;

    fn port(&mut self) -> &mut () {
        &mut self.port
    }

    fn poll(&mut self, engine: &mut StreamConnection, cx: &mut Context<'_>, _others: bool, is_first: bool) -> Poll<()> {
        let before = engine.bytes_moved();
        let sent = self.send(engine, cx);
        let received = if is_first || !self.is_drained { self.receive(engine, cx) } else { Ok(true) };
        self.is_drained = matches!(received, Ok(true));
        self.is_settled = matches!(sent, Ok(true)) && self.is_drained;
        for error in [sent.err(), received.err()].into_iter().flatten() {
            engine.connection_lost(DisconnectReason::Transport(error.into()));
        }
        // A reply that was sent completely produces an engine event, and may make room for more work.
        let moved = before != engine.bytes_moved();
        if moved || engine.is_pending() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn needs_poll(&self, engine: &StreamConnection) -> bool {
        !self.is_settled || engine.has_output() || engine.wants_shutdown() || engine.is_pending()
    }

    fn has_input(&self, engine: &StreamConnection) -> bool {
        engine.has_input()
    }

    fn handle_input(&mut self, engine: &mut StreamConnection, most: usize) {
        engine.handle_records(most);
    }
}
