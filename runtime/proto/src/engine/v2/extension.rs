//! The extensions of a connection, and header types that its peer refused (RPC-over-RDMA v2 appendix B, §7.1.2).

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::format::{PREFIX_LEN, is_base};
use crate::engine::{Extension, ExtensionMessage, RpcMessage};

/// The extensions of a connection, and the header types that its peer refused.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) list: Vec<Box<dyn Extension>>,
    pub(super) refused: RefusedTypes,
}

impl Extensions {
    /// Returns the extension message that conveys an RPC message in at most `threshold` bytes, if an extension provides one.
    pub(super) fn convey(&mut self, message: RpcMessage<'_>, threshold: u64) -> Option<ExtensionMessage> {
        let conveyed = self.list.iter_mut().find_map(|extension| extension.convey(message))?;
        let fits = (PREFIX_LEN + conveyed.body.len()) as u64 <= threshold;
        if !fits || is_base(conveyed.header_type) || self.refused.contains(conveyed.header_type) {
            return None;
        }
        self.refused.sent(message.xid, conveyed.header_type);
        Some(conveyed)
    }
}

/// Number of sent extension messages remembered, to attribute a refusal to one of them.
const REMEMBERED: usize = 32;

/// Header types that the peer does not support.
#[derive(Debug, Default)]
pub(super) struct RefusedTypes {
    /// XID and header type of the last messages sent.
    sent: VecDeque<(u32, u32)>,
    refused: SmallVec<[u32; 2]>,
}

impl RefusedTypes {
    /// Records a message that is about to be sent.
    pub(super) fn sent(&mut self, xid: u32, header_type: u32) {
        if self.sent.len() >= REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((xid, header_type));
    }

    /// Handles RDMA2_ERR_INVAL_HTYPE for a message with this XID.
    // RPC-over-RDMA v2 §7.1.2: the header type is not sent again.
    pub(super) fn refuse(&mut self, xid: u32) {
        let mut types = self.sent.iter().filter(|(sent, _)| *sent == xid).map(|&(_, header_type)| header_type);
        // With several header types for the XID, the error is ambiguous.
        if let Some(header_type) = types.next()
            && types.all(|other| other == header_type)
            && !self.contains(header_type)
        {
            self.refused.push(header_type);
        }
    }

    /// Returns whether the peer refused this header type.
    pub(super) fn contains(&self, header_type: u32) -> bool {
        self.refused.contains(&header_type)
    }
}
