//! Listening, also when the device goes and comes back.

use std::{
    io,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use super::{
    VerbsConfig,
    cm::{CmId, Events},
    error::VerbsError,
    ffi::rdma_cm_event_type as cm_event,
    setup::VerbsIncoming,
};
use crate::chain::Chain;
use crate::provider::Listener;

/// Connections waiting to be accepted, at most.
const BACKLOG: i32 = 128;

/// Pause between attempts to listen again.
const AGAIN: Duration = Duration::from_millis(500);

/// Takes incoming connections by RDMA devices.
///
/// One that listens on the address of a device which is removed listens again when a device has that address. (On the
/// address of all interfaces the system sees to that.)
#[derive(Debug)]
pub struct VerbsListener {
    // Before the channel that its events come by.
    id: Mutex<Option<CmId>>,
    events: Events,
    addr: SocketAddr,
    config: VerbsConfig,
}

impl VerbsListener {
    /// Listens on `addr`: an address of an RDMA device's network interface, or that of all interfaces.
    ///
    /// # Errors
    /// [`VerbsError`], inside the I/O error, which says what to do; or the system's, such as an address in use.
    pub fn bind(addr: SocketAddr, config: VerbsConfig) -> io::Result<Self> {
        let events = Events::new()?;
        let id = listening(&events, addr)?;
        let addr = id.local_addr()?;
        Ok(Self { id: Mutex::new(Some(id)), events, addr, config })
    }

    fn set_id(&self, id: Option<CmId>) {
        *self.id.lock().unwrap_or_else(PoisonError::into_inner) = id;
    }

    fn listens(&self) -> bool {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// The device is gone: waits for one to listen on.
    async fn again(&self) {
        let mut said = String::new();
        loop {
            tokio::time::sleep(AGAIN).await;
            match listening(&self.events, self.addr) {
                Ok(id) => {
                    self.set_id(Some(id));
                    tracing::info!(target: "rpcrdma", addr = %self.addr, "listening again");
                    return;
                }
                Err(error) => {
                    let says = Chain(&error).to_string();
                    if says != said {
                        tracing::warn!(target: "rpcrdma", addr = %self.addr, error = says, "cannot listen, trying again");
                        said = says;
                    }
                }
            }
        }
    }
}

fn listening(events: &Events, addr: SocketAddr) -> io::Result<CmId> {
    let id = CmId::new(events)?;
    if addr.is_ipv6() {
        id.only_its_family()?;
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
    type Incoming = VerbsIncoming;

    async fn accept(&self) -> io::Result<VerbsIncoming> {
        loop {
            // Also where an earlier call was dropped as it waited for one.
            if !self.listens() {
                self.again().await;
            }
            let mut event = self.events.next().await?;
            if event.kind == cm_event::RDMA_CM_EVENT_DEVICE_REMOVAL {
                tracing::warn!(target: "rpcrdma", addr = %self.addr, "the RDMA device listened on was removed");
                // Its removal takes until nobody uses it.
                self.set_id(None);
            }
            // Of a connection that ended before it was taken.
            let Some(id) = event.request.take() else { continue };
            // The identifier is dropped before the channel it is moved to.
            let (events, id) = (Events::new()?, id);
            id.migrate(&events)?;
            let peer_addr = id.peer_addr()?;
            return Ok(VerbsIncoming { id, events, event, peer_addr, config: self.config.clone() });
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.addr
    }
}
