//! Local calls, from start to completion.
//!
//! | file | content |
//! | --- | --- |
//! | `calls` | the local calls of a connection: queue, XIDs, deadlines, completion |
//! | `call` | the state of one call |
//! | `plan` | choice between inline and chunks for a call |
//! | `reply_chunks` | chunks for the reply to a call |
//! | `expose`, `call_regions` | registration and invalidation of the memory that a call exposes |
//! | `checked_reply` | validation of the chunks of a reply, and construction of the result |

pub(super) mod call;
mod call_regions;
pub(super) mod calls;
pub(super) mod checked_reply;
pub(super) mod expose;
pub(super) mod plan;
mod reply_chunks;
