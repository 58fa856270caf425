//! RPC-over-RDMA version 2, and which version a connection has.

mod duo;
mod executed;
mod extension;
mod facing;
mod flow;
mod formats;
mod negotiation;
mod properties;
mod props;
mod refusals;
mod refused;
mod resends;
mod reverse;
mod sequences;
mod untaken;
mod vectors;
