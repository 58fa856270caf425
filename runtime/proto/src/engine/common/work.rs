//! Identifiers of work requests, which encode the purpose of each request.

use crate::provider::WrId;

/// The purpose of a work request. `slot` is the slot of the call, which is not reused before its work requests
/// complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) enum PostedFor {
    /// The Send of a call.
    CallSend { slot: u32 },
    /// Invalidation of region `part` that was exposed for a call.
    CallInvalidate { slot: u32, part: u16 },
    /// An RDMA Read of a served call's Read chunk `part`.
    FetchRead { slot: u32, part: u16 },
    /// Invalidation of the sink of a served call's Read chunk `part`.
    FetchInvalidate { slot: u32, part: u16 },
    /// An RDMA Write of a reply.
    ReplyWrite { slot: u32 },
    /// The Send of a reply or of a transport error that refers to a served call.
    ReplySend { slot: u32 },
    /// The Send of a reply that is immediately followed by another Send. The provider reports only its failure. It has
    /// succeeded when a later Send completes.
    UnsignaledReplySend { slot: u32 },
    /// The Send of a transport error that refers to no served call, or of a part of a reply other than the last.
    ErrorSend,
    /// The Send of a message that is neither a call nor a response, or of a part of a call other than the last.
    ControlSend,
}

impl PostedFor {
    /// Returns the purpose of the Send of a reply to the call in `slot`. `is_last` is `false` if another response is
    /// posted immediately after it.
    pub(in crate::engine) fn reply(slot: u32, is_last: bool) -> Self {
        if is_last { Self::ReplySend { slot } } else { Self::UnsignaledReplySend { slot } }
    }

    /// Returns the slot of the served call for which the work request transfers data. Returns `None` for all other work
    /// requests, including Invalidates for served calls.
    pub(in crate::engine) fn served_slot(self) -> Option<u32> {
        match self {
            Self::FetchRead { slot, .. }
            | Self::ReplyWrite { slot }
            | Self::ReplySend { slot }
            | Self::UnsignaledReplySend { slot } => Some(slot),
            _ => None,
        }
    }

    pub(in crate::engine) fn id(self) -> WrId {
        let (kind, part, slot) = match self {
            Self::CallSend { slot } => (1, 0, slot),
            Self::CallInvalidate { slot, part } => (2, part, slot),
            Self::FetchRead { slot, part } => (3, part, slot),
            Self::FetchInvalidate { slot, part } => (4, part, slot),
            Self::ReplyWrite { slot } => (5, 0, slot),
            Self::ReplySend { slot } => (6, 0, slot),
            Self::ErrorSend => (7, 0, 0),
            Self::ControlSend => (8, 0, 0),
            Self::UnsignaledReplySend { slot } => (9, 0, slot),
        };
        WrId(kind << 48 | u64::from(part) << 32 | u64::from(slot))
    }

    /// Returns `true` if the work request belongs to a reply or a transport error, and its completion has to be
    /// reported. The completion of a call's Send is not needed, because the reply shows that the call was sent.
    pub(in crate::engine) fn is_response(self) -> bool {
        matches!(self, Self::ReplyWrite { .. } | Self::ReplySend { .. } | Self::ErrorSend)
    }

    pub(in crate::engine) fn of(id: WrId) -> Option<Self> {
        let (slot, part) = (id.0 as u32, (id.0 >> 32) as u16);
        Some(match id.0 >> 48 {
            1 => Self::CallSend { slot },
            2 => Self::CallInvalidate { slot, part },
            3 => Self::FetchRead { slot, part },
            4 => Self::FetchInvalidate { slot, part },
            5 => Self::ReplyWrite { slot },
            6 => Self::ReplySend { slot },
            7 => Self::ErrorSend,
            8 => Self::ControlSend,
            9 => Self::UnsignaledReplySend { slot },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let (slot, part) = (u32::MAX, u16::MAX);
        for work in [
            PostedFor::CallSend { slot },
            PostedFor::CallInvalidate { slot, part },
            PostedFor::FetchRead { slot: 1, part },
            PostedFor::FetchInvalidate { slot, part: 2 },
            PostedFor::ReplyWrite { slot },
            PostedFor::ReplySend { slot: 3 },
            PostedFor::ErrorSend,
            PostedFor::ControlSend,
            PostedFor::UnsignaledReplySend { slot },
        ] {
            assert_eq!(PostedFor::of(work.id()), Some(work));
        }
        assert_eq!(PostedFor::of(WrId(0)), None);
    }
}
