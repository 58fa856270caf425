//! Handles over restarts of the server, and over what others do to the tree meanwhile.

use std::fs;

use rpcrdma_specs::nfs3::*;

use crate::support::{Served, at};

#[tokio::test]
async fn handles_outlive_the_server() {
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
    // While nobody looks.
    fs::rename(folder.path().join("root/d"), folder.path().join("root/moved")).unwrap();
    let served = Served::of(folder, rpcrdma_examples::nfs3d::identity::Squash::Nobody).await;
    let nfs = served.client().await;
    assert_eq!(nfs.root, root);
    assert_eq!(nfs.getattr(&root).await.unwrap().fsid, fsid);
    assert_eq!(nfs.read(&a, 0, 100).await.unwrap().0, "content", "without a LOOKUP before");
    assert_eq!(nfs.lookup(&deep, "a").await.unwrap(), a);
    assert_eq!(nfs.lookup(&deep, "..").await.unwrap(), d);
    assert_eq!(nfs.getattr(&removed).await, Err(Nfsstat3::Stale));
    nfs.rename(at(&deep, "a"), at(&root, "b")).await.unwrap();
    assert_eq!(fs::read(served.root.join("b")).unwrap(), b"content");
}

#[tokio::test]
async fn files_that_others_move_are_found_again() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let (d, e) = (nfs.folder(&nfs.root, "d").await, nfs.folder(&nfs.root, "e").await);
    let a = nfs.file(&d, "a").await;
    fs::rename(served.root.join("d"), served.root.join("e/d2")).unwrap();
    fs::rename(served.root.join("e/d2/a"), served.root.join("e/a2")).unwrap();
    nfs.write(&a, 0, b"x", StableHow::Unstable).await.unwrap();
    assert_eq!(fs::read(served.root.join("e/a2")).unwrap(), b"x");
    assert_eq!(nfs.lookup(&d, "..").await.unwrap(), e);
    // Another file in its place is not the same file.
    fs::remove_file(served.root.join("e/a2")).unwrap();
    fs::write(served.root.join("e/a2"), "other").unwrap();
    assert_eq!(nfs.read(&a, 0, 100).await, Err(Nfsstat3::Stale));
}

#[tokio::test]
async fn a_file_that_is_there_is_never_stale() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let mut at = served.root.join("d");
    let a = nfs.file(&nfs.folder(&nfs.root, "d").await, "a").await;
    let gone = nfs.file(&nfs.root, "gone").await;
    fs::remove_file(served.root.join("gone")).unwrap();
    // Faster than the tree is searched again, and between searches in vain.
    for nth in 0..5 {
        let next = served.root.join(format!("d{nth}"));
        fs::rename(&at, &next).unwrap();
        at = next;
        assert_eq!(nfs.getattr(&gone).await, Err(Nfsstat3::Stale));
        nfs.getattr(&a).await.unwrap();
    }
}
