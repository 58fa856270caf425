//! NFS version 3 procedures as async methods that return errors for failed statuses, and retry where that may help.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::{
    client::{CallError, CallOptions, Channel, ChannelPool, Reconnect},
    config::ConnectionConfig,
    memory::BufferPool,
    transport::Transport,
};
use rpcrdma_specs::nfs3::{
    Commit3args, Cookieverf3, Create3args, Createhow3, Diropargs3, Entryplus3, Fattr3, Filename3, Fsinfo3args,
    Fsinfo3resok, Ftype3, Getattr3args, Lookup3args, Mkdir3args, NfsFh3, Nfspath3, Nfsstat3, PostOpAttr, PostOpFh3,
    Read3args, Readdir3args, Readdirplus3args, Readlink3args, Remove3args, Remove3res, Sattr3, Sattrguard3,
    Setattr3args, Setattr3res, StableHow, Symlink3args, Symlink3res, Symlinkdata3, Write3args, Write3resok, Writeverf3,
    nfs_v3::{self, NfsV3Client},
};
use tokio::sync::Semaphore;

pub use super::options::Options;
use super::{attributes, error::CopyError, options::TCP_CHUNK, retry::retry, window::Window};

/// A file system object and its attributes.
#[derive(Debug, Clone)]
pub struct Node {
    /// The file handle of the object.
    pub handle: NfsFh3,
    /// The attributes of the object, as the server returned them with the handle or in a later call. They may have
    /// changed since.
    pub attributes: Fattr3,
}

impl Node {
    /// Returns `true` if the object is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.attributes.r#type == Ftype3::Dir
    }
}

/// A position in a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cookie {
    cookie: u64,
    verifier: Cookieverf3,
}

impl Default for Cookie {
    /// Returns the start of a listing: cookie and verifier are zero (RFC 1813 §3.3.16).
    fn default() -> Self {
        Self { cookie: 0, verifier: Cookieverf3([0; 8]) }
    }
}

/// A directory entry other than `.` and `..`.
#[derive(Debug, Clone)]
pub struct DirEntry {
    /// Name of the entry. It is not empty and contains neither `/` nor NUL.
    pub name: Bytes,
    /// Handle and attributes, if the server returned both.
    pub node: Option<Node>,
}

/// An NFS version 3 client, connected to one server.
#[derive(Debug, Clone)]
pub struct Nfs {
    rpc: NfsV3Client<ChannelPool>,
    options: Options,
    limits: ServerLimits,
    window: Arc<Window>,
    /// The semaphore that limits the data of the READs and WRITEs in flight.
    in_flight: Arc<Semaphore>,
    /// The semaphore that limits the data in memory, which includes data that waits for its turn.
    memory: Arc<Semaphore>,
    /// `true` while calls are being retried. The warning is logged only when this becomes `true`.
    is_retrying: Arc<AtomicBool>,
}

/// The limits for calls to a file system, in bytes, from FSINFO and the client's options. They are 0 before FSINFO.
#[derive(Debug, Clone, Copy, Default)]
struct ServerLimits {
    read: u32,
    write: u32,
    list: u32,
    largest: u64,
}

/// Maximum number of retries of the first call. Each attempt has the time limit `FIRST_CALL_TIMEOUT`. Linux's soft
/// iWARP may process the first message of a connection only when a second one arrives.
const FIRST_CALLS: u32 = 5;
const FIRST_CALL_TIMEOUT: Duration = Duration::from_secs(2);

impl Nfs {
    /// Connects to the transport URL `url` and calls NULL, whose reply carries the server's credits.
    ///
    /// # Errors
    /// Fails if the server does not respond or does not offer NFS version 3.
    pub async fn connect(url: &str, mut options: Options) -> Result<Self, CopyError> {
        // A server may be silent for long while a slow disk blocks all its threads. Linux's client waits for a minute.
        let connection = ConnectionConfig::new().keepalive_timeout(options.call_timeout);
        let connecting = Channel::builder()
            .connection(connection)
            .credits(u32::try_from(options.jobs).unwrap_or(u32::MAX).max(8))
            .connect_timeout(options.connect_timeout)
            .call_timeout(options.call_timeout)
            .reconnect(Reconnect::OnDemand {
                min_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(2),
                // `persist` retries calls. It distinguishes failures of a call from those of the connection.
                retries: 0,
            })
            .credential(options.credential.clone());
        let connecting = options.tls.apply(connecting);
        let connecting = match &options.kerberos {
            Some(kerberos) => kerberos.secure(connecting),
            None => connecting,
        };
        let channels = connecting.connect_pool(std::iter::repeat_n(url, options.connections.max(1))).await?;
        let mut calls = 0;
        loop {
            let options = CallOptions::new().timeout(FIRST_CALL_TIMEOUT);
            match channels.first().call_null(nfs_v3::PROGRAM, nfs_v3::VERSION, options).await {
                Ok(()) => break,
                Err(error)
                    if calls < FIRST_CALLS && !error.is_connection_loss() && super::retry::is_temporary(&error) =>
                {
                    calls += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if channels.first().info().transport == Transport::Tcp {
            options.chunk.get_or_insert(TCP_CHUNK);
        }
        let in_flight = options.data_in_flight() as usize;
        // Buffers for twice the data that is in flight keep the disk busy in the meantime.
        let memory = Semaphore::new(2 * in_flight);
        let window = Window::default();
        Ok(Self {
            rpc: NfsV3Client::new(channels),
            options,
            limits: ServerLimits::default(),
            window: Arc::new(window),
            in_flight: Arc::new(Semaphore::new(in_flight)),
            memory: Arc::new(memory),
            is_retrying: Arc::default(),
        })
    }

    /// Returns a client with the limits of the file system of `root` (FSINFO).
    ///
    /// # Errors
    /// Returns errors of FSINFO.
    pub async fn for_file_system(&self, root: &NfsFh3) -> Result<Self, CopyError> {
        let info = self.fsinfo(root).await?;
        // If the server gives no limit, use the NFS version 2 transfer size.
        let size = |max: u32, limit: u32| if max == 0 { 8192 } else { max }.min(limit).max(1);
        let limits = ServerLimits {
            read: size(info.rtmax, self.options.chunk()),
            write: size(info.wtmax, self.options.chunk()),
            list: info.dtpref.clamp(8 << 10, 64 << 10),
            largest: if info.maxfilesize == 0 { u64::MAX } else { info.maxfilesize },
        };
        Ok(Self { limits, ..self.clone() })
    }

    /// Returns the pool of connections to the server.
    #[must_use]
    pub fn channels(&self) -> &ChannelPool {
        self.rpc.channel()
    }

    /// Returns the client's options.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the maximum number of bytes in a READ. It is 0 unless [`for_file_system`](Self::for_file_system) created
    /// the client.
    #[must_use]
    pub fn read_size(&self) -> u32 {
        self.limits.read
    }

    /// Returns the maximum number of bytes in a WRITE. It is 0 unless [`for_file_system`](Self::for_file_system)
    /// created the client.
    #[must_use]
    pub fn write_size(&self) -> u32 {
        self.limits.write
    }

    /// Returns the server's maximum file size, in bytes. It is 0 unless [`for_file_system`](Self::for_file_system)
    /// created the client.
    #[must_use]
    pub fn largest_file(&self) -> u64 {
        self.limits.largest
    }

    /// Returns the largest number of READs and WRITEs that were in flight at the same time.
    #[must_use]
    pub fn max_in_flight(&self) -> usize {
        self.window.most()
    }

    /// Returns the semaphore that limits the data in memory. [`Options::permits`] returns the number of permits for
    /// data of a given length.
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
        retry(procedure, self.options.retry_for, &self.is_retrying, call).await
    }

    /// Makes a call that carries `len` bytes of data. First waits until the limits of data and calls in flight admit
    /// it.
    async fn data_call<T, F>(&self, procedure: &'static str, len: u32, call: impl FnMut() -> F) -> Result<T, CopyError>
    where
        F: Future<Output = Result<Result<T, Nfsstat3>, CallError>>,
    {
        let _data = self.in_flight.acquire_many(self.options.permits(len)).await.map_err(io::Error::other)?;
        let credits = || self.channels().counters().credits_granted as usize;
        let _place = self.window.enter(|| self.options.jobs.min(credits())).await;
        self.call(procedure, call).await
    }

    async fn fsinfo(&self, root: &NfsFh3) -> Result<Fsinfo3resok, CopyError> {
        let args = Fsinfo3args { fsroot: root.clone() };
        let call = || async { Ok(self.rpc.nfsproc3_fsinfo(&args).await?.into_result()) };
        self.call("FSINFO", call).await
    }

    /// Returns the object of a handle, with its attributes.
    ///
    /// # Errors
    /// Returns errors of GETATTR.
    pub async fn getattr(&self, handle: NfsFh3) -> Result<Node, CopyError> {
        let args = Getattr3args { object: handle };
        let call = || async { Ok(self.rpc.nfsproc3_getattr(&args).await?.into_result().map(|ok| ok.obj_attributes)) };
        let attributes = self.call("GETATTR", call).await?;
        Ok(Node { handle: args.object, attributes })
    }

    /// Looks up `name` in `dir`.
    ///
    /// # Errors
    /// Returns errors of LOOKUP, and of GETATTR, which is called if the reply has no attributes.
    pub async fn lookup(&self, dir: &NfsFh3, name: &[u8]) -> Result<Node, CopyError> {
        let args = Lookup3args { what: entry(dir, name) };
        let call = || async {
            Ok(self.rpc.nfsproc3_lookup(&args).await?.into_result().map(|ok| (ok.object, ok.obj_attributes)))
        };
        let (handle, attributes) = self.call("LOOKUP", call).await?;
        self.node(handle, attributes).await
    }

    /// Looks up `name` in `dir`. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// Returns errors of [`lookup`](Self::lookup) except NFS3ERR_NOENT.
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

    /// Returns an object that was just created. The server may omit its handle, which is then looked up.
    async fn created_node(
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

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns errors of READLINK.
    pub async fn readlink(&self, link: &NfsFh3) -> Result<Bytes, CopyError> {
        let args = Readlink3args { symlink: link.clone() };
        let call = || async { Ok(self.rpc.nfsproc3_readlink(&args).await?.into_result().map(|ok| ok.data.0.0)) };
        self.call("READLINK", call).await
    }

    /// Reads at most `count` bytes of a file. Returns the data, and `true` if the data reaches the end of the file.
    /// Data that the server places by RDMA Write is returned in the buffer of the channel's pool in which it was
    /// placed.
    ///
    /// # Errors
    /// Returns errors of READ. Returns [`CopyError::Protocol`] if the server returns more than requested, or if the
    /// count in the reply is not the length of the data.
    pub async fn read(&self, file: &NfsFh3, offset: u64, count: u32) -> Result<(Bytes, bool), CopyError> {
        let args = Read3args { file: file.clone(), offset, count };
        let call = || async { Ok(self.rpc.nfsproc3_read(&args).await?.into_result()) };
        let ok = self.data_call("READ", count, call).await?;
        if ok.data.len() as u64 != u64::from(ok.count) || ok.count > count {
            let (len, said) = (ok.data.len(), ok.count);
            return Err(CopyError::Protocol(format!(
                "READ of {count} bytes returned {len} bytes with a count of {said}"
            )));
        }
        Ok((ok.data, ok.eof))
    }

    /// Writes `data`, or a part of it. If `data` is in a buffer of the channel's pool, a server that fetches it by RDMA
    /// Read reads from this buffer.
    ///
    /// # Errors
    /// Returns errors of WRITE. Returns [`CopyError::Protocol`] if the server reports that it wrote nothing, or more
    /// than requested.
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
        let ok = self.data_call("WRITE", count, call).await?;
        if ok.count > count || (ok.count == 0 && count > 0) {
            return Err(CopyError::Protocol(format!("WRITE of {count} bytes wrote {}", ok.count)));
        }
        Ok(ok)
    }

    /// Commits all data of a file to the server's disk. Returns the write verifier, which shows if earlier UNSTABLE
    /// writes were lost.
    ///
    /// # Errors
    /// Returns errors of COMMIT.
    pub async fn commit(&self, file: &NfsFh3) -> Result<Writeverf3, CopyError> {
        // A count of 0 commits everything from the offset on (RFC 1813 §3.3.21).
        let args = Commit3args { file: file.clone(), offset: 0, count: 0 };
        let call = || async { Ok(self.rpc.nfsproc3_commit(&args).await?.into_result().map(|ok| ok.verf)) };
        self.call("COMMIT", call).await
    }

    /// Creates a file, or returns the existing one. `mode` applies only to a new file.
    ///
    /// # Errors
    /// Returns errors of CREATE, and of LOOKUP and GETATTR, which are called if the reply has no handle or no
    /// attributes. Fails if the name exists and is not a regular file.
    pub async fn create(&self, dir: &NfsFh3, name: &[u8], mode: u32) -> Result<Node, CopyError> {
        let how = Createhow3::Unchecked(attributes::mode(mode));
        let args = Create3args { r#where: entry(dir, name), how };
        let call =
            || async { Ok(self.rpc.nfsproc3_create(&args).await?.into_result().map(|ok| (ok.obj, ok.obj_attributes))) };
        let made = self.call("CREATE", call).await?;
        let node = self.created_node(dir, name, made).await?;
        // For UNCHECKED, a server may return an existing object of any type.
        match node.attributes.r#type {
            Ftype3::Reg => Ok(node),
            _ => Err(CopyError::InvalidTarget("the target exists and is not a regular file".into())),
        }
    }

    /// Creates a directory unless it exists. Returns the directory, and `true` if it is new.
    ///
    /// # Errors
    /// Returns errors of MKDIR, LOOKUP and GETATTR. Fails if the name exists and is not a directory.
    pub async fn mkdir(&self, dir: &NfsFh3, name: &[u8], mode: u32) -> Result<(Node, bool), CopyError> {
        let args = Mkdir3args { r#where: entry(dir, name), attributes: attributes::mode(mode) };
        let call =
            || async { Ok(self.rpc.nfsproc3_mkdir(&args).await?.into_result().map(|ok| (ok.obj, ok.obj_attributes))) };
        match self.call("MKDIR", call).await {
            Ok(made) => Ok((self.created_node(dir, name, made).await?, true)),
            Err(error) if error.status() == Some(Nfsstat3::Exist) => {
                let node = self.lookup(dir, name).await?;
                if !node.is_dir() {
                    return Err(CopyError::InvalidTarget("the target exists and is not a directory".into()));
                }
                Ok((node, false))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// Returns errors of SYMLINK.
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

    /// Removes an object other than a directory, if it exists.
    ///
    /// # Errors
    /// Returns errors of REMOVE except NFS3ERR_NOENT.
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

    /// Sets the attributes of an object.
    ///
    /// # Errors
    /// Returns errors of SETATTR.
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

    /// Returns a page of a directory, and the position of the next page, or `None` if this page is the last one. Uses
    /// READDIRPLUS, or READDIR if the server does not support READDIRPLUS.
    ///
    /// # Errors
    /// Returns errors of READDIRPLUS and READDIR. Returns [`CopyError::Protocol`] for names that are unsafe to use, and
    /// for a page that makes no progress, because the listing might never end.
    pub async fn list(&self, dir: &NfsFh3, at: &Cookie) -> Result<(Vec<DirEntry>, Option<Cookie>), CopyError> {
        let (raw, verifier, eof) = match self.readdirplus(dir, at).await {
            Err(error) if error.status() == Some(Nfsstat3::Notsupp) => self.readdir(dir, at).await?,
            page => page?,
        };
        let next = match raw.last() {
            _ if eof => None,
            Some(last) if last.cookie != at.cookie => Some(Cookie { cookie: last.cookie, verifier }),
            _ => return Err(CopyError::Protocol("a directory listing makes no progress".into())),
        };
        let mut entries = Vec::with_capacity(raw.len());
        for entry in raw {
            let name = entry.name.0.0;
            if matches!(&*name, b"." | b"..") {
                continue;
            }
            if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
                let name = String::from_utf8_lossy(&name);
                return Err(CopyError::Protocol(format!("a directory contains the invalid name {name:?}")));
            }
            let node = match (entry.name_handle, entry.name_attributes) {
                (PostOpFh3::True(handle), PostOpAttr::True(attributes)) => Some(Node { handle, attributes }),
                _ => None,
            };
            entries.push(DirEntry { name, node });
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
