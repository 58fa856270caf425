//! The stream of a connection: a TCP socket or, in simulations, a byte stream in memory.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

#[cfg(unix)]
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::byte_stream::{ByteStream, Socket};
#[cfg(feature = "simulation")]
use super::memory_stream::MemoryStream;
use super::socket;

/// A stream during connection set-up.
#[derive(Debug)]
pub(crate) enum SetupStream {
    Tcp(TcpStream),
    #[cfg(feature = "simulation")]
    Memory(MemoryStream),
}

/// Calls a method of the stream in the current variant.
macro_rules! either {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this {
            Self::Tcp($stream) => $call,
            #[cfg(feature = "simulation")]
            Self::Memory($stream) => $call,
        }
    };
}

impl SetupStream {
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        either!(self, stream => stream.local_addr())
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        either!(self, stream => stream.peer_addr())
    }

    /// Returns the TCP segment size in bytes, if the system reports it.
    #[cfg(unix)]
    pub(crate) fn mss(&self) -> Option<usize> {
        match self {
            Self::Tcp(stream) => SockRef::from(stream).tcp_mss().ok().and_then(|mss| usize::try_from(mss).ok()),
            #[cfg(feature = "simulation")]
            Self::Memory(_) => None,
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn mss(&self) -> Option<usize> {
        None
    }

    /// Registers a TCP socket with the I/O driver of the current runtime. Has no effect on a stream in memory.
    pub(crate) fn move_to_current_runtime(self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => socket::move_to_current_runtime(stream).map(Self::Tcp),
            #[cfg(feature = "simulation")]
            Self::Memory(stream) => Ok(Self::Memory(stream)),
        }
    }

    pub(crate) fn into_link(self) -> Link {
        match self {
            Self::Tcp(stream) => Link::Tcp(Socket::new(stream)),
            #[cfg(feature = "simulation")]
            Self::Memory(stream) => Link::Memory(stream),
        }
    }
}

impl AsyncRead for SetupStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => AsyncRead::poll_read(Pin::new(stream), cx, buf))
    }
}

impl AsyncWrite for SetupStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self.get_mut(), stream => AsyncWrite::poll_write(Pin::new(stream), cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => AsyncWrite::poll_flush(Pin::new(stream), cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self.get_mut(), stream => AsyncWrite::poll_shutdown(Pin::new(stream), cx))
    }
}

/// A stream of an established connection.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(Socket),
    #[cfg(feature = "simulation")]
    Memory(MemoryStream),
}

impl Link {
    /// Enables or disables reads as [`Socket::set_reads_unprompted`] does. Has no effect on a stream in memory.
    pub(crate) fn set_reads_unprompted(&mut self, reads_unprompted: bool) {
        match self {
            Self::Tcp(socket) => socket.set_reads_unprompted(reads_unprompted),
            #[cfg(feature = "simulation")]
            Self::Memory(_) => {}
        }
    }
}

impl ByteStream for Link {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        either!(self, stream => ByteStream::poll_read(stream, cx, into))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        either!(self, stream => ByteStream::poll_write(stream, cx, from))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => ByteStream::poll_shutdown(stream, cx))
    }
}
