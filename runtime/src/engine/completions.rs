//! Completions that are about memory, which all versions handle alike.

use super::{CloseReason, calls::Calls, shared::Shared, work::Work};
use crate::provider::{Completion, DisconnectReason, Memory, WorkError};

/// A responder, to whom RDMA Reads and their sinks are returned.
pub(super) trait Responds {
    /// An RDMA Read is over, one way or the other.
    fn read_done(&mut self, slot: u32, part: u16, shared: &mut Shared);

    /// A sink is back, or lost with the connection.
    fn sink_returned(&mut self, slot: u32, part: u16, memory: Option<Memory>, shared: &mut Shared);
}

/// What is left for a version to do.
pub(super) enum Rest {
    /// The Send for this work is over; whether it was handed to the transport.
    Sent(Work, bool),
    /// The connection is gone.
    Disconnected(DisconnectReason),
    /// Nothing.
    Done,
}

/// Handles what is not a message.
pub(super) fn handle(
    completion: Completion,
    calls: &mut Calls,
    responder: &mut impl Responds,
    shared: &mut Shared,
) -> Rest {
    match completion {
        Completion::Sent { id } => return Work::of(id).map_or(Rest::Done, |work| Rest::Sent(work, true)),
        Completion::Read { id } => {
            if let Some(Work::Pull { slot, part }) = Work::of(id) {
                responder.read_done(slot, part, shared);
            }
        }
        Completion::Invalidated { id, memory } => match Work::of(id) {
            Some(Work::CallInvalidate { slot, part }) => calls.invalidated(slot, part, memory, shared),
            Some(Work::PullInvalidate { slot, part }) => responder.sink_returned(slot, part, Some(memory), shared),
            _ => {}
        },
        Completion::Failed { id, error } => return handle_failure(Work::of(id), &error, calls, responder, shared),
        Completion::Disconnected { reason } => return Rest::Disconnected(reason),
        Completion::Written { .. } | Completion::Received { .. } => {}
    }
    Rest::Done
}

fn handle_failure(
    work: Option<Work>,
    error: &WorkError,
    calls: &mut Calls,
    responder: &mut impl Responds,
    shared: &mut Shared,
) -> Rest {
    if *error != WorkError::Flushed {
        tracing::debug!(?work, %error, "work request failed");
    }
    match work {
        Some(work @ (Work::ReplySend { .. } | Work::ErrorSend)) => return Rest::Sent(work, false),
        // RFC 8166 §4.5.4, RPC-over-RDMA v2 §7.4: the connection is closed before the transaction is complete.
        Some(Work::CallInvalidate { slot, part }) => calls.invalidate_failed(slot, part, shared),
        Some(Work::PullInvalidate { slot, part }) => {
            shared.fault.get_or_insert_with(|| {
                CloseReason::Disconnected(DisconnectReason::Transport("memory could not be invalidated".into()))
            });
            responder.sink_returned(slot, part, None, shared);
        }
        // The connection ends with it; what the call had is taken back then.
        Some(Work::CallSend { .. } | Work::Pull { .. } | Work::Push { .. }) | None => {}
    }
    Rest::Done
}
