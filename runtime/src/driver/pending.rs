//! The future of a call in flight.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::{
    command::{CallResult, ResultSlot},
    port::DriverPort,
};

/// The future of a call's result. Dropping it cancels the call.
pub(crate) struct PendingCall<'a> {
    port: &'a DriverPort,
    /// `None` once the result was returned.
    slot: Option<ResultSlot>,
}

impl<'a> PendingCall<'a> {
    /// Creates the future of the call that was started in `slot`.
    pub(crate) fn new(port: &'a DriverPort, slot: ResultSlot) -> Self {
        Self { port, slot: Some(slot) }
    }
}

impl Future for PendingCall<'_> {
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

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.port.abandon(slot);
        }
    }
}
