//! The attempts of one call.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    task::Poll,
    time::{Duration, Instant},
};

use super::{Channel, connecting::LinkError};
use crate::{
    chain::ErrorChain,
    client::{
        call::{self, CallOptions, CallTarget},
        error::{CallError, ConnectError},
        link::{ChannelLink, within},
        peers,
        resend::{FirstAttempt, NotResent},
        secured,
    },
    engine::{CallFailure, CloseReason},
    service::ReplyBounds,
    trace::ObservedCall,
    xdr::{DecodeError, Decoder, XdrEncode},
};

impl Channel {
    pub(super) async fn attempts<A: XdrEncode + Sync, R>(
        &self,
        observed: &ObservedCall<'_>,
        callee: CallTarget,
        bounds: &ReplyBounds,
        args: &A,
        options: &mut CallOptions,
        read: &(impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> Result<R, CallError> {
        let deadline = options.deadline.or_else(|| self.default_deadline());
        let mut retries = if options.can_retry() { self.0.reconnect.retries() } else { 0 };
        let is_idempotent = options.is_idempotent(callee);
        let xids = self.0.config.resendable.as_ref().filter(|_| !callee.idempotent);
        options.xid = xids.and_then(|xids| xids.next(callee.program));
        // The window in which the server recognizes a call that must not be executed twice.
        let window = xids.filter(|_| options.xid.is_some() && !is_idempotent).map(|xids| xids.window());
        // The failure of an earlier attempt that the server may have executed. The failure of a later attempt does not change
        // that.
        let mut earlier = None;
        // That attempt, if only a duplicate request cache can keep the call from being executed twice.
        let mut first: Option<Box<FirstAttempt>> = None;
        let mut begun = window.map(|_| tokio::time::Instant::now());
        loop {
            let attempt = self.attempt(observed, callee, bounds, args, options, deadline, first.as_deref(), read);
            let (failure, link) = match attempt.await {
                Ok(Attempt::Replied(reply)) => return Ok(reply),
                Ok(Attempt::Failed(failure, link)) => (failure, link),
                Ok(Attempt::NotConnected(error, retry_at)) => {
                    if retries == 0 || !self.back_off(retry_at, deadline).await {
                        return Err(after(earlier, CallError::Connect { procedure: callee.name, error }));
                    }
                    observed.retried();
                    retries -= 1;
                    if first.is_none() {
                        begun = window.map(|_| tokio::time::Instant::now());
                    }
                    continue;
                }
                Ok(Attempt::NotResent(failure, reason)) => {
                    tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), %reason, "call failed");
                    return Err(CallError::Transport { procedure: callee.name, failure });
                }
                Err(error) => return Err(after(earlier, error)),
            };
            observed.attempt_failed();
            let lost = matches!(failure, CallFailure::Closed { .. }) && !self.is_closed();
            if self.goes_back(&failure) {
                tracing::info!(target: "rpcrdma", error = %ErrorChain(&failure), "falling back to version 1");
                continue;
            }
            let may_resend = is_idempotent || failure.is_unexecuted() || (options.xid.is_some() && link.is_some());
            if retries == 0 || !lost || !may_resend {
                tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), "call failed");
                return Err(after(earlier, CallError::Transport { procedure: callee.name, failure }));
            }
            if !failure.is_unexecuted() {
                if let (None, Some(link), Some(begun), Some(window)) = (&first, &link, begun, window) {
                    first = Some(Box::new(FirstAttempt::new(link, begun, window, failure.clone())));
                }
                earlier = Some(failure.clone());
            } else if first.is_none() {
                begun = window.map(|_| tokio::time::Instant::now());
            }
            tracing::debug!(target: "rpcrdma::call", error = %ErrorChain(&failure), "retrying the call");
            observed.retried();
            retries -= 1;
            // The driver reports the end of a call before the end of the connection. Until then the connection would be tried again.
            if let Some(link) = link {
                Box::pin(within(deadline, link.port.wait_closed())).await;
            }
        }
    }

    /// Makes one attempt of a call. An `Err` is final: the call must not be retried.
    #[allow(clippy::too_many_arguments)]
    async fn attempt<A: XdrEncode + Sync, R>(
        &self,
        observed: &ObservedCall<'_>,
        callee: CallTarget,
        bounds: &ReplyBounds,
        args: &A,
        options: &mut CallOptions,
        deadline: Option<Instant>,
        first: Option<&FirstAttempt>,
        read: &(impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> Result<Attempt<R>, CallError> {
        let config = &self.0.config;
        let link = match self.live() {
            Some(link) => link,
            // Boxed because it is rarely needed, and would enlarge the future of every call.
            None => match Box::pin(within(deadline, self.reconnect())).await {
                Some(Ok(link)) => link,
                Some(Err(LinkError::Closed(failure))) => return Ok(Attempt::Failed(failure, None)),
                Some(Err(LinkError::Failed(error, retry_at))) => return Ok(Attempt::NotConnected(error, retry_at)),
                None => return Ok(Attempt::Failed(CallFailure::DeadlineExceeded { sent: false }, None)),
            },
        };
        if let Some(first) = first
            && let Err(reason) = first.check(&link)
        {
            return Ok(Attempt::NotResent(first.failure.clone(), reason));
        }
        if let Some(security) = options.security.as_ref().or(config.security.as_ref()).map(Arc::clone) {
            let attempt =
                secured::attempt(&*security, &link, config, observed, callee, bounds, args, options, deadline, read);
            // Boxed because it would enlarge the future of every call.
            let result = Box::pin(attempt).await;
            if link.negotiates.load(Ordering::Relaxed) && !matches!(result, Ok(Err(_))) {
                self.note_version(&link);
            }
            return Ok(match result? {
                Ok(reply) => Attempt::Replied(reply),
                Err(failure) => Attempt::Failed(failure, Some(link)),
            });
        }
        let permit = match link.port.try_reserve() {
            Some(permit) => permit,
            None => match within(deadline, link.port.reserve()).await {
                Some(Ok(permit)) => permit,
                Some(Err(failure)) => return Ok(Attempt::Failed(failure, None)),
                None => return Ok(Attempt::Failed(CallFailure::DeadlineExceeded { sent: false }, None)),
            },
        };
        let mut permit = Some(permit);
        // Starts the call with the waker of this task, so that its first poll need not lock the port again.
        let started = poll_fn(|cx| {
            let Some(permit) = permit.take() else { return Poll::Pending };
            let trace = config.trace.as_ref().and_then(|source| source.context(observed.span()));
            match call::encode(&link, config, callee, bounds, args, options, deadline, None, trace) {
                Ok(outgoing) => {
                    observed.sent(&outgoing, link.info.peer_addr);
                    Poll::Ready(Ok(link.start(permit, outgoing, cx)))
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        });
        let reply = match started.await? {
            Ok(waiting) => waiting.await,
            Err(failure) => Err(failure),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return Ok(Attempt::Failed(failure, Some(Arc::clone(&link)))),
        };
        observed.replied(&reply);
        if link.negotiates.load(Ordering::Relaxed) {
            self.note_version(&link);
        }
        call::decode(callee.name, &reply, config.connection.decode_limits, read).map(Attempt::Replied)
    }

    /// Reads the version of the connection after its first reply, when the version is final.
    #[cold]
    fn note_version(&self, link: &ChannelLink) {
        link.negotiates.store(false, Ordering::Relaxed);
        // RPC-over-RDMA v2 §4.2.3.2: the next connection need not negotiate.
        if link.port.limits().version == Some(1) {
            self.remember_version_1(link);
        }
    }

    fn remember_version_1(&self, link: &ChannelLink) {
        if self.0.dial.as_ref().is_some_and(|dial| dial.has_common_addresses()) {
            peers::remember_version_1(link.info.peer_addr);
        }
    }

    /// Returns `true` if the connection was lost during version negotiation, so that a new connection has to be made with version
    /// 1 and the call, which was not sent, made again. All later connections of the channel use version 1.
    // RPC-over-RDMA v2 §4.2.3.2: a server without version 2 may close the connection during negotiation.
    fn goes_back(&self, failure: &CallFailure) -> bool {
        let CallFailure::Closed { reason: CloseReason::NegotiationFailed { versions, .. }, sent } = failure else {
            return false;
        };
        let allowed = &self.0.config.connection.engine.versions;
        let may = allowed.contains(&1) && allowed.contains(&2) && versions.is_none_or(|(low, _)| low <= 1);
        if !may || self.0.dial.is_none() || self.is_closed() {
            return false;
        }
        if !self.0.pinned.swap(true, Ordering::Relaxed) {
            self.remember_version_1(&self.current());
        }
        !sent
    }

    /// Waits until the next attempt to connect may be made. Returns `false` if that is too late for the call, or if the channel
    /// is closed.
    async fn back_off(&self, until: tokio::time::Instant, deadline: Option<Instant>) -> bool {
        let mut closing = std::pin::pin!(self.0.closing.notified());
        closing.as_mut().enable();
        let latest = deadline.map_or_else(|| tokio::time::Instant::now() + LONGEST_WAIT, tokio::time::Instant::from);
        if self.is_closed() || until >= latest {
            return false;
        }
        tokio::select! {
            () = closing => false,
            () = tokio::time::sleep_until(until) => true,
        }
    }
}

/// The longest time that a call without a deadline waits for the end of a pause between attempts to connect.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The outcome of one attempt of a call.
enum Attempt<R> {
    Replied(R),
    /// The call failed on this connection, if it got to one.
    Failed(CallFailure, Option<Arc<ChannelLink>>),
    /// No connection could be made, and the next attempt is not made before this time.
    NotConnected(ConnectError, tokio::time::Instant),
    /// The call was not sent again, because the server might not recognize it. The failure is that of the first attempt.
    NotResent(CallFailure, NotResent),
}

/// Returns the error to report for a call that ended with `error`. `earlier` is the failure of an earlier attempt that was sent.
pub(in crate::client) fn after(earlier: Option<CallFailure>, error: CallError) -> CallError {
    let Some(earlier) = earlier else { return error };
    match error {
        CallError::Connect { procedure, .. } | CallError::Security { procedure, sent: false, .. } => {
            CallError::Transport { procedure, failure: earlier }
        }
        // The last attempt was not executed, but the earlier one may have been.
        CallError::Rpc { procedure, source } if source.retry_is_safe() => {
            CallError::Transport { procedure, failure: earlier }
        }
        CallError::Transport { procedure, failure } => {
            let failure = match failure {
                CallFailure::DeadlineExceeded { .. } => CallFailure::DeadlineExceeded { sent: true },
                failure if failure.is_unexecuted() => earlier,
                failure => failure,
            };
            CallError::Transport { procedure, failure }
        }
        error => error,
    }
}
