//! RDMA devices, by libibverbs and librdmacm: InfiniBand, RoCE and iWARP adapters, and Linux's soft RoCE and soft iWARP.
//!
//! In builds with the feature `verbs` (the libraries are linked) or `verbs-dlopen` (they are loaded at run time).
//!
//! | what | where |
//! | --- | --- |
//! | the C interface, and the one import of it | `ffi` |
//! | devices and their limits | `device` |
//! | the connection manager: identifiers, events; connecting and accepting; listening | `cm`, `setup`, `listener` |
//! | protection domain, regions, windows, completion queue, queue pair | `objects` |
//! | memory for messages, registered once; Receives | `slab`, `receives` |
//! | the pool's buffers, registered once | `regions` |
//! | memory exposed to the peer, by handle | `exposures` |
//! | work requests: order, what is signalled; chains | `queue`, `wr`, `status` |
//! | a connection: its parts, completions; posting; its end | `connection`, `posting`, `ending` |
//! | what devices report by themselves | `device_events` |
//! | sources of events that hardly ever have one | `rare` |
//!
//! # Memory
//!
//! Each connection has a protection domain, so no peer can reach another's memory. What a peer may access it may only from
//! the call's registration to its invalidation. Where the device has memory windows of type 2B, regions permit only local
//! access, and a window over one, bound on this queue pair, permits the remote: a fresh handle for each call, chosen at
//! random among those that the device gives, and invalidated by a work request, or by the peer's Send with Invalidate. Where it
//! has none, the region is the peer's, and is deregistered before the memory is handed back.
//!
//! Buffers of the connection's pool ([`SetupParams::pool`](super::SetupParams::pool)) are registered once, for local access,
//! up to [`VerbsConfig::max_registered`]; payload in other memory is registered for each request. Receives, and Sends that do
//! not fit a work request, lie in memory of the connection's own.
//!
//! # Sends
//!
//! A message is sent from one place. There is nothing to gather: it is encoded behind room for its transport header
//! ([`MessageBuf::prepend`](crate::memory::MessageBuf::prepend)), so that both are side by side without a copy, and eligible
//! items that are worth it go by RDMA, not in the Send. Up to what the device takes inside a work request (256 octets are asked
//! for) no memory is looked at after posting. Up to a Receive's length (4 KiB) the message is copied into a slot that stays
//! registered: its own memory is free at once, and no completion has to be waited for. What is longer, where the peer takes
//! it, is sent from where it lies.
//!
//! # What devices do differently
//!
//! - Soft RoCE (Linux 6.1) keeps a peer inside the region that a window is bound to, not inside the window: there, a region
//!   is made that is no larger than the window. It destroys a queue pair only after a wait of 50 s if a window is
//!   bound on it: windows are freed first. A window that is invalidated twice takes its kernel down: windows are freed
//!   after each use. It reports the peer's invalidation by a flag of Linux's own.
//! - Soft iWARP has no windows, takes Send with Invalidate for whatever is registered, and does not report it: peers are told
//!   not to use it. It lets a peer RDMA Read what is registered for RDMA Write. It does not say why it ended a connection.
//! - Soft iWARP misses the first message of about one connection in a hundred until something more comes: who has connected
//!   sends an RDMA Write of no octets where a quarter of a second brings no answer.
//! - Soft RoCE sends no connection requests any more, nobody's, once its network interface was down while something was under
//!   way, until the device is made anew (`tests/vm/README.md` has the experiment).
//! - iWARP adapters want the sink of an RDMA Read registered for remote write.
#![allow(unsafe_code)]

mod cm;
mod connection;
mod device;
mod device_events;
mod ending;
mod error;
mod exposures;
mod ffi;
mod listener;
mod objects;
mod posting;
mod queue;
mod rare;
mod receives;
mod regions;
mod setup;
mod slab;
mod status;
mod wr;

use std::time::Duration;

pub use connection::VerbsQueuePair;
pub use device::{Device, Protocol, devices};
pub use error::VerbsError;
pub use listener::VerbsListener;
pub use setup::{MAX_PRIVATE_DATA, VerbsConnector, VerbsIncoming, VerbsRequest};

/// How queue pairs of RDMA devices are run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsConfig {
    /// How long to look for completions, after the last one, before waiting for an event: lower latency for a processor's
    /// time. Other tasks of the same thread that this connection gives something to do come first; whatever else becomes
    /// ready there has to wait meanwhile. Default: zero, not at all.
    pub busy_poll: Duration,
    /// Have the device gather completions: at most so many, for at most so many microseconds. Devices that cannot are left
    /// as they are. Default: none.
    pub moderation: Option<(u16, u16)>,
    /// Octets of the pool's buffers that a connection keeps registered, and so locked in memory. Default: 64 MiB.
    pub max_registered: usize,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self { busy_poll: Duration::ZERO, moderation: None, max_registered: 64 << 20 }
    }
}
