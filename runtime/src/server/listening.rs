//! The server from bind to shutdown.

use std::{net::SocketAddr, sync::Arc};

use tokio::task::JoinSet;

use super::{
    accept::Accept,
    builder::ServerBuilder,
    handle::{ServerHandle, ServerShared},
};

/// A server that is listening.
///
/// ```
/// mod plane {
///     rpcrdma::xdr! {
///         struct point { int x; int y; };
///         program PLANE { version PLANE_V1 { @idempotent point MIRROR(point) = 1; } = 1; } = 0x20000001;
///     }
/// }
/// use plane::{
///     Point,
///     plane_v1::{PlaneV1, PlaneV1Client, PlaneV1Server},
/// };
/// use rpcrdma::{Channel, Context, HandlerError, Server};
///
/// struct Plane;
///
/// impl PlaneV1 for Plane {
///     async fn mirror(&self, _cx: &Context, args: Point) -> Result<Point, HandlerError> {
///         Ok(Point { x: args.y, y: args.x })
///     }
/// }
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::builder().service(PlaneV1Server::new(Plane)).listen("iwarp://127.0.0.1:0").bind().await?;
/// let (url, handle) = (server.urls()[0].clone(), server.handle());
/// let serving = tokio::spawn(server.serve());
///
/// let client = PlaneV1Client::new(Channel::connect(&url).await?);
/// assert_eq!(client.mirror(&Point { x: 1, y: 2 }).await?, Point { x: 2, y: 1 });
///
/// handle.shutdown();
/// serving.await?;
/// # Ok(()) }
/// ```
#[doc(alias = "SVCXPRT")]
#[must_use = "a server accepts no connections until `serve` is called"]
pub struct Server {
    acceptors: Vec<Box<dyn Accept>>,
    urls: Vec<String>,
    shared: Arc<ServerShared>,
}

impl Server {
    pub(super) fn new(acceptors: Vec<Box<dyn Accept>>, urls: Vec<String>, shared: Arc<ServerShared>) -> Self {
        Self { acceptors, urls, shared }
    }

    /// Returns a builder that configures a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the addresses of the listeners in the order in which they were added. Listeners of
    /// [`ServerBuilder::listen_with`] come before all listeners of [`ServerBuilder::listen`].
    #[must_use]
    pub fn local_addrs(&self) -> Vec<SocketAddr> {
        self.acceptors.iter().map(|acceptor| acceptor.local_addr()).collect()
    }

    /// Returns the URLs that clients can connect to: one for each address of [`ServerBuilder::listen`], in the order in
    /// which they were added. Port 0 is replaced by the port that was selected. Options such as `?crc=off` are kept.
    ///
    /// The URL of a wildcard address, such as `iwarp://0.0.0.0:20100` or `iwarp://[::]:20100`, names no particular
    /// host. A client on another host has to replace the address by a name or address of this host. Listeners of
    /// [`ServerBuilder::listen_with`] have no URL; see [`local_addrs`](Self::local_addrs).
    ///
    /// ```
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), rpcrdma::server::BindError> {
    /// let server = rpcrdma::Server::builder().listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0").bind().await?;
    /// let [iwarp, tcp] = server.local_addrs()[..] else { panic!("two listeners") };
    /// assert_eq!(server.urls(), [format!("iwarp://{iwarp}"), format!("tcp://{tcp}")]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Returns a handle that monitors the server and shuts it down.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::clone(&self.shared))
    }

    /// Serves until [`ServerHandle::shutdown`] is called, and returns when all connections are closed.
    ///
    /// Dropping the future stops listening. Open connections are still served, until they are closed for another reason
    /// or [`ServerHandle::shutdown`] is called.
    #[doc(alias = "svc_run")]
    pub async fn serve(self) {
        let mut acceptors = JoinSet::new();
        for acceptor in self.acceptors {
            tracing::info!(target: "rpcrdma", addr = %acceptor.local_addr(), services = ?self.shared.registry, "listening");
            acceptors.spawn(acceptor.run(Arc::clone(&self.shared)));
        }
        // If this future is dropped, this task still closes the open connections on shutdown.
        let (signal, shared) = (self.shared.signal.share(), Arc::downgrade(&self.shared));
        tokio::spawn(async move {
            let is_ending = signal.begun().await;
            if let Some(shared) = shared.upgrade().filter(|_| is_ending) {
                let grace = shared.delayed().await;
                shared.end(grace).await;
            }
        });
        self.shared.signal.begun().await;
        let grace = self.shared.delayed().await;
        // Stops listening, and aborts set-ups in progress.
        acceptors.shutdown().await;
        self.shared.end(grace).await;
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("local_addrs", &self.local_addrs())
            .field("services", &self.shared.registry)
            .finish()
    }
}
