//! Credits: how many calls may be in flight, and how many Receives there must be.

use crate::provider::QueuePair;

/// Receives beyond those that credits account for: for messages that are discarded, such as calls in the
/// reverse direction where nobody takes them (RFC 8167 §6).
pub(super) const SPARE_RECEIVES: usize = 2;

/// A requester's view of the credits it may use (RFC 8166 §3.3.1).
#[derive(Debug)]
pub(super) struct Credits {
    /// What to ask for in every call.
    pub(super) requested: u32,
    granted: u32,
    in_flight: u32,
}

impl Credits {
    pub(super) fn new(requested: u32) -> Self {
        // RFC 8166 §3.3.3: one credit until the first reply tells how many there are.
        Self { requested: requested.max(1), granted: 1, in_flight: 0 }
    }

    /// What the peer granted last, as far as it is of use.
    pub(super) fn granted(&self) -> u32 {
        self.granted
    }

    /// Takes a credit for a call, if there is one.
    // RFC 8166 §3.3.1: the lower of requested and granted, less what is in flight.
    pub(super) fn available(&self) -> bool {
        self.in_flight < self.granted
    }

    pub(super) fn take(&mut self) {
        self.in_flight += 1;
    }

    /// A call was answered, with this grant.
    pub(super) fn answered(&mut self, grant: u32) {
        self.in_flight = self.in_flight.saturating_sub(1);
        // RFC 8166 §3.3.1: a grant of zero is against the rules, and taken as one, since it would end in
        // deadlock; more than was asked for is of no use.
        self.granted = grant.clamp(1, self.requested);
    }
}

/// Posted Receives.
#[derive(Debug)]
pub(super) struct PostedReceives {
    posted: usize,
    most: usize,
}

impl PostedReceives {
    /// Receives that must be posted before the first message can arrive, for so many credits of the forward and of the
    /// reverse direction.
    // RFC 8167 §4.3.1, §4.3.2: those of the reverse direction come on top: at a client for the calls it grants credits
    // to, at a server for the replies to the calls it sends.
    pub(super) fn initial(credits: u32, reverse: u32) -> usize {
        credits.max(1) as usize + reverse as usize + SPARE_RECEIVES
    }

    /// Counts Receives for so many credits, of which `posted` are posted already.
    pub(super) fn new(credits: u32, reverse: u32, posted: usize) -> Self {
        Self { posted, most: Self::initial(credits, reverse) }
    }

    /// Returns the number of Receives that are posted.
    pub(super) fn posted(&self) -> usize {
        self.posted
    }

    /// A message has taken one.
    pub(super) fn used(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// Posts what is missing, but for the `held` messages that are still being worked on: a peer that sends more
    /// than it has credits for meets no Receive, and ties up no more memory.
    pub(super) fn top_up(&mut self, qp: &mut dyn QueuePair, held: usize) {
        let missing = self.most.saturating_sub(held).saturating_sub(self.posted);
        if missing > 0 {
            qp.post_receives(missing);
            self.posted += missing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8166 §3.3.3 and §3.3.1.
    #[test]
    fn grants() {
        let mut credits = Credits::new(8);
        assert!(credits.available());
        credits.take();
        assert!(!credits.available());
        credits.answered(4);
        for _ in 0..4 {
            assert!(credits.available());
            credits.take();
        }
        assert!(!credits.available());
        credits.answered(0);
        assert_eq!(credits.granted(), 1);
        assert!(!credits.available());
        credits.answered(u32::MAX);
        assert_eq!(credits.granted(), 8);
        assert!(credits.available());
    }
}
