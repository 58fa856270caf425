//! The replacement of the module `tls` if the feature `tls` is off.

use rpcrdma::{client::ChannelBuilder, server::ServerBuilder};

/// TLS options of a client: none without the feature `tls`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct TlsClientArgs {}

impl TlsClientArgs {
    /// Returns the configuration, which is empty.
    ///
    /// # Errors
    /// Never fails.
    pub fn read(&self, _program: u32, _version: u32) -> anyhow::Result<ClientTls> {
        Ok(ClientTls {})
    }
}

/// TLS options of a server: none without the feature `tls`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct TlsServerArgs {}

impl TlsServerArgs {
    /// Returns the configuration, which is empty.
    ///
    /// # Errors
    /// Never fails.
    pub fn read(&self) -> anyhow::Result<ServerTls> {
        Ok(ServerTls)
    }
}

/// The TLS configuration of a client: none without the feature `tls`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientTls {}

impl ClientTls {
    /// Returns `builder` unchanged.
    pub fn apply(&self, builder: ChannelBuilder) -> ChannelBuilder {
        builder
    }
}

/// The TLS configuration of a server: none without the feature `tls`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerTls;

impl ServerTls {
    /// Returns `builder` unchanged.
    pub fn apply(&self, builder: ServerBuilder) -> ServerBuilder {
        builder
    }
}
