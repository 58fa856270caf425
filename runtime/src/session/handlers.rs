//! The handlers of one connection.

use std::{
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::task::JoinSet;

use super::{context::ServedConnection, registry::ServiceRegistry, running::StartedHandler, secured};
use crate::{
    driver::{DriverPort, InboundCalls, ReplyCommand},
    engine::{CloseReason, IncomingCall, ReplyToken},
    security::Authentication,
};

/// The dispatcher of the calls that arrive on one connection. It returns their replies.
pub(crate) struct CallHandlers {
    registry: Arc<ServiceRegistry>,
    connection: Arc<ServedConnection>,
    observer: Option<Box<dyn ConnectionObserver>>,
    /// The tasks of handlers that did not finish at their first poll.
    waiting: JoinSet<()>,
}

/// An observer of the end of a connection, for a server that lists its connections.
pub(crate) trait ConnectionObserver: Send + 'static {
    /// Handles the close of the connection.
    fn closed(&mut self, reason: &CloseReason);

    /// Returns `true` if handlers in progress are aborted with their connection.
    fn is_aborting(&self) -> bool;
}

impl CallHandlers {
    /// Creates the handlers of one connection. `observer` is dropped with them.
    pub(crate) fn new(
        registry: Arc<ServiceRegistry>,
        connection: Arc<ServedConnection>,
        observer: Option<Box<dyn ConnectionObserver>>,
    ) -> Self {
        Self { registry, connection, observer, waiting: JoinSet::new() }
    }
}

#[cfg(test)]
impl CallHandlers {
    /// Returns the number of tasks of handlers, including ended tasks that were not removed yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Returns the context of the first poll of a handler.
// A handler that does not wait finishes there. Any other handler is polled again by its own task, so its first poll
// needs no waker.
fn first_poll() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// Moves a handler that did not finish at its first poll to a task of its own.
fn wait(
    waiting: &mut JoinSet<()>,
    handler: impl Future<Output = ReplyCommand> + Send + 'static,
    token: ReplyToken,
    port: &Arc<DriverPort>,
) {
    while waiting.try_join_next().is_some() {}
    let port = Arc::clone(port);
    waiting.spawn(async move { port.reply(token, handler.await) });
}

impl InboundCalls for CallHandlers {
    // As in `ServiceRegistry::route`: boxing the reply would require an allocation.
    #[allow(clippy::result_large_err)]
    fn call(&mut self, incoming: IncomingCall, port: &Arc<DriverPort>) -> Option<ReplyCommand> {
        let token = incoming.token;
        let (head, authentication) = match self.registry.authenticate(&incoming, &self.connection) {
            Ok(authenticated) => authenticated,
            Err(reply) => return Some(reply),
        };
        match authentication {
            Authentication::Accepted(caller) if caller.protection().is_none() => {
                let started = self.registry.route(incoming, head, caller, &self.connection, &mut first_poll());
                let (handler, metrics) = match started {
                    Ok((StartedHandler::Finished(reply), metrics)) => {
                        metrics.finish(&self.connection.back.metrics, &reply);
                        return Some(reply.command);
                    }
                    Ok((StartedHandler::Running(handler), metrics)) => (handler, metrics),
                    Err(reply) => return Some(reply),
                };
                let metrics = metrics.wait();
                let measured = async move {
                    let reply = handler.await;
                    metrics.finish(&reply);
                    reply.command
                };
                wait(&mut self.waiting, measured, token, port);
                None
            }
            Authentication::Rejected(failure) => Some(head.refuse(failure.into(), None, &self.connection)),
            authentication => {
                let (registry, connection) = (Arc::clone(&self.registry), Arc::clone(&self.connection));
                let mut handler = Box::pin(secured::serve(registry, connection, incoming, head, authentication));
                if let Poll::Ready(reply) = handler.as_mut().poll(&mut first_poll()) {
                    return Some(reply);
                }
                wait(&mut self.waiting, handler, token, port);
                None
            }
        }
    }

    fn replied(&mut self, token: ReplyToken, delivered: bool) {
        self.connection.reservations().release(token);
        if !delivered {
            tracing::info!(target: "rpcrdma::call", peer = %self.connection.info.peer_addr, "reply could not be delivered");
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        tracing::info!(target: "rpcrdma", %reason, "connection closed");
        self.connection.reservations().close();
        if let Some(observer) = &mut self.observer {
            observer.closed(reason);
        }
        if !self.observer.as_ref().is_some_and(|observer| observer.is_aborting()) {
            // Handlers in progress run to their end, although nobody receives their replies.
            self.waiting.detach_all();
        }
    }
}
