//! Byte streams from outside this crate, which carry records as TCP does.

use std::{future::Future, io, net::SocketAddr, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

use super::options::{UrlOption, UrlOptions};

/// A provider of byte streams that URLs select by their scheme, such as sockets of virtual machines, or pipes in tests.
/// The streams carry RPC messages with record marking (RFC 5531 §11), as TCP connections do.
///
/// The host and the port of a URL become the [`SocketAddr`] for [`connect`](Self::connect) and
/// [`listen`](Self::listen), as for a [`SchemeProvider`](super::SchemeProvider).
///
/// ```
/// use std::{collections::HashMap, io, net::SocketAddr, sync::Mutex};
///
/// use rpcrdma::transport::{Scheme, StreamListener, StreamProvider, Url, UrlOptions};
/// use tokio::{io::DuplexStream, sync::mpsc};
///
/// #[derive(Default)]
/// struct Pipes(Mutex<HashMap<SocketAddr, mpsc::UnboundedSender<DuplexStream>>>);
///
/// struct PipeListener(SocketAddr, tokio::sync::Mutex<mpsc::UnboundedReceiver<DuplexStream>>);
///
/// impl StreamProvider for Pipes {
///     type Stream = DuplexStream;
///     type Listener = PipeListener;
///
///     async fn connect(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<DuplexStream> {
///         let (near, far) = tokio::io::duplex(64 << 10);
///         let listener = self.0.lock().unwrap().get(&addr).cloned().ok_or(io::ErrorKind::ConnectionRefused)?;
///         listener.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
///         Ok(near)
///     }
///
///     fn listen(&self, _options: &UrlOptions, addr: SocketAddr) -> io::Result<PipeListener> {
///         let (sender, receiver) = mpsc::unbounded_channel();
///         self.0.lock().unwrap().insert(addr, sender);
///         Ok(PipeListener(addr, receiver.into()))
///     }
/// }
///
/// impl StreamListener for PipeListener {
///     type Stream = DuplexStream;
///
///     async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
///         let stream = self.1.lock().await.recv().await.ok_or(io::ErrorKind::NotConnected)?;
///         Ok((stream, self.0))
///     }
///
///     fn local_addr(&self) -> SocketAddr {
///         self.0
///     }
/// }
///
/// let scheme = Scheme::register_stream("x-pipe", Pipes::default())?;
/// let url: Url = "x-pipe://127.0.0.1:7".parse()?;
/// assert_eq!(url.scheme(), scheme);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait StreamProvider: Send + Sync + 'static {
    /// The type of stream that [`connect`](Self::connect) returns.
    type Stream: AsyncRead + AsyncWrite + Send + 'static;
    /// The type of listener that [`listen`](Self::listen) returns.
    type Listener: StreamListener<Stream = Self::Stream>;

    /// Returns the options that URLs of the scheme may have besides `priority` and `weight`. Default: none.
    fn options(&self) -> &'static [UrlOption] {
        &[]
    }

    /// Connects to `addr`. The channel drops the future after its time limit for connection set-up.
    ///
    /// # Errors
    /// Returns an error of the operating system or the provider.
    fn connect(&self, options: &UrlOptions, addr: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Listens on `addr`, which is an address of the host of a URL with these options. Port 0 selects a free port.
    ///
    /// # Errors
    /// Returns an error of the operating system or the provider.
    fn listen(&self, options: &UrlOptions, addr: SocketAddr) -> io::Result<Self::Listener>;

    /// Listens on `addr` together with other listeners of the same port, for
    /// [`ServerBuilder::share_ports`](crate::server::ServerBuilder::share_ports).
    ///
    /// # Errors
    /// Returns an error of the operating system or the provider. By default, [`io::ErrorKind::Unsupported`].
    fn listen_on_shared_port(&self, _options: &UrlOptions, _addr: SocketAddr) -> io::Result<Self::Listener> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "listeners of this URL scheme cannot share a port"))
    }
}

/// A listener of a [`StreamProvider`].
pub trait StreamListener: Send + Sync + 'static {
    /// The type of stream that [`accept`](Self::accept) returns.
    type Stream: AsyncRead + AsyncWrite + Send + 'static;

    /// Waits for the next connection, and returns it with the address of the peer.
    ///
    /// # Errors
    /// Returns an error of the operating system or the provider. The server tries again after a pause.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, SocketAddr)>> + Send;

    /// Returns the address that clients connect to.
    fn local_addr(&self) -> SocketAddr;

    /// Moves a stream that another tokio runtime accepted to the current runtime.
    ///
    /// The default returns the stream unchanged. That suffices if the stream is not registered with the I/O driver of
    /// its runtime.
    ///
    /// # Errors
    /// Returns an error of the operating system.
    fn move_to_current_runtime(stream: Self::Stream) -> io::Result<Self::Stream> {
        Ok(stream)
    }
}

/// A byte stream of any provider.
pub(crate) trait AnyStream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> AnyStream for S {}

/// A boxed byte stream of any provider.
pub(crate) type BoxStream = Pin<Box<dyn AnyStream>>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A type-erased [`StreamProvider`].
pub(crate) trait AnyStreamProvider: Send + Sync {
    fn options(&self) -> &'static [UrlOption];

    fn connect<'a>(&'a self, options: &'a UrlOptions, addr: SocketAddr) -> BoxFuture<'a, io::Result<BoxStream>>;

    fn listen(
        &self,
        options: &UrlOptions,
        addr: SocketAddr,
        shares_port: bool,
    ) -> io::Result<Box<dyn AnyStreamListener>>;
}

impl<P: StreamProvider> AnyStreamProvider for P {
    fn options(&self) -> &'static [UrlOption] {
        StreamProvider::options(self)
    }

    fn connect<'a>(&'a self, options: &'a UrlOptions, addr: SocketAddr) -> BoxFuture<'a, io::Result<BoxStream>> {
        Box::pin(async move { Ok(Box::pin(StreamProvider::connect(self, options, addr).await?) as BoxStream) })
    }

    fn listen(
        &self,
        options: &UrlOptions,
        addr: SocketAddr,
        shares_port: bool,
    ) -> io::Result<Box<dyn AnyStreamListener>> {
        let listener = if shares_port {
            self.listen_on_shared_port(options, addr)
        } else {
            StreamProvider::listen(self, options, addr)
        };
        Ok(Box::new(listener?))
    }
}

/// A connection of any [`StreamListener`] that is not set up yet.
pub(crate) trait AnyIncomingStream: Send {
    fn move_to_current_runtime(self: Box<Self>) -> io::Result<Box<dyn AnyIncomingStream>>;

    fn into_stream(self: Box<Self>) -> BoxStream;
}

struct IncomingStream<L: StreamListener>(L::Stream);

impl<L: StreamListener> AnyIncomingStream for IncomingStream<L> {
    fn move_to_current_runtime(self: Box<Self>) -> io::Result<Box<dyn AnyIncomingStream>> {
        Ok(Box::new(Self(L::move_to_current_runtime(self.0)?)))
    }

    fn into_stream(self: Box<Self>) -> BoxStream {
        Box::pin(self.0)
    }
}

/// A type-erased [`StreamListener`].
pub(crate) trait AnyStreamListener: Send + Sync {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn AnyIncomingStream>, SocketAddr)>>;

    fn local_addr(&self) -> SocketAddr;
}

impl<L: StreamListener> AnyStreamListener for L {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn AnyIncomingStream>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = StreamListener::accept(self).await?;
            Ok((Box::new(IncomingStream::<L>(stream)) as Box<dyn AnyIncomingStream>, peer))
        })
    }

    fn local_addr(&self) -> SocketAddr {
        StreamListener::local_addr(self)
    }
}
