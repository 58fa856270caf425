//! `blobstore bench-server`, a server without files, to measure the transport alone.

use std::sync::OnceLock;

use bytes::Bytes;
use rpcrdma::server::{Context, HandlerError, Server};
use rpcrdma_examples::blobstore::protocol::{
    BLOB_DATA_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStat, BlobStatus, CommitArgs, FetchArgs, FetchOk,
    FetchRes, GetArgs, GetOk, GetRes, ListArgs, ListOk, ListRes, PutArgs, StatRes, WatchArgs, WriteArgs,
    blobstore_v1::{BlobstoreV1, BlobstoreV1Server},
};

use rpcrdma_examples::command::MetricsArgs;

use crate::{cli::BenchServerArgs, serve::until_stopped};

/// Runs `blobstore bench-server`: serves until a signal stops the server.
pub(crate) async fn run(args: BenchServerArgs) -> anyhow::Result<()> {
    let service = BlobstoreV1Server::new(MemoryBlobs::default());
    let builder = Server::builder().service(service).versions(args.rpcrdma.allowed());
    let (server, threads) = args.threads().bind(builder, &args.listen).await?;
    until_stopped(server, threads, &MetricsArgs::default().start().await?).await
}

/// A service in which every blob exists and has the same in-memory contents. It discards stored data.
#[derive(Debug, Default)]
struct MemoryBlobs(OnceLock<(Bytes, BlobStat)>);

impl MemoryBlobs {
    fn all(&self, cx: &Context) -> &(Bytes, BlobStat) {
        self.0.get_or_init(|| {
            let mut memory = cx.pool().alloc(BLOB_DATA_MAX as usize);
            blake3::Hasher::new().finalize_xof().fill(&mut memory);
            let data = memory.freeze();
            let digest = BlobDigest(*blake3::hash(&data).as_bytes());
            let stat = BlobStat { size: data.len() as u64, attachment_len: 0, modified: 1, digest };
            (data, stat)
        })
    }

    fn stat(&self, cx: &Context) -> StatRes {
        StatRes::BlobOk(self.all(cx).1.clone())
    }

    /// Returns a slice of the shared data without copying it. The second value is `true` if the slice reaches the end
    /// of the blob.
    fn data(&self, cx: &Context, offset: u64, count: u32) -> (Bytes, bool) {
        let (all, _) = self.all(cx);
        let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        let end = begin.saturating_add(count as usize).min(all.len());
        (all.slice(begin..end), end == all.len())
    }
}

impl BlobstoreV1 for MemoryBlobs {
    async fn stat(&self, cx: &Context, _name: BlobName) -> Result<StatRes, HandlerError> {
        Ok(self.stat(cx))
    }

    async fn put(&self, cx: &Context, _args: PutArgs) -> Result<StatRes, HandlerError> {
        Ok(self.stat(cx))
    }

    async fn begin(&self, _cx: &Context, _args: BeginArgs) -> Result<BeginRes, HandlerError> {
        Ok(BeginRes::BlobOk(1))
    }

    async fn write(&self, _cx: &Context, _args: WriteArgs) -> Result<BlobStatus, HandlerError> {
        Ok(BlobStatus::BlobOk)
    }

    async fn commit(&self, cx: &Context, _args: CommitArgs) -> Result<StatRes, HandlerError> {
        Ok(self.stat(cx))
    }

    async fn abort(&self, _cx: &Context, _upload: u64) -> Result<BlobStatus, HandlerError> {
        Ok(BlobStatus::BlobOk)
    }

    async fn get(&self, cx: &Context, args: GetArgs) -> Result<GetRes, HandlerError> {
        let (data, eof) = self.data(cx, args.offset, args.count);
        Ok(GetRes::BlobOk(GetOk { eof, data }))
    }

    async fn fetch(&self, cx: &Context, args: FetchArgs) -> Result<FetchRes, HandlerError> {
        let (data, _) = self.data(cx, 0, args.count);
        Ok(FetchRes::BlobOk(FetchOk { stat: self.all(cx).1.clone(), attachment: Bytes::new(), data }))
    }

    async fn list(&self, _cx: &Context, _args: ListArgs) -> Result<ListRes, HandlerError> {
        Ok(ListRes::BlobOk(ListOk { entries: Vec::new(), end: true }))
    }

    async fn delete(&self, _cx: &Context, _name: BlobName) -> Result<BlobStatus, HandlerError> {
        Ok(BlobStatus::BlobOk)
    }

    async fn watch(&self, _cx: &Context, _args: WatchArgs) -> Result<BlobStatus, HandlerError> {
        // Nothing ever changes.
        Ok(BlobStatus::BlobBusy)
    }
}
