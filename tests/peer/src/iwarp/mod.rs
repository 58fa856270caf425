//! Cases below RPC: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040), over TCP.
//!
//! The peer writes frames itself, because a provider never sends invalid ones.

mod connector;
mod frames;
mod listener;
mod segments;
mod setup_frames;
mod wire;

use crate::{case::Case, client::ClientUnderTest, server::ServerUnderTest};

pub(crate) fn listener_cases() -> Vec<Case<ServerUnderTest>> {
    listener::cases()
}

pub(crate) fn connector_cases() -> Vec<Case<ClientUnderTest>> {
    connector::cases()
}
