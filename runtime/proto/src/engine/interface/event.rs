//! Events that an engine reports.

use super::{
    failure::{CallFailure, CloseReason},
    incoming::IncomingCall,
    types::{CallId, IncomingReply, ReplyToken},
};

/// Event that an engine reports. The enumeration is exhaustive, because a driver has to handle every event.
#[derive(Debug)]
pub enum EngineEvent {
    /// A local call has finished. Its identifier is no longer valid.
    CallFinished {
        /// Identifier that `start_call` returned.
        id: CallId,
        /// Reply, or the reason why there is none.
        result: Result<IncomingReply, CallFailure>,
    },
    /// The peer sent a call.
    CallArrived(IncomingCall),
    /// The last Send of a reply, or the last byte of its record, was passed to the transport, or the reply could not be
    /// sent.
    ReplySent {
        /// Token of the call.
        token: ReplyToken,
        /// `false` if the reply could not be sent, for example because the connection ended first, or because the
        /// requester provided too few resources for the reply.
        delivered: bool,
    },
    /// The connection is closed. Every call has finished before this event.
    Closed(CloseReason),
}
