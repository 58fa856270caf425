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
    call::{InboundCall, ServedConnection},
    reply,
    service::{ReplyFuture, Service},
};
use crate::{driver::EncodedReply, rpc::RpcError, security::ReplySecurity, trace};

/// A handler in progress. The reply of a handler that panics is SYSTEM_ERR.
pub(super) struct RunningHandler {
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
pub(super) enum BegunHandler {
    Finished(EncodedReply),
    Running(RunningHandler),
}

impl BegunHandler {
    /// Begins the handler of a call, and polls it for the first time.
    // Inlined, because a call would move the message once more.
    #[inline(always)]
    pub(super) fn begin(
        service: &dyn Service,
        call: InboundCall,
        connection: &Arc<ServedConnection>,
        cx: &mut Context<'_>,
    ) -> Self {
        let (xid, span, security) = (call.xid(), call.span.clone(), call.security.clone());
        let within = span.as_deref().map(Span::enter);
        let mut polled = Poll::Pending;
        let begun = catch_unwind(AssertUnwindSafe(|| {
            let mut future = service.dispatch(call);
            // Assigned inside the closure, because returning a reply through `catch_unwind` moves it once more.
            polled = future.as_mut().poll(cx);
            future
        }));
        drop(within);
        match begun {
            Ok(future) => match polled {
                Poll::Ready(answer) => Self::Finished(answered(span.as_deref(), answer)),
                Poll::Pending => {
                    let connection = Arc::clone(connection);
                    Self::Running(RunningHandler { future, name: service.name(), xid, security, connection, span })
                }
            },
            Err(panic) => {
                let answer = panicked(service.name(), xid, security.as_deref(), connection, &*panic);
                Self::Finished(answered(span.as_deref(), answer))
            }
        }
    }

    /// Waits for the reply.
    pub(super) async fn finish(self) -> EncodedReply {
        match self {
            Self::Finished(answer) => answer,
            Self::Running(handler) => handler.await,
        }
    }
}

/// Executes a call within middleware.
#[cfg(feature = "tower")]
pub(crate) async fn execute(service: Arc<dyn Service>, call: InboundCall) -> EncodedReply {
    let connection = Arc::clone(&call.context().connection);
    let mut call = Some(call);
    let begun = std::future::poll_fn(|cx| match call.take() {
        Some(call) => Poll::Ready(BegunHandler::begin(&*service, call, &connection, cx)),
        None => Poll::Pending,
    });
    begun.await.finish().await
}

impl Future for RunningHandler {
    type Output = EncodedReply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<EncodedReply> {
        let span = self.span.clone();
        let within = span.as_deref().map(Span::enter);
        // Unwind safety: after a panic the future is not polled again. Handlers have to guard their shared state themselves.
        let polled = catch_unwind(AssertUnwindSafe(|| self.future.as_mut().poll(cx)));
        drop(within);
        let polled = polled.unwrap_or_else(|panic| {
            let answer = panicked(self.name, self.xid, self.security.as_deref(), &self.connection, &*panic);
            Poll::Ready(answer)
        });
        polled.map(|answer| answered(span.as_deref(), answer))
    }
}

/// Records the reply in the span of its call.
#[inline(always)]
fn answered(span: Option<&Span>, answer: EncodedReply) -> EncodedReply {
    if let Some(span) = span {
        trace::answered(span, &answer.command);
    }
    answer
}

fn panicked(
    service: &'static str,
    xid: u32,
    security: Option<&dyn ReplySecurity>,
    connection: &ServedConnection,
    panic: &(dyn std::any::Any + Send),
) -> EncodedReply {
    let said = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(target: "rpcrdma::call", service, xid, panic = said, "handler panicked");
    reply::refusal(xid, RpcError::SystemError, security, connection.pool())
}
