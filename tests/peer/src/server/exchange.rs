//! Messages of a case, followed by a call that shows whether the server still serves the connection.

use tokio::time::Instant;

use crate::{
    came::Came,
    case::Limits,
    link::{Arrived, Link, Next},
    v1::Lists,
};

/// The messages that a case sends, and how to recognize the answer. The messages have the version `VERSION`, unless
/// `vers` is another one.
#[derive(Debug)]
pub(super) struct Sent<const VERSION: u32> {
    /// The XID of the answer. `None` if every message except the reply to the next call is an answer.
    pub(super) xid: Option<u32>,
    /// The version in the header of the messages, which an error message from the server must repeat.
    pub(super) vers: u32,
    pub(super) messages: Vec<Vec<u8>>,
    pub(super) lists: Lists,
}

impl<const VERSION: u32> Sent<VERSION> {
    pub(super) fn call((xid, message): (u32, Vec<u8>)) -> Self {
        Self { xid: Some(xid), ..Self::anonymous(vec![message]) }
    }

    pub(super) fn with_lists(call: (u32, Vec<u8>), lists: Lists) -> Self {
        Self { lists, ..Self::call(call) }
    }

    /// Creates messages whose answer may have any XID.
    pub(super) fn anonymous(messages: Vec<Vec<u8>>) -> Self {
        Self { xid: None, vers: VERSION, messages, lists: Lists::default() }
    }
}

/// The messages of a case, and a call after them that shows whether the server still serves the connection.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    pub(super) messages: &'a [Vec<u8>],
    /// The XID of the answer. `None` if every message except the reply to the call is an answer.
    pub(super) xid: Option<u32>,
    /// The call, with its XID.
    pub(super) probe: (u32, Vec<u8>),
    /// `true` if the credits suffice for the messages and the call. Otherwise, the call is sent after the answer.
    pub(super) has_credits: bool,
    /// `true` if the case expects an answer. Otherwise, a short wait after the reply to the call is enough.
    pub(super) waits: bool,
}

impl Exchange<'_> {
    /// Sends everything, and returns the answer, or a description of its absence. Messages that `is_ignored` recognizes
    /// do not count as answers.
    pub(super) async fn run(
        self,
        link: &mut Link,
        limits: Limits,
        mut is_ignored: impl FnMut(&[u8]) -> bool,
    ) -> Result<Arrived, Came> {
        for message in self.messages {
            link.send(message);
        }
        let (probe_xid, probe) = &self.probe;
        let mut is_probed = self.has_credits;
        if is_probed {
            link.send(probe);
        }
        let (mut answer, mut strange, mut is_served) = (None, None, false);
        let mut deadline = Instant::now() + limits.patience;
        while answer.is_none() || !is_served {
            match link.next(deadline).await {
                Next::Message(arrived) if is_ignored(&arrived.bytes) => {}
                Next::Message(arrived) => {
                    let xid = arrived.bytes.first_chunk().map(|xid| u32::from_be_bytes(*xid));
                    match xid {
                        Some(xid) if xid == *probe_xid => {
                            is_served = true;
                            if !self.waits {
                                deadline = Instant::now() + limits.settle;
                            }
                        }
                        _ if answer.is_none() && (self.xid.is_none() || xid == self.xid) => {
                            answer = Some(arrived);
                            if !is_probed {
                                (is_probed, deadline) = (true, Instant::now() + limits.patience);
                                link.send(probe);
                            }
                        }
                        _ => strange = Some(format!("a message with the XID {xid:#x?}, which no call has")),
                    }
                }
                Next::Ended(reason) => return answer.ok_or(Came::Ended(reason)),
                Next::TimedOut if !is_probed => {
                    (is_probed, deadline) = (true, Instant::now() + limits.patience);
                    link.send(probe);
                }
                Next::TimedOut => break,
            }
        }
        let absence = if is_served { Came::Nothing } else { Came::Hung };
        answer.ok_or_else(|| strange.map_or(absence, Came::Other))
    }
}
