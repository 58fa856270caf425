//! Credits of a requester in version 1, and the number of posted Receives.

use crate::provider::QueuePair;

/// Number of Receives beyond the credits, for messages that are discarded, such as calls in an unsupported reverse
/// direction (RFC 8167 §6).
pub(in crate::engine) const SPARE_RECEIVES: usize = 2;

/// Credits of a requester (RFC 8166 §3.3.1).
#[derive(Debug)]
pub(in crate::engine) struct Credits {
    /// Number of credits to request in every call.
    pub(in crate::engine) requested: u32,
    granted: u32,
    in_flight: u32,
}

impl Credits {
    pub(in crate::engine) fn new(requested: u32) -> Self {
        // RFC 8166 §3.3.3: one credit until the first reply grants more.
        Self { requested: requested.max(1), granted: 1, in_flight: 0 }
    }

    /// Returns the latest grant, limited to the number requested.
    pub(in crate::engine) fn granted(&self) -> u32 {
        self.granted
    }

    /// Returns `true` if at least `kept` credits remain after another call is sent.
    // RFC 8166 §3.3.1: the lower of requested and granted credits, minus the calls in flight.
    #[inline]
    pub(in crate::engine) fn available(&self, kept: u32) -> bool {
        self.in_flight + kept < self.granted
    }

    pub(in crate::engine) fn take(&mut self) {
        self.in_flight += 1;
    }

    /// Handles a reply. Releases the credit of its call, and limits `grant` to between 1 and the number requested.
    pub(in crate::engine) fn answered(&mut self, grant: u32) {
        self.in_flight = self.in_flight.saturating_sub(1);
        // RFC 8166 §3.3.1: a grant of zero is forbidden and would deadlock, so treat it as one. Credits beyond the
        // number requested are of no use.
        self.granted = grant.clamp(1, self.requested);
    }
}

/// Counter of posted Receives.
#[derive(Debug)]
pub(in crate::engine) struct PostedReceives {
    posted: usize,
    max: usize,
}

impl PostedReceives {
    /// Returns the number of Receives to post before the first message can arrive, for these credits of the forward and
    /// the reverse direction.
    // RFC 8167 §4.3.1, §4.3.2: the reverse direction needs additional Receives. A client needs them for the calls it
    // grants credits for, a server for the replies to its calls.
    pub(in crate::engine) fn initial(credits: u32, reverse: u32) -> usize {
        credits.max(1) as usize + reverse as usize + SPARE_RECEIVES
    }

    /// Creates the counter for these credits. `posted` Receives are posted already.
    pub(in crate::engine) fn new(credits: u32, reverse: u32, posted: usize) -> Self {
        Self { posted, max: Self::initial(credits, reverse) }
    }

    /// Returns the number of posted Receives.
    pub(in crate::engine) fn posted(&self) -> usize {
        self.posted
    }

    /// Counts a Receive that a message has consumed.
    pub(in crate::engine) fn used(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Posts the missing Receives, except those of `held` messages that are still being processed. A peer that exceeds
    /// its credits thus finds no Receive, and cannot consume more memory.
    pub(in crate::engine) fn top_up(&mut self, qp: &mut dyn QueuePair, held: usize) {
        let missing = self.max.saturating_sub(held).saturating_sub(self.posted);
        if missing > 0 {
            qp.post_receives(missing);
            self.posted += missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8166 §3.3.1, §3.3.3: there is one credit before the first grant, and a grant lies between 1 and the number
    /// requested.
    #[test]
    fn clamps_grants() {
        let mut credits = Credits::new(8);
        assert!(credits.available(0));
        credits.take();
        assert!(!credits.available(0));
        credits.answered(4);
        for _ in 0..4 {
            assert!(credits.available(0));
            credits.take();
        }
        assert!(!credits.available(0));
        credits.answered(0);
        assert_eq!(credits.granted(), 1);
        assert!(!credits.available(0));
        credits.answered(u32::MAX);
        assert_eq!(credits.granted(), 8);
        assert!(credits.available(0) && credits.available(5) && !credits.available(6));
    }

    /// RFC 8166 §3.3.1: there is always one credit, and a Receive for it.
    #[test]
    fn there_is_one_credit_at_least() {
        let mut credits = Credits::new(0);
        credits.answered(5);
        assert_eq!((credits.requested, credits.granted(), credits.available(0)), (1, 1, true));
        assert_eq!(
            [(0, 0), (1, 0), (5, 3)].map(|(credits, reverse)| PostedReceives::initial(credits, reverse)),
            [3, 3, 10]
        );
    }

    /// In all short sequences of calls and replies, the available credits are the lower of requested and granted
    /// credits, minus the calls in flight (RFC 8166 §3.3.1).
    #[test]
    fn all_short_sequences_keep_to_the_grants() {
        const GRANTS: [u32; 5] = [0, 1, 2, 3, u32::MAX];
        const STEPS: u32 = 6;
        for (requested, sequence) in (0..=3).flat_map(|requested| (0..6_u32.pow(STEPS)).map(move |n| (requested, n))) {
            let mut credits = Credits::new(requested);
            let (mut limit, mut in_flight) = (1, 0_u32);
            for step in 0..STEPS {
                match GRANTS.get((sequence / 6_u32.pow(step) % 6) as usize) {
                    None if credits.available(0) => {
                        credits.take();
                        in_flight += 1;
                    }
                    None => {}
                    Some(grant) => {
                        credits.answered(*grant);
                        // Replies to nothing bring credits, too.
                        in_flight = in_flight.saturating_sub(1);
                        limit = (*grant).max(1).min(requested.max(1));
                    }
                }
                assert_eq!(credits.granted(), limit);
                assert!(limit >= 1 && limit <= requested.max(1));
                for kept in 0..=4 {
                    let is_available = i64::from(limit) - i64::from(in_flight) > kept;
                    assert_eq!(
                        credits.available(kept as u32),
                        is_available,
                        "requested {requested}, sequence {sequence}"
                    );
                }
            }
        }
    }
}
