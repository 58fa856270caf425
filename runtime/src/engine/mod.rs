//! The RPC-over-RDMA protocol without I/O, and record marking.
//!
//! A connection here is a state machine. Into it go calls made, replies made, completions of its work
//! requests, and the time; out of it come work requests, posted straight to the
//! [`QueuePair`](crate::provider::QueuePair) that is passed in, and [`Event`]s. It owns no socket, no clock and no thread.
//!
//! Call order: any of `start_call`, `cancel_call`, `reply`, `handle_completion`, `handle_timeout`; then
//! `poll_work`, which posts what is due; then `poll_event` until `None`; then wait for a completion, for the
//! time `poll_timeout` names, or for a user, and start again.
//!
//! | where | what |
//! | --- | --- |
//! | [`Connection`] | which version a connection has |
//! | [`v1`] | the rules and the header of version 1; how it goes beyond the letter of the RFC |
//! | [`v2`] | version 2: its rules and headers |
//! | [`stream`] | the same calls over a byte stream: record marking (RFC 5531 §11) |
//! | `types` | what goes in and comes out, whatever the version |
//! | `calls`, `offer`, `expose`, `answer` | this end's calls: from their making to their end; what they provide for replies, and what came back |
//! | `served`, `pulls`, `sinks` | the peer's calls: from their arrival to their answer; their Read chunks, by RDMA Read; where their results go |
//! | `completions` | completions that are about memory |
//! | `message` | RPC messages, and headers in front of them |
//! | `chunks` | segments: cutting this end's memory, walking the peer's |
//! | `credits` | credits in flight, Receives posted |
//! | `exposure` | memory exposed for a call, and taken back |
//! | `untaken` | answers that the peer does not take |
//! | `seal` | XIDs of calls, and verifiers that cover them (RFC 2203 §5.3.1) |
//! | `deadlines`, `slots`, `work` | when calls give up; where they are kept; numbers of work requests |

mod answer;
mod calls;
mod chunks;
mod completions;
mod connection;
mod counters;
mod credits;
mod deadlines;
mod expose;
mod exposure;
mod message;
mod offer;
mod pulls;
mod seal;
mod served;
mod shared;
mod sinks;
mod slots;
mod state;
pub mod stream;
#[cfg(test)]
mod tests;
mod types;
mod untaken;
pub mod v1;
pub mod v2;
mod work;

pub use connection::Connection;
pub use counters::Counters;
pub use types::*;
