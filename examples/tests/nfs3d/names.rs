//! Tests of LOOKUP, CREATE, MKDIR, SYMLINK, READLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK.

use std::{
    fs,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
};

use rpcrdma_specs::nfs3::*;

use crate::support::{Served, at, mode, nothing, own_uid};

#[tokio::test]
async fn files_are_created_in_each_way() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let sized = |size, bits| Sattr3 { size: SetSize3::True(size), ..mode(bits) };

    let (a, attributes) = nfs.create(&nfs.root, "a", Createhow3::Unchecked(sized(7, 0o640))).await.unwrap();
    assert_eq!((attributes.mode, attributes.size, attributes.uid), (0o640, 7, own_uid()));
    let (again, attributes) = nfs.create(&nfs.root, "a", Createhow3::Unchecked(mode(0o777))).await.unwrap();
    assert_eq!((&again, attributes.mode, attributes.size), (&a, 0o640, 7), "an existing file is unchanged");
    let (_, attributes) = nfs.create(&nfs.root, "a", Createhow3::Unchecked(sized(0, 0o777))).await.unwrap();
    assert_eq!((attributes.mode, attributes.size), (0o640, 0), "only the size is set");
    let guarded = nfs.create(&nfs.root, "a", Createhow3::Guarded(mode(0o644))).await;
    assert_eq!(guarded.err(), Some(Nfsstat3::Exist));
    nfs.create(&nfs.root, "b", Createhow3::Guarded(mode(0o4755))).await.unwrap();
    assert_eq!(fs::metadata(served.root.join("b")).unwrap().mode(), 0o104_755);

    for kind in ["folder", "pipe", "link"] {
        match kind {
            "folder" => drop(nfs.folder(&nfs.root, kind).await),
            "pipe" => drop(nfs.mknod(&nfs.root, kind, Mknoddata3::Fifo(mode(0o600))).await.unwrap()),
            _ => drop(nfs.symlink(&nfs.root, kind, "elsewhere").await.unwrap()),
        }
        let unchecked = nfs.create(&nfs.root, kind, Createhow3::Unchecked(sized(0, 0o600))).await;
        assert_eq!(unchecked.err(), Some(Nfsstat3::Exist), "{kind}");
    }
    assert!(!served.root.join("elsewhere").exists(), "the link's target was not created");
}

/// A second exclusive CREATE succeeds only with the verifier of the first CREATE (RFC 1813 §3.3.8), and no longer after
/// SETATTR has set the times of the file.
#[tokio::test]
async fn exclusive_creation_is_once_for_each_verifier() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let exclusive = |verifier| Createhow3::Exclusive(Createverf3(verifier));
    let first = nfs.create(&nfs.root, "a", exclusive([0xff, 1, 2, 3, 0x84, 5, 6, 7])).await.unwrap().0;
    let repeated = nfs.create(&nfs.root, "a", exclusive([0xff, 1, 2, 3, 0x84, 5, 6, 7])).await.unwrap().0;
    assert_eq!(first, repeated);
    for other in [[0xff, 1, 2, 3, 0x84, 5, 6, 8], [0xff, 1, 2, 4, 0x84, 5, 6, 7]] {
        assert_eq!(nfs.create(&nfs.root, "a", exclusive(other)).await.err(), Some(Nfsstat3::Exist));
    }
    let times = Sattr3 {
        atime: SetAtime::Default(TimeHow::SetToServerTime),
        mtime: SetMtime::Default(TimeHow::SetToServerTime),
        ..mode(0o644)
    };
    nfs.setattr(&first, times, Sattrguard3::False).await.unwrap();
    let late = nfs.create(&nfs.root, "a", exclusive([0xff, 1, 2, 3, 0x84, 5, 6, 7])).await;
    assert_eq!(late.err(), Some(Nfsstat3::Exist));
}

#[tokio::test]
async fn other_file_types_are_created() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let (_, attributes) = nfs.mkdir(&nfs.root, "d", mode(0o1770)).await.unwrap();
    assert_eq!((attributes.r#type, attributes.mode), (Ftype3::Dir, 0o1770));
    assert_eq!(nfs.mkdir(&nfs.root, "d", mode(0o755)).await.err(), Some(Nfsstat3::Exist));
    let (_, attributes) = nfs.mkdir(&nfs.root, "g", mode(0o2750)).await.unwrap();
    assert_eq!(attributes.mode, 0o2750);
    nfs.mkdir(&nfs.root, "plain", nothing()).await.unwrap();

    let text = [b"../over/there/".as_slice(), &[b'x'; 2000]].concat();
    let link = nfs.symlink(&nfs.root, "l", &text).await.unwrap();
    assert_eq!(nfs.readlink(&link).await.unwrap(), text);
    assert_eq!(fs::read_link(served.root.join("l")).unwrap().as_os_str().as_encoded_bytes(), text);
    assert_eq!(nfs.readlink(&nfs.root).await.err(), Some(Nfsstat3::Inval));
    assert_eq!(nfs.symlink(&nfs.root, "e", "").await.err(), Some(Nfsstat3::Inval));
    assert_eq!(nfs.symlink(&nfs.root, "e", [b'x'; 4096]).await.err(), Some(Nfsstat3::Nametoolong));
    let longest = nfs.symlink(&nfs.root, "e", [b'x'; 4095]).await.unwrap();
    assert_eq!(nfs.readlink(&longest).await.unwrap().len(), 4095);

    nfs.mknod(&nfs.root, "p", Mknoddata3::Fifo(mode(0o640))).await.unwrap();
    nfs.mknod(&nfs.root, "s", Mknoddata3::Sock(mode(0o600))).await.unwrap();
    let kind = |name: &str| fs::symlink_metadata(served.root.join(name)).unwrap().file_type();
    assert!(kind("p").is_fifo() && kind("s").is_socket());
    let regular = nfs.mknod(&nfs.root, "r", Mknoddata3::Default(Ftype3::Reg)).await;
    assert_eq!(regular.err(), Some(Nfsstat3::Badtype));
    let null = |specdata1| {
        Mknoddata3::Chr(Devicedata3 { dev_attributes: mode(0o666), spec: Specdata3 { specdata1, specdata2: 3 } })
    };
    assert_eq!(nfs.mknod(&nfs.root, "c", null(1 << 12)).await.err(), Some(Nfsstat3::Inval));
    match nfs.mknod(&nfs.root, "c", null(1)).await {
        Ok((_, made)) => {
            assert_eq!(own_uid(), 0);
            assert_eq!((made.r#type, made.rdev), (Ftype3::Chr, Specdata3 { specdata1: 1, specdata2: 3 }));
        }
        Err(status) => assert_eq!(status, Nfsstat3::Perm, "requires a capability"),
    }
}

#[tokio::test]
async fn files_and_directories_are_removed() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let a = nfs.file(&nfs.root, "a").await;
    let d = nfs.folder(&nfs.root, "d").await;
    nfs.file(&d, "inside").await;
    assert_eq!(nfs.remove(&nfs.root, "d").await, Err(Nfsstat3::Isdir));
    assert_eq!(nfs.rmdir(&nfs.root, "a").await, Err(Nfsstat3::Notdir));
    assert_eq!(nfs.rmdir(&nfs.root, "d").await, Err(Nfsstat3::Notempty));
    assert_eq!(nfs.remove(&nfs.root, "b").await, Err(Nfsstat3::Noent));
    nfs.remove(&d, "inside").await.unwrap();
    nfs.rmdir(&nfs.root, "d").await.unwrap();
    nfs.remove(&nfs.root, "a").await.unwrap();
    assert_eq!(fs::read_dir(&served.root).unwrap().count(), 0);
    assert_eq!(nfs.getattr(&a).await, Err(Nfsstat3::Stale));
    assert_eq!(nfs.lookup(&d, "inside").await, Err(Nfsstat3::Stale));
}

#[tokio::test]
async fn handles_survive_renames() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let (d, e) = (nfs.folder(&nfs.root, "d").await, nfs.folder(&nfs.root, "e").await);
    let deep = nfs.folder(&d, "deep").await;
    let a = nfs.file(&deep, "a").await;
    nfs.write(&a, 0, b"a", StableHow::Unstable).await.unwrap();

    nfs.rename(at(&deep, "a"), at(&deep, "b")).await.unwrap();
    nfs.rename(at(&d, "deep"), at(&e, "deeper")).await.unwrap();
    nfs.rename(at(&nfs.root, "e"), at(&nfs.root, "f")).await.unwrap();
    assert_eq!(fs::read(served.root.join("f/deeper/b")).unwrap(), b"a");
    assert_eq!(nfs.read(&a, 0, 5).await.unwrap().0, "a");
    assert_eq!(nfs.lookup(&deep, "b").await.unwrap(), a, "a file has one handle");
    assert_eq!(nfs.lookup(&deep, "..").await.unwrap(), e);
    assert_eq!(nfs.lookup(&deep, ".").await.unwrap(), deep);

    // Rename onto existing objects.
    let replaced = nfs.file(&d, "replaced").await;
    nfs.rename(at(&deep, "b"), at(&d, "replaced")).await.unwrap();
    assert_eq!(nfs.getattr(&replaced).await, Err(Nfsstat3::Stale));
    assert_eq!(nfs.lookup(&d, "replaced").await.unwrap(), a);
    assert_eq!(nfs.rename(at(&d, "replaced"), at(&e, "deeper")).await, Err(Nfsstat3::Exist));
    assert_eq!(nfs.rename(at(&e, "deeper"), at(&d, "replaced")).await, Err(Nfsstat3::Exist));
    assert_eq!(
        nfs.rename(at(&nfs.root, "f"), at(&e, "x")).await,
        Err(Nfsstat3::Inval),
        "a directory cannot be moved into itself"
    );
    nfs.file(&deep, "c").await;
    nfs.folder(&d, "g").await;
    assert_eq!(nfs.rename(at(&d, "g"), at(&e, "deeper")).await, Err(Nfsstat3::Notempty));
    assert_eq!(nfs.rename(at(&d, "none"), at(&d, "x")).await, Err(Nfsstat3::Noent));
}

#[tokio::test]
async fn links_are_one_file() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let d = nfs.folder(&nfs.root, "d").await;
    let a = nfs.file(&nfs.root, "a").await;
    assert_eq!(nfs.link(&a, at(&d, "b")).await.unwrap().nlink, 2);
    assert_eq!(nfs.lookup(&d, "b").await.unwrap(), a);
    assert_eq!(nfs.link(&a, at(&d, "b")).await, Err(Nfsstat3::Exist));
    assert_eq!(nfs.link(&d, at(&d, "c")).await, Err(Nfsstat3::Inval));
    // Renaming one link onto the other does nothing (RFC 1813 §3.3.14).
    nfs.rename(at(&nfs.root, "a"), at(&d, "b")).await.unwrap();
    assert!(served.root.join("a").exists() && served.root.join("d/b").exists());
    nfs.remove(&nfs.root, "a").await.unwrap();
    assert_eq!(nfs.getattr(&a).await.unwrap().nlink, 1, "the other link remains");
    nfs.remove(&d, "b").await.unwrap();
    assert_eq!(nfs.getattr(&a).await, Err(Nfsstat3::Stale));
    let link = nfs.symlink(&nfs.root, "l", "/etc/passwd").await.unwrap();
    assert_eq!(
        nfs.link(&link, at(&d, "m")).await.unwrap().r#type,
        Ftype3::Lnk,
        "the symbolic link itself is linked, not its target"
    );
}
