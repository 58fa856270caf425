//! RPC-over-RDMA version 2, and which version a connection has.

mod duo;
mod extension;
mod facing;
mod flow;
mod formats;
mod negotiation;
mod properties;
mod props;
mod refusals;
mod resends;
mod reverse;
mod vectors;
