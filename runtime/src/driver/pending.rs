//! The future of a call in flight.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    command::{CallResult, ResultSlot},
    port::{DriverPort, SlotPermit},
};
use crate::engine::{CallFailure, OutgoingCall};

/// The future of a call's result. Dropping it cancels the call.
pub(crate) struct PendingCall<'a> {
    port: &'a DriverPort,
    /// `None` once the result was returned.
    slot: Option<ResultSlot>,
    /// `true` until the first poll. The port then has the waker of the task already, and the driver has not run since.
    is_fresh: bool,
}

impl<'a> PendingCall<'a> {
    /// Starts a call in the slot that `permit` reserves. The future must be polled first in the poll of the task that `cx` belongs
    /// to.
    pub(crate) fn start(
        port: &'a DriverPort,
        permit: SlotPermit<'_>,
        call: OutgoingCall,
        cx: &Context<'_>,
    ) -> Result<Self, CallFailure> {
        let slot = port.start(permit, call, cx.waker())?;
        Ok(Self { port, slot: Some(slot), is_fresh: true })
    }
}

impl Future for PendingCall<'_> {
    type Output = CallResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let Some(slot) = self.slot else { return Poll::Pending };
        if std::mem::take(&mut self.is_fresh) {
            return Poll::Pending;
        }
        let polled = self.port.poll_result(slot, cx);
        if polled.is_ready() {
            self.slot = None;
        }
        polled
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.port.abandon(slot);
        }
    }
}
