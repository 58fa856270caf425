//! Sending of local calls (RPC-over-RDMA v2 §4.3, §4.4).

use std::time::Instant;

use super::{
    WireV2,
    format::{BARE, encode_lists},
};
use crate::{
    engine::{
        CallFailure, FormatChoice, FormatReason, MessageFormat, RpcMessage, TransportError,
        common::work::PostedFor,
        core::connection_core::ConnectionCore,
        requester::{call::ResendableMessage, expose::expose, plan::copy},
    },
    provider::QueuePair,
};

impl WireV2 {
    /// Sends queued calls while the credits and the limit on calls in flight permit it.
    pub(super) fn post_calls(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair, now: Instant) {
        // RPC-over-RDMA v2 §11.1.4: no more calls than the responder allows. A call on a closing connection fails with
        // it, without being sent.
        while self.outbox.is_ready() && self.has_room(core) && qp.is_open() {
            let Some(slot) = core.calls.next_queued(now, &mut core.shared) else { break };
            let posted = self.post_call(slot, core, qp);
            // RPC-over-RDMA v2 §7.4: after a failure, the transaction fails immediately.
            core.calls.posted(slot, posted, now, &mut core.shared);
        }
    }

    /// Registers the memory of a call, and sends the call.
    // RPC-over-RDMA v2 §11.1.3: memory is registered only when the call is about to be sent.
    #[inline(always)]
    fn post_call(&mut self, slot: u32, core: &mut ConnectionCore, qp: &mut dyn QueuePair) -> Result<(), CallFailure> {
        let ConnectionCore { calls, shared, .. } = core;
        // RPC-over-RDMA v2 §6.3.2: XID 0 never identifies a transaction.
        let xid = calls.nonzero_xid_for(slot)?;
        let Some(call) = calls.get_mut(slot) else { return Ok(()) };
        // RPC-over-RDMA v2 §4.5.1: header and RPC message carry the same XID, and RDMA2_F_RESPONSE is clear.
        let Some(mut message) = call.take_message(xid)? else { return Ok(()) };
        let format = call.plan(&mut message, shared)?;
        let work = PostedFor::CallSend { slot };
        let is_plain = format == MessageFormat::Short && !call.reply_chunks.has_chunks();
        // RPC-over-RDMA v2 appendix B.2.
        if is_plain && !self.extensions.list.is_empty() {
            let rpc = RpcMessage { xid, is_reply: false, payload: &message };
            if let Some(conveyed) = self.extensions.convey(rpc, shared.send_threshold) {
                call.choice = FormatChoice { format: MessageFormat::Extension, reason: FormatReason::Extension };
                call.keep(|| ResendableMessage::Copy(message));
                calls.sending(slot, xid, shared);
                self.outbox.send_conveyed(qp, shared, (xid, 0), &conveyed, work);
                return Ok(());
            }
        }
        // RPC-over-RDMA v2 §7.1.2: a header type that the responder refused is not sent again.
        if self.msg_refused && format != MessageFormat::Long {
            return Err(TransportError::HeaderType.into());
        }
        // Nearly all calls have no chunks, and expose no memory.
        if is_plain {
            call.keep(|| ResendableMessage::Copy(copy(&message, &shared.config.pool)));
            call.invalidates = None;
            calls.sending(slot, xid, shared);
            self.outbox.send_bare(qp, shared, (xid, 0), message, work);
            return Ok(());
        }
        let mut lists = std::mem::take(&mut self.lists);
        // RPC-over-RDMA v2 §4.4.3: a Special call has no payload in its Send.
        let payload = if format == MessageFormat::Long {
            let whole = message.freeze();
            call.keep(|| ResendableMessage::Whole(whole.clone()));
            expose(call, Some(whole), qp, &mut lists, shared)?;
            None
        } else {
            call.keep(|| ResendableMessage::Copy(copy(&message, &shared.config.pool)));
            expose(call, None, qp, &mut lists, shared)?;
            Some(message)
        };
        // RPC-over-RDMA v2 §6.2.4: one of the handles in the header, or zero.
        call.invalidates = call.exposure.first().filter(|_| self.invalidate && qp.remote_invalidation());
        let header = if lists.is_empty() && call.invalidates.is_none() {
            &BARE[..]
        } else {
            encode_lists(&mut self.header, call.invalidates, &lists);
            &self.header
        };
        self.lists = lists;
        calls.sending(slot, xid, shared);
        // RPC-over-RDMA v2 §6.2.2.1, §4.5.1: RDMA2_F_RESPONSE is clear in a call, whatever its direction.
        let is_continued = format == MessageFormat::Continued;
        self.outbox.send_rpc(qp, shared, (xid, 0), header, payload, is_continued, work, None);
        Ok(())
    }
}
