//! The fast path for Sends that arrive whole.

use super::{ddp, endpoint::Endpoint, rdmap::Opcode};
use crate::{memory::MessageBuf, provider::Completion};

impl Endpoint {
    /// Delivers the Sends at the front of the staging buffer that are intact, consist of one segment, and have the
    /// opcode of a Send without invalidation and without a solicited event. Nearly all messages are of this kind. Stops
    /// at any other segment, at errors, and if no Receive is posted. Returns `true` if nothing is left in the staging
    /// buffer. Messages are in order, and each consumes a Receive (RFC 5040 §5.3, §5.5, RFC 5041 §5.3, §7.1).
    pub(super) fn deliver_whole_sends(&mut self) -> bool {
        let staged = self.input.staged();
        if self.arriving.is_some() {
            return staged.is_empty();
        }
        let (mut rest, mut msn) = (staged, self.expected_send_msn);
        while self.receives.posted > 0 {
            let header = ddp::whole_send(Opcode::Send, 0, msn);
            let Some((payload, behind)) = self.input.split_whole_untagged(rest, &header) else { break };
            if payload.len() > self.receives.size {
                break;
            }
            let Some(message) = MessageBuf::copied(self.receives.buffer(), payload) else { break };
            self.done.push(Completion::Received { message, invalidated: None });
            self.receives.posted -= 1;
            msn = msn.wrapping_add(1);
            rest = behind;
        }
        let (delivered, is_empty) = (staged.len() - rest.len(), rest.is_empty());
        if delivered > 0 {
            self.expected_send_msn = msn;
            self.may_send = true;
            self.input.consume(delivered);
        }
        is_empty
    }
}
