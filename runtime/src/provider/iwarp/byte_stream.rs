//! The byte stream of a connection: a TCP socket, or a substitute in tests and fuzzers.

use std::{
    io::{self, IoSlice, IoSliceMut, Read},
    pin::Pin,
    task::{Context, Poll, ready},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncWrite, Interest},
    net::TcpStream,
};

/// A byte stream. Each method registers the waker when it returns `Pending`, as [`std::future::Future::poll`] does.
pub(crate) trait ByteStream {
    /// Reads into several buffers. 0 means that the peer has closed its half of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>>;

    /// Writes from several buffers.
    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Shuts down the local half of the stream.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl ByteStream for TcpStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        let wanted: usize = into.iter().map(|slice| slice.len()).sum();
        loop {
            ready!(self.poll_read_ready(cx))?;
            let mut short = None;
            let result = self.try_io(Interest::READABLE, || {
                let socket = SockRef::from(&*self);
                // The system call for one buffer is cheaper than the vectored one.
                let got = match &mut *into {
                    [only] => (&*socket).read(only)?,
                    several => (&*socket).read_vectored(several)?,
                };
                // With edge-triggered readiness, a short read has drained the socket. `try_io` clears the readiness when it sees
                // `WouldBlock`, which saves a system call that would find nothing.
                if cfg!(target_os = "linux") && 0 < got && got < wanted {
                    short = Some(got);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(got)
            });
            match (short, result) {
                (Some(got), _) => return Poll::Ready(Ok(got)),
                (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
                (None, Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                (None, result) => return Poll::Ready(result),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match from {
            [only] => Pin::new(self).poll_write(cx, only),
            several => Pin::new(self).poll_write_vectored(cx, several),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(self), cx)
    }
}
