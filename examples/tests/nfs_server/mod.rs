//! A small NFS 3 and MOUNT 3 server in memory, which can be told to misbehave: to lose what is not committed, to write
//! less than it is sent, to have no READDIRPLUS, to list names that cannot be.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use rpcrdma::{
    rpc::{AuthFailure, Credential},
    server::{Context, Failure, Server, ServerHandle},
};
use rpcrdma_specs::{
    mount3::{self, mount_v3::MountV3, mount_v3::MountV3Server},
    nfs3::{
        self, Createhow3, Dirlist3, Dirlistplus3, Diropargs3, Entry3, Entryplus3, Fattr3, Ftype3, NfsFh3, Nfsstat3,
        Nfstime3, PostOpAttr, PostOpFh3, PreOpAttr, SetAtime, SetMode3, SetMtime, SetSize3, Specdata3, StableHow,
        WccData, nfs_v3::NfsV3, nfs_v3::NfsV3Server,
    },
};

/// A file's contents, and what of them a restart leaves.
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
    /// Said to be on the disk, whatever there is.
    pub(crate) used: Option<u64>,
}

/// What it has, and how it behaves.
#[derive(Debug)]
pub(crate) struct Fake {
    inodes: Mutex<HashMap<u64, Inode>>,
    next: AtomicU64,
    verifier: AtomicU64,
    /// Most octets of READ, WRITE as FSINFO says.
    pub(crate) max: AtomicU32,
    /// WRITEs do at most so much.
    pub(crate) short: AtomicU32,
    /// So many WRITEs until it loses what is not committed.
    pub(crate) restart_after: AtomicU32,
    /// It loses it before every COMMIT.
    pub(crate) always_loses: AtomicBool,
    /// So many calls are answered with NFS3ERR_JUKEBOX.
    pub(crate) jukebox: AtomicU32,
    pub(crate) no_readdirplus: AtomicBool,
    /// It lists exports.
    pub(crate) lists: AtomicBool,
    /// New files and directories come without their handles.
    pub(crate) taciturn: AtomicBool,
    /// An octet of what is read is changed, now and then.
    pub(crate) rotten: AtomicBool,
    /// Calls of WRITE with UNSTABLE, with FILE_SYNC, of COMMIT, READ, READDIRPLUS.
    pub(crate) unstable: AtomicU32,
    pub(crate) file_sync: AtomicU32,
    pub(crate) commits: AtomicU32,
    pub(crate) reads: AtomicU32,
    pub(crate) lists_read: AtomicU32,
}

pub(crate) const EXPORT: &str = "/srv/export";
const ROOT: u64 = 1;

/// A server with one, listening on loopback.
pub(crate) struct FakeServer {
    pub(crate) fake: Arc<Fake>,
    pub(crate) mount_port: u16,
    iwarp: u16,
    tcp: u16,
    pub(crate) handle: ServerHandle,
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
        tokio::spawn(server.serve());
        Self { fake, mount_port: tcp, iwarp, tcp, handle }
    }

    /// A URL in the export, by `transport`.
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
    handle.data.first_chunk().map(|id| u64::from_be_bytes(*id)).ok_or(Nfsstat3::Nfs3errBadhandle)
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

    /// What is at a path.
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

    /// Puts something at a path, whose directory is there.
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

    /// Says of a file that so much of it is on the disk.
    pub(crate) fn set_used(&self, path: &str, used: u64) {
        let id = self.child(ROOT, path.as_bytes()).unwrap();
        self.inodes.lock().unwrap().get_mut(&id).unwrap().used = Some(used);
    }

    /// It goes down and comes back: what was not committed is gone.
    pub(crate) fn crash(&self) {
        for inode in self.inodes.lock().unwrap().values_mut() {
            if let Kind::File(data) = &mut inode.kind {
                data.now.clone_from(&data.stable);
            }
        }
        self.verifier.fetch_add(1, SeqCst);
    }

    fn child(&self, dir: u64, name: &[u8]) -> Result<u64, Nfsstat3> {
        match &self.inodes.lock().unwrap().get(&dir).ok_or(Nfsstat3::Nfs3errStale)?.kind {
            Kind::Dir(entries) => entries.get(name).copied().ok_or(Nfsstat3::Nfs3errNoent),
            _ => Err(Nfsstat3::Nfs3errNotdir),
        }
    }

    fn make(&self, dir: u64, name: &[u8], kind: Kind, mode: u32) -> Result<u64, Nfsstat3> {
        let id = self.next.fetch_add(1, SeqCst);
        let mut inodes = self.inodes.lock().unwrap();
        let Kind::Dir(entries) = &mut inodes.get_mut(&dir).ok_or(Nfsstat3::Nfs3errStale)?.kind else {
            return Err(Nfsstat3::Nfs3errNotdir);
        };
        entries.insert(name.to_vec(), id);
        inodes.insert(id, Inode { kind, mode, mtime: time(), atime: time(), used: None });
        Ok(id)
    }

    fn attributes(&self, id: u64) -> Result<Fattr3, Nfsstat3> {
        let inodes = self.inodes.lock().unwrap();
        let inode = inodes.get(&id).ok_or(Nfsstat3::Nfs3errStale)?;
        let (r#type, size) = match &inode.kind {
            Kind::Dir(_) => (Ftype3::Nf3dir, 4096),
            Kind::File(data) => (Ftype3::Nf3reg, data.now.len() as u64),
            Kind::Link(text) => (Ftype3::Nf3lnk, text.len() as u64),
            Kind::Pipe => (Ftype3::Nf3fifo, 0),
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
        let inode = inodes.get_mut(&id).ok_or(Nfsstat3::Nfs3errStale)?;
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

    fn new_entry(&self, at: &Diropargs3, kind: Kind, mode: &SetMode3) -> Result<(PostOpFh3, PostOpAttr), Nfsstat3> {
        let dir = id(&at.dir)?;
        if self.child(dir, &at.name.0.0).is_ok() {
            return Err(Nfsstat3::Nfs3errExist);
        }
        let mode = if let SetMode3::True(mode) = mode { *mode } else { 0 };
        let id = self.make(dir, &at.name.0.0, kind, mode)?;
        if self.taciturn.load(SeqCst) {
            return Ok((PostOpFh3::False, PostOpAttr::False));
        }
        Ok((PostOpFh3::True(handle(id)), PostOpAttr::True(self.attributes(id)?)))
    }

    fn write_data(&self, args: &nfs3::Write3args) -> Result<nfs3::Write3resok, Nfsstat3> {
        if Self::countdown(&self.jukebox) {
            return Err(Nfsstat3::Nfs3errJukebox);
        }
        let id = id(&args.file)?;
        let counter = if args.stable == StableHow::Unstable { &self.unstable } else { &self.file_sync };
        counter.fetch_add(1, SeqCst);
        assert!(args.data.len() <= self.max.load(SeqCst) as usize, "a WRITE larger than wtmax");
        let verf = nfs3::Writeverf3(self.verifier.load(SeqCst).to_be_bytes());
        let count = args.data.len().min(self.short.load(SeqCst) as usize);
        {
            let mut inodes = self.inodes.lock().unwrap();
            let Some(Kind::File(data)) = inodes.get_mut(&id).map(|inode| &mut inode.kind) else {
                return Err(Nfsstat3::Nfs3errInval);
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

    /// Entries after a cookie, as many as fit; cookies are positions.
    fn page(&self, dir: &NfsFh3, cookie: u64, room: usize) -> Result<(Vec<Listed>, bool), Nfsstat3> {
        self.lists_read.fetch_add(1, SeqCst);
        let dir = id(dir)?;
        let inodes = self.inodes.lock().unwrap();
        let Some(Kind::Dir(entries)) = inodes.get(&dir).map(|inode| &inode.kind) else {
            return Err(Nfsstat3::Nfs3errNotdir);
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

/// Name, inode, cookie.
type Listed = (Vec<u8>, u64, u64);

/// The handler.
#[derive(Debug)]
struct Shared(Arc<Fake>);

/// As Linux: not without AUTH_SYS.
fn sys(cx: &Context) -> Result<(), Failure> {
    match cx.credential() {
        Credential::Sys(_) => Ok(()),
        _ => Err(Failure::Denied(AuthFailure::from(rpcrdma::rpc::AuthStat::AuthTooweak))),
    }
}

macro_rules! unsupported {
    ($($name:ident($args:ty) -> $reply:ty = $failure:expr;)*) => {
        $(async fn $name(&self, _cx: &Context, _args: $args) -> Result<$reply, Failure> {
            Ok(<$reply>::Default(Nfsstat3::Nfs3errNotsupp, $failure))
        })*
    };
}

impl NfsV3 for Shared {
    async fn nfsproc3_getattr(&self, cx: &Context, args: nfs3::Getattr3args) -> Result<nfs3::Getattr3res, Failure> {
        sys(cx)?;
        let found = id(&args.object).and_then(|id| self.0.attributes(id));
        Ok(match found {
            Ok(obj_attributes) => nfs3::Getattr3res::Nfs3Ok(nfs3::Getattr3resok { obj_attributes }),
            Err(status) => nfs3::Getattr3res::Default(status),
        })
    }

    async fn nfsproc3_setattr(&self, cx: &Context, args: nfs3::Setattr3args) -> Result<nfs3::Setattr3res, Failure> {
        sys(cx)?;
        Ok(match id(&args.object).and_then(|id| self.0.set(id, &args.new_attributes)) {
            Ok(()) => nfs3::Setattr3res::Nfs3Ok(nfs3::Setattr3resok { obj_wcc: NO_WCC }),
            Err(status) => nfs3::Setattr3res::Default(status, nfs3::Setattr3resfail { obj_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_lookup(&self, cx: &Context, args: nfs3::Lookup3args) -> Result<nfs3::Lookup3res, Failure> {
        sys(cx)?;
        let found = id(&args.what.dir).and_then(|dir| self.0.child(dir, &args.what.name.0.0));
        let dir_attributes = PostOpAttr::False;
        Ok(match found {
            Ok(id) => nfs3::Lookup3res::Nfs3Ok(nfs3::Lookup3resok {
                object: handle(id),
                obj_attributes: PostOpAttr::False,
                dir_attributes,
            }),
            Err(status) => nfs3::Lookup3res::Default(status, nfs3::Lookup3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_readlink(&self, cx: &Context, args: nfs3::Readlink3args) -> Result<nfs3::Readlink3res, Failure> {
        sys(cx)?;
        let symlink_attributes = PostOpAttr::False;
        let inode = id(&args.symlink).ok().and_then(|id| self.0.inodes.lock().unwrap().get(&id).cloned());
        Ok(match inode.map(|inode| inode.kind) {
            Some(Kind::Link(text)) => nfs3::Readlink3res::Nfs3Ok(nfs3::Readlink3resok {
                symlink_attributes,
                data: nfs3::Nfspath3(Bytes::from(text).into()),
            }),
            _ => nfs3::Readlink3res::Default(Nfsstat3::Nfs3errInval, nfs3::Readlink3resfail { symlink_attributes }),
        })
    }

    async fn nfsproc3_read(&self, cx: &Context, args: nfs3::Read3args) -> Result<nfs3::Read3res, Failure> {
        sys(cx)?;
        let calls = self.0.reads.fetch_add(1, SeqCst);
        assert!(args.count <= self.0.max.load(SeqCst), "a READ larger than rtmax");
        let inode = id(&args.file).ok().and_then(|id| self.0.inodes.lock().unwrap().get(&id).cloned());
        let Some(Kind::File(data)) = inode.map(|inode| inode.kind) else {
            let failure = nfs3::Read3resfail { file_attributes: PostOpAttr::False };
            return Ok(nfs3::Read3res::Default(Nfsstat3::Nfs3errInval, failure));
        };
        let data = data.now;
        let start = (args.offset as usize).min(data.len());
        // Now and then less than could be.
        let count = if calls % 5 == 4 { args.count.div_ceil(2) } else { args.count };
        let end = (start + count as usize).min(data.len());
        let mut part = data[start..end].to_vec();
        if self.0.rotten.load(SeqCst)
            && let Some(octet) = part.last_mut()
        {
            *octet ^= u8::from(calls.is_multiple_of(2));
        }
        Ok(nfs3::Read3res::Nfs3Ok(nfs3::Read3resok {
            file_attributes: PostOpAttr::False,
            count: part.len() as u32,
            eof: end == data.len(),
            data: Bytes::from(part),
        }))
    }

    async fn nfsproc3_write(&self, cx: &Context, args: nfs3::Write3args) -> Result<nfs3::Write3res, Failure> {
        sys(cx)?;
        Ok(match self.0.write_data(&args) {
            Ok(ok) => nfs3::Write3res::Nfs3Ok(ok),
            Err(status) => nfs3::Write3res::Default(status, nfs3::Write3resfail { file_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_commit(&self, cx: &Context, args: nfs3::Commit3args) -> Result<nfs3::Commit3res, Failure> {
        sys(cx)?;
        self.0.commits.fetch_add(1, SeqCst);
        if self.0.always_loses.load(SeqCst) {
            self.0.crash();
        }
        let verf = nfs3::Writeverf3(self.0.verifier.load(SeqCst).to_be_bytes());
        if let Some(inode) = id(&args.file).ok().and_then(|id| self.0.inodes.lock().unwrap().get_mut(&id).cloned())
            && let Kind::File(mut data) = inode.kind
        {
            data.stable.clone_from(&data.now);
            if let Ok(id) = id(&args.file)
                && let Some(inode) = self.0.inodes.lock().unwrap().get_mut(&id)
            {
                inode.kind = Kind::File(data);
            }
        }
        Ok(nfs3::Commit3res::Nfs3Ok(nfs3::Commit3resok { file_wcc: NO_WCC, verf }))
    }

    async fn nfsproc3_create(&self, cx: &Context, args: nfs3::Create3args) -> Result<nfs3::Create3res, Failure> {
        sys(cx)?;
        let Createhow3::Unchecked(new) = &args.how else {
            let failure = nfs3::Create3resfail { dir_wcc: NO_WCC };
            return Ok(nfs3::Create3res::Default(Nfsstat3::Nfs3errNotsupp, failure));
        };
        // As Linux: whatever has the name is returned, and emptied if it is a file.
        let there = id(&args.r#where.dir).and_then(|dir| self.0.child(dir, &args.r#where.name.0.0));
        let made = match there {
            Ok(id) => {
                let size = nfs3::Sattr3 { mode: SetMode3::Default(false), ..new.clone() };
                let set = self.0.set(id, &size).and_then(|()| self.0.attributes(id));
                set.map(|attributes| (PostOpFh3::True(handle(id)), PostOpAttr::True(attributes)))
            }
            Err(_) => self.0.new_entry(&args.r#where, Kind::File(Data::default()), &new.mode),
        };
        Ok(match made {
            Ok((obj, obj_attributes)) => {
                nfs3::Create3res::Nfs3Ok(nfs3::Create3resok { obj, obj_attributes, dir_wcc: NO_WCC })
            }
            Err(status) => nfs3::Create3res::Default(status, nfs3::Create3resfail { dir_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_mkdir(&self, cx: &Context, args: nfs3::Mkdir3args) -> Result<nfs3::Mkdir3res, Failure> {
        sys(cx)?;
        Ok(match self.0.new_entry(&args.r#where, Kind::Dir(BTreeMap::new()), &args.attributes.mode) {
            Ok((obj, obj_attributes)) => {
                nfs3::Mkdir3res::Nfs3Ok(nfs3::Mkdir3resok { obj, obj_attributes, dir_wcc: NO_WCC })
            }
            Err(status) => nfs3::Mkdir3res::Default(status, nfs3::Mkdir3resfail { dir_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_symlink(&self, cx: &Context, args: nfs3::Symlink3args) -> Result<nfs3::Symlink3res, Failure> {
        sys(cx)?;
        let kind = Kind::Link(args.symlink.symlink_data.0.to_vec());
        Ok(match self.0.new_entry(&args.r#where, kind, &args.symlink.symlink_attributes.mode) {
            Ok((obj, obj_attributes)) => {
                nfs3::Symlink3res::Nfs3Ok(nfs3::Symlink3resok { obj, obj_attributes, dir_wcc: NO_WCC })
            }
            Err(status) => nfs3::Symlink3res::Default(status, nfs3::Symlink3resfail { dir_wcc: NO_WCC }),
        })
    }

    async fn nfsproc3_remove(&self, cx: &Context, args: nfs3::Remove3args) -> Result<nfs3::Remove3res, Failure> {
        sys(cx)?;
        let mut inodes = self.0.inodes.lock().unwrap();
        let dir = id(&args.object.dir).ok().and_then(|id| inodes.get_mut(&id));
        let removed = match dir.map(|inode| &mut inode.kind) {
            Some(Kind::Dir(entries)) => entries.remove(&args.object.name.0.0[..]).is_some(),
            _ => false,
        };
        Ok(if removed {
            nfs3::Remove3res::Nfs3Ok(nfs3::Remove3resok { dir_wcc: NO_WCC })
        } else {
            nfs3::Remove3res::Default(Nfsstat3::Nfs3errNoent, nfs3::Remove3resfail { dir_wcc: NO_WCC })
        })
    }

    async fn nfsproc3_readdir(&self, cx: &Context, args: nfs3::Readdir3args) -> Result<nfs3::Readdir3res, Failure> {
        sys(cx)?;
        let dir_attributes = PostOpAttr::False;
        Ok(match self.0.page(&args.dir, args.cookie, args.count as usize) {
            Ok((entries, eof)) => {
                let entry =
                    |(name, fileid, cookie)| Entry3 { fileid, name: nfs3::Filename3(Bytes::from(name).into()), cookie };
                nfs3::Readdir3res::Nfs3Ok(nfs3::Readdir3resok {
                    dir_attributes,
                    cookieverf: args.cookieverf,
                    reply: Dirlist3 { entries: entries.into_iter().map(entry).collect(), eof },
                })
            }
            Err(status) => nfs3::Readdir3res::Default(status, nfs3::Readdir3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_readdirplus(
        &self,
        cx: &Context,
        args: nfs3::Readdirplus3args,
    ) -> Result<nfs3::Readdirplus3res, Failure> {
        sys(cx)?;
        let dir_attributes = PostOpAttr::False;
        if self.0.no_readdirplus.load(SeqCst) {
            let failure = nfs3::Readdirplus3resfail { dir_attributes };
            return Ok(nfs3::Readdirplus3res::Default(Nfsstat3::Nfs3errNotsupp, failure));
        }
        Ok(match self.0.page(&args.dir, args.cookie, args.maxcount as usize) {
            Ok((entries, eof)) => {
                // Of every third nothing more is said.
                let entry = |(name, id, cookie): Listed| Entryplus3 {
                    fileid: id,
                    name: nfs3::Filename3(Bytes::from(name).into()),
                    cookie,
                    name_attributes: match self.0.attributes(id) {
                        Ok(attributes) if cookie % 3 != 0 => PostOpAttr::True(attributes),
                        _ => PostOpAttr::False,
                    },
                    name_handle: PostOpFh3::True(handle(id)),
                };
                nfs3::Readdirplus3res::Nfs3Ok(nfs3::Readdirplus3resok {
                    dir_attributes,
                    cookieverf: args.cookieverf,
                    reply: Dirlistplus3 { entries: entries.into_iter().map(entry).collect(), eof },
                })
            }
            Err(status) => nfs3::Readdirplus3res::Default(status, nfs3::Readdirplus3resfail { dir_attributes }),
        })
    }

    async fn nfsproc3_fsinfo(&self, _cx: &Context, _args: nfs3::Fsinfo3args) -> Result<nfs3::Fsinfo3res, Failure> {
        let max = self.0.max.load(SeqCst);
        Ok(nfs3::Fsinfo3res::Nfs3Ok(nfs3::Fsinfo3resok {
            obj_attributes: PostOpAttr::False,
            rtmax: max,
            rtpref: max,
            rtmult: 1,
            wtmax: max,
            wtpref: max,
            wtmult: 1,
            dtpref: 4096,
            maxfilesize: 1 << 40,
            time_delta: Nfstime3 { seconds: 0, nseconds: 1 },
            properties: 0x1b,
        }))
    }

    unsupported! {
        nfsproc3_access(nfs3::Access3args) -> nfs3::Access3res = nfs3::Access3resfail { obj_attributes: PostOpAttr::False };
        nfsproc3_mknod(nfs3::Mknod3args) -> nfs3::Mknod3res = nfs3::Mknod3resfail { dir_wcc: NO_WCC };
        nfsproc3_rmdir(nfs3::Rmdir3args) -> nfs3::Rmdir3res = nfs3::Rmdir3resfail { dir_wcc: NO_WCC };
        nfsproc3_rename(nfs3::Rename3args) -> nfs3::Rename3res =
            nfs3::Rename3resfail { fromdir_wcc: NO_WCC, todir_wcc: NO_WCC };
        nfsproc3_link(nfs3::Link3args) -> nfs3::Link3res =
            nfs3::Link3resfail { file_attributes: PostOpAttr::False, linkdir_wcc: NO_WCC };
        nfsproc3_fsstat(nfs3::Fsstat3args) -> nfs3::Fsstat3res = nfs3::Fsstat3resfail { obj_attributes: PostOpAttr::False };
        nfsproc3_pathconf(nfs3::Pathconf3args) -> nfs3::Pathconf3res =
            nfs3::Pathconf3resfail { obj_attributes: PostOpAttr::False };
    }
}

impl MountV3 for Shared {
    async fn mountproc3_mnt(&self, _cx: &Context, path: mount3::Dirpath) -> Result<mount3::Mountres3, Failure> {
        if path.0 != EXPORT {
            return Ok(mount3::Mountres3::Default(mount3::Mountstat3::Mnt3errAcces));
        }
        let (fhandle, auth_flavors) = (mount3::Fhandle3(handle(ROOT).data), vec![1]);
        Ok(mount3::Mountres3::Mnt3Ok(mount3::Mountres3Ok { fhandle, auth_flavors }))
    }

    async fn mountproc3_dump(&self, _cx: &Context) -> Result<mount3::Mountlist, Failure> {
        Ok(mount3::Mountlist(Vec::new()))
    }

    async fn mountproc3_umnt(&self, _cx: &Context, _path: mount3::Dirpath) -> Result<(), Failure> {
        Ok(())
    }

    async fn mountproc3_umntall(&self, _cx: &Context) -> Result<(), Failure> {
        Ok(())
    }

    async fn mountproc3_export(&self, _cx: &Context) -> Result<mount3::Exports, Failure> {
        if !self.0.lists.load(SeqCst) {
            return Err(Failure::ProcedureUnavailable);
        }
        let export = |path: &str| mount3::Exportnode {
            ex_dir: mount3::Dirpath(path.into()),
            ex_groups: mount3::Groups(Vec::new()),
        };
        // Others, that are shorter, or longer, or begin alike.
        Ok(mount3::Exports(vec![export("/srv"), export(EXPORT), export("/srv/exp"), export("/srv/export/sub/deeper")]))
    }
}
