//! The connection of a channel.

use std::sync::{Arc, atomic::AtomicBool};

use tokio::sync::SemaphorePermit;

use crate::{
    driver::{DriverCommand, DriverPort, PendingCall},
    engine::{CallFailure, OutgoingCall},
    session::ChannelInfo,
};

/// The connection of a channel.
pub(super) struct ChannelLink {
    /// `true` if the channel owns the connection. An owned connection is closed with its last link.
    pub(super) is_owned: bool,
    pub(super) port: Arc<DriverPort>,
    pub(super) info: ChannelInfo,
    /// `true` until the outcome of version negotiation has been read, after the first reply.
    pub(super) negotiates: AtomicBool,
}

impl ChannelLink {
    /// Starts a call in the slot that `permit` reserves.
    pub(super) fn call(&self, permit: SemaphorePermit<'_>, call: OutgoingCall) -> Result<PendingCall<'_>, CallFailure> {
        let slot = self.port.start(permit, call)?;
        Ok(PendingCall::new(&self.port, slot))
    }
}

impl Drop for ChannelLink {
    fn drop(&mut self) {
        if self.is_owned {
            self.port.send(DriverCommand::Disconnect);
        } else {
            self.port.let_go();
        }
    }
}
