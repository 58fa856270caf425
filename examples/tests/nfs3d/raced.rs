//! Test of calls that access a file while a local process changes the directories above it. No call may leave the
//! export.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rpcrdma_specs::nfs3::*;

use crate::support::{Nfs, Served, at, mode};

/// Repeatedly replaces the directory `d` by a link to `outside` and back, and moves `d` out of the export and back.
fn swap(root: &Path, outside: &Path, end: &AtomicBool, rounds: &AtomicU64) {
    let (d, aside, gone) = (root.join("d"), root.join("aside"), outside.with_file_name("gone"));
    while !end.load(Ordering::Relaxed) {
        for elsewhere in [&aside, &gone] {
            fs::rename(&d, elsewhere).unwrap();
            symlink(outside, &d).unwrap();
            thread::yield_now();
            fs::remove_file(&d).unwrap();
            fs::rename(elsewhere, &d).unwrap();
            thread::yield_now();
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Tries several operations in a directory and on the file `secret`. Checks that no result is from outside of the
/// export. Returns the number of READs and changes that succeeded.
async fn use_it(nfs: &Nfs, d: &NfsFh3, secret: &NfsFh3, nth: u32) -> u32 {
    let name = format!("new{nth}");
    let mut worked = 0;
    // Use the directory's handle, and its name, which may belong to the link at this moment.
    let named = nfs.lookup(&nfs.root, "d").await;
    for dir in [Some(d), named.as_ref().ok()].into_iter().flatten() {
        if let Ok(found) = nfs.lookup(dir, "secret").await {
            let read = nfs.read(&found, 0, 100).await;
            assert!(read.is_err() || read.as_ref().unwrap().0 == "inside", "{read:?}");
            worked += u32::from(read.is_ok());
        }
        worked += u32::from(nfs.create(dir, &name, Createhow3::Unchecked(mode(0o644))).await.is_ok());
        worked += u32::from(nfs.rename(at(dir, &name), at(dir, "renamed")).await.is_ok());
        worked += u32::from(nfs.remove(dir, "renamed").await.is_ok());
        if let Ok(page) = nfs.readdir(dir, 0, Cookieverf3([0; 8]), 4096).await {
            assert!(!page.reply.entries.iter().any(|entry| entry.name.as_bytes() == b"only-outside"));
        }
    }
    let written = nfs.write(secret, 0, b"inside", StableHow::Unstable).await;
    worked + u32::from(written.is_ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_leaves_the_export_by_a_racing_link() {
    let served = Served::new().await;
    let outside = served.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "outside").unwrap();
    fs::write(outside.join("only-outside"), "").unwrap();
    let nfs = served.client().await;
    let d = nfs.folder(&nfs.root, "d").await;
    let secret = nfs.file(&d, "secret").await;
    nfs.write(&secret, 0, b"inside", StableHow::FileSync).await.unwrap();

    let (end, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let swapping = {
        let (root, outside, end, rounds) =
            (served.root.clone(), outside.clone(), Arc::clone(&end), Arc::clone(&rounds));
        thread::spawn(move || swap(&root, &outside, &end, &rounds))
    };
    let started = Instant::now();
    let (mut worked, mut nth) = (0, 0);
    while started.elapsed() < Duration::from_secs(2) || worked == 0 || rounds.load(Ordering::Relaxed) < 10 {
        assert!(started.elapsed() < Duration::from_secs(120), "{worked} calls worked in {nth} rounds");
        worked += use_it(&nfs, &d, &secret, nth).await;
        nth += 1;
    }
    end.store(true, Ordering::Relaxed);
    swapping.join().unwrap();
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"outside");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 2, "nothing was created outside of the export");
    // The directory is back in its place and accessible.
    nfs.write(
        &nfs.lookup(&nfs.lookup(&nfs.root, "d").await.unwrap(), "secret").await.unwrap(),
        0,
        b"x",
        StableHow::FileSync,
    )
    .await
    .unwrap();
    assert_eq!(fs::read(served.root.join("d/secret")).unwrap(), b"xnside");
}
