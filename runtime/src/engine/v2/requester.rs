//! The requester: when calls are sent, and in which form (RPC-over-RDMA v2 §4.3, §4.4).

use std::time::Instant;

use super::{
    extension::{Extensions, RpcMessage},
    format::ListWriter,
    header::{RDMA2_MSG, RDMA2_NOMSG},
    outbox::{Fields, Outbox},
    plan::{KeptMessage, copy},
    properties::ReverseDirection,
};
use crate::{
    engine::{CallFailure, Choice, Format, FormatReason, calls::Calls, shared::Shared, work::Work},
    provider::QueuePair,
};

/// The requester's side of a connection.
#[derive(Debug)]
pub(super) struct Requester {
    pub(super) calls: Calls,
    /// What may be used for this end's calls: everything in the forward direction, what the peer takes in the other.
    pub(super) level: ReverseDirection,
    /// Most calls that this end has in flight.
    most: usize,
    /// Whether this end asks for Send with Invalidate.
    invalidate: bool,
    lists: ListWriter,
}

impl Requester {
    pub(super) fn new(calls: Calls, most: u32, invalidate: bool) -> Self {
        let (level, most) = (ReverseDirection::General, most.max(1) as usize);
        Self { calls, level, most, invalidate, lists: ListWriter::default() }
    }

    /// Whether another call may be in flight: more than the peer ever has Receives for would only wait there.
    pub(super) fn has_room(&self, outbox: &Outbox) -> bool {
        self.calls.in_flight() < self.most.min(outbox.budget.most())
    }

    /// Sends calls while there are credits for them.
    pub(super) fn poll_work(
        &mut self,
        qp: &mut impl QueuePair,
        now: Instant,
        outbox: &mut Outbox,
        extensions: &mut Extensions,
        shared: &mut Shared,
    ) {
        // A call whose connection is ending is left to that: it is lost with it, unsent.
        while outbox.is_ready() && self.has_room(outbox) && qp.is_open() {
            let Some(slot) = self.calls.next_queued(now, shared) else { break };
            if let Err(failure) = self.send(slot, qp, outbox, extensions, shared) {
                // RPC-over-RDMA v2 §7.4: the transaction fails at once.
                self.calls.finish(slot, Err(failure), shared);
            }
        }
    }

    /// Registers the memory of a call, and sends it.
    // RPC-over-RDMA v2 §11.1.3: memory is registered only now that the call is about to be sent.
    fn send(
        &mut self,
        slot: u32,
        qp: &mut impl QueuePair,
        outbox: &mut Outbox,
        extensions: &mut Extensions,
        shared: &mut Shared,
    ) -> Result<(), CallFailure> {
        // RPC-over-RDMA v2 §6.3.2: zero is no transaction's.
        let xid = match self.calls.free_xid() {
            0 => self.calls.free_xid(),
            xid => xid,
        };
        let Some(call) = self.calls.get_mut(slot) else { return Ok(()) };
        // RPC-over-RDMA v2 §4.5.1: the XIDs of header and RPC message are the same.
        let Some(mut message) = call.take_message(xid, &shared.config.pool)? else { return Ok(()) };
        let format = call.choose(&mut message, self.level, shared)?;
        let work = Work::CallSend { slot };
        // RPC-over-RDMA v2 appendix B.2.
        if format == Format::Short && !call.offer.has_chunks() {
            let rpc = RpcMessage { xid, is_reply: false, payload: &message };
            if let Some(conveyed) = extensions.convey(rpc, shared.send_threshold) {
                call.choice = Choice { format: Format::Extension, reason: FormatReason::Extension };
                call.keep(|| KeptMessage::Copy(message));
                self.calls.sending(slot, xid, shared);
                outbox.send_conveyed(qp, shared, (xid, 0), &conveyed, work);
                return Ok(());
            }
        }
        self.lists.clear();
        let payload = if format == Format::Long {
            let whole = message.freeze();
            call.keep(|| KeptMessage::Whole(whole.clone()));
            call.expose(Some(whole), qp, &mut self.lists, shared)?;
            None
        } else {
            call.keep(|| KeptMessage::Copy(copy(&message, &shared.config.pool)));
            call.expose(None, qp, &mut self.lists, shared)?;
            Some(message)
        };
        // RPC-over-RDMA v2 §6.2.4: one of the handles of the header, or zero.
        call.invalidates = call.exposure.first().filter(|_| self.invalidate && qp.remote_invalidation());
        if let Some(handle) = call.invalidates {
            self.lists.invalidate(handle);
        }
        self.calls.sending(slot, xid, shared);
        // RPC-over-RDMA v2 §6.2.2.1, §4.5.1: RDMA2_F_RESPONSE is clear in a call, whatever its direction.
        let lists = self.lists.finish();
        match (format, payload) {
            (Format::Continued, Some(payload)) => {
                outbox.send_continued(qp, shared, (xid, 0), lists, payload, work, None);
            }
            (_, payload) => {
                let htype = if payload.is_some() { RDMA2_MSG } else { RDMA2_NOMSG };
                outbox.send(qp, shared, Fields::new(xid, htype, 0), lists, payload, work, None);
            }
        }
        Ok(())
    }
}
