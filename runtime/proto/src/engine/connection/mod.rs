//! The RPC-over-RDMA engine, independent of the version.
//!
//! | file | content |
//! | --- | --- |
//! | `connection` | [`Connection`](connection::Connection): calls in both directions, timers, memory and shutdown |
//! | `negotiation` | version negotiation |

#[allow(clippy::module_inception)]
pub(super) mod connection;
mod negotiation;
