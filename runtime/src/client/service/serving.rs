//! The health of an endpoint's server, which decides whether the endpoint takes calls.

use std::sync::Arc;

use tokio::{sync::Notify, task::AbortHandle};

use super::health::{EndpointFailure, EndpointHealth};
use crate::{
    ErrorChain,
    client::{channel::Channel, error::CallError, health::HealthWatch},
    health::HealthStatus,
    rpc::RpcError,
    sync::{Changes, Mutex, PoisonError},
};

/// The health of a server as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServingState {
    /// The server has not answered on this connection.
    Unknown,
    Serving,
    NotServing,
}

/// The state that the endpoint and the task that asks the server share.
#[derive(Debug)]
struct SharedState {
    state: Mutex<ServingState>,
    changes: Changes,
    /// Notifies the task that the endpoint is connected and waits until the server is serving.
    wanted: Notify,
}

/// The check of an endpoint's health. Dropping it ends the task that watches the server.
#[derive(Debug)]
pub(in crate::client) struct ServingCheck {
    shared: Arc<SharedState>,
    task: AbortHandle,
}

impl Drop for ServingCheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl ServingCheck {
    /// Starts the task that watches the server of `channel`. Needs a tokio runtime.
    pub(in crate::client) fn start(channel: Channel, watch: HealthWatch, health: Arc<EndpointHealth>) -> Self {
        let (state, changes) = (Mutex::new(ServingState::Unknown), Changes::default());
        let shared = Arc::new(SharedState { state, changes, wanted: Notify::new() });
        let task = tokio::spawn(Arc::clone(&shared).run(channel, watch, health)).abort_handle();
        Self { shared, task }
    }

    /// Returns `true` if the server is serving, or counts as serving because it did not report its health.
    pub(in crate::client) fn is_serving(&self) -> bool {
        self.shared.get() == ServingState::Serving
    }

    /// Waits until the server is serving. The channel must be connected.
    pub(in crate::client) async fn serving(&self) {
        self.shared.wanted.notify_one();
        self.shared.changes.find(|| self.is_serving().then_some(())).await;
    }
}

impl SharedState {
    fn get(&self) -> ServingState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: ServingState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
        self.changes.notify();
    }

    /// Records that the server did not report whether it is serving. A server whose state is unknown then counts as
    /// serving.
    fn unanswered(&self, health: &EndpointHealth, error: &CallError) {
        tracing::debug!(target: "rpcrdma", server = %health.url(), error = %ErrorChain(error), "health unknown");
        // A server that was not serving is not serving until it says otherwise.
        if self.get() == ServingState::Unknown {
            self.set(ServingState::Serving);
        }
    }

    /// Watches the server for as long as the endpoint exists, on one connection after the other.
    async fn run(self: Arc<Self>, channel: Channel, mut watch: HealthWatch, health: Arc<EndpointHealth>) {
        loop {
            self.wanted.notified().await;
            watch.reset();
            while channel.is_connected() {
                let result = tokio::select! {
                    biased;
                    _ = channel.closed() => break,
                    result = watch.changed(&channel) => result,
                };
                match result {
                    Ok(HealthStatus::Serving) => self.set(ServingState::Serving),
                    Ok(status) => {
                        tracing::info!(target: "rpcrdma", server = %health.url(), %status, "server is not serving");
                        self.set(ServingState::NotServing);
                        health.failed(EndpointFailure::NotServing);
                    }
                    Err(_) if !channel.is_connected() => break,
                    Err(error) => {
                        self.unanswered(&health, &error);
                        if has_no_program(&error) {
                            channel.closed().await;
                        }
                    }
                }
            }
            self.set(ServingState::Unknown);
        }
    }
}

/// Returns `true` if the server does not offer the called procedure of the program HEALTH.
fn has_no_program(error: &CallError) -> bool {
    let CallError::Rpc { source, .. } = error else { return false };
    matches!(source, RpcError::ProgramUnavailable | RpcError::ProgramMismatch { .. } | RpcError::ProcedureUnavailable)
}
