//! The byte stream of a connection: a TCP socket, or a substitute in tests and fuzzers.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read},
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
    /// Reads into several buffers. Returns the number of bytes read, which is 0 if the peer has closed its half of the
    /// stream.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>>;

    /// Writes from several buffers. Returns the number of bytes written.
    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Shuts down the local half of the stream.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A connected TCP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: TcpStream,
    /// `true` to read even if the runtime has reported no data. The runtime learns of data only when it asks the system
    /// for events, which it does when it has nothing else to do.
    reads_unprompted: bool,
    /// `true` if the last read has left nothing to read.
    is_drained: bool,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, reads_unprompted: false, is_drained: false }
    }

    #[cfg(test)]
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Sets how a read proceeds when the runtime has reported no data. If `reads_unprompted` is `true`, the read tries
    /// the socket. Otherwise, it waits for the runtime.
    pub(crate) fn set_reads_unprompted(&mut self, reads_unprompted: bool) {
        self.reads_unprompted = reads_unprompted;
    }
}

/// Reads without waiting.
fn read(stream: &TcpStream, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let socket = SockRef::from(stream);
    // The system call for one buffer is cheaper than the vectored one.
    match into {
        [only] => (&*socket).read(only),
        several => (&*socket).read_vectored(several),
    }
}

impl ByteStream for Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [IoSliceMut<'_>]) -> Poll<io::Result<usize>> {
        loop {
            // The waker is only registered if there is nothing to read. A read that is likely to succeed comes first.
            if std::mem::take(&mut self.is_drained) {
                match self.stream.poll_read_ready(cx) {
                    Poll::Ready(ready) => ready?,
                    Poll::Pending if self.reads_unprompted => {
                        return match read(&self.stream, into) {
                            // The waker is registered.
                            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                                Poll::Pending
                            }
                            result => Poll::Ready(result),
                        };
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            let mut short = None;
            let result = self.stream.try_io(Interest::READABLE, || {
                let got = read(&self.stream, into)?;
                let wanted: usize = into.iter().map(|slice| slice.len()).sum();
                // With edge-triggered readiness, a short read has drained the socket. `try_io` clears the readiness
                // when it sees `WouldBlock`, which saves a system call that would find nothing.
                if cfg!(target_os = "linux") && 0 < got && got < wanted {
                    short = Some(got);
                    return Err(ErrorKind::WouldBlock.into());
                }
                Ok(got)
            });
            match (short, result) {
                (Some(got), _) => {
                    self.is_drained = true;
                    return Poll::Ready(Ok(got));
                }
                (None, Err(error)) if error.kind() == ErrorKind::WouldBlock => self.is_drained = true,
                (None, Err(error)) if error.kind() == ErrorKind::Interrupted => {}
                (None, result) => return Poll::Ready(result),
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            let result = match from {
                [only] => self.stream.try_write(only),
                several => self.stream.try_write_vectored(several),
            };
            match result {
                Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(self.stream.poll_write_ready(cx))?,
                result => return Poll::Ready(result),
            }
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(&mut self.stream), cx)
    }
}
