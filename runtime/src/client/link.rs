//! One connection of a channel's.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::SemaphorePermit;

use super::channel::ChannelInfo;
use crate::{
    driver::{CallResult, Command, Drive, Notify, Port, Slot},
    engine::OutgoingCall,
};

/// One connection of a channel's; it is closed when the last holder lets go.
pub(super) struct Link {
    pub(super) drive: Arc<dyn Drive>,
    pub(super) port: Arc<Port>,
    pub(super) info: ChannelInfo,
}

impl Link {
    /// Makes a call for which `permit` is the room.
    pub(super) async fn call(&self, permit: SemaphorePermit<'_>, call: OutgoingCall) -> CallResult {
        let (slot, notify) = self.port.start(permit, call)?;
        let waiting = Waiting { port: &self.port, slot: Some(slot) };
        match notify {
            Notify::Drive if self.drive.try_drive() => {}
            Notify::Drive | Notify::Wake => self.port.wake(),
            Notify::Nothing => {}
        }
        waiting.await
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.port.send(Command::Disconnect);
    }
}

/// Waits for the result in a slot. Dropped before, it cancels the call.
struct Waiting<'a> {
    port: &'a Port,
    slot: Option<Slot>,
}

impl Future for Waiting<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let Some(slot) = self.slot else { return Poll::Pending };
        let polled = self.port.poll_result(slot, cx);
        if polled.is_ready() {
            self.slot = None;
        }
        polled
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.port.abandon(slot);
        }
    }
}
