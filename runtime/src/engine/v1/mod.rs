//! RPC-over-RDMA version 1 (RFC 8166), with its private data (RFC 8797).
//!
//! | where | what |
//! | --- | --- |
//! | [`connection`](Connection) | what goes in and comes out; set-up, close |
//! | `requester` | calls: credits, XIDs, deadlines, exposed memory (RFC 8166 §3.3.1, §4.4) |
//! | `requester/offer` | Write list and Reply chunk of a call (§4.3.2, §4.3.3, §6.2) |
//! | `requester/replies` | replies: checks, discards (§4.5), what the caller gets |
//! | `responder` | calls of the peer's |
//! | `responder/calls` | checks on arrival (§3.4.5, §4.5.1, §4.5.2), limits (§8.1.4) |
//! | `responder/pulls` | Read chunks by RDMA Read (§3.4.5.1) |
//! | `responder/replies` | Write chunks, Reply chunk, Send (§3.4.6, §3.5.3, §4.3.2, §4.3.3, §4.5.3) |
//! | `format` | header lengths, reading and writing headers (§4.2) |
//! | `errors` | RDMA_ERROR (§4.5) |
//! | `private_data` | RFC 8797 |
//!
//! What later versions share is in the parent module: segments, credits, exposed memory, slots, deadlines.

mod connection;
mod errors;
mod format;
#[path = "header_standin.rs"]
pub mod header;
mod private_data;
mod requester;
mod responder;
mod shared;

pub use connection::{Connection, HEADROOM, Setup};
pub use private_data::PrivateData;
