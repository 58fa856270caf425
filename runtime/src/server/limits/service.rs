//! The limits of one service.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    pin::{Pin, pin},
    sync::Arc,
    task::Context as TaskContext,
};

use tokio::time::{Instant, sleep_until};

use super::{
    LimitScope,
    queue::{Arrival, CallEnd, CallSource, Limiter, Permit, WaitingCall},
};
use crate::{
    driver::ReplyCommand,
    rpc::RpcError,
    service::ProcedureId,
    session::{Context, EncodedReply, InboundCall, PolledCall, Refusal, ReplyFuture, Service},
};

/// The limits of one service and its procedures.
pub(in crate::server) struct ServiceLimits {
    /// The limits that apply to procedures without limits of their own, except procedure 0.
    of_service: Option<Arc<Limiter>>,
    /// The limits of procedures, in ascending order of their numbers.
    of_procedures: Vec<(u32, Arc<Limiter>)>,
}

impl ServiceLimits {
    /// Returns the limits of a service, or `None` if it has none. If `is_exempt` is `true`, the limits of the whole
    /// server do not apply.
    pub(in crate::server) fn new(
        service: &dyn Service,
        limiters: &BTreeMap<LimitScope, Arc<Limiter>>,
        is_exempt: bool,
    ) -> Option<Self> {
        let (program, version) = (service.program(), service.version());
        let of_server = limiters.get(&LimitScope::Server).filter(|_| !is_exempt);
        let of_service = limiters.get(&LimitScope::Program(program)).or(of_server).cloned();
        let of_procedure = |(scope, limiter): (&LimitScope, &Arc<Limiter>)| match *scope {
            LimitScope::Procedure(id) if (id.program, id.version) == (program, version) => {
                Some((id.procedure, Arc::clone(limiter)))
            }
            _ => None,
        };
        let of_procedures: Vec<_> = limiters.iter().filter_map(of_procedure).collect();
        (of_service.is_some() || !of_procedures.is_empty()).then_some(Self { of_service, of_procedures })
    }

    /// Returns the limits that apply to a procedure, or `None` if it is not limited.
    #[inline]
    pub(in crate::server) fn find(&self, procedure: u32) -> Option<&Arc<Limiter>> {
        match self.of_procedures.binary_search_by_key(&procedure, |(number, _)| *number) {
            Ok(at) => self.of_procedures.get(at).map(|(_, limiter)| limiter),
            // A client probes its server by procedure 0. If the probe waited for a handler, the server would look
            // silent.
            Err(_) => self.of_service.as_ref().filter(|_| procedure != 0),
        }
    }
}

/// Returns a program that has limits, but no service.
pub(in crate::server) fn unknown_program(
    services: &[Arc<dyn Service>],
    limiters: &BTreeMap<LimitScope, Arc<Limiter>>,
) -> Option<u32> {
    let program = |scope: &LimitScope| match *scope {
        LimitScope::Server => None,
        LimitScope::Program(program) | LimitScope::Procedure(ProcedureId { program, .. }) => Some(program),
    };
    let is_unknown = |program: &u32| !services.iter().any(|service| service.program() == *program);
    limiters.keys().filter_map(program).find(is_unknown)
}

/// A call to which limits apply.
pub(in crate::server) struct LimitedCall {
    limiter: Arc<Limiter>,
    /// The deadline of the call. `None` if there is no deadline, or if it is too far in the future for an [`Instant`].
    deadline: Option<Instant>,
    service: &'static str,
    refusal: Refusal,
}

impl LimitedCall {
    /// Applies the limits of `limiter` to a call, and sets the deadline of the call.
    #[inline]
    pub(in crate::server) fn new(
        limiter: &Arc<Limiter>,
        service: &dyn Service,
        #[cfg_attr(not(feature = "tower"), allow(unused_mut))] call: &mut InboundCall,
    ) -> Self {
        let deadline = limiter.limits.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
        #[cfg(feature = "tower")]
        call.set_deadline(deadline.map(Instant::into_std));
        Self { limiter: Arc::clone(limiter), deadline, service: service.name(), refusal: call.refusal() }
    }

    /// Admits the call if there is room for it. Otherwise queues or refuses it.
    #[inline]
    pub(in crate::server) fn arrive(&self, call: &InboundCall) -> Arrival {
        self.limiter.arrive(|| source(call.context()))
    }

    /// Returns the reply to a call that was not executed.
    pub(in crate::server) fn refused(&self) -> EncodedReply {
        self.refusal.reply(RpcError::Unavailable)
    }

    /// Waits until the call is admitted, starts its handler, and waits for the reply. If the call must be given up
    /// meanwhile, refuses or discards the waiting call, or cancels its handler.
    pub(in crate::server) async fn wait(
        self,
        waiting: WaitingCall,
        start: impl FnOnce(&mut TaskContext<'_>) -> PolledCall,
    ) -> EncodedReply {
        let mut end = pin!(self.end());
        let permit = match until(end.as_mut(), waiting.admitted()).await {
            // The call before this one may have been cancelled because its deadline passed at the same time.
            Ok(Some(_)) if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                self.limiter.count(CallEnd::Refused);
                return self.refused();
            }
            Ok(Some(permit)) => Some(permit),
            Ok(None) => return self.refused(),
            Err(CallEnd::Cancelled) => {
                self.limiter.count(CallEnd::Cancelled);
                return EncodedReply::without_rpc_reply(ReplyCommand::Discard);
            }
            Err(_) => {
                self.limiter.count(CallEnd::Refused);
                return self.refused();
            }
        };
        self.execute();
        self.reply(end, PolledCall::run(start), permit).await
    }

    /// Counts the call as executed.
    #[inline]
    pub(in crate::server) fn execute(&self) {
        self.limiter.execute();
    }

    /// Waits for the reply of a handler that has been polled. Cancels the handler if the call must be given up first.
    pub(in crate::server) async fn finish(self, permit: Option<Permit>, handler: ReplyFuture) -> EncodedReply {
        let end = pin!(self.end());
        self.reply(end, handler, permit).await
    }

    /// Returns a future that completes when the call must be given up: at its deadline or, if the limits cancel calls
    /// on disconnect, when its connection has closed.
    fn end(&self) -> impl Future<Output = CallEnd> + Send + use<> {
        let connection = self.limiter.limits.cancels.then(|| self.refusal.connection());
        let deadline = self.deadline;
        let closed = async move {
            match connection {
                Some(connection) => _ = connection.port.closed().await,
                None => pending().await,
            }
        };
        let late = async move {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        async {
            tokio::select! {
                biased;
                () = closed => CallEnd::Cancelled,
                () = late => CallEnd::TimedOut,
            }
        }
    }

    /// Waits for the reply of a handler. If the call must be given up first, drops the handler. The client then gets an
    /// error reply after the deadline, and no reply if the connection has closed.
    async fn reply(
        &self,
        end: Pin<&mut impl Future<Output = CallEnd>>,
        handler: impl Future<Output = EncodedReply>,
        permit: Option<Permit>,
    ) -> EncodedReply {
        let result = until(end, handler).await;
        drop(permit);
        result.unwrap_or_else(|end| {
            self.limiter.count(end);
            let (service, xid) = (self.service, self.refusal.xid());
            tracing::info!(target: "rpcrdma::call", service, xid, ?end, "handler cancelled");
            if end == CallEnd::Cancelled {
                EncodedReply::without_rpc_reply(ReplyCommand::Discard)
            } else {
                self.refusal.reply(RpcError::HandlerTimedOut)
            }
        })
    }
}

/// Returns the output of `future`. If the call ends first, drops the future and returns the reason.
async fn until<T>(end: impl Future<Output = CallEnd>, future: impl Future<Output = T>) -> Result<T, CallEnd> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        end = end => Err(end),
    }
}

/// Returns the address of the peer and the principal of a call.
fn source(context: &Context) -> CallSource {
    let principal = context.principal().map(|principal| principal.name.as_str().into());
    CallSource { peer: context.peer_addr(), principal }
}
