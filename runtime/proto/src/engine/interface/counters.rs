//! Counters of a connection, independent of the version.

/// Counters and gauges of a connection. Counters start at 0 when the connection is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConnectionCounters {
    /// Number of calls sent.
    pub calls_sent: u64,
    /// Number of calls received.
    pub calls_received: u64,
    /// Number of replies sent.
    pub replies_sent: u64,
    /// Number of replies received.
    pub replies_received: u64,
    /// Bytes sent by Send, or over a byte stream.
    pub bytes_sent: u64,
    /// Bytes received by Send, or over a byte stream.
    pub bytes_received: u64,
    /// Bytes that the local peer fetched by RDMA Read.
    pub rdma_read_bytes: u64,
    /// Bytes that the local peer wrote by RDMA Write.
    pub rdma_write_bytes: u64,
    /// Bytes offered to the peer in Read chunks of calls that ended with a reply or an error from the peer.
    pub read_by_peer_bytes: u64,
    /// Bytes of results and replies that the peer wrote by RDMA Write.
    pub written_by_peer_bytes: u64,
    /// Number of memory registrations.
    pub registrations: u64,
    /// Number of handles that the peer invalidated by Send with Invalidate.
    pub remote_invalidations: u64,
    /// Bytes of DDP-eligible items that were copied into inline messages.
    pub copied_eligible_bytes: u64,
    /// Bytes of payload that the provider copied between its own buffers and registered memory.
    pub copied_payload_bytes: u64,
    /// Number of credits in the peer's latest grant, limited to the number requested (version 1), or the maximum number
    /// of outstanding credits that the peer announced (version 2). For a byte stream, the local limit on calls in
    /// flight.
    pub credits_granted: u32,
    /// Number of calls that currently wait to be sent, usually for a credit.
    pub calls_queued: u32,
    /// Number of abandoned calls (cancelled or timed out) that hold a credit until the peer replies.
    pub calls_abandoned: u32,
    /// Number of transport errors (RDMA_ERROR, RDMA2_ERROR) sent to the peer.
    pub errors_sent: u64,
    /// Number of transport errors received from the peer.
    pub errors_received: u64,
    /// Number of received messages that were discarded (RFC 8166 §4.5).
    pub messages_discarded: u64,
    /// Number of regions that are currently exposed to the peer.
    pub exposed_regions: u32,
    /// Bytes that are currently registered with the queue pair for calls: exposed to the peer, or destination of local
    /// RDMA Reads. 0 after the connection has ended.
    pub registered_bytes: u64,
    /// Number of calls sent again with the resources that the peer asked for (version 2).
    pub calls_resent: u64,
    /// Number of RPC messages sent in more than one Send (version 2).
    pub continued_sent: u64,
    /// Number of RPC messages received in more than one Send (version 2).
    pub continued_received: u64,
    /// Number of messages sent that only grant credits (version 2).
    pub grants_sent: u64,
    /// Number of messages received that only grant credits (version 2).
    pub grants_received: u64,
}

impl std::ops::AddAssign for ConnectionCounters {
    /// Adds the counters of another connection. A sum saturates at the maximum of its type.
    fn add_assign(&mut self, other: Self) {
        // The pattern names every field, so that a new counter that is not added here fails to compile.
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
