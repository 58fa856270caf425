//! RPC-over-RDMA version 2, and the choice of a connection's version.

mod chunks;
mod error_effects;
mod executed;
mod extension;
mod flow;
mod formats;
mod negotiation;
mod peer_pair;
mod properties;
mod props;
mod refusals;
mod reply_timeout;
mod resends;
mod reverse;
pub(crate) mod scripted;
mod sequences;
mod vectors;
