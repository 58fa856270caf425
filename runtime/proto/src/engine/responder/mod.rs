//! Calls of the peer, from arrival to reply.
//!
//! | file | content |
//! | --- | --- |
//! | `served_call` | the state of one call |
//! | `served` | the unanswered calls of a connection, and the queue of responses |
//! | `arrivals` | validation of the chunks of a call, delivery to the upper layer |
//! | `read_chunks` | the Read chunks of a call |
//! | `fetch` | RDMA Reads of Read chunks |
//! | `responses` | the next response: the format of a reply, or an error |
//! | `results` | results by RDMA Write |

pub(super) mod arrivals;
mod fetch;
mod read_chunks;
pub(super) mod responses;
mod results;
pub(super) mod served;
pub(super) mod served_call;
