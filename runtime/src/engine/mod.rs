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
//! | [`v1`] | the rules and the header of version 1; how it goes beyond the letter of the RFC |
//! | [`stream`] | the same calls over a byte stream: record marking (RFC 5531 §11) |
//! | `types` | what goes in and comes out, whatever the version |
//! | `chunks` | segments: cutting this end's memory, walking the peer's |
//! | `credits` | credits in flight, Receives posted |
//! | `exposure` | memory exposed for a call, and taken back |
//! | `deadlines`, `slots`, `work` | when calls give up; where they are kept; numbers of work requests |

mod chunks;
mod credits;
mod deadlines;
mod exposure;
mod slots;
pub mod stream;
mod types;
pub mod v1;
mod work;

pub use types::*;
