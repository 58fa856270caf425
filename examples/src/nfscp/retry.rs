//! Retries of calls after a lost connection, after a call without a reply, and after NFS3ERR_JUKEBOX.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rpcrdma::error::{CallError, CallFailure, CloseReason, ConnectError, DisconnectReason, SetupError};
use rpcrdma_specs::nfs3::Nfsstat3;

use super::error::{CopyError, NfsStatus};
use crate::command::chain;

/// Returns `true` if a later attempt may succeed, because the connection was lost or not established, or because no
/// reply arrived in time. Protocol violations and a local close are permanent.
pub(super) fn is_temporary(error: &CallError) -> bool {
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

/// Returns the error to report after retrying for `patience`.
fn final_error(error: CopyError, patience: Duration) -> CopyError {
    match error {
        CopyError::Call(error) if !patience.is_zero() => {
            let source = match error {
                CallError::Connect { procedure, error: ConnectError::BackOff { last, .. }, retries } => {
                    CallError::Connect { procedure, error: *last, retries }
                }
                error => error,
            };
            CopyError::Unresponsive { patience, source: Box::new(source) }
        }
        error => error,
    }
}

/// Makes `call`, and retries it for up to `patience` after the first failure. `trouble` is set while calls are being
/// retried, so that concurrent calls log this only once.
///
/// All calls of this program may be retried. They change nothing (such as LOOKUP and READ), set an absolute state
/// (WRITE at an offset, CREATE UNCHECKED, SETATTR without a guard, COMMIT), or their callers accept the repetition's
/// status as success (NFS3ERR_EXIST for MKDIR and SYMLINK, NFS3ERR_NOENT for REMOVE).
pub(super) async fn retry<T, F>(
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
                    tracing::warn!("the server is responding again");
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
            Err(error) if is_temporary(&error) => error.into(),
            Err(error) => return Err(error.into()),
        };
        let since = *first_failure.get_or_insert_with(Instant::now);
        if since.elapsed() + pause > patience {
            return Err(final_error(error, patience));
        }
        // Logged once for all calls that are waiting.
        if !trouble.swap(true, Ordering::Relaxed) {
            tracing::warn!(error = chain(&error), "call failed, retrying for up to {patience:?}");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}
