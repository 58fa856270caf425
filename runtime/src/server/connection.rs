//! One connection's handlers.

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
    Reply, ReplyFuture, Service,
    call::{self, Call, Connection},
    dispatch::Registry,
    handle::Shared,
};
use crate::{
    driver::{Answer, Command, Port, Upcalls},
    engine::{CloseReason, IncomingCall, ReplyToken},
    rpc::{OpaqueAuth, ReplyHeader, RpcError},
    trace,
};

/// Answers the calls that arrive by one connection.
pub(crate) struct Handlers {
    registry: Arc<Registry>,
    connection: Arc<Connection>,
    listed: Option<Listed>,
    /// Handlers that wait for something.
    waiting: JoinSet<()>,
}

/// A place in a server's list of connections.
pub(super) struct Listed {
    id: u64,
    shared: Arc<Shared>,
    /// Why the connection has ended, once it has.
    why: Option<CloseReason>,
}

impl Listed {
    pub(super) fn new(id: u64, shared: Arc<Shared>) -> Self {
        Self { id, shared, why: None }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.shared.remove(self.id, self.why.as_ref());
    }
}

impl Handlers {
    pub(crate) fn new(registry: Arc<Registry>, connection: Arc<Connection>) -> Self {
        Self { registry, connection, listed: None, waiting: JoinSet::new() }
    }

    /// The same, for a connection in a server's list.
    pub(super) fn listed(self, listed: Listed) -> Self {
        Self { listed: Some(listed), ..self }
    }
}

impl Upcalls for Handlers {
    // As in `Registry::route`: an answer is moved once, boxed it would be allocated.
    #[allow(clippy::result_large_err)]
    fn call(&mut self, incoming: IncomingCall, port: &Arc<Port>) -> Option<Answer> {
        let (token, xid) = (incoming.token, incoming.xid);
        let begun = self.registry.route(incoming, &self.connection, |service, call| {
            Handler::begin(Arc::clone(service), call, xid, Arc::clone(&self.connection))
        });
        let mut handler = match begun {
            Ok(handler) => handler,
            Err(answer) => return Some(answer),
        };
        // A handler that does not wait is done here and now. One that does is polled again, by a task with a waker of
        // its own, so this waker need not do anything.
        if let Poll::Ready(answer) = Pin::new(&mut handler).poll(&mut Context::from_waker(Waker::noop())) {
            return Some(answer);
        }
        while self.waiting.try_join_next().is_some() {}
        let port = Arc::clone(port);
        let answered = async move {
            let answer = handler.await;
            port.send(Command::Reply { token, answer });
        };
        self.waiting.spawn(answered);
        None
    }

    fn replied(&mut self, _token: ReplyToken, delivered: bool) {
        if !delivered {
            tracing::info!(target: "rpcrdma::call", peer = %self.connection.info.peer_addr, "a reply could not be delivered");
        }
    }

    fn closed(&mut self, reason: &CloseReason) {
        tracing::info!(target: "rpcrdma", %reason, "connection closed");
        if let Some(listed) = &mut self.listed {
            listed.why = Some(reason.clone());
        }
        if !self.listed.as_ref().is_some_and(|listed| listed.shared.is_aborting()) {
            // The caller has gone; what its calls began is finished.
            self.waiting.detach_all();
        }
    }
}

/// A handler under way; a panic of its becomes SYSTEM_ERR.
struct Handler {
    future: ReplyFuture,
    service: Arc<dyn Service>,
    xid: u32,
    /// Of the reply: RFC 2203 §5.3.3.2.
    verifier: OpaqueAuth,
    connection: Arc<Connection>,
    span: Span,
}

impl Handler {
    // As `Call::decode`.
    #[allow(clippy::result_large_err)]
    fn begin(service: Arc<dyn Service>, call: Call, xid: u32, connection: Arc<Connection>) -> Result<Self, Answer> {
        let (span, verifier) = (call.span(), call.verifier());
        match span.in_scope(|| catch_unwind(AssertUnwindSafe(|| service.dispatch(call)))) {
            Ok(future) => Ok(Self { future, service, xid, verifier, connection, span }),
            Err(panic) => Err(panicked(&*service, xid, verifier, &connection, &*panic)),
        }
    }
}

impl Future for Handler {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let span = self.span.clone();
        let _within = span.enter();
        // Unwind safety: after a panic the future is not polled again, and what handlers share is theirs to guard.
        let mut polled = Poll::Pending;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // Put outside of what may unwind: an answer is not little, and is moved once less.
            polled = self.future.as_mut().poll(cx).map(|Reply(answer)| answer);
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
    connection: &Connection,
    panic: &(dyn std::any::Any + Send),
) -> Answer {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(target: "rpcrdma::call", service = service.name(), xid, panic = said, "handler panicked");
    call::refusal(&ReplyHeader::failure(xid, RpcError::SystemError).with_verifier(verifier), &connection.pool)
}
