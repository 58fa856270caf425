//! Replies and errors: from a received message to the completion or retry of its call.

use super::WireV2;
use crate::{
    engine::{
        CallFailure, MessageFault, MessageFormat, MessagePayload, ReverseDirection, TransportError,
        common::{
            lists::ChunkLists,
            message::{REPLY, message_type},
            shared::EngineShared,
        },
        core::connection_core::ConnectionCore,
        requester::{
            call::{CallPhase, LocalCall},
            checked_reply::check_reply,
        },
        responder::served_call::NO_CHUNKS,
    },
    memory::MessageBuf,
    provider::MemoryHandle,
};

/// Maximum number of times that a call is sent again after the responder rejected it.
const MAX_RESENDS: u8 = 3;

/// The consequence of a refusal for the refused call.
enum RefusalRecovery {
    /// The call is sent again. `executed` is `true` if the responder may have executed it.
    Again { executed: bool },
    /// The call fails.
    Over,
}

/// Returns `true` if a reply with the XID `xid` may invalidate `handle`.
// RPC-over-RDMA v2 §6.2.4: only the handle that the call offered.
pub(super) fn may_invalidate(xid: u32, handle: MemoryHandle, core: &ConnectionCore) -> bool {
    let call = core.calls.by_xid(xid).and_then(|slot| core.calls.get(slot));
    call.is_some_and(|call| call.invalidates == Some(handle))
}

/// Discards an unusable reply and fails its call, which gets no other reply.
pub(super) fn fail_reply(xid: u32, fault: MessageFault, core: &mut ConnectionCore) {
    core.shared.discard(fault);
    if let Some(slot) = core.calls.by_xid(xid) {
        core.calls.answered(slot, Err(CallFailure::BadReply(fault)), &mut core.shared);
    }
}

impl WireV2 {
    /// Handles a reply. `payload` contains the complete payload, and `true` if the payload arrived in several messages.
    /// `payload` is `None` for RDMA2_NOMSG. `lists` are the chunks of the last message.
    pub(super) fn handle_reply(
        &mut self,
        xid: u32,
        lists: &ChunkLists,
        payload: Option<(MessageBuf, bool)>,
        core: &mut ConnectionCore,
    ) {
        let found = core.calls.by_xid(xid).and_then(|slot| Some((slot, core.calls.get(slot)?)));
        let Some((slot, call)) = found else { return core.shared.discard("no call in flight has its XID") };
        let outcome = match payload {
            // RPC-over-RDMA v2 §6.2.2.1, §7.2: discarded. The call fails, because it gets no other reply.
            Some((message, _)) if message_type(&message, xid) != Some(REPLY) => Err(MessageFault::XidMismatch),
            Some((message, false)) if lists.is_empty() && call.is_plain() => {
                return core.calls.answered_plain(slot, MessagePayload::Inline(message), &mut core.shared);
            }
            payload => {
                let (message, continued) = payload.map_or((None, false), |(message, more)| (Some(message), more));
                check_reply(call, message, continued, lists)
            }
        };
        if let Err(fault) = &outcome {
            core.shared.discard(fault);
        }
        core.calls.answered(slot, outcome.map_err(CallFailure::BadReply), &mut core.shared);
    }

    /// Handles a reply without chunks that arrived in one message. `words` are the first two words of its payload.
    #[inline(always)]
    pub(super) fn handle_plain_reply(
        &mut self,
        xid: u32,
        words: [u32; 2],
        message: MessageBuf,
        core: &mut ConnectionCore,
    ) {
        let slot = core.calls.by_xid(xid).filter(|&slot| core.calls.get(slot).is_some_and(LocalCall::is_plain));
        match slot {
            Some(slot) if words == [xid, REPLY] => {
                core.calls.answered_plain(slot, MessagePayload::Inline(message), &mut core.shared);
            }
            _ => self.handle_reply(xid, &NO_CHUNKS, Some((message, false)), core),
        }
    }

    /// Handles RDMA2_ERROR: sends the refused call again, or completes it with the error. Returns `true` if a call in
    /// flight has this XID.
    pub(super) fn handle_refusal(&mut self, xid: u32, refusal: TransportError, core: &mut ConnectionCore) -> bool {
        let ConnectionCore { calls, shared, .. } = core;
        let Some(slot) = calls.by_xid(xid) else { return false };
        let Some(call) = calls.get_mut(slot) else { return false };
        if refusal == TransportError::HeaderType {
            match call.choice.format {
                MessageFormat::Extension => {}
                MessageFormat::Long => shared.rules.long_calls = false,
                _ => self.msg_refused = true,
            }
        }
        match recover(call, refusal, shared) {
            RefusalRecovery::Again { executed } => {
                let executed = executed.then_some(CallFailure::Refused(refusal));
                calls.send_again(slot, executed, shared);
            }
            // RPC-over-RDMA v2 §7.1.1, §7.1.2, §7.1.3, §7.2.1, §7.3.1, §7.3.2, §7.3.3, §7.3.4, §7.3.5, §7.4.1: the
            // error completes a call that is not sent again.
            RefusalRecovery::Over => {
                let failure = match refusal {
                    TransportError::Version { low, high } => CallFailure::VersionMismatch { low, high },
                    refusal => CallFailure::Refused(refusal),
                };
                calls.answered(slot, Err(failure), shared);
            }
        }
        true
    }
}

/// Decides whether a refused call is sent again. Limits that the peer states also apply to later calls.
fn recover(call: &mut LocalCall, refusal: TransportError, shared: &mut EngineShared) -> RefusalRecovery {
    let rules = &mut shared.rules;
    // The peer accepts Reply chunks in this direction.
    let chunks = rules.peer_level == ReverseDirection::General && rules.segment_len > 0 && rules.segments > 0;
    let reads = call.kept.as_ref().map_or(0, |kept| kept.reduced.len());
    let again = match refusal {
        // RPC-over-RDMA v2 §7.3.1 to §7.3.3: the responder has not executed the call. A call that already respected the
        // stated limit is not retried, because it would be refused again.
        TransportError::ReadChunks { max } => exceeds(reads, max as usize, &mut rules.read_chunks),
        TransportError::WriteChunks { max } => {
            exceeds(call.reply_chunks.provided, max as usize, &mut rules.write_chunks)
        }
        TransportError::Segments { max } => exceeds(call.segments, u64::from(max), &mut rules.segments),
        // RPC-over-RDMA v2 §7.1.2: the responder ignored the unsupported header type. The call is sent in another one.
        TransportError::HeaderType => matches!(call.choice.format, MessageFormat::Extension | MessageFormat::Long),
        // RPC-over-RDMA v2 §7.3.4, §6.4: the responder executed the call, and may do so again.
        TransportError::WriteResource { chunk, needed } => {
            let chunk = (chunk as usize).checked_sub(1).filter(|&n| n < call.reply_chunks.provided);
            let chunk = chunk.and_then(|n| call.chunks.get_mut(n));
            let more = chunk.filter(|chunk| u64::from(needed) > chunk.max_len);
            more.map(|chunk| chunk.max_len = needed.into()).is_some()
        }
        // RPC-over-RDMA v2 §7.3.5, §6.4: the responder cannot continue messages, or not this one.
        TransportError::ReplyResource { needed } => {
            let more = chunks && u64::from(needed) > call.reply_chunks.reply_chunk.unwrap_or(0);
            rules.continued_replies = 0;
            call.max_inline = call.max_inline.max(needed.into());
            more
        }
        _ => false,
    };
    let executed = !refusal.is_unexecuted();
    let allowed = call.phase == CallPhase::Sent
        && call.kept.is_some()
        && call.resends < MAX_RESENDS
        && (!executed || call.policy.idempotent);
    if again && allowed { RefusalRecovery::Again { executed } } else { RefusalRecovery::Over }
}

/// Lowers `limit` to `max` for later calls, unless it is lower already. Returns `true` if the value `had` of the
/// refused call exceeds `max`.
fn exceeds<T: Ord + Copy>(had: T, max: T, limit: &mut T) -> bool {
    *limit = max.min(*limit);
    had > max
}
