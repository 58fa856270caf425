//! Userspace iWARP over a TCP socket. It needs no driver and no privileges.
//!
//! | layer | RFC | modules |
//! | --- | --- | --- |
//! | connection set-up: frames, revisions, read depths | 5044 §7.1, 6581 | `setup`, `mpa::frames` |
//! | MPA: FPDUs, CRC32c, markers | 5044 §4 | `mpa`, `output` (sending), `input` (receiving) |
//! | DDP: segments, queues, sequence and bounds checks | 5041 | `ddp`, `outbound`, `inbound`, `read_ahead`, `stag` |
//! | RDMAP: messages, Terminate | 5040 | `rdmap`, `terminate`, `outbound`, `inbound`, `whole_sends` |
//! | RDMAP: order of work requests, posted Receives | 5040 §5.3, §5.5 | `work`, `receives` |
//! | teardown and error reporting | 5040 §6.2, §7; 5041 §6.2, §7; 5044 §8 | `endpoint`, `connection` |
//! | byte streams: TCP sockets, or streams in memory | | `byte_stream`, `stream`, `socket`, `memory_stream` |
//!
//! The provider is wire-compatible with Linux's `siw` and with iWARP adapters. [`IwarpConnector`] and [`IwarpListener`]
//! implement the traits of [`rpcrdma_proto::provider`]. They run on tokio, and carry any protocol that uses RDMA. The
//! crate `rpcrdma` carries remote procedure calls over them.
//!
//! # Copies
//!
//! The provider does not copy tagged payload (RDMA Write, RDMA Read Response). It writes the payload to the socket from
//! the caller's memory, and reads it from the socket into the registered memory.
//! [`QueuePair::copied_payload_bytes`](rpcrdma_proto::provider::QueuePair::copied_payload_bytes) counts the exceptions,
//! and the module `input` explains how they are avoided. Sends are copied where that is cheaper than a separate entry
//! in a vectored system call.
//!
//! # Workaround for `siw`
//!
//! Linux's `siw` reports a CRC error if the four bytes of the CRC arrive in two TCP segments. FPDUs are multiples of
//! four bytes and are written whole. The error therefore cannot occur if the TCP segment size is a multiple of four, as
//! on Ethernet with an MTU of 1500 or 9000. Where it is not (65483 on Linux's loopback), [`FpduSize::Segment`] makes
//! the error rare.
//!
//! # Deviations from the RFCs
//!
//! - Payload is placed before the CRC of its FPDU is verified, and delivered afterwards (RFC 5044 §6; see `inbound`).
//! - FPDUs are as large as RFC 5044 §3 allows, not limited to a TCP segment, unless another [`FpduSize`] is configured.
//!   §5.1 recommends the limit for receivers that process segments out of order, which neither this provider nor `siw`
//!   does. Large FPDUs need only one header and one CRC per 63 KiB.
//! - If the peer closes its half of the TCP stream, the connection ends. The half-closed state of RFC 5041 §6.2.1 is
//!   not supported, because no upper layer uses it.
//! - As responder to a peer-to-peer request (RFC 6581 §9.2), the provider does not offer a zero-length Send as
//!   ready-to-receive indication, because the Send would consume a Receive. It offers RDMA Write and RDMA Read.
//! - The upper layer does not learn the peer's IRD and ORD (RFC 6581 §9.1), only the limit of its own RDMA Reads.
//! - A rejected connection, or one whose set-up fails, is closed. RFC 5044 §7.1.2 leaves a rejected one open, and
//!   RFC 6581 §9.3 requires a Terminate for a local error.
//! - A responder reports an invalid first FPDU with a Terminate. RFC 5044 §7.1.2 (rule 4) requires it to validate an
//!   FPDU before it sends one.
//! - The peer may either read or write registered memory, not both (RFC 5041 §8.3.1, RFC 5040 §8.1.1).
//! - IPsec (RFC 5044 §9.3, RFC 5040 §8.2.2, RFC 5041 §8.4.2, RFC 5042 §5.4.5) is left to the operating system.
#![forbid(unsafe_code)]

mod byte_stream;
mod connection;
mod ddp;
mod endpoint;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod inbound;
mod input;
#[cfg(feature = "simulation")]
mod memory_stream;
mod mpa;
mod outbound;
mod output;
mod rdmap;
mod read_ahead;
mod receives;
mod setup;
pub mod socket;
mod stag;
mod stream;
mod terminate;
mod whole_sends;
mod work;

use std::{net::IpAddr, time::Duration};

pub use connection::IwarpQueuePair;
#[cfg(feature = "simulation")]
pub use memory_stream::MemoryStream;
use rpcrdma_proto::{memory, provider};
pub use setup::{IwarpConnector, IwarpIncoming, IwarpListener, IwarpRequest};

/// Maximum length of private data that fits in any connection request or reply: 512 bytes, less the enhanced data of
/// RFC 6581.
pub const MAX_PRIVATE_DATA: usize = mpa::frames::MAX_PRIVATE_DATA - mpa::frames::ENHANCED;

/// The configuration of connectors and listeners: framing, connection set-up, and options of the TCP sockets.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IwarpConfig {
    /// `true` to request CRCs, which are used if either side requests them. Default `true`. RFC 5044 §4.4 allows
    /// `false` only if an administrator requests it explicitly and other means protect TCP at least as well.
    pub crc: bool,
    /// The FPDU size. Default [`FpduSize::Largest`].
    pub fpdu_size: FpduSize,
    /// `true` to retry with MPA revision 1 if the peer closes the connection on revision 2 or replies with revision 1
    /// (RFC 6581 §10). Default `true`.
    pub fall_back_to_revision_1: bool,
    /// The local address of connections that a connector makes. Default `None`: the system chooses it.
    pub local: Option<IpAddr>,
    /// The time after the last activity of a connection during which its socket is polled, before the connection waits
    /// for an event. Polling shortens the round trip and uses processor time. Default zero: no polling.
    pub busy_poll: Duration,
    /// The traffic class of the packets of connections (`IP_TOS`, `IPV6_TCLASS`): the DSCP of RFC 2474 in the upper six
    /// bits. TCP sets the lower two bits itself. Only supported on Linux: with a value, connecting and listening fail
    /// on other systems. Default `None`: the system chooses it.
    pub traffic_class: Option<u8>,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        Self {
            crc: true,
            fpdu_size: FpduSize::Largest,
            fall_back_to_revision_1: true,
            local: None,
            busy_poll: Duration::ZERO,
            traffic_class: None,
        }
    }
}

/// The size of the FPDUs of long messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FpduSize {
    /// The maximum of RFC 5044 §3: a ULPDU of 64768 bytes.
    #[default]
    Largest,
    /// The size that fits a TCP segment at connection set-up (RFC 5044 §4.5, §5.1). Choose it for adapters that place
    /// segments out of order.
    Segment,
    /// A ULPDU of the given size in bytes, clamped to 128..=64768.
    Ulpdu(u16),
}
