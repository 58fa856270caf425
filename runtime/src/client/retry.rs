//! The retry policy for calls whose attempt failed.
//!
//! [`decide`] is the only function that decides about the next attempt of a call: on which connection it is made, and
//! after which pause. The channel, the pool and the retry policy of middleware call the function after each failed
//! attempt. Each of them carries out the decisions that [`RetryDecision`] assigns to it. For all other decisions, it
//! returns the error to its caller. The function does no I/O and reads no clock.
//!
//! | failure of the attempt | next attempt | condition |
//! | --- | --- | --- |
//! | version negotiation failed | new connection, version 1 only | not executed (RPC-over-RDMA v2 §4.2.3.2) |
//! | credential denied, and another one exists | same connection | resends left (RFC 2203 §5.3.3.3) |
//! | security context expired before the call was sent | same connection | resends left (RFC 2203 §5.3.3.3) |
//! | XID in use by another call | same connection | resends left, and any XID allowed (RFC 5531 §9) |
//! | connection lost, or none could be made | see below | retries left, and time left after the pause |
//! | attempt ended by middleware | see below, balancer only | retries left, and time left |
//! | anything else, for example a reply | none | |
//!
//! In the first four rows, the server has not executed the call: a server denies a call before it executes the
//! procedure (RFC 5531 §9). If version negotiation failed and the server may have executed the call, the row for a lost
//! connection applies. After a lost connection, RPC leaves it to the caller to prevent a second execution (RFC 5531
//! §5):
//!
//! | may an attempt have been executed? | [`Repetition`] | channel | pool | balancer |
//! | --- | --- | --- | --- | --- |
//! | no | any | same server | other connection | other server |
//! | yes | harmless | same server | other connection | other server |
//! | yes | recognized | same server | same connection's channel | none |
//! | yes | harmful | none | none | none |
//!
//! The engine decides which failures mean that the server has not executed a call ([`CallFailure::is_unexecuted`]). It
//! resends a call of RPC-over-RDMA version 2 on its connection if the peer's limits are the only obstacle
//! (RPC-over-RDMA v2 §7.3).
//!
//! If only a duplicate request cache prevents a second execution, the call is sent on a new connection only if the
//! server still recognizes it there ([`FirstAttempt::check`]).

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use tokio::time::Instant;

use super::error::{CallError, ConnectError, Retries};
use crate::{ErrorChain, engine::CallFailure};

/// Maximum number of attempts of a call on one connection after the first. A server that denies a call more often does
/// not keep the security contexts that it creates.
pub(super) const MAX_RESENDS: u32 = 3;

/// The maximum time for which a call without a deadline waits for a connection of a pool. It waits for the end of a
/// pause only if the pause is shorter.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(1);

/// The kind of failure that ended an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The connection was lost, or no connection could be made. The next connection to the server may be made after
    /// `pause`.
    Disconnected { pause: Duration },
    /// The connection was lost during version negotiation, and the channel may use version 1.
    NegotiationFailed,
    /// The server denied the call, and the security can secure it in another way.
    Denied,
    /// The security context expired before the call was sent.
    SecurityExpired,
    /// Another call on the connection has the XID. The call may have any other XID.
    XidInUse,
    /// Middleware ended the attempt.
    #[cfg_attr(not(feature = "tower"), allow(dead_code))]
    Middleware,
    /// Any other failure, or the error status of a reply.
    Final,
}

impl FailureKind {
    /// Returns the kind of an error that a channel or a pool has returned.
    pub(super) fn of(error: &CallError) -> Self {
        match error {
            CallError::Connect { error: ConnectError::BackOff { retry_in, .. }, .. } => {
                Self::Disconnected { pause: *retry_in }
            }
            error if error.is_connection_loss() => Self::Disconnected { pause: Duration::ZERO },
            _ => Self::Final,
        }
    }
}

/// The reason why a call has no result on its connection.
pub(super) enum ExchangeError {
    /// The call got no valid RPC reply.
    Failed(CallFailure),
    /// The server denied the call, and the security can secure it in another way. The error is reported if the call is
    /// not retried.
    Denied(CallError),
    /// The security context expired before the call was sent. The error is reported if the call is not retried.
    SecurityExpired(CallError),
    /// The call cannot be encoded or secured, or its reply is not a result.
    Final(CallError),
}

/// Displays the causes as well, for logs.
impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => ErrorChain(failure).fmt(f),
            Self::Denied(error) | Self::SecurityExpired(error) | Self::Final(error) => ErrorChain(error).fmt(f),
        }
    }
}

impl From<CallFailure> for ExchangeError {
    fn from(failure: CallFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<CallError> for ExchangeError {
    fn from(error: CallError) -> Self {
        Self::Final(error)
    }
}

/// The effect of executing a call twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    /// There is no harm: the procedure is idempotent, or the caller allows it.
    Harmless,
    /// The server's duplicate request cache recognizes the call, and does not execute it again.
    Recognized,
    /// The effect is unknown, and possibly harmful.
    Harmful,
}

impl Repetition {
    pub(super) fn new(is_idempotent: bool, is_recognized: bool) -> Self {
        match (is_idempotent, is_recognized) {
            (true, _) => Self::Harmless,
            (false, true) => Self::Recognized,
            (false, false) => Self::Harmful,
        }
    }
}

/// The connections on which a call may be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryScope {
    /// The connections of one channel, which follow each other.
    Channel,
    /// The connections of a pool, which lead to the same server.
    Pool,
    /// The connections of a balancer, which lead to different servers.
    Balancer,
}

/// The facts about a call whose attempt has failed.
#[derive(Debug, Clone, Copy)]
pub(super) struct RetryFacts {
    pub(super) failure: FailureKind,
    /// `true` if the server may have executed this attempt or an earlier attempt.
    pub(super) may_be_executed: bool,
    pub(super) repetition: Repetition,
    pub(super) scope: RetryScope,
    /// Number of further attempts that may be made on other connections.
    pub(super) retries: u32,
    /// The minimum pause before the next attempt on another connection.
    pub(super) pace: Duration,
    /// Number of further attempts that may be made on the same connection.
    pub(super) resends: u32,
    /// Time until the call's deadline. `None` stands for no deadline.
    pub(super) time_left: Option<Duration>,
    /// `true` if the channel or the pool makes no more connections.
    pub(super) is_closed: bool,
}

/// The consequence of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryDecision {
    /// The call fails.
    Fail,
    /// The channel makes the next attempt on the same connection.
    SameConnection,
    /// The channel makes the next attempt on a new connection that offers only version 1. This is part of connecting,
    /// and does not count as a retry.
    Version1,
    /// The channel makes the next attempt on a new connection, after the pause.
    NewConnection { pause: Duration },
    /// The pool or the balancer makes the next attempt on another of its connections, after the pause.
    OtherConnection { pause: Duration },
}

/// Decides if and where the next attempt of a call is made, by the tables in the module documentation.
pub(super) fn decide(facts: &RetryFacts) -> RetryDecision {
    let RetryFacts { failure, may_be_executed, repetition, scope, retries, pace, resends, time_left, is_closed } =
        *facts;
    let pause = match failure {
        FailureKind::Denied | FailureKind::SecurityExpired | FailureKind::XidInUse if resends > 0 => {
            return RetryDecision::SameConnection;
        }
        FailureKind::NegotiationFailed if !may_be_executed && !is_closed => return RetryDecision::Version1,
        FailureKind::Disconnected { pause } => pause,
        FailureKind::NegotiationFailed => Duration::ZERO,
        FailureKind::Middleware if scope == RetryScope::Balancer => Duration::ZERO,
        _ => return RetryDecision::Fail,
    };
    let decision = match (may_be_executed, repetition, scope) {
        (true, Repetition::Harmful, _) | (true, Repetition::Recognized, RetryScope::Balancer) => RetryDecision::Fail,
        (true, Repetition::Recognized, _) | (_, _, RetryScope::Channel) => {
            RetryDecision::NewConnection { pause: pause.max(pace) }
        }
        // The pause before the lost connection can be made again does not delay an attempt on another one.
        _ => RetryDecision::OtherConnection { pause: pace },
    };
    let is_in_time = match decision {
        RetryDecision::NewConnection { pause } => pause < time_left.unwrap_or(MAX_WAIT),
        RetryDecision::OtherConnection { pause } => time_left.is_none_or(|left| pause < left),
        _ => true,
    };
    if retries > 0 && !is_closed && is_in_time { decision } else { RetryDecision::Fail }
}

/// Returns the error to report for a call that ended with `error`. `earlier` is the failure of an earlier attempt that
/// the server may have executed. The call then counts as possibly executed, whatever the last attempt did.
pub(super) fn final_error(earlier: Option<CallFailure>, error: CallError) -> CallError {
    let Some(earlier) = earlier else { return error };
    let procedure = error.procedure();
    match error {
        CallError::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. }
        | CallError::Connect { error: ConnectError::Late { .. }, .. } => CallError::Transport {
            procedure,
            failure: CallFailure::DeadlineExceeded { sent: true },
            retries: Retries::default(),
        },
        error if error.is_retry_safe() => {
            CallError::Transport { procedure, failure: earlier, retries: Retries::default() }
        }
        error => error,
    }
}

/// The first attempt that the server may have executed. The server recognizes the call if it is sent again to the same
/// server, from the same address, before the server forgets the reply.
#[derive(Debug)]
pub(super) struct FirstAttempt {
    path: NetworkPath,
    /// The end of the time in which the server remembers the reply. `None` stands for no end.
    until: Option<Instant>,
    /// The failure of the attempt.
    pub(super) failure: CallFailure,
}

/// The addresses of a connection by which a duplicate request cache recognizes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NetworkPath {
    /// The client's IP address, by which the server identifies the client. The client's port does not matter.
    pub(super) local: IpAddr,
    pub(super) peer: SocketAddr,
}

/// The reason why the server might not recognize a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotRecognized {
    OtherServer,
    OtherClient,
    TooLate,
}

impl FirstAttempt {
    /// Records an attempt that was made over `path` and started at `start`. The server remembers the reply for
    /// `window`.
    pub(super) fn new(path: NetworkPath, start: Instant, window: Duration, failure: CallFailure) -> Self {
        Self { path, until: start.checked_add(window), failure }
    }

    /// Returns an error if the server at the end of `path` might not recognize the call at the time `now`.
    pub(super) fn check(&self, path: NetworkPath, now: Instant) -> Result<(), NotRecognized> {
        if path.peer != self.path.peer {
            return Err(NotRecognized::OtherServer);
        }
        if path.local != self.path.local {
            return Err(NotRecognized::OtherClient);
        }
        if self.until.is_some_and(|until| now >= until) {
            return Err(NotRecognized::TooLate);
        }
        Ok(())
    }
}

impl fmt::Display for NotRecognized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherServer => "the new connection leads to another address",
            Self::OtherClient => "the new connection has another local address",
            Self::TooLate => "the server may have forgotten the reply",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{
        engine::{CallLimit, CloseReason},
        provider::DisconnectReason,
        rpc::RpcError,
        security::SecurityError,
        transport::UrlError,
    };

    const PAUSE: Duration = Duration::from_millis(100);
    const EXECUTED: [bool; 2] = [false, true];
    const REPETITIONS: [Repetition; 3] = [Repetition::Harmless, Repetition::Recognized, Repetition::Harmful];
    const SCOPES: [RetryScope; 3] = [RetryScope::Channel, RetryScope::Pool, RetryScope::Balancer];
    const FAILURES: [FailureKind; 7] = [
        FailureKind::Disconnected { pause: PAUSE },
        FailureKind::NegotiationFailed,
        FailureKind::Denied,
        FailureKind::SecurityExpired,
        FailureKind::XidInUse,
        FailureKind::Middleware,
        FailureKind::Final,
    ];

    /// Returns the facts of every combination, with room for a retry and a resend.
    fn all() -> impl Iterator<Item = RetryFacts> {
        let facts = |failure, scope, may_be_executed, repetition| RetryFacts {
            failure,
            may_be_executed,
            repetition,
            scope,
            retries: 1,
            pace: Duration::ZERO,
            resends: 1,
            time_left: None,
            is_closed: false,
        };
        FAILURES.into_iter().flat_map(move |failure| {
            SCOPES.into_iter().flat_map(move |scope| {
                EXECUTED.into_iter().flat_map(move |executed| {
                    REPETITIONS.into_iter().map(move |repetition| facts(failure, scope, executed, repetition))
                })
            })
        })
    }

    fn letter(decision: RetryDecision) -> char {
        match decision {
            RetryDecision::Fail => '-',
            RetryDecision::SameConnection => 's',
            RetryDecision::Version1 => '1',
            RetryDecision::NewConnection { .. } => 'n',
            RetryDecision::OtherConnection { .. } => 'o',
        }
    }

    /// Every combination of failure, scope, execution and repetition. A group of three has the repetitions in the order
    /// harmless, recognized, harmful. The first group of a scope is for calls that were not executed, the second for
    /// calls that may have been executed.
    #[test]
    fn every_failure_with_every_property() {
        let wanted = [
            // Channel, pool, balancer.
            "nnn nn- ooo on- ooo o--", // Disconnected
            "111 nn- 111 on- 111 o--", // NegotiationFailed
            "sss sss sss sss sss sss", // Denied
            "sss sss sss sss sss sss", // SecurityExpired
            "sss sss sss sss sss sss", // XidInUse
            "--- --- --- --- ooo o--", // Middleware
            "--- --- --- --- --- ---", // Final
        ];
        let wanted: String = wanted.concat().split(' ').collect();
        let got: String = all().map(|facts| letter(decide(&facts))).collect();
        assert_eq!(got, wanted);
    }

    /// Without retries, or after the deadline, no attempt follows on another connection, except with version 1 after a
    /// failed negotiation. Without resends, no attempt follows on the same connection. A closed channel only resends
    /// calls, because calls in flight finish.
    #[test]
    fn every_limit() {
        for facts in all() {
            let open = decide(&facts);
            let is_resent = open == RetryDecision::SameConnection;
            let is_version_1 = open == RetryDecision::Version1;
            let check = |facts: RetryFacts, may_follow: bool| {
                let wanted = if may_follow { open } else { RetryDecision::Fail };
                assert_eq!(decide(&facts), wanted, "{facts:?}");
            };
            check(RetryFacts { retries: 0, ..facts }, is_resent || is_version_1);
            check(RetryFacts { retries: u32::MAX, ..facts }, true);
            check(RetryFacts { resends: 0, ..facts }, !is_resent);
            check(RetryFacts { is_closed: true, ..facts }, is_resent);
            check(RetryFacts { time_left: Some(Duration::ZERO), ..facts }, is_resent || is_version_1);
            check(RetryFacts { time_left: Some(Duration::MAX), ..facts }, true);
        }
    }

    /// A call waits for a pause only if the pause ends before the deadline, or before [`MAX_WAIT`] if there is no
    /// deadline. A pause does not delay an attempt on another connection of a pool or a balancer.
    #[test]
    fn pauses() {
        let ms = Duration::from_millis;
        for (pause, time_left, is_in_time) in [
            (ms(0), Some(ms(1)), true),
            (ms(99), Some(ms(100)), true),
            (ms(100), Some(ms(100)), false),
            (ms(5000), Some(ms(5001)), true),
            (ms(999), None, true),
            (MAX_WAIT, None, false),
            (Duration::MAX, None, false),
            (Duration::MAX, Some(Duration::MAX), false),
        ] {
            for facts in all().filter(|facts| matches!(facts.failure, FailureKind::Disconnected { .. })) {
                let open = decide(&facts);
                let wanted = match open {
                    RetryDecision::NewConnection { .. } if is_in_time => RetryDecision::NewConnection { pause },
                    RetryDecision::NewConnection { .. } => RetryDecision::Fail,
                    other => other,
                };
                let facts = RetryFacts { failure: FailureKind::Disconnected { pause }, time_left, ..facts };
                assert_eq!(decide(&facts), wanted, "{facts:?}");
            }
        }
    }

    #[test]
    fn repetitions() {
        assert_eq!(Repetition::new(true, true), Repetition::Harmless);
        assert_eq!(Repetition::new(true, false), Repetition::Harmless);
        assert_eq!(Repetition::new(false, true), Repetition::Recognized);
        assert_eq!(Repetition::new(false, false), Repetition::Harmful);
    }

    fn closed(sent: bool) -> CallFailure {
        CallFailure::Closed { reason: CloseReason::Disconnected(DisconnectReason::Local), sent }
    }

    fn transport(failure: CallFailure) -> CallError {
        CallError::Transport { procedure: "P", failure, retries: Retries::default() }
    }

    fn rpc(source: RpcError) -> CallError {
        CallError::Rpc { procedure: "P", source }
    }

    fn connect(error: ConnectError) -> CallError {
        CallError::Connect { procedure: "P", error, retries: Retries::default() }
    }

    fn security(sent: bool) -> CallError {
        CallError::Security { procedure: "P", sent, source: SecurityError(String::new()) }
    }

    fn refused() -> ConnectError {
        UrlError::NoScheme { url: String::new() }.into()
    }

    #[test]
    fn kinds_of_errors() {
        let lost = FailureKind::Disconnected { pause: Duration::ZERO };
        let paused = ConnectError::BackOff { retry_in: PAUSE, last: Box::new(refused()) };
        for (error, wanted) in [
            (transport(closed(false)), lost),
            (transport(closed(true)), lost),
            (connect(refused()), lost),
            (connect(paused), FailureKind::Disconnected { pause: PAUSE }),
            (transport(CallFailure::DeadlineExceeded { sent: false }), FailureKind::Final),
            (transport(CallFailure::Cancelled { sent: false }), FailureKind::Final),
            (transport(CallFailure::XidInUse { xid: 1 }), FailureKind::Final),
            (transport(CallFailure::TooLarge(CallLimit::Segments)), FailureKind::Final),
            (rpc(RpcError::Unavailable), FailureKind::Final),
            (security(false), FailureKind::Final),
        ] {
            assert_eq!(FailureKind::of(&error), wanted, "{error:?}");
        }
    }

    /// A later attempt that was not executed does not hide the failure of an earlier attempt that the server may have
    /// executed.
    #[test]
    fn final_errors() {
        let denied = RpcError::ProcedureUnavailable;
        let late = |sent| transport(CallFailure::DeadlineExceeded { sent });
        for (error, wanted) in [
            (transport(closed(false)), transport(closed(true))),
            (connect(refused()), transport(closed(true))),
            (security(false), transport(closed(true))),
            (rpc(denied), transport(closed(true))),
            (late(false), late(true)),
            (connect(ConnectError::Late { last: None }), late(true)),
            (late(true), late(true)),
            (rpc(RpcError::SystemError), rpc(RpcError::SystemError)),
            (security(true), security(true)),
            (transport(CallFailure::ChunkError), transport(CallFailure::ChunkError)),
        ] {
            let reported = final_error(Some(closed(true)), error.clone());
            assert_eq!(format!("{reported:?}"), format!("{wanted:?}"), "{error:?}");
            assert!(!reported.is_retry_safe());
            assert_eq!(format!("{:?}", final_error(None, error.clone())), format!("{error:?}"));
        }
    }

    #[test]
    fn calls_are_recognized_on_the_same_path_in_time() {
        let path = |local: &str, peer: &str| NetworkPath { local: local.parse().unwrap(), peer: peer.parse().unwrap() };
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let original = path("10.0.0.1", "10.0.0.9:1");
        let first = FirstAttempt::new(original, start, second, closed(true));
        assert_eq!(first.check(original, start), Ok(()));
        assert_eq!(first.check(original, start + second), Err(NotRecognized::TooLate));
        assert_eq!(first.check(path("10.0.0.2", "10.0.0.9:1"), start), Err(NotRecognized::OtherClient));
        for peer in ["10.0.0.9:2", "10.0.0.8:1"] {
            assert_eq!(first.check(path("10.0.0.1", peer), start), Err(NotRecognized::OtherServer));
        }
        let endless = FirstAttempt::new(original, start, Duration::MAX, closed(true));
        assert_eq!(endless.check(original, start + Duration::from_secs(1 << 20)), Ok(()));
    }
}
