//! Notification of hosts that had locks before the server restarted (NSM).

use std::{net::IpAddr, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream};
use rpcrdma_specs::nsm1::{
    StatChge,
    sm_vers::{self, SmVersClient},
};
use tokio::time::{Instant, sleep};

use super::{callback::PeerError, manager::LockManager, owner::Host};
use crate::command::chain;

/// Maximum number of hosts that are notified at a time.
const CONCURRENT: usize = 32;
/// The longest pause between attempts.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The hosts to notify, with the server's addresses that they use.
#[derive(Debug)]
pub(super) struct Notifier {
    manager: LockManager,
    hosts: Vec<(Arc<Host>, Option<IpAddr>)>,
}

impl Notifier {
    pub(super) fn new(manager: &LockManager, hosts: Vec<(Arc<Host>, Option<IpAddr>)>) -> Self {
        Self { manager: manager.clone(), hosts }
    }

    /// Notifies all hosts. Repeats the notification of hosts that do not answer, with longer and longer pauses, until
    /// the time `CallbackTiming::notifying` is over.
    pub(super) async fn run(mut self) {
        let timing = self.manager.inner().config.timing;
        let deadline = Instant::now() + timing.notifying;
        let mut pause = timing.pause;
        loop {
            let attempts = stream::iter(self.hosts).map(|(host, local)| {
                let manager = &self.manager;
                async move {
                    let answered = manager.notify(&host, local).await;
                    let (addr, name) = (host.addr, host.name.escape_ascii());
                    match answered {
                        Ok(()) => {
                            tracing::info!(%addr, %name, "notified a client of the restart");
                            None
                        }
                        Err(error) => {
                            tracing::debug!(%addr, %name, error = chain(&error), "SM_NOTIFY failed");
                            Some((host, local))
                        }
                    }
                }
            });
            self.hosts = attempts.buffer_unordered(CONCURRENT).filter_map(std::future::ready).collect().await;
            if self.hosts.is_empty() {
                return;
            }
            if Instant::now() + pause >= deadline {
                for (host, _) in &self.hosts {
                    let (addr, name) = (host.addr, host.name.escape_ascii());
                    tracing::warn!(%addr, %name, "could not notify a client of the restart: it may lose its locks");
                }
                return;
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(MAX_PAUSE);
        }
    }
}

impl LockManager {
    async fn notify(&self, host: &Host, local: Option<IpAddr>) -> Result<(), PeerError> {
        let channel = self.peer(host.addr, local, sm_vers::PROGRAM, sm_vers::VERSION).await?;
        let mon_name = bytes::Bytes::copy_from_slice(&self.inner().name).into();
        let change = StatChge { mon_name, state: self.state() };
        SmVersClient::new(channel).sm_notify(&change).await.map_err(PeerError::Call)
    }
}
