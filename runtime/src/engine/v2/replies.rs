//! Replies and errors: from a received message to the end of its call, or to its being sent again.

use super::{
    errors::Refusal, format::Prefix, header::Rpcrdma2ChunkLists, plan::Kept, properties::ReverseDirection,
    requester::Requester,
};
use crate::{
    engine::{
        CallFailure, Format,
        answer::Returned,
        calls::{Call, Phase},
        chunks::Segment,
        message::{REPLY, message_type},
        shared::Shared,
    },
    memory::MessageBuf,
    provider::Handle,
};

/// How often a call is sent again because its responder found fault with its chunks.
const MOST_RESENDS: u8 = 3;

/// Whether to send a call again.
enum Recovery {
    /// So: the responder did nothing, or may have carried it out.
    Again { executed: bool },
    /// It is over.
    Over,
}

impl Requester {
    /// Whether a reply with this XID may invalidate this handle.
    // RPC-over-RDMA v2 §6.2.4: only the one that the call named for that.
    pub(super) fn offers(&self, xid: u32, handle: Handle) -> bool {
        let call = self.calls.by_xid(xid).and_then(|slot| self.calls.get(slot));
        call.is_some_and(|call| call.invalidates == Some(handle))
    }

    /// Handles a reply: all of its payload, or none for RDMA2_NOMSG, and the chunks of its last message.
    pub(super) fn receive(
        &mut self,
        prefix: &Prefix,
        lists: &Rpcrdma2ChunkLists,
        payload: Option<(MessageBuf, bool)>,
        shared: &mut Shared,
    ) {
        let found = self.calls.by_xid(prefix.xid).and_then(|slot| Some((slot, self.calls.get(slot)?)));
        let Some((slot, call)) = found else { return shared.discard("no call in flight has its XID") };
        let outcome = match &payload {
            // RPC-over-RDMA v2 §6.2.2.1, §7.2: such a reply is discarded; no other will come for its call.
            Some((message, _)) if message_type(message, prefix.xid) != Some(REPLY) => {
                Err(CallFailure::BadReply("no RPC reply with the XID of its header".into()))
            }
            _ => {
                let returned = Returned {
                    has_reads: !lists.rdma_reads.is_empty(),
                    writes: lists.rdma_writes.iter().map(|node| node.rdma_entry.rdma_target.iter().map(Segment::from)),
                    reply: lists.rdma_reply.as_ref().map(|chunk| chunk.rdma_target.iter().map(Segment::from)),
                };
                let (message, continued) = payload.map_or((None, false), |(message, more)| (Some(message), more));
                call.check(message, continued, returned)
            }
        };
        if let Err(CallFailure::BadReply(why)) = &outcome {
            shared.discard(why);
        }
        self.calls.answered(slot, outcome, shared);
    }

    /// A reply that cannot be used: its call gets no other.
    pub(super) fn spoiled(&mut self, xid: u32, why: &'static str, shared: &mut Shared) {
        shared.discard(why);
        if let Some(slot) = self.calls.by_xid(xid) {
            self.calls.answered(slot, Err(CallFailure::BadReply(why.into())), shared);
        }
    }

    /// Handles RDMA2_ERROR; `false` where no call in flight has its XID.
    pub(super) fn refused(&mut self, xid: u32, refusal: Refusal, shared: &mut Shared) -> bool {
        let Some(slot) = self.calls.by_xid(xid) else { return false };
        let Some(call) = self.calls.get_mut(slot) else { return false };
        // Whether a Reply chunk may be offered at all.
        let chunks =
            self.level == ReverseDirection::General && shared.rules.segment_len > 0 && shared.rules.segments > 0;
        match call.recover(refusal, chunks, shared) {
            Recovery::Again { executed } => {
                let executed = executed.then_some(CallFailure::Refused(refusal));
                self.calls.send_again(slot, executed, shared);
            }
            Recovery::Over => {
                let failure = match refusal {
                    Refusal::Version { low, high } => CallFailure::VersionMismatch { low, high },
                    refusal => CallFailure::Refused(refusal),
                };
                self.calls.answered(slot, Err(failure), shared);
            }
        }
        true
    }
}

impl Call {
    /// What can be done about a refusal. What the peer has said of its limits holds for later calls too.
    fn recover(&mut self, refusal: Refusal, chunks: bool, shared: &mut Shared) -> Recovery {
        let rules = &mut shared.rules;
        let reads = self.kept.as_ref().map_or(0, Kept::reads);
        let (again, executed) = match refusal {
            // RPC-over-RDMA v2 §7.3.1 to §7.3.3: the responder has done nothing. A call that has kept to what it says would
            // be refused again; that others have been told of it meanwhile makes no difference.
            Refusal::ReadChunks { max } => (exceeds(reads, max as usize, &mut rules.read_chunks), false),
            Refusal::WriteChunks { max } => {
                (exceeds(self.offer.provided, max as usize, &mut rules.write_chunks), false)
            }
            Refusal::Segments { max } => (exceeds(self.segments, u64::from(max), &mut rules.segments), false),
            // RPC-over-RDMA v2 §7.1.2: nor if an extension conveyed it. It goes as the base has it, now that this is known.
            Refusal::HeaderType => (self.choice.format == Format::Extension, false),
            // RPC-over-RDMA v2 §7.3.4, §6.4: it has carried the call out, and might again.
            Refusal::WriteResource { chunk, needed } => {
                let chunk = (chunk as usize).checked_sub(1).filter(|&n| n < self.offer.provided);
                let chunk = chunk.and_then(|n| self.chunks.get_mut(n));
                let more = chunk.filter(|chunk| u64::from(needed) > chunk.max_len);
                (more.map(|chunk| chunk.max_len = needed.into()).is_some(), true)
            }
            // RPC-over-RDMA v2 §7.3.5, §6.4: the responder cannot continue messages, or not this one.
            Refusal::ReplyResource { needed } => {
                let more = chunks && u64::from(needed) > self.offer.reply_chunk.unwrap_or(0);
                rules.continued_replies = 0;
                self.max_inline = self.max_inline.max(needed.into());
                (more, true)
            }
            _ => (false, true),
        };
        let allowed = self.phase == Phase::Sent
            && self.kept.is_some()
            && self.resends < MOST_RESENDS
            && (!executed || self.policy.idempotent);
        if again && allowed { Recovery::Again { executed } } else { Recovery::Over }
    }
}

/// Whether a call had more than `max` of something; from now on, no call has.
fn exceeds<T: Ord + Copy>(had: T, max: T, limit: &mut T) -> bool {
    *limit = max.min(*limit);
    had > max
}
