//! RPC-over-RDMA version 2, and the choice of a connection's version.

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
