//! Credits: a credit is one message (RPC-over-RDMA v2 §4.2.1).
//!
//! Each end counts two things that have nothing to do with one another: the messages that it may send ([`SendCredits`]), and those
//! that it has let its peer send, for each of which a Receive is posted ([`ReceiveCredits`]). Every header carries what its sender
//! grants *newly* in its low half, and the most that its sender ever has outstanding in its high half.

use crate::{engine::credits::SPARE_RECEIVES, provider::QueuePair};

/// Credits that the peer always has again once it has used them, however many of its calls are being worked on: it may
/// need them for something else than calls, such as replies that those calls wait for.
const RESERVE: u64 = 2;

/// The largest number of credits that a header can say.
const MOST: u32 = 0xffff;

/// Messages that this end may send.
#[derive(Debug)]
pub(super) struct SendCredits {
    left: u64,
    /// The most that the peer ever lets be outstanding.
    most: u32,
}

impl SendCredits {
    // RPC-over-RDMA v2 §4.2.3: a client may send one message before it has heard of credits, a server none.
    pub(super) fn new(left: u64) -> Self {
        Self { left, most: 1 }
    }

    /// The credit field of a message that has arrived.
    // RPC-over-RDMA v2 §4.2.1.1: two values of 16 bits; newly granted ones add up.
    pub(super) fn add(&mut self, field: u32) {
        self.left = self.left.saturating_add(u64::from(field & MOST));
        self.most = (field >> 16).max(1);
    }

    /// Takes a grant of zero for one.
    pub(super) fn ensure_one(&mut self) {
        self.left = self.left.max(1);
    }

    /// Whether there is one.
    pub(super) fn available(&self) -> bool {
        self.left > 0
    }

    /// Uses one.
    pub(super) fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Most calls to have in flight: more than the peer ever has Receives for would only wait there.
    pub(super) fn most(&self) -> usize {
        self.most as usize
    }
}

/// Messages that the peer may send, and the Receives posted for them.
#[derive(Debug)]
pub(super) struct ReceiveCredits {
    most: u32,
    posted: usize,
    /// Since the connection was set up.
    granted: u64,
    /// Since the connection was set up: messages that take a credit.
    received: u64,
    /// Messages that are still being worked on.
    held: usize,
    /// Credits granted before the last grant that came without a message that takes one.
    refreshed: Option<u64>,
}

impl ReceiveCredits {
    /// At most `credits` outstanding, of which the peer may assume `granted` before it has heard; `posted` Receives.
    pub(super) fn new(credits: u32, posted: usize, granted: u64) -> Self {
        Self { most: credits.clamp(1, MOST), posted, granted, received: 0, held: 0, refreshed: None }
    }

    /// From now on, at most so many are outstanding.
    pub(super) fn set_most(&mut self, most: u32) {
        self.most = most.clamp(1, MOST);
    }

    /// A message has taken a Receive.
    pub(super) fn used(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// A message has taken a credit.
    pub(super) fn consumed(&mut self) {
        self.received += 1;
        if self.refreshed.is_some_and(|before| self.received > before) {
            // The peer has used what came with it, so it has received it, and posted the Receive for the next.
            self.refreshed = None;
        }
    }

    /// So many messages are still being worked on: their credits are not renewed, but for the reserve.
    pub(super) fn hold(&mut self, held: usize) {
        self.held = held;
    }

    /// Receives posted.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    fn outstanding(&self) -> u64 {
        self.granted.saturating_sub(self.received)
    }

    fn target(&self) -> u64 {
        let most = u64::from(self.most);
        most.saturating_sub(self.held as u64).max(RESERVE.min(most))
    }

    fn due(&self) -> u64 {
        self.target().saturating_sub(self.outstanding())
    }

    /// Posts the Receives that are missing.
    // RPC-over-RDMA v2 §4.2.1.2: always more than granted, for a message that only grants credits.
    pub(super) fn top_up(&mut self, qp: &mut dyn QueuePair) {
        let wanted = usize::try_from(self.outstanding()).unwrap_or(usize::MAX).saturating_add(SPARE_RECEIVES);
        if let Some(missing) = wanted.checked_sub(self.posted).filter(|&missing| missing > 0) {
            qp.post_receives(missing);
            self.posted += missing;
        }
    }

    /// What the header of the next message says; the Receives are posted.
    pub(super) fn grant(&mut self, qp: &mut dyn QueuePair) -> u32 {
        let new = self.due();
        self.granted += new;
        self.top_up(qp);
        // At most `most`, which is 16 bits wide.
        self.most << 16 | new as u32
    }

    /// Whether the peer may be waiting for credits that only a message without payload would bring. No more than one such is
    /// under way: it takes the one Receive that is there for it.
    pub(super) fn refresh_due(&self) -> bool {
        let (outstanding, target) = (self.outstanding(), self.target());
        let low = outstanding == 0 || (target > RESERVE && outstanding * 2 <= target);
        self.refreshed.is_none() && low && self.due() > 0
    }

    /// Such a message is about to be sent.
    pub(super) fn refresh(&mut self) {
        self.refreshed = Some(self.granted);
    }
}
