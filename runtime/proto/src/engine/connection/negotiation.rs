//! Version negotiation (RPC-over-RDMA v2 §4.2.3, RFC 8166 §4.2.2).

use crate::{
    engine::{
        CloseReason, NegotiationFailure, ProtocolViolation, Role, TransportError, Versions,
        common::{
            format::{FixedWords, PROC_ERROR},
            message::alone,
            work::PostedFor,
        },
        core::{connection_core::ConnectionCore, wire::Wire},
        v1, v2,
    },
    provider::DisconnectReason,
};

/// Maximum number of messages of unsupported versions that a server answers with an error.
const MAX_REFUSED: u32 = 8;

/// The state of version negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Negotiation {
    /// The version is not agreed. A client started with version 2. A server waits for a message of a supported version,
    /// and has refused `refused` messages.
    Open { refused: u32 },
    /// A client fell back to version 1 and has no reply yet. Its server reported that it supports this range of
    /// versions.
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
    /// Decides how to handle a message, and updates the state of the negotiation.
    pub(super) fn classify(&mut self, message: &[u8], wire: &dyn Wire, core: &mut ConnectionCore) -> FirstMessage {
        match (*self, core.role) {
            (Self::Agreed, _) => FirstMessage::Accept,
            (Self::FellBack(..), _) => {
                *self = Self::Agreed;
                FirstMessage::Accept
            }
            (Self::Open { .. }, Role::Client) => self.classify_reply(message, wire, core),
            (Self::Open { refused }, Role::Server) => self.classify_first(message, refused, core),
        }
    }

    /// Classifies a message that a client receives before the version is agreed.
    // RPC-over-RDMA v2 §4.2.3.2, §7.1.1: use a version that both support, never one that the server lacks. §4.2.3.3: a
    // version that is agreed does not change.
    fn classify_reply(&mut self, message: &[u8], wire: &dyn Wire, core: &mut ConnectionCore) -> FirstMessage {
        let fixed = FixedWords::peek(message);
        let refused = fixed.filter(|fixed| fixed.proc == PROC_ERROR && wire.negotiation_xid() == Some(fixed.xid));
        // RFC 8166 §4.5.1, RPC-over-RDMA v2 §7.1.1: the error has the format of any version.
        let supported =
            refused.and_then(|_| v1::supported_versions(message).or_else(|| v2::supported_versions(message)));
        let Some((low, high)) = supported else {
            if message.len() >= v2::PREFIX_LEN && fixed.is_some_and(|fixed| fixed.vers == v2::VERSION) {
                *self = Self::Agreed;
            }
            return FirstMessage::Accept;
        };
        if core.shared.config.versions.allows_v1() && (low..=high).contains(&v1::VERSION) {
            tracing::debug!(low, high, "the server does not support version 2; falling back to version 1");
            core.shared.counters.errors_received += 1;
            *self = Self::FellBack(low, high);
            return FirstMessage::UseVersion1 { handled: true };
        }
        let why = NegotiationFailure::NoCommonVersion;
        FirstMessage::Close(CloseReason::NegotiationFailed { why, versions: Some((low, high)) })
    }

    /// Classifies a message that a server receives before the version is agreed.
    fn classify_first(&mut self, message: &[u8], refused: u32, core: &mut ConnectionCore) -> FirstMessage {
        // RPC-over-RDMA v2 §7, RFC 8166 §4.5: a message that is too short is not parsed. The server has sent nothing
        // that an error could refer to.
        let min_len = |vers| if vers == v1::VERSION { v1::MIN_LEN } else { v2::PREFIX_LEN };
        let fixed =
            FixedWords::peek(message).filter(|fixed| message.len() >= min_len(fixed.vers) && fixed.proc != PROC_ERROR);
        let Some(fixed) = fixed else {
            core.shared.discard("not a message that starts a connection");
            return FirstMessage::Handled;
        };
        match fixed.vers {
            // RPC-over-RDMA v2 §4.2.3.1, §4.2.3.3: the version of the first message is the version of the connection.
            v2::VERSION => {
                *self = Self::Agreed;
                FirstMessage::Accept
            }
            v1::VERSION if core.shared.config.versions.allows_v1() => {
                *self = Self::Agreed;
                FirstMessage::UseVersion1 { handled: false }
            }
            _ if refused >= MAX_REFUSED => {
                FirstMessage::Close(CloseReason::PeerViolation(ProtocolViolation::UnsupportedVersions))
            }
            _ => {
                *self = Self::Open { refused: refused + 1 };
                refuse_version(fixed, core);
                FirstMessage::Handled
            }
        }
    }

    /// Returns the close reason of a connection that was lost.
    // RPC-over-RDMA v2 §4.2.3.2: a peer without version 2 may drop the connection, with or without an error.
    pub(super) fn lost(self, reason: DisconnectReason, wire: &dyn Wire, role: Role) -> CloseReason {
        let why = || NegotiationFailure::Disconnected(reason.clone());
        match self {
            Self::FellBack(low, high) => CloseReason::NegotiationFailed { why: why(), versions: Some((low, high)) },
            _ if role == Role::Client && !wire.has_received() => {
                CloseReason::NegotiationFailed { why: why(), versions: None }
            }
            _ => CloseReason::Disconnected(reason),
        }
    }
}

/// Queues an error for a message of an unsupported version.
// RPC-over-RDMA v2 §4.2.3.2, §7.1.1, RFC 8166 §4.5.1: the error repeats XID and version, and states the supported
// range.
fn refuse_version(FixedWords { xid, vers, .. }: FixedWords, core: &mut ConnectionCore) {
    let shared = &mut core.shared;
    let (low, high) = match shared.config.versions {
        Versions::V1 => (v1::VERSION, v1::VERSION),
        Versions::V2 => (v2::VERSION, v2::VERSION),
        Versions::Both => (v1::VERSION, v2::VERSION),
    };
    let credits = shared.config.credits.max(1);
    let bytes = if vers == v1::VERSION {
        let mut bytes = Vec::new();
        v1::encode_error(&mut bytes, (xid, vers), credits, TransportError::Version { low, high });
        bytes
    } else {
        v2::encode_version_error(xid, vers, credits, (low, high))
    };
    let message = alone(&bytes, 0, &shared.config.pool);
    shared.counters.errors_sent += 1;
    let request = shared.send(PostedFor::ErrorSend, message, None);
    shared.out.push_back(request);
}
