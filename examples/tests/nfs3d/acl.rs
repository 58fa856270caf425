//! Tests of access control lists by NFSACL. The lists that a client sets are compared with the extended attributes of
//! the files.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use rpcrdma::rpc::Credential;
use rpcrdma_specs::{
    nfs3::{NfsFh3, PostOpAttr},
    nfsacl3::{nfs_acl_v3::NfsAclV3Client, *},
};
use rustix::{fs::XattrFlags, io::Errno};

use crate::support::{Nfs, Served, own_gid, own_uid};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const BOTH: u32 = NA_ACL | NA_ACLCNT | NA_DFACL | NA_DFACLCNT;

struct Acl(NfsAclV3Client);

/// Returns a client of NFS and a client of NFSACL on one connection over iWARP. Linux also uses one connection for
/// both.
async fn connect(served: &Served) -> (Nfs, Acl) {
    let nfs = served.client().await;
    let acl = Acl(NfsAclV3Client::new(nfs.client.channel().clone()));
    (nfs, acl)
}

impl Acl {
    async fn get(&self, object: &NfsFh3, mask: u32) -> Result<Secattr, Nfsstat3> {
        match self.0.aclproc3_getacl(&Getacl3args { fh: object.clone(), mask }).await.unwrap() {
            Getacl3res::Ok(ok) => {
                assert!(matches!(ok.attr, PostOpAttr::True(_)));
                Ok(ok.acl)
            }
            Getacl3res::Default(status, _) => Err(status),
        }
    }

    async fn set(&self, object: &NfsFh3, acl: Secattr) -> Result<u32, Nfsstat3> {
        match self.0.aclproc3_setacl(&Setacl3args { fh: object.clone(), acl }).await.unwrap() {
            Setacl3res::Ok(Setacl3resok { attr: PostOpAttr::True(attributes) }) => Ok(attributes.mode),
            Setacl3res::Ok(other) => panic!("{other:?}"),
            Setacl3res::Default(status, _) => Err(status),
        }
    }
}

fn entry(r#type: u32, id: u32, perm: u32) -> Aclent {
    Aclent { r#type, id, perm }
}

/// Returns a list that has entries for a named user and a named group, sorted by type. `flag` is added to each type.
fn list(flag: u32) -> Vec<Aclent> {
    vec![
        entry(NA_USER_OBJ | flag, own_uid(), 7),
        entry(NA_USER | flag, 4711, 6),
        entry(NA_GROUP_OBJ | flag, own_gid(), 1),
        entry(NA_GROUP | flag, 4712, 4),
        entry(NA_MASK | flag, 0, 6),
        entry(NA_OTHER | flag, 0, 0),
    ]
}

fn access(aclent: Vec<Aclent>) -> Secattr {
    Secattr { mask: NA_ACL, aclcnt: aclent.len() as u32, aclent, ..Secattr::default() }
}

fn default(dfaclent: Vec<Aclent>) -> Secattr {
    Secattr { mask: NA_DFACL, dfaclcnt: dfaclent.len() as u32, dfaclent, ..Secattr::default() }
}

fn attribute(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 1000];
    let len = rustix::fs::getxattr(path, name, value.as_mut_slice())?;
    value.truncate(len);
    Ok(value)
}

/// Returns `true` if the file system supports access control lists.
fn has_lists(served: &Served) -> bool {
    let value: Vec<u8> =
        [[2, 0, 0, 0].as_slice(), &[1, 0, 7, 0], &[255; 4], &[4, 0, 5, 0], &[255; 4], &[32, 0, 5, 0], &[255; 4]]
            .concat();
    rustix::fs::setxattr(&served.root, ACCESS, &value, XattrFlags::empty()) != Err(Errno::OPNOTSUPP)
}

#[tokio::test]
async fn permission_bits_are_a_list() {
    let served = Served::in_memory().await;
    let (nfs, acl) = connect(&served).await;
    let file = nfs.file(&nfs.root, "file").await;
    fs::set_permissions(served.root.join("file"), fs::Permissions::from_mode(0o4750)).unwrap();
    let entries = vec![
        entry(NA_USER_OBJ, own_uid(), 7),
        entry(NA_GROUP_OBJ, own_gid(), 5),
        entry(NA_MASK, 0, 5),
        entry(NA_OTHER, 0, 0),
    ];
    let all = Secattr { mask: BOTH, aclcnt: 4, aclent: entries, ..Secattr::default() };
    assert_eq!(acl.get(&file, BOTH).await, Ok(all));
    let counts = Secattr { mask: NA_ACLCNT, aclcnt: 4, ..Secattr::default() };
    assert_eq!(acl.get(&file, NA_ACLCNT).await, Ok(counts));
    assert_eq!(acl.get(&nfs.root, NA_DFACL).await, Ok(Secattr { mask: NA_DFACL, ..Secattr::default() }));
    let counters = served.service.counters();
    assert_eq!(counters.calls(rpcrdma_examples::nfs3d::counters::Procedure::Getacl), 3);
}

#[tokio::test]
async fn lists_are_set_and_returned() {
    let served = Served::in_memory().await;
    let (nfs, acl) = connect(&served).await;
    let file = nfs.file(&nfs.root, "file").await;
    if !has_lists(&served) {
        assert_eq!(acl.set(&file, access(list(0))).await, Err(Nfsstat3::Notsupp));
        return;
    }
    // The bits of the group are those of the mask.
    assert_eq!(acl.set(&file, access(list(0))).await, Ok(0o760));
    let path = served.root.join("file");
    let stored = attribute(&path, ACCESS).unwrap();
    assert_eq!(stored.len(), 4 + 6 * 8);
    assert_eq!(stored[12..20], [2, 0, 6, 0, 0x67, 0x12, 0, 0]);
    let found = acl.get(&file, NA_ACL).await.unwrap();
    assert_eq!((found.aclcnt, found.aclent), (6, list(0)));
    // The list of a mode is no list.
    let owner = entry(NA_USER_OBJ, own_uid(), 7);
    let minimal = [owner, entry(NA_GROUP_OBJ, own_gid(), 4), entry(NA_MASK, 0, 4), entry(NA_OTHER, 0, 0)];
    assert_eq!(acl.set(&file, access(minimal.to_vec())).await, Ok(0o740));
    assert_eq!(attribute(&path, ACCESS), Err(Errno::NODATA));
}

#[tokio::test]
async fn default_lists_are_inherited_and_removed() {
    let served = Served::in_memory().await;
    let (nfs, acl) = connect(&served).await;
    let folder = nfs.folder(&nfs.root, "folder").await;
    if !has_lists(&served) {
        assert_eq!(acl.set(&folder, default(list(NA_DEFAULT))).await, Err(Nfsstat3::Notsupp));
        return;
    }
    acl.set(&folder, default(list(NA_DEFAULT))).await.unwrap();
    let path = served.root.join("folder");
    assert_eq!(attribute(&path, DEFAULT).unwrap().len(), 4 + 6 * 8);
    assert_eq!(attribute(&path, ACCESS), Err(Errno::NODATA));
    let found = acl.get(&folder, BOTH).await.unwrap();
    assert_eq!((found.aclcnt, found.dfaclcnt, found.dfaclent), (4, 6, list(NA_DEFAULT)));
    let file = nfs.file(&folder, "file").await;
    let inherited = acl.get(&file, NA_ACL).await.unwrap().aclent;
    assert_eq!(inherited[1], entry(NA_USER, 4711, 6));
    // Linux's client sends both lists.
    let both = Secattr { mask: NA_ACL | NA_DFACL, ..access(list(0)) };
    acl.set(&folder, both).await.unwrap();
    assert_eq!(attribute(&path, DEFAULT), Err(Errno::NODATA));
    assert_eq!(attribute(&path, ACCESS).unwrap().len(), 4 + 6 * 8);
    acl.set(&folder, default(Vec::new())).await.unwrap();
}

#[tokio::test]
async fn invalid_calls_change_nothing() {
    let served = Served::in_memory().await;
    let (nfs, acl) = connect(&served).await;
    let file = nfs.file(&nfs.root, "file").await;
    let link = nfs.symlink(&nfs.root, "link", "file").await.unwrap();
    let forged = NfsFh3 { data: [file.data.as_ref(), &[0]].concat().into() };
    assert_eq!(acl.get(&forged, NA_ACL).await, Err(Nfsstat3::Badhandle));
    assert_eq!(acl.set(&forged, access(list(0))).await, Err(Nfsstat3::Badhandle));
    assert_eq!(acl.get(&file, 16).await, Err(Nfsstat3::Inval));
    assert_eq!(acl.set(&file, Secattr { mask: 17, ..access(list(0)) }).await, Err(Nfsstat3::Inval));
    assert_eq!(acl.get(&link, NA_ACL).await, Err(Nfsstat3::Notsupp));
    assert_eq!(acl.set(&link, access(list(0))).await, Err(Nfsstat3::Notsupp));
    // A list needs an owner, and a mask if it has users.
    let mut unknown = list(0);
    unknown[1].r#type = 64;
    assert_eq!(acl.set(&file, access(unknown)).await, Err(Nfsstat3::Inval));
    if has_lists(&served) {
        for missing in [0, 2, 4, 5] {
            let mut entries = list(0);
            entries.remove(missing);
            assert_eq!(acl.set(&file, access(entries)).await, Err(Nfsstat3::Inval), "{missing}");
        }
        assert_eq!(acl.set(&file, default(list(NA_DEFAULT))).await, Err(Nfsstat3::Acces), "not a directory");
    }
    assert_eq!(
        attribute(&served.root.join("file"), ACCESS),
        Err(if has_lists(&served) { Errno::NODATA } else { Errno::OPNOTSUPP })
    );
    assert_eq!(fs::metadata(served.root.join("file")).unwrap().permissions().mode() & 0o7777, 0o644);
}

#[tokio::test]
async fn only_the_owner_sets_a_list() {
    let served = Served::in_memory().await;
    let (nfs, _) = connect(&served).await;
    let file = nfs.file(&nfs.root, "file").await;
    let stranger = served.client_as(Credential::sys("test", 4711, 4711, []), &served.tcp).await;
    let stranger = NfsAclV3Client::new(stranger.client.channel().clone());
    let args = Setacl3args { fh: file, acl: access(list(0)) };
    match stranger.aclproc3_setacl(&args).await {
        Ok(Setacl3res::Default(Nfsstat3::Perm, _)) => {}
        // A server that does not run as root accepts calls of its own user only.
        other => assert!(own_uid() != 0 || !has_lists(&served), "{other:?}"),
    }
    assert_eq!(fs::metadata(served.root.join("file")).unwrap().permissions().mode() & 0o7777, 0o644);
}
