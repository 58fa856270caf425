//! Connection state that all wire versions share.

use crate::engine::{
    ReverseDirection, Role, common::shared::EngineShared, requester::calls::LocalCalls, responder::served::ServedCalls,
};

/// The calls of both directions, and the state that these share.
#[derive(Debug)]
pub(in crate::engine) struct ConnectionCore {
    pub(in crate::engine) role: Role,
    pub(in crate::engine) shared: EngineShared,
    /// Calls that the local peer makes.
    pub(in crate::engine) calls: LocalCalls,
    /// Calls that the local peer receives.
    pub(in crate::engine) served: ServedCalls,
}

impl ConnectionCore {
    /// Returns `true` if calls from the peer may be continued in several Sends.
    // RPC-over-RDMA v2 §5.2.5.
    pub(in crate::engine) fn accepts_continued(&self) -> bool {
        self.shared.rules.local_level >= ReverseDirection::Continued
    }

    /// Returns `true` if local calls go in the reverse direction (RFC 8167).
    pub(in crate::engine) fn calls_are_reverse(&self) -> bool {
        self.role == Role::Server
    }
}
