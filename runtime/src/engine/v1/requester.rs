//! The requester: when calls are sent, and in which form. It sends RDMA_MSG and RDMA_NOMSG, never RDMA_ERROR
//! (RFC 8166 §4.2.4).

use std::time::Instant;

use super::format::{self, Body, HeaderWriter};
use crate::{
    engine::{
        CallFailure,
        calls::Calls,
        credits::Credits,
        shared::{Direction, Shared},
        work::Work,
    },
    provider::{QueuePair, WorkRequest},
};

/// The requester's side of a connection.
#[derive(Debug)]
pub(super) struct Requester {
    direction: Direction,
    pub(super) calls: Calls,
    pub(super) credits: Credits,
    header: HeaderWriter,
}

impl Requester {
    pub(super) fn new(direction: Direction, credits: u32, calls: Calls) -> Self {
        Self { direction, calls, credits: Credits::new(credits), header: HeaderWriter::default() }
    }

    /// Sends calls while there are credits for them.
    pub(super) fn poll_work(&mut self, qp: &mut impl QueuePair, now: Instant, shared: &mut Shared) {
        // A call whose connection is ending is left to that: it is lost with it, unsent.
        while self.credits.available() && qp.is_open() {
            let Some(slot) = self.calls.next_queued(now, shared) else { break };
            if let Err(failure) = self.send(slot, qp, shared) {
                // RFC 8166 §4.5.4: the transaction fails at once.
                self.calls.finish(slot, Err(failure), shared);
            }
        }
    }

    /// Registers the memory of a call that has its credit, and sends it.
    fn send(&mut self, slot: u32, qp: &mut impl QueuePair, shared: &mut Shared) -> Result<(), CallFailure> {
        let xid = self.calls.free_xid();
        let Some(call) = self.calls.get_mut(slot) else { return Ok(()) };
        let Some(message) = call.take_message(xid, &shared.config.pool)? else { return Ok(()) };
        let long = match self.direction {
            Direction::Forward => call.plan(message.len() as u64, shared)?,
            Direction::Reverse => call.plan_inline(message.len() as u64, shared)?,
        };
        self.header.clear();
        // RFC 8166 §3.3.1, RFC 8167 §5.1: every call asks for credits, of its own direction.
        let credit = self.credits.requested();
        let message = if long {
            call.expose(Some(message.freeze()), qp, &mut self.header, shared)?;
            format::alone(self.header.finish(xid, credit, Body::Nomsg), 0, &shared.config.pool)
        } else {
            call.expose(None, qp, &mut self.header, shared)?;
            format::attach(self.header.finish(xid, credit, Body::Msg), message, &shared.config.pool)
        };
        self.credits.take();
        self.calls.sending(slot, xid, shared);
        shared.counters.sent += message.len() as u64;
        qp.post(WorkRequest::Send { id: Work::CallSend { slot }.id(), message, invalidate: None, solicited: false });
        Ok(())
    }
}
