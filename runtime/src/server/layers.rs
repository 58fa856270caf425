//! `tower` layers around the handlers of a server.

use std::{
    error::Error,
    fmt,
    future::{Future, poll_fn},
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
    session::{self, Context, EncodedReply, InboundCall, ReplyFuture, Service},
    transport::Transport,
};

/// The error of any service.
type BoxError = Box<dyn Error + Send + Sync>;

/// A layer of a [`ServerBuilder`](super::ServerBuilder).
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

    /// Returns the name of the procedure and its properties. `None` if the program version has no such procedure, or if its service
    /// does not implement [`Service::procedure`].
    #[must_use]
    pub fn info(&self) -> Option<ProcedureInfo> {
        self.service.procedure(self.call.procedure())
    }

    /// Returns the origin of the call: addresses, credential and principal.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.call.context()
    }

    /// Returns the time at which the server cancels the call, according to the [`Limits`](super::Limits::deadline) of its procedure.
    /// `None` if there is no such limit. ONC RPC does not transmit the deadline of the client.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.call.deadline()
    }

    /// Returns the length of the call's payload stream in bytes: the RPC header and the arguments without those in Read chunks.
    #[must_use]
    pub fn inline_len(&self) -> u64 {
        self.call.incoming().payload.as_slice().len() as u64
    }

    /// Returns the length of the arguments that arrived in Read chunks, in bytes.
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

    /// Returns the length of the reply's payload stream in bytes: the RPC header and the results without those in Write chunks.
    /// Results that are protected count with their length before that.
    #[must_use]
    pub fn inline_len(&self) -> u64 {
        self.reply.inline_len() as u64
    }

    /// Returns the length of the results that leave the payload stream, in bytes. Over RDMA they are in Write chunks.
    #[must_use]
    pub fn reduced_len(&self) -> u64 {
        let items = self.reply.rpc_reply().into_iter().flat_map(|reply| &reply.reduced);
        items.map(|item| item.data.len() as u64).fold(0, u64::saturating_add)
    }

    /// Returns the message format that the resources of the call allow for the reply.
    ///
    /// In version 1 of RPC-over-RDMA, a reply that fits neither inline nor into the Reply chunk of the call cannot be sent. The client
    /// gets a transport error in its place (RFC 8166 §4.5.3), which is a short message.
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

/// The future of [`Dispatch`].
pub type DispatchFuture = Pin<Box<dyn Future<Output = Result<DispatchResponse, BoxError>> + Send>>;

/// The service that a [layer](super::ServerBuilder::layer) wraps: the handlers of the server, or the layers inside.
///
/// Alone, it is always ready and never fails: the response to a call whose handler fails or panics has an error status.
#[derive(Clone)]
pub struct Dispatch(Option<Box<dyn ErasedService>>);

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
        Box::pin(async move {
            let reply = session::execute(service, call).await;
            Ok(DispatchResponse { reply, transport, plan })
        })
    }
}

/// A service of any type.
trait ErasedService: Send + Sync {
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>>;
    fn call(&mut self, request: DispatchRequest) -> DispatchFuture;
    fn clone_box(&self) -> Box<dyn ErasedService>;
}

impl Clone for Box<dyn ErasedService> {
    fn clone(&self) -> Self {
        (**self).clone_box()
    }
}

struct Erased<S>(S);

impl<S> ErasedService for Erased<S>
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
        let called = self.0.call(request);
        Box::pin(async move { called.await.map_err(Into::into) })
    }

    fn clone_box(&self) -> Box<dyn ErasedService> {
        Box::new(Self(self.0.clone()))
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
    Box::new(move |inner| Dispatch(Some(Box::new(Erased(layer.layer(inner))))))
}

/// Wraps services in layers. Without a layer, returns the services themselves.
pub(super) fn wrap(services: Vec<Arc<dyn Service>>, layers: Vec<DispatchLayer>) -> Vec<Arc<dyn Service>> {
    if layers.is_empty() {
        return services;
    }
    let stack = layers.into_iter().rev().fold(Dispatch(None), |inner, layer| layer(inner));
    let wrapped = |service| Arc::new(LayeredService { service, stack: stack.clone() }) as Arc<dyn Service>;
    services.into_iter().map(wrapped).collect()
}

/// A service within the layers of its server.
struct LayeredService {
    service: Arc<dyn Service>,
    stack: Dispatch,
}

impl Service for LayeredService {
    fn program(&self) -> u32 {
        self.service.program()
    }

    fn version(&self) -> u32 {
        self.service.version()
    }

    fn name(&self) -> &'static str {
        self.service.name()
    }

    fn max_chunks(&self) -> u32 {
        self.service.max_chunks()
    }

    fn procedure(&self, number: u32) -> Option<ProcedureInfo> {
        self.service.procedure(number)
    }

    fn dispatch(&self, call: InboundCall) -> ReplyFuture {
        let (refusal, mut stack) = (call.refusal(), self.stack.clone());
        let request = DispatchRequest { call, service: Arc::clone(&self.service) };
        Box::pin(async move {
            let response = match poll_fn(|cx| stack.poll_ready(cx)).await {
                Ok(()) => stack.call(request).await,
                Err(error) => Err(error),
            };
            let error = match response {
                Ok(response) => return response.reply,
                Err(error) => error,
            };
            let error = error.downcast::<RpcError>().map_or_else(
                |error| {
                    tracing::warn!(target: "rpcrdma::call", error = %ErrorChain(&*error), "a layer failed a call");
                    RpcError::SystemError
                },
                |error| *error,
            );
            refusal.reply(error)
        })
    }
}
