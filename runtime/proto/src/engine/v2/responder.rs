//! Sending of responses to calls of the peer (RPC-over-RDMA v2 §4.3.6, §4.4, §6.4).

use super::{
    WireV2,
    errors::encode_error,
    format::{BARE, VERSION, encode_lists},
    header::{RDMA2_ERROR, RDMA2_F_RESPONSE},
    outbox::PrefixFields,
};
use crate::{
    engine::{
        MessageFormat, RpcMessage, TransportError,
        common::{shared::EngineShared, work::PostedFor},
        core::connection_core::ConnectionCore,
        responder::responses::{PlainReply, ReadyReply, ReadyResponse},
    },
    provider::QueuePair,
};

impl WireV2 {
    /// Sends the waiting responses in the order of their queue, as long as there are credits and no RPC message is
    /// partly sent.
    pub(super) fn post_responses(&mut self, core: &mut ConnectionCore, qp: &mut dyn QueuePair) {
        while core.served.waiting() > 0 && self.outbox.is_ready() {
            if self.extensions.list.is_empty()
                && let Some(PlainReply { slot, xid, message }) = core.served.next_plain_reply(&mut core.shared)
            {
                self.outbox.grants.hold(core.served.held());
                let work = PostedFor::reply(slot, self.is_last(core));
                // RPC-over-RDMA v2 §6.2.2.1, §4.5.2.
                self.outbox.send_bare(qp, &mut core.shared, (xid, RDMA2_F_RESPONSE), message, work);
                continue;
            }
            let Some(response) = core.served.next_response(VERSION, qp, &mut core.shared) else { break };
            self.outbox.grants.hold(core.served.held());
            match response {
                ReadyResponse::Reply(reply) => {
                    let is_last = self.is_last(core);
                    self.post_reply(reply, is_last, qp, core);
                }
                ReadyResponse::Refusal { message, refusal, work } => {
                    self.post_error(message, refusal, work, qp, &mut core.shared);
                }
            }
        }
    }

    /// Returns `true` unless another response is posted immediately after the current one.
    fn is_last(&self, core: &ConnectionCore) -> bool {
        !self.outbox.budget.has_more_than_one() || !core.served.is_next_answered()
    }

    /// Sends a reply. `is_last` is `false` if another response is posted immediately after it. A continued reply
    /// ignores `is_last`.
    fn post_reply(&mut self, reply: ReadyReply, is_last: bool, qp: &mut dyn QueuePair, core: &mut ConnectionCore) {
        let ConnectionCore { served, shared, .. } = core;
        // RPC-over-RDMA v2 §6.2.4: the reply invalidates the handle that the call offered, or none.
        let ReadyReply { slot, xid, format, payload, invalidate } = reply;
        let lists = served.reply_lists(slot);
        let work = PostedFor::reply(slot, is_last || format == MessageFormat::Continued);
        // RPC-over-RDMA v2 §6.2.2.1, §4.5.2: in both directions.
        let flags = RDMA2_F_RESPONSE;
        // RPC-over-RDMA v2 appendix B.2.
        if let Some(payload) = &payload
            && !self.extensions.list.is_empty()
            && format == MessageFormat::Short
            && lists.is_empty()
            && invalidate.is_none()
        {
            let rpc = RpcMessage { xid, is_reply: true, payload };
            if let Some(conveyed) = self.extensions.convey(rpc, shared.send_threshold) {
                return self.outbox.send_conveyed(qp, shared, (xid, flags), &conveyed, work);
            }
        }
        let header = if lists.is_empty() {
            &BARE[..]
        } else {
            encode_lists(&mut self.header, None, lists);
            &self.header
        };
        let is_continued = format == MessageFormat::Continued;
        self.outbox.send_rpc(qp, shared, (xid, flags), header, payload, is_continued, work, invalidate);
    }

    /// Sends RDMA2_ERROR (RPC-over-RDMA v2 §7). An error never invalidates a handle.
    fn post_error(
        &mut self,
        (xid, vers): (u32, u32),
        refusal: TransportError,
        work: PostedFor,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
    ) {
        shared.counters.errors_sent += 1;
        // RPC-over-RDMA v2 §7: XID and version of the refused message. §6.2.2.1: RDMA2_F_RESPONSE is set.
        let fields = PrefixFields { xid, vers, htype: RDMA2_ERROR, flags: RDMA2_F_RESPONSE };
        self.outbox.send(qp, shared, fields, &encode_error(refusal), None, work, None);
    }
}
