//! Tests of WATCH: the server calls its clients for each change, while they call the server.
#![allow(clippy::unwrap_used)]

mod common;

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use bytes::Bytes;
use common::{digest, name, noise, wire_name};
use futures_util::future::join_all;
use rpcrdma::{client::Channel, server::Server};
use rpcrdma_examples::blobstore::{
    protocol::{
        BlobChange, BlobStatus, ChangeDetail, GetArgs, GetRes, PutArgs, StatRes, WatchArgs,
        blob_watcher_v1::BlobWatcherV1Server,
        blobstore_v1::{BlobstoreV1Client, BlobstoreV1Server},
    },
    service::BlobService,
    store::{Store, StoreOptions},
    transfer::{BlobClient, TransferOptions},
    watch::Watcher,
};
use tempfile::TempDir;
use tokio::{sync::mpsc, time::timeout};

struct Served {
    _root: TempDir,
    urls: Vec<String>,
    handle: rpcrdma::server::ServerHandle,
}

/// Serves a store over iWARP and TCP.
async fn serve(options: StoreOptions) -> Served {
    let root = tempfile::tempdir().unwrap();
    let store = Store::open(root.path(), options).unwrap();
    let service = BlobstoreV1Server::new(BlobService::new(Arc::new(store)));
    let server = Server::builder().service(service).listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0");
    let server = server.bind().await.unwrap();
    let (urls, handle) = (server.urls().to_vec(), server.handle());
    tokio::spawn(server.serve());
    Served { _root: root, urls, handle }
}

async fn watcher(url: &str, room: usize) -> (BlobstoreV1Client, mpsc::Receiver<BlobChange>) {
    let (watcher, changes) = Watcher::new(room);
    let channel = Channel::builder().service(BlobWatcherV1Server::new(watcher)).connect(url).await.unwrap();
    (BlobstoreV1Client::new(channel), changes)
}

async fn put(rpc: &BlobstoreV1Client, name: &str, data: Bytes) {
    let args = PutArgs { name: wire_name(name.as_bytes()), digest: digest(&data), attachment: Bytes::new(), data };
    assert!(matches!(rpc.put(&args).await.unwrap(), StatRes::BlobOk(_)));
}

async fn next(changes: &mut mpsc::Receiver<BlobChange>) -> BlobChange {
    timeout(Duration::from_secs(120), changes.recv())
        .await
        .expect("no change reported in time")
        .expect("the watcher was dropped")
}

/// A client is told of changes to blobs that another client stores and deletes, and fetches the stored blobs.
/// Meanwhile, it reads a large blob. The callbacks and the GETs share a connection. The test does this over iWARP and
/// over TCP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_reported_during_gets() {
    let served = serve(StoreOptions::default()).await;
    for url in &served.urls {
        let (rpc, mut changes) = watcher(url, 4).await;
        put(&rpc, "large", noise(1 << 20, 7).into()).await;
        assert_eq!(rpc.watch(&WatchArgs { prefix: "watched/".into() }).await.unwrap(), BlobStatus::BlobOk);
        let storing = BlobstoreV1Client::new(Channel::connect(url).await.unwrap());
        let blobs = |n: u64| (format!("watched/{n}"), Bytes::from(noise(1000 * n as usize, n)));
        let stored = async {
            for n in 0..60 {
                let (name, data) = blobs(n);
                put(&storing, &name, data).await;
                put(&storing, &format!("other/{n}"), Bytes::new()).await;
            }
            for n in 0..5 {
                assert_eq!(
                    storing.delete(&wire_name(format!("watched/{n}").as_bytes())).await.unwrap(),
                    BlobStatus::BlobOk
                );
            }
        };
        let reading = join_all((0..4).map(|_| async {
            for n in 0..50 {
                let get = GetArgs { name: wire_name(b"large"), offset: n * 1000, count: 1 << 19, expect: 0 };
                let GetRes::BlobOk(ok) = rpc.get(&get).await.unwrap() else { panic!("GET failed") };
                assert_eq!(ok.data.len(), 1 << 19);
            }
        }));
        let told = async {
            let fetching = BlobClient::new(rpc.clone(), rpc.channel().pool().clone(), TransferOptions::default());
            for n in 0..60 {
                let change = next(&mut changes).await;
                let (blob, data) = blobs(n);
                assert_eq!((change.name, change.missed), (wire_name(blob.as_bytes()), 0));
                let ChangeDetail::BlobStored(stat) = change.detail else { panic!("not a stored blob") };
                assert_eq!((stat.size, &stat.digest), (data.len() as u64, &digest(&data)));
                // The first blobs may already be deleted.
                if n >= 5 {
                    let (fetched, _, _) = fetching.download(&name(&blob), Vec::new(), |_, _| {}).await.unwrap();
                    assert!(fetched == data, "{blob} has changed");
                }
            }
            for n in 0..5 {
                let change = next(&mut changes).await;
                assert_eq!(
                    (change.name, change.detail),
                    (wire_name(format!("watched/{n}").as_bytes()), ChangeDetail::BlobDeleted)
                );
            }
        };
        tokio::join!(stored, reading, told);
        // The counters are published with a delay.
        let published = async {
            while rpc.channel().counters().calls_received < 65 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(120), published).await;
        let counters = rpc.channel().counters();
        assert_eq!(counters.calls_received, 65, "{url}");
        assert_eq!(counters.written_by_peer_bytes > 100 << 19, url.starts_with("iwarp"), "{url}");
        assert_eq!(counters.exposed_regions, 0);
        rpc.channel().close().await;
    }
}

/// A watcher that does not accept changes blocks no other client. It gets the number of changes that it has missed. The
/// server closes its connection when the client is dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_watchers() {
    let served = serve(StoreOptions::default().with_changes_kept(const { NonZeroUsize::new(16).unwrap() })).await;
    let (rpc, mut changes) = watcher(&served.urls[0], 1).await;
    assert_eq!(rpc.watch(&WatchArgs { prefix: "".into() }).await.unwrap(), BlobStatus::BlobOk);
    let storing = BlobstoreV1Client::new(Channel::connect(&served.urls[0]).await.unwrap());
    // Store more changes than the store buffers.
    let count: u64 = 100;
    for n in 0..count {
        put(&storing, &format!("{n}"), Bytes::new()).await;
    }
    let mut told = 0;
    let mut missed = 0;
    while told + missed < count {
        let change = next(&mut changes).await;
        told += 1;
        missed += change.missed;
    }
    assert_eq!(told + missed, count);
    assert!(missed > 0);
    let connections = served.handle.connections().len();
    drop((rpc, changes));
    for _ in 0..24_000 {
        if served.handle.connections().len() < connections {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the connection of a dropped watcher is still open");
}
