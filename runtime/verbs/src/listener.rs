//! A listener that survives removal of its device.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{
    VerbsConfig,
    cm::{CmEvents, CmId, EventChannel},
    completion_hub::SharedQueues,
    error::VerbsError,
    ffi::rdma_cm_event_type as cm_event,
    ports::PortAttempts,
    removed_devices::close_removed_devices,
    setup::VerbsIncoming,
};
use crate::ErrorChain;
use crate::provider::Listener;

/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;

/// Time between attempts to listen again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A listener for connections over RDMA devices.
///
/// If the device with the listener's address is removed, [`accept`](Listener::accept) listens again once a device has
/// that address. A listener on the wildcard address is not affected, because the system handles that case.
#[derive(Debug)]
pub struct VerbsListener {
    // Dropped before the channel of its events.
    id: Mutex<Option<CmId>>,
    events: CmEvents,
    addr: SocketAddr,
    config: VerbsConfig,
    shared: SharedQueues,
}

impl VerbsListener {
    /// Listens on `addr`: the address of an RDMA device's network interface, or the wildcard address.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](io::ErrorKind::InvalidInput) if a number in `config` is out of bounds. Otherwise
    /// returns a [`VerbsError`] inside the I/O error, or the error of the operating system, for example if the address
    /// is in use.
    pub fn bind(addr: SocketAddr, config: VerbsConfig) -> io::Result<Self> {
        config.check()?;
        let events = CmEvents::new()?;
        let mut attempts = if addr.port() == 0 { PortAttempts::new() } else { PortAttempts::only_one() };
        let id = loop {
            match listening(&events, addr, &config) {
                Err(error) if attempts.permit_another(error.kind()) => {}
                listening => break listening?,
            }
        };
        let addr = id.local_addr()?;
        Ok(Self { id: Mutex::new(Some(id)), events, addr, config, shared: SharedQueues::default() })
    }

    fn set_id(&self, id: Option<CmId>) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn is_listening(&self) -> bool {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Tries to listen on the address again until an attempt succeeds.
    async fn listen_again(&self) {
        let mut reported = String::new();
        loop {
            tokio::time::sleep(RETRY_INTERVAL).await;
            match listening(&self.events, self.addr, &self.config) {
                Ok(id) => {
                    self.set_id(Some(id));
                    tracing::info!(target: "rpcrdma", addr = %self.addr, "listening again");
                    return;
                }
                Err(error) => {
                    let message = ErrorChain(&error).to_string();
                    if message != reported {
                        tracing::warn!(target: "rpcrdma", addr = %self.addr, error = message, "failed to listen again, retrying");
                        reported = message;
                    }
                }
            }
        }
    }
}

fn listening(events: &CmEvents, addr: SocketAddr, config: &VerbsConfig) -> io::Result<CmId> {
    let id = CmId::new(events)?;
    if let Some(class) = config.traffic_class {
        id.set_traffic_class(class)?;
    }
    if addr.is_ipv6() {
        id.set_ipv6_only()?;
    }
    id.bind(addr).map_err(|source| match source.raw_os_error() {
        Some(libc::EADDRINUSE | libc::EACCES) => source,
        _ => VerbsError::NoRoute { addr, source }.into(),
    })?;
    id.listen(BACKLOG)?;
    Ok(id)
}

impl Listener for VerbsListener {
    type QueuePair = super::VerbsQueuePair;
    type IncomingConnection = VerbsIncoming;

    async fn accept(&self) -> io::Result<VerbsIncoming> {
        loop {
            // An earlier call may have been dropped while it waited.
            if !self.is_listening() {
                self.listen_again().await;
            }
            let mut event = self.events.next().await?;
            if event.kind == cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL {
                tracing::warn!(target: "rpcrdma", addr = %self.addr, "the RDMA device listened on was removed");
                // The removal completes once nobody uses the device.
                self.set_id(None);
                close_removed_devices();
            }
            // The connection may have ended before it was accepted.
            let Some(id) = event.request.take() else { continue };
            // The identifier is dropped before the channel it is moved to.
            let (channel, id) = (Arc::new(EventChannel::new()?), id);
            id.migrate(&channel)?;
            let peer_addr = id.peer_addr()?;
            let (config, shared) = (self.config.clone(), self.shared.clone());
            return Ok(VerbsIncoming { id, channel, event, peer_addr, config, shared });
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}
