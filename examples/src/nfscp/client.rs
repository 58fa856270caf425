//! NFS 3's procedures as one wants them: failures as errors, calls made again where that may help.

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, Reconnect},
    memory::BufferPool,
    rpc::OpaqueAuth,
};
use rpcrdma_specs::nfs3::{
    Commit3args, Cookieverf3, Create3args, Createhow3, Diropargs3, Entryplus3, Fattr3, Filename3, Fsinfo3args,
    Fsinfo3resok, Ftype3, Getattr3args, Lookup3args, Mkdir3args, NfsFh3, Nfspath3, Nfsstat3, PostOpAttr, PostOpFh3,
    Read3args, Readdir3args, Readdirplus3args, Readlink3args, Remove3args, Remove3res, Sattr3, Sattrguard3,
    Setattr3args, Setattr3res, StableHow, Symlink3args, Symlink3res, Symlinkdata3, Write3args, Write3resok, Writeverf3,
    nfs_v3::{self, NfsV3Client},
};
use tokio::sync::Semaphore;

use super::{attributes, error::CopyError, retry::persist, window::Window};

/// How the server is talked to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Most calls with data under way at a time; the credits that the server grants limit it further. Default 32.
    pub jobs: usize,
    /// Most octets in one READ or WRITE; FSINFO limits it further. Default 1 MiB.
    pub chunk: u32,
    /// How long connecting may take. Default 10 s.
    pub connect_timeout: Duration,
    /// How long a call may take. Default 30 s.
    pub call_timeout: Duration,
    /// How long calls are made again whose connection was lost or that were not answered. Default 60 s.
    pub patience: Duration,
    /// Who calls; AUTH_SYS, as a rule.
    pub credential: OpaqueAuth,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            jobs: 32,
            chunk: 1 << 20,
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(60),
            credential: OpaqueAuth::none(),
        }
    }
}

/// A file, a directory, or whatever else has a handle, and what is known about it.
#[derive(Debug, Clone)]
pub struct Node {
    /// The handle.
    pub handle: NfsFh3,
    /// The attributes, of when it was looked up.
    pub attributes: Fattr3,
}

impl Node {
    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.attributes.r#type == Ftype3::Dir
    }
}

/// Where a listing goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie {
    cookie: u64,
    verifier: Cookieverf3,
}

impl Default for Cookie {
    /// At the beginning (RFC 1813 §3.3.16: both zero).
    fn default() -> Self {
        Self { cookie: 0, verifier: Cookieverf3([0; 8]) }
    }
}

/// An entry of a directory, `.` and `..` left out.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Not empty, without `/` and NUL.
    pub name: Bytes,
    /// What it is, where the server said so.
    pub node: Option<Node>,
}

/// A connected client of one server.
#[derive(Debug, Clone)]
pub struct Nfs {
    rpc: NfsV3Client,
    options: Options,
    limits: Limits,
    window: Arc<Window>,
    memory: Arc<Semaphore>,
    /// Calls are being made again.
    trouble: Arc<AtomicBool>,
}

/// What FSINFO said, as far as it matters here.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    read: u32,
    write: u32,
    list: u32,
    largest: u64,
}

/// How often, and how long each time, the first call is made. Linux's soft iWARP may notice the first message of a
/// connection only when a second arrives.
const FIRST_CALLS: u32 = 5;
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(2);

impl Nfs {
    /// Connects to `url`, a transport's URL, and calls NULL, with whose reply the server's credits come.
    ///
    /// # Errors
    /// When nobody answers, or no NFS 3.
    pub async fn connect(url: &str, options: Options) -> Result<Self, CopyError> {
        let connecting = Channel::builder()
            .credits(u32::try_from(options.jobs).unwrap_or(u32::MAX).max(8))
            .connect_timeout(options.connect_timeout)
            .call_timeout(options.call_timeout)
            .reconnect(Reconnect::OnDemand {
                min_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(2),
                // Calls are made again here, where their failure can be told from a connection's.
                retries: 0,
            })
            .credential(options.credential.clone());
        let channel = connecting.connect(url).await?;
        let mut calls = 0;
        loop {
            let options = CallOptions::new().timeout(FIRST_CALL_TIMEOUT);
            match channel.call_null(nfs_v3::PROGRAM, nfs_v3::VERSION, options).await {
                Ok(()) => break,
                Err(error) if calls < FIRST_CALLS && !error.is_connection_loss() && super::retry::may_pass(&error) => {
                    calls += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        // Twice as much data as is on its way, so that the disk has work meanwhile.
        let memory = Semaphore::new(options.jobs.saturating_mul(2).clamp(2, 1 << 16));
        let window = Window::default();
        Ok(Self {
            rpc: NfsV3Client::new(channel),
            options,
            limits: Limits::default(),
            window: Arc::new(window),
            memory: Arc::new(memory),
            trouble: Arc::default(),
        })
    }

    /// For a file system: asks how much it takes at a time (FSINFO).
    ///
    /// # Errors
    /// As FSINFO's.
    pub async fn for_file_system(&self, root: &NfsFh3) -> Result<Self, CopyError> {
        let info = self.fsinfo(root).await?;
        // A server that does not say takes what version 2 took at least.
        let size = |max: u32, limit: u32| if max == 0 { 8192 } else { max }.min(limit).max(1);
        let limits = Limits {
            read: size(info.rtmax, self.options.chunk),
            write: size(info.wtmax, self.options.chunk),
            list: info.dtpref.clamp(8 << 10, 64 << 10),
            largest: if info.maxfilesize == 0 { u64::MAX } else { info.maxfilesize },
        };
        Ok(Self { limits, ..self.clone() })
    }

    /// The connection.
    #[must_use]
    pub fn channel(&self) -> &Channel {
        self.rpc.channel()
    }

    /// How it talks.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Octets in one READ.
    #[must_use]
    pub fn read_size(&self) -> u32 {
        self.limits.read
    }

    /// Octets in one WRITE.
    #[must_use]
    pub fn write_size(&self) -> u32 {
        self.limits.write
    }

    /// The longest file that the server can have.
    #[must_use]
    pub fn largest_file(&self) -> u64 {
        self.limits.largest
    }

    /// The most calls with data that have been under way at a time.
    #[must_use]
    pub fn most_under_way(&self) -> usize {
        self.window.most()
    }

    /// One permit for each piece of data in memory.
    pub(super) fn memory(&self) -> &Arc<Semaphore> {
        &self.memory
    }

    pub(super) fn pool(&self) -> &BufferPool {
        self.rpc.channel().pool()
    }

    async fn call<T, F>(&self, procedure: &'static str, call: impl FnMut() -> F) -> Result<T, CopyError>
    where
        F: Future<Output = Result<Result<T, Nfsstat3>, CallError>>,
    {
        persist(procedure, self.options.patience, &self.trouble, call).await
    }

    /// A call that carries data: waits for its turn first.
    async fn data_call<T, F>(&self, procedure: &'static str, call: impl FnMut() -> F) -> Result<T, CopyError>
    where
        F: Future<Output = Result<Result<T, Nfsstat3>, CallError>>,
    {
        let credits = || self.channel().counters().credits_granted as usize;
        let _place = self.window.enter(|| self.options.jobs.min(credits())).await;
        self.call(procedure, call).await
    }

    async fn fsinfo(&self, root: &NfsFh3) -> Result<Fsinfo3resok, CopyError> {
        let args = Fsinfo3args { fsroot: root.clone() };
        let call = || async { Ok(self.rpc.nfsproc3_fsinfo(&args).await?.into_result()) };
        self.call("FSINFO", call).await
    }

    /// A handle's attributes.
    ///
    /// # Errors
    /// As GETATTR's.
    pub async fn getattr(&self, handle: NfsFh3) -> Result<Node, CopyError> {
        let args = Getattr3args { object: handle };
        let call = || async { Ok(self.rpc.nfsproc3_getattr(&args).await?.into_result().map(|ok| ok.obj_attributes)) };
        let attributes = self.call("GETATTR", call).await?;
        Ok(Node { handle: args.object, attributes })
    }

    /// What `name` in `dir` is.
    ///
    /// # Errors
    /// As LOOKUP's.
    pub async fn lookup(&self, dir: &NfsFh3, name: &[u8]) -> Result<Node, CopyError> {
        let args = Lookup3args { what: entry(dir, name) };
        let call = || async {
            Ok(self.rpc.nfsproc3_lookup(&args).await?.into_result().map(|ok| (ok.object, ok.obj_attributes)))
        };
        let (handle, attributes) = self.call("LOOKUP", call).await?;
        self.node(handle, attributes).await
    }

    /// As [`lookup`](Self::lookup), `None` where there is nothing.
    ///
    /// # Errors
    /// As LOOKUP's, NFS3ERR_NOENT excepted.
    pub async fn find(&self, dir: &NfsFh3, name: &[u8]) -> Result<Option<Node>, CopyError> {
        match self.lookup(dir, name).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.status() == Some(Nfsstat3::Noent) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn node(&self, handle: NfsFh3, attributes: PostOpAttr) -> Result<Node, CopyError> {
        match attributes {
            PostOpAttr::True(attributes) => Ok(Node { handle, attributes }),
            PostOpAttr::False => self.getattr(handle).await,
        }
    }

    /// What was just made: a server need not say which handle it has.
    async fn made(
        &self,
        dir: &NfsFh3,
        name: &[u8],
        (handle, attributes): (PostOpFh3, PostOpAttr),
    ) -> Result<Node, CopyError> {
        match handle {
            PostOpFh3::True(handle) => self.node(handle, attributes).await,
            PostOpFh3::False => self.lookup(dir, name).await,
        }
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// As READLINK's.
    pub async fn readlink(&self, link: &NfsFh3) -> Result<Bytes, CopyError> {
        let args = Readlink3args { symlink: link.clone() };
        let call = || async { Ok(self.rpc.nfsproc3_readlink(&args).await?.into_result().map(|ok| ok.data.0.0)) };
        self.call("READLINK", call).await
    }

    /// A part of a file, and whether it is the last. It lies in memory of the channel's pool, where the server's RDMA
    /// Write has put it.
    ///
    /// # Errors
    /// As READ's; and when the server returns more than was asked for.
    pub async fn read(&self, file: &NfsFh3, offset: u64, count: u32) -> Result<(Bytes, bool), CopyError> {
        let args = Read3args { file: file.clone(), offset, count };
        let call = || async { Ok(self.rpc.nfsproc3_read(&args).await?.into_result()) };
        let ok = self.data_call("READ", call).await?;
        if ok.data.len() as u64 != u64::from(ok.count) || ok.count > count {
            let (len, said) = (ok.data.len(), ok.count);
            return Err(CopyError::Protocol(format!("READ of {count} octets returned {len}, and says {said}")));
        }
        Ok((ok.data, ok.eof))
    }

    /// Writes `data`, or a part of it. What is allocated in the channel's pool is read from there by the server.
    ///
    /// # Errors
    /// As WRITE's; and when the server says that it has written nothing, or more than there was.
    pub async fn write(
        &self,
        file: &NfsFh3,
        offset: u64,
        data: Bytes,
        stable: StableHow,
    ) -> Result<Write3resok, CopyError> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let args = Write3args { file: file.clone(), offset, count, stable, data };
        let call = || async { Ok(self.rpc.nfsproc3_write(&args).await?.into_result()) };
        let ok = self.data_call("WRITE", call).await?;
        if ok.count > count || (ok.count == 0 && count > 0) {
            return Err(CopyError::Protocol(format!("WRITE of {count} octets wrote {}", ok.count)));
        }
        Ok(ok)
    }

    /// Has all of a file written to the server's disk; says which of the UNSTABLE writes before are meant.
    ///
    /// # Errors
    /// As COMMIT's.
    pub async fn commit(&self, file: &NfsFh3) -> Result<Writeverf3, CopyError> {
        // RFC 1813 §3.3.21: a count of 0 is all from the offset on.
        let args = Commit3args { file: file.clone(), offset: 0, count: 0 };
        let call = || async { Ok(self.rpc.nfsproc3_commit(&args).await?.into_result().map(|ok| ok.verf)) };
        self.call("COMMIT", call).await
    }

    /// Makes a file, unless there is one; its mode is of the new one only.
    ///
    /// # Errors
    /// As CREATE's; and when there is something of that name which is no file.
    pub async fn create(&self, dir: &NfsFh3, name: &[u8], mode: u32) -> Result<Node, CopyError> {
        let how = Createhow3::Unchecked(attributes::mode(mode));
        let args = Create3args { r#where: entry(dir, name), how };
        let call =
            || async { Ok(self.rpc.nfsproc3_create(&args).await?.into_result().map(|ok| (ok.obj, ok.obj_attributes))) };
        let made = self.call("CREATE", call).await?;
        let node = self.made(dir, name, made).await?;
        // A server may take UNCHECKED by its word and return whatever has the name.
        match node.attributes.r#type {
            Ftype3::Reg => Ok(node),
            _ => Err(CopyError::Unfit("there is something of that name which is no regular file".into())),
        }
    }

    /// Makes a directory, unless there is one. Says whether it is new.
    ///
    /// # Errors
    /// As MKDIR's; and when there is something of that name which is no directory.
    pub async fn mkdir(&self, dir: &NfsFh3, name: &[u8], mode: u32) -> Result<(Node, bool), CopyError> {
        let args = Mkdir3args { r#where: entry(dir, name), attributes: attributes::mode(mode) };
        let call =
            || async { Ok(self.rpc.nfsproc3_mkdir(&args).await?.into_result().map(|ok| (ok.obj, ok.obj_attributes))) };
        match self.call("MKDIR", call).await {
            Ok(made) => Ok((self.made(dir, name, made).await?, true)),
            Err(error) if error.status() == Some(Nfsstat3::Exist) => {
                let node = self.lookup(dir, name).await?;
                if !node.is_dir() {
                    return Err(CopyError::Unfit("there is something of that name which is no directory".into()));
                }
                Ok((node, false))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As SYMLINK's.
    pub async fn symlink(&self, dir: &NfsFh3, name: &[u8], target: &[u8]) -> Result<(), CopyError> {
        let symlink = Symlinkdata3 {
            symlink_attributes: attributes::mode(attributes::PERMISSIONS),
            symlink_data: Nfspath3(Bytes::copy_from_slice(target).into()),
        };
        let args = Symlink3args { r#where: entry(dir, name), symlink };
        let call = || async {
            Ok(match self.rpc.nfsproc3_symlink(&args).await? {
                Symlink3res::Ok(_) => Ok(()),
                Symlink3res::Default(status, _) => Err(status),
            })
        };
        self.call("SYMLINK", call).await
    }

    /// Removes what is no directory, if it is there.
    ///
    /// # Errors
    /// As REMOVE's, NFS3ERR_NOENT excepted.
    pub async fn remove(&self, dir: &NfsFh3, name: &[u8]) -> Result<(), CopyError> {
        let args = Remove3args { object: entry(dir, name) };
        let call = || async {
            Ok(match self.rpc.nfsproc3_remove(&args).await? {
                Remove3res::Ok(_) | Remove3res::Default(Nfsstat3::Noent, _) => Ok(()),
                Remove3res::Default(status, _) => Err(status),
            })
        };
        self.call("REMOVE", call).await
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As SETATTR's.
    pub async fn setattr(&self, object: &NfsFh3, new: Sattr3) -> Result<(), CopyError> {
        let args = Setattr3args { object: object.clone(), new_attributes: new, guard: Sattrguard3::False };
        let call = || async {
            Ok(match self.rpc.nfsproc3_setattr(&args).await? {
                Setattr3res::Ok(_) => Ok(()),
                Setattr3res::Default(status, _) => Err(status),
            })
        };
        self.call("SETATTR", call).await
    }

    /// A page of a directory, and where the next one begins. READDIRPLUS, or READDIR where the server has none.
    ///
    /// # Errors
    /// As READDIRPLUS's; and for names that nothing can have, which would not be safe to use, and for a page that does
    /// not go on from the last, which might never end.
    pub async fn list(&self, dir: &NfsFh3, at: &Cookie) -> Result<(Vec<Entry>, Option<Cookie>), CopyError> {
        let (raw, verifier, eof) = match self.readdirplus(dir, at).await {
            Err(error) if error.status() == Some(Nfsstat3::Notsupp) => self.readdir(dir, at).await?,
            page => page?,
        };
        let next = match raw.last() {
            _ if eof => None,
            Some(last) if last.cookie != at.cookie => Some(Cookie { cookie: last.cookie, verifier }),
            _ => return Err(CopyError::Protocol("a page of a directory's listing goes nowhere".into())),
        };
        let mut entries = Vec::with_capacity(raw.len());
        for entry in raw {
            let name = entry.name.0.0;
            if matches!(&*name, b"." | b"..") {
                continue;
            }
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                let name = String::from_utf8_lossy(&name);
                return Err(CopyError::Protocol(format!("a directory has an entry named {name:?}")));
            }
            let node = match (entry.name_handle, entry.name_attributes) {
                (PostOpFh3::True(handle), PostOpAttr::True(attributes)) => Some(Node { handle, attributes }),
                _ => None,
            };
            entries.push(Entry { name, node });
        }
        Ok((entries, next))
    }

    async fn readdirplus(&self, dir: &NfsFh3, at: &Cookie) -> Result<(Vec<Entryplus3>, Cookieverf3, bool), CopyError> {
        let size = self.limits.list;
        let args = Readdirplus3args {
            dir: dir.clone(),
            cookie: at.cookie,
            cookieverf: at.verifier.clone(),
            dircount: size,
            maxcount: size,
        };
        let call = || async {
            Ok(self
                .rpc
                .nfsproc3_readdirplus(&args)
                .await?
                .into_result()
                .map(|ok| (ok.reply.entries, ok.cookieverf, ok.reply.eof)))
        };
        self.call("READDIRPLUS", call).await
    }

    async fn readdir(&self, dir: &NfsFh3, at: &Cookie) -> Result<(Vec<Entryplus3>, Cookieverf3, bool), CopyError> {
        let (cookie, cookieverf) = (at.cookie, at.verifier.clone());
        let args = Readdir3args { dir: dir.clone(), cookie, cookieverf, count: self.limits.list };
        let call = || async { Ok(self.rpc.nfsproc3_readdir(&args).await?.into_result()) };
        let ok = self.call("READDIR", call).await?;
        let entries = ok.reply.entries.into_iter().map(|entry| Entryplus3 {
            fileid: entry.fileid,
            name: entry.name,
            cookie: entry.cookie,
            name_attributes: PostOpAttr::False,
            name_handle: PostOpFh3::False,
        });
        Ok((entries.collect(), ok.cookieverf, ok.reply.eof))
    }
}

fn entry(dir: &NfsFh3, name: &[u8]) -> Diropargs3 {
    Diropargs3 { dir: dir.clone(), name: Filename3(Bytes::copy_from_slice(name).into()) }
}
