//! Tests of names and handles that would lead out of the export, and of files that leave it.

use std::{fs, os::unix::fs::symlink};

use rpcrdma_specs::nfs3::*;

use crate::support::{Served, at, mode};

const BAD: [&[u8]; 6] = [b"", b"a/b", b"/etc/passwd", b"../secret", b"a\0b", b"/"];

#[tokio::test]
async fn names_with_separators_are_refused() {
    let served = Served::new().await;
    fs::write(served.folder.path().join("secret"), "secret").unwrap();
    let nfs = served.client().await;
    let file = nfs.file(&nfs.root, "file").await;
    for bad in BAD {
        let refused = Some(Nfsstat3::Acces);
        assert_eq!(nfs.lookup(&nfs.root, bad).await.err(), refused, "{bad:?}");
        assert_eq!(nfs.create(&nfs.root, bad, Createhow3::Unchecked(mode(0o666))).await.err(), refused);
        assert_eq!(nfs.mkdir(&nfs.root, bad, mode(0o755)).await.err(), refused);
        assert_eq!(nfs.symlink(&nfs.root, bad, "x").await.err(), refused);
        assert_eq!(nfs.mknod(&nfs.root, bad, Mknoddata3::Fifo(mode(0o644))).await.err(), refused);
        assert_eq!(nfs.remove(&nfs.root, bad).await.err(), refused);
        assert_eq!(nfs.rmdir(&nfs.root, bad).await.err(), refused);
        assert_eq!(nfs.rename(at(&nfs.root, "file"), at(&nfs.root, bad)).await.err(), refused);
        assert_eq!(nfs.rename(at(&nfs.root, bad), at(&nfs.root, "file")).await.err(), refused);
        assert_eq!(nfs.link(&file, at(&nfs.root, bad)).await.err(), refused);
    }
    // `.` and `..` always exist and cannot be changed.
    for special in [".", ".."] {
        let exists = Some(Nfsstat3::Exist);
        assert_eq!(nfs.create(&nfs.root, special, Createhow3::Unchecked(mode(0o666))).await.err(), exists);
        assert_eq!(nfs.mkdir(&nfs.root, special, mode(0o755)).await.err(), exists);
        assert_eq!(nfs.symlink(&nfs.root, special, "x").await.err(), exists);
        assert_eq!(nfs.link(&file, at(&nfs.root, special)).await.err(), exists);
        assert_eq!(nfs.remove(&nfs.root, special).await.err(), Some(Nfsstat3::Isdir));
        let invalid = Some(Nfsstat3::Inval);
        assert_eq!(nfs.rename(at(&nfs.root, special), at(&nfs.root, "x")).await.err(), invalid);
        assert_eq!(nfs.rename(at(&nfs.root, "file"), at(&nfs.root, special)).await.err(), invalid);
    }
    assert_eq!(nfs.rmdir(&nfs.root, ".").await.err(), Some(Nfsstat3::Inval));
    assert_eq!(nfs.rmdir(&nfs.root, "..").await.err(), Some(Nfsstat3::Exist));
    assert_eq!(nfs.lookup(&nfs.root, "..").await.unwrap(), nfs.root, "the root is its own parent");
    assert_eq!(fs::read_dir(&served.root).unwrap().count(), 1);
    assert_eq!(fs::read(served.folder.path().join("secret")).unwrap(), b"secret");
}

#[tokio::test]
async fn long_names_work_and_longer_ones_are_refused() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let longest = [b'\xff'; 255];
    let file = nfs.file(&nfs.root, longest).await;
    assert_eq!(nfs.lookup(&nfs.root, longest).await.unwrap(), file);
    let longer = [b'x'; 256];
    let refused = Some(Nfsstat3::Nametoolong);
    assert_eq!(nfs.lookup(&nfs.root, longer).await.err(), refused);
    assert_eq!(nfs.create(&nfs.root, longer, Createhow3::Guarded(mode(0o644))).await.err(), refused);
    assert_eq!(nfs.rename(at(&nfs.root, longest), at(&nfs.root, longer)).await.err(), refused);
    assert_eq!(nfs.remove(&nfs.root, longer).await.err(), refused);
    // A path longer than the system accepts at once.
    let mut at = nfs.root.clone();
    for _ in 0..40 {
        at = nfs.folder(&at, [b'd'; 200]).await;
    }
    let deep = nfs.file(&at, "deep").await;
    nfs.write(&deep, 0, b"x", StableHow::Unstable).await.unwrap();
    assert_eq!(nfs.lookup(&at, "deep").await.unwrap(), deep);
}

#[tokio::test]
async fn forged_handles_are_refused() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let good = nfs.file(&nfs.root, "a").await.data;
    let mut forged = vec![vec![], vec![0; 4], vec![0xff; 36], vec![0; 64]];
    for index in [0, 8, 16, 35] {
        let mut handle = good.to_vec();
        handle[index] ^= 0x10;
        forged.push(handle);
    }
    for data in forged {
        let object = NfsFh3 { data: data.into() };
        assert_eq!(nfs.getattr(&object).await, Err(Nfsstat3::Badhandle), "{object:?}");
        assert_eq!(nfs.lookup(&object, "a").await, Err(Nfsstat3::Badhandle));
        assert_eq!(nfs.read(&object, 0, 1).await, Err(Nfsstat3::Badhandle));
        assert_eq!(nfs.write(&object, 0, b"x", StableHow::Unstable).await.err(), Some(Nfsstat3::Badhandle));
        let unchecked = nfs.create(&object, "x", Createhow3::Unchecked(mode(0o644))).await;
        assert_eq!(unchecked.err(), Some(Nfsstat3::Badhandle));
    }
    // A handle of another export.
    let other = Served::new().await;
    let handle = NfsFh3 { data: good };
    assert_eq!(other.client().await.getattr(&handle).await, Err(Nfsstat3::Badhandle));
}

#[tokio::test]
async fn symbolic_links_are_not_followed_by_the_server() {
    follows_no_symbolic_links(Served::new().await).await;
    follows_no_symbolic_links(Served::in_memory().await).await;
}

async fn follows_no_symbolic_links(served: Served) {
    let outside = served.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let nfs = served.client().await;
    symlink(&outside, served.root.join("way-out")).unwrap();
    symlink("../outside/secret", served.root.join("file-out")).unwrap();
    let way_out = nfs.lookup(&nfs.root, "way-out").await.unwrap();
    assert_eq!(nfs.getattr(&way_out).await.unwrap().r#type, Ftype3::Lnk);
    assert_eq!(nfs.lookup(&way_out, "secret").await, Err(Nfsstat3::Notdir));
    let unchecked = nfs.create(&way_out, "x", Createhow3::Unchecked(mode(0o644))).await;
    assert_eq!(unchecked.err(), Some(Nfsstat3::Notdir));
    assert_eq!(nfs.readdir(&way_out, 0, Cookieverf3([0; 8]), 4096).await.err(), Some(Nfsstat3::Notdir));
    let file_out = nfs.lookup(&nfs.root, "file-out").await.unwrap();
    assert_eq!(nfs.read(&file_out, 0, 10).await, Err(Nfsstat3::Inval));
    // Replace a directory in use by a link that leads out of the export.
    let d = nfs.folder(&nfs.root, "d").await;
    let a = nfs.file(&d, "secret").await;
    fs::rename(served.root.join("d"), served.folder.path().join("moved")).unwrap();
    symlink(&outside, served.root.join("d")).unwrap();
    assert_eq!(nfs.lookup(&d, "secret").await, Err(Nfsstat3::Stale));
    assert_eq!(nfs.read(&a, 0, 10).await, Err(Nfsstat3::Stale));
    assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[tokio::test]
async fn files_moved_out_of_the_export_are_inaccessible() {
    loses_files_moved_out(Served::new().await).await;
    loses_files_moved_out(Served::in_memory().await).await;
}

async fn loses_files_moved_out(served: Served) {
    let nfs = served.client().await;
    let d = nfs.folder(&nfs.root, "d").await;
    let a = nfs.file(&d, "a").await;
    fs::rename(served.root.join("d"), served.folder.path().join("gone")).unwrap();
    assert_eq!(nfs.write(&a, 0, b"x", StableHow::Unstable).await.err(), Some(Nfsstat3::Stale));
    assert_eq!(nfs.create(&d, "b", Createhow3::Guarded(mode(0o644))).await.err(), Some(Nfsstat3::Stale));
    assert_eq!(nfs.lookup(&d, "..").await, Err(Nfsstat3::Stale));
    assert_eq!(fs::read_dir(served.folder.path().join("gone")).unwrap().count(), 1);
    assert_eq!(fs::metadata(served.folder.path().join("gone/a")).unwrap().len(), 0);
}
