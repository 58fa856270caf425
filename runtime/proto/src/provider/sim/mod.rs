//! An in-memory provider for tests: deterministic, with simulated faults.
//!
//! [`pair`] creates two connected queue pairs. They implement registration, access rights and bounds, the order of work
//! requests, Receives, delayed RDMA Read responses and Send with Invalidate, but no wire protocol. By default, each
//! poll performs all pending work. In stepped mode, [`SimNetwork::step`] performs one event at a time, chosen by a
//! seed, so a test can explore the possible orders of events and reproduce each. `SimFabric` of the crate `rpcrdma`
//! connects by port number, for code that needs a connector and a listener.

mod network;
mod queue_pair;
mod registry;
mod rng;

#[cfg(test)]
mod tests;

pub use network::SimNetwork;
pub use queue_pair::SimQueuePair;

use crate::memory::BufferPool;

/// One side of a simulated connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimEnd {
    /// The first queue pair of a [`pair`], or the side that connected.
    A,
    /// The second queue pair of a [`pair`], or the side that accepted.
    B,
}

impl SimEnd {
    const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A simulated fault. Steps are counted from 0, and so are the Sends, registrations and invalidations of each side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SimFault {
    /// The connection is lost before the step with this number.
    Disconnect(u64),
    /// A Send is truncated to its first `len` bytes.
    Truncate {
        /// The sender.
        end: SimEnd,
        /// The number of the Send.
        nth: u64,
        /// The number of bytes that arrive.
        len: usize,
    },
    /// The bits of `mask` are inverted in one byte of a Send. Has no effect if the Send does not contain this byte.
    Garble {
        /// The sender.
        end: SimEnd,
        /// The number of the Send.
        nth: u64,
        /// The index of the byte.
        at: usize,
        /// The bits to invert.
        mask: u8,
    },
    /// A registration is refused.
    RefuseRegistration {
        /// The side that registers.
        end: SimEnd,
        /// The number of the registration.
        nth: u64,
    },
    /// An invalidation fails. The memory stays registered until the connection ends.
    RefuseInvalidation {
        /// The side that invalidates.
        end: SimEnd,
        /// The number of the invalidation.
        nth: u64,
    },
}

/// Options for one side of a simulated connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SimEndConfig {
    /// Maximum number of local RDMA Reads in flight. Default 16.
    pub max_reads: u32,
    /// Maximum length of an RDMA Read or RDMA Write, in bytes. Default 2^32 - 1.
    pub max_transfer: u32,
    /// `true` if the side supports incoming Send with Invalidate. Default `true`.
    pub remote_invalidation: bool,
    /// Number of Receives posted at the start. Default 34.
    pub receives: usize,
    /// Size of each Receive, in bytes. Default 4096.
    pub receive_size: usize,
    /// The pool that provides Receive buffers.
    pub pool: BufferPool,
}

impl Default for SimEndConfig {
    fn default() -> Self {
        Self {
            max_reads: 16,
            max_transfer: u32::MAX,
            remote_invalidation: true,
            receives: 34,
            receive_size: 4096,
            pool: BufferPool::default(),
        }
    }
}

/// Options for a simulated connection.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SimConfig {
    /// The seed that determines handles and the order of steps.
    pub seed: u64,
    /// `true` to perform work only in [`SimNetwork::step`]. Default `false`: each poll performs all pending work.
    pub stepped: bool,
    /// The options of both sides, [`SimEnd::A`] first.
    pub ends: [SimEndConfig; 2],
    /// The faults to simulate.
    pub faults: Vec<SimFault>,
}

/// Creates two connected queue pairs and the network between them.
#[must_use]
pub fn pair(config: SimConfig) -> (SimQueuePair, SimQueuePair, SimNetwork) {
    let network = SimNetwork::new(config);
    (SimQueuePair::new(network.clone(), SimEnd::A), SimQueuePair::new(network.clone(), SimEnd::B), network)
}
