//! Copying of directory trees: scheduling of the work, and counting of the results.

use std::{
    fs::{self, File, FileTimes, Metadata, Permissions},
    io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, PermissionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rpcrdma_specs::nfs3::{Ftype3, NfsFh3, Nfsstat3};
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::{
    attributes::{self, PERMISSIONS, PreservedAttributes},
    client::{Cookie, Nfs, Node},
    error::CopyError,
    location::os_name,
    read::{download, local_digest, remote_digest},
    write::upload,
    written_files::{WrittenTargets, is_same},
};

/// The options of a copy between the local file system and an NFS server.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct CopyOptions {
    /// `true` to copy directories recursively.
    pub recursive: bool,
    /// `true` to preserve modes and times.
    pub preserve: bool,
    /// `true` to read source and copy again, and to compare their digests.
    pub verify: bool,
    /// The mode bits that new objects on the server do not get, unless `preserve` is `true`. For local files, the
    /// operating system itself applies the umask.
    pub umask: u32,
}

/// Receives notifications about the progress of a copy.
pub trait CopyObserver: Sync {
    /// Called when a file is about to be copied, with its size in bytes.
    fn found(&self, _path: &Path, _bytes: u64) {}
    /// Called when more data has been copied, with its size in bytes.
    fn moved(&self, _bytes: u64) {}
    /// Called when a copy has been verified.
    fn verified(&self, _path: &Path, _digest: &blake3::Hash) {}
    /// Called when an object is skipped because of its type.
    fn skipped(&self, _path: &Path, _why: &str) {}
    /// Called when an object could not be copied, or not completely. If the server becomes unreachable, only the first
    /// failure for this reason is reported.
    fn failed(&self, _path: &Path, _error: &CopyError) {}
}

/// The totals of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Number of files copied.
    pub files: u64,
    /// Number of directories, both new and existing.
    pub directories: u64,
    /// Number of symbolic links.
    pub symlinks: u64,
    /// Number of devices, pipes and sockets skipped.
    pub skipped: u64,
    /// Number of objects that could not be copied, or not completely.
    pub failed: u64,
    /// Number of bytes of file data copied.
    pub bytes: u64,
    /// Number of bytes sent again because the server had lost them.
    pub sent_again: u64,
}

impl Counts {
    /// Returns the sum of two totals.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            directories: self.directories + other.directories,
            symlinks: self.symlinks + other.symlinks,
            skipped: self.skipped + other.skipped,
            failed: self.failed + other.failed,
            bytes: self.bytes + other.bytes,
            sent_again: self.sent_again + other.sent_again,
        }
    }
}

/// A unit of work of a [`Copier`].
#[derive(Debug)]
pub enum Task {
    /// Copies a local object to the server. A directory adds tasks for its entries.
    Upload {
        /// The path of the local object.
        source: PathBuf,
        /// `true` to follow a symbolic link.
        follow: bool,
        /// The target directory on the server.
        dir: NfsFh3,
        /// The name in the target directory.
        name: Bytes,
    },
    /// Copies an object from the server to a local path. A directory adds tasks for its entries.
    Download {
        /// Directory on the server. Not used if `node` is `Some`.
        dir: NfsFh3,
        /// The name in that directory. Not used if `node` is `Some`.
        name: Bytes,
        /// The object, if it was already looked up.
        node: Option<Node>,
        /// Path on the server, for messages.
        shown: PathBuf,
        /// The local target path.
        target: PathBuf,
    },
    /// Copies the entries of a directory on the server, starting at a position in its listing.
    List {
        /// Directory on the server.
        dir: NfsFh3,
        /// The position in the listing.
        at: Cookie,
        /// Path on the server, for messages.
        shown: PathBuf,
        /// The local target directory.
        target: PathBuf,
    },
}

/// The attributes of a directory. They are set at the end of the copy, because new entries would change the times of
/// the directory, and may need permissions that its final mode does not grant.
#[derive(Debug)]
enum DeferredAttributes {
    Remote { path: PathBuf, handle: NfsFh3, lasting: PreservedAttributes },
    Local { path: PathBuf, lasting: PreservedAttributes },
}

/// Runs the tasks of a copy.
pub struct Copier<'a> {
    nfs: &'a Nfs,
    options: CopyOptions,
    watcher: &'a dyn CopyObserver,
    counts: Mutex<Counts>,
    deferred: Mutex<Vec<DeferredAttributes>>,
    /// `true` if the server has become unreachable. No more tasks are started then.
    is_unreachable: AtomicBool,
    written: WrittenTargets,
}

/// Maximum number of concurrent tasks.
const MAX_TASKS: usize = 64;
/// The reason for not copying a device, pipe or socket.
const SPECIAL: &str = "not a regular file, directory or symbolic link";
/// The reason for not copying a file that does not report its size. Its copy would be empty.
const UNSIZED: &str = "the file contains data but reports size 0, as files in /proc do; such files cannot be copied";

impl<'a> Copier<'a> {
    /// Creates a copier for one file system of the server.
    pub fn new(nfs: &'a Nfs, options: CopyOptions, watcher: &'a dyn CopyObserver) -> Self {
        Self {
            nfs,
            options,
            watcher,
            counts: Mutex::default(),
            deferred: Mutex::default(),
            is_unreachable: AtomicBool::new(false),
            written: WrittenTargets::default(),
        }
    }

    /// Runs `tasks` and the tasks that they add. Failures are counted and reported. A failure does not stop the other
    /// tasks, unless the server is unreachable.
    pub async fn run(&self, tasks: Vec<Task>) -> Counts {
        let mut todo = tasks;
        self.written.expect(todo.len());
        todo.reverse();
        let most = self.nfs.options().jobs.clamp(1, MAX_TASKS);
        let mut in_flight = FuturesUnordered::new();
        loop {
            while in_flight.len() < most
                && !self.is_unreachable.load(Ordering::Relaxed)
                && let Some(task) = todo.pop()
            {
                in_flight.push(self.perform(task));
            }
            // New tasks run first. The tree is copied depth-first, which keeps the queue short.
            match in_flight.next().await {
                Some(mut more) => {
                    more.reverse();
                    todo.append(&mut more);
                }
                None => break,
            }
        }
        let later = std::mem::take(&mut *lock(&self.deferred));
        for last in later.into_iter().rev() {
            self.finish(last).await;
        }
        *lock(&self.counts)
    }

    async fn perform(&self, task: Task) -> Vec<Task> {
        let path = match &task {
            Task::Upload { source, .. } => source.clone(),
            Task::Download { shown, .. } | Task::List { shown, .. } => shown.clone(),
        };
        let result = match task {
            Task::Upload { source, follow, dir, name } => self.upload(source, follow, dir, name).await,
            Task::Download { dir, name, node, shown, target } => self.download(&dir, &name, node, shown, target).await,
            Task::List { dir, at, shown, target } => self.list(dir, at, shown, target).await,
        };
        result.unwrap_or_else(|error| {
            self.failed(&path, &error);
            Vec::new()
        })
    }

    fn failed(&self, path: &Path, error: &CopyError) {
        self.count(|counts| counts.failed += 1);
        if error.is_fatal() && self.is_unreachable.swap(true, Ordering::Relaxed) {
            // Tasks in progress fail for the same reason, which has been reported.
            return;
        }
        self.watcher.failed(path, error);
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut lock(&self.counts));
    }

    fn moved(&self, bytes: u64) {
        self.count(|counts| counts.bytes += bytes);
        self.watcher.moved(bytes);
    }

    fn skip(&self, path: &Path, why: &str) -> Vec<Task> {
        self.count(|counts| counts.skipped += 1);
        self.watcher.skipped(path, why);
        Vec::new()
    }

    fn check_recursive(&self) -> Result<(), CopyError> {
        if self.options.recursive {
            return Ok(());
        }
        Err(CopyError::InvalidTarget("is a directory; use -r to copy directories".into()))
    }

    // ---- upload ----

    async fn upload(&self, source: PathBuf, follow: bool, dir: NfsFh3, name: Bytes) -> Result<Vec<Task>, CopyError> {
        let path = source.clone();
        let meta = blocking(move || if follow { fs::metadata(path) } else { fs::symlink_metadata(path) }).await?;
        let kind = meta.file_type();
        if kind.is_dir() {
            return self.upload_dir(source, &meta, &dir, &name).await;
        }
        if kind.is_symlink() {
            self.upload_symlink(source, &meta, &dir, &name).await?;
            self.count(|counts| counts.symlinks += 1);
        } else if kind.is_file() {
            self.upload_file(source, &dir, &name).await?;
            self.count(|counts| counts.files += 1);
        } else if follow {
            // The user named it explicitly.
            return Err(CopyError::InvalidTarget(SPECIAL.into()));
        } else {
            return Ok(self.skip(&source, SPECIAL));
        }
        Ok(Vec::new())
    }

    async fn upload_dir(
        &self,
        source: PathBuf,
        meta: &Metadata,
        dir: &NfsFh3,
        name: &[u8],
    ) -> Result<Vec<Task>, CopyError> {
        self.check_recursive()?;
        self.written.check_source_here(self.nfs, &source, meta.ino()).await?;
        let path = source.clone();
        let names = blocking(move || {
            let names: io::Result<Vec<_>> = fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect();
            let mut names = names?;
            names.sort_unstable();
            Ok(names)
        });
        let names = names.await?;
        let wanted = meta.mode() & PERMISSIONS & !self.options.umask;
        // The owner needs full access until all entries are created.
        let (node, new) = self.nfs.mkdir(dir, name, wanted | 0o700).await?;
        self.written.directory_there(node.attributes.fileid, &node.handle);
        let lasting = PreservedAttributes::from(meta);
        if self.options.preserve || (new && wanted | 0o700 != wanted) {
            let mode = if self.options.preserve { lasting.mode } else { wanted };
            let lasting = PreservedAttributes { mode, ..lasting };
            lock(&self.deferred).push(DeferredAttributes::Remote {
                path: source.clone(),
                handle: node.handle.clone(),
                lasting,
            });
        }
        self.count(|counts| counts.directories += 1);
        let tasks = names.into_iter().map(|name| Task::Upload {
            source: source.join(&name),
            follow: false,
            dir: node.handle.clone(),
            name: Bytes::copy_from_slice(name.as_bytes()),
        });
        Ok(tasks.collect())
    }

    async fn upload_symlink(
        &self,
        source: PathBuf,
        meta: &Metadata,
        dir: &NfsFh3,
        name: &[u8],
    ) -> Result<(), CopyError> {
        let target = blocking(move || fs::read_link(source)).await?;
        let target = target.as_os_str().as_bytes();
        match self.nfs.symlink(dir, name, target).await {
            Err(error) if error.status() == Some(Nfsstat3::Exist) => {
                let there = self.nfs.lookup(dir, name).await?;
                if there.is_dir() {
                    return Err(CopyError::InvalidTarget("the target exists and is a directory".into()));
                }
                let is_link = there.attributes.r#type == Ftype3::Lnk;
                if !is_link || self.nfs.readlink(&there.handle).await? != target {
                    self.nfs.remove(dir, name).await?;
                    self.nfs.symlink(dir, name, target).await?;
                }
            }
            made => made?,
        }
        if self.options.preserve {
            let link = self.nfs.lookup(dir, name).await?;
            self.nfs.setattr(&link.handle, PreservedAttributes::from(meta).to_wire(false)).await?;
        }
        Ok(())
    }

    async fn upload_file(&self, source: PathBuf, dir: &NfsFh3, name: &[u8]) -> Result<(), CopyError> {
        let path = source.clone();
        let (file, meta) = blocking(move || {
            let file = File::open(path)?;
            let meta = file.metadata()?;
            if meta.len() == 0 && file.read_at(&mut [0], 0)? > 0 && file.metadata()?.len() == 0 {
                return Err(io::Error::other(UNSIZED));
            }
            Ok((Arc::new(file), meta))
        })
        .await?;
        let size = meta.len();
        self.watcher.found(&source, size);
        let mode = meta.mode() & PERMISSIONS & !self.options.umask;
        let node = self.nfs.create(dir, name, mode).await?;
        if is_same(&meta, &node.attributes) {
            return Err(CopyError::InvalidTarget("source and target are the same file".into()));
        }
        self.written.file(&node.handle.data)?;
        if node.attributes.size > 0 {
            self.nfs.setattr(&node.handle, attributes::size(0)).await?;
        }
        let again = upload(self.nfs, &file, size, &node.handle, |bytes| self.moved(bytes)).await?;
        self.count(|counts| counts.sent_again += again);
        if self.options.verify {
            let node = self.nfs.getattr(node.handle.clone()).await?;
            self.compare(&source, &file, size, &node, true).await?;
        }
        if self.options.preserve {
            let copy = (node.attributes.uid, node.attributes.gid);
            let lasting = PreservedAttributes::from(&meta).for_copy(copy, (meta.uid(), meta.gid()));
            self.nfs.setattr(&node.handle, lasting.to_wire(true)).await?;
        }
        Ok(())
    }

    /// Reads source and copy again, and compares their digests.
    async fn compare(
        &self,
        path: &Path,
        file: &Arc<File>,
        size: u64,
        node: &Node,
        local_is_source: bool,
    ) -> Result<(), CopyError> {
        let (local, remote) = (local_digest(self.nfs.pool(), file, size), remote_digest(self.nfs, node));
        let (local, remote) = tokio::join!(local, remote);
        let (local, remote) = (local?, remote?);
        if local != remote {
            let (source_digest, copy) = if local_is_source { (local, remote) } else { (remote, local) };
            return Err(CopyError::Differs { source_digest, copy });
        }
        self.watcher.verified(path, &local);
        Ok(())
    }

    // ---- download ----

    async fn download(
        &self,
        dir: &NfsFh3,
        name: &[u8],
        node: Option<Node>,
        shown: PathBuf,
        target: PathBuf,
    ) -> Result<Vec<Task>, CopyError> {
        let node = match node {
            Some(node) => node,
            None => self.nfs.lookup(dir, name).await?,
        };
        match node.attributes.r#type {
            Ftype3::Dir => return self.download_dir(node, shown, target).await,
            Ftype3::Lnk => {
                self.download_symlink(&node, target).await?;
                self.count(|counts| counts.symlinks += 1);
            }
            Ftype3::Reg => {
                self.written.file(target.as_os_str().as_bytes())?;
                self.download_file(&node, &shown, target).await?;
                self.count(|counts| counts.files += 1);
            }
            _ => return Ok(self.skip(&shown, SPECIAL)),
        }
        Ok(Vec::new())
    }

    async fn download_dir(&self, node: Node, shown: PathBuf, target: PathBuf) -> Result<Vec<Task>, CopyError> {
        self.check_recursive()?;
        self.written.check_source_there(self.nfs, &node).await?;
        let (path, mode) = (target.clone(), node.attributes.mode & PERMISSIONS);
        let lasting = blocking(move || {
            let new = match fs::DirBuilder::new().mode(mode | 0o700).create(&path) {
                Ok(()) => true,
                // Do not follow a symbolic link: only its owner decides where it leads, not the server.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    if !fs::symlink_metadata(&path)?.is_dir() {
                        return Err(io::Error::other(format!("{} exists and is not a directory", path.display())));
                    }
                    false
                }
                Err(error) => return Err(error),
            };
            let meta = fs::metadata(&path)?;
            let made = PreservedAttributes::from(&meta);
            // The owner needs full access until all entries are created.
            let wanted = PreservedAttributes { mode: made.mode & !(0o700 & !mode), ..made };
            Ok(((new && wanted.mode != made.mode).then_some(wanted), meta.ino()))
        });
        let (mut lasting, number) = lasting.await?;
        self.written.directory_here(number, &target);
        if self.options.preserve {
            lasting = Some(PreservedAttributes::from(&node.attributes));
        }
        if let Some(lasting) = lasting {
            lock(&self.deferred).push(DeferredAttributes::Local { path: target.clone(), lasting });
        }
        self.count(|counts| counts.directories += 1);
        Ok(vec![Task::List { dir: node.handle, at: Cookie::default(), shown, target }])
    }

    async fn list(&self, dir: NfsFh3, at: Cookie, shown: PathBuf, target: PathBuf) -> Result<Vec<Task>, CopyError> {
        let (entries, next) = self.nfs.list(&dir, &at).await?;
        let task = |entry: super::client::DirEntry| Task::Download {
            dir: dir.clone(),
            node: entry.node,
            shown: shown.join(os_name(&entry.name)),
            target: target.join(os_name(&entry.name)),
            name: entry.name,
        };
        let mut tasks: Vec<_> = entries.into_iter().map(task).collect();
        tasks.extend(next.map(|at| Task::List { dir: dir.clone(), at, shown: shown.clone(), target: target.clone() }));
        Ok(tasks)
    }

    async fn download_symlink(&self, node: &Node, target: PathBuf) -> Result<(), CopyError> {
        let text = self.nfs.readlink(&node.handle).await?;
        let preserve = self.options.preserve.then(|| PreservedAttributes::from(&node.attributes));
        let link = blocking(move || {
            let make = || std::os::unix::fs::symlink(os_name(&text), &target);
            match make() {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    // Fails for a directory.
                    fs::remove_file(&target)?;
                    make()?;
                }
                made => made?,
            }
            if let Some(lasting) = preserve {
                set_link_times(&target, &lasting)?;
            }
            Ok(())
        });
        Ok(link.await?)
    }

    /// Downloads a file to a temporary file, and renames that to its target when it is complete.
    async fn download_file(&self, node: &Node, shown: &Path, target: PathBuf) -> Result<(), CopyError> {
        let attributes = &node.attributes;
        self.watcher.found(shown, attributes.size);
        let (path, mode) = (target.clone(), attributes.mode & PERMISSIONS);
        let (file, partial) = blocking(move || {
            if let Ok(there) = fs::symlink_metadata(&path)
                && !there.is_file()
                && !there.is_symlink()
            {
                return Err(io::Error::other(format!("{} exists and is not a regular file", path.display())));
            }
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // The owner needs write access. The system applies the umask.
            let partial = tempfile::Builder::new()
                .prefix(".nfscp-")
                .permissions(Permissions::from_mode(mode | 0o600))
                .tempfile_in(parent)?;
            Ok(partial.into_parts())
        })
        .await?;
        let file = Arc::new(file);
        download(self.nfs, node, &file, |bytes| self.moved(bytes)).await?;
        if self.options.verify {
            self.compare(shown, &file, attributes.size, node, false).await?;
        }
        let lasting = self.options.preserve.then(|| PreservedAttributes::from(attributes));
        let owner = (attributes.uid, attributes.gid);
        let keep = blocking(move || {
            match lasting {
                Some(lasting) => {
                    let meta = file.metadata()?;
                    set_lasting(&file, &lasting.for_copy((meta.uid(), meta.gid()), owner))?;
                }
                None if mode | 0o600 != mode => {
                    let made = file.metadata()?.mode();
                    file.set_permissions(Permissions::from_mode(made & !(0o600 & !mode)))?;
                }
                None => {}
            }
            Ok(partial.persist(target)?)
        });
        Ok(keep.await?)
    }

    // ---- completion ----

    async fn finish(&self, last: DeferredAttributes) {
        if self.is_unreachable.load(Ordering::Relaxed) {
            return;
        }
        let (path, result) = match last {
            DeferredAttributes::Remote { path, handle, lasting } => {
                let attributes =
                    if self.options.preserve { lasting.to_wire(true) } else { attributes::mode(lasting.mode) };
                (path, self.nfs.setattr(&handle, attributes).await)
            }
            DeferredAttributes::Local { path, lasting } => {
                let (at, preserve) = (path.clone(), self.options.preserve);
                let set = blocking(move || {
                    let dir = File::open(&at)?;
                    if preserve {
                        set_lasting(&dir, &lasting)
                    } else {
                        dir.set_permissions(Permissions::from_mode(lasting.mode))
                    }
                });
                (path, set.await.map_err(CopyError::from))
            }
        };
        if let Err(error) = result {
            self.failed(&path, &error);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking file operations on tokio's blocking threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)?
}

fn set_lasting(file: &File, lasting: &PreservedAttributes) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(lasting.mode))?;
    file.set_times(FileTimes::new().set_accessed(lasting.accessed).set_modified(lasting.modified))
}

fn set_link_times(link: &Path, lasting: &PreservedAttributes) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
    let time = |time: std::time::SystemTime| {
        let since = time.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
        Timespec { tv_sec: since.as_secs() as i64, tv_nsec: since.subsec_nanos().into() }
    };
    let times = Timestamps { last_access: time(lasting.accessed), last_modification: time(lasting.modified) };
    Ok(utimensat(CWD, link, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// An observer that ignores all notifications.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl CopyObserver for NoObserver {}
