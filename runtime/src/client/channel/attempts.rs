//! The attempts of one call.

use std::{
    future::{Future, poll_fn},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tracing::Instrument as _;

use super::{
    Channel,
    connecting::LinkError,
    exchange::{Exchange, ExchangeError},
};
use crate::{
    ErrorChain,
    client::{
        call::{CallOptions, CallTarget, OutboundCall},
        error::{CallError, ConnectError},
        link::{ChannelLink, within},
        peers,
        resend::{FirstAttempt, NotResent},
        secured,
    },
    engine::{CallFailure, CloseReason, Versions},
    service::ReplyBounds,
    trace::{self, ObservedCall},
    xdr::{DecodeError, Decoder, XdrEncode},
};

impl Channel {
    /// Makes a call in its own span.
    pub(in crate::client) fn traced<'a, A: XdrEncode + Sync, R>(
        &'a self,
        target: &'a CallTarget,
        bounds: &'a ReplyBounds,
        args: &'a A,
        options: &'a mut CallOptions,
        read: &'a (impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync),
    ) -> impl Future<Output = Result<R, CallError>> {
        // Not an `async fn`, which would keep each parameter twice.
        let config = &*self.0.config;
        async move {
            let CallTarget { program, version, number, name, .. } = *target;
            let span = trace::called(program, version, number, name);
            let observed = ObservedCall::begin(&span, &config.metrics, name);
            let guard = observed.guard();
            let deadline = options.deadline.or_else(|| self.default_deadline());
            let xids = config.resendable.as_ref().filter(|_| !target.idempotent);
            let xid = xids.and_then(|xids| xids.next(program));
            let mut call = OutboundCall { observed: &observed, target, bounds, args, options, deadline, xid, read };
            let begun = self.resend_window(&call).map(|_| tokio::time::Instant::now());
            // The usual call waits for nothing but its reply.
            let first = 'usual: {
                let Some(link) = self.usual_link(call.options) else { break 'usual Err(None) };
                let Some(permit) = link.port.try_reserve() else { break 'usual Err(None) };
                let mut exchange = Exchange::new(self, &link, permit, &mut call);
                let made = poll_fn(|cx| observed.span().in_scope(|| exchange.poll(cx))).await;
                made.map_err(|error| Some((error, Arc::clone(&link))))
            };
            let first = match first {
                Ok(reply) => {
                    observed.succeed(&config.metrics);
                    guard.disarm();
                    return Ok(reply);
                }
                Err(first) => first,
            };
            let attempts = self.attempts(&mut call, begun, first).instrument(observed.span().clone());
            // Boxed because it is rarely needed, and would enlarge the future of every call.
            let result = Box::pin(attempts).await;
            match &result {
                Ok(_) => observed.succeed(&config.metrics),
                Err(error) => observed.fail(error.kind(), matches!(error, CallError::Rpc { .. })),
            }
            guard.disarm();
            result
        }
    }

    /// Returns the connection of a call that has no security, if the connection is open.
    fn usual_link(&self, options: &CallOptions) -> Option<Arc<ChannelLink>> {
        if options.security.is_some() || self.0.config.security.is_some() {
            return None;
        }
        self.live()
    }

    /// Returns the time in which the server recognizes a call that must not be executed twice. `None` if the server does not recognize
    /// the call, or may execute it twice.
    fn resend_window<A, F>(&self, call: &OutboundCall<'_, A, F>) -> Option<Duration> {
        let xids = self.0.config.resendable.as_ref().filter(|_| call.xid.is_some() && !call.is_idempotent())?;
        Some(xids.window())
    }

    /// Makes the attempts of a call that has not been made yet, or those that follow an attempt which began at `begun` and failed.
    async fn attempts<A: XdrEncode + Sync, R>(
        &self,
        call: &mut OutboundCall<'_, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
        mut begun: Option<tokio::time::Instant>,
        mut failed: Option<(ExchangeError, Arc<ChannelLink>)>,
    ) -> Result<R, CallError> {
        let OutboundCall { observed, target: callee, deadline, xid, .. } = *call;
        let mut retries = if call.options.can_retry() { self.0.reconnect.retries() } else { 0 };
        let is_idempotent = call.is_idempotent();
        let window = self.resend_window(call);
        // The failure of an earlier attempt that the server may have executed. The failure of a later attempt does not change
        // that.
        let mut earlier = None;
        // That attempt, if only a duplicate request cache can keep the call from being executed twice.
        let mut first: Option<Box<FirstAttempt>> = None;
        loop {
            let attempt = match failed.take() {
                Some((error, link)) => Attempt::failed(error, link),
                None => self.attempt(call, first.as_deref()).await,
            };
            let (failure, link) = match attempt {
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
            let may_resend = is_idempotent || failure.is_unexecuted() || (xid.is_some() && link.is_some());
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
    async fn attempt<A: XdrEncode + Sync, R>(
        &self,
        call: &mut OutboundCall<'_, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
        first: Option<&FirstAttempt>,
    ) -> Result<Attempt<R>, CallError> {
        let config = &self.0.config;
        let deadline = call.deadline;
        let link = match self.live() {
            Some(link) => link,
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
        if let Some(security) = call.options.security.as_ref().or(config.security.as_ref()).map(Arc::clone) {
            let result = Box::pin(secured::attempt(&*security, &link, config, call)).await;
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
        let mut exchange = Exchange::new(self, &link, permit, call);
        match poll_fn(|cx| exchange.poll(cx)).await {
            Ok(reply) => Ok(Attempt::Replied(reply)),
            Err(error) => Attempt::failed(error, Arc::clone(&link)),
        }
    }

    /// Reads the version of the connection after its first reply, when the version is final.
    #[cold]
    pub(super) fn note_version(&self, link: &ChannelLink) {
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
        let may =
            self.0.config.connection.engine.versions == Versions::Both && versions.is_none_or(|(low, _)| low <= 1);
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

impl<R> Attempt<R> {
    /// Returns the outcome of an exchange on `link` that has no result.
    fn failed(error: ExchangeError, link: Arc<ChannelLink>) -> Result<Self, CallError> {
        match error {
            ExchangeError::Failed(failure) => Ok(Self::Failed(failure, Some(link))),
            ExchangeError::Final(error) => Err(error),
        }
    }
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
