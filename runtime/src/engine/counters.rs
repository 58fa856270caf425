//! What is counted on a connection, whatever its version.

/// What has happened on a connection, counted from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConnectionCounters {
    /// Calls sent.
    pub calls_sent: u64,
    /// Calls received.
    pub calls_received: u64,
    /// Replies sent.
    pub replies_sent: u64,
    /// Replies received.
    pub replies_received: u64,
    /// Octets sent by Send, or over a byte stream.
    pub bytes_sent: u64,
    /// Octets received by Send, or over a byte stream.
    pub bytes_received: u64,
    /// Octets this end pulled by RDMA Read.
    pub rdma_read_bytes: u64,
    /// Octets this end pushed by RDMA Write.
    pub rdma_write_bytes: u64,
    /// Octets the peer was offered as Read chunks in calls that were answered.
    pub read_by_peer_bytes: u64,
    /// Octets the peer returned by RDMA Write.
    pub written_by_peer_bytes: u64,
    /// Registrations made.
    pub registrations: u64,
    /// Handles that the peer invalidated by Send with Invalidate.
    pub remote_invalidations: u64,
    /// Octets of eligible items that went inline, copied.
    pub copied_eligible_bytes: u64,
    /// Octets of payload that the provider has copied between buffers of its own and registered memory.
    pub copied_payload_bytes: u64,
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
    pub messages_discarded: u64,
    /// Regions exposed to the peer now.
    pub exposed_regions: u32,
    /// Octets registered with the queue pair for calls now: exposed to the peer, or to be filled by RDMA Read. None when the
    /// connection has ended, however it did.
    pub registered_bytes: u64,
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

impl std::ops::AddAssign for ConnectionCounters {
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
            bytes_sent, bytes_received, rdma_read_bytes, rdma_write_bytes, read_by_peer_bytes, written_by_peer_bytes,
            registrations, remote_invalidations, copied_eligible_bytes, copied_payload_bytes,
            credits_granted, calls_queued, calls_abandoned,
            errors_sent, errors_received, messages_discarded, exposed_regions, registered_bytes,
            calls_resent, continued_sent, continued_received, grants_sent, grants_received,
        }
    }
}
