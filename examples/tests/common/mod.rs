//! A blobstore server in this process, on a free port, and clients for it.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod time_limit;

use std::{sync::Arc, time::Duration};

use rpcrdma::{
    client::Channel,
    server::{Server, ServerHandle},
};
use rpcrdma_examples::blobstore::{
    ValidName,
    protocol::{
        BlobDigest, BlobName,
        blobstore_v1::{BlobstoreV1Client, BlobstoreV1Server},
    },
    service::BlobService,
    store::{Store, StoreOptions},
    transfer::{BlobClient, TransferOptions},
};
use tempfile::TempDir;

/// A server with its own store, which runs until the test's runtime ends.
pub(crate) struct Fixture {
    pub(crate) root: TempDir,
    pub(crate) url: String,
    pub(crate) handle: ServerHandle,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let store = Store::open(root.path(), StoreOptions::default()).unwrap();
        let service = BlobstoreV1Server::new(BlobService::new(Arc::new(store)));
        let server = Server::builder().service(service).listen("iwarp://127.0.0.1:0").bind().await.unwrap();
        let url = server.urls()[0].clone();
        let handle = server.handle();
        tokio::spawn(server.serve());
        Self { root, url, handle }
    }

    pub(crate) async fn rpc(&self) -> BlobstoreV1Client {
        rpc(&self.url).await
    }

    pub(crate) async fn client(&self, options: TransferOptions) -> BlobClient {
        client(&self.url, options).await
    }

    /// Returns the number of files in a directory of the store.
    pub(crate) fn files_in(&self, dir: &str) -> usize {
        std::fs::read_dir(self.root.path().join(dir)).unwrap().count()
    }
}

pub(crate) async fn rpc(url: &str) -> BlobstoreV1Client {
    let channel = Channel::builder().call_timeout(Duration::from_secs(60)).connect(url).await.unwrap();
    BlobstoreV1Client::new(channel)
}

pub(crate) async fn client(url: &str, options: TransferOptions) -> BlobClient {
    let rpc = rpc(url).await;
    let pool = rpc.channel().pool().clone();
    BlobClient::new(rpc, pool, options)
}

pub(crate) fn name(text: &str) -> ValidName {
    text.parse().unwrap()
}

/// Returns a name in wire format, valid or not.
pub(crate) fn wire_name(bytes: &[u8]) -> BlobName {
    BlobName(bytes::Bytes::copy_from_slice(bytes).into())
}

pub(crate) fn digest(data: &[u8]) -> BlobDigest {
    BlobDigest(*blake3::hash(data).as_bytes())
}

/// Returns pseudo-random bytes that depend on the seed.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut noise = vec![0; len];
    blake3::Hasher::new().update(&seed.to_be_bytes()).finalize_xof().fill(&mut noise);
    noise
}
