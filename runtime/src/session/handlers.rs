//! The handlers of one connection.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::task::JoinSet;
use tracing::Span;

use super::{
    call::{self, EncodedReply, InboundCall, ServedConnection},
    registry::ServiceRegistry,
    service::{ReplyFuture, Service},
};
use crate::{
    driver::{DriverCommand, DriverPort, InboundCalls, ReplyCommand},
    engine::{CloseReason, IncomingCall, ReplyToken},
    rpc::{OpaqueAuth, ReplyHeader, RpcError},
    trace,
};

/// Dispatches the calls that arrive on one connection, and returns their replies.
pub(crate) struct CallHandlers {
    registry: Arc<ServiceRegistry>,
    connection: Arc<ServedConnection>,
    observer: Option<Box<dyn ConnectionObserver>>,
    /// The tasks of handlers that did not finish at their first poll.
    waiting: JoinSet<()>,
}

/// Watches the end of a connection, for a server that lists its connections.
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

impl InboundCalls for CallHandlers {
    // As in `ServiceRegistry::route`: boxing the reply would require an allocation.
    #[allow(clippy::result_large_err)]
    fn call(&mut self, incoming: IncomingCall, port: &Arc<DriverPort>) -> Option<ReplyCommand> {
        let (token, xid) = (incoming.token, incoming.xid);
        let begun = self.registry.route(incoming, &self.connection, |service, call| {
            RunningHandler::begin(Arc::clone(service), call, xid, Arc::clone(&self.connection))
        });
        let mut handler = match begun {
            Ok(handler) => handler,
            Err(answer) => return Some(answer),
        };
        // A handler that does not wait finishes here. Any other handler is polled again by its own task, so this first poll
        // needs no waker.
        if let Poll::Ready(answer) = Pin::new(&mut handler).poll(&mut Context::from_waker(Waker::noop())) {
            return Some(answer);
        }
        while self.waiting.try_join_next().is_some() {}
        let port = Arc::clone(port);
        let answered = async move {
            let answer = handler.await;
            port.send(DriverCommand::Reply { token, answer });
        };
        self.waiting.spawn(answered);
        None
    }

    fn replied(&mut self, _token: ReplyToken, delivered: bool) {
        if !delivered {
            tracing::info!(target: "rpcrdma::call", peer = %self.connection.info.peer_addr, "reply could not be delivered");
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        tracing::info!(target: "rpcrdma", %reason, "connection closed");
        if let Some(observer) = &mut self.observer {
            observer.closed(reason);
        }
        if !self.observer.as_ref().is_some_and(|observer| observer.is_aborting()) {
            // Handlers in progress run to their end, although nobody receives their replies.
            self.waiting.detach_all();
        }
    }
}

/// A handler in progress. The reply of a handler that panics is SYSTEM_ERR.
struct RunningHandler {
    future: ReplyFuture,
    service: Arc<dyn Service>,
    xid: u32,
    /// The verifier of the reply (RFC 2203 §5.3.3.2).
    verifier: OpaqueAuth,
    connection: Arc<ServedConnection>,
    span: Span,
}

impl RunningHandler {
    // As `InboundCall::decode`.
    #[allow(clippy::result_large_err)]
    fn begin(
        service: Arc<dyn Service>,
        call: InboundCall,
        xid: u32,
        connection: Arc<ServedConnection>,
    ) -> Result<Self, ReplyCommand> {
        let (span, verifier) = (call.span.clone(), call.verifier.clone());
        match span.in_scope(|| catch_unwind(AssertUnwindSafe(|| service.dispatch(call)))) {
            Ok(future) => Ok(Self { future, service, xid, verifier, connection, span }),
            Err(panic) => Err(panicked(&*service, xid, verifier, &connection, &*panic)),
        }
    }
}

impl Future for RunningHandler {
    type Output = ReplyCommand;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ReplyCommand> {
        let span = self.span.clone();
        let _within = span.enter();
        // Unwind safety: after a panic the future is not polled again. Handlers have to guard their shared state themselves.
        let mut polled = Poll::Pending;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // Assigned inside the closure, because returning a large reply through `catch_unwind` moves it once more.
            polled = self.future.as_mut().poll(cx).map(|EncodedReply(answer)| answer);
        }));
        if let Err(panic) = caught {
            polled = Poll::Ready(panicked(&*self.service, self.xid, self.verifier.clone(), &self.connection, &*panic));
        }
        if let Poll::Ready(answer) = &polled {
            trace::answered(&span, answer);
        }
        polled
    }
}

fn panicked(
    service: &dyn Service,
    xid: u32,
    verifier: OpaqueAuth,
    connection: &ServedConnection,
    panic: &(dyn std::any::Any + Send),
) -> ReplyCommand {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(target: "rpcrdma::call", service = service.name(), xid, panic = said, "handler panicked");
    call::refusal(&ReplyHeader::failure(xid, RpcError::SystemError).with_verifier(verifier), connection.pool())
}
