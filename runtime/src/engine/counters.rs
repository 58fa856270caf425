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
        // All of them, or it does not compile: a counter that is added is not forgotten here.
        macro_rules! add {
            ($($counter:ident),* $(,)?) => {
                let Self { $($counter),* } = other;
                $(self.$counter = self.$counter.saturating_add($counter);)*
            };
        }
        add! {
            calls_sent, calls_received, replies_sent, replies_received,
            sent, received, rdma_read, rdma_written, offered_read, returned_written,
            registrations, remote_invalidations, copied_eligible, copied_payload,
            credits_granted, calls_queued, calls_abandoned,
            errors_sent, errors_received, discarded, exposed, registered,
            calls_resent, continued_sent, continued_received, grants_sent, grants_received,
        }
    }
}
