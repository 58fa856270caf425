//! A handler in progress.

use std::{
    any::Any,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tracing::Span;

use super::{
    call::InboundCall,
    context::ServedConnection,
    hooks::{HookedService, PolledCall},
    reply,
    service::ReplyFuture,
};
use crate::{driver::EncodedReply, rpc::RpcError, security::ReplySecurity, trace};

/// A handler in progress, polled by the task of its call. The reply of a handler that panics is SYSTEM_ERR.
pub(crate) struct RunningHandler {
    future: ReplyFuture,
    /// The name of the service, for the message about a panic.
    name: &'static str,
    xid: u32,
    /// The security of the reply, for its verifier after a panic (RFC 2203 §5.3.3.2).
    security: Option<Arc<dyn ReplySecurity>>,
    connection: Arc<ServedConnection>,
    span: Option<Arc<Span>>,
}

/// A handler that was polled once.
// Moved once per call; boxing the large variant would cost an allocation.
#[allow(clippy::large_enum_variant)]
pub(super) enum StartedHandler {
    Finished(EncodedReply),
    Running(RunningHandler),
}

impl StartedHandler {
    /// Starts the handler of a call within the hooks of its service, and polls it for the first time.
    // Inlined, because a call would move the message once more.
    #[inline(always)]
    pub(super) fn start(
        HookedService { service, hooks }: &HookedService,
        call: InboundCall,
        connection: &Arc<ServedConnection>,
        cx: &mut Context<'_>,
    ) -> Self {
        let (xid, span, security) = (call.xid(), call.span.clone(), call.security.clone());
        let within = span.as_deref().map(Span::enter);
        let mut polled = None;
        // Assigned inside the closure, because returning a reply through `catch_unwind` moves it once more.
        let started = catch_unwind(AssertUnwindSafe(|| {
            polled = Some(match hooks {
                None => PolledCall::dispatch(&**service, call, cx),
                Some(hooks) => hooks.start(service, call, cx),
            });
        }));
        drop(within);
        match polled {
            Some(PolledCall::Finished(reply)) => Self::Finished(answered(span.as_deref(), reply)),
            Some(PolledCall::Waiting(future)) => {
                let connection = Arc::clone(connection);
                Self::Running(RunningHandler { future, name: service.name(), xid, security, connection, span })
            }
            None => {
                let reply = panicked(service.name(), xid, security.as_deref(), connection, started.err().as_deref());
                Self::Finished(answered(span.as_deref(), reply))
            }
        }
    }

    /// Waits for the reply of the handler.
    pub(super) async fn finish(self) -> EncodedReply {
        match self {
            Self::Finished(reply) => reply,
            Self::Running(handler) => handler.await,
        }
    }
}

#[cfg(feature = "tower")]
impl RunningHandler {
    /// Dispatches a call to its service, inside of `tower` layers.
    pub(crate) fn dispatch(service: &dyn super::service::Service, call: InboundCall) -> Self {
        let (xid, span, security) = (call.xid(), call.span.clone(), call.security.clone());
        let (name, connection) = (service.name(), Arc::clone(&call.context().connection));
        let within = span.as_deref().map(Span::enter);
        let dispatched = catch_unwind(AssertUnwindSafe(|| service.dispatch(call)));
        drop(within);
        let future = dispatched.unwrap_or_else(|panic| {
            let reply = panicked(name, xid, security.as_deref(), &connection, Some(&*panic));
            Box::pin(std::future::ready(reply))
        });
        Self { future, name, xid, security, connection, span }
    }
}

impl Future for RunningHandler {
    type Output = EncodedReply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<EncodedReply> {
        let span = self.span.clone();
        let within = span.as_deref().map(Span::enter);
        // Unwind safety: after a panic the future is not polled again. Handlers have to guard their shared state
        // themselves.
        let mut polled = Poll::Pending;
        let caught = catch_unwind(AssertUnwindSafe(|| polled = self.future.as_mut().poll(cx)));
        drop(within);
        if let Err(panic) = caught {
            let reply = panicked(self.name, self.xid, self.security.as_deref(), &self.connection, Some(&*panic));
            polled = Poll::Ready(reply);
        }
        polled.map(|reply| answered(span.as_deref(), reply))
    }
}

/// Records the reply in the span of its call.
#[inline(always)]
fn answered(span: Option<&Span>, reply: EncodedReply) -> EncodedReply {
    if let Some(span) = span {
        trace::answered(span, &reply.command);
    }
    reply
}

/// Returns the message of a panic, if it has one.
pub(super) fn panic_message(panic: &(dyn Any + Send)) -> Option<&str> {
    match panic.downcast_ref::<&str>() {
        Some(message) => Some(*message),
        None => panic.downcast_ref::<String>().map(String::as_str),
    }
}

fn panicked(
    service: &'static str,
    xid: u32,
    security: Option<&dyn ReplySecurity>,
    connection: &ServedConnection,
    panic: Option<&(dyn Any + Send)>,
) -> EncodedReply {
    let message = panic.and_then(panic_message);
    tracing::error!(target: "rpcrdma::call", service, xid, panic = message, "handler panicked");
    reply::refusal(xid, RpcError::SystemError, security, connection.pool())
}
