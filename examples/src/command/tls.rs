//! The options of RPC-with-TLS (RFC 9289) that several programs share.

use std::path::PathBuf;

use anyhow::Context as _;
use rpcrdma::{
    client::ChannelBuilder,
    server::ServerBuilder,
    tls::{TlsClientConfig, TlsPolicy, TlsServerConfig},
};

/// TLS options of a client.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "TLS options (tcp:// only)")]
pub struct TlsClientArgs {
    /// Use of TLS: off, opportunistic (if the server offers it) or required
    #[arg(long, value_name = "POLICY", requires = "tls_ca")]
    tls: Option<TlsPolicy>,
    /// PEM file with the certificates of the authorities that issue certificates of servers. Implies --tls required
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// PEM file with the client's certificate chain
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Name in the server's certificate. Default: the host of the URL
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_server_name: Option<String>,
    /// Accept a server without ALPN. Linux servers need this
    #[arg(long, requires = "tls_ca")]
    tls_allow_missing_alpn: bool,
}

impl TlsClientArgs {
    /// Reads the files that the options name. `program` and `version` identify the service. Without `--tls-ca`, the
    /// configuration is empty.
    ///
    /// # Errors
    /// Fails if a file cannot be read or used.
    pub fn read(&self, program: u32, version: u32) -> anyhow::Result<ClientTls> {
        let Some(ca) = &self.tls_ca else { return Ok(ClientTls(None)) };
        let mut builder = TlsClientConfig::builder()
            .ca(ca)
            .policy(self.tls.unwrap_or_default())
            .program(program, version)
            .allow_missing_alpn(self.tls_allow_missing_alpn);
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            builder = builder.certificate(certificate, key);
        }
        if let Some(name) = &self.tls_server_name {
            builder = builder.server_name(name);
        }
        Ok(ClientTls(Some(builder.build().context("cannot use the TLS options")?)))
    }
}

/// The TLS configuration of a client. Empty if the client does not use TLS.
#[derive(Debug, Clone, Default)]
pub struct ClientTls(Option<TlsClientConfig>);

impl ClientTls {
    /// Sets the TLS configuration of a channel, if there is one.
    pub fn apply(&self, builder: ChannelBuilder) -> ChannelBuilder {
        match &self.0 {
            Some(config) => builder.tls(config.clone()),
            None => builder,
        }
    }
}

/// TLS options of a server.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "TLS options (tcp:// only)")]
pub struct TlsServerArgs {
    /// PEM file with the server's certificate chain. Turns TLS on for tcp://. SIGHUP reads all TLS files again
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// PEM file with the key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// PEM file with the certificates of the authorities that issue certificates of clients. Clients then need one
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Use of TLS: off, opportunistic (if the client asks for it) or required. Default: required. ?tls=POLICY in a URL
    /// overrides it
    #[arg(long, value_name = "POLICY", requires = "tls_cert")]
    tls: Option<TlsPolicy>,
    /// Accept clients without ALPN. Linux clients need this
    #[arg(long, requires = "tls_cert")]
    tls_allow_missing_alpn: bool,
}

impl TlsServerArgs {
    /// Reads the files that the options name. On Unix, the server reads them again at each SIGHUP. Without
    /// `--tls-cert`, the configuration is empty.
    ///
    /// # Errors
    /// Fails if a file cannot be read or used, or if the signal cannot be caught.
    pub fn read(&self) -> anyhow::Result<ServerTls> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(ServerTls(None)) };
        let mut builder = TlsServerConfig::builder()
            .certificate(certificate, key)
            .policy(self.tls.unwrap_or_default())
            .allow_missing_alpn(self.tls_allow_missing_alpn);
        if let Some(ca) = &self.tls_client_ca {
            builder = builder.client_ca(ca);
        }
        let config = builder.build().context("cannot use the TLS options")?;
        reload_on_hangup(config.clone())?;
        Ok(ServerTls(Some(config)))
    }
}

#[cfg(unix)]
fn reload_on_hangup(config: TlsServerConfig) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut hangup = signal(SignalKind::hangup()).context("cannot catch SIGHUP")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match config.reload() {
                Ok(()) => tracing::info!("TLS certificates read again"),
                Err(error) => {
                    tracing::error!(error = super::chain(&error), "the TLS certificates stay as they were");
                }
            }
        }
    });
    Ok(())
}

#[cfg(not(unix))]
fn reload_on_hangup(_config: TlsServerConfig) -> anyhow::Result<()> {
    Ok(())
}

/// The TLS configuration of a server. Empty if the server does not use TLS.
#[derive(Debug, Clone, Default)]
pub struct ServerTls(Option<TlsServerConfig>);

impl ServerTls {
    /// Sets the TLS configuration of a server, if there is one.
    pub fn apply(&self, builder: ServerBuilder) -> ServerBuilder {
        match &self.0 {
            Some(config) => builder.tls(config.clone()),
            None => builder,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Client {
        #[command(flatten)]
        tls: TlsClientArgs,
    }

    #[derive(Debug, Parser)]
    struct Server {
        #[command(flatten)]
        tls: TlsServerArgs,
    }

    #[test]
    fn options_that_belong_together() {
        for bad in
            [&["--tls", "required"][..], &["--tls-ca", "a", "--tls-cert", "b"], &["--tls-ca", "a", "--tls", "yes"]]
        {
            assert!(Client::try_parse_from([&["x"][..], bad].concat()).is_err(), "{bad:?}");
        }
        for bad in [&["--tls-cert", "a"][..], &["--tls-client-ca", "a"], &["--tls", "off"]] {
            assert!(Server::try_parse_from([&["x"][..], bad].concat()).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn files_are_read_only_with_the_options() {
        let none = Client::try_parse_from(["x"]).unwrap().tls.read(1, 1).unwrap();
        assert!(none.0.is_none());
        assert!(Server::try_parse_from(["x"]).unwrap().tls.read().unwrap().0.is_none());
        let client = Client::try_parse_from(["x", "--tls-ca", "/nowhere/ca.pem"]).unwrap();
        let error = format!("{:#}", client.tls.read(1, 1).unwrap_err());
        assert!(error.contains("/nowhere/ca.pem"), "{error}");
    }
}
