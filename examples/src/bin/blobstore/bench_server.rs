//! `blobstore bench-server`: a server without files, which shows what the transport can do.

use std::sync::OnceLock;

use anyhow::Context as _;
use bytes::Bytes;
use rpcrdma::server::{Context, Failure, Server};
use rpcrdma_examples::{
    blobstore::protocol::{
        BLOB_ATTACHMENT_MAX, BLOB_DATA_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStat, BlobStatus,
        CommitArgs, FetchArgs, FetchOk, FetchRes, GetArgs, GetOk, GetRes, ListArgs, ListOk, ListRes, PutArgs, StatRes,
        WatchArgs, WriteArgs,
        blobstore_v1::{BlobstoreV1, BlobstoreV1Server},
    },
    command::{self, Stop},
    say,
};

use crate::cli::BenchServerArgs;

/// `blobstore bench-server`
pub(crate) async fn run(args: BenchServerArgs) -> anyhow::Result<()> {
    let service = BlobstoreV1Server::new(Nothing::default());
    let mut builder = Server::builder().service(service).versions(args.rpcrdma.allowed());
    for url in &args.listen {
        builder = builder.listen(url);
    }
    let server = builder.bind().await?;
    let stop = Stop::new().context("cannot catch signals")?;
    for url in server.urls() {
        say!("listening on {url}");
    }
    let handle = server.handle();
    command::serve(server.serve(), stop, || handle.shutdown()).await;
    Ok(())
}

/// Every blob there may be, as long as anybody wants, of the same octets in memory. What is stored is forgotten.
#[derive(Debug, Default)]
struct Nothing(OnceLock<Bytes>);

impl Nothing {
    /// The first `count` octets, sent from where they lie.
    fn data(&self, cx: &Context, count: u32) -> Bytes {
        let all = self.0.get_or_init(|| {
            let mut memory = cx.pool().alloc(BLOB_DATA_MAX as usize);
            blake3::Hasher::new().finalize_xof().fill(&mut memory);
            memory.freeze()
        });
        all.slice(..all.len().min(count as usize))
    }
}

fn stat(size: u64) -> BlobStat {
    BlobStat { size, attachment_len: 0, modified: 1, digest: BlobDigest::default() }
}

impl BlobstoreV1 for Nothing {
    async fn stat(&self, _cx: &Context, _name: BlobName) -> Result<StatRes, Failure> {
        Ok(StatRes::BlobOk(stat(BLOB_DATA_MAX.into())))
    }

    async fn put(&self, _cx: &Context, args: PutArgs) -> Result<StatRes, Failure> {
        Ok(StatRes::BlobOk(stat(args.data.len() as u64)))
    }

    async fn begin(&self, _cx: &Context, _args: BeginArgs) -> Result<BeginRes, Failure> {
        Ok(BeginRes::BlobOk(1))
    }

    async fn write(&self, _cx: &Context, _args: WriteArgs) -> Result<BlobStatus, Failure> {
        Ok(BlobStatus::BlobOk)
    }

    async fn commit(&self, _cx: &Context, _args: CommitArgs) -> Result<StatRes, Failure> {
        Ok(StatRes::BlobOk(stat(BLOB_DATA_MAX.into())))
    }

    async fn abort(&self, _cx: &Context, _upload: u64) -> Result<BlobStatus, Failure> {
        Ok(BlobStatus::BlobOk)
    }

    async fn get(&self, cx: &Context, args: GetArgs) -> Result<GetRes, Failure> {
        Ok(GetRes::BlobOk(GetOk { eof: true, data: self.data(cx, args.count) }))
    }

    async fn fetch(&self, cx: &Context, args: FetchArgs) -> Result<FetchRes, Failure> {
        let attachment = self.data(cx, args.attachment_count.min(BLOB_ATTACHMENT_MAX));
        let data = self.data(cx, args.count);
        Ok(FetchRes::BlobOk(FetchOk { stat: stat(BLOB_DATA_MAX.into()), attachment, data }))
    }

    async fn list(&self, _cx: &Context, _args: ListArgs) -> Result<ListRes, Failure> {
        Ok(ListRes::BlobOk(ListOk { entries: Vec::new(), end: true }))
    }

    async fn delete(&self, _cx: &Context, _name: BlobName) -> Result<BlobStatus, Failure> {
        Ok(BlobStatus::BlobOk)
    }

    async fn watch(&self, _cx: &Context, _args: WatchArgs) -> Result<BlobStatus, Failure> {
        // Nothing ever changes.
        Ok(BlobStatus::BlobBusy)
    }
}
