//! Calls between clients and servers over every transport that needs no RDMA hardware, by subject.
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../net_support/cut.rs"]
mod cut;
#[path = "../net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
#[path = "../../iwarp/tests/iwarp_common/mod.rs"]
mod iwarp_common;
#[cfg(target_os = "linux")]
#[path = "../net_support/keep_alive.rs"]
mod keep_alive;
#[path = "../net_support/mod.rs"]
mod net_support;
#[path = "../net_support/path.rs"]
mod path;
#[path = "../net_support/proxy.rs"]
mod proxy;
#[cfg(feature = "tls")]
#[path = "../net_support/tls.rs"]
mod tls_support;

mod callbacks;
mod callers;
mod calls;
mod duplicates;
mod executors;
mod gss;
mod health;
#[cfg(target_os = "linux")]
mod keepalive;
mod limits;
mod loans;
mod memory;
mod pairs;
mod paths;
mod pool;
mod reconnection;
mod room;
mod runtimes;
mod schemes;
mod security;
mod server;
mod shares;
mod silence;
mod slow_peers;
mod tcp;
mod versions;
