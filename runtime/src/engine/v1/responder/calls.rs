//! Calls as they arrive: what is checked before anything is done for them (RFC 8166 §4.5).

use super::Responder;
use crate::{
    engine::{
        chunks::Segment,
        served::{Arrival, check_chunks},
        shared::{Direction, Shared},
        sinks,
        v1::{
            errors::TransportError,
            format::{self, Fixed, PROC_ERROR, REPLY, VERSION},
            header::RdmaBody,
        },
    },
    memory::MessageBuf,
    provider::Handle,
};

enum Verdict {
    Discard(&'static str),
    /// A reply, or an error in answer to a call: not for a responder.
    Reply(MessageBuf),
    Refuse(TransportError, &'static str),
    /// The call is taken; its slot, if all of it is here.
    Serve(Option<u32>),
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
                self.served.push_error(fixed.xid, fixed.vers, error);
            }
            Verdict::Serve(Some(slot)) => self.arrived(slot, shared),
            Verdict::Serve(None) => {}
        }
        None
    }

    fn judge(&mut self, fixed: Fixed, mut message: MessageBuf, shared: &mut Shared) -> Verdict {
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
        if self.served.has_xid(fixed.xid) {
            return Verdict::Discard("a call with its XID is in progress");
        }
        let limits = &shared.config;
        let reads = || reads.iter().map(|node| (node.entry.position, Segment::from(&node.entry.target)));
        let sinks = || sinks::segments(&writes, reply.as_ref());
        if reads().len() + sinks().count() > limits.max_segments as usize {
            return refuse("too many segments");
        }
        let pulls = match check_chunks(reads(), inline.as_ref().map(|message| message.len()), sinks()) {
            Ok(pulls) => pulls,
            Err(why) => return refuse(why),
        };
        // Of each list, as bindings limit the items of each direction; a whole message's chunk is none of those that have a limit.
        if pulls.reduced().max(writes.len()) > limits.max_chunks as usize {
            return refuse("too many chunks");
        }
        // RFC 8166 §8.1.4: a responder is not obliged to pull what is unreasonably large.
        if pulls.len() > limits.max_call_len.min(limits.max_pulled) {
            return refuse("more to pull than a call may have");
        }
        // RFC 8166 §4.3.2.2, §4.3.3: the reply repeats the Write list and the Reply chunk.
        let reply_segments = reply.as_ref().map(|chunk| chunk.target.len() as u64);
        let reply_header = format::header_len(0, sinks::segment_counts(&writes), reply_segments);
        let Some(max_inline) = shared.send_threshold.checked_sub(reply_header) else {
            return refuse("more segments than fit in the reply's header");
        };
        let invalidate = only_handle(reads().map(|(_, segment)| segment).chain(sinks()));
        let arrival =
            Arrival { xid: fixed.xid, inline, continued: false, pulls, writes, reply, max_inline, invalidate };
        Verdict::Serve(self.served.take(arrival, shared))
    }
}

/// The handle that the reply's Send may invalidate: the only one that the call names. Where it names several, one
/// may be of memory that stays registered: Linux's client lets the padding of Write chunks land there.
fn only_handle(segments: impl Iterator<Item = Segment>) -> Option<Handle> {
    let mut handles = segments.map(|segment| segment.handle);
    let first = handles.next()?;
    handles.all(|handle| handle == first).then_some(first)
}
