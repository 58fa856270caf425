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
    /// Asks the extensions in order to convey an RPC message, and returns the first message that one of them provides.
    /// Returns `None` if that message has more than `threshold` bytes, or if its header type belongs to the base
    /// protocol or was refused by the peer. In these cases, later extensions are not asked.
    ///
    /// Records the returned message, so that a refusal can be attributed to it.
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

/// Maximum number of sent extension messages to remember, so that a refusal can be attributed to one of them.
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

    /// Handles RDMA2_ERR_INVAL_HTYPE for a message with this XID: records that the peer refused its header type, unless
    /// the remembered messages with this XID have several header types.
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

    /// Returns `true` if the peer refused this header type.
    pub(super) fn contains(&self, header_type: u32) -> bool {
        self.refused.contains(&header_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::v2::header::RDMA2_MSG,
        engine::{ExtensionOutcome, ExtensionProperty},
    };

    /// Extension that conveys messages in the given header type, with a body of the given number of bytes.
    #[derive(Debug)]
    struct Conveys(u32, usize);

    impl Extension for Conveys {
        fn properties(&mut self) -> Vec<ExtensionProperty> {
            Vec::new()
        }

        fn property(&mut self, _: u32, _: &[u8]) -> ExtensionOutcome {
            ExtensionOutcome::Unknown
        }

        fn convey(&mut self, _: RpcMessage<'_>) -> Option<ExtensionMessage> {
            Some(ExtensionMessage { header_type: self.0, body: vec![0; self.1].into(), ..ExtensionMessage::default() })
        }
    }

    /// RPC-over-RDMA v2 §7.1.2, appendix B.2: a message is conveyed if it fits in one Send, in a header type that is
    /// not one of the base protocol and that the peer has not refused.
    #[test]
    fn messages_are_conveyed_if_they_fit() {
        let message = RpcMessage { xid: 7, is_reply: false, payload: &[] };
        for (header_type, len, is_conveyed) in [(1000, 80, true), (1000, 81, false), (RDMA2_MSG, 80, false)] {
            let mut extensions = Extensions::default();
            extensions.list.push(Box::new(Conveys(header_type, len)));
            assert_eq!(extensions.convey(message, 100).is_some(), is_conveyed, "{header_type}, {len}");
            extensions.refused.refuse(7);
            assert!(extensions.convey(message, 100).is_none());
        }
    }

    /// A refusal is attributed to one of the last messages, unless messages with its XID have different header types.
    #[test]
    fn refusals_are_attributed() {
        let mut types = RefusedTypes::default();
        types.sent(1, 1000);
        types.sent(1, 1000);
        types.sent(2, 2000);
        types.refuse(3);
        assert!(!types.contains(1000) && !types.contains(2000));
        types.refuse(1);
        types.refuse(1);
        assert!(types.contains(1000) && !types.contains(2000));
        assert_eq!(types.refused.len(), 1);
        types.sent(4, 3000);
        types.sent(4, 4000);
        types.refuse(4);
        assert_eq!(types.refused.len(), 1);
        // The oldest of 33 messages is forgotten.
        let mut types = RefusedTypes::default();
        (0..33).for_each(|xid| types.sent(xid, 1000 + xid));
        (0..33).for_each(|xid| types.refuse(xid));
        assert_eq!((types.sent.len(), types.refused.len(), types.contains(1000)), (32, 32, false));
    }
}
