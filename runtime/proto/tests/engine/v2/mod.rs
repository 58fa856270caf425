//! Tests of RPC-over-RDMA version 2, and of the choice of a connection's version.

mod chunks;
mod directions;
mod error_effects;
mod exchange;
mod executed;
mod extension;
mod failed_work;
mod flow;
mod formats;
mod headers;
mod limits;
mod negotiation;
mod peer_pair;
mod properties;
mod props;
mod refusals;
mod refused_calls;
mod reply_resources;
mod reply_timeout;
mod resends;
mod reverse;
pub(crate) mod scripted;
mod sequences;
mod vectors;
