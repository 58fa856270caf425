//! The attempts of one call over a channel, until an attempt has a result or no further attempt is allowed.

use std::{
    fmt,
    future::{Future, poll_fn},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tracing::Instrument as _;

use super::{Channel, connecting::LinkError, exchange::Exchange};
use crate::{
    ErrorChain,
    client::{
        call::{CallOptions, CallParameters, CallTarget, OutboundCall},
        error::{self, CallError, ConnectError, Retries},
        link::{ChannelLink, time_left, within},
        retry::{
            self, ExchangeError, FailureKind, FirstAttempt, MAX_RESENDS, NotRecognized, Repetition, RetryDecision,
            RetryFacts,
        },
        secured, version_1_servers,
    },
    engine::{CallFailure, CloseReason, Versions},
    trace::{self, ObservedCall},
    xdr::{DecodeError, Decoder, XdrEncode},
};

impl Channel {
    /// Makes a call, with all its attempts, in a span of its own.
    pub(in crate::client) fn traced<'a, A: XdrEncode + Sync, R>(
        &'a self,
        parameters: CallParameters<'a, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
    ) -> impl Future<Output = Result<R, CallError>> {
        // Not an `async fn`, which would keep each parameter twice.
        let config = &*self.0.config;
        async move {
            let CallTarget { program, version, number, name, idempotent } = *parameters.target;
            let span = trace::called(program, version, number, name);
            let observed = ObservedCall::begin(&span, &config.metrics, name);
            let guard = observed.guard();
            let deadline = parameters.options.deadline.or_else(|| self.default_deadline());
            let xid = config.resendable.as_ref().filter(|_| !idempotent).and_then(|xids| xids.next(program));
            let mut call = OutboundCall { parameters, observed: &observed, deadline, xid };
            let start = self.resend_window(&call).map(|_| tokio::time::Instant::now());
            // The usual call waits for nothing but its reply.
            let first = 'usual: {
                let Some(link) = self.usual_link(call.parameters.options) else { break 'usual Err(None) };
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
            let attempts = self.attempts(&mut call, start, first).instrument(observed.span().clone());
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

    /// Returns the current connection if it is open and the call has no security.
    fn usual_link(&self, options: &CallOptions) -> Option<Arc<ChannelLink>> {
        if options.security.is_some() || self.0.config.security.is_some() {
            return None;
        }
        self.live()
    }

    /// Returns the time after the first attempt in which the server recognizes the call when it is sent again. `None`
    /// if the server does not recognize the call, or may execute it twice.
    fn resend_window<A, F>(&self, call: &OutboundCall<'_, A, F>) -> Option<Duration> {
        let xids = self.0.config.resendable.as_ref().filter(|_| call.xid.is_some() && !call.is_idempotent())?;
        Some(xids.window())
    }

    /// Makes attempts of a call until an attempt succeeds or no further attempt is allowed. `usual` is the failure of a
    /// first attempt that began at `start`, or `None` if no attempt has been made yet.
    async fn attempts<A: XdrEncode + Sync, R>(
        &self,
        call: &mut OutboundCall<'_, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
        mut start: Option<tokio::time::Instant>,
        usual: Option<(ExchangeError, Arc<ChannelLink>)>,
    ) -> Result<R, CallError> {
        let OutboundCall { observed, deadline, .. } = *call;
        let CallParameters { target: callee, scope, .. } = call.parameters;
        let policy = self.0.reconnect;
        let can_retry = call.parameters.options.can_retry();
        let retries = if can_retry { policy.retries(deadline.is_some()) } else { 0 };
        let (mut retried, mut since) = (0, None);
        let mut resends = MAX_RESENDS;
        let repetition = Repetition::new(call.is_idempotent(), call.xid.is_some());
        let window = self.resend_window(call);
        // The failure of an earlier attempt that the server may have executed.
        let mut earlier = None;
        // That attempt, if only a duplicate request cache can keep the call from being executed twice.
        let mut first: Option<Box<FirstAttempt>> = None;
        let mut attempt = match usual {
            Some((error, link)) => Err(FailedAttempt { error: AttemptError::Exchange(error), link: Some(link) }),
            None => self.attempt(call, None).await,
        };
        loop {
            let FailedAttempt { error, link } = match attempt {
                Ok(reply) => return Ok(reply),
                Err(failed) => failed,
            };
            let since = *since.get_or_insert_with(tokio::time::Instant::now);
            let failure = error.kind(call.xid.is_none(), self.falls_back(&error));
            let may_be_executed = earlier.is_some() || error.may_be_executed();
            // Time does not help.
            let most = if error.is_permanent() { 0 } else { retries };
            let decision = retry::decide(&RetryFacts {
                failure,
                may_be_executed,
                repetition,
                scope,
                retries: most.saturating_sub(retried),
                pace: policy.pace(retried),
                resends,
                time_left: time_left(deadline),
                is_closed: self.is_closed(),
            });
            match decision {
                RetryDecision::SameConnection => resends -= 1,
                RetryDecision::Version1 => {
                    tracing::info!(target: "rpcrdma", %error, "falling back to version 1");
                }
                RetryDecision::NewConnection { pause } if pause.is_zero() || self.back_off(pause).await => {
                    observed.retried();
                    (retried, resends) = (retried + 1, MAX_RESENDS);
                }
                RetryDecision::NewConnection { .. } | RetryDecision::OtherConnection { .. } | RetryDecision::Fail => {
                    tracing::debug!(target: "rpcrdma::call", %error, "call failed");
                    let link = link.as_deref();
                    let error = retry::final_error(earlier, error.into_call_error(callee.name, link));
                    return Err(error.retried(Retries::new(retried, since)));
                }
            }
            tracing::debug!(target: "rpcrdma::call", %error, ?decision, "attempt failed");
            observed.attempt_failed();
            if let AttemptError::Exchange(ExchangeError::Failed(failure)) = error
                && !failure.is_unexecuted()
            {
                if let (None, Some(link), Some(start), Some(window)) = (&first, &link, start, window) {
                    first = Some(Box::new(FirstAttempt::new(link.path(), start, window, failure.clone())));
                }
                earlier = Some(failure);
            }
            if first.is_none() {
                start = window.map(|_| tokio::time::Instant::now());
            }
            drop(link);
            attempt = self.attempt(call, first.as_deref()).await;
        }
    }

    /// Makes one attempt of a call. `first` is an earlier attempt that the server has to recognize.
    async fn attempt<A: XdrEncode + Sync, R>(
        &self,
        call: &mut OutboundCall<'_, A, impl Fn(&mut Decoder<'_>) -> Result<R, DecodeError> + Sync>,
        first: Option<&FirstAttempt>,
    ) -> Result<R, FailedAttempt> {
        let config = &self.0.config;
        let deadline = call.deadline;
        let without_link = |error| FailedAttempt { error, link: None };
        let late = || without_link(CallFailure::DeadlineExceeded { sent: false }.into());
        let link = match self.live() {
            Some(link) => link,
            None => match Box::pin(within(deadline, self.reconnect())).await {
                Some(Ok(link)) => link,
                Some(Err(LinkError::Closed(failure))) => return Err(without_link(failure.into())),
                Some(Err(LinkError::Failed(error, retry_at))) => {
                    return Err(without_link(AttemptError::NotConnected(error, retry_at)));
                }
                None => {
                    let error = ConnectError::Late { last: self.last_connect_error() };
                    return Err(without_link(AttemptError::NotConnected(error, tokio::time::Instant::now())));
                }
            },
        };
        if let Some(first) = first
            && let Err(reason) = first.check(link.path(), tokio::time::Instant::now())
        {
            return Err(without_link(AttemptError::NotRecognized(first.failure.clone(), reason)));
        }
        let security = call.parameters.options.security.as_ref().or(config.security.as_ref()).map(Arc::clone);
        let made = if let Some(security) = security {
            let made = Box::pin(secured::attempt(&*security, &link, config, call)).await;
            if link.negotiates.load(Ordering::Relaxed)
                && !matches!(made, Err(ExchangeError::Failed(_) | ExchangeError::SecurityExpired(_)))
            {
                self.note_version(&link);
            }
            made
        } else {
            let permit = match link.port.try_reserve() {
                Some(permit) => permit,
                None => match within(deadline, link.port.reserve()).await {
                    Some(Ok(permit)) => permit,
                    Some(Err(failure)) => return Err(without_link(failure.into())),
                    None => return Err(late()),
                },
            };
            let mut exchange = Exchange::new(self, &link, permit, call);
            poll_fn(|cx| exchange.poll(cx)).await
        };
        made.map_err(|error| FailedAttempt { error: AttemptError::Exchange(error), link: Some(link) })
    }

    /// Reads the outcome of version negotiation, which is final after the first reply. Remembers a server that supports
    /// only version 1.
    #[cold]
    pub(super) fn note_version(&self, link: &ChannelLink) {
        link.negotiates.store(false, Ordering::Relaxed);
        // RPC-over-RDMA v2 §4.2.3.2: the next connection need not negotiate.
        if link.port.limits().version == Some(1) {
            self.remember_version_1(link);
        }
    }

    fn remember_version_1(&self, link: &ChannelLink) {
        if let Some(scheme) = link.scheme {
            version_1_servers::remember_version_1(scheme, link.info.peer_addr);
        }
    }

    /// Returns `true` if version negotiation failed, and the channel may use version 1. Later connections then offer
    /// only version 1, unless their URL allows only version 2.
    // RPC-over-RDMA v2 §4.2.3.2: a server without version 2 may close the connection during negotiation.
    fn falls_back(&self, error: &AttemptError) -> bool {
        let AttemptError::Exchange(ExchangeError::Failed(CallFailure::Closed {
            reason: CloseReason::NegotiationFailed { versions, .. },
            ..
        })) = error
        else {
            return false;
        };
        let may =
            self.0.config.connection.engine.versions == Versions::Both && versions.is_none_or(|(low, _)| low <= 1);
        if !may || self.0.dial.is_none() || self.is_closed() {
            return false;
        }
        if !self.0.version_1_only.swap(true, Ordering::Relaxed) {
            self.remember_version_1(&self.current());
        }
        true
    }

    /// Waits for `pause` before the next attempt. Returns `false` as soon as the channel is closed.
    async fn back_off(&self, pause: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.0.closing.find(|| self.is_closed().then_some(())) => false,
            () = tokio::time::sleep(pause) => true,
        }
    }
}

/// The error of a failed attempt of a call, with its connection.
struct FailedAttempt {
    error: AttemptError,
    /// The connection on which the call was exchanged. `None` if the attempt failed before that.
    link: Option<Arc<ChannelLink>>,
}

/// The reason why an attempt of a call has no result.
enum AttemptError {
    /// The exchange with the server failed, or did not begin.
    Exchange(ExchangeError),
    /// No connection could be made, and the next attempt is not made before this time.
    NotConnected(ConnectError, tokio::time::Instant),
    /// The call was not sent again, because the server might not recognize it. The [`CallFailure`] is the failure of
    /// the first attempt.
    NotRecognized(CallFailure, NotRecognized),
}

/// Displays the causes as well, for logs.
impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange(error) => error.fmt(f),
            Self::NotConnected(error, _) => ErrorChain(error).fmt(f),
            Self::NotRecognized(failure, reason) => write!(f, "{}, and {reason}", ErrorChain(failure)),
        }
    }
}

impl From<CallFailure> for AttemptError {
    fn from(failure: CallFailure) -> Self {
        Self::Exchange(ExchangeError::Failed(failure))
    }
}

impl AttemptError {
    /// Returns the kind of failure. `has_any_xid` is `true` if the call may have any XID, and `falls_back` if the
    /// channel may use version 1 after a failed negotiation.
    // RFC 8267 §3.1, §6.4.2: a transport error ends the call. Only its caller can provide more for the reply.
    fn kind(&self, has_any_xid: bool, falls_back: bool) -> FailureKind {
        match self {
            Self::NotConnected(_, retry_at) => {
                FailureKind::Disconnected { pause: retry_at.saturating_duration_since(tokio::time::Instant::now()) }
            }
            Self::Exchange(ExchangeError::Failed(CallFailure::Closed { .. })) if falls_back => {
                FailureKind::NegotiationFailed
            }
            Self::Exchange(ExchangeError::Failed(CallFailure::Closed { .. })) => {
                FailureKind::Disconnected { pause: Duration::ZERO }
            }
            Self::Exchange(ExchangeError::Failed(CallFailure::XidInUse { .. })) if has_any_xid => FailureKind::XidInUse,
            Self::Exchange(ExchangeError::Denied(_)) => FailureKind::Denied,
            Self::Exchange(ExchangeError::SecurityExpired(_)) => FailureKind::SecurityExpired,
            Self::Exchange(ExchangeError::Failed(_) | ExchangeError::Final(_)) | Self::NotRecognized(..) => {
                FailureKind::Final
            }
        }
    }

    /// Returns `true` if the server may have executed this attempt.
    fn may_be_executed(&self) -> bool {
        match self {
            Self::Exchange(ExchangeError::Failed(failure)) => !failure.is_unexecuted(),
            Self::Exchange(ExchangeError::Final(error)) => !error.is_retry_safe(),
            Self::Exchange(ExchangeError::Denied(_) | ExchangeError::SecurityExpired(_)) => false,
            Self::NotConnected(..) | Self::NotRecognized(..) => false,
        }
    }

    /// Returns `true` if no later attempt can succeed until the configuration of the client or the server is changed.
    fn is_permanent(&self) -> bool {
        match self {
            Self::Exchange(ExchangeError::Failed(CallFailure::Closed { reason, .. })) => error::is_permanent(reason),
            Self::NotConnected(error, _) => error.is_permanent(),
            _ => false,
        }
    }

    /// Returns the error of the call. `link` is the connection on which the call was exchanged, if any.
    fn into_call_error(self, procedure: &'static str, link: Option<&ChannelLink>) -> CallError {
        if let (Self::Exchange(ExchangeError::Failed(failure)), Some(link)) = (&self, link)
            && let Some(error) = link.unserved(failure)
        {
            return CallError::Connect { procedure, error, retries: Retries::default() };
        }
        match self {
            Self::Exchange(ExchangeError::Failed(failure)) | Self::NotRecognized(failure, _) => {
                CallError::Transport { procedure, failure, retries: Retries::default() }
            }
            Self::Exchange(
                ExchangeError::Denied(error) | ExchangeError::SecurityExpired(error) | ExchangeError::Final(error),
            ) => error,
            Self::NotConnected(error, _) => CallError::Connect { procedure, error, retries: Retries::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        client::{
            dial::Dial,
            reconnect::Reconnect,
            tests::fakes::{Outcome, Script, config, link_to},
        },
        engine::NegotiationFailure,
        rpc::RpcError,
        transport::Scheme,
    };

    const PAUSE: Duration = Duration::from_millis(70);

    fn closed(sent: bool) -> CallFailure {
        CallFailure::Closed { reason: CloseReason::Idle(Duration::ZERO), sent }
    }

    fn rpc(source: RpcError) -> CallError {
        CallError::Rpc { procedure: "P", source }
    }

    /// Each error of an attempt has the expected kind, and shows whether the server may have executed the call and
    /// whether every retry would fail.
    #[tokio::test(start_paused = true)]
    async fn failures_of_attempts() {
        let disconnected = FailureKind::Disconnected { pause: Duration::ZERO };
        let in_a_pause = FailureKind::Disconnected { pause: PAUSE };
        let negotiation = |versions| {
            let reason = CloseReason::NegotiationFailed { why: NegotiationFailure::NoCommonVersion, versions };
            CallFailure::Closed { reason, sent: false }
        };
        let not_connected = |error| AttemptError::NotConnected(error, tokio::time::Instant::now() + PAUSE);
        let in_use = CallFailure::XidInUse { xid: 1 };
        let late = |sent| AttemptError::from(CallFailure::DeadlineExceeded { sent });
        for (error, kind, may_be_executed, is_permanent) in [
            (closed(true).into(), disconnected, true, false),
            (closed(false).into(), disconnected, false, false),
            (negotiation(None).into(), disconnected, false, false),
            (negotiation(Some((3, 4))).into(), disconnected, false, true),
            (late(true), FailureKind::Final, true, false),
            (late(false), FailureKind::Final, false, false),
            (in_use.clone().into(), FailureKind::XidInUse, false, false),
            (AttemptError::Exchange(ExchangeError::Final(rpc(RpcError::SystemError))), FailureKind::Final, true, false),
            (
                AttemptError::Exchange(ExchangeError::Final(rpc(RpcError::Unavailable))),
                FailureKind::Final,
                false,
                false,
            ),
            (
                AttemptError::Exchange(ExchangeError::Denied(rpc(RpcError::SystemError))),
                FailureKind::Denied,
                false,
                false,
            ),
            (
                AttemptError::Exchange(ExchangeError::SecurityExpired(rpc(RpcError::SystemError))),
                FailureKind::SecurityExpired,
                false,
                false,
            ),
            (not_connected(ConnectError::EmptyPool), in_a_pause, false, true),
            (not_connected(ConnectError::Overtaken { after: PAUSE }), in_a_pause, false, false),
            (AttemptError::NotRecognized(closed(true), NotRecognized::TooLate), FailureKind::Final, false, false),
        ] {
            assert_eq!(error.kind(true, false), kind, "{error}");
            assert_eq!((error.may_be_executed(), error.is_permanent()), (may_be_executed, is_permanent), "{error}");
        }
        // A call whose XID is fixed cannot have another one.
        assert_eq!(AttemptError::from(in_use).kind(false, false), FailureKind::Final);
        assert_eq!(AttemptError::from(negotiation(None)).kind(true, true), FailureKind::NegotiationFailed);
        assert_eq!(late(true).kind(true, true), FailureKind::Final);
    }

    /// A channel falls back to version 1 if the server may support it, and if the channel can connect again. Then it
    /// remembers the server.
    #[tokio::test(start_paused = true)]
    async fn falls_back_to_version_1() {
        let failed = |versions| {
            let reason = CloseReason::NegotiationFailed { why: NegotiationFailure::NoCommonVersion, versions };
            AttemptError::from(CallFailure::Closed { reason, sent: false })
        };
        let channel = |peer, can_dial: bool| {
            let dial = || Box::new(Script::new([Outcome::Hangs])) as Box<dyn Dial>;
            Channel::over(can_dial.then(dial), link_to(peer), config(), Reconnect::on_demand())
        };
        for (port, (versions, expected)) in (1..).zip([
            (None, true),
            (Some((0, 0)), true),
            (Some((1, 1)), true),
            (Some((1, 4)), true),
            (Some((2, 2)), false),
            (Some((3, 4)), false),
        ]) {
            let peer = ([192, 0, 2, 5], port).into();
            let is_known = || version_1_servers::has_version_1_only(Scheme::IWARP, peer);
            let without_dial = channel(peer, false);
            let closed = channel(peer, true);
            closed.0.current.lock().unwrap().closed = true;
            for channel in [without_dial, closed] {
                assert_eq!((channel.falls_back(&failed(versions)), is_known()), (false, false), "{versions:?}");
            }
            let channel = channel(peer, true);
            for _ in 0..2 {
                assert_eq!((channel.falls_back(&failed(versions)), is_known()), (expected, expected), "{versions:?}");
            }
            assert!(!channel.falls_back(&super::tests::closed(false).into()));
        }
    }
}
