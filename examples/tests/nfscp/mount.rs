//! Tests of mounting with a server that loses calls.

use std::{fs, sync::atomic::Ordering::SeqCst};

use tempfile::TempDir;

use super::{complaint, nfs_server::FakeServer, noise, printed, text};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_mount_are_made_again_once() {
    let server = FakeServer::start().await;
    let here = TempDir::new().unwrap();
    let file = here.path().join("file");
    fs::write(&file, noise(1000, 11)).unwrap();
    for (transport, lists) in [("tcp", true), ("iwarp", false)] {
        // EXPORT, or MNT if the exports are not listed.
        server.fake.lists.store(lists, SeqCst);
        server.fake.silent_mounts.store(1, SeqCst);
        let url = server.url(transport, &format!("/{transport}"));
        printed(&server, &["--timeout", "2", "--verify", text(&file), &url]).await;
        assert_eq!(server.fake.silent_mounts.load(SeqCst), 0);
    }
    server.fake.silent_mounts.store(2, SeqCst);
    let error = complaint(&server, &["--timeout", "2", text(&file), &server.url("tcp", "/silent")]).await;
    assert!(error.contains("no reply from MOUNT at tcp://") && error.contains("deadline passed"), "{error}");
    assert_eq!(server.fake.silent_mounts.load(SeqCst), 0);
}
