//! Tests of file handles across restarts of the server and local changes of the tree.

use std::fs;

use rpcrdma_specs::nfs3::*;

use crate::support::{Served, at};

#[tokio::test]
async fn handles_survive_restarts() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let d = nfs.folder(&nfs.root, "d").await;
    let deep = nfs.folder(&d, "deep").await;
    let a = nfs.file(&deep, "a").await;
    let removed = nfs.file(&deep, "removed").await;
    nfs.write(&a, 0, b"content", StableHow::FileSync).await.unwrap();
    nfs.remove(&deep, "removed").await.unwrap();
    let root = nfs.root.clone();
    let fsid = nfs.getattr(&root).await.unwrap().fsid;

    let folder = served.end();
    // Move the directory while the server is down.
    fs::rename(folder.path().join("root/d"), folder.path().join("root/moved")).unwrap();
    let served = Served::of(folder, rpcrdma_examples::nfs3d::identity::Squash::None).await;
    let nfs = served.client().await;
    assert_eq!(nfs.root, root);
    assert_eq!(nfs.getattr(&root).await.unwrap().fsid, fsid);
    assert_eq!(nfs.read(&a, 0, 100).await.unwrap().0, "content", "the handle works without a LOOKUP");
    assert_eq!(nfs.lookup(&deep, "a").await.unwrap(), a);
    assert_eq!(nfs.lookup(&deep, "..").await.unwrap(), d);
    assert_eq!(nfs.getattr(&removed).await, Err(Nfsstat3::Stale));
    nfs.rename(at(&deep, "a"), at(&root, "b")).await.unwrap();
    assert_eq!(fs::read(served.root.join("b")).unwrap(), b"content");
}

#[tokio::test]
async fn files_moved_locally_are_found_again() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let (d, e) = (nfs.folder(&nfs.root, "d").await, nfs.folder(&nfs.root, "e").await);
    let a = nfs.file(&d, "a").await;
    fs::rename(served.root.join("d"), served.root.join("e/d2")).unwrap();
    fs::rename(served.root.join("e/d2/a"), served.root.join("e/a2")).unwrap();
    nfs.write(&a, 0, b"x", StableHow::Unstable).await.unwrap();
    assert_eq!(fs::read(served.root.join("e/a2")).unwrap(), b"x");
    assert_eq!(nfs.lookup(&d, "..").await.unwrap(), e);
    // A new file in the same place is a different file.
    fs::remove_file(served.root.join("e/a2")).unwrap();
    fs::write(served.root.join("e/a2"), "other").unwrap();
    assert_eq!(nfs.read(&a, 0, 100).await, Err(Nfsstat3::Stale));
}

#[tokio::test]
async fn an_existing_file_is_never_stale() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let mut at = served.root.join("d");
    let a = nfs.file(&nfs.folder(&nfs.root, "d").await, "a").await;
    let gone = nfs.file(&nfs.root, "gone").await;
    fs::remove_file(served.root.join("gone")).unwrap();
    // Moves follow each other faster than searches, and during the delay after unsuccessful ones.
    for nth in 0..5 {
        let next = served.root.join(format!("d{nth}"));
        fs::rename(&at, &next).unwrap();
        at = next;
        assert_eq!(nfs.getattr(&gone).await, Err(Nfsstat3::Stale));
        nfs.getattr(&a).await.unwrap();
    }
}
