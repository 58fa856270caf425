//! Tests of READDIR and READDIRPLUS: completeness, page sizes, concurrent changes, and large directories.

use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt as _};

use rpcrdma_specs::nfs3::*;

use crate::support::{Nfs, Served, mode};

/// Returns the names and file IDs of all entries, read in pages of at most `count` bytes. Panics if an entry is listed
/// twice.
async fn list(nfs: &Nfs, dir: &NfsFh3, count: u32) -> BTreeMap<Vec<u8>, u64> {
    let (mut entries, mut cookie, mut verifier) = (BTreeMap::new(), 0, Cookieverf3([0; 8]));
    loop {
        let page = nfs.readdir(dir, cookie, verifier, count).await.unwrap();
        for entry in page.reply.entries {
            assert!(entry.cookie > 0 && entry.cookie <= i64::MAX as u64);
            let again = entries.insert(entry.name.as_bytes().to_vec(), entry.fileid);
            assert_eq!(again, None, "{:?} is listed twice", entry.name);
            cookie = entry.cookie;
        }
        verifier = page.cookieverf;
        if page.reply.eof {
            return entries;
        }
    }
}

async fn list_plus(nfs: &Nfs, dir: &NfsFh3, counts: (u32, u32)) -> BTreeMap<Vec<u8>, Entryplus3> {
    let (mut entries, mut cookie, mut verifier) = (BTreeMap::new(), 0, Cookieverf3([0; 8]));
    loop {
        let page = nfs.readdirplus(dir, cookie, verifier, counts).await.unwrap();
        for entry in page.reply.entries {
            cookie = entry.cookie;
            assert!(entries.insert(entry.name.as_bytes().to_vec(), entry).is_none());
        }
        verifier = page.cookieverf;
        if page.reply.eof {
            return entries;
        }
    }
}

fn there(served: &Served, path: &str) -> BTreeMap<Vec<u8>, u64> {
    let root = served.root.join(path);
    let entries = fs::read_dir(&root).unwrap().map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().into_encoded_bytes(), entry.metadata().unwrap().ino())
    });
    let parent = if path.is_empty() { served.root.clone() } else { root.parent().unwrap().to_owned() };
    let ino = |path: &std::path::Path| fs::metadata(path).unwrap().ino();
    entries.chain([(b".".to_vec(), ino(&root)), (b"..".to_vec(), ino(&parent))]).collect()
}

#[tokio::test]
async fn every_entry_is_listed_once_for_any_page_size() {
    let served = Served::new().await;
    let nfs = served.client().await;
    fs::create_dir(served.root.join("d")).unwrap();
    for nth in 0..300 {
        fs::write(served.root.join(format!("d/{}{nth}", "n".repeat(nth % 200))), "").unwrap();
    }
    let d = nfs.lookup(&nfs.root, "d").await.unwrap();
    let want = there(&served, "d");
    for count in [400, 512, 1000, 4096, 32_768, 1 << 20, 8 << 20] {
        assert_eq!(list(&nfs, &d, count).await, want, "{count}");
    }
    assert_eq!(list(&nfs, &nfs.root, 4096).await, there(&served, ""), "the root's `..` is the root itself");
    for counts in [(1, 1000), (512, 4096), (8192, 32_768), (1 << 20, 1 << 20)] {
        let entries = list_plus(&nfs, &d, counts).await;
        assert_eq!(entries.iter().map(|(name, entry)| (name.clone(), entry.fileid)).collect::<BTreeMap<_, _>>(), want);
        for entry in entries.into_values().filter(|entry| entry.name.as_bytes() != b"..") {
            let (PostOpAttr::True(attributes), PostOpFh3::True(handle)) = (entry.name_attributes, entry.name_handle)
            else {
                panic!("no attributes or no handle: {:?}", entry.name)
            };
            assert_eq!(attributes.fileid, entry.fileid);
            if entry.name.as_bytes() == b"." {
                assert_eq!(handle, d);
            }
        }
    }
    let one = b"n".repeat(7).into_iter().chain(*b"7").collect::<Vec<_>>();
    let entries = list_plus(&nfs, &d, (8192, 32_768)).await;
    let PostOpFh3::True(handle) = &entries[&one].name_handle else { panic!() };
    assert_eq!(nfs.lookup(&d, &one).await.unwrap(), *handle);
}

#[tokio::test]
async fn replies_fit_the_requested_size() {
    use rpcrdma::xdr::XdrEncode as _;
    let served = Served::new().await;
    let nfs = served.client().await;
    for nth in 0..100 {
        fs::write(served.root.join(format!("{nth}{}", "n".repeat(nth))), "").unwrap();
    }
    for count in (150..1200).step_by(7) {
        let none = Cookieverf3([0; 8]);
        match nfs.readdir(&nfs.root, 0, none.clone(), count).await {
            Ok(page) => assert!(page.encoded_len() <= count as usize, "{count}"),
            Err(status) => assert_eq!(status, Nfsstat3::Toosmall),
        }
        match nfs.readdirplus(&nfs.root, 0, none, (count, count)).await {
            Ok(page) => assert!(page.encoded_len() <= count as usize, "{count}"),
            Err(status) => assert_eq!(status, Nfsstat3::Toosmall),
        }
    }
    for count in [0, 50, 120] {
        let page = nfs.readdir(&nfs.root, 0, Cookieverf3([0; 8]), count).await;
        assert_eq!(page.err(), Some(Nfsstat3::Toosmall), "{count}");
    }
}

/// Removes the entries of each page before reading the next page, like `rm -r`. With the cookies of tmpfs, every other
/// page would be skipped.
#[tokio::test]
async fn cookies_stay_valid_while_entries_go_and_come() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let d = nfs.folder(&nfs.root, "d").await;
    for nth in 0..200 {
        fs::write(served.root.join(format!("d/{nth}")), "").unwrap();
    }
    let (mut cookie, mut verifier, mut removed) = (0, Cookieverf3([0; 8]), 0);
    loop {
        let page = nfs.readdir(&d, cookie, verifier, 700).await.unwrap();
        for entry in page.reply.entries {
            cookie = entry.cookie;
            let name = entry.name.as_bytes();
            if !name.starts_with(b".") && !name.starts_with(b"new") {
                nfs.remove(&d, name).await.unwrap();
                removed += 1;
            }
        }
        fs::write(served.root.join(format!("d/new{removed}")), "").unwrap();
        verifier = page.cookieverf;
        if page.reply.eof {
            break;
        }
    }
    assert_eq!(removed, 200);
    assert!(there(&served, "d").keys().all(|name| name.starts_with(b".") || name.starts_with(b"new")));
}

#[tokio::test]
async fn cookies_survive_restarts() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let d = nfs.folder(&nfs.root, "d").await;
    for nth in 0..50 {
        fs::write(served.root.join(format!("d/{nth}")), "").unwrap();
    }
    let first = nfs.readdir(&d, 0, Cookieverf3([0; 8]), 500).await.unwrap();
    let cookie = first.reply.entries.last().unwrap().cookie;
    let rest = nfs.readdir(&d, cookie, first.cookieverf.clone(), 1 << 16).await.unwrap();
    let bad = nfs.readdir(&d, cookie, Cookieverf3([1; 8]), 500).await;
    assert_eq!(bad.err(), Some(Nfsstat3::BadCookie));

    let served = Served::of(served.end(), rpcrdma_examples::nfs3d::identity::Squash::None).await;
    let nfs = served.client().await;
    let again = nfs.readdir(&d, cookie, first.cookieverf, 1 << 16).await.unwrap();
    assert_eq!(again.reply, rest.reply);
    assert_eq!(first.reply.entries.len() + again.reply.entries.len(), 52);
}

/// A listing that continues after a cookie that belongs to no entry begins with the next larger cookie. Counts beyond
/// the limit are accepted.
#[tokio::test]
async fn cookies_and_counts_may_be_anything() {
    let served = Served::new().await;
    let nfs = served.client().await;
    for nth in 0..20 {
        fs::write(served.root.join(nth.to_string()), "").unwrap();
    }
    let first = nfs.readdir(&nfs.root, 0, Cookieverf3([0; 8]), u32::MAX).await.unwrap();
    assert!(first.reply.eof && first.reply.entries.len() == 22);
    let verifier = first.cookieverf;
    let middle = first.reply.entries[10].cookie;
    for (cookie, rest) in [(middle, 11), (middle - 1, 12), (middle + 1, 11), (1 << 63, 0), (u64::MAX, 0)] {
        let page = nfs.readdir(&nfs.root, cookie, verifier.clone(), u32::MAX).await.unwrap();
        assert_eq!((page.reply.entries.len(), page.reply.eof), (rest, true), "{cookie}");
        let counts = (u32::MAX, u32::MAX);
        let page = nfs.readdirplus(&nfs.root, cookie, verifier.clone(), counts).await.unwrap();
        assert_eq!((page.reply.entries.len(), page.reply.eof), (rest, true), "{cookie}");
    }
    // At the end of the list, the fixed part of the reply must fit.
    for (count, fits) in [(0, false), (103, false), (104, true)] {
        let page = nfs.readdir(&nfs.root, u64::MAX, verifier.clone(), count).await;
        assert_eq!(page.is_ok(), fits, "{count}: {page:?}");
    }
}

#[tokio::test]
async fn large_directories_work() {
    let served = Served::new().await;
    let nfs = served.client().await;
    fs::create_dir(served.root.join("d")).unwrap();
    for nth in 0..10_000 {
        fs::write(served.root.join(format!("d/{nth:0>64}")), "").unwrap();
    }
    let d = nfs.lookup(&nfs.root, "d").await.unwrap();
    assert_eq!(list(&nfs, &d, 65_536).await.len(), 10_002);
    assert_eq!(list_plus(&nfs, &d, (65_536, 1 << 20)).await.len(), 10_002);
    assert_eq!(nfs.readdir(&d, 0, Cookieverf3([0; 8]), 4096).await.unwrap().reply.entries[0].name.as_bytes(), b".");
    nfs.create(&d, "one more", Createhow3::Guarded(mode(0o644))).await.unwrap();
    assert_eq!(list(&nfs, &d, 1 << 20).await.len(), 10_003);
}
