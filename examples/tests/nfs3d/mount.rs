//! Tests of the MOUNT program.

use std::fs;

use rpcrdma::{
    client::CallError,
    rpc::{AuthFailure, AuthStat, Credential, RpcError},
};
use rpcrdma_specs::mount3::{Dirpath, Mountres3, Mountstat3, mount_v3::MountV3Client};

use crate::support::{Served, own_gid, own_uid};

async fn mnt(client: &MountV3Client, path: &str) -> Result<Vec<u8>, Mountstat3> {
    match client.mountproc3_mnt(&Dirpath(path.into())).await.unwrap() {
        Mountres3::Ok(ok) => {
            assert_eq!(ok.auth_flavors, [1]);
            Ok(ok.fhandle.0.to_vec())
        }
        Mountres3::Default(status) => Err(status),
    }
}

#[tokio::test]
async fn the_export_and_its_directories_can_be_mounted() {
    let served = Served::new().await;
    fs::create_dir_all(served.root.join("a/b")).unwrap();
    fs::write(served.root.join("file"), "").unwrap();
    std::os::unix::fs::symlink("a", served.root.join("link")).unwrap();
    let sys = Credential::sys("client.example", own_uid(), own_gid(), []);
    let client = served.mount(sys.clone()).await;
    client.mountproc3_null().await.unwrap();
    let nfs = served.client().await;
    assert_eq!(mnt(&client, "/data").await.unwrap(), nfs.root.data);
    assert_eq!(mnt(&client, "/data/").await.unwrap(), nfs.root.data);
    assert_eq!(mnt(&client, "/").await.unwrap(), nfs.root.data);
    let a = nfs.lookup(&nfs.root, "a").await.unwrap();
    assert_eq!(mnt(&client, "/data/a/b").await.unwrap(), nfs.lookup(&a, "b").await.unwrap().data);
    assert_eq!(mnt(&client, "/data//a/.").await.unwrap(), a.data);
    for (path, status) in [
        ("/database", Mountstat3::Acces),
        ("", Mountstat3::Acces),
        ("/etc", Mountstat3::Acces),
        ("/data/..", Mountstat3::Acces),
        ("/data/a/../..", Mountstat3::Acces),
        ("/data/none", Mountstat3::Noent),
        ("/data/file", Mountstat3::Notdir),
        ("/data/link", Mountstat3::Notdir),
        ("/data/link/b", Mountstat3::Notdir),
    ] {
        assert_eq!(mnt(&client, path).await, Err(status), "{path}");
    }
    let exports = client.mountproc3_export().await.unwrap();
    assert_eq!(exports.iter().map(|export| export.ex_dir.as_bytes().to_vec()).collect::<Vec<_>>(), [b"/data"]);
}

/// MNT requires search permission on the directories above the mounted one, because its handle bypasses their
/// permissions.
#[tokio::test]
async fn mounting_requires_search_permission() {
    use rpcrdma_examples::nfs3d::identity::{Identities, Squash};
    use std::os::unix::fs::PermissionsExt as _;
    if !Identities::new(Squash::None, None, None).enforced() {
        return;
    }
    let served = Served::new().await;
    fs::create_dir_all(served.root.join("locked/in")).unwrap();
    fs::set_permissions(served.root.join("locked"), fs::Permissions::from_mode(0o700)).unwrap();
    let own = served.mount(Credential::sys("test", own_uid(), own_gid(), [])).await;
    mnt(&own, "/data/locked/in").await.unwrap();
    let other = served.mount(Credential::sys("test", own_uid() + 1000, 1001, [])).await;
    mnt(&other, "/data/locked").await.unwrap();
    assert_eq!(mnt(&other, "/data/locked/in").await, Err(Mountstat3::Acces));
}

#[tokio::test]
async fn mounts_are_listed_until_unmounted() {
    let served = Served::new().await;
    fs::create_dir(served.root.join("a")).unwrap();
    let client = served.mount(Credential::sys("client.example", own_uid(), own_gid(), [])).await;
    let other = served.mount(Credential::sys("other.example", own_uid(), own_gid(), [])).await;
    for path in ["/data", "/data/a", "/data"] {
        mnt(&client, path).await.unwrap();
    }
    mnt(&other, "/data").await.unwrap();
    let dump = async || {
        let list = client.mountproc3_dump().await.unwrap();
        list.iter().map(|mount| format!("{}:{}", mount.ml_hostname.0, mount.ml_directory.0)).collect::<Vec<_>>()
    };
    assert_eq!(dump().await, ["client.example:/data/a", "client.example:/data", "other.example:/data"]);
    client.mountproc3_umnt(&Dirpath("/data".into())).await.unwrap();
    client.mountproc3_umnt(&Dirpath("/data/none".into())).await.unwrap();
    assert_eq!(dump().await, ["client.example:/data/a", "other.example:/data"]);
    client.mountproc3_umntall().await.unwrap();
    assert_eq!(dump().await, ["other.example:/data"]);
}

/// MNT refuses AUTH_NONE (RFC 1813 §5.2.1).
#[tokio::test]
async fn mounting_requires_auth_sys() {
    let served = Served::new().await;
    let client = served.mount(Credential::None).await;
    let error = client.mountproc3_mnt(&Dirpath("/data".into())).await.unwrap_err();
    let CallError::Rpc { source: RpcError::Authentication(refusal), .. } = &error else { panic!("{error:?}") };
    assert_eq!(*refusal, AuthFailure::from(AuthStat::AuthTooweak));
}
