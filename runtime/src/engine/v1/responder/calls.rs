//! Calls as they arrive: what is checked before anything is done for them (RFC 8166 §4.5).

use smallvec::SmallVec;

use super::{Call, Outgoing, Responder, Stage};
use crate::{
    engine::{
        Event, Format, IncomingCall, Payload, ReplyToken,
        chunks::Segment,
        pulls::{Pull, Pulls, overflows},
        shared::{Direction, Shared},
        v1::{
            errors::TransportError,
            format::{self, Fixed, PROC_ERROR, REPLY, VERSION},
            header::{RdmaBody, XdrReadList, XdrWriteChunk, XdrWriteList},
        },
    },
    memory::MessageBuf,
    provider::Handle,
    xdr::ReadChunk,
};

enum Verdict {
    Discard(&'static str),
    /// A reply, or an error in answer to a call: not for a responder.
    Reply(MessageBuf),
    Refuse(TransportError, &'static str),
    /// The call is in this slot.
    Serve {
        slot: u32,
        pull: bool,
    },
}

const fn refuse(why: &'static str) -> Verdict {
    Verdict::Refuse(TransportError::Chunk, why)
}

impl Responder {
    /// Handles a message received by a responder. A reply, which is of the other direction, is given back.
    pub(in crate::engine::v1) fn receive(&mut self, message: MessageBuf, shared: &mut Shared) -> Option<MessageBuf> {
        // RFC 8166 §4.5: a message shorter than a header is silently discarded before any parsing.
        let Some(fixed) = Fixed::peek(&message) else {
            shared.discard("shorter than a header");
            return None;
        };
        match self.judge(fixed, message, shared) {
            Verdict::Discard(why) => shared.discard(why),
            Verdict::Reply(message) => return Some(message),
            Verdict::Refuse(error, why) => {
                tracing::debug!(xid = fixed.xid, why, "call refused");
                self.held += 1;
                self.outgoing.push_back(Outgoing::Error { xid: fixed.xid, vers: fixed.vers, error });
            }
            Verdict::Serve { slot, pull } => {
                shared.counters.calls_received += 1;
                self.held += 1;
                self.xids.insert(fixed.xid);
                if pull { self.puller.wait(slot) } else { self.arrived(slot, shared) }
            }
        }
        None
    }

    fn judge(&mut self, fixed: Fixed, mut message: MessageBuf, shared: &Shared) -> Verdict {
        // RFC 8166 §4.2.4: the procedure's number is the same in all versions. Where it answers no call of the other
        // direction it is silently discarded.
        if fixed.proc == PROC_ERROR {
            return Verdict::Reply(message);
        }
        // RFC 8166 §4.5.1.
        if fixed.vers != VERSION {
            return Verdict::Refuse(TransportError::Version, "version not supported");
        }
        // RFC 8166 §4.5.2: what cannot be parsed is answered with ERR_CHUNK.
        let Ok((header, len)) = format::parse(&message) else { return refuse("malformed header") };
        let msg_type = message.get(len..).and_then(|payload| format::message_type(payload, fixed.xid));
        let (body, inline) = match header.rdma_body {
            RdmaBody::RdmaMsg(body) => match msg_type {
                // RFC 8166 §4.5.2: XIDs of header and RPC message differ.
                None => return refuse("no RPC message with the XID of its header"),
                Some(REPLY) => return Verdict::Reply(message),
                Some(_) => {
                    message.advance(len);
                    ((body.rdma_reads, body.rdma_writes, body.rdma_reply), Some(message))
                }
            },
            RdmaBody::RdmaNomsg(body) => ((body.rdma_reads, body.rdma_writes, body.rdma_reply), None),
            // RFC 8166 §4.6.1.
            RdmaBody::RdmaMsgp(_) => return refuse("RDMA_MSGP"),
            // RFC 8166 §4.6.2.
            RdmaBody::RdmaDone => return Verdict::Discard("RDMA_DONE"),
            RdmaBody::RdmaError(_) => return Verdict::Reply(message),
        };
        let (reads, writes, reply) = body;
        // RFC 8167 §5.3: without support for chunks in the reverse direction, a call that has some is answered ERR_CHUNK.
        if self.direction == Direction::Reverse && !(reads.is_empty() && writes.is_empty() && reply.is_none()) {
            return refuse("chunks in the reverse direction");
        }
        // An XID stands for one call at a time: a second one cannot be told from the first by its reply.
        if self.xids.contains(&fixed.xid) {
            return Verdict::Discard("a call with its XID is in progress");
        }
        let limits = &shared.config;
        let segments = reads.len() as u64
            + format::segment_counts(&writes).sum::<u64>()
            + reply.as_ref().map_or(0, |chunk| chunk.target.len() as u64);
        if segments > u64::from(limits.max_segments) {
            return refuse("too many segments");
        }
        let pulls = match Pull::group(reads.iter().map(|node| (node.entry.position, Segment::from(&node.entry.target))))
        {
            Ok(pulls) => pulls,
            Err(why) => return refuse(why),
        };
        let chunks = pulls.len() + writes.len() + usize::from(reply.is_some());
        if chunks > limits.max_chunks as usize {
            return refuse("too many chunks");
        }
        if let Err(why) = Pull::check_positions(&pulls, inline.as_ref().map(|message| message.len())) {
            return refuse(why);
        }
        let sinks = writes.iter().map(|node| &node.entry).chain(&reply);
        if sinks.flat_map(|chunk| &chunk.target).any(|segment| overflows(&segment.into())) {
            return refuse("a segment's end overflows");
        }
        let pull = pulls.iter().any(|pull| pull.len > 0);
        let pulls = Pulls::new(pulls);
        // RFC 8166 §8.1.4: a responder is not obliged to pull what is unreasonably large.
        if pulls.len() > limits.max_call_len.min(limits.max_pulled) {
            return refuse("more to pull than a call may have");
        }
        // RFC 8166 §4.3.2.2, §4.3.3: the reply repeats the Write list and the Reply chunk.
        let reply_segments = reply.as_ref().map(|chunk| chunk.target.len() as u64);
        let reply_header = format::header_len(0, format::segment_counts(&writes), reply_segments);
        let Some(max_inline) = shared.send_threshold.checked_sub(reply_header) else {
            return refuse("more segments than fit in the reply's header");
        };
        let invalidate = only_handle(&reads, &writes, reply.as_ref());
        let (slot, _) = self.calls.insert(Call {
            xid: fixed.xid,
            stage: Stage::Pulling,
            inline,
            pulls,
            writes,
            reply,
            max_inline,
            invalidate,
            announced: false,
            delivered: false,
        });
        Verdict::Serve { slot, pull }
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
                match format::message_type(&bytes, call.xid) {
                    // RFC 8166 §4.5.2.
                    None => {
                        drop(pulls);
                        return self.refuse_call(slot);
                    }
                    Some(REPLY) => {
                        drop(pulls);
                        shared.discard("reply in the reverse direction");
                        return self.forget(slot);
                    }
                    Some(_) => Payload::Long(bytes),
                }
            }
        };
        let reads: SmallVec<[ReadChunk; 2]> = pulls.map(|(position, data)| ReadChunk { position, data }).collect();
        let charge = call.pulls.take_charge();
        call.stage = Stage::Served;
        call.announced = true;
        let xid = call.xid;
        // RFC 8166 §3.5.
        let format = match &payload {
            Payload::Long(_) => Format::Long,
            Payload::Inline(_) if !reads.is_empty() => Format::Chunked,
            Payload::Inline(_) => Format::Short,
        };
        let Some(call) = self.calls.get(slot) else { return };
        let reply = self.plan(call);
        shared.events.push_back(Event::CallArrived(IncomingCall { token, xid, payload, format, reads, reply, charge }));
    }

    /// Lets go of a call without an answer.
    fn forget(&mut self, slot: u32) {
        if let Some(call) = self.calls.get(slot) {
            self.xids.remove(&call.xid);
            self.puller.release(call.pulls.held());
            self.held = self.held.saturating_sub(1);
            self.calls.remove(slot);
        }
    }
}

/// The handle that the reply's Send may invalidate: the only one that the call names. Where it names several, one
/// may be of memory that stays registered: Linux's client lets the padding of Write chunks land there.
fn only_handle(reads: &[XdrReadList], writes: &[XdrWriteList], reply: Option<&XdrWriteChunk>) -> Option<Handle> {
    let sinks = writes.iter().map(|node| &node.entry).chain(reply).flat_map(|chunk| &chunk.target);
    let mut handles = reads.iter().map(|node| &node.entry.target).chain(sinks).map(|segment| segment.handle);
    let first = handles.next()?;
    handles.all(|handle| handle == first).then_some(Handle(first))
}
