//! Completions that are about memory, which all versions handle alike.

use super::{CloseReason, core::Core, work::Work};
use crate::provider::{Completion, DisconnectReason, WorkError};

/// What is left for a version to do.
pub(super) enum Rest {
    /// The Send for this work is over; whether it was handed to the transport.
    Sent(Work, bool),
    /// All of the peer's call in this slot is here, its Read chunks having been pulled.
    Pulled(u32),
    /// The connection is gone.
    Disconnected(DisconnectReason),
    /// Nothing.
    Done,
}

/// Handles what is not a message.
pub(super) fn handle(completion: Completion, core: &mut Core) -> Rest {
    let Core { calls, served, shared, .. } = core;
    match completion {
        Completion::Sent { id } => {
            let Some(work) = Work::of(id) else { return Rest::Done };
            if work.is_of_answer() {
                shared.untaken.done();
            }
            return Rest::Sent(work, true);
        }
        Completion::Written { id } => {
            if Work::of(id).is_some_and(Work::is_of_answer) {
                shared.untaken.done();
            }
        }
        Completion::Read { id } => {
            // Providers tell in order: what was posted behind an RDMA Read waits for it.
            shared.untaken.go_on();
            if let Some(Work::Pull { slot, part }) = Work::of(id) {
                served.read_done(slot, part, shared);
            }
        }
        Completion::Invalidated { id, memory } => match Work::of(id) {
            Some(Work::CallInvalidate { slot, part }) => calls.invalidated(slot, part, memory, shared),
            Some(Work::PullInvalidate { slot, part }) => {
                let all_here = served.sink_returned(slot, part, Some(memory), shared);
                return if all_here { Rest::Pulled(slot) } else { Rest::Done };
            }
            _ => {}
        },
        Completion::Failed { id, error } => return handle_failure(Work::of(id), &error, core),
        Completion::Disconnected { reason } => return Rest::Disconnected(reason),
        Completion::Received { .. } => {}
    }
    Rest::Done
}

fn handle_failure(work: Option<Work>, error: &WorkError, core: &mut Core) -> Rest {
    let Core { calls, served, shared, .. } = core;
    if *error != WorkError::Flushed {
        tracing::debug!(?work, %error, "work request failed");
    }
    if work.is_some_and(Work::is_of_answer) {
        shared.untaken.done();
    }
    match work {
        Some(work @ (Work::ReplySend { .. } | Work::ErrorSend)) => return Rest::Sent(work, false),
        // RFC 8166 §4.5.4, RPC-over-RDMA v2 §7.4: the connection is closed before the transaction is complete.
        Some(Work::CallInvalidate { slot, part }) => calls.invalidate_failed(slot, part, shared),
        Some(Work::PullInvalidate { slot, part }) => {
            shared.fault.get_or_insert_with(|| {
                CloseReason::Disconnected(DisconnectReason::Transport("memory could not be invalidated".into()))
            });
            // The call is lost with its memory.
            served.sink_returned(slot, part, None, shared);
        }
        // The connection ends with it; what the call had is taken back then.
        Some(Work::CallSend { .. } | Work::Pull { .. } | Work::Push { .. } | Work::AsideSend) | None => {}
    }
    Rest::Done
}
