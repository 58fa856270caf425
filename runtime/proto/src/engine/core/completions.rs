//! Completions of work requests.

use super::connection_core::ConnectionCore;
use crate::{
    engine::{CloseReason, common::work::PostedFor},
    provider::{Completion, DisconnectReason, WorkError},
};

impl ConnectionCore {
    /// Handles the completion of a work request. Returns the number of responses that have ended.
    pub(in crate::engine) fn complete(&mut self, completion: Completion) -> usize {
        let Self { calls, served, shared, .. } = self;
        match completion {
            Completion::Sent { id } => return PostedFor::of(id).map_or(0, |work| self.sent(work, true)),
            Completion::Written { id } => {
                if PostedFor::of(id).is_some_and(PostedFor::is_response) {
                    shared.reply_stall.completed();
                }
            }
            Completion::Read { id } => {
                // Completions arrive in order, so work posted after the RDMA Read had to wait for it.
                shared.reply_stall.restart();
                if let Some(PostedFor::FetchRead { slot, part }) = PostedFor::of(id) {
                    served.read_done(slot, part, shared);
                }
            }
            Completion::Invalidated { id, memory } => match PostedFor::of(id) {
                Some(PostedFor::CallInvalidate { slot, part }) => calls.invalidated(slot, part, memory, shared),
                Some(PostedFor::FetchInvalidate { slot, part }) => {
                    let is_complete = served.sink_returned(slot, part, Some(memory), shared);
                    if is_complete {
                        served.arrived(slot, shared);
                    }
                }
                _ => {}
            },
            Completion::Failed { id, error } => return PostedFor::of(id).map_or(0, |work| self.failed(work, &error)),
            Completion::Received { .. } | Completion::Disconnected { .. } => {}
        }
        0
    }

    /// Handles the end of a Send. `ok` is `true` if the message was passed to the transport. Returns the number of
    /// responses that have ended.
    #[inline]
    fn sent(&mut self, work: PostedFor, ok: bool) -> usize {
        if work.is_response() {
            self.shared.reply_stall.completed();
        }
        match work {
            PostedFor::ReplySend { slot } | PostedFor::UnsignaledReplySend { slot } => {
                self.served.sent(slot, ok, &mut self.shared)
            }
            PostedFor::ErrorSend => 1,
            _ => 0,
        }
    }

    fn failed(&mut self, work: PostedFor, error: &WorkError) -> usize {
        if *error != WorkError::Flushed {
            tracing::debug!(?work, %error, "work request failed");
            // RFC 8166 §4.5.4: the connection closes if a reply or an error cannot be sent.
            self.shared.response_failed |= work.is_response() || matches!(work, PostedFor::UnsignaledReplySend { .. });
        }
        // RFC 8166 §4.5.3, RPC-over-RDMA v2 §7.3: the call would end the next connection, too.
        if let WorkError::RemoteAccess(_) = error
            && let Some(xid) = work.served_slot().and_then(|slot| self.served.xid(slot))
        {
            self.shared.is_call_at_fault = true;
            self.shared.remember_failed(xid);
        }
        match work {
            PostedFor::ReplySend { .. } | PostedFor::UnsignaledReplySend { .. } | PostedFor::ErrorSend => {
                return self.sent(work, false);
            }
            // RFC 8166 §4.5.4, RPC-over-RDMA v2 §7.4: close the connection before the transaction is complete.
            PostedFor::CallInvalidate { slot, part } => self.calls.invalidate_failed(slot, part, &mut self.shared),
            PostedFor::FetchInvalidate { slot, part } => {
                let reason = DisconnectReason::Transport("memory could not be invalidated".into());
                self.shared.fault.get_or_insert(CloseReason::Disconnected(reason));
                // The call is lost together with its memory.
                self.served.sink_returned(slot, part, None, &mut self.shared);
            }
            PostedFor::ReplyWrite { .. } => self.shared.reply_stall.completed(),
            // The failure ends the connection, which then releases the resources of the call.
            PostedFor::CallSend { .. } | PostedFor::FetchRead { .. } | PostedFor::ControlSend => {}
        }
        0
    }
}
