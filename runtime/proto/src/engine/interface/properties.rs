//! Transport properties: limits of a peer, and its support for the reverse direction (RPC-over-RDMA v2 §5).

/// Level of support for calls from the server to the client (RPC-over-RDMA v2 §5.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ReverseDirection {
    /// No calls in the reverse direction.
    None,
    /// Messages that fit in one Send, without chunks.
    Simple,
    /// Messages without chunks, in one Send or continued in several.
    Continued,
    /// Everything that the forward direction supports.
    #[default]
    General,
}

/// Properties that a peer announced, or the defaults (RPC-over-RDMA v2 §5.2, table 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// Maximum length in bytes of the peer's Sends.
    pub send_size: u32,
    /// Minimum size in bytes of the peer's Receives.
    pub receive_size: u32,
    /// Maximum length in bytes of a segment that the peer sends or receives.
    pub segment_len: u32,
    /// Maximum number of segments that the peer accepts in a header.
    pub segments: u32,
    /// Level of support for the reverse direction.
    pub reverse: ReverseDirection,
}
