//! Calls as they arrive: what is checked before anything is done for them (RPC-over-RDMA v2 §7).

use smallvec::SmallVec;

use super::{Call, Outgoing, Responder, Stage};
use crate::{
    engine::{
        Event, Format, IncomingCall, Payload, ReplyToken,
        chunks::Segment,
        message::{CALL, message_type},
        pulls::{Pull, Pulls, overflows},
        shared::Shared,
        v2::{
            errors::Refusal,
            format::{self, Prefix},
            header::{Rpcrdma2ChunkLists, Rpcrdma2ReadList},
            properties::ReverseDirection,
        },
    },
    memory::MessageBuf,
    provider::Handle,
    xdr::ReadChunk,
};

enum Verdict {
    Discard(&'static str),
    Refuse(Refusal, &'static str),
    /// The call is in this slot; whether there is something to be pulled.
    Serve(u32, bool),
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
            Verdict::Serve(slot, pull) => {
                shared.counters.calls_received += 1;
                self.held += 1;
                self.xids.insert(prefix.xid);
                if pull { self.puller.wait(slot) } else { self.arrived(slot, shared) }
            }
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
        // An XID stands for one call at a time: a second one cannot be told from the first by its reply.
        if self.xids.contains(&xid) {
            return Verdict::Discard("a call with its XID is in progress");
        }
        // A peer that keeps to what it is granted stays far below: other messages than calls have credits of the reserve.
        if self.held >= 2 * limits.credits.max(1) as usize + 2 {
            return Verdict::Refuse(Refusal::System, "more calls at a time than there are credits");
        }
        if let Err((refusal, why)) = self.check_counts(&lists, limits.max_chunks, limits.max_segments) {
            return Verdict::Refuse(refusal, why);
        }
        let pulls = match read_chunks(&lists.rdma_reads) {
            Ok(pulls) => pulls,
            Err(why) => return bad_xdr(why),
        };
        let (inline, continued) = payload.map_or((None, false), |(message, continued)| (Some(message), continued));
        if let Err(why) = Pull::check_positions(&pulls, inline.as_ref().map(|message| message.len())) {
            return bad_xdr(why);
        }
        // The Position Zero Read chunk is none of those that have a limit.
        let reduced = pulls.iter().filter(|pull| pull.position != 0).count();
        if reduced > limits.max_chunks as usize {
            let refusal = Refusal::ReadChunks { max: limits.max_chunks };
            return Verdict::Refuse(refusal, "too many Read chunks");
        }
        let Rpcrdma2ChunkLists { rdma_inv_handle, rdma_reads, rdma_writes: writes, rdma_reply: reply } = lists;
        let sinks = writes.iter().map(|node| &node.rdma_entry).chain(&reply);
        if sinks.flat_map(|chunk| &chunk.rdma_target).any(|segment| overflows(&segment.into())) {
            return bad_xdr("a segment's end overflows");
        }
        let pull = pulls.iter().any(|pull| pull.len > 0);
        let mut pulls = Pulls::new(pulls);
        // RPC-over-RDMA v2 §11.1.4: a responder is not obliged to pull what is unreasonably large.
        if pulls.len() > limits.max_call_len.min(limits.max_pulled) {
            return Verdict::Refuse(Refusal::System, "more to pull than a call may have");
        }
        // RPC-over-RDMA v2 §4.3.6: the reply repeats the Write list and the Reply chunk.
        let reply_segments = reply.as_ref().map(|chunk| chunk.rdma_target.len() as u64);
        let reply_header = format::header_len(0, format::segment_counts(&writes), reply_segments);
        let Some(max_inline) = shared.send_threshold.checked_sub(reply_header).filter(|&left| left >= 4) else {
            // Of 16 octets each, and with room for the rest.
            let max = u32::try_from(shared.send_threshold.saturating_sub(64) / 24).unwrap_or(u32::MAX);
            return Verdict::Refuse(Refusal::Segments { max }, "more segments than fit in the reply's header");
        };
        // RPC-over-RDMA v2 §6.2.4: one of the header's handles, or it is not used.
        let handles = rdma_reads.iter().map(|node| &node.rdma_entry.rdma_target).map(|segment| segment.rdma_handle);
        let sinks = writes.iter().map(|node| &node.rdma_entry).chain(&reply).flat_map(|chunk| &chunk.rdma_target);
        let mut handles = handles.chain(sinks.map(|segment| segment.rdma_handle));
        let named = rdma_inv_handle != 0 && handles.any(|handle| handle == rdma_inv_handle);
        let format = match (&inline, continued, rdma_reads.is_empty()) {
            (None, ..) => Format::Long,
            (_, true, _) => Format::Continued,
            (_, _, false) => Format::Chunked,
            _ => Format::Short,
        };
        if let Some(message) = inline.as_ref().filter(|_| continued) {
            self.puller.keep(&mut pulls, message.len() as u64, shared);
        }
        let (slot, _) = self.calls.insert(Call {
            xid,
            stage: Stage::Pulling,
            format,
            inline,
            pulls,
            writes,
            reply,
            max_inline,
            invalidate: named.then_some(Handle(rdma_inv_handle)),
            announced: false,
            delivered: false,
        });
        Verdict::Serve(slot, pull)
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
                return Err((Refusal::WriteChunks { max: 0 }, why));
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
            + format::segment_counts(rdma_writes).sum::<u64>()
            + rdma_reply.as_ref().map_or(0, |chunk| chunk.rdma_target.len() as u64);
        if segments > u64::from(max_segments) {
            return Err((Refusal::Segments { max: max_segments }, "too many segments"));
        }
        Ok(())
    }

    /// All of a call is here: hands it to the upper layer.
    pub(super) fn arrived(&mut self, slot: u32, shared: &mut Shared) {
        let token = ReplyToken(self.calls.key(slot));
        let Some(call) = self.calls.get_mut(slot) else { return };
        let mut pulls = call.pulls.take();
        let payload = match call.inline.take() {
            Some(message) => Payload::Inline(message),
            None => {
                let (_, bytes) = pulls.next().unwrap_or_default();
                // RPC-over-RDMA v2 §7.2.
                if message_type(&bytes, call.xid) != Some(CALL) {
                    drop(pulls);
                    call.stage = Stage::Answered(super::Answer::Refusal(Refusal::BadXdr));
                    self.outgoing.push_back(Outgoing::Answer(slot));
                    return;
                }
                Payload::Long(bytes)
            }
        };
        let reads: SmallVec<[ReadChunk; 2]> = pulls.map(|(position, data)| ReadChunk { position, data }).collect();
        let charge = call.pulls.take_charge();
        call.stage = Stage::Served;
        call.announced = true;
        let (xid, format) = (call.xid, call.format);
        let Some(call) = self.calls.get(slot) else { return };
        let reply = self.plan(call);
        shared.events.push_back(Event::CallArrived(IncomingCall { token, xid, payload, format, reads, reply, charge }));
    }
}

/// Groups read segments by position into Read chunks, in ascending order.
fn read_chunks(reads: &[Rpcrdma2ReadList]) -> Result<SmallVec<[Pull; 2]>, &'static str> {
    let segments =
        reads.iter().map(|node| (node.rdma_entry.rdma_position, Segment::from(&node.rdma_entry.rdma_target)));
    Pull::group(segments)
}
