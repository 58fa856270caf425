//! What is counted on a connection, whatever its version.

/// What has happened on a connection, counted from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Calls sent.
    pub calls_sent: u64,
    /// Calls received.
    pub calls_received: u64,
    /// Replies sent.
    pub replies_sent: u64,
    /// Replies received.
    pub replies_received: u64,
    /// Octets sent by Send, or over a byte stream.
    pub sent: u64,
    /// Octets received by Send, or over a byte stream.
    pub received: u64,
    /// Octets this end pulled by RDMA Read.
    pub rdma_read: u64,
    /// Octets this end pushed by RDMA Write.
    pub rdma_written: u64,
    /// Octets the peer was offered as Read chunks in calls that were answered.
    pub offered_read: u64,
    /// Octets the peer returned by RDMA Write.
    pub returned_written: u64,
    /// Registrations made.
    pub registrations: u64,
    /// Handles that the peer invalidated by Send with Invalidate.
    pub remote_invalidations: u64,
    /// Octets of eligible items that went inline, copied.
    pub copied_eligible: u64,
    /// Octets of payload that the provider has copied between buffers of its own and registered memory.
    pub copied_payload: u64,
    /// Credits granted by the peer last.
    pub credits_granted: u32,
    /// Calls waiting for a credit now.
    pub calls_queued: u32,
    /// Calls that are over for their callers, cancelled or timed out, and hold a credit until the peer answers.
    pub calls_abandoned: u32,
    /// Transport errors sent to the peer (RDMA_ERROR).
    pub errors_sent: u64,
    /// Transport errors received from the peer.
    pub errors_received: u64,
    /// Received messages discarded, as RFC 8166 §4.5 demands.
    pub discarded: u64,
    /// Regions exposed to the peer now.
    pub exposed: u32,
    /// Octets registered with the queue pair for calls now: exposed to the peer, or to be filled by RDMA Read. None when the
    /// connection has ended, however it did.
    pub registered: u64,
    /// Calls sent again because the peer said what they lacked (version 2).
    pub calls_resent: u64,
    /// RPC messages sent in more than one Send (version 2).
    pub continued_sent: u64,
    /// RPC messages received in more than one (version 2).
    pub continued_received: u64,
    /// Messages sent that only grant credits (version 2).
    pub grants_sent: u64,
    /// Messages received that only grant credits (version 2).
    pub grants_received: u64,
}

impl std::ops::AddAssign for Counters {
    /// Counts of several connections, together.
    fn add_assign(&mut self, other: Self) {
        // All of them: a counter that is added is not forgotten here.
        let Self {
            calls_sent,
            calls_received,
            replies_sent,
            replies_received,
            sent,
            received,
            rdma_read,
            rdma_written,
            offered_read,
            returned_written,
            registrations,
            remote_invalidations,
            copied_eligible,
            copied_payload,
            credits_granted,
            calls_queued,
            calls_abandoned,
            errors_sent,
            errors_received,
            discarded,
            exposed,
            registered,
            calls_resent,
            continued_sent,
            continued_received,
            grants_sent,
            grants_received,
        } = other;
        self.calls_sent = self.calls_sent.saturating_add(calls_sent);
        self.calls_received = self.calls_received.saturating_add(calls_received);
        self.replies_sent = self.replies_sent.saturating_add(replies_sent);
        self.replies_received = self.replies_received.saturating_add(replies_received);
        self.sent = self.sent.saturating_add(sent);
        self.received = self.received.saturating_add(received);
        self.rdma_read = self.rdma_read.saturating_add(rdma_read);
        self.rdma_written = self.rdma_written.saturating_add(rdma_written);
        self.offered_read = self.offered_read.saturating_add(offered_read);
        self.returned_written = self.returned_written.saturating_add(returned_written);
        self.registrations = self.registrations.saturating_add(registrations);
        self.remote_invalidations = self.remote_invalidations.saturating_add(remote_invalidations);
        self.copied_eligible = self.copied_eligible.saturating_add(copied_eligible);
        self.copied_payload = self.copied_payload.saturating_add(copied_payload);
        self.credits_granted = self.credits_granted.saturating_add(credits_granted);
        self.calls_queued = self.calls_queued.saturating_add(calls_queued);
        self.calls_abandoned = self.calls_abandoned.saturating_add(calls_abandoned);
        self.errors_sent = self.errors_sent.saturating_add(errors_sent);
        self.errors_received = self.errors_received.saturating_add(errors_received);
        self.discarded = self.discarded.saturating_add(discarded);
        self.exposed = self.exposed.saturating_add(exposed);
        self.registered = self.registered.saturating_add(registered);
        self.calls_resent = self.calls_resent.saturating_add(calls_resent);
        self.continued_sent = self.continued_sent.saturating_add(continued_sent);
        self.continued_received = self.continued_received.saturating_add(continued_received);
        self.grants_sent = self.grants_sent.saturating_add(grants_sent);
        self.grants_received = self.grants_received.saturating_add(grants_received);
    }
}
