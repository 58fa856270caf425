//! Sending of RPC-over-RDMA version 2 messages. Each message uses a credit, except grants of credits. Only one RPC
//! message is partly sent at a time.

use super::{
    credits::{ReceiveCredits, SendCredits},
    format::{
        BARE, BARE_LEN, HeaderPrefix, MIN_PAYLOAD, PREFIX_LEN, VERSION, bare_header, continued_len, extension_flags,
    },
    header::{RDMA2_F_MORE, RDMA2_MSG, RDMA2_NOMSG},
};
use crate::{
    engine::{
        ExtensionMessage,
        common::{
            message::{alone, attach},
            shared::EngineShared,
            work::PostedFor,
        },
    },
    memory::{MessageBuf, Output},
    provider::{MemoryHandle, QueuePair},
};

/// The fields of a header prefix, without the credit field.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixFields {
    pub(super) xid: u32,
    pub(super) vers: u32,
    pub(super) htype: u32,
    pub(super) flags: u32,
}

impl PrefixFields {
    // RPC-over-RDMA v2 §4.5.1, §4.5.2: messages of both directions have the same version.
    pub(super) fn new(xid: u32, htype: u32, flags: u32) -> Self {
        Self { xid, vers: VERSION, htype, flags }
    }
}

/// An RPC message of which a part has been sent (RPC-over-RDMA v2 §4.4.2).
#[derive(Debug)]
struct OutgoingSequence {
    fields: PrefixFields,
    /// Chunk lists, which follow the prefix in the header of the last message.
    lists: Vec<u8>,
    /// The payload that has not been sent.
    payload: MessageBuf,
    work: PostedFor,
    invalidate: Option<MemoryHandle>,
}

/// The state of sending: the credits of both directions, and the RPC message that is partly sent.
#[derive(Debug)]
pub(super) struct Outbox {
    pub(super) budget: SendCredits,
    pub(super) grants: ReceiveCredits,
    sequence: Option<OutgoingSequence>,
}

impl Outbox {
    pub(super) fn new(budget: SendCredits, grants: ReceiveCredits) -> Self {
        Self { budget, grants, sequence: None }
    }

    /// Returns `true` if a message can be sent: there is a credit, and no RPC message is partly sent.
    // RPC-over-RDMA v2 §4.1: payload streams are not interleaved.
    pub(super) fn is_ready(&self) -> bool {
        self.sequence.is_none() && self.budget.available()
    }

    /// Returns `true` if sending has to wait for credits from the peer.
    pub(super) fn lacks_credit(&self) -> bool {
        !self.budget.available()
    }

    /// Returns `true` if a response is partly sent.
    pub(super) fn is_responding(&self) -> bool {
        self.sequence.as_ref().is_some_and(|sequence| sequence.work.is_response())
    }

    /// Sends a message that consists of a prefix, `header` and `payload`. Uses one credit.
    // RPC-over-RDMA v2 §4.1: the Transport stream comes first.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn send(
        &mut self,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
        fields: PrefixFields,
        header: &[u8],
        payload: Option<MessageBuf>,
        work: PostedFor,
        invalidate: Option<MemoryHandle>,
    ) {
        self.budget.take();
        let prefix = self.prefix(fields, qp);
        let pool = &shared.config.pool;
        let message = match payload {
            Some(mut payload) => {
                attach(header, &mut payload, pool);
                attach(&prefix.encode(), &mut payload, pool);
                payload
            }
            None => {
                let mut message = alone(&prefix.encode(), header.len(), pool);
                message.append(header);
                message
            }
        };
        qp.post(shared.send(work, message, invalidate));
    }

    /// Sends an RPC message without chunks in a single Send. Nearly all RPC messages are of this kind.
    #[inline(always)]
    pub(super) fn send_bare(
        &mut self,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
        (xid, flags): (u32, u32),
        mut message: MessageBuf,
        work: PostedFor,
    ) {
        self.budget.take();
        let prefix = self.prefix(PrefixFields::new(xid, RDMA2_MSG, flags), qp);
        attach(&bare_header(prefix), &mut message, &shared.config.pool);
        qp.post(shared.send(work, message, None));
    }

    /// Returns a prefix that grants credits, after posting the Receives for these credits.
    // RPC-over-RDMA v2 §6.2.2: no reserved flag is set. §7: errors grant credits as other messages do.
    #[inline]
    fn prefix(&mut self, fields: PrefixFields, qp: &mut dyn QueuePair) -> HeaderPrefix {
        let PrefixFields { xid, vers, htype, flags } = fields;
        HeaderPrefix { xid, vers, credit: self.grants.grant(qp), htype, flags }
    }

    /// Sends an RPC message conveyed by a message of an extension.
    pub(super) fn send_conveyed(
        &mut self,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
        (xid, flags): (u32, u32),
        message: &ExtensionMessage,
        work: PostedFor,
    ) {
        // RPC-over-RDMA v2 §6.2.2.1: RDMA2_F_RESPONSE is the `msg_type`, whatever flags the extension sets.
        let flags = flags | extension_flags(message.flags);
        self.send(qp, shared, PrefixFields::new(xid, message.header_type, flags), &message.body, None, work, None);
    }

    /// Sends an RPC message with `header` after the prefix, in several Sends if `is_continued` is `true`. Without a
    /// `payload`, sends RDMA2_NOMSG.
    // RPC-over-RDMA v2 §4.4.3: without a payload, its chunks convey it.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn send_rpc(
        &mut self,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
        (xid, flags): (u32, u32),
        header: &[u8],
        payload: Option<MessageBuf>,
        is_continued: bool,
        work: PostedFor,
        invalidate: Option<MemoryHandle>,
    ) {
        match payload {
            Some(payload) if is_continued => {
                self.send_continued(qp, shared, (xid, flags), header, payload, work, invalidate);
            }
            payload => {
                let htype = if payload.is_some() { RDMA2_MSG } else { RDMA2_NOMSG };
                self.send(qp, shared, PrefixFields::new(xid, htype, flags), header, payload, work, invalidate);
            }
        }
    }

    /// Sends an RPC message that is too long for one Send, as far as credits allow. `lists`, `work` and `invalidate`
    /// apply to the last of its messages.
    #[allow(clippy::too_many_arguments)]
    fn send_continued(
        &mut self,
        qp: &mut dyn QueuePair,
        shared: &mut EngineShared,
        (xid, flags): (u32, u32),
        lists: &[u8],
        payload: MessageBuf,
        work: PostedFor,
        invalidate: Option<MemoryHandle>,
    ) {
        // RPC-over-RDMA v2 §6.2.2.2: all messages share XID and header type, and only the last has chunks. §6.2.4: only
        // the last may invalidate a handle.
        let fields = PrefixFields::new(xid, RDMA2_MSG, flags);
        self.sequence = Some(OutgoingSequence { fields, lists: lists.to_vec(), payload, work, invalidate });
        shared.counters.continued_sent += 1;
        self.continue_sequence(qp, shared);
    }

    /// Sends more of the RPC message that is partly sent, as far as credits allow.
    // RPC-over-RDMA v2 §4.1: in the order of the XDR stream. §6.2.2.2: without credits, the sender waits for them.
    pub(super) fn continue_sequence(&mut self, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
        let threshold = usize::try_from(shared.send_threshold).unwrap_or(usize::MAX);
        while self.budget.available() {
            let Some(mut sequence) = self.sequence.take() else { break };
            let left = sequence.payload.len();
            if PREFIX_LEN + sequence.lists.len() + left <= threshold {
                let OutgoingSequence { fields, lists, payload, work, invalidate } = sequence;
                self.send(qp, shared, fields, &lists, Some(payload), work, invalidate);
                break;
            }
            // RPC-over-RDMA v2 §6.3.1: leave payload for the last message.
            let min = MIN_PAYLOAD as usize;
            let len = continued_len(threshold.saturating_sub(BARE_LEN).min(left.saturating_sub(min)).max(min));
            let mut message = MessageBuf::new(shared.config.pool.alloc(BARE_LEN + len), BARE_LEN);
            message.append(sequence.payload.get(..len).unwrap_or_default());
            sequence.payload.advance(len);
            let fields = PrefixFields { flags: sequence.fields.flags | RDMA2_F_MORE, ..sequence.fields };
            let sequence_work = sequence.work;
            self.sequence = Some(sequence);
            // Only the last message frees the slot of the call.
            let work = if sequence_work.is_response() { PostedFor::ErrorSend } else { PostedFor::ControlSend };
            self.send(qp, shared, fields, &BARE, Some(message), work, None);
        }
    }

    /// Returns XID and flags of the RPC message that is partly sent.
    pub(super) fn partly_sent(&self) -> Option<(u32, u32)> {
        self.sequence.as_ref().map(|sequence| (sequence.fields.xid, sequence.fields.flags))
    }

    /// Aborts the RPC message that is partly sent, because its chunks are deregistered and must not be used any more.
    /// Does nothing without a credit.
    // RPC-over-RDMA v2 §6.2.2.2: a different header type within a sequence makes the receiver drop the whole sequence
    // (§7.1.3). §6.2.2.1: RDMA2_F_RESPONSE remains that of the sequence, because it says whose XID it is.
    pub(super) fn abort_sequence(&mut self, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
        if !self.budget.available() {
            return;
        }
        let Some(OutgoingSequence { fields, .. }) = self.sequence.take() else { return };
        let fields = PrefixFields { htype: RDMA2_NOMSG, ..fields };
        self.send(qp, shared, fields, &BARE, None, PostedFor::ControlSend, None);
    }

    /// Grants credits with a message that uses none, if the peer may be waiting for them.
    // RPC-over-RDMA v2 §4.2.1.2, §6.3.2: RDMA2_NOMSG without chunks and with XID 0. It may be sent within a sequence,
    // because the peer may need the credits to continue its own sequence.
    pub(super) fn refresh(&mut self, qp: &mut dyn QueuePair, shared: &mut EngineShared) {
        if !self.grants.refresh_due() {
            return;
        }
        self.grants.refresh();
        let prefix = self.prefix(PrefixFields::new(0, RDMA2_NOMSG, 0), qp);
        let mut message = alone(&prefix.encode(), BARE.len(), &shared.config.pool);
        message.append(&BARE);
        shared.counters.grants_sent += 1;
        qp.post(shared.send(PostedFor::ControlSend, message, None));
    }

    /// Drops the RPC message that is partly sent, because the connection is lost.
    pub(super) fn reset(&mut self) {
        self.sequence = None;
    }
}
