//! Fixtures: a served directory and its clients.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use rpcrdma::{
    client::Channel,
    engine::ConnectionCounters,
    rpc::Credential,
    server::{Server, ServerHandle},
};
use rpcrdma_examples::nfs3d::{
    Export,
    acl::AclService,
    identity::{Identities, Squash},
    key::Secret,
    mount::MountService,
    service::{NfsService, duplicate_requests},
};
use rpcrdma_specs::{
    mount3::{
        Dirpath, Mountres3,
        mount_v3::{MountV3Client, MountV3Server},
    },
    nfs3::{nfs_v3::*, *},
    nfsacl3::nfs_acl_v3::NfsAclV3Server,
};
use tempfile::TempDir;

pub(crate) use rpcrdma_examples::nfs3::no_changes as nothing;

/// A running server that exports a temporary directory. Dropping this value stops the server.
pub(crate) struct Served {
    pub(crate) folder: Arc<TempDir>,
    pub(crate) root: PathBuf,
    pub(crate) iwarp: String,
    pub(crate) tcp: String,
    pub(crate) service: NfsService,
    pub(crate) export: Arc<Export>,
    handles: [ServerHandle; 2],
    mount: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        for handle in &self.handles {
            handle.shutdown_within(Duration::ZERO);
        }
    }
}

pub(crate) fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn own_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

impl Served {
    pub(crate) async fn new() -> Self {
        Self::with(Squash::None).await
    }

    /// Serves a directory on a file system in memory, if the system has one.
    pub(crate) async fn in_memory() -> Self {
        match TempDir::new_in("/dev/shm") {
            Ok(folder) => Self::of(Arc::new(prepared(folder)), Squash::None).await,
            Err(_) => Self::new().await,
        }
    }

    pub(crate) async fn with(squash: Squash) -> Self {
        Self::of(Arc::new(prepared(TempDir::new().unwrap())), squash).await
    }

    /// Serves the directory `root` in `folder`, with the key that is stored in `folder`. Calls act as the users that
    /// `squash` determines.
    pub(crate) async fn of(folder: Arc<TempDir>, squash: Squash) -> Self {
        // These servers use no RDMA devices.
        Self::acting(folder, Identities::new(squash, None, None).with_any_thread(true)).await
    }

    /// Serves a directory with a maximum number of bytes per READ and WRITE.
    pub(crate) async fn with_max_transfer(bytes: u64) -> Self {
        let folder = Arc::new(prepared(TempDir::new().unwrap()));
        let export = Self::open(&folder, Identities::new(Squash::None, None, None).with_any_thread(true));
        Self::serve(folder, export.with_max_transfer(bytes)).await
    }

    /// Serves the directory `root` in `folder`. Calls act as the users that `identities` determines.
    pub(crate) async fn acting(folder: Arc<TempDir>, identities: Identities) -> Self {
        let export = Self::open(&folder, identities);
        Self::serve(folder, export).await
    }

    fn open(folder: &TempDir, identities: Identities) -> Export {
        let root = folder.path().join("root").canonicalize().unwrap();
        let secret = Secret::keep_in(&folder.path().join("state")).unwrap();
        Export::open(&root, &secret, identities).unwrap()
    }

    async fn serve(folder: Arc<TempDir>, export: Export) -> Self {
        let (export, root) = (Arc::new(export), folder.path().join("root").canonicalize().unwrap());
        let service = NfsService::new(Arc::clone(&export));
        let nfs = Server::builder()
            .service(NfsV3Server::new(service.clone()))
            .service(NfsAclV3Server::new(AclService::new(service.clone())))
            .duplicate_requests(PROGRAM, duplicate_requests());
        let nfs = nfs.listen("iwarp://127.0.0.1:0").listen("tcp://127.0.0.1:0").bind().await.unwrap();
        let mount = Server::builder().service(MountV3Server::new(MountService::new(Arc::clone(&export), "/data")));
        let mount = mount.listen("tcp://127.0.0.1:0").bind().await.unwrap();
        let [iwarp, tcp] = nfs.urls().to_vec().try_into().unwrap();
        let mount_url = mount.urls()[0].clone();
        let handles = [nfs.handle(), mount.handle()];
        tokio::spawn(nfs.serve());
        tokio::spawn(mount.serve());
        Self { folder, root, iwarp, tcp, service, export, handles, mount: mount_url }
    }

    /// Stops the server without waiting for calls in progress. Returns the temporary directory.
    pub(crate) fn end(self) -> Arc<TempDir> {
        Arc::clone(&self.folder)
    }

    /// Returns the counters of the connections to NFS.
    pub(crate) fn connections(&self) -> Vec<ConnectionCounters> {
        self.handles[0].connections().into_iter().map(|connection| connection.counters).collect()
    }

    /// Returns the statistics of the duplicate request caches.
    pub(crate) fn duplicate_requests(&self) -> Vec<rpcrdma::server::DuplicateRequestStats> {
        self.handles[0].duplicate_requests()
    }

    pub(crate) async fn mount(&self, credential: Credential) -> MountV3Client {
        MountV3Client::new(channel(&self.mount, &credential).await)
    }

    /// Mounts the export, and returns an NFS client over iWARP that acts as the user that runs the tests.
    pub(crate) async fn client(&self) -> Nfs {
        self.client_as(Credential::sys("test", own_uid(), own_gid(), []), &self.iwarp).await
    }

    pub(crate) async fn client_as(&self, credential: Credential, url: &str) -> Nfs {
        let mount = self.mount(Credential::sys("test", own_uid(), own_gid(), [])).await;
        let Mountres3::Ok(ok) = mount.mountproc3_mnt(&Dirpath("/data".into())).await.unwrap() else {
            panic!("MNT failed")
        };
        Nfs { client: NfsV3Client::new(channel(url, &credential).await), root: NfsFh3 { data: ok.fhandle.0 } }
    }
}

/// Creates the directory to serve in `folder`.
pub(crate) fn prepared(folder: TempDir) -> TempDir {
    // Set the mode explicitly: a server in this process may have cleared the umask.
    fs::create_dir(folder.path().join("root")).unwrap();
    fs::set_permissions(folder.path().join("root"), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

async fn channel(url: &str, credential: &Credential) -> Channel {
    let builder = Channel::builder().credential(credential.to_opaque().unwrap()).call_timeout(Duration::from_secs(60));
    builder.connect(url).await.unwrap()
}

/// A client with the root handle of the export. Its calls panic if the transport fails.
pub(crate) struct Nfs {
    pub(crate) client: NfsV3Client,
    pub(crate) root: NfsFh3,
}

pub(crate) type Result3<T> = Result<T, Nfsstat3>;

pub(crate) fn name(bytes: impl AsRef<[u8]>) -> Filename3 {
    Filename3(Bytes::copy_from_slice(bytes.as_ref()).into())
}

pub(crate) fn at(dir: &NfsFh3, bytes: impl AsRef<[u8]>) -> Diropargs3 {
    Diropargs3 { dir: dir.clone(), name: name(bytes) }
}

pub(crate) fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: SetMode3::True(mode), ..nothing() }
}

/// Returns the handle and the attributes, which must both be present.
fn both(obj: PostOpFh3, attributes: PostOpAttr) -> (NfsFh3, Fattr3) {
    match (obj, attributes) {
        (PostOpFh3::True(handle), PostOpAttr::True(attributes)) => (handle, attributes),
        other => panic!("no handle or no attributes: {other:?}"),
    }
}

/// Checks that the `wcc_data` of a changed object contains attributes from before and after the change.
pub(crate) fn changed(wcc: &WccData) {
    let (PreOpAttr::True(before), PostOpAttr::True(after)) = (&wcc.before, &wcc.after) else { panic!("{wcc:?}") };
    let stamp = |time: &Nfstime3| (time.seconds, time.nseconds);
    assert!(stamp(&before.ctime) <= stamp(&after.ctime), "{wcc:?}");
}

impl Nfs {
    pub(crate) async fn getattr(&self, object: &NfsFh3) -> Result3<Fattr3> {
        match self.client.nfsproc3_getattr(&Getattr3args { object: object.clone() }).await.unwrap() {
            Getattr3res::Ok(ok) => Ok(ok.obj_attributes),
            Getattr3res::Default(status) => Err(status),
        }
    }

    pub(crate) async fn lookup(&self, dir: &NfsFh3, bytes: impl AsRef<[u8]>) -> Result3<NfsFh3> {
        match self.client.nfsproc3_lookup(&Lookup3args { what: at(dir, bytes) }).await.unwrap() {
            Lookup3res::Ok(ok) => {
                assert!(matches!(ok.dir_attributes, PostOpAttr::True(_)));
                Ok(both(PostOpFh3::True(ok.object), ok.obj_attributes).0)
            }
            Lookup3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn create(
        &self,
        dir: &NfsFh3,
        bytes: impl AsRef<[u8]>,
        how: Createhow3,
    ) -> Result3<(NfsFh3, Fattr3)> {
        match self.client.nfsproc3_create(&Create3args { r#where: at(dir, bytes), how }).await.unwrap() {
            Create3res::Ok(ok) => {
                changed(&ok.dir_wcc);
                Ok(both(ok.obj, ok.obj_attributes))
            }
            Create3res::Default(status, _) => Err(status),
        }
    }

    /// Creates a file, which must not exist, and returns its handle.
    pub(crate) async fn file(&self, dir: &NfsFh3, bytes: impl AsRef<[u8]>) -> NfsFh3 {
        self.create(dir, bytes, Createhow3::Guarded(mode(0o644))).await.unwrap().0
    }

    pub(crate) async fn mkdir(
        &self,
        dir: &NfsFh3,
        bytes: impl AsRef<[u8]>,
        attributes: Sattr3,
    ) -> Result3<(NfsFh3, Fattr3)> {
        match self.client.nfsproc3_mkdir(&Mkdir3args { r#where: at(dir, bytes), attributes }).await.unwrap() {
            Mkdir3res::Ok(ok) => {
                changed(&ok.dir_wcc);
                Ok(both(ok.obj, ok.obj_attributes))
            }
            Mkdir3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn folder(&self, dir: &NfsFh3, bytes: impl AsRef<[u8]>) -> NfsFh3 {
        self.mkdir(dir, bytes, mode(0o755)).await.unwrap().0
    }

    pub(crate) async fn symlink(
        &self,
        dir: &NfsFh3,
        bytes: impl AsRef<[u8]>,
        text: impl AsRef<[u8]>,
    ) -> Result3<NfsFh3> {
        let symlink_data = Nfspath3(Bytes::copy_from_slice(text.as_ref()).into());
        let symlink = Symlinkdata3 { symlink_attributes: mode(0o777), symlink_data };
        match self.client.nfsproc3_symlink(&Symlink3args { r#where: at(dir, bytes), symlink }).await.unwrap() {
            Symlink3res::Ok(ok) => {
                changed(&ok.dir_wcc);
                Ok(both(ok.obj, ok.obj_attributes).0)
            }
            Symlink3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn readlink(&self, link: &NfsFh3) -> Result3<Vec<u8>> {
        match self.client.nfsproc3_readlink(&Readlink3args { symlink: link.clone() }).await.unwrap() {
            Readlink3res::Ok(ok) => Ok(ok.data.as_bytes().to_vec()),
            Readlink3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn mknod(
        &self,
        dir: &NfsFh3,
        bytes: impl AsRef<[u8]>,
        what: Mknoddata3,
    ) -> Result3<(NfsFh3, Fattr3)> {
        match self.client.nfsproc3_mknod(&Mknod3args { r#where: at(dir, bytes), what }).await.unwrap() {
            Mknod3res::Ok(ok) => {
                changed(&ok.dir_wcc);
                Ok(both(ok.obj, ok.obj_attributes))
            }
            Mknod3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn remove(&self, dir: &NfsFh3, bytes: impl AsRef<[u8]>) -> Result3<()> {
        match self.client.nfsproc3_remove(&Remove3args { object: at(dir, bytes) }).await.unwrap() {
            Remove3res::Ok(ok) => {
                changed(&ok.dir_wcc);
                Ok(())
            }
            Remove3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn rmdir(&self, dir: &NfsFh3, bytes: impl AsRef<[u8]>) -> Result3<()> {
        match self.client.nfsproc3_rmdir(&Rmdir3args { object: at(dir, bytes) }).await.unwrap() {
            Rmdir3res::Ok(ok) => {
                changed(&ok.dir_wcc);
                Ok(())
            }
            Rmdir3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn rename(&self, from: Diropargs3, to: Diropargs3) -> Result3<()> {
        match self.client.nfsproc3_rename(&Rename3args { from, to }).await.unwrap() {
            Rename3res::Ok(ok) => {
                changed(&ok.fromdir_wcc);
                changed(&ok.todir_wcc);
                Ok(())
            }
            Rename3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn link(&self, file: &NfsFh3, link: Diropargs3) -> Result3<Fattr3> {
        match self.client.nfsproc3_link(&Link3args { file: file.clone(), link }).await.unwrap() {
            Link3res::Ok(Link3resok { file_attributes: PostOpAttr::True(attributes), linkdir_wcc }) => {
                changed(&linkdir_wcc);
                Ok(attributes)
            }
            Link3res::Ok(other) => panic!("{other:?}"),
            Link3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn setattr(
        &self,
        object: &NfsFh3,
        new_attributes: Sattr3,
        guard: Sattrguard3,
    ) -> Result3<WccData> {
        let args = Setattr3args { object: object.clone(), new_attributes, guard };
        match self.client.nfsproc3_setattr(&args).await.unwrap() {
            Setattr3res::Ok(ok) => Ok(ok.obj_wcc),
            Setattr3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn access(&self, object: &NfsFh3, access: u32) -> Result3<u32> {
        match self.client.nfsproc3_access(&Access3args { object: object.clone(), access }).await.unwrap() {
            Access3res::Ok(ok) => Ok(ok.access),
            Access3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn read(&self, file: &NfsFh3, offset: u64, count: u32) -> Result3<(Bytes, bool)> {
        match self.client.nfsproc3_read(&Read3args { file: file.clone(), offset, count }).await.unwrap() {
            Read3res::Ok(ok) => {
                assert_eq!(ok.count as usize, ok.data.len());
                assert!(matches!(ok.file_attributes, PostOpAttr::True(_)));
                Ok((ok.data, ok.eof))
            }
            Read3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn write(
        &self,
        file: &NfsFh3,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Result3<Write3resok> {
        let data = Bytes::copy_from_slice(data);
        let args = Write3args { file: file.clone(), offset, count: data.len() as u32, stable, data };
        match self.client.nfsproc3_write(&args).await.unwrap() {
            Write3res::Ok(ok) => {
                changed(&ok.file_wcc);
                Ok(ok)
            }
            Write3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn commit(&self, file: &NfsFh3) -> Result3<Writeverf3> {
        match self.client.nfsproc3_commit(&Commit3args { file: file.clone(), offset: 0, count: 0 }).await.unwrap() {
            Commit3res::Ok(ok) => {
                // Another client's WRITE may be performed during a COMMIT.
                assert!(matches!(ok.file_wcc.before, PreOpAttr::False), "{:?}", ok.file_wcc);
                Ok(ok.verf)
            }
            Commit3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn readdir(
        &self,
        dir: &NfsFh3,
        cookie: u64,
        cookieverf: Cookieverf3,
        count: u32,
    ) -> Result3<Readdir3resok> {
        let args = Readdir3args { dir: dir.clone(), cookie, cookieverf, count };
        match self.client.nfsproc3_readdir(&args).await.unwrap() {
            Readdir3res::Ok(ok) => Ok(ok),
            Readdir3res::Default(status, _) => Err(status),
        }
    }

    pub(crate) async fn readdirplus(
        &self,
        dir: &NfsFh3,
        cookie: u64,
        cookieverf: Cookieverf3,
        (dircount, maxcount): (u32, u32),
    ) -> Result3<Readdirplus3resok> {
        let args = Readdirplus3args { dir: dir.clone(), cookie, cookieverf, dircount, maxcount };
        match self.client.nfsproc3_readdirplus(&args).await.unwrap() {
            Readdirplus3res::Ok(ok) => Ok(ok),
            Readdirplus3res::Default(status, _) => Err(status),
        }
    }
}

/// Returns bytes that depend on their position and on the seed.
pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| ((n * 7 + n / 251) as u8).wrapping_add(seed)).collect()
}
