//! Tests of GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO and PATHCONF, compared with the system's values.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
};

use rpcrdma_specs::nfs3::*;

use crate::support::{Served, mode, nothing, own_uid};

fn set(new: Sattr3) -> (Sattr3, Sattrguard3) {
    (new, Sattrguard3::False)
}

#[tokio::test]
async fn attributes_are_those_of_the_file() {
    let served = Served::new().await;
    let nfs = served.client().await;
    fs::write(served.root.join("a"), [1; 5000]).unwrap();
    fs::set_permissions(served.root.join("a"), fs::Permissions::from_mode(0o4751)).unwrap();
    std::os::unix::fs::symlink("over/there", served.root.join("l")).unwrap();
    fs::create_dir(served.root.join("d")).unwrap();
    for (name, kind) in [("a", Ftype3::Reg), ("l", Ftype3::Lnk), ("d", Ftype3::Dir)] {
        let reported = nfs.getattr(&nfs.lookup(&nfs.root, name).await.unwrap()).await.unwrap();
        let meta = fs::symlink_metadata(served.root.join(name)).unwrap();
        assert_eq!(reported.r#type, kind);
        assert_eq!((reported.mode, reported.nlink), (meta.mode() & 0o7777, meta.nlink() as u32));
        assert_eq!((reported.uid, reported.gid, reported.size), (meta.uid(), meta.gid(), meta.size()));
        assert_eq!((reported.fileid, reported.used), (meta.ino(), meta.blocks() * 512));
        let times =
            [(&reported.atime, meta.atime(), meta.atime_nsec()), (&reported.mtime, meta.mtime(), meta.mtime_nsec())];
        for (time, seconds, nanoseconds) in times {
            assert_eq!((i64::from(time.seconds), i64::from(time.nseconds)), (seconds, nanoseconds));
        }
    }
    let fsid = nfs.getattr(&nfs.root).await.unwrap().fsid;
    assert_eq!(nfs.getattr(&nfs.lookup(&nfs.root, "a").await.unwrap()).await.unwrap().fsid, fsid);
}

#[tokio::test]
async fn each_attribute_is_set_separately() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let path = served.root.join("a");
    let file = nfs.file(&nfs.root, "a").await;
    let apply = async |(new, guard)| nfs.setattr(&file, new, guard).await;

    apply(set(mode(0o600))).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let wcc = apply(set(Sattr3 { size: SetSize3::True(123_456), ..nothing() })).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 123_456);
    assert!(matches!(wcc.before, PreOpAttr::True(WccAttr { size: 0, .. })), "{wcc:?}");
    assert!(matches!(wcc.after, PostOpAttr::True(Fattr3 { size: 123_456, .. })), "{wcc:?}");
    apply(set(Sattr3 { size: SetSize3::True(10), ..nothing() })).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 10);

    let atime = SetAtime::SetToClientTime(Nfstime3 { seconds: 1_000_000_001, nseconds: 0 });
    let mtime = SetMtime::SetToClientTime(Nfstime3 { seconds: 1_000_000_002, nseconds: 5 });
    apply(set(Sattr3 { atime, mtime, ..nothing() })).await.unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert_eq!((meta.atime(), meta.mtime(), meta.mtime_nsec()), (1_000_000_001, 1_000_000_002, 5));
    apply(set(Sattr3 { mtime: SetMtime::Default(TimeHow::SetToServerTime), ..nothing() })).await.unwrap();
    let meta = fs::metadata(&path).unwrap();
    assert!(meta.mtime() > 1_600_000_000 && meta.atime() == 1_000_000_001);
    assert_eq!((meta.mode() & 0o7777, meta.len()), (0o600, 10), "other attributes are unchanged");

    let owner = Sattr3 { uid: SetUid3::True(own_uid()), ..nothing() };
    apply(set(owner)).await.unwrap();
    let minus_one = Sattr3 { uid: SetUid3::True(u32::MAX), ..nothing() };
    assert_eq!(apply(set(minus_one)).await, Err(Nfsstat3::Inval));
    let now_to_the_system = SetMtime::SetToClientTime(Nfstime3 { seconds: 0, nseconds: 0x3fff_ffff });
    assert_eq!(apply(set(Sattr3 { mtime: now_to_the_system, ..nothing() })).await, Err(Nfsstat3::Inval));
    let folder = Sattr3 { size: SetSize3::True(0), ..nothing() };
    assert_eq!(nfs.setattr(&nfs.root, folder, Sattrguard3::False).await, Err(Nfsstat3::Inval));
}

/// SETATTR changes nothing if its guard has another ctime than the object (RFC 1813 §3.3.2).
#[tokio::test]
async fn a_guard_with_another_ctime_keeps_the_attributes() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let file = nfs.file(&nfs.root, "a").await;
    let ctime = nfs.getattr(&file).await.unwrap().ctime;
    let other = Nfstime3 { seconds: ctime.seconds, nseconds: ctime.nseconds ^ 1 };
    assert_eq!(nfs.setattr(&file, mode(0o600), Sattrguard3::True(other)).await, Err(Nfsstat3::NotSync));
    assert_eq!(nfs.getattr(&file).await.unwrap().mode, 0o644);
    nfs.setattr(&file, mode(0o600), Sattrguard3::True(ctime)).await.unwrap();
    assert_eq!(nfs.getattr(&file).await.unwrap().mode, 0o600);
}

#[tokio::test]
async fn access_returns_only_requested_rights() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let all = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE | ACCESS3_EXECUTE;
    let of_folder = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE;
    assert_eq!(nfs.access(&nfs.root, all).await, Ok(of_folder));
    assert_eq!(nfs.access(&nfs.root, ACCESS3_READ | ACCESS3_EXECUTE).await, Ok(ACCESS3_READ));
    let file = nfs.file(&nfs.root, "a").await;
    assert_eq!(nfs.access(&file, all).await, Ok(ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND));
    nfs.setattr(&file, mode(0o755), Sattrguard3::False).await.unwrap();
    let with_execute = ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE;
    assert_eq!(nfs.access(&file, all).await, Ok(with_execute));
}

#[tokio::test]
async fn the_file_system_is_described() {
    let served = Served::new().await;
    let nfs = served.client().await;
    let of = rustix::fs::statvfs(&served.root).unwrap();
    let args = Fsstat3args { fsroot: nfs.root.clone() };
    let Fsstat3res::Ok(stat) = nfs.client.nfsproc3_fsstat(&args).await.unwrap() else { panic!() };
    assert_eq!((stat.tbytes, stat.tfiles), (of.f_blocks * of.f_frsize, of.f_files));
    assert!(stat.abytes <= stat.fbytes && stat.fbytes <= stat.tbytes);

    let args = Fsinfo3args { fsroot: nfs.root.clone() };
    let Fsinfo3res::Ok(info) = nfs.client.nfsproc3_fsinfo(&args).await.unwrap() else { panic!() };
    assert_eq!([info.rtmax, info.rtpref, info.wtmax, info.wtpref], [4 << 20; 4]);
    assert_eq!(info.properties, FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME);

    let args = Pathconf3args { object: nfs.root.clone() };
    let Pathconf3res::Ok(conf) = nfs.client.nfsproc3_pathconf(&args).await.unwrap() else { panic!() };
    assert_eq!((conf.name_max, conf.no_trunc, conf.chown_restricted), (255, true, true));
    assert_eq!((conf.case_insensitive, conf.case_preserving), (false, true));
}
