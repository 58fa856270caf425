//! Services whose calls are limited.

use std::{
    collections::{BTreeMap, HashMap},
    future::{Future, pending},
    sync::Arc,
};

use tokio::time::{Instant, sleep_until};

use super::{
    LimitScope,
    queue::{CallEnd, Caller, Limiter},
};
use crate::{
    driver::ReplyCommand,
    rpc::RpcError,
    service::{ProcedureId, ProcedureInfo},
    session::{Context, EncodedReply, InboundCall, ReplyFuture, Service},
};

/// Wraps services in their limits. Those of the whole server do not apply to the program `exempt`. The error is a program without a
/// service.
pub(in crate::server) fn wrap(
    services: Vec<Arc<dyn Service>>,
    limiters: &BTreeMap<LimitScope, Arc<Limiter>>,
    exempt: Option<u32>,
) -> Result<Vec<Arc<dyn Service>>, u32> {
    for scope in limiters.keys() {
        let program = match *scope {
            LimitScope::Server => continue,
            LimitScope::Program(program) => program,
            LimitScope::Procedure(procedure) => procedure.program,
        };
        if !services.iter().any(|service| service.program() == program) {
            return Err(program);
        }
    }
    Ok(services.into_iter().map(|service| wrap_service(service, limiters, exempt)).collect())
}

/// Wraps a service in its limits. Returns the service itself if there are none.
fn wrap_service(
    service: Arc<dyn Service>,
    limiters: &BTreeMap<LimitScope, Arc<Limiter>>,
    exempt: Option<u32>,
) -> Arc<dyn Service> {
    let (program, version) = (service.program(), service.version());
    let of_server = limiters.get(&LimitScope::Server).filter(|_| exempt != Some(program));
    let of_service = limiters.get(&LimitScope::Program(program)).or(of_server).cloned();
    let mut of_procedures = HashMap::new();
    for (scope, limiter) in limiters {
        if let LimitScope::Procedure(ProcedureId { program: p, version: v, procedure, .. }) = *scope
            && (p, v) == (program, version)
        {
            of_procedures.insert(procedure, Arc::clone(limiter));
        }
    }
    if of_service.is_none() && of_procedures.is_empty() {
        return service;
    }
    Arc::new(LimitedService { service, of_service, of_procedures })
}

/// A service within its limits.
struct LimitedService {
    service: Arc<dyn Service>,
    /// The limits of procedures without their own.
    of_service: Option<Arc<Limiter>>,
    of_procedures: HashMap<u32, Arc<Limiter>>,
}

impl Service for LimitedService {
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
        let Some(limiter) = self.of_procedures.get(&call.procedure()).or(self.of_service.as_ref()) else {
            return self.service.dispatch(call);
        };
        Box::pin(limited(Arc::clone(&self.service), Arc::clone(limiter), call))
    }
}

/// Executes a call within its limits.
async fn limited(
    service: Arc<dyn Service>,
    limiter: Arc<Limiter>,
    #[cfg_attr(not(feature = "tower"), allow(unused_mut))] mut call: InboundCall,
) -> EncodedReply {
    let refusal = call.refusal();
    let connection = limiter.limits.cancels.then(|| Arc::clone(&call.context().connection));
    let gone = async {
        match &connection {
            Some(connection) => _ = connection.port.closed().await,
            None => pending().await,
        }
    };
    // A deadline that does not fit is never reached.
    let deadline = limiter.limits.deadline.and_then(|deadline| Instant::now().checked_add(deadline));
    #[cfg(feature = "tower")]
    call.set_deadline(deadline.map(Instant::into_std));
    let late = async {
        match deadline {
            Some(deadline) => sleep_until(deadline).await,
            None => pending().await,
        }
    };
    let mut ends = std::pin::pin!(async {
        tokio::select! {
            () = gone => CallEnd::Cancelled,
            () = late => CallEnd::TimedOut,
        }
    });
    let permit = if limiter.is_limited() {
        match until(ends.as_mut(), limiter.admit(caller(call.context()))).await {
            // The call before this one may have been cancelled because its deadline passed at the same time.
            Ok(Some(_)) if deadline.is_some_and(|deadline| deadline <= Instant::now()) => {
                limiter.count(CallEnd::Refused);
                return refusal.reply(RpcError::Unavailable);
            }
            Ok(Some(permit)) => Some(permit),
            Ok(None) => return refusal.reply(RpcError::Unavailable),
            Err(CallEnd::Cancelled) => {
                limiter.count(CallEnd::Cancelled);
                return EncodedReply::without_rpc_reply(ReplyCommand::Discard);
            }
            Err(_) => {
                limiter.count(CallEnd::Refused);
                return refusal.reply(RpcError::Unavailable);
            }
        }
    } else {
        None
    };
    limiter.execute();
    let result = until(ends, service.dispatch(call)).await;
    drop(permit);
    match result {
        Ok(reply) => reply,
        Err(end) => {
            limiter.count(end);
            let xid = refusal.xid();
            tracing::info!(target: "rpcrdma::call", service = service.name(), xid, ?end, "handler cancelled");
            if end == CallEnd::Cancelled {
                EncodedReply::without_rpc_reply(ReplyCommand::Discard)
            } else {
                refusal.reply(RpcError::HandlerTimedOut)
            }
        }
    }
}

/// Returns the output of `future`, or the reason for which the call ends before. Then the future is dropped.
async fn until<T>(ends: impl Future<Output = CallEnd>, future: impl Future<Output = T>) -> Result<T, CallEnd> {
    tokio::select! {
        biased;
        output = future => Ok(output),
        end = ends => Err(end),
    }
}

/// Returns the identity of a caller.
fn caller(context: &Context) -> Caller {
    match context.principal() {
        Some(principal) => Caller::Principal(principal.name.as_str().into()),
        None => Caller::Address(context.peer_addr().ip().to_canonical()),
    }
}
