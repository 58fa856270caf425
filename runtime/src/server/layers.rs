//! `tower` layers around the handlers of a server.

use std::{
    any::Any,
    error::Error,
    fmt,
    future::{Future, pending, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Instant,
};

use tower_layer::Layer;
use tower_service::Service as TowerService;

use crate::{
    ErrorChain,
    driver::ReplyOutcome,
    engine::{MessageFormat, ReplyPlan},
    rpc::RpcError,
    service::ProcedureInfo,
    session::{Context, EncodedReply, InboundCall, PolledCall, Refusal, RunningHandler, Service},
    transport::Transport,
};

/// The type-erased error of a `tower` service.
type BoxError = Box<dyn Error + Send + Sync>;

/// A type-erased layer of a [`ServerBuilder`](super::ServerBuilder).
pub(super) type DispatchLayer = Box<dyn FnOnce(Dispatch) -> Dispatch + Send + Sync>;

/// An inbound call before its handler runs: the request of the layers of a [server](super::ServerBuilder::layer).
#[must_use]
pub struct DispatchRequest {
    call: InboundCall,
    service: Arc<dyn Service>,
}

impl DispatchRequest {
    /// Returns the program number.
    #[must_use]
    pub fn program(&self) -> u32 {
        self.service.program()
    }

    /// Returns the program version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.service.version()
    }

    /// Returns the procedure number.
    #[must_use]
    pub fn procedure(&self) -> u32 {
        self.call.procedure()
    }

    /// Returns the name of the procedure and its properties. `None` if the program version has no such procedure, or if
    /// its service does not implement [`Service::procedure`].
    #[must_use]
    pub fn info(&self) -> Option<ProcedureInfo> {
        self.service.procedure(self.call.procedure())
    }

    /// Returns the origin of the call: addresses, credential and principal.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.call.context()
    }

    /// Returns the values that the inner layers and the handler find in [`Context::extensions`]. A layer that has
    /// identified the caller adds the identity here. There is at most one value of each type.
    pub fn extensions_mut(&mut self) -> &mut http::Extensions {
        self.call.extensions_mut()
    }

    /// Returns the time at which the server cancels the call, according to the [`Limits`](super::Limits::deadline) that
    /// apply to the call. `None` if there is no such limit. ONC RPC does not transmit the deadline of the client.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline()
    }

    /// Returns the length of the call's payload stream in bytes: the RPC header and the arguments, without reduced
    /// items. If the call is protected, returns the length of its arguments before protection.
    #[must_use]
    pub fn inline_len(&self) -> u64 {
        self.call.incoming().payload.as_slice().len() as u64
    }

    /// Returns the length of the reduced items of the arguments, which arrived in Read chunks, in bytes.
    #[must_use]
    pub fn reduced_len(&self) -> u64 {
        self.call.incoming().reads().iter().map(|chunk| chunk.data.len() as u64).fold(0, u64::saturating_add)
    }

    /// Returns the message format of the call.
    #[must_use]
    pub fn format(&self) -> MessageFormat {
        self.call.incoming().format
    }
}

impl fmt::Debug for DispatchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchRequest")
            .field("program", &self.program())
            .field("version", &self.version())
            .field("procedure", &self.procedure())
            .field("context", self.context())
            .finish_non_exhaustive()
    }
}

/// The status of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DispatchStatus {
    /// The handler returned a result.
    Success,
    /// The reply is an RPC error (RFC 5531 §9).
    Error(RpcError),
    /// The reply is ERR_CHUNK: the call violates the rules of direct data placement (RFC 8166 §4.5.2, §6.1).
    ChunkError,
    /// The call gets no RPC reply.
    Discarded,
}

/// The reply to an inbound call: the response of the layers of a [server](super::ServerBuilder::layer).
#[must_use]
pub struct DispatchResponse {
    reply: EncodedReply,
    transport: Transport,
    plan: ReplyPlan,
}

impl DispatchResponse {
    /// Returns the status of the reply.
    #[must_use]
    pub fn status(&self) -> DispatchStatus {
        match self.reply.outcome() {
            ReplyOutcome::Success | ReplyOutcome::Unprotected(_) => DispatchStatus::Success,
            ReplyOutcome::Error(error) => DispatchStatus::Error(*error),
            ReplyOutcome::None if self.reply.is_discarded() => DispatchStatus::Discarded,
            ReplyOutcome::None => DispatchStatus::ChunkError,
        }
    }

    /// Returns the length of the reply's payload stream in bytes: the RPC header and the results, without the items
    /// that [`reduced_len`](Self::reduced_len) counts. Protected results count with their length before protection.
    #[must_use]
    pub fn inline_len(&self) -> u64 {
        self.reply.inline_len() as u64
    }

    /// Returns the length of the results outside of the payload stream, in bytes. Over RDMA they are in Write chunks.
    /// Over TCP they are large eligible items, which are sent without a copy.
    #[must_use]
    pub fn reduced_len(&self) -> u64 {
        let items = self.reply.rpc_reply().into_iter().flat_map(|reply| &reply.reduced);
        items.map(|item| item.data.len() as u64).fold(0, u64::saturating_add)
    }

    /// Returns the message format that the resources of the call allow for the reply.
    ///
    /// In version 1 of RPC-over-RDMA, a reply that fits neither inline nor into the Reply chunk of the call cannot be
    /// sent. The client gets a transport error in its place (RFC 8166 §4.5.3), which is a short message.
    #[must_use]
    pub fn format(&self) -> MessageFormat {
        if self.transport == Transport::Tcp {
            return MessageFormat::Record;
        }
        match self.plan.format(self.inline_len()) {
            Some(MessageFormat::Short) if self.reduced_len() > 0 => MessageFormat::Chunked,
            format => format.unwrap_or(MessageFormat::Short),
        }
    }
}

impl fmt::Debug for DispatchResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchResponse")
            .field("status", &self.status())
            .field("inline_len", &self.inline_len())
            .field("reduced_len", &self.reduced_len())
            .finish_non_exhaustive()
    }
}

/// The future of a call of [`Dispatch`]. It returns the response, or the error of an inner layer.
pub type DispatchFuture = Pin<Box<dyn Future<Output = Result<DispatchResponse, BoxError>> + Send>>;

/// The service that a [layer](super::ServerBuilder::layer) wraps: the handlers of the server, or the layers inside.
///
/// Without inner layers, it is always ready and never fails: the response to a call whose handler fails or panics has
/// an error status.
#[derive(Clone)]
pub struct Dispatch(Option<Box<dyn ErasedDispatch>>);

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").field("is_layered", &self.0.is_some()).finish()
    }
}

impl TowerService<DispatchRequest> for Dispatch {
    type Response = DispatchResponse;
    type Error = BoxError;
    type Future = DispatchFuture;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.0.as_mut().map_or(Poll::Ready(Ok(())), |inner| inner.poll_ready(cx))
    }

    fn call(&mut self, request: DispatchRequest) -> DispatchFuture {
        if let Some(inner) = &mut self.0 {
            return inner.call(request);
        }
        let DispatchRequest { call, service } = request;
        let (transport, plan) = (call.context().transport(), call.incoming().reply());
        Box::pin(LayeredHandler { handler: RunningHandler::dispatch(&*service, call), transport, plan })
    }
}

/// The future of a handler within layers.
struct LayeredHandler {
    handler: RunningHandler,
    transport: Transport,
    plan: ReplyPlan,
}

impl Future for LayeredHandler {
    type Output = Result<DispatchResponse, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let (transport, plan) = (this.transport, &mut this.plan);
        Pin::new(&mut this.handler).poll(cx).map(|reply| {
            let plan = std::mem::take(plan);
            Ok(DispatchResponse { reply, transport, plan })
        })
    }
}

/// A `tower` service whose type is erased.
trait ErasedDispatch: Send + Sync {
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>>;
    fn call(&mut self, request: DispatchRequest) -> DispatchFuture;
    fn clone_box(&self) -> Box<dyn ErasedDispatch>;

    /// Clones the service, calls the clone when it is ready, and polls the call for the first time.
    fn start(&self, request: DispatchRequest, cx: &mut TaskContext<'_>) -> Started;
}

/// The outcome of the first poll of a call.
// Moved once per call; boxing the large variant would cost an allocation.
#[allow(clippy::large_enum_variant)]
enum Started {
    Finished(Result<DispatchResponse, BoxError>),
    Waiting(DispatchFuture),
}

impl Clone for Box<dyn ErasedDispatch> {
    fn clone(&self) -> Self {
        (**self).clone_box()
    }
}

struct LayerService<S>(S);

impl<S> ErasedDispatch for LayerService<S>
where
    S: TowerService<DispatchRequest, Response = DispatchResponse, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: DispatchRequest) -> DispatchFuture {
        let mut called = Some(self.0.call(request));
        // The future of a layer that passes that of the service inside on.
        match (&mut called as &mut dyn Any).downcast_mut().and_then(Option::take) {
            Some(called) => called,
            None => Box::pin(async move {
                match called {
                    Some(called) => called.await.map_err(Into::into),
                    None => pending().await,
                }
            }),
        }
    }

    fn clone_box(&self) -> Box<dyn ErasedDispatch> {
        Box::new(Self(self.0.clone()))
    }

    fn start(&self, request: DispatchRequest, cx: &mut TaskContext<'_>) -> Started {
        let mut service = Self(self.0.clone());
        let mut future = match service.poll_ready(cx) {
            Poll::Ready(Ok(())) => service.call(request),
            Poll::Ready(Err(error)) => return Started::Finished(Err(error)),
            Poll::Pending => {
                return Started::Waiting(Box::pin(async move {
                    poll_fn(|cx| service.poll_ready(cx)).await?;
                    service.call(request).await
                }));
            }
        };
        match future.as_mut().poll(cx) {
            Poll::Ready(result) => Started::Finished(result),
            Poll::Pending => Started::Waiting(future),
        }
    }
}

/// Erases the type of a layer.
pub(super) fn erase<L>(layer: L) -> DispatchLayer
where
    L: Layer<Dispatch> + Send + Sync + 'static,
    L::Service: TowerService<DispatchRequest, Response = DispatchResponse, Error: Into<BoxError>, Future: Send + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    Box::new(move |inner| Dispatch(Some(Box::new(LayerService(layer.layer(inner))))))
}

/// The type-erased service that the layers of a server create.
pub(super) struct Layers(Box<dyn ErasedDispatch>);

impl Layers {
    /// Creates the services of `layers`, which start with the outermost layer. Returns `None` if there are no layers.
    pub(super) fn new(layers: Vec<DispatchLayer>) -> Option<Self> {
        layers.into_iter().rev().fold(Dispatch(None), |inner, layer| layer(inner)).0.map(Self)
    }

    /// Passes a call through the layers to the service. Polls the call for the first time.
    // Inlined, because a call would move the message once more.
    #[inline(always)]
    pub(super) fn start(&self, service: &Arc<dyn Service>, call: InboundCall, cx: &mut TaskContext<'_>) -> PolledCall {
        let refusal = call.refusal();
        match self.0.start(DispatchRequest { call, service: Arc::clone(service) }, cx) {
            Started::Finished(Ok(response)) => PolledCall::Finished(response.reply),
            Started::Finished(Err(error)) => PolledCall::Finished(failed(&refusal, error)),
            Started::Waiting(rest) => PolledCall::Waiting(Box::pin(async move {
                match rest.await {
                    Ok(response) => response.reply,
                    Err(error) => failed(&refusal, error),
                }
            })),
        }
    }
}

/// Returns the reply to a call that failed in a layer.
fn failed(refusal: &Refusal, error: BoxError) -> EncodedReply {
    let error = error.downcast::<RpcError>().map_or_else(
        |error| {
            tracing::warn!(target: "rpcrdma::call", error = %ErrorChain(&*error), "a layer failed a call");
            RpcError::SystemError
        },
        |error| *error,
    );
    refusal.reply(error)
}
