//! Byte streams in memory, for simulations.

use std::{
    fmt,
    future::Future,
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::byte_stream::ByteStream;

trait AnyStream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> AnyStream for S {}

/// A byte stream that replaces a TCP connection in a simulation, such as one end of [`tokio::io::duplex`].
pub struct MemoryStream {
    stream: Pin<Box<dyn AnyStream>>,
    local_addr: SocketAddr,
    peer_addr: SocketAddr,
}

impl MemoryStream {
    /// Creates a stream that reports the given addresses.
    #[must_use]
    pub fn new(
        stream: impl AsyncRead + AsyncWrite + Send + 'static,
        local_addr: SocketAddr,
        peer_addr: SocketAddr,
    ) -> Self {
        Self { stream: Box::pin(stream), local_addr, peer_addr }
    }

    /// Returns the local address and the address of the peer.
    pub(crate) const fn addrs(&self) -> [SocketAddr; 2] {
        [self.local_addr, self.peer_addr]
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.local_addr)
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer_addr)
    }
}

impl fmt::Debug for MemoryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { local_addr, peer_addr, .. } = self;
        f.debug_struct("MemoryStream").field("local_addr", local_addr).field("peer_addr", peer_addr).finish()
    }
}

impl AsyncRead for MemoryStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.as_mut().poll_read(cx, buf)
    }
}

impl AsyncWrite for MemoryStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().stream.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream.as_mut().poll_shutdown(cx)
    }
}

impl ByteStream for MemoryStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let Some(first) = into.iter_mut().find(|slice| !slice.is_empty()) else { return Poll::Ready(Ok(0)) };
        let mut buf = ReadBuf::new(first);
        ready!(self.stream.as_mut().poll_read(cx, &mut buf))?;
        Poll::Ready(Ok(buf.filled().len()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.stream.as_mut().poll_write_vectored(cx, from)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.as_mut().poll_shutdown(cx)
    }
}

type StreamFuture = Pin<Box<dyn Future<Output = io::Result<MemoryStream>> + Send>>;

/// A function that connects to an address.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<dyn Fn(SocketAddr) -> StreamFuture + Send + Sync>);

impl Dialer {
    pub(crate) fn new<F>(dial: impl Fn(SocketAddr) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<MemoryStream>> + Send + 'static,
    {
        Self(Arc::new(move |addr| Box::pin(dial(addr))))
    }

    pub(crate) fn dial(&self, addr: SocketAddr) -> StreamFuture {
        (self.0)(addr)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialer")
    }
}
