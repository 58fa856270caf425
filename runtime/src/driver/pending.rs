//! A call in flight.

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
    /// The slot of the call. `None` once the result was returned.
    slot: Option<ResultSlot>,
}

impl<'a> PendingCall<'a> {
    /// Starts a call in the slot that `permit` reserves. The task of `cx` is woken when the result has arrived, even if
    /// it has not polled the future before. Fails if the connection accepts no more calls.
    #[inline]
    pub(crate) fn start(
        port: &'a DriverPort,
        permit: SlotPermit<'_>,
        call: OutgoingCall,
        cx: &Context<'_>,
    ) -> Result<Self, CallFailure> {
        let slot = port.start(permit, call, cx.waker())?;
        Ok(Self { port, slot: Some(slot) })
    }
}

impl Future for PendingCall<'_> {
    type Output = CallResult;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult> {
        let Some(slot) = self.slot else { return Poll::Pending };
        let polled = self.port.poll_result(slot, cx);
        if polled.is_ready() {
            self.slot = None;
        }
        polled
    }
}

impl Drop for PendingCall<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.port.abandon(slot);
        }
    }
}
