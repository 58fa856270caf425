//! A conformance peer for RPC-over-RDMA versions 1 and 2, and for iWARP.
//!
//! The peer plays a client against a server under test, or a server against a client under test. Each [`Case`] opens or
//! accepts a connection, sends something, and compares what comes back with the rules that it cites. The result is a
//! [`Finding`] with a [`Verdict`]. The README of this package shows how to run the program `rpcrdma-peer`.
//!
//! The peer is written from the specifications. It uses the header types that are generated from them and the RDMA
//! providers, but not the protocol engine, so that it does not share the engine's mistakes.
//!
//! | module | contents |
//! | --- | --- |
//! | [`case`] | cases, their rules, verdicts and findings |
//! | `came` | kinds of answers, and the verdict that a case gives to each |
//! | [`transport`], `link` | connections over iWARP or RDMA devices, with their messages and RDMA operations |
//! | `rpc`, `v1`, `v2` | messages of ONC RPC and of both versions of RPC-over-RDMA |
//! | [`server`] | cases for servers |
//! | [`client`] | cases for clients |
//! | `iwarp` | cases below RPC: MPA, DDP and RDMAP, for both roles |
//! | [`cases`] | all cases |
//! | [`mod@run`], [`report`] | running cases, and printing their findings |
#![forbid(unsafe_code)]

mod came;
pub mod case;
pub mod cases;
pub mod client;
mod iwarp;
mod link;
pub mod report;
mod rpc;
pub mod run;
pub mod server;
pub mod transport;
mod v1;
mod v2;

pub use case::{Case, Finding, Part, Verdict};
