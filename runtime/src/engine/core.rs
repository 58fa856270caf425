//! The part of a connection that all wire versions share.

use super::{
    Role, TransportError,
    calls::LocalCalls,
    message::REPLY,
    served::{OutgoingResponse, ServedCalls},
    shared::EngineShared,
};

/// Calls in both directions, and what they work on.
#[derive(Debug)]
pub(super) struct ConnectionCore {
    pub(super) role: Role,
    pub(super) shared: EngineShared,
    /// Local calls.
    pub(super) calls: LocalCalls,
    /// Calls of the peer.
    pub(super) served: ServedCalls,
}

impl ConnectionCore {
    /// Hands a call of the peer's, which has arrived completely, to the upper layer.
    pub(super) fn arrived(&mut self, slot: u32) {
        match self.served.announce(slot, &mut self.shared) {
            Ok(()) => {}
            // RFC 8166 §4.5: a reply is not answered.
            Err(Some(REPLY)) if !self.shared.rules.direction_in_header => {
                self.shared.discard("reply in the reverse direction");
                self.served.forget(slot);
            }
            // RFC 8166 §4.5.2, RPC-over-RDMA v2 §7.2.
            Err(_) => self.served.respond(slot, OutgoingResponse::Refusal(TransportError::BadXdr)),
        }
    }

    /// Queues an error in answer to a message that belongs to no known call.
    pub(super) fn refuse(&mut self, (xid, vers): (u32, u32), refusal: TransportError, why: &'static str) {
        tracing::debug!(xid, %refusal, why, "message refused");
        // More of them than there are Receives is more than a peer could read the answers to.
        if self.served.waiting() > 2 * (self.shared.config.credits as usize + 16) {
            return self.shared.violation("more messages that had to be refused than it reads refusals");
        }
        self.served.push_error(xid, vers, refusal);
    }
}
