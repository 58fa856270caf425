//! The registration of servers with service discovery.

use anyhow::Context as _;
use clap::Args;
use rpcrdma::server::ServerHandle;
use rpcrdma_specs::rpcbind::{Registration, Rpcbind};
use tokio::task::JoinSet;

/// Options for the registration of a server.
#[derive(Debug, Clone, Default, Args)]
pub struct RegisterArgs {
    /// Register with rpcbind on this host while the server runs
    #[arg(long)]
    pub rpcbind: bool,
}

/// The registrations of a server, which are removed when its shutdown begins.
#[derive(Debug)]
pub struct Registered(JoinSet<()>);

impl Registered {
    /// Waits until the registrations are removed.
    pub async fn removed(self) {
        self.0.join_all().await;
    }
}

impl RegisterArgs {
    /// Registers `programs`, which are pairs of a number and a version, at `urls`, until the shutdown of the server of `handle`
    /// begins.
    ///
    /// # Errors
    /// Fails if a registry is unreachable or refuses.
    pub async fn register(
        &self,
        programs: &[(u32, u32)],
        urls: &[String],
        handle: &ServerHandle,
    ) -> anyhow::Result<Registered> {
        let mut registered = JoinSet::new();
        if self.rpcbind {
            let rpcbind = Rpcbind::local().await.context("--rpcbind: cannot connect to rpcbind")?;
            let registration = Registration::new(rpcbind, programs, urls).await.context("--rpcbind")?;
            let handle = handle.clone();
            registered.spawn(async move {
                handle.unready().await;
                registration.unregister().await;
            });
        }
        Ok(Registered(registered))
    }
}
