//! A simulation of clients and servers of `rpcrdma` in one thread, with virtual time and a network whose faults follow
//! from a seed.
//!
//! Runs with the same seed are equal: the order of events, their times and all random numbers follow from it. The
//! product's own random numbers come from [`rpcrdma::seed_random_numbers`], and its time from tokio's paused clock. Its
//! connections come from two URL schemes, which lead to a [`Network`](network::Network). `README.md` describes what is
//! simulated and checked.
#![forbid(unsafe_code)]

pub mod calls;
pub mod client;
pub mod disk;
pub mod fairness;
pub mod fault;
pub mod file_tree;
pub mod files;
mod generated;
pub mod history;
#[path = "../../../runtime/tests/net_support/insecure_test_mechanism.rs"]
mod insecure_test_mechanism;
pub mod linearizability;
pub mod log;
pub mod minimize;
pub mod network;
mod panics;
pub mod random;
mod rdma;
pub mod registers;
pub mod run;
pub mod scenario;
pub mod server;
pub mod service;
mod tcp;

pub mod protocol {
    //! Types, clients and servers generated from `xdr/simulated.x`.
    #![allow(missing_docs, reason = "the XDR does not comment every field")]
    rpcrdma::include_xdr!("xdr/simulated.x");
}
