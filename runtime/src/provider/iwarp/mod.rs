//! iWARP in user space, over a TCP socket: the embedded provider, which needs no driver and no privileges.
//!
//! | layer | RFC | where |
//! | --- | --- | --- |
//! | set-up: frames, revisions, read depths | 5044 §7.1, 6581 | `setup`, `mpa::frames` |
//! | MPA: FPDUs, CRC32c, markers | 5044 §4 | `mpa`, `output` (sending), `input` (receiving) |
//! | DDP: segments, queues, sequence and bounds checks | 5041 | `ddp`, `outbound`, `inbound`, `stag` |
//! | RDMAP: messages, ordering, Terminate | 5040 | `rdmap`, `outbound`, `inbound`, `work` |
//! | teardown and error reporting | 5040 §6.2, §7; 5041 §6.2, §7; 5044 §8 | `endpoint`, `connection` |
//!
//! Wire-compatible with Linux's `siw` and with iWARP adapters.
//!
//! # What is copied
//!
//! Tagged payload (RDMA Write, RDMA Read Response) never is: it is written to the socket from where it lies, and read
//! from the socket to where it belongs ([`QueuePair::copied_payload`](super::QueuePair::copied_payload) counts
//! exceptions; `input` says how they are avoided). Sends are copied where that is cheaper than a place of their own
//! in a vectored system call.
//!
//! # Peers with narrow receivers
//!
//! Linux's `siw` takes a CRC whose four octets arrive in two TCP segments as wrong. All FPDUs are multiples of four
//! octets long and are written whole, so that cannot happen where the TCP segment size is a multiple of four, as it is
//! on Ethernet with MTU 1500 or 9000. Where it is not (Linux's loopback: 65483), [`FpduSize::Segment`] makes it rare.
//!
//! # Where this differs from the RFCs
//!
//! - Payload is placed before the CRC of its FPDU is known; it is delivered after (RFC 5044 §6; see `inbound`).
//! - FPDUs are as large as RFC 5044 §3 allows, not as a TCP segment, unless [`FpduSize::Segment`] is asked for. §5.1
//!   recommends the latter for receivers that handle segments out of order, which neither this end nor `siw` does;
//!   a large FPDU costs one header, one CRC and one system call per 63 KiB.
//! - A peer that ends its half of the TCP stream ends the connection; the half-closed state of RFC 5041 §6.2.1 is not
//!   kept up, since nothing above could use it.
//! - As responder to a peer-to-peer request (RFC 6581 §9.2), a zero-length Send is not offered as ready-to-receive
//!   indication, because it would consume a Receive; RDMA Write and RDMA Read are.

mod connection;
mod ddp;
mod endpoint;
#[cfg(any(feature = "fuzzing", test))]
pub mod fuzz;
mod inbound;
mod input;
mod link;
mod mpa;
mod outbound;
mod output;
mod rdmap;
mod setup;
mod stag;
mod work;

pub use connection::IwarpQueuePair;
pub use setup::{IwarpConnector, IwarpIncoming, IwarpListener, IwarpRequest};

/// Most octets of private data in a connection request or reply: 512 less those of RFC 6581's enhanced data.
pub const MAX_PRIVATE_DATA: usize = mpa::frames::MAX_PRIVATE_DATA - mpa::frames::ENHANCED;

/// How FPDUs are framed, and how set-up goes about it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IwarpConfig {
    /// Ask for CRCs. They are used if either end asks. Default `true`; RFC 5044 §4.4 allows `false` only where TCP is
    /// protected at least as well by other means, and on an administrator's explicit request.
    pub crc: bool,
    /// How large FPDUs are. Default [`FpduSize::Largest`].
    pub fpdu_size: FpduSize,
    /// Try MPA revision 1 with a peer that closes the connection on revision 2 (RFC 6581 §10). Default `true`.
    pub fall_back: bool,
}

impl Default for IwarpConfig {
    fn default() -> Self {
        Self { crc: true, fpdu_size: FpduSize::Largest, fall_back: true }
    }
}

/// How large the FPDUs of long messages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum FpduSize {
    /// As large as RFC 5044 §3 allows: a ULPDU of 64768 octets.
    #[default]
    Largest,
    /// As fits a TCP segment at set-up (RFC 5044 §4.5): for adapters that place segments out of order.
    Segment,
    /// A ULPDU of this many octets, at least 128 and at most 64768.
    Ulpdu(u16),
}
