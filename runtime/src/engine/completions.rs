//! Completions of work requests.

use super::{CloseReason, core::ConnectionCore, work::Work};
use crate::provider::{Completion, DisconnectReason, WorkError};

impl ConnectionCore {
    /// Handles the completion of a work request. Returns the work if it was a Send.
    pub(super) fn complete(&mut self, completion: Completion) -> Option<Work> {
        let Self { calls, served, shared, .. } = self;
        match completion {
            Completion::Sent { id } => return self.sent(Work::of(id)?, true),
            Completion::Written { id } => {
                if Work::of(id).is_some_and(Work::is_of_answer) {
                    shared.untaken.done();
                }
            }
            Completion::Read { id } => {
                // Completions come in order: what was posted behind an RDMA Read waits for it.
                shared.untaken.go_on();
                if let Some(Work::Pull { slot, part }) = Work::of(id) {
                    served.read_done(slot, part, shared);
                }
            }
            Completion::Invalidated { id, memory } => match Work::of(id) {
                Some(Work::CallInvalidate { slot, part }) => calls.invalidated(slot, part, memory, shared),
                Some(Work::PullInvalidate { slot, part }) => {
                    let is_complete = served.sink_returned(slot, part, Some(memory), shared);
                    if is_complete {
                        self.arrived(slot);
                    }
                }
                _ => {}
            },
            Completion::Failed { id, error } => return self.failed(Work::of(id)?, &error),
            Completion::Received { .. } | Completion::Disconnected { .. } => {}
        }
        None
    }

    /// Handles the end of a Send. `ok`: whether it was handed to the transport.
    fn sent(&mut self, work: Work, ok: bool) -> Option<Work> {
        if work.is_of_answer() {
            self.shared.untaken.done();
        }
        if let Work::ReplySend { slot } = work {
            self.served.sent(slot, ok, &mut self.shared);
        }
        Some(work)
    }

    fn failed(&mut self, work: Work, error: &WorkError) -> Option<Work> {
        if *error != WorkError::Flushed {
            tracing::debug!(?work, %error, "work request failed");
        }
        match work {
            Work::ReplySend { .. } | Work::ErrorSend => return self.sent(work, false),
            // RFC 8166 §4.5.4, RPC-over-RDMA v2 §7.4: the connection is closed before the transaction is complete.
            Work::CallInvalidate { slot, part } => self.calls.invalidate_failed(slot, part, &mut self.shared),
            Work::PullInvalidate { slot, part } => {
                let reason = DisconnectReason::Transport("memory could not be invalidated".into());
                self.shared.fault.get_or_insert(CloseReason::Disconnected(reason));
                // The call is lost with its memory.
                self.served.sink_returned(slot, part, None, &mut self.shared);
            }
            Work::Push { .. } => self.shared.untaken.done(),
            // The connection ends with it; what the call had is taken back then.
            Work::CallSend { .. } | Work::Pull { .. } | Work::AsideSend => {}
        }
        None
    }
}
