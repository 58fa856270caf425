//! Version negotiation (RPC-over-RDMA v2 §4.2.3, RFC 8166 §4.2.2).

use super::{
    CloseReason, Role,
    core::ConnectionCore,
    message::{alone, word},
    wire::Wire,
    work::PostedFor,
};
use crate::{
    provider::{DisconnectReason, WorkRequest},
    xdr::Output,
};

/// Most messages of unsupported versions that a server answers with an error.
const MOST_REFUSED: u32 = 8;
/// Length of the shortest header of either version, in bytes.
const LEAST_HEADER: usize = 20;
/// Length of the shortest header of version 1 that is not an error, in bytes.
const LEAST_HEADER_1: usize = 28;
/// `rdma_proc`, or `rdma_htype`, of an error; the same in all versions (RFC 8166 §4.2.4).
const PROC_ERROR: u32 = 4;
/// `rdma_err` of an unsupported version; the same in all versions (RFC 8166 §4.5.1).
const ERR_VERS: u32 = 1;
/// The flag that version 2 sets in an error (RPC-over-RDMA v2 §6.2.2.1).
const RESPONSE: u32 = 1;

/// The state of version negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Negotiation {
    /// The version is not agreed. A client started with version 2; a server waits for the first message and has refused
    /// `refused` messages.
    Open { refused: u32 },
    /// A client fell back to version 1 and has no reply yet. Its server reported that it supports this range of versions.
    FellBack(u32, u32),
    /// The version is agreed.
    Agreed,
}

/// The consequence of a message that arrived before the version was agreed.
#[derive(Debug)]
pub(super) enum FirstMessage {
    /// The wire version handles the message.
    Accept,
    /// The message needs no further handling.
    Handled,
    /// The connection continues in version 1, which handles the message unless it is `handled`.
    UseVersion1 {
        handled: bool,
    },
    Close(CloseReason),
}

impl Negotiation {
    /// Classifies a message by its version.
    pub(super) fn judge(&mut self, message: &[u8], wire: &dyn Wire, core: &mut ConnectionCore) -> FirstMessage {
        match (*self, core.role) {
            (Self::Agreed, _) => FirstMessage::Accept,
            (Self::FellBack(..), _) => {
                *self = Self::Agreed;
                FirstMessage::Accept
            }
            (Self::Open { .. }, Role::Client) => self.judge_answer(message, wire, core),
            (Self::Open { refused }, Role::Server) => self.judge_first(message, refused, core),
        }
    }

    /// Classifies a message that a client receives.
    // RPC-over-RDMA v2 §4.2.3.2, §7.1.1: use a version that both support, never one that the server lacks.
    fn judge_answer(&mut self, message: &[u8], wire: &dyn Wire, core: &mut ConnectionCore) -> FirstMessage {
        let Some((low, high)) = wire.other_versions(message) else {
            if message.len() >= LEAST_HEADER && word(message, 1) == Some(2) {
                *self = Self::Agreed;
            }
            return FirstMessage::Accept;
        };
        if core.shared.config.versions.contains(&1) && low <= 1 && high >= 1 {
            tracing::debug!(low, high, "the server does not support version 2; falling back to version 1");
            core.shared.counters.errors_received += 1;
            *self = Self::FellBack(low, high);
            return FirstMessage::UseVersion1 { handled: true };
        }
        let why = "the peer supports none of the versions enabled locally".to_owned();
        FirstMessage::Close(CloseReason::NegotiationFailed { why, versions: Some((low, high)) })
    }

    /// Classifies the first message that a server receives.
    fn judge_first(&mut self, message: &[u8], refused: u32, core: &mut ConnectionCore) -> FirstMessage {
        // RPC-over-RDMA v2 §7, RFC 8166 §4.5: a message that is too short is not parsed. The server has sent nothing that an
        // error could refer to.
        let version = word(message, 1);
        let least = if version == Some(1) { LEAST_HEADER_1 } else { LEAST_HEADER };
        if message.len() < least || word(message, 3) == Some(PROC_ERROR) {
            core.shared.discard("not a message that starts a connection");
            return FirstMessage::Handled;
        }
        match version {
            // RPC-over-RDMA v2 §4.2.3.3: the version of the first message is the version of the connection.
            Some(2) => {
                *self = Self::Agreed;
                FirstMessage::Accept
            }
            Some(1) if core.shared.config.versions.contains(&1) => {
                *self = Self::Agreed;
                FirstMessage::UseVersion1 { handled: false }
            }
            _ if refused >= MOST_REFUSED => {
                FirstMessage::Close(CloseReason::PeerViolation("no message of a supported version".to_owned()))
            }
            _ => {
                *self = Self::Open { refused: refused + 1 };
                refuse_version(message, core);
                FirstMessage::Handled
            }
        }
    }

    /// Returns the close reason of a connection that was lost.
    // RPC-over-RDMA v2 §4.2.3.2: a peer without version 2 may drop the connection, with or without an error.
    pub(super) fn lost(self, reason: DisconnectReason, wire: &dyn Wire, role: Role) -> CloseReason {
        match self {
            Self::FellBack(low, high) => {
                CloseReason::NegotiationFailed { why: reason.to_string(), versions: Some((low, high)) }
            }
            _ if role == Role::Client && !wire.is_heard() => {
                CloseReason::NegotiationFailed { why: reason.to_string(), versions: None }
            }
            _ => CloseReason::Disconnected(reason),
        }
    }
}

/// Sends an error for a message of an unsupported version.
// RPC-over-RDMA v2 §7.1.1, RFC 8166 §4.5.1: the error repeats XID and version, and states the supported range.
fn refuse_version(message: &[u8], core: &mut ConnectionCore) {
    let (Some(xid), Some(vers)) = (word(message, 0), word(message, 1)) else { return };
    let shared = &mut core.shared;
    let (low, high) = (*shared.config.versions.start().max(&1), *shared.config.versions.end().min(&2));
    let credit = shared.config.credits.clamp(1, 0xffff);
    let mut bytes = Vec::with_capacity(32);
    // In version 1 the header has no flags.
    let flags = (vers != 1).then_some(RESPONSE);
    let words = [xid, vers, credit, PROC_ERROR].into_iter().chain(flags).chain([ERR_VERS, low, high]);
    words.for_each(|word| bytes.append_u32(word));
    let message = alone(&bytes, 0, &shared.config.pool);
    shared.counters.errors_sent += 1;
    shared.counters.bytes_sent += message.len() as u64;
    shared.untaken.begin();
    shared.out.push_back(WorkRequest::Send {
        id: PostedFor::ErrorSend.id(),
        message,
        invalidate: None,
        solicited: false,
        signaled: true,
    });
}
