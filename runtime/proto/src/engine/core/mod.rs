//! The state of an RPC-over-RDMA connection that all versions share, and the trait that each version implements.
//!
//! | file | content |
//! | --- | --- |
//! | `connection_core` | the calls of both directions, and the state that these share |
//! | `completions` | completions of work requests |
//! | `credits` | credits of version 1; posted Receives |
//! | `wire` | the trait that each version implements, in `v1` and `v2` |

mod completions;
pub(super) mod connection_core;
pub(super) mod credits;
pub(super) mod wire;
