//! Credits: each stands for one message (RPC-over-RDMA v2 §4.2.1).
//!
//! Each peer keeps two independent counts: the messages that it may send ([`SendCredits`]), and the messages that it
//! lets its peer send, for each of which a Receive is posted ([`ReceiveCredits`]). The credit field of a header
//! contains the credits *newly* granted by its sender in the low half, and the maximum number of credits that its
//! sender ever has outstanding in the high half.

use super::format::{MAX_CREDITS, decode_credits, encode_credits};
use crate::{engine::core::credits::SPARE_RECEIVES, provider::QueuePair};

/// Number of credits that are always renewed for the peer, however many of its calls are in progress. It may need them
/// for messages other than calls, for example for replies that those calls wait for.
const RESERVE: u64 = 2;

/// Credits for messages that may be sent to the peer.
#[derive(Debug)]
pub(super) struct SendCredits {
    left: u64,
    /// Maximum number of credits that the peer ever has outstanding.
    max: u32,
}

impl SendCredits {
    // RPC-over-RDMA v2 §4.2.3: a client may send one message before it receives credits, a server none.
    pub(super) fn new(left: u64) -> Self {
        Self { left, max: 1 }
    }

    /// Adds the credits in the header of a received message.
    // RPC-over-RDMA v2 §4.2.1.1: two 16-bit values. Newly granted credits add up.
    pub(super) fn add(&mut self, field: u32) {
        let (new, max) = decode_credits(field);
        self.left = self.left.saturating_add(u64::from(new));
        self.max = max.max(1);
    }

    /// Adds a credit if there is none, so that a grant of zero counts as a grant of one.
    pub(super) fn ensure_one(&mut self) {
        self.left = self.left.max(1);
    }

    /// Returns `true` if there is a credit.
    pub(super) fn available(&self) -> bool {
        self.left > 0
    }

    /// Returns `true` if there is more than one credit.
    pub(super) fn has_more_than_one(&self) -> bool {
        self.left > 1
    }

    /// Uses one credit.
    pub(super) fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Returns the maximum number of calls to have in flight. The peer never has Receives for more.
    pub(super) fn max(&self) -> usize {
        self.max as usize
    }
}

/// Credits for messages that the peer may send, and the Receives posted for these messages.
#[derive(Debug)]
pub(super) struct ReceiveCredits {
    max: u32,
    posted: usize,
    /// Number of credits granted since the connection was set up.
    granted: u64,
    /// Number of messages that used a credit since the connection was set up.
    received: u64,
    /// Number of the peer's messages that are still in progress. Their credits are not renewed, except for [`RESERVE`].
    held: usize,
    /// Total number of credits granted before the last message that only grants credits. `None` after the peer has used
    /// a credit of that message.
    refreshed: Option<u64>,
}

impl ReceiveCredits {
    /// Creates the counts for at most `credits` outstanding credits and `posted` Receives. The peer initially assumes
    /// `granted` credits.
    pub(super) fn new(credits: u32, posted: usize, granted: u64) -> Self {
        Self { max: credits.clamp(1, MAX_CREDITS), posted, granted, received: 0, held: 0, refreshed: None }
    }

    /// Sets the maximum number of outstanding credits, within 1 to 65535.
    pub(super) fn set_max(&mut self, max: u32) {
        self.max = max.clamp(1, MAX_CREDITS);
    }

    /// Records that a message used a Receive.
    pub(super) fn used(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Records that a message used a credit.
    pub(super) fn consumed(&mut self) {
        self.received += 1;
        if self.refreshed.is_some_and(|before| self.received > before) {
            // The peer used a credit of that grant, so it has received the grant and posted the next Receive for one.
            self.refreshed = None;
        }
    }

    /// Sets the number of messages in progress, whose credits are not renewed, except for the reserve.
    pub(super) fn hold(&mut self, held: usize) {
        self.held = held;
    }

    /// Returns the number of Receives posted.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    fn outstanding(&self) -> u64 {
        self.granted.saturating_sub(self.received)
    }

    fn target(&self) -> u64 {
        let max = u64::from(self.max);
        max.saturating_sub(self.held as u64).max(RESERVE.min(max))
    }

    fn due(&self) -> u64 {
        self.target().saturating_sub(self.outstanding())
    }

    /// Posts the missing Receives.
    // RPC-over-RDMA v2 §4.2.1.2: always more than granted, for messages that only grant credits.
    #[inline]
    pub(super) fn top_up(&mut self, qp: &mut dyn QueuePair) {
        let wanted = usize::try_from(self.outstanding()).unwrap_or(usize::MAX).saturating_add(SPARE_RECEIVES);
        if let Some(missing) = wanted.checked_sub(self.posted).filter(|&missing| missing > 0) {
            qp.post_receives(missing);
            self.posted += missing;
        }
    }

    /// Returns the credit field for the next message, after posting the Receives that it grants.
    #[inline]
    pub(super) fn grant(&mut self, qp: &mut dyn QueuePair) -> u32 {
        let new = self.due();
        self.granted += new;
        self.top_up(qp);
        // `new` is at most `max`.
        encode_credits(new as u32, self.max)
    }

    /// Returns `true` if the peer may be waiting for credits that only a message without payload can bring. At most one
    /// such message is unacknowledged, because the peer has one spare Receive for it.
    pub(super) fn refresh_due(&self) -> bool {
        let (outstanding, target) = (self.outstanding(), self.target());
        let low = outstanding == 0 || (target > RESERVE && outstanding * 2 <= target);
        self.refreshed.is_none() && low
    }

    /// Records that a message that only grants credits is about to be sent.
    pub(super) fn refresh(&mut self) {
        self.refreshed = Some(self.granted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::sim::{self, SimConfig, SimEnd};

    #[test]
    fn credits_of_the_peer_are_used_one_by_one() {
        let mut credits = SendCredits::new(2);
        assert!(credits.has_more_than_one() && credits.available());
        credits.take();
        assert!(!credits.has_more_than_one() && credits.available());
        credits.take();
        credits.take();
        assert!(!credits.has_more_than_one() && !credits.available());
        assert_eq!(credits.max(), 1, "before the first grant");
        credits.add(encode_credits(3, 0));
        assert_eq!((credits.max(), credits.left), (1, 3));
        credits.add(encode_credits(4, 9));
        assert_eq!((credits.max(), credits.left), (9, 7));
    }

    /// RPC-over-RDMA v2 §4.2.1: messages in progress keep their credits, except for two.
    #[test]
    fn messages_in_progress_keep_their_credits() {
        let mut credits = ReceiveCredits::new(8, 8, 8);
        assert_eq!(credits.due(), 0);
        (0..8).for_each(|_| credits.consumed());
        assert_eq!(credits.due(), 8);
        for (held, due) in [(3, 5), (6, 2), (7, 2), (100, 2), (0, 8)] {
            credits.hold(held);
            assert_eq!(credits.due(), due, "{held} in progress");
        }
        credits.set_max(1);
        credits.hold(1);
        assert_eq!(credits.due(), 1, "no more than the maximum");
    }

    /// A message that only grants credits is sent when the peer has used a credit of the previous such message.
    #[test]
    fn one_refresh_at_a_time() {
        let mut credits = ReceiveCredits::new(8, 8, 8);
        (0..3).for_each(|_| credits.consumed());
        assert!(!credits.refresh_due(), "most credits are left");
        credits.consumed();
        assert!(credits.refresh_due());
        credits.refresh();
        credits.granted += credits.due();
        for _ in 0..4 {
            credits.consumed();
            assert!(!credits.refresh_due(), "the peer has used older credits");
        }
        credits.consumed();
        assert!(credits.refresh_due());
        // Nothing is due while all messages are in progress and the peer has the reserve.
        let mut credits = ReceiveCredits::new(2, 2, 2);
        assert!(!credits.refresh_due());
        (0..2).for_each(|_| credits.consumed());
        assert!(credits.refresh_due());
    }

    /// RPC-over-RDMA v2 §4.2.1.2: there are always more Receives than credits.
    #[test]
    fn missing_receives_are_posted() {
        let (mut qp, _peer, network) = sim::pair(SimConfig::default());
        let before = network.receives(SimEnd::A);
        let mut credits = ReceiveCredits::new(8, 10, 8);
        credits.top_up(&mut qp);
        assert_eq!((network.receives(SimEnd::A) - before, credits.posted()), (0, 10));
        for used in 1..3 {
            (0..used).for_each(|_| credits.used());
            credits.top_up(&mut qp);
            assert_eq!(credits.posted(), 10);
        }
        assert_eq!(network.receives(SimEnd::A) - before, 3);
    }

    /// In all short sequences of grants and messages, a peer that respects its credits always finds a Receive, and
    /// never has more credits than the maximum (RPC-over-RDMA v2 §4.2.1).
    #[test]
    fn all_short_sequences_have_receives_for_credits() {
        const STEPS: u32 = 6;
        const KINDS: u32 = 6;
        let (mut qp, _peer, _network) = sim::pair(SimConfig::default());
        for (max, sequence) in (1..=3).flat_map(|max| (0..KINDS.pow(STEPS)).map(move |n| (max, n))) {
            let mut credits = ReceiveCredits::new(max, 1 + SPARE_RECEIVES, 1);
            // What the peer has: credits, and the messages that bring none.
            let (mut peer, mut receives, mut held) = (1_u64, 1 + SPARE_RECEIVES, 0_u64);
            let mut bare = false;
            for step in 0..STEPS {
                let before = credits.posted();
                match sequence / KINDS.pow(step) % KINDS {
                    // A message of the peer.
                    0 if peer > 0 => {
                        assert!(receives > 0, "an honest peer finds no Receive: max {max}, sequence {sequence}");
                        (peer, receives) = (peer - 1, receives - 1);
                        credits.used();
                        credits.consumed();
                        bare = false;
                    }
                    // One message without payload of the peer uses a Receive, and no credit. The next follows a grant.
                    1 if !bare => {
                        assert!(receives > 0, "a grant finds no Receive: max {max}, sequence {sequence}");
                        receives -= 1;
                        credits.used();
                        bare = true;
                        credits.top_up(&mut qp);
                        receives += credits.posted() - (before - 1);
                    }
                    kind @ (2 | 3) => {
                        held = u64::from(kind) - 2;
                        credits.hold(held as usize);
                    }
                    // A message to the peer brings credits.
                    4 | 5 => {
                        let (new, said) = decode_credits(credits.grant(&mut qp));
                        assert_eq!(said, max);
                        peer += u64::from(new);
                        receives += credits.posted() - before;
                        let kept = u64::from(max).saturating_sub(held).max(RESERVE.min(max.into()));
                        assert!(peer >= kept, "too few: max {max}, sequence {sequence}");
                    }
                    _ => {}
                }
                assert_eq!(credits.outstanding(), peer, "max {max}, sequence {sequence}");
                assert_eq!(credits.posted(), receives);
                assert!(peer <= u64::from(max) && receives as u64 >= peer, "max {max}, sequence {sequence}");
            }
        }
    }

    /// In all short sequences of credit fields, the credits from the peer add up, and each message uses one credit.
    #[test]
    fn all_short_sequences_of_fields_add_up() {
        const FIELDS: [u32; 5] = [0, 1, 2 << 16 | 2, MAX_CREDITS, u32::MAX];
        for sequence in 0..6_u32.pow(6) {
            let mut credits = SendCredits::new(1);
            let (mut left, mut max) = (1_u64, 1);
            for step in 0..6 {
                match FIELDS.get((sequence / 6_u32.pow(step) % 6) as usize) {
                    None => {
                        credits.take();
                        left = left.saturating_sub(1);
                    }
                    Some(field) => {
                        credits.add(*field);
                        left += u64::from(*field % (1 << 16));
                        max = (*field / (1 << 16)).max(1);
                    }
                }
                assert_eq!((credits.left, credits.max()), (left, max as usize), "sequence {sequence}");
                assert_eq!((credits.available(), credits.has_more_than_one()), (left >= 1, left >= 2));
            }
        }
    }
}
