//! Taking connections and setting them up.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use tokio::{sync::OwnedSemaphorePermit, task::JoinSet};

use super::{call, connection::Handlers, handle::Shared};
use crate::{
    driver::{self, Core, DriverConfig, Port},
    engine::Role,
    provider::{ConnectRequest as _, Incoming, Listener, SetupError},
};

/// Pause after an error of the listener's, such as too many open files: it would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener, whatever the provider.
pub(super) trait Accept: Send + Sync {
    fn local_addr(&self) -> SocketAddr;

    /// Takes connections until dropped.
    fn run(self: Box<Self>, shared: Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

pub(super) struct Acceptor<L>(pub(super) Arc<L>);

impl<L: Listener> Accept for Acceptor<L> {
    fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    fn run(self: Box<Self>, shared: Arc<Shared>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(async move {
            let mut setups = JoinSet::new();
            loop {
                let incoming = match self.0.accept().await {
                    Ok(incoming) => incoming,
                    Err(error) => {
                        tracing::warn!(target: "rpcrdma", %error, "accept failed");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                while setups.try_join_next().is_some() {}
                let peer = incoming.peer_addr();
                // Set-ups count: a peer that connects and says nothing takes room until its time is up.
                let Ok(room) = Arc::clone(&shared.room).try_acquire_owned() else {
                    tracing::warn!(target: "rpcrdma", %peer, "too many connections, one turned away");
                    continue;
                };
                let shared = Arc::clone(&shared);
                setups.spawn(async move {
                    if let Err(error) = set_up(incoming, &shared, room).await {
                        tracing::info!(target: "rpcrdma", %peer, %error, "connection set-up failed");
                    }
                });
            }
        })
    }
}

async fn set_up<I: Incoming>(incoming: I, shared: &Arc<Shared>, room: OwnedSemaphorePermit) -> Result<(), SetupError> {
    let config = &shared.config;
    let setup = async {
        let request = incoming.request(config.setup_timeout).await?;
        request.accept(config.setup_params()).await
    };
    let connected = tokio::time::timeout(config.setup_timeout, setup)
        .await
        .map_err(|_| SetupError::TimedOut(config.setup_timeout))??;
    let (engine, agreed) = config.engine(Role::Server, &connected.private_data);
    // The server makes no calls of its own.
    let port = Arc::new(Port::new(1));
    let connection = Arc::new(call::Connection {
        peer_addr: connected.peer_addr,
        local_addr: connected.local_addr,
        pool: config.engine.pool.clone(),
        limits: config.decode_limits,
        send_threshold: agreed.send_threshold as usize,
        port: Arc::clone(&port),
    });
    let span = tracing::info_span!(target: "rpcrdma", "connection", role = "server", peer = %connected.peer_addr);
    let id = shared.add(connected.peer_addr, Arc::clone(&port), room);
    let handlers = Handlers { id, shared: Arc::clone(shared), connection, waiting: JoinSet::new() };
    let driver = DriverConfig { idle_timeout: config.idle_timeout };
    driver::spawn(Core::new(engine, connected.queue_pair, handlers, port, driver), span);
    Ok(())
}
