//! Calls made again: after a lost connection, a call that stayed unanswered, and NFS3ERR_JUKEBOX.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rpcrdma::{
    client::{CallError, ConnectError},
    engine::{CallFailure, CloseReason},
    provider::{DisconnectReason, SetupError},
};
use rpcrdma_specs::nfs3::Nfsstat3;

use super::error::{CopyError, NfsStatus};
use crate::command::chain;

/// Whether the server, or the way to it, may come back.
pub(super) fn may_pass(error: &CallError) -> bool {
    match error {
        CallError::Connect { error: ConnectError::Setup { source, .. }, .. } => {
            !matches!(source, SetupError::NotOurProtocol { .. })
        }
        CallError::Transport { failure: CallFailure::DeadlineExceeded { .. }, .. } => true,
        CallError::Transport { failure: CallFailure::Closed { reason, .. }, .. } => !matches!(
            reason,
            CloseReason::PeerViolation(_)
                | CloseReason::Stream(_)
                | CloseReason::Disconnected(DisconnectReason::PeerViolation(_) | DisconnectReason::Local)
        ),
        error => error.is_connection_loss(),
    }
}

/// What is told after `patience`, if there was any.
fn given_up(error: CopyError, patience: Duration) -> CopyError {
    match error {
        CopyError::Call(error) if !patience.is_zero() => {
            let source = match error {
                CallError::Connect { procedure, error: ConnectError::BackingOff { last, .. } } => {
                    CallError::Connect { procedure, error: *last }
                }
                error => error,
            };
            CopyError::Gone { patience, source }
        }
        error => error,
    }
}

/// Makes `call` until it is answered, for as long as `patience` after the first failure. `trouble` is whether that has been
/// told.
///
/// That is for calls that may be repeated. All that this program makes are: they change nothing (LOOKUP, READ), or say
/// what is to be in the end (WRITE at an offset, CREATE UNCHECKED, SETATTR without a guard, COMMIT), or their callers
/// take the answer to the repetition for success (MKDIR: NFS3ERR_EXIST, REMOVE: NFS3ERR_NOENT).
pub(super) async fn persist<T, F>(
    procedure: &'static str,
    patience: Duration,
    trouble: &AtomicBool,
    mut call: impl FnMut() -> F,
) -> Result<T, CopyError>
where
    F: Future<Output = Result<Result<T, Nfsstat3>, CallError>>,
{
    let mut first_failure = None;
    let mut pause = Duration::from_millis(100);
    loop {
        let error = match call().await {
            Ok(Ok(result)) => {
                if first_failure.is_some() && trouble.swap(false, Ordering::Relaxed) {
                    tracing::warn!("the server answers again");
                }
                return Ok(result);
            }
            Ok(Err(status)) => {
                let error = CopyError::Nfs { procedure, status: NfsStatus(status) };
                if status != Nfsstat3::Jukebox {
                    return Err(error);
                }
                error
            }
            Err(error) if may_pass(&error) => error.into(),
            Err(error) => return Err(error.into()),
        };
        let since = *first_failure.get_or_insert_with(Instant::now);
        if since.elapsed() + pause > patience {
            return Err(given_up(error, patience));
        }
        // Once for all calls that wait for the same.
        if !trouble.swap(true, Ordering::Relaxed) {
            tracing::warn!(error = chain(&error), "tried again for up to {patience:?}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}
