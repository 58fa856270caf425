//! Translation of the device's completion codes.

use super::ffi::{self, ibv_wc_status as status};
use crate::provider::{DisconnectReason, WorkError};

/// The result of a Receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReceiveOutcome {
    Message,
    /// The queue pair had failed before.
    Flushed,
    /// The peer's message was invalid.
    Violation(String),
    /// A local error.
    Fault(String),
}

pub(super) fn receive_outcome(code: status::Type) -> ReceiveOutcome {
    match code {
        status::IBV_WC_SUCCESS => ReceiveOutcome::Message,
        status::IBV_WC_WR_FLUSH_ERR => ReceiveOutcome::Flushed,
        // Soft RoCE reports `IBV_WC_LOC_QP_OP_ERR`.
        status::IBV_WC_LOC_LEN_ERR | status::IBV_WC_LOC_QP_OP_ERR => {
            ReceiveOutcome::Violation("a message longer than the Receive".into())
        }
        status::IBV_WC_REM_INV_REQ_ERR | status::IBV_WC_REM_ACCESS_ERR | status::IBV_WC_REM_OP_ERR => {
            ReceiveOutcome::Violation(format!("an invalid request ({})", text(code)))
        }
        _ => ReceiveOutcome::Fault(format!("Receive failed: {}", text(code))),
    }
}

/// The error of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestFailure {
    pub(super) error: WorkError,
    /// The cause of the end of the connection. `None` if the request was flushed because the queue pair had failed
    /// before.
    pub(super) reason: Option<DisconnectReason>,
}

/// Returns the result of a request of the send queue that has completed with `code`.
pub(super) fn request_result(code: status::Type) -> Result<(), RequestFailure> {
    let (error, reason) = match code {
        status::IBV_WC_SUCCESS => return Ok(()),
        status::IBV_WC_WR_FLUSH_ERR => (WorkError::Flushed, None),
        status::IBV_WC_REM_ACCESS_ERR
        | status::IBV_WC_REM_INV_REQ_ERR
        | status::IBV_WC_REM_OP_ERR
        | status::IBV_WC_REM_INV_RD_REQ_ERR
        | status::IBV_WC_REM_ABORT_ERR => {
            (WorkError::RemoteAccess(text(code)), Some(DisconnectReason::RemoteAccess(text(code))))
        }
        status::IBV_WC_RNR_RETRY_EXC_ERR => {
            let reason = DisconnectReason::ReportedByPeer("no Receive was posted for a message".into());
            (WorkError::Flushed, Some(reason))
        }
        status::IBV_WC_RETRY_EXC_ERR | status::IBV_WC_RESP_TIMEOUT_ERR => {
            (WorkError::Flushed, Some(DisconnectReason::Transport("peer does not respond".into())))
        }
        _ => (
            WorkError::Local(text(code)),
            Some(DisconnectReason::Transport(format!("RDMA request failed: {}", text(code)).into())),
        ),
    };
    Err(RequestFailure { error, reason })
}

fn text(code: status::Type) -> String {
    ffi::status_text(code).map_or_else(|| format!("status {code}"), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives() {
        assert_eq!(receive_outcome(status::IBV_WC_SUCCESS), ReceiveOutcome::Message);
        assert_eq!(receive_outcome(status::IBV_WC_WR_FLUSH_ERR), ReceiveOutcome::Flushed);
        assert!(matches!(receive_outcome(status::IBV_WC_LOC_LEN_ERR), ReceiveOutcome::Violation(_)));
        assert!(matches!(receive_outcome(status::IBV_WC_REM_INV_REQ_ERR), ReceiveOutcome::Violation(_)));
        assert!(matches!(receive_outcome(status::IBV_WC_LOC_PROT_ERR), ReceiveOutcome::Fault(_)));
        assert!(matches!(receive_outcome(9999), ReceiveOutcome::Fault(_)));
    }

    #[test]
    fn requests() {
        assert_eq!(request_result(status::IBV_WC_SUCCESS), Ok(()));
        let of = |code| request_result(code).unwrap_err();
        assert_eq!(of(status::IBV_WC_WR_FLUSH_ERR), RequestFailure { error: WorkError::Flushed, reason: None });
        assert!(matches!(of(status::IBV_WC_REM_ACCESS_ERR).error, WorkError::RemoteAccess(_)));
        assert!(matches!(of(status::IBV_WC_RETRY_EXC_ERR).reason, Some(DisconnectReason::Transport(_))));
        assert!(matches!(of(status::IBV_WC_RNR_RETRY_EXC_ERR).reason, Some(DisconnectReason::ReportedByPeer(_))));
        assert!(matches!(of(status::IBV_WC_MW_BIND_ERR).error, WorkError::Local(_)));
    }
}
