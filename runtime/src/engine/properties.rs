//! Transport properties: the limits of a peer, and its support for calls in the reverse direction (RPC-over-RDMA v2 §5).

/// What an end takes of the reverse direction, the calls of the end that accepted the connection (RPC-over-RDMA v2 §5.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ReverseDirection {
    /// Nothing.
    None,
    /// Messages that fit in one Send, without chunks.
    Simple,
    /// Those, and continued ones, without chunks.
    Continued,
    /// All that there is in the forward direction.
    #[default]
    General,
}

/// What a peer has said of itself, or what is to be assumed (RPC-over-RDMA v2 §5.2, table 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Most octets that it sends in one Send.
    pub send_size: u32,
    /// Least octets that its Receives have room for.
    pub receive_size: u32,
    /// Longest segment in octets that it sends or receives.
    pub segment_len: u32,
    /// Most segments that it takes in a header.
    pub segments: u32,
    /// What it takes of the reverse direction.
    pub reverse: ReverseDirection,
}

impl Default for Properties {
    // RPC-over-RDMA v2 §5.2, table 1.
    fn default() -> Self {
        Self {
            send_size: 4096,
            receive_size: 4096,
            segment_len: 1 << 20,
            segments: 16,
            reverse: ReverseDirection::None,
        }
    }
}
