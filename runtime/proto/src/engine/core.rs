//! Connection state that all wire versions share.

use std::fmt;

use super::{
    ProtocolViolation, Role, TransportError,
    calls::LocalCalls,
    message::REPLY,
    served::{OutgoingResponse, ServedCalls},
    shared::EngineShared,
};

/// Calls in both directions and the state they share.
#[derive(Debug)]
pub(super) struct ConnectionCore {
    pub(super) role: Role,
    pub(super) shared: EngineShared,
    /// Local calls.
    pub(super) calls: LocalCalls,
    /// Calls from the peer.
    pub(super) served: ServedCalls,
}

impl ConnectionCore {
    /// Delivers a complete call from the peer to the upper layer.
    pub(super) fn arrived(&mut self, slot: u32) {
        match self.served.announce(slot, &mut self.shared) {
            Ok(()) => {}
            // RFC 8166 §4.5: no error is sent for a reply.
            Err(Some(REPLY)) if !self.shared.rules.direction_in_header => {
                self.shared.discard("reply in the reverse direction");
                self.served.forget(slot);
            }
            // RFC 8166 §4.5.2, RPC-over-RDMA v2 §7.2.
            Err(_) => self.served.respond(slot, OutgoingResponse::Refusal(TransportError::BadXdr)),
        }
    }

    /// Queues an error for a message that belongs to no known call.
    pub(super) fn refuse(&mut self, (xid, vers): (u32, u32), refusal: TransportError, why: impl fmt::Display) {
        tracing::debug!(xid, %refusal, %why, "message refused");
        // A peer that causes more errors than it has posted Receives could not receive them.
        if self.served.waiting() > 2 * (self.shared.config.credits as usize + 16) {
            return self.shared.violation(ProtocolViolation::TooManyErrors);
        }
        self.served.push_error(xid, vers, refusal);
    }
}
