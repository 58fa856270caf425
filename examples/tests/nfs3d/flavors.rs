//! Tests of the security flavors that an export accepts, and of the users that principals are mapped to. The tests
//! provide the principals, without Kerberos.

use std::{fs, os::unix::fs::PermissionsExt as _, sync::Arc};

use rpcrdma::{
    client::{CallError, Channel},
    rpc::{AuthStat, Credential, RpcError},
    security::{
        AuthenticatedCaller, Authentication, Authenticator, Principal, ProtectionLevel, ReceivedCall,
        StandardAuthenticator,
    },
    server::Server,
};
use rpcrdma_examples::nfs3d::{
    Export,
    identity::{Identities, Squash},
    key::Secret,
    mount::MountService,
    principals::Principals,
    service::NfsService,
};
use rpcrdma_specs::{
    mount3::{
        Dirpath, Mountres3,
        mount_v3::{MountV3Client, MountV3Server},
    },
    nfs3::{nfs_v3::*, *},
};

use crate::support::{Nfs, at, mode, own_gid, own_uid};

/// An authenticator that treats an AUTH_SYS caller as a Kerberos principal if its machine name is `FLAVOR/PRINCIPAL`,
/// for example `krb5i/alice@EXAMPLE.COM`.
#[derive(Debug)]
struct TestPrincipals;

impl Authenticator for TestPrincipals {
    fn authenticate(&self, call: &ReceivedCall<'_>) -> Authentication {
        match StandardAuthenticator.authenticate(call) {
            Authentication::Accepted(caller) => {
                let Credential::Sys(sys) = &caller.credential else { return Authentication::Accepted(caller) };
                let name = String::from_utf8(sys.machinename.as_bytes().to_vec()).unwrap();
                let Some((flavor, name)) = name.split_once('/') else { return Authentication::Accepted(caller) };
                let level = match flavor {
                    "krb5" => ProtectionLevel::Authentication,
                    "krb5i" => ProtectionLevel::Integrity,
                    _ => ProtectionLevel::Privacy,
                };
                let principal = Arc::new(Principal::new(name, level));
                Authentication::Accepted(AuthenticatedCaller::new(Credential::None).with_principal(principal))
            }
            other => other,
        }
    }
}

struct Served {
    _folder: tempfile::TempDir,
    nfs: String,
    root: NfsFh3,
    flavors: Vec<i32>,
}

/// Serves an export that accepts only `flavors`, and mounts it with AUTH_SYS.
async fn serve(flavors: &str) -> Served {
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    let secret = Secret::keep_in(&folder.path().join("state")).unwrap();
    let principals = format!("alice@EXAMPLE.COM {} {}", own_uid(), own_gid());
    let identities = Identities::new(Squash::None, None, None).with_principals(Principals::parse(&principals).unwrap());
    let export = Export::open(&root, &secret, identities).unwrap().with_flavors(flavors.parse().unwrap());
    let export = Arc::new(export);
    let nfs = Server::builder().service(NfsV3Server::new(NfsService::new(Arc::clone(&export))));
    let nfs = nfs.authenticator(TestPrincipals).listen("tcp://127.0.0.1:0").bind().await.unwrap();
    let mount = Server::builder().service(MountV3Server::new(MountService::new(export, "/data")));
    let mount = mount.listen("tcp://127.0.0.1:0").bind().await.unwrap();
    let (nfs_url, mount_url) = (nfs.urls()[0].clone(), mount.urls()[0].clone());
    tokio::spawn(nfs.serve());
    tokio::spawn(mount.serve());
    let mount = MountV3Client::new(channel(&mount_url, "client").await);
    let Mountres3::Ok(ok) = mount.mountproc3_mnt(&Dirpath("/data".into())).await.unwrap() else { panic!() };
    Served { _folder: folder, nfs: nfs_url, root: NfsFh3 { data: ok.fhandle.0 }, flavors: ok.auth_flavors }
}

async fn channel(url: &str, machine: &str) -> Channel {
    let credential = Credential::sys(machine, own_uid(), own_gid(), []).to_opaque().unwrap();
    Channel::builder().credential(credential).connect(url).await.unwrap()
}

impl Served {
    async fn client(&self, machine: &str) -> Nfs {
        Nfs { client: NfsV3Client::new(channel(&self.nfs, machine).await), root: self.root.clone() }
    }
}

fn is_too_weak<T: std::fmt::Debug>(result: Result<T, CallError>) -> bool {
    match result {
        Err(CallError::Rpc { source: RpcError::Authentication(failure), .. }) => {
            failure.stat() == Some(AuthStat::AuthTooweak)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn mount_returns_the_flavors() {
    assert_eq!(serve("sys").await.flavors, [1]);
    assert_eq!(serve("krb5p:krb5i:krb5:sys").await.flavors, [390_005, 390_004, 390_003, 1]);
}

#[tokio::test]
async fn other_flavors_are_too_weak() {
    let served = serve("krb5i:krb5p").await;
    let alice = served.client("krb5i/alice@EXAMPLE.COM").await;
    let (file, attributes) = alice.create(&alice.root, "a", Createhow3::Guarded(mode(0o600))).await.unwrap();
    assert_eq!(attributes.uid, own_uid());
    assert_eq!(served.client("krb5p/alice@EXAMPLE.COM").await.read(&file, 0, 1).await.unwrap().0, "");

    let none = Channel::builder().connect(&served.nfs).await.unwrap();
    let none = Nfs { client: NfsV3Client::new(none), root: served.root.clone() };
    for weak in [served.client("client").await, served.client("krb5/alice@EXAMPLE.COM").await, none] {
        let what = at(&weak.root, "a");
        assert!(is_too_weak(weak.client.nfsproc3_lookup(&Lookup3args { what }).await));
        let access = Access3args { object: weak.root.clone(), access: ACCESS3_READ };
        assert!(is_too_weak(weak.client.nfsproc3_access(&access).await));
        let remove = Remove3args { object: at(&weak.root, "a") };
        assert!(is_too_weak(weak.client.nfsproc3_remove(&remove).await));
        // The procedures of a mount: NULL, and FSINFO and GETATTR of the root (RFC 2623 §2.3).
        weak.client.nfsproc3_null().await.unwrap();
        assert!(weak.getattr(&weak.root).await.is_ok());
        let info = Fsinfo3args { fsroot: weak.root.clone() };
        assert!(matches!(weak.client.nfsproc3_fsinfo(&info).await, Ok(Fsinfo3res::Ok(_))));
        assert!(is_too_weak(weak.client.nfsproc3_getattr(&Getattr3args { object: file.clone() }).await));
        assert!(is_too_weak(weak.client.nfsproc3_fsinfo(&Fsinfo3args { fsroot: file.clone() }).await));
    }
    assert!(alice.getattr(&file).await.is_ok());
}

#[tokio::test]
async fn unknown_principals_are_anonymous() {
    let served = serve("krb5").await;
    let stranger = served.client("krb5/stranger@EXAMPLE.COM").await;
    let identities = Identities::new(Squash::None, None, None);
    let (_, attributes) = stranger.create(&stranger.root, "a", Createhow3::Guarded(mode(0o600))).await.unwrap();
    let anonymous = if identities.enforced() { rpcrdma_examples::nfs3d::identity::NOBODY } else { own_uid() };
    assert_eq!(attributes.uid, anonymous);
}
