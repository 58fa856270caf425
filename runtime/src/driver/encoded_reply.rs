//! Encoded replies with their outcomes.

use bytes::Bytes;

use super::ReplyCommand;
use crate::{engine::OutgoingReply, rpc::RpcError};

/// The encoded reply to a call, which a [`Service`](crate::server::Service) returns to the server.
///
/// [`InboundCall::finish`](crate::server::InboundCall::finish) creates it from the result of a handler. An
/// `EncodedReply` can also end the call without an RPC reply.
#[derive(Debug)]
#[must_use]
pub struct EncodedReply {
    pub(crate) command: ReplyCommand,
    pub(crate) outcome: ReplyOutcome,
}

/// The outcome that a reply reports.
#[derive(Debug)]
pub(crate) enum ReplyOutcome {
    /// The call succeeded, and the reply carries its results.
    Success,
    /// The call succeeded, but its results still have to be protected. The message of the reply contains only its
    /// header.
    // Boxed because it is rare, and would enlarge every reply.
    Unprotected(Box<Bytes>),
    /// An RPC error.
    #[cfg_attr(
        not(any(test, feature = "metrics", feature = "tower")),
        expect(dead_code, reason = "metrics and layers read it")
    )]
    Error(RpcError),
    /// There is no RPC reply.
    None,
}

impl EncodedReply {
    /// Creates a reply with results.
    #[inline(always)]
    pub(crate) fn success(reply: OutgoingReply) -> Self {
        Self { command: ReplyCommand::Reply(reply), outcome: ReplyOutcome::Success }
    }

    /// Creates a reply with results that have to be protected. `header` contains only the header of the reply.
    pub(crate) fn unprotected(header: OutgoingReply, results: Bytes) -> Self {
        Self { command: ReplyCommand::Reply(header), outcome: ReplyOutcome::Unprotected(Box::new(results)) }
    }

    /// Creates a reply that ends the call by a command other than [`ReplyCommand::Reply`].
    pub(crate) fn without_rpc_reply(command: ReplyCommand) -> Self {
        Self { command, outcome: ReplyOutcome::None }
    }
}

#[cfg(feature = "introspection")]
impl EncodedReply {
    /// Returns `true` if the call has results.
    pub(crate) fn is_success(&self) -> bool {
        matches!(self.outcome, ReplyOutcome::Success | ReplyOutcome::Unprotected(_))
    }
}

#[cfg(feature = "metrics")]
impl EncodedReply {
    /// Returns the RPC reply if it has results that need no protection.
    #[inline(always)]
    pub(crate) fn results(&self) -> Option<&OutgoingReply> {
        match (&self.outcome, &self.command) {
            (ReplyOutcome::Success, ReplyCommand::Reply(reply)) => Some(reply),
            _ => None,
        }
    }
}

#[cfg(any(feature = "metrics", feature = "tower"))]
impl EncodedReply {
    /// Returns the outcome that the reply reports.
    pub(crate) fn outcome(&self) -> &ReplyOutcome {
        &self.outcome
    }

    /// Returns the encoded RPC reply, or `None` if the call ends without one.
    pub(crate) fn rpc_reply(&self) -> Option<&OutgoingReply> {
        match &self.command {
            ReplyCommand::Reply(reply) => Some(reply),
            ReplyCommand::ChunkError | ReplyCommand::Discard => None,
        }
    }

    /// Returns the length of the payload stream in bytes, including results that still have to be protected. Returns 0
    /// if there is no RPC reply.
    pub(crate) fn inline_len(&self) -> usize {
        let unprotected = if let ReplyOutcome::Unprotected(results) = &self.outcome { results.len() } else { 0 };
        self.rpc_reply().map_or(0, |reply| reply.message.len()).saturating_add(unprotected)
    }

    /// Returns `true` if the caller gets no RPC reply and no transport error that names a fault.
    pub(crate) fn is_discarded(&self) -> bool {
        matches!(self.command, ReplyCommand::Discard)
    }
}
