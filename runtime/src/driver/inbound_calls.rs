//! The user of a connection, as its driver sees it.

use std::sync::Arc;

use super::{command::ReplyCommand, port::DriverPort};
use crate::engine::{CloseReason, IncomingCall, ReplyToken};

/// The user of a connection: it answers the peer's calls.
pub(crate) trait InboundCalls: Send + 'static {
    /// A call has arrived. An answer that is returned goes out with the next Sends. A later answer comes by
    /// [`Command::Reply`](super::command::Command::Reply).
    fn call(&mut self, call: IncomingCall, port: &Arc<DriverPort>) -> Option<ReplyCommand>;

    /// The answer to a call was sent, or could not be sent.
    fn replied(&mut self, token: ReplyToken, delivered: bool);

    /// The connection has ended.
    fn closed(&mut self, reason: &CloseReason);
}

/// A user that answers no calls.
#[derive(Debug)]
pub(crate) struct NoInboundCalls;

impl InboundCalls for NoInboundCalls {
    // RFC 8166 §4.5: the engine of a client without a reverse direction yields no calls.
    fn call(&mut self, _call: IncomingCall, _port: &Arc<DriverPort>) -> Option<ReplyCommand> {
        Some(ReplyCommand::ChunkError)
    }

    fn replied(&mut self, _token: ReplyToken, _delivered: bool) {}

    fn closed(&mut self, _reason: &CloseReason) {}
}
