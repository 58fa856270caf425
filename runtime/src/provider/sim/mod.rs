//! A provider in memory: deterministic, with faults, for tests.
//!
//! [`pair`] makes two connected queue pairs. Registration, access rights and bounds, the order of work requests,
//! Receives, RDMA Reads that answer late and Send with Invalidate all work as on the wire; only the wire is missing.
//! [`Network::step`] does one thing at a time, chosen by a seed, so that a test meets every order of events
//! and can do it again; or else each poll does all there is to do. [`Fabric`] connects by port number, for code that
//! needs a connector and a listener.

mod fabric;
mod network;
mod queue_pair;
mod registry;
mod rng;

#[cfg(test)]
mod tests;

pub use fabric::{Fabric, SimConnector, SimIncoming, SimListener, SimRequest};
pub use network::Network;
pub use queue_pair::SimQueuePair;

use crate::memory::BufferPool;

/// One end of a simulated connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The first queue pair of a [`pair`], or the end that connected.
    A,
    /// The second queue pair of a [`pair`], or the end that accepted.
    B,
}

impl End {
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

/// Something that goes wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The connection is lost before step `.0`, counted from 0.
    Disconnect(u64),
    /// This end's Send number `nth`, counted from 0, arrives with only its first `len` octets.
    Truncate {
        /// The sender.
        end: End,
        /// Which of its Sends.
        nth: u64,
        /// Octets that arrive.
        len: usize,
    },
    /// This end's Send number `nth` arrives with octet `at`, if it has that many, combined with `mask` by exclusive or.
    Garble {
        /// The sender.
        end: End,
        /// Which of its Sends.
        nth: u64,
        /// Which octet.
        at: usize,
        /// Which bits.
        mask: u8,
    },
    /// This end's registration number `nth`, counted from 0, is refused.
    RefuseRegistration {
        /// Who registers.
        end: End,
        /// Which of its registrations.
        nth: u64,
    },
    /// This end's invalidation number `nth`, counted from 0, fails; the memory stays registered while the connection
    /// lasts.
    RefuseInvalidation {
        /// Who invalidates.
        end: End,
        /// Which of its invalidations.
        nth: u64,
    },
}

/// How one end of a simulated connection behaves.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EndConfig {
    /// Most RDMA Reads under way. Default 16.
    pub max_reads: u32,
    /// Longest RDMA Read or Write in octets. Default 2^32 - 1.
    pub max_transfer: u32,
    /// Whether it honours Send with Invalidate. Default `true`.
    pub remote_invalidation: bool,
    /// Receives posted at the start. Default 34.
    pub receives: usize,
    /// Their size in octets. Default 4096.
    pub receive_size: usize,
    /// Where their memory comes from.
    pub pool: BufferPool,
}

impl Default for EndConfig {
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

/// How a simulated connection behaves.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SimConfig {
    /// Chooses handles, and the order of steps.
    pub seed: u64,
    /// Whether things happen only in [`Network::step`]. Default `false`: a poll does all there is to do.
    pub stepped: bool,
    /// The two ends, [`End::A`] first.
    pub ends: [EndConfig; 2],
    /// What goes wrong.
    pub faults: Vec<Fault>,
}

/// Two connected queue pairs, and the network between them.
#[must_use]
pub fn pair(config: SimConfig) -> (SimQueuePair, SimQueuePair, Network) {
    let network = Network::new(config);
    (SimQueuePair::new(network.clone(), End::A), SimQueuePair::new(network.clone(), End::B), network)
}
