//! The ejection of endpoints whose calls fail fast. Such endpoints would otherwise look idle and attract calls.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::super::{CallError, CallResponse, reconnect::jittered};
use crate::rpc::RpcError;

/// Number of failures in a row after which an endpoint is ejected.
const MAX_FAILURES: u32 = 5;
/// Duration of the first ejection, without jitter. It doubles with each further ejection, until a call ends without a
/// failure of the server.
const MIN_EJECTION: Duration = Duration::from_secs(1);
/// Maximum duration of an ejection, without jitter.
const MAX_EJECTION: Duration = Duration::from_secs(60);

/// The latest failures of an endpoint, and its ejection.
#[derive(Debug, Default)]
pub(super) struct FailureAccrual {
    /// Number of failures in a row.
    failures: AtomicU32,
    ejection: Mutex<Option<Ejection>>,
}

#[derive(Debug)]
struct Ejection {
    until: Instant,
    /// The duration of the ejection, without jitter.
    time: Duration,
    /// `true` while one call finds out whether the endpoint works again.
    is_tried: bool,
}

impl FailureAccrual {
    fn ejection(&self) -> MutexGuard<'_, Option<Ejection>> {
        self.ejection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if other endpoints should get the next call. When the ejection has ended, returns `false` until
    /// one call tries the endpoint.
    pub(super) fn is_ejected(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) < MAX_FAILURES {
            return false;
        }
        self.ejection().as_ref().is_some_and(|ejection| ejection.is_tried || Instant::now() < ejection.until)
    }

    /// Records that the endpoint gets a call. After an ejection, this call tries the endpoint.
    pub(super) fn called(&self) {
        if self.failures.load(Ordering::Relaxed) >= MAX_FAILURES
            && let Some(ejection) = &mut *self.ejection()
            && Instant::now() >= ejection.until
        {
            ejection.is_tried = true;
        }
    }

    /// Records that a call was dropped before its result, so that another call may try an ejected endpoint.
    pub(super) fn given_up(&self) {
        if self.failures.load(Ordering::Relaxed) >= MAX_FAILURES
            && let Some(ejection) = &mut *self.ejection()
        {
            ejection.is_tried = false;
        }
    }

    /// Records the result of a call. Returns `true` if the result ejects the endpoint.
    pub(super) fn ended(&self, result: &Result<CallResponse, CallError>) -> bool {
        if !is_failure(result) {
            // Nearly always.
            if self.failures.load(Ordering::Relaxed) != 0 {
                self.failures.store(0, Ordering::Relaxed);
                *self.ejection() = None;
            }
            return false;
        }
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        self.failures.store(failures, Ordering::Relaxed);
        if failures < MAX_FAILURES {
            return false;
        }
        let mut current = self.ejection();
        let now = Instant::now();
        let time = match &*current {
            // Calls that were in flight when the endpoint was ejected.
            Some(ejection) if now < ejection.until => return false,
            Some(ejection) => ejection.time.saturating_mul(2).min(MAX_EJECTION),
            None => MIN_EJECTION,
        };
        *current = Some(Ejection { until: now + jittered(time), time, is_tried: false });
        true
    }
}

/// Returns `true` if the result shows that the server does not work, whatever the call was.
fn is_failure(result: &Result<CallResponse, CallError>) -> bool {
    match result {
        Err(error) if error.is_connection_loss() => true,
        Err(CallError::Rpc { source, .. }) => is_server_failure(source),
        Ok(_) | Err(_) => false,
    }
}

fn is_server_failure(error: &RpcError) -> bool {
    matches!(error, RpcError::SystemError | RpcError::Unavailable | RpcError::ProgramUnavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        client::Retries,
        engine::{CallFailure, CloseReason},
    };

    fn failed() -> Result<CallResponse, CallError> {
        Err(CallError::Rpc { procedure: "P", source: RpcError::SystemError })
    }

    /// Returns an error that does not count as a failure of the server.
    fn refused() -> Result<CallResponse, CallError> {
        Err(CallError::Rpc { procedure: "P", source: RpcError::GarbageArguments })
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_eject() {
        let accrual = FailureAccrual::default();
        for _ in 0..3 {
            for _ in 1..MAX_FAILURES {
                assert!(!accrual.ended(&failed()) && !accrual.is_ejected());
            }
            accrual.ended(&refused());
        }
        for _ in 1..MAX_FAILURES {
            accrual.ended(&failed());
        }
        assert!(accrual.ended(&failed()) && accrual.is_ejected());
        // Those that were in flight do not prolong it.
        assert!(!accrual.ended(&failed()));
        tokio::time::advance(MIN_EJECTION).await;
        assert!(!accrual.is_ejected());
    }

    /// A lost connection counts as a failure of the server. A passed deadline does not.
    #[tokio::test(start_paused = true)]
    async fn lost_connections_are_failures() {
        let closed = |sent| CallFailure::Closed { reason: CloseReason::Idle(Duration::ZERO), sent };
        let late = CallFailure::DeadlineExceeded { sent: true };
        for (failure, ejects) in [(closed(true), true), (closed(false), true), (late, false)] {
            let accrual = FailureAccrual::default();
            for _ in 0..MAX_FAILURES {
                let retries = Retries::default();
                accrual.ended(&Err(CallError::Transport { procedure: "P", failure: failure.clone(), retries }));
            }
            assert_eq!(accrual.is_ejected(), ejects, "{failure:?}");
        }
    }

    /// At the end of an ejection, the endpoint can be chosen, the next call tries it, and a failure ejects it again.
    #[tokio::test(start_paused = true)]
    async fn the_end_of_an_ejection() {
        for _ in 0..20 {
            let accrual = FailureAccrual::default();
            for _ in 0..MAX_FAILURES {
                accrual.ended(&failed());
            }
            let end = accrual.ejection().as_ref().unwrap().until;
            tokio::time::advance(end - Instant::now() - Duration::from_nanos(1)).await;
            accrual.called();
            assert!(accrual.is_ejected() && !accrual.ended(&failed()));
            tokio::time::advance(Duration::from_nanos(1)).await;
            assert_eq!(Instant::now(), end);
            assert!(!accrual.is_ejected());
            accrual.called();
            assert!(accrual.is_ejected() && accrual.ended(&failed()));
        }
    }

    /// One call finds out whether the endpoint works again. If not, the next ejection is longer.
    #[tokio::test(start_paused = true)]
    async fn one_call_tries_again() {
        let accrual = FailureAccrual::default();
        for _ in 0..MAX_FAILURES {
            accrual.ended(&failed());
        }
        for time in [1, 2, 4, 8, 16, 32, 60, 60].map(Duration::from_secs) {
            accrual.called();
            assert!(accrual.is_ejected(), "a call does not end the ejection");
            tokio::time::advance(time / 2 - Duration::from_millis(1)).await;
            assert!(accrual.is_ejected());
            tokio::time::advance(time / 2 + Duration::from_millis(1)).await;
            assert!(!accrual.is_ejected(), "{time:?}");
            accrual.called();
            assert!(accrual.is_ejected(), "one call is enough");
            accrual.given_up();
            assert!(!accrual.is_ejected());
            accrual.called();
            assert!(accrual.ended(&failed()) && accrual.is_ejected());
        }
        tokio::time::advance(MAX_EJECTION).await;
        accrual.called();
        accrual.ended(&refused());
        assert!(!accrual.is_ejected());
        for _ in 1..MAX_FAILURES {
            accrual.ended(&failed());
        }
        assert!(!accrual.is_ejected(), "the count begins anew");
    }
}
