//! Connections to a server, and explanations of failures for the user.

use std::{io, time::Duration};

use anyhow::anyhow;
use rpcrdma::{
    client::{CallError, Channel, ChannelBuilder, ChannelPool, ConnectError},
    provider::SetupError,
    rpc::RpcError,
};
use rpcrdma_examples::{
    blobstore::{
        protocol::{
            blob_watcher_v1::BlobWatcherV1Server,
            blobstore_v1::{self, BlobstoreV1Client},
        },
        transfer::{BlobClient, TransferError, TransferOptions},
        watch::Watcher,
    },
    command::explain_connect_error,
};

use crate::cli::{PoolArgs, ServerArgs, TransferArgs};

/// Time limit of a call. A COMMIT of a very large blob reads all of its data again.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);

/// A connected client, with one connection or a pool.
pub(crate) struct Connection {
    blobs: BlobClient<ChannelPool>,
}

impl Connection {
    /// Opens one connection to the server.
    pub(crate) async fn open(server: &ServerArgs, moving: TransferArgs) -> anyhow::Result<Self> {
        let url = std::iter::once(server.url.as_str());
        Self::build(Channel::builder(), server, moving, url).await
    }

    /// Opens the connections of `pool` to the server. The connections share the calls.
    pub(crate) async fn open_several(
        server: &ServerArgs,
        moving: TransferArgs,
        pool: &PoolArgs,
    ) -> anyhow::Result<Self> {
        Self::build(Channel::builder(), server, moving, pool.urls(&server.url)).await
    }

    /// Connects to the server and serves its callbacks with `watcher`.
    pub(crate) async fn open_watching(
        server: &ServerArgs,
        moving: TransferArgs,
        watcher: Watcher,
    ) -> anyhow::Result<Self> {
        let url = std::iter::once(server.url.as_str());
        Self::build(Channel::builder().service(BlobWatcherV1Server::new(watcher)), server, moving, url).await
    }

    async fn build(
        builder: ChannelBuilder,
        server: &ServerArgs,
        moving: TransferArgs,
        urls: impl Iterator<Item = &str>,
    ) -> anyhow::Result<Self> {
        let url = server.url.as_str();
        let depth = usize::from(moving.depth);
        let tls = server.tls.read(blobstore_v1::PROGRAM, blobstore_v1::VERSION)?;
        let builder = tls
            .apply(builder)
            .versions(server.rpcrdma.allowed())
            .credits(u32::from(moving.depth).max(32))
            .call_timeout(CALL_TIMEOUT);
        let builder = server.sec.secure(builder, "host", url)?;
        let connecting = builder.connect_pool(urls);
        let channels = connecting.await.map_err(|error| explain_connect(error, url))?;
        let pool = channels.pool().clone();
        let options = TransferOptions::default().with_range(moving.range).with_depth(depth);
        Ok(Self { blobs: BlobClient::new(BlobstoreV1Client::new(channels), pool, options) })
    }

    /// Returns the client for blob transfers.
    pub(crate) fn blobs(&self) -> &BlobClient<ChannelPool> {
        &self.blobs
    }

    /// Returns the pool of connections.
    pub(crate) fn channels(&self) -> &ChannelPool {
        self.blobs.rpc().channel()
    }

    /// Returns a client of the first connection alone.
    pub(crate) fn rpc(&self) -> BlobstoreV1Client {
        BlobstoreV1Client::new(self.channel().clone())
    }

    /// Returns the first connection of the pool.
    pub(crate) fn channel(&self) -> &Channel {
        self.channels().first()
    }
}

fn explain_connect(error: ConnectError, url: &str) -> anyhow::Error {
    let why = explain_connect_error(&error);
    match &error {
        ConnectError::Setup { source: SetupError::Io(source), .. }
            if source.kind() == io::ErrorKind::ConnectionRefused =>
        {
            anyhow!("cannot connect to {url}: {why}; start one with `blobstore serve`")
        }
        ConnectError::Setup { .. } => anyhow!("no blobstore at {url}: {why}"),
        _ => error.into(),
    }
}

/// Explains a failed transfer in terms of the command line.
pub(crate) fn explain(error: TransferError, url: &str) -> anyhow::Error {
    match &error {
        TransferError::Call(CallError::Rpc { source, .. }) => match source {
            RpcError::ProgramUnavailable => {
                anyhow!("no blobstore at {url}: the RPC server there does not serve blobs")
            }
            RpcError::ProgramMismatch { low, high } => anyhow!(
                "the server at {url} supports versions {low} to {high} of the blobstore protocol, but this client needs version 1"
            ),
            _ => error.into(),
        },
        _ => error.into(),
    }
}
