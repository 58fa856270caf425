//! RDMA devices, through libibverbs and librdmacm: InfiniBand, RoCE and iWARP adapters, and Linux's soft RoCE and soft
//! iWARP.
//!
//! The feature `verbs` links the libraries. The feature `verbs-dlopen` loads them when they are first used: by the
//! first connection, listener or [`devices`]. If both are enabled, the libraries are linked.
//!
//! | topic | modules |
//! | --- | --- |
//! | C interface, imported in one place | `ffi` |
//! | devices and their limits | `device` |
//! | connection manager: identifiers, events; connecting and accepting; listening; local ports | `cm`, `setup`, `listener`, `ports` |
//! | protection domain, regions, windows, completion queue, queue pair; optional flags of regions | `objects`; `optional_access` |
//! | message memory that is registered once; Receives | `slab`, `receives` |
//! | queues of a connection; queues that connections share | `connection_queues`; `shared_receives`, `completion_hub` |
//! | pool buffers that are registered once; huge pages for them | `regions`; `huge_pages` |
//! | memory exposed to the peer, by handle | `exposures` |
//! | work requests: order, signaling, chains | `queue`, `wr`, `status` |
//! | connections: state and completions; posting; closing | `connection`, `posting`, `teardown` |
//! | asynchronous device events; closing of removed devices | `device_events`; `removed_devices` |
//! | polling of rare event sources | `event_readiness` |
//! | errors, with instructions for users | `error` |
//!
//! # Memory
//!
//! Each connection has a protection domain of its own, unless it shares queues. A peer therefore cannot access the
//! memory of another connection (RFC 8166 §8.1). The peer can access memory only between its registration for a call
//! and its invalidation. If the device has memory windows of type 2B, regions permit only local access, and a window
//! that is bound on this queue pair permits remote access. Each call then gets a fresh handle, chosen at random among
//! the handles that the device provides. The handle is invalidated by a work request, or by the peer's Send with
//! Invalidate. If the device has no such windows, the region itself permits remote access, and is deregistered before
//! the memory is returned.
//!
//! Buffers of the connection's pool ([`SetupParams::pool`](provider::SetupParams::pool)) are registered once, for local
//! access, up to [`VerbsConfig::max_registered`]. Payload in other memory is registered for each request, unless it is
//! short enough to be copied. Receives, and copies that do not fit a work request, use message memory that stays
//! registered.
//!
//! # Shared queues
//!
//! With [`VerbsConfig::shared_receives`], the connections that a listener accepts on a device share a protection
//! domain, a shared receive queue, memory for messages, and completion queues. The memory of the server then depends on
//! the messages that it processes at a time. Without shared Receives, each connection has Receives for all of its
//! credits. If connections are set up in several tokio runtimes, the connections of each runtime share objects of their
//! own, so threads do not wait for each other.
//!
//! - The queue has Receives for as many messages as the peers' credits permit at the moment, but at most the configured
//!   number. If more messages arrive, the device asks the peers to repeat them. No connection is lost.
//! - A message that exceeds the Receives of its own connection ends that connection. A peer cannot use up the Receives
//!   of other connections.
//! - A task distributes the completions, so a connection whose messages are processed slowly does not delay other
//!   connections.
//! - Memory stays protected: only a window permits access, and a window belongs to one queue pair. Devices without
//!   windows of type 2B, such as soft iWARP, do not share: in a common protection domain, a peer could access the
//!   memory of other connections. iWARP devices do not share either, because a message that finds the queue empty would
//!   end its connection.
//!
//! # Sends
//!
//! A message is sent from contiguous memory, so no gathering is needed. It is encoded behind headroom for its transport
//! header ([`MessageBuf::prepend`](crate::memory::MessageBuf::prepend)), and large eligible items are transferred by
//! RDMA, not in the Send. The size of a message decides how it is sent:
//!
//! - Up to the device's limit for inline data (256 bytes are requested), the data is copied into the work request.
//! - Up to the size of a Receive (4 KiB by default) and at most 64 KiB, the message is copied into a slot that stays
//!   registered. The message's own memory is free at once, and its completion need not be awaited.
//! - A longer message is sent from its own memory, if the peer accepts it.
//!
//! # Device differences
//!
//! - Soft RoCE (Linux 6.1) checks the bounds of the region, not those of the window bound to it. The provider therefore
//!   registers a region that is no larger than the window. Soft RoCE destroys a queue pair with a bound window only
//!   after 50 s, so windows are freed first. Invalidating a window twice crashes the kernel, so windows are freed after
//!   each use. A peer that guesses a handle can invalidate a window of another connection, even in another domain. Soft
//!   RoCE reports the peer's invalidation with a flag of the Linux kernel. When it repeats a request, it also repeats
//!   the binds that follow, which ends the queue pair without a report. A bind therefore waits for the completion of
//!   all earlier transfers.
//! - Soft iWARP has no windows. It applies Send with Invalidate to any registration and does not report it, so the
//!   provider asks peers not to use it. It lets a peer RDMA Read memory that is registered for RDMA Write. It does not
//!   report why it ended a connection.
//! - Soft iWARP misses the first message of about one connection in a hundred until more data arrives. The initiator
//!   therefore sends a zero-length RDMA Write if there is no reply for 250 ms.
//! - Soft RoCE sends no more connection requests of any process if its network interface was down while requests were
//!   in flight, until the device is recreated (`tests/vm/README.md` describes the experiment).
//! - Most iWARP adapters require the sink of an RDMA Read to be registered for remote write.
#![allow(unsafe_code)]
// Without a feature, the crate is empty, so that it can be built where the libraries' interface is not available.
#![cfg(any(feature = "verbs", feature = "verbs-dlopen"))]

mod cm;
mod completion_hub;
mod connection;
mod connection_queues;
mod device;
mod device_events;
mod error;
mod event_readiness;
mod exposures;
mod ffi;
#[cfg(target_os = "linux")]
mod huge_pages;
mod listener;
mod objects;
mod optional_access;
mod ports;
mod posting;
mod queue;
mod receives;
mod regions;
mod removed_devices;
mod setup;
mod shared_receives;
mod slab;
mod status;
mod teardown;
mod wr;

use std::{io, net::IpAddr, time::Duration};

use rpcrdma_proto::{ErrorChain, memory, provider};

pub use connection::VerbsQueuePair;
pub use device::{Device, DeviceProtocol, devices};
pub use error::VerbsError;
#[cfg(target_os = "linux")]
pub use huge_pages::HugePages;
pub use listener::VerbsListener;
pub use setup::{MAX_PRIVATE_DATA, VerbsConnector, VerbsIncoming, VerbsRequest};

/// Options for queue pairs of RDMA devices.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerbsConfig {
    /// The time after the last completion for which the queue is polled, before the connection waits for an event. Busy
    /// polling lowers latency at the cost of processor time. Tasks of the same thread that this connection wakes run
    /// first, and other tasks of the thread are delayed. Default: zero (disabled).
    pub busy_poll: Duration,
    /// Completion moderation: the maximum number of completions that the device collects, and the maximum time in
    /// microseconds. Ignored by devices that do not support it. Default: `None`.
    pub moderation: Option<(u16, u16)>,
    /// Maximum total size of the pool buffers that a connection keeps registered, and thereby locked in memory, in
    /// bytes. Default: 64 MiB.
    pub max_registered: usize,
    /// Maximum number of Receives that the connections of a listener share on a device, with their memory and
    /// completion queues. With 0, each connection has its own Receives. Default: 0.
    ///
    /// If a server has several tokio runtimes, this is the number for each of them.
    ///
    /// With shared Receives, the memory of a server depends on the number of messages that it processes at a time, and
    /// not on its number of connections. Choose a number that exceeds the messages that arrive within about a
    /// millisecond, for example 1024. Numbers from 1 to 63 mean 64. If more messages arrive, the device asks the peers
    /// to repeat them after 0.64 ms.
    ///
    /// Ignored by connectors, and by devices that cannot share Receives safely: iWARP devices, and those without memory
    /// windows of type 2B.
    pub shared_receives: u32,
    /// The local address of connections that a connector makes, which selects the device. Default `None`: the system
    /// chooses it.
    pub local: Option<IpAddr>,
    /// The traffic class of the packets of connections: the DSCP of RFC 2474 in the upper six bits, and the ECN bits.
    /// Default `None`: the system chooses it.
    ///
    /// On RoCE, the kernel derives the service level from it, by the priorities of the network interface. On
    /// InfiniBand, it is the quality of service that is requested from the subnet manager, which chooses the service
    /// level. The client's value then applies to both directions, and a listener ignores its own. On iWARP, each side
    /// sets the traffic class of its own packets. Soft iWARP ignores it.
    pub traffic_class: Option<u8>,
    /// The time that the local device waits for an acknowledgment before it repeats packets: 4.096 microseconds times 2
    /// to the power of this number, 1 to 31. Default `None`: chosen by the connection manager. Ignored by iWARP
    /// devices.
    pub ack_timeout: Option<u8>,
    /// Number of times, 0 to 7, that the devices of both sides repeat packets without an acknowledgment, before the
    /// connection is lost. Ignored by listeners, because the client's number counts, and by iWARP devices. Default 7.
    pub retries: u8,
    /// Number of times, 0 to 7, that the peer's device repeats a Send that finds no Receive, before the connection is
    /// lost. 7 means without limit. Ignored by iWARP devices. Default `None`: 7 if the connection [shares
    /// Receives](Self::shared_receives), and otherwise 0.
    ///
    /// Without shared Receives, every message within the credits finds a Receive. With shared Receives, numbers below 7
    /// lose connections when many messages arrive at once.
    pub rnr_retries: Option<u8>,
    /// `true` to permit the device to write memory in any order (`IBV_ACCESS_RELAXED_ORDERING`), which is faster on
    /// some processors. A device or system that does not know the flag ignores it. Default `false`.
    ///
    /// The provider reads memory only after the completion of the writes. PCI Express keeps a completion behind the
    /// writes that precede it.
    pub relaxed_ordering: bool,
}

impl Default for VerbsConfig {
    fn default() -> Self {
        Self {
            busy_poll: Duration::ZERO,
            moderation: None,
            max_registered: 64 << 20,
            shared_receives: 0,
            local: None,
            traffic_class: None,
            ack_timeout: None,
            retries: 7,
            rnr_retries: None,
            relaxed_ordering: false,
        }
    }
}

impl VerbsConfig {
    /// Checks that the numbers are within their bounds.
    fn check(&self) -> io::Result<()> {
        for (name, value, bounds) in [
            ("ack_timeout", self.ack_timeout, 1..=31),
            ("retries", Some(self.retries), 0..=7),
            ("rnr_retries", self.rnr_retries, 0..=7),
        ] {
            if let Some(value) = value.filter(|value| !bounds.contains(value)) {
                let (min, max) = bounds.into_inner();
                let message = format!("VerbsConfig::{name} is {value}, expected {min} to {max}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
        Ok(())
    }
}
