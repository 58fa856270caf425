//! RDMA devices, by libibverbs and librdmacm: InfiniBand, RoCE and iWARP adapters, and Linux's soft RoCE and soft iWARP.
//!
//! In builds with the feature `verbs` (the libraries are linked) or `verbs-dlopen` (they are loaded at run time).
//!
//! | what | where |
//! | --- | --- |
//! | the C interface, and the one import of it | `ffi` |
//! | devices and their limits | `device` |
//! | the connection manager: identifiers, events | `cm`, `setup` |
//! | protection domain, regions, windows, completion queue, queue pair | `objects` |
//! | memory for messages, registered once | `slab` |
//! | memory exposed to the peer, by handle | `exposures` |
//! | work requests: order, what is signalled; chains | `queue`, `wr`, `status` |
//! | a connection: posting, completions, its end | `connection` |
//! | what devices report by themselves | `device_events` |
//!
//! # Memory
//!
//! Each connection has a protection domain, so no peer can reach another's memory. Memory that a peer may access is
//! registered for each call, and no longer than that. Where the device has memory windows of type 2B, the region itself
//! permits only local access, and a window over it, bound on this queue pair, permits the remote: a fresh handle for each call,
//! chosen at random among those that the device gives, and invalidated by a work request, or by the peer's Send with
//! Invalidate. Where it has none, the region is the peer's, and is deregistered before the memory is handed back.
//!
//! A window spans exactly the memory that its region does: soft RoCE compares addresses with the region's bounds, and not
//! with the window's.
//!
//! Receives, and Sends that do not fit a work request, lie in memory that is registered once for the connection. Larger
//! messages and the sources of RDMA Writes are registered while they are sent.
#![allow(unsafe_code)]

mod cm;
mod connection;
mod device;
mod device_events;
mod error;
mod exposures;
mod ffi;
mod objects;
mod queue;
mod setup;
mod slab;
mod status;
mod wr;

use std::time::Duration;

pub use connection::VerbsQueuePair;
pub use device::{Device, Protocol, devices};
pub use error::VerbsError;
pub use setup::{MAX_PRIVATE_DATA, VerbsConnector, VerbsIncoming, VerbsListener, VerbsRequest};

/// How queue pairs of RDMA devices are run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsConfig {
    /// How long to look for completions before waiting for an event: lower latency for a processor's time. The thread is
    /// not free for other tasks meanwhile. Default: zero, not at all.
    pub busy_poll: Duration,
    /// Have the device gather completions: at most so many, for at most so many microseconds. Devices that cannot are left
    /// as they are. Default: none.
    pub moderation: Option<(u16, u16)>,
}
