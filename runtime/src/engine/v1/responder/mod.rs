//! The responder: calls of the peer's from their arrival to their reply.

mod calls;
mod replies;

use super::{
    errors::TransportError,
    format::{HeaderWriter, REPLY},
    header::XdrWriteList,
};
use crate::{
    engine::{
        OutgoingReply, ReplyToken,
        credits::Receives,
        served::{Refuses, Served},
        shared::{Direction, Shared},
    },
    provider::QueuePair,
};

/// How a call is answered.
#[derive(Debug)]
pub(super) enum Answer {
    Reply(OutgoingReply),
    /// RDMA_ERROR with ERR_CHUNK.
    ChunkError,
}

impl Refuses for Answer {
    fn not_pulled() -> Self {
        Self::ChunkError
    }
}

/// The responder's side of a connection.
#[derive(Debug)]
pub(super) struct Responder {
    direction: Direction,
    /// Granted by every reply.
    credits: u32,
    pub(super) served: Served<XdrWriteList, Answer, TransportError>,
    /// Sends under way.
    sends: usize,
    /// Whether both ends agreed on Send with Invalidate (RFC 8797 §4.1).
    invalidate: bool,
    header: HeaderWriter,
}

impl Responder {
    pub(super) fn new(direction: Direction, credits: u32, invalidate: bool) -> Self {
        Self {
            direction,
            // RFC 8166 §3.3.1: a grant is never zero.
            credits: credits.max(1),
            served: Served::default(),
            sends: 0,
            invalidate,
            header: HeaderWriter::default(),
        }
    }

    /// The upper layer's reply to a call.
    pub(super) fn reply(&mut self, token: ReplyToken, reply: OutgoingReply) {
        self.served.answer(token, Answer::Reply(reply));
    }

    /// The upper layer wants the call refused by the transport.
    pub(super) fn reply_error(&mut self, token: ReplyToken) {
        self.served.answer(token, Answer::ChunkError);
    }

    /// Posts what is due: replies, and RDMA Reads for what they made room for.
    pub(super) fn poll_work(&mut self, qp: &mut impl QueuePair, receives: &mut Receives, shared: &mut Shared) {
        self.post_answers(qp, receives, shared);
        self.served.pull(qp, shared);
        // Calls that could not be admitted.
        self.post_answers(qp, receives, shared);
    }

    /// The connection is gone.
    pub(super) fn disconnected(&mut self, shared: &mut Shared) {
        self.served.disconnected(shared);
        self.sends = 0;
    }

    /// All of a call is here: hands it to the upper layer.
    pub(super) fn arrived(&mut self, slot: u32, shared: &mut Shared) {
        match self.served.announce(slot, shared) {
            Ok(()) => {}
            Err(Some(REPLY)) => {
                shared.discard("reply in the reverse direction");
                self.served.forget(slot);
            }
            // RFC 8166 §4.5.2.
            Err(_) => self.served.refuse(slot, Answer::ChunkError),
        }
    }
}
