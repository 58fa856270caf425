//! The interface from a connection's driver to the handlers of inbound calls.

use std::sync::Arc;

use super::{command::ReplyCommand, port::DriverPort};
use crate::engine::{CloseReason, IncomingCall, ReplyToken};

/// The handlers of the peer's calls on one connection.
pub(crate) trait InboundCalls: Send + 'static {
    /// Handles a call that has arrived. Returns the reply if it is ready, so that it goes out with the next Sends.
    /// Otherwise, the reply is sent later with [`DriverPort::reply`].
    fn call(&mut self, call: IncomingCall, port: &Arc<DriverPort>) -> Option<ReplyCommand>;

    /// Reports that the reply to a call was sent (`delivered` is `true`), or that it could not be sent.
    fn replied(&mut self, token: ReplyToken, delivered: bool);

    /// Reports that the connection was closed.
    fn closed(&mut self, reason: &CloseReason);
}

/// The handlers of a connection without inbound calls. Every call is rejected.
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
