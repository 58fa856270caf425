//! Type-erased connectors and listeners of any provider.
//!
//! Type erasure adds a few allocations and dynamic calls to the set-up of a connection. The engine posts its work by
//! dynamic calls in any case. A connection in use therefore has one additional dynamic call for each poll.

use std::{future::Future, io, net::SocketAddr, pin::Pin};

use crate::provider::{
    ConnectRequest as _, Connected, Connector, Incoming, Listener, QueuePair, SetupError, SetupParams,
};

/// A connection of any provider.
pub(crate) type AnyConnected = Connected<Box<dyn QueuePair>>;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

fn erase<Q: QueuePair>(connected: Connected<Q>) -> AnyConnected {
    let Connected { queue_pair, private_data, local_addr, peer_addr } = connected;
    Connected { queue_pair: Box::new(queue_pair), private_data, local_addr, peer_addr }
}

/// A [`Connector`] of any provider.
pub(crate) trait AnyConnector: Send + Sync {
    fn connect(&self, peer: SocketAddr, params: SetupParams) -> BoxFuture<'_, Result<AnyConnected, SetupError>>;
}

impl<C: Connector> AnyConnector for C {
    fn connect(&self, peer: SocketAddr, params: SetupParams) -> BoxFuture<'_, Result<AnyConnected, SetupError>> {
        Box::pin(async move { Connector::connect(self, peer, params).await.map(erase) })
    }
}

/// A [`Listener`] of any provider.
pub(crate) trait AnyListener: Send + Sync {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AnyIncoming>>>;

    fn local_addr(&self) -> SocketAddr;
}

impl<L: Listener> AnyListener for L {
    fn accept(&self) -> BoxFuture<'_, io::Result<Box<dyn AnyIncoming>>> {
        Box::pin(async move {
            let incoming = Listener::accept(self).await?;
            Ok(Box::new(incoming) as Box<dyn AnyIncoming>)
        })
    }

    fn local_addr(&self) -> SocketAddr {
        Listener::local_addr(self)
    }
}

/// An [`Incoming`] connection of any provider.
pub(crate) trait AnyIncoming: Send {
    fn peer_addr(&self) -> SocketAddr;

    fn move_to_current_runtime(self: Box<Self>) -> io::Result<Box<dyn AnyIncoming>>;

    /// Reads the peer's request within [`SetupParams::timeout`], and accepts it.
    fn set_up(self: Box<Self>, params: SetupParams) -> BoxFuture<'static, Result<AnyConnected, SetupError>>;
}

impl<I: Incoming> AnyIncoming for I {
    fn peer_addr(&self) -> SocketAddr {
        Incoming::peer_addr(self)
    }

    fn move_to_current_runtime(self: Box<Self>) -> io::Result<Box<dyn AnyIncoming>> {
        Ok(Box::new(Incoming::move_to_current_runtime(*self)?))
    }

    fn set_up(self: Box<Self>, params: SetupParams) -> BoxFuture<'static, Result<AnyConnected, SetupError>> {
        Box::pin(async move {
            let request = self.request(params.timeout).await?;
            request.accept(params).await.map(erase)
        })
    }
}
