//! The hooks of a server around the calls of a service.

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use super::{
    call::InboundCall,
    service::{ReplyFuture, Service},
};
use crate::driver::EncodedReply;

/// A call that has been polled once.
// Moved once per call; boxing the large variant would cost an allocation.
#[allow(clippy::large_enum_variant)]
pub(crate) enum PolledCall {
    /// The reply is ready.
    Finished(EncodedReply),
    /// The handler or a hook waits. The future is the rest of the call.
    Waiting(ReplyFuture),
}

impl PolledCall {
    /// Dispatches a call to its service, and polls the handler for the first time.
    #[inline(always)]
    pub(crate) fn dispatch(service: &dyn Service, call: InboundCall, cx: &mut Context<'_>) -> Self {
        let mut future = service.dispatch(call);
        match future.as_mut().poll(cx) {
            Poll::Ready(reply) => Self::Finished(reply),
            Poll::Pending => Self::Waiting(future),
        }
    }

    /// Starts a call at the first poll of the future, and waits for its reply.
    pub(crate) async fn run(start: impl FnOnce(&mut Context<'_>) -> Self) -> EncodedReply {
        let mut start = Some(start);
        let polled = poll_fn(|cx| start.take().map_or(Poll::Pending, |start| Poll::Ready(start(cx))));
        match polled.await {
            Self::Finished(reply) => reply,
            Self::Waiting(rest) => rest.await,
        }
    }
}

/// The hooks of a server around the calls of one service: introspection, duplicate request cache, limits and layers.
///
/// Hooks are not services themselves, because a service returns a boxed future. A call that no hook holds up passes
/// through all of them on the stack of its connection's task.
pub(crate) trait CallHooks: Send + Sync + 'static {
    /// Passes a call through the hooks to `service`, which belongs to the connection of the call. Polls the call for
    /// the first time.
    fn start(&self, service: &Arc<dyn Service>, call: InboundCall, cx: &mut Context<'_>) -> PolledCall;
}

#[derive(Clone)]
pub(crate) struct HookedService {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) hooks: Option<Arc<dyn CallHooks>>,
}

impl HookedService {
    /// Returns the service for the calls of one connection. All connections share the hooks.
    pub(super) fn for_connection(&self) -> Self {
        let Self { service, hooks } = self;
        Self { service: service.for_connection().unwrap_or_else(|| Arc::clone(service)), hooks: hooks.clone() }
    }
}

impl From<Arc<dyn Service>> for HookedService {
    fn from(service: Arc<dyn Service>) -> Self {
        Self { service, hooks: None }
    }
}
