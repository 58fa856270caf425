//! One connection of a channel's.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Poll, Waker},
};

use tokio::sync::SemaphorePermit;

use crate::{
    driver::{CallResult, Command, Drive, Notify, Port, Slot},
    engine::{CallFailure, OutgoingCall},
    session::ChannelInfo,
};

/// What becomes of eligible items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// They are reduced, and travel by RDMA (RFC 8166 §3.4).
    Chunks,
    /// They stand in the record, and are sent from where they lie.
    Record,
    /// They stand in the message, and are copied there.
    Inline,
}

/// One connection of a channel's.
pub(super) struct Link {
    /// `None` for a connection that is not the channel's own. Its own is closed when the last holder lets go.
    pub(super) driver: Option<Arc<dyn Drive>>,
    pub(super) port: Arc<Port>,
    pub(super) info: ChannelInfo,
    pub(super) placement: Placement,
    /// What became of the negotiation of a version is still to be looked at.
    pub(super) negotiates: AtomicBool,
}

impl Link {
    /// Makes a call for which `permit` is the room; what is returned waits for its result.
    pub(super) fn call(&self, permit: SemaphorePermit<'_>, call: OutgoingCall) -> Result<Waiting<'_>, CallFailure> {
        let (slot, notify) = self.port.start(permit, call)?;
        Ok(Waiting { link: self, slot: Some(slot), notify, leads: false })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        match self.driver {
            Some(_) => self.port.send(Command::Disconnect),
            None => self.port.let_go(),
        }
    }
}

/// Waits for the result in a slot. Dropped before, it cancels the call.
pub(super) struct Waiting<'a> {
    link: &'a Link,
    slot: Option<Slot>,
    /// What the driver is still to be told.
    notify: Notify,
    /// This task is woken by the connection and has to drive it.
    leads: bool,
}

impl Waiting<'_> {
    /// Gets the call on its way, or the connection further, if that is this task's to do.
    fn drive(&mut self, slot: Slot, waker: &Waker) {
        let Link { driver, port, .. } = self.link;
        let notify = std::mem::replace(&mut self.notify, Notify::Nothing);
        let Some(drive) = driver else {
            if notify != Notify::Nothing {
                port.wake();
            }
            return;
        };
        if (self.leads || notify == Notify::Drive) && port.is_alone(slot) {
            self.leads = drive.try_lead(slot, waker);
            if !self.leads {
                // The driver's task has the connection just now, perhaps only to see that somebody leads. It has to be
                // told that nobody does any more: else what woke this task would be lost.
                drive.stop_leading();
                port.wake();
            }
            return;
        }
        if self.leads {
            self.leads = false;
            drive.stop_leading();
        }
        match notify {
            Notify::Drive if drive.try_drive() => {}
            Notify::Drive | Notify::Wake => port.wake(),
            Notify::Nothing => {}
        }
    }
}

impl Future for Waiting<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let Some(slot) = self.slot else { return Poll::Pending };
        if self.leads || self.notify != Notify::Nothing {
            self.drive(slot, cx.waker());
        }
        let polled = self.link.port.poll_result(slot, cx);
        if polled.is_ready() {
            self.slot = None;
        }
        polled
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.link.port.abandon(slot);
        }
        if self.leads {
            self.link.driver.iter().for_each(|drive| drive.stop_leading());
        }
    }
}

#[cfg(test)]
mod tests;
