//! Putting continued messages together (RPC-over-RDMA v2 §4.4.2, §6.2.2.2).

use smallvec::SmallVec;

use super::format::Prefix;
use crate::memory::{BufferPool, MessageBuf, Output};

/// Broken sequences whose rest is awaited, to be discarded. A peer that breaks more at a time keeps to no rule.
const MOST_BROKEN: usize = 8;

/// A sequence of which some has arrived.
#[derive(Debug)]
struct Partial {
    xid: u32,
    htype: u32,
    response: bool,
    payload: MessageBuf,
}

/// What a message comes to.
#[derive(Debug)]
pub(super) enum Step {
    /// All of a payload; whether it came in more than one message.
    Whole(MessageBuf, bool),
    /// More is to come.
    More,
    /// It does not belong there, and is dropped: RDMA2_ERR_INVAL_CONT where a responder says so.
    Broken(&'static str),
    /// The rest of a sequence that was broken.
    Ignored,
    /// More broken sequences than anybody would take.
    TooMany,
}

/// The sequence that is arriving: one at a time.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    current: Option<Partial>,
    broken: SmallVec<[(u32, bool); 2]>,
}

impl Reassembly {
    /// Takes the payload of a message, at most `most` octets in all.
    // RPC-over-RDMA v2 §6.2.2.2: messages of a sequence have the same XID and header type; what does not is dropped.
    // §7.1.3: and so is all that has its XID.
    pub(super) fn take(&mut self, prefix: &Prefix, payload: MessageBuf, most: u64, pool: &BufferPool) -> Step {
        let (key, more) = ((prefix.xid, prefix.is_response()), prefix.has_more());
        if let Some(at) = self.broken.iter().position(|&broken| broken == key) {
            if !more {
                self.broken.swap_remove(at);
            }
            return Step::Ignored;
        }
        let Some(mut partial) = self.current.take() else {
            if !more {
                return Step::Whole(payload, false);
            }
            // What follows is appended in memory that is no Receive's.
            let mut whole = MessageBuf::new(pool.alloc(2 * payload.len()), 0);
            whole.append(&payload);
            let Prefix { xid, htype, .. } = *prefix;
            self.current = Some(Partial { xid, htype, response: key.1, payload: whole });
            return Step::More;
        };
        if (partial.xid, partial.response) != key {
            self.current = Some(partial);
            return self.breaks(prefix, "a message of another transaction within a sequence");
        }
        if partial.htype != prefix.htype {
            return self.breaks(prefix, "another header type within a sequence");
        }
        if partial.payload.len() as u64 + payload.len() as u64 > most {
            return self.breaks(prefix, "a sequence longer than is put together");
        }
        append(&mut partial.payload, &payload, pool);
        if more {
            self.current = Some(partial);
            return Step::More;
        }
        Step::Whole(partial.payload, true)
    }

    /// A message that breaks its sequence; what follows with its XID is discarded.
    pub(super) fn breaks(&mut self, prefix: &Prefix, why: &'static str) -> Step {
        let key = (prefix.xid, prefix.is_response());
        if self.current.as_ref().is_some_and(|partial| (partial.xid, partial.response) == key) {
            self.current = None;
        }
        if prefix.has_more() && !self.broken.contains(&key) {
            if self.broken.len() >= MOST_BROKEN {
                return Step::TooMany;
            }
            self.broken.push(key);
        }
        Step::Broken(why)
    }
}

/// Appends, in memory twice as large where there is no room.
fn append(whole: &mut MessageBuf, more: &[u8], pool: &BufferPool) {
    if whole.tailroom() < more.len() {
        let mut larger = MessageBuf::new(pool.alloc(2 * (whole.len() + more.len())), 0);
        larger.append(whole);
        *whole = larger;
    }
    whole.append(more);
}
