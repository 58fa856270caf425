//! Inbound calls whose authentication takes time or whose bodies are protected, and security operations that both
//! clients and servers run outside of their tasks if a body is large, or while another large body is in progress.

use std::{
    future::{Future as _, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
};

use bytes::Bytes;
use tokio::runtime::Handle;

use super::{
    context::ServedConnection,
    registry::{CallHead, ServiceRegistry},
    reply,
    running::panic_message,
};
use crate::{
    driver::{EncodedReply, ReplyCommand, ReplyOutcome},
    engine::{IncomingCall, MessagePayload},
    memory::Output as _,
    rpc::{AuthStat, OpaqueAuth, RpcError},
    security::{
        Authentication, BlockingQueue, CallSecurity, MAX_BODY_IN_TASK, Protection, Seal, SecurityError, UnwrapError,
    },
};

/// Protects a body. A large body is protected on a thread for blocking work.
pub(crate) async fn wrap(protection: Arc<dyn Protection>, body: Bytes) -> Result<Bytes, SecurityError> {
    off_task(protection, body, |protection, body| protection.wrap(body)).await
}

/// Checks a protected body, and returns the original body. A large body is checked on a thread for blocking work.
pub(crate) async fn unwrap(protection: Arc<dyn Protection>, body: Bytes) -> Result<Bytes, UnwrapError> {
    off_task(protection, body, |protection, body| protection.unwrap(body)).await
}

async fn off_task<E: From<SecurityError> + Send + 'static>(
    protection: Arc<dyn Protection>,
    body: Bytes,
    work: impl FnOnce(&dyn Protection, Bytes) -> Result<Bytes, E> + Send + 'static,
) -> Result<Bytes, E> {
    let is_large = body.len() > MAX_BODY_IN_TASK;
    run(protection.queue(), is_large, move || work(&*protection, body)).await?
}

/// Runs `work` in this task if `is_large` is `false` and no large body of the security context is in progress, and on a
/// thread for blocking work otherwise. Outside of a tokio runtime, where a client may make calls, `work` always runs in
/// this task.
async fn run<T: Send + 'static>(
    queue: BlockingQueue,
    is_large: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, SecurityError> {
    let Ok(runtime) = Handle::try_current() else { return Ok(queue.run_here(is_large, work)) };
    let work = if is_large { Err(work) } else { queue.try_run(work) };
    match work {
        Ok(done) => Ok(done),
        Err(work) => queue.run(runtime, is_large, work).await,
    }
}

/// Creates the verifier of a call.
pub(crate) async fn seal(seal: &Arc<dyn Seal>, header: Bytes) -> Result<OpaqueAuth, SecurityError> {
    let Some(queue) = seal.queue() else { return seal.seal(&header) };
    let seal = Arc::clone(seal);
    run(queue, false, move || seal.seal(&header)).await?
}

/// Checks the verifier of a reply.
pub(crate) async fn verify(security: &Arc<dyn CallSecurity>, verifier: &OpaqueAuth) -> Result<(), SecurityError> {
    let Some(queue) = security.queue() else { return security.verify(verifier) };
    let (security, verifier) = (Arc::clone(security), verifier.clone());
    run(queue, false, move || security.verify(&verifier)).await?
}

/// Returns `true` if a call that could not be secured should be secured again.
pub(crate) async fn expired(security: &Arc<dyn CallSecurity>) -> bool {
    let Some(queue) = security.queue() else { return security.expired() };
    let security = Arc::clone(security);
    run(queue, false, move || security.expired()).await.unwrap_or(false)
}

/// Serves a call from the first decision of the authenticator to the reply.
///
/// If the authenticator or the protection of the bodies panics, the call ends without an RPC reply, because the handler
/// may already have run, and the reply might have to be protected.
pub(super) async fn serve(
    registry: Arc<ServiceRegistry>,
    connection: Arc<ServedConnection>,
    incoming: IncomingCall,
    head: CallHead,
    authentication: Authentication,
) -> ReplyCommand {
    let mut reply = pin!(reply_to(registry, connection, incoming, head, authentication));
    poll_fn(|cx| {
        // Unwind safety: after a panic the future is not polled again.
        catch_unwind(AssertUnwindSafe(|| reply.as_mut().poll(cx))).unwrap_or_else(|panic| {
            let panic = panic_message(&*panic);
            tracing::error!(target: "rpcrdma::call", xid = head.xid, panic, "authentication or protection panicked");
            Poll::Ready(ReplyCommand::Discard)
        })
    })
    .await
}

// As in `ServiceRegistry::route`: boxing the reply would require an allocation.
#[allow(clippy::result_large_err)]
async fn reply_to(
    registry: Arc<ServiceRegistry>,
    connection: Arc<ServedConnection>,
    mut incoming: IncomingCall,
    mut head: CallHead,
    mut authentication: Authentication,
) -> ReplyCommand {
    let caller = loop {
        match authentication {
            Authentication::Accepted(caller) => break caller,
            Authentication::Pending(decision) => authentication = decision.await,
            Authentication::Rejected(failure) => return head.refuse(failure.into(), None, &connection),
            Authentication::Answered(reply) => return reply::control_reply(head.xid, reply, connection.pool()).command,
            Authentication::Discarded => {
                tracing::info!(
                    target: "rpcrdma::call", peer = %connection.info.peer_addr, xid = head.xid, "call discarded"
                );
                return ReplyCommand::Discard;
            }
        }
    };
    let security = caller.security.clone();
    let protection = caller.protection();
    if let Some(protection) = &protection {
        // RFC 8166 §8.2.2.3: no item of a protected body is eligible, so a Read chunk is a violation (§6.1).
        if !incoming.reads().is_empty() {
            tracing::info!(target: "rpcrdma::call", xid = head.xid, "protected arguments are reduced");
            return ReplyCommand::ChunkError;
        }
        let body = match &incoming.payload {
            MessagePayload::Inline(message) => {
                Bytes::copy_from_slice(message.get(head.arguments_at..).unwrap_or_default())
            }
            MessagePayload::Long(message) => message.slice(head.arguments_at.min(message.len())..),
        };
        match unwrap(Arc::clone(protection), body).await {
            Ok(body) => incoming.payload = MessagePayload::Long(body),
            Err(error) => {
                tracing::info!(target: "rpcrdma::call", xid = head.xid, %error, "protected arguments refused");
                let refusal = match error {
                    // RFC 2203 §5.3.3.3. The context may have expired since the verifier was checked.
                    UnwrapError::Expired => RpcError::Authentication(AuthStat::RpcsecGssCtxproblem.into()),
                    // RFC 2203 §5.3.3.1, §5.3.3.4.2, §5.3.3.4.3.
                    UnwrapError::Refused(_) => RpcError::GarbageArguments,
                };
                return head.refuse(refusal, security.as_deref(), &connection);
            }
        }
        head.arguments_at = 0;
    }
    let mut accepted = Some((incoming, caller));
    let started = poll_fn(|cx| match accepted.take() {
        Some((incoming, caller)) => Poll::Ready(registry.route(incoming, head, caller, &connection, cx)),
        None => Poll::Pending,
    });
    let (handler, metrics) = match started.await {
        Ok(started) => started,
        Err(answer) => return answer,
    };
    let metrics = metrics.wait();
    let answer = handler.finish().await;
    metrics.finish(&answer);
    let EncodedReply { mut command, outcome } = answer;
    if let (ReplyOutcome::Unprotected(results), Some(protection)) = (outcome, protection) {
        let wrapped = wrap(protection, *results).await;
        match (wrapped, &mut command) {
            (Ok(results), ReplyCommand::Reply(reply)) => reply.message.append(&results),
            (Ok(_), _) => {}
            (Err(error), command) => {
                tracing::error!(target: "rpcrdma::call", xid = head.xid, %error, "results cannot be protected");
                // RFC 2203 §5.3.3.4.1, §5.3.3.4.4: no RPC response is sent.
                *command = ReplyCommand::Discard;
            }
        }
    }
    command
}
