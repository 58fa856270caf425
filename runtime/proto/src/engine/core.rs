//! Connection state that all wire versions share.

use super::{ReverseDirection, Role, calls::LocalCalls, served::ServedCalls, shared::EngineShared};

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
    /// Returns whether calls from the peer may be continued.
    // RPC-over-RDMA v2 §5.2.5.
    pub(super) fn accepts_continued(&self) -> bool {
        self.shared.rules.local_level >= ReverseDirection::Continued
    }

    /// Returns whether local calls go in the reverse direction (RFC 8167).
    pub(super) fn calls_are_reverse(&self) -> bool {
        self.role == Role::Server
    }
}
