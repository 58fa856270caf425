//! Calls as they arrive: what is checked before anything is done for them (RPC-over-RDMA v2 §7).

use super::Responder;
use crate::{
    engine::{
        chunks::Segment,
        message::{CALL, message_type},
        served::{Arrival, check_chunks},
        shared::Shared,
        sinks,
        v2::{
            errors::Refusal,
            format::{self, Prefix},
            header::Rpcrdma2ChunkLists,
            properties::ReverseDirection,
            reassembly,
        },
    },
    memory::MessageBuf,
    provider::Handle,
};

enum Verdict {
    Discard(&'static str),
    Refuse(Refusal, &'static str),
    /// The call is taken; its slot, if all of it is here.
    Serve(Option<u32>),
}

const fn bad_xdr(why: &'static str) -> Verdict {
    Verdict::Refuse(Refusal::BadXdr, why)
}

impl Responder {
    /// Handles a call: all of its payload, or none for RDMA2_NOMSG, and the chunks of its last message.
    pub(in crate::engine::v2) fn receive(
        &mut self,
        prefix: &Prefix,
        lists: Rpcrdma2ChunkLists,
        payload: Option<(MessageBuf, bool)>,
        shared: &mut Shared,
    ) {
        match self.judge(prefix, lists, payload, shared) {
            Verdict::Discard(why) => shared.discard(why),
            Verdict::Refuse(refusal, why) => {
                tracing::debug!(xid = prefix.xid, %refusal, why, "call refused");
                self.refuse(prefix.xid, prefix.vers, refusal, shared);
            }
            Verdict::Serve(Some(slot)) => self.arrived(slot, shared),
            Verdict::Serve(None) => {}
        }
    }

    /// Whether a call may be continued: refused where this end has said that it takes no such in the reverse direction.
    pub(in crate::engine::v2) fn takes_continued(&self) -> bool {
        self.level >= ReverseDirection::Continued
    }

    fn judge(
        &mut self,
        prefix: &Prefix,
        lists: Rpcrdma2ChunkLists,
        payload: Option<(MessageBuf, bool)>,
        shared: &mut Shared,
    ) -> Verdict {
        let xid = prefix.xid;
        let limits = &shared.config;
        // RPC-over-RDMA v2 §4.5.3: this end has said that it takes no calls.
        if self.level == ReverseDirection::None {
            return Verdict::Refuse(Refusal::System, "a call in the reverse direction, where none is taken");
        }
        // RPC-over-RDMA v2 §7.2: the XIDs of header and RPC message differ. §6.2.2.1: RDMA2_F_RESPONSE says what msg_type
        // says.
        if let Some((message, _)) = &payload
            && message_type(message, xid) != Some(CALL)
        {
            return bad_xdr("no RPC call with the XID of its header");
        }
        if self.served.has_xid(xid) {
            return Verdict::Discard("a call with its XID is in progress");
        }
        // A peer that keeps to what it is granted stays far below: other messages than calls have credits of the reserve.
        if self.served.held() >= 2 * limits.credits.max(1) as usize + 2 {
            return Verdict::Refuse(Refusal::System, "more calls at a time than there are credits");
        }
        if let Err((refusal, why)) = self.check_counts(&lists, limits.max_chunks, limits.max_segments) {
            return Verdict::Refuse(refusal, why);
        }
        let Rpcrdma2ChunkLists { rdma_inv_handle, rdma_reads, rdma_writes: writes, rdma_reply: reply } = lists;
        let (inline, continued) = payload.map_or((None, false), |(message, continued)| (Some(message), continued));
        let reads =
            || rdma_reads.iter().map(|node| (node.rdma_entry.rdma_position, (&node.rdma_entry.rdma_target).into()));
        let sinks = || sinks::segments(&writes, reply.as_ref());
        let pulls = match check_chunks(reads(), inline.as_ref().map(|message| message.len()), sinks()) {
            Ok(pulls) => pulls,
            Err(why) => return bad_xdr(why),
        };
        // RPC-over-RDMA v2 §7.3.1. The Position Zero Read chunk is none of those that have a limit.
        if pulls.reduced() > limits.max_chunks as usize {
            let refusal = Refusal::ReadChunks { max: limits.max_chunks };
            return Verdict::Refuse(refusal, "too many Read chunks");
        }
        // RPC-over-RDMA v2 §11.1.4: a responder is not obliged to pull what is unreasonably large.
        if pulls.len() > limits.max_call_len.min(limits.max_pulled) {
            return Verdict::Refuse(Refusal::System, "more to pull than a call may have");
        }
        // Its message takes no room until its chunks do, so it is no longer than what is taken in any case.
        if continued && let Some(message) = inline.as_ref().filter(|_| pulls.len() > 0) {
            let octets = message.len() as u64;
            if octets > reassembly::always_taken(limits)
                || pulls.len() + octets > limits.max_call_len.min(limits.max_pulled)
            {
                return Verdict::Refuse(Refusal::System, "a continued message, and more to pull than a call may have");
            }
        }
        // RPC-over-RDMA v2 §4.3.6: the reply repeats the Write list and the Reply chunk.
        let reply_segments = reply.as_ref().map(|chunk| chunk.rdma_target.len() as u64);
        let reply_header = format::header_len(0, sinks::segment_counts(&writes), reply_segments);
        let Some(max_inline) = shared.send_threshold.checked_sub(reply_header).filter(|&left| left >= 4) else {
            // Of 16 octets each, and with room for the rest.
            let max = u32::try_from(shared.send_threshold.saturating_sub(64) / 24).unwrap_or(u32::MAX);
            return Verdict::Refuse(Refusal::Segments { max }, "more segments than fit in the reply's header");
        };
        // RPC-over-RDMA v2 §6.2.4: one of the header's handles, or it is not used.
        let named = |segment: Segment| rdma_inv_handle != 0 && segment.handle.0 == rdma_inv_handle;
        let invalidate = reads().any(|(_, segment)| named(segment)) || sinks().any(named);
        let invalidate = invalidate.then_some(Handle(rdma_inv_handle));
        let arrival = Arrival { xid, inline, continued, pulls, writes, reply, max_inline, invalidate };
        Verdict::Serve(self.served.take(arrival, shared))
    }

    /// Compares the numbers of chunks and segments with what this end takes.
    fn check_counts(
        &self,
        lists: &Rpcrdma2ChunkLists,
        max_chunks: u32,
        max_segments: u32,
    ) -> Result<(), (Refusal, &'static str)> {
        let Rpcrdma2ChunkLists { rdma_reads, rdma_writes, rdma_reply, .. } = lists;
        // RPC-over-RDMA v2 §4.5.4: without support for chunks in the reverse direction, one of §7.3 says so.
        if self.level < ReverseDirection::General {
            let why = "chunks in the reverse direction, where none are taken";
            if !rdma_reads.is_empty() {
                return Err((Refusal::ReadChunks { max: 0 }, why));
            }
            if !rdma_writes.is_empty() {
                // RPC-over-RDMA v2 §7.3.2: neither Write chunks nor continuation.
                let none = Refusal::ReplyResource { needed: 0 };
                return Err((if self.takes_continued() { Refusal::WriteChunks { max: 0 } } else { none }, why));
            }
            if rdma_reply.is_some() {
                return Err((Refusal::Segments { max: 0 }, why));
            }
        }
        // RPC-over-RDMA v2 §7.3.2.
        if rdma_writes.len() > max_chunks as usize {
            return Err((Refusal::WriteChunks { max: max_chunks }, "too many Write chunks"));
        }
        // RPC-over-RDMA v2 §7.3.3, §5.2.4.
        let segments = rdma_reads.len() as u64
            + sinks::segment_counts(rdma_writes).sum::<u64>()
            + rdma_reply.as_ref().map_or(0, |chunk| chunk.rdma_target.len() as u64);
        if segments > u64::from(max_segments) {
            return Err((Refusal::Segments { max: max_segments }, "too many segments"));
        }
        Ok(())
    }
}
