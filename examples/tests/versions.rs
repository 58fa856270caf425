//! Tests of the blob store with both versions of RPC-over-RDMA: message formats, files, and change reports during other
//! calls.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use common::{Fixture, digest, name, wire_name};
use rpcrdma::{
    client::{CallFormats, Channel},
    engine::{FormatReason, Versions},
};
use rpcrdma_examples::blobstore::{
    protocol::{
        BlobStatus, ChangeDetail, FetchArgs, FetchRes, ListArgs, ListRes, PutArgs, StatRes, WatchArgs,
        blob_watcher_v1::BlobWatcherV1Server, blobstore_v1::BlobstoreV1Client,
    },
    transfer::{BlobClient, TransferOptions},
    watch::Watcher,
};
use tokio::time::timeout;

/// Returns files of this package, and `large`.
fn files(large: &Path) -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let of = |dir: &str| std::fs::read_dir(package.join(dir)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = of("src").chain(of("tests")).chain(of("xdr")).filter(|path| path.is_file()).collect();
    files.push(large.to_owned());
    files
}

/// Stores and fetches files with a client of one version, which also watches for changes. Returns the numbers of calls
/// and replies in each message format.
async fn store_and_fetch(fixture: &Fixture, version: u32, files: &[PathBuf]) -> CallFormats {
    let (watcher, mut changes) = Watcher::new(4);
    let builder =
        Channel::builder().versions(Versions::try_from(version).unwrap()).service(BlobWatcherV1Server::new(watcher));
    let channel = builder.connect(&fixture.url).await.unwrap();
    let rpc = BlobstoreV1Client::new(channel.clone());
    let prefix = format!("v{version}/");
    let watch = WatchArgs { prefix: prefix.as_str().into() };
    assert_eq!(rpc.watch(&watch).await.unwrap(), BlobStatus::BlobOk);
    assert_eq!(channel.info().version, Some(version));
    let client = BlobClient::new(rpc.clone(), channel.pool().clone(), TransferOptions::default().with_range(256 << 10));

    let stored = async {
        for (n, path) in files.iter().enumerate() {
            let source = File::open(path).unwrap();
            let len = source.metadata().unwrap().len();
            client.upload(&name(&format!("{prefix}{n}")), source, len, Bytes::new(), |_| {}).await.unwrap();
        }
    };
    // Fetch each file when the server reports it, while the next one is stored.
    let fetched = async {
        for (n, path) in files.iter().enumerate() {
            let change = timeout(Duration::from_secs(120), changes.recv())
                .await
                .expect("no change reported in time")
                .expect("the watcher was dropped");
            let blob = format!("{prefix}{n}");
            assert_eq!((change.name, change.missed), (wire_name(blob.as_bytes()), 0));
            let ChangeDetail::BlobStored(stat) = change.detail else { panic!("not a stored blob") };
            let (data, ..) = client.download(&name(&blob), Vec::new(), |_, _| {}).await.unwrap();
            let file = std::fs::read(path).unwrap();
            assert!(data == file && stat.digest == digest(&file), "{} has changed", path.display());
        }
    };
    tokio::join!(stored, fetched);

    // Two eligible arguments, and two eligible results.
    let (attachment, data) = (Bytes::from(common::noise(9000, 1)), Bytes::from(common::noise(60_000, 2)));
    let both = wire_name(format!("{prefix}both").as_bytes());
    let put = PutArgs { name: both.clone(), digest: digest(&data), attachment: attachment.clone(), data: data.clone() };
    assert!(matches!(rpc.put(&put).await.unwrap(), StatRes::BlobOk(_)));
    let fetch = FetchArgs { name: both, attachment_count: 9000, count: 60_000 };
    let FetchRes::BlobOk(got) = rpc.fetch(&fetch).await.unwrap() else { panic!("FETCH failed") };
    assert!((got.attachment, got.data) == (attachment, data));

    // Lists, which have no eligible items: of one entry, of many, and of the maximum number.
    for count in [1, 100, 256] {
        let ListRes::BlobOk(page) = rpc.list(&ListArgs { cookie: "".into(), count }).await.unwrap() else { panic!() };
        assert_eq!(page.entries.len(), count as usize);
    }
    let counters = channel.counters();
    assert_eq!((counters.exposed_regions, counters.calls_received), (0, files.len() as u64 + 1));
    let formats = channel.formats();
    channel.close().await;
    formats
}

/// Transfers with each version over iWARP use callbacks, short and chunked calls, and replies in all message formats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_formats_of_both_versions() {
    let fixture = Fixture::start().await;
    let rpc = fixture.rpc().await;
    for n in 0..300 {
        let blob = wire_name(format!("a{n:03}-{}", "n".repeat(200)).as_bytes());
        let put = PutArgs { name: blob, digest: digest(b""), attachment: Bytes::new(), data: Bytes::new() };
        assert!(matches!(rpc.put(&put).await.unwrap(), StatRes::BlobOk(_)));
    }
    let large = fixture.root.path().join("large");
    std::fs::write(&large, common::noise(3_000_001, 3)).unwrap();
    let files = files(&large);
    // Version 1 uses a Reply chunk for each list of more than a few entries.
    let one = store_and_fetch(&fixture, 1, &files).await;
    assert!(one.calls.short > 0 && one.calls.chunked > 0, "{one:?}");
    assert!(one.replies.short > 0 && one.replies.chunked > 0, "{one:?}");
    assert_eq!((one.replies.long, one.replies.continued), (2, 0), "{one:?}");
    // Version 2 uses several Sends for a moderate list, and a Reply chunk for 256 entries, which may take 78 KiB.
    let two = store_and_fetch(&fixture, 2, &files).await;
    assert!(two.calls.short > 0 && two.calls.chunked > 0, "{two:?}");
    assert!(two.replies.short > 0 && two.replies.chunked > 0, "{two:?}");
    assert_eq!((two.replies.long, two.replies.continued), (1, 1), "{two:?}");
    assert_eq!(
        (two.replies.because(FormatReason::ReplyChunk), two.replies.because(FormatReason::WithinContinuation)),
        (1, 1)
    );
}
