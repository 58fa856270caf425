//! Hostile peers for whole clients and servers.
//!
//! A fuzzer's input is decoded as a [`Plan`]: what a hostile peer does, one [`Step`](plan::Step) after the other.
//! [`run`] carries out the plan against a server, or against a client with calls in progress, in one thread with
//! virtual time. After each step, a healthy client makes a call. The run panics if a promise is broken:
//!
//! | promise | check |
//! | --- | --- |
//! | a peer cannot disturb others | each healthy call succeeds with the right data within [`HEALTHY_LIMIT`](healthy::HEALTHY_LIMIT) |
//! | a server still accepts connections | a new healthy client connects at the end |
//! | a call ends at its deadline | each call of the client under attack ends at most 100 ms after its deadline |
//! | everything is released | connections, regions, memory of calls and tasks are 0 at the end |
//! | nothing panics | a panic of any task is a violation |
//!
//! `tests/fuzz` has a fuzz target for each [`Target`]. The test `seeds` runs them on their seeds without a fuzzer.
#![forbid(unsafe_code)]

mod attack;
mod client;
mod compose;
mod gss;
mod header;
pub mod healthy;
#[path = "../../../runtime/tests/net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
mod iwarp;
mod link;
mod network;
#[path = "../../simulation/src/panics.rs"]
mod panics;
mod peer;
pub mod plan;
mod server;
mod service;

use std::time::Duration;

use arbitrary::{Arbitrary as _, Unstructured};

pub use crate::plan::Plan;

pub(crate) mod protocol {
    //! Types, clients and servers generated from `xdr/fuzzed.x`.
    #![allow(missing_docs, unreachable_pub, dead_code, reason = "generated, and not all of it is used")]
    rpcrdma::include_xdr!("xdr/fuzzed.x");
}

/// The part of the product that the hostile peer attacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The hostile peer is a client.
    Server,
    /// The hostile peer is a server.
    Client,
}

/// The transport of all connections of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// The simulated RDMA provider, with version 1.
    V1,
    /// The simulated RDMA provider, with version 2.
    V2,
    /// Userspace iWARP over a byte stream in memory, with the version that the plan names.
    Iwarp,
    /// Records over a byte stream in memory.
    Tcp,
}

/// The subject of a fuzz target: a role, and a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The role of the product.
    pub role: Role,
    /// The transport of all connections.
    pub wire: Wire,
}

impl Target {
    /// All targets, with their names.
    pub const ALL: [(&'static str, Self); 8] = [
        ("connection_server_v1", Self { role: Role::Server, wire: Wire::V1 }),
        ("connection_server_v2", Self { role: Role::Server, wire: Wire::V2 }),
        ("connection_server_iwarp", Self { role: Role::Server, wire: Wire::Iwarp }),
        ("connection_server_tcp", Self { role: Role::Server, wire: Wire::Tcp }),
        ("connection_client_v1", Self { role: Role::Client, wire: Wire::V1 }),
        ("connection_client_v2", Self { role: Role::Client, wire: Wire::V2 }),
        ("connection_client_iwarp", Self { role: Role::Client, wire: Wire::Iwarp }),
        ("connection_client_tcp", Self { role: Role::Client, wire: Wire::Tcp }),
    ];

    /// Returns the target with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(each, _)| *each == name).map(|(_, target)| *target)
    }
}

/// Counts of a run, for tests of the harness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Number of calls that healthy clients made.
    pub healthy: u32,
    /// Number of messages that the hostile peer received.
    pub received: u32,
    /// Number of calls of the client under attack that succeeded or were abandoned, and that failed.
    pub calls: (u32, u32),
}

/// Decodes a plan from a fuzzer's bytes. Any bytes are a plan.
#[must_use]
pub fn plan(bytes: &[u8]) -> Plan {
    Plan::arbitrary_take_rest(Unstructured::new(bytes)).unwrap_or_default()
}

/// Runs a plan against a target, in this thread and with virtual time.
///
/// # Panics
/// Panics if a promise in the documentation of this crate is broken.
pub fn run(target: Target, plan: &Plan) -> Summary {
    rpcrdma::seed_random_numbers(Some(0x5eed));
    panics::watch();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime without I/O needs no resources");
    let result = runtime.block_on(async {
        let played = match target.role {
            Role::Server => tokio::time::timeout(MAX_DURATION, server::play(target.wire, plan)).await,
            Role::Client => tokio::time::timeout(MAX_DURATION, client::play(target.wire, plan)).await,
        };
        let result = played.unwrap_or_else(|_| Err(format!("the run did not end within {MAX_DURATION:?}")));
        attack::idle(|| tokio::runtime::Handle::current().metrics().num_alive_tasks() == 0, RELEASE).await;
        result
    });
    let alive = runtime.metrics().num_alive_tasks();
    drop(runtime);
    rpcrdma::seed_random_numbers(None);
    let panics = panics::take();
    assert!(panics.is_empty(), "a task panicked: {panics:?}");
    let summary = match result {
        Ok(summary) => summary,
        Err(wrong) => panic!("{wrong}"),
    };
    assert_eq!(alive, 0, "tasks are left");
    summary
}

/// Maximum virtual duration of a run.
const MAX_DURATION: Duration = Duration::from_secs(1200);
/// Maximum virtual time for the release of everything at the end of a run.
const RELEASE: Duration = Duration::from_secs(60);
