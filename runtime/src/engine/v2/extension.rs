//! The extensions of a connection, and the header types that its peer refuses (RPC-over-RDMA v2 appendix B, §7.1.2).

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::format::{PREFIX_LEN, is_base};
use crate::engine::{Extension, ExtensionMessage, RpcMessage};

/// The extensions of a connection, and what its peer takes of them.
#[derive(Debug, Default)]
pub(super) struct Extensions {
    pub(super) list: Vec<Box<dyn Extension>>,
    pub(super) refused: RefusedTypes,
}

impl Extensions {
    /// What conveys an RPC message, if one of them does, in at most `threshold` octets.
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

/// Messages of extensions' that are remembered, so that a refusal is known to be about one of them.
const REMEMBERED: usize = 32;

/// Header types that the peer does not support.
#[derive(Debug, Default)]
pub(super) struct RefusedTypes {
    /// XID and header type of the last messages sent.
    sent: VecDeque<(u32, u32)>,
    refused: SmallVec<[u32; 2]>,
}

impl RefusedTypes {
    /// A message is about to be sent.
    pub(super) fn sent(&mut self, xid: u32, header_type: u32) {
        if self.sent.len() >= REMEMBERED {
            self.sent.pop_front();
        }
        self.sent.push_back((xid, header_type));
    }

    /// The peer has answered a message with RDMA2_ERR_INVAL_HTYPE.
    // RPC-over-RDMA v2 §7.1.2: its header type is not sent again.
    pub(super) fn refuse(&mut self, xid: u32) {
        let mut types = self.sent.iter().filter(|(sent, _)| *sent == xid).map(|&(_, header_type)| header_type);
        // Of several, nobody knows which was meant.
        if let Some(header_type) = types.next()
            && types.all(|other| other == header_type)
            && !self.contains(header_type)
        {
            self.refused.push(header_type);
        }
    }

    /// Whether the peer has said that it does not support this one.
    pub(super) fn contains(&self, header_type: u32) -> bool {
        self.refused.contains(&header_type)
    }
}
