//! A handler in progress.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tracing::Span;

use super::{
    call::{self, EncodedReply, InboundCall, ServedConnection},
    service::{ReplyFuture, Service},
};
use crate::{
    driver::ReplyCommand,
    rpc::{ReplySecurity, RpcError},
    trace,
};

/// A handler in progress. The reply of a handler that panics is SYSTEM_ERR.
pub(super) struct RunningHandler {
    future: ReplyFuture,
    /// The name of the service, for the message about a panic.
    name: &'static str,
    xid: u32,
    /// The security of the reply, for its verifier after a panic (RFC 2203 §5.3.3.2).
    security: Option<Arc<dyn ReplySecurity>>,
    connection: Arc<ServedConnection>,
    span: Span,
}

impl RunningHandler {
    // As `InboundCall::decode`.
    #[allow(clippy::result_large_err)]
    #[inline(always)]
    pub(super) fn begin(
        service: &dyn Service,
        call: InboundCall,
        xid: u32,
        connection: Arc<ServedConnection>,
    ) -> Result<Self, ReplyCommand> {
        let (span, security) = (call.span.clone(), call.security.clone());
        match span.in_scope(|| catch_unwind(AssertUnwindSafe(|| service.dispatch(call)))) {
            Ok(future) => Ok(Self { future, name: service.name(), xid, security, connection, span }),
            Err(panic) => Err(panicked(service.name(), xid, security.as_deref(), &connection, &*panic)),
        }
    }
}

/// Executes a call within middleware.
#[cfg(feature = "tower")]
pub(crate) async fn execute(service: Arc<dyn Service>, call: InboundCall) -> EncodedReply {
    let (xid, connection) = (call.context().xid(), Arc::clone(&call.context().connection));
    match RunningHandler::begin(&*service, call, xid, connection) {
        Ok(handler) => handler.await,
        Err(answer) => answer.into(),
    }
}

impl Future for RunningHandler {
    type Output = EncodedReply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<EncodedReply> {
        let span = self.span.clone();
        let _within = span.enter();
        // Unwind safety: after a panic the future is not polled again. Handlers have to guard their shared state themselves.
        let mut polled = Poll::Pending;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            // Assigned inside the closure, because returning a large reply through `catch_unwind` moves it once more.
            polled = self.future.as_mut().poll(cx);
        }));
        if let Err(panic) = caught {
            let answer = panicked(self.name, self.xid, self.security.as_deref(), &self.connection, &*panic);
            polled = Poll::Ready(answer.into());
        }
        if let Poll::Ready(answer) = &polled {
            trace::answered(&span, &answer.command);
        }
        polled
    }
}

fn panicked(
    service: &'static str,
    xid: u32,
    security: Option<&dyn ReplySecurity>,
    connection: &ServedConnection,
    panic: &(dyn std::any::Any + Send),
) -> ReplyCommand {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(target: "rpcrdma::call", service, xid, panic = said, "handler panicked");
    call::refusal(xid, RpcError::SystemError, security, connection.pool())
}
