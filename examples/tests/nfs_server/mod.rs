//! An in-memory NFS version 3 and MOUNT version 3 server with configurable faults. For example, it can lose uncommitted
//! data, write less than requested, leave calls without a reply, or lack READDIRPLUS.

mod procedures;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::server::{Server, ServerHandle};
use rpcrdma_specs::{
    mount3::mount_v3::MountV3Server,
    nfs3::{
        self, Diropargs3, Fattr3, Ftype3, NfsFh3, Nfsstat3, Nfstime3, PostOpAttr, PostOpFh3, PreOpAttr, SetAtime,
        SetMode3, SetMtime, SetSize3, Specdata3, StableHow, WccData, nfs_v3::NfsV3Server,
    },
};

use procedures::Shared;
use tokio::task::JoinHandle;

/// Contents of a file: the current data, and the data that survives a restart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    pub(crate) now: Vec<u8>,
    stable: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Dir(BTreeMap<Vec<u8>, u64>),
    File(Data),
    Link(Vec<u8>),
    Pipe,
}

#[derive(Debug, Clone)]
pub(crate) struct Inode {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) mtime: Nfstime3,
    pub(crate) atime: Nfstime3,
    /// The `used` size in bytes that the server reports, if it differs from the real one.
    pub(crate) used: Option<u64>,
}

/// State and faults of the server.
#[derive(Debug)]
pub(crate) struct Fake {
    inodes: Mutex<HashMap<u64, Inode>>,
    next: AtomicU64,
    verifier: AtomicU64,
    /// Maximum number of bytes per READ and WRITE, as reported by FSINFO. 0 means that FSINFO reports none.
    pub(crate) max: AtomicU32,
    /// Maximum number of bytes that a WRITE stores.
    pub(crate) short: AtomicU32,
    /// Number of WRITEs after which the server loses uncommitted data.
    pub(crate) restart_after: AtomicU32,
    /// `true` to lose uncommitted data before every COMMIT.
    pub(crate) always_loses: AtomicBool,
    /// Number of the next WRITEs that return NFS3ERR_JUKEBOX.
    pub(crate) jukebox: AtomicU32,
    /// Number of the next calls of MNT and EXPORT that get no reply.
    pub(crate) silent_mounts: AtomicU32,
    pub(crate) no_readdirplus: AtomicBool,
    /// `true` to answer EXPORT. `false` to refuse it as a procedure that does not exist.
    pub(crate) lists: AtomicBool,
    /// `true` to omit the handles and attributes of new objects in replies.
    pub(crate) taciturn: AtomicBool,
    /// `true` to corrupt some of the data that READ returns.
    pub(crate) rotten: AtomicBool,
    /// Number of WRITEs with UNSTABLE. The next fields count other WRITEs, COMMITs, READs, and the calls of READDIR and
    /// READDIRPLUS.
    pub(crate) unstable: AtomicU32,
    pub(crate) file_sync: AtomicU32,
    pub(crate) commits: AtomicU32,
    pub(crate) reads: AtomicU32,
    pub(crate) lists_read: AtomicU32,
}

pub(crate) const EXPORT: &str = "/srv/export";
const ROOT: u64 = 1;

/// A running server on loopback, with NFS and MOUNT over iWARP and TCP.
pub(crate) struct FakeServer {
    pub(crate) fake: Arc<Fake>,
    pub(crate) mount_port: u16,
    iwarp: u16,
    tcp: u16,
    pub(crate) handle: ServerHandle,
    serving: tokio::sync::Mutex<JoinHandle<()>>,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        Self::start_on(Arc::new(Fake::new()), "iwarp://127.0.0.1:0").await
    }

    pub(crate) async fn start_on(fake: Arc<Fake>, iwarp: &str) -> Self {
        let server = Server::builder()
            .service(NfsV3Server::new(Shared(Arc::clone(&fake))))
            .service(MountV3Server::new(Shared(Arc::clone(&fake))))
            .listen(iwarp)
            .listen("tcp://127.0.0.1:0")
            .bind()
            .await
            .unwrap();
        let (iwarp, tcp) = (server.local_addrs()[0].port(), server.local_addrs()[1].port());
        let handle = server.handle();
        let serving = tokio::spawn(server.serve()).into();
        Self { fake, mount_port: tcp, iwarp, tcp, handle, serving }
    }

    /// Ends the server without waiting for calls in progress, and returns when its ports are closed.
    pub(crate) async fn end(&self) {
        self.handle.shutdown_within(Duration::ZERO);
        (&mut *self.serving.lock().await).await.unwrap();
    }

    /// Returns a URL in the export.
    pub(crate) fn url(&self, transport: &str, path: &str) -> String {
        let port = if transport == "tcp" { self.tcp } else { self.iwarp };
        format!("nfs3+{transport}://127.0.0.1:{port}{EXPORT}{path}")
    }

    pub(crate) fn iwarp_address(&self) -> String {
        format!("iwarp://127.0.0.1:{}", self.iwarp)
    }
}

fn time() -> Nfstime3 {
    Nfstime3 { seconds: 1_000_000_000, nseconds: 5 }
}

fn id(handle: &NfsFh3) -> Result<u64, Nfsstat3> {
    handle.data.first_chunk().map(|id| u64::from_be_bytes(*id)).ok_or(Nfsstat3::Badhandle)
}

fn handle(id: u64) -> NfsFh3 {
    NfsFh3 { data: Bytes::copy_from_slice(&id.to_be_bytes()) }
}

const NO_WCC: WccData = WccData { before: PreOpAttr::False, after: PostOpAttr::False };

impl Fake {
    fn new() -> Self {
        let root = Inode { kind: Kind::Dir(BTreeMap::new()), mode: 0o755, mtime: time(), atime: time(), used: None };
        Self {
            inodes: Mutex::new(HashMap::from([(ROOT, root)])),
            next: AtomicU64::new(ROOT + 1),
            verifier: AtomicU64::new(1),
            max: AtomicU32::new(64 << 10),
            short: AtomicU32::new(u32::MAX),
            restart_after: AtomicU32::new(u32::MAX),
            always_loses: AtomicBool::new(false),
            jukebox: AtomicU32::new(0),
            silent_mounts: AtomicU32::new(0),
            no_readdirplus: AtomicBool::new(false),
            lists: AtomicBool::new(true),
            taciturn: AtomicBool::new(false),
            rotten: AtomicBool::new(false),
            unstable: AtomicU32::new(0),
            file_sync: AtomicU32::new(0),
            commits: AtomicU32::new(0),
            reads: AtomicU32::new(0),
            lists_read: AtomicU32::new(0),
        }
    }

    /// Returns the object at a path.
    pub(crate) fn at(&self, path: &str) -> Option<Inode> {
        let mut id = ROOT;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            id = self.child(id, part.as_bytes()).ok()?;
        }
        self.inodes.lock().unwrap().get(&id).cloned()
    }

    pub(crate) fn data(&self, path: &str) -> Vec<u8> {
        match self.at(path).map(|inode| inode.kind) {
            Some(Kind::File(data)) => data.now,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// Creates an object at a path. Its directory must exist.
    pub(crate) fn put(&self, path: &str, kind: Kind) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut id = ROOT;
        for part in dir.split('/').filter(|part| !part.is_empty()) {
            id = self.child(id, part.as_bytes()).unwrap();
        }
        self.make(id, name.as_bytes(), kind, 0o640).unwrap();
    }

    pub(crate) fn put_file(&self, path: &str, data: &[u8]) {
        self.put(path, Kind::File(Data { now: data.to_vec(), stable: data.to_vec() }));
    }

    /// Sets the `used` size reported for a file.
    pub(crate) fn set_used(&self, path: &str, used: u64) {
        let id = self.child(ROOT, path.as_bytes()).unwrap();
        self.inodes.lock().unwrap().get_mut(&id).unwrap().used = Some(used);
    }

    /// Simulates a restart: uncommitted data is lost.
    pub(crate) fn crash(&self) {
        for inode in self.inodes.lock().unwrap().values_mut() {
            if let Kind::File(data) = &mut inode.kind {
                data.now.clone_from(&data.stable);
            }
        }
        self.verifier.fetch_add(1, SeqCst);
    }

    fn child(&self, dir: u64, name: &[u8]) -> Result<u64, Nfsstat3> {
        match &self.inodes.lock().unwrap().get(&dir).ok_or(Nfsstat3::Stale)?.kind {
            Kind::Dir(entries) => entries.get(name).copied().ok_or(Nfsstat3::Noent),
            _ => Err(Nfsstat3::Notdir),
        }
    }

    fn make(&self, dir: u64, name: &[u8], kind: Kind, mode: u32) -> Result<u64, Nfsstat3> {
        let id = self.next.fetch_add(1, SeqCst);
        let mut inodes = self.inodes.lock().unwrap();
        let Kind::Dir(entries) = &mut inodes.get_mut(&dir).ok_or(Nfsstat3::Stale)?.kind else {
            return Err(Nfsstat3::Notdir);
        };
        entries.insert(name.to_vec(), id);
        inodes.insert(id, Inode { kind, mode, mtime: time(), atime: time(), used: None });
        Ok(id)
    }

    fn attributes(&self, id: u64) -> Result<Fattr3, Nfsstat3> {
        let inodes = self.inodes.lock().unwrap();
        let inode = inodes.get(&id).ok_or(Nfsstat3::Stale)?;
        let (r#type, size) = match &inode.kind {
            Kind::Dir(_) => (Ftype3::Dir, 4096),
            Kind::File(data) => (Ftype3::Reg, data.now.len() as u64),
            Kind::Link(text) => (Ftype3::Lnk, text.len() as u64),
            Kind::Pipe => (Ftype3::Fifo, 0),
        };
        Ok(Fattr3 {
            r#type,
            mode: inode.mode,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: inode.used.unwrap_or(size),
            rdev: Specdata3 { specdata1: 0, specdata2: 0 },
            fsid: 1,
            fileid: id,
            atime: inode.atime.clone(),
            mtime: inode.mtime.clone(),
            ctime: time(),
        })
    }

    fn set(&self, id: u64, new: &nfs3::Sattr3) -> Result<(), Nfsstat3> {
        let mut inodes = self.inodes.lock().unwrap();
        let inode = inodes.get_mut(&id).ok_or(Nfsstat3::Stale)?;
        if let SetMode3::True(mode) = new.mode {
            inode.mode = mode;
        }
        if let (SetSize3::True(size), Kind::File(data)) = (&new.size, &mut inode.kind) {
            data.now.resize(*size as usize, 0);
            data.stable.resize(*size as usize, 0);
        }
        if let SetAtime::SetToClientTime(time) = &new.atime {
            inode.atime = time.clone();
        }
        if let SetMtime::SetToClientTime(time) = &new.mtime {
            inode.mtime = time.clone();
        }
        Ok(())
    }

    fn countdown(counter: &AtomicU32) -> bool {
        counter.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    /// Waits forever if the call of MOUNT is to get no reply.
    async fn mount_call(&self) {
        if Self::countdown(&self.silent_mounts) {
            std::future::pending::<()>().await;
        }
    }

    fn new_entry(&self, at: &Diropargs3, kind: Kind, mode: &SetMode3) -> Result<(PostOpFh3, PostOpAttr), Nfsstat3> {
        let dir = id(&at.dir)?;
        if self.child(dir, &at.name.0.0).is_ok() {
            return Err(Nfsstat3::Exist);
        }
        let mode = if let SetMode3::True(mode) = mode { *mode } else { 0 };
        let id = self.make(dir, &at.name.0.0, kind, mode)?;
        if self.taciturn.load(SeqCst) {
            return Ok((PostOpFh3::False, PostOpAttr::False));
        }
        Ok((PostOpFh3::True(handle(id)), PostOpAttr::True(self.attributes(id)?)))
    }

    /// Returns the maximum number of bytes per READ and WRITE. If FSINFO reports none, it is 8192, the maximum of NFS
    /// version 2.
    fn max_transfer(&self) -> u32 {
        match self.max.load(SeqCst) {
            0 => 8192,
            max => max,
        }
    }

    fn write_data(&self, args: &nfs3::Write3args) -> Result<nfs3::Write3resok, Nfsstat3> {
        if Self::countdown(&self.jukebox) {
            return Err(Nfsstat3::Jukebox);
        }
        let id = id(&args.file)?;
        let counter = if args.stable == StableHow::Unstable { &self.unstable } else { &self.file_sync };
        counter.fetch_add(1, SeqCst);
        assert!(args.data.len() <= self.max_transfer() as usize, "a WRITE exceeds wtmax");
        let verf = nfs3::Writeverf3(self.verifier.load(SeqCst).to_be_bytes());
        let count = args.data.len().min(self.short.load(SeqCst) as usize);
        {
            let mut inodes = self.inodes.lock().unwrap();
            let Some(Kind::File(data)) = inodes.get_mut(&id).map(|inode| &mut inode.kind) else {
                return Err(Nfsstat3::Inval);
            };
            let (start, end) = (args.offset as usize, args.offset as usize + count);
            if data.now.len() < end {
                data.now.resize(end, 0);
            }
            data.now[start..end].copy_from_slice(&args.data[..count]);
            if args.stable != StableHow::Unstable {
                data.stable.clone_from(&data.now);
            }
        }
        if self.restart_after.fetch_sub(1, SeqCst) == 1 {
            self.crash();
        }
        Ok(nfs3::Write3resok { file_wcc: NO_WCC, count: count as u32, committed: args.stable, verf })
    }

    /// Returns the entries after a cookie that fit into `room` bytes, and `true` if the listing is complete. Cookies
    /// are positions.
    fn page(&self, dir: &NfsFh3, cookie: u64, room: usize) -> Result<(Vec<Listed>, bool), Nfsstat3> {
        self.lists_read.fetch_add(1, SeqCst);
        let dir = id(dir)?;
        let inodes = self.inodes.lock().unwrap();
        let Some(Kind::Dir(entries)) = inodes.get(&dir).map(|inode| &inode.kind) else {
            return Err(Nfsstat3::Notdir);
        };
        let dots = [(b".".to_vec(), dir), (b"..".to_vec(), dir)];
        let all = dots.into_iter().chain(entries.iter().map(|(name, id)| (name.clone(), *id)));
        let all = all.enumerate().map(|(at, (name, id))| (name, id, at as u64 + 1)).skip(cookie as usize);
        let (mut page, mut len) = (Vec::new(), 200);
        let mut all = all.peekable();
        while let Some(entry) = all.next_if(|entry| {
            len += 160 + entry.0.len();
            len <= room
        }) {
            page.push(entry);
        }
        let eof = all.peek().is_none();
        Ok((page, eof))
    }
}

/// Name, inode number and cookie of an entry.
type Listed = (Vec<u8>, u64, u64);
