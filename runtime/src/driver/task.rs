//! The task that runs a connection.

use std::{future::poll_fn, sync::Arc};

use tracing::Instrument as _;

use super::{core::DriverCore, inbound_calls::InboundCalls, io::EngineIo, port::DriverPort};
use crate::{engine::CloseReason, provider::DisconnectReason};

/// The contents of a connection's task. The order of the fields matters: the core is dropped first, then the guard that
/// closes the port, then the observer.
struct ConnectionTask<I: EngineIo, U: InboundCalls, O> {
    core: DriverCore<I, U>,
    _close: CloseOnDrop,
    _observer: O,
}

/// A guard that closes the port when the task is dropped: after the connection was closed, the runtime was shut down,
/// or the task panicked.
struct CloseOnDrop(Arc<DriverPort>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close(&CloseReason::Disconnected(DisconnectReason::Local));
    }
}

/// Starts the task of a connection. `observer` is dropped when the connection is closed.
pub(crate) fn spawn<I: EngineIo, U: InboundCalls>(
    core: DriverCore<I, U>,
    span: tracing::Span,
    observer: impl Send + 'static,
) {
    let close = CloseOnDrop(Arc::clone(core.port()));
    let mut running = ConnectionTask { core, _close: close, _observer: observer };
    tokio::spawn(
        async move {
            // Captures the whole struct, so that its fields are dropped in order.
            let running = &mut running;
            poll_fn(|cx| running.core.poll(cx)).await;
        }
        .instrument(span),
    );
}
