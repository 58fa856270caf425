//! Blobs in a directory: whole or not there, and on the disk once a call says so.
//!
//! ```text
//! ROOT/lock            held while a store is open, so that two never share a directory
//! ROOT/uploads/ID      being written; all removed when the store is opened
//! ROOT/blobs/DIGEST    a blob; DIGEST is that of its name, so a name of any characters is a safe file name
//! ```
//!
//! A blob is written to `uploads`, synced, renamed into `blobs`, and the directory synced. A process or a machine
//! that dies at any point leaves the old content, the new content, or an upload that the next start removes.
//!
//! All of it blocks. The service calls it on tokio's blocking threads.

mod file;
mod record;
mod upload;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, TryLockError},
    io,
    num::NonZeroUsize,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use lru::LruCache;
use tokio::sync::broadcast;

use self::{
    file::{read_full_at, sync_dir, write_all_at},
    record::RECORD_LEN,
    upload::Upload,
};
use super::Name;

/// BLAKE3 of a blob's data.
pub type Digest = [u8; 32];

/// The number of an upload.
pub type UploadId = u64;

/// Octets read at a time while a digest is taken.
const HASH_STEP: usize = 1 << 20;

/// What a store allows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Largest blob, in octets. Default 1 TiB.
    pub max_blob: u64,
    /// Longest attachment, in octets. Default 1 MiB, the protocol's limit.
    pub max_attachment: usize,
    /// Most uploads under way. Default 64.
    pub max_uploads: usize,
    /// An upload that nobody wrote to for so long gives way to a new one. Default 10 minutes.
    pub upload_idle: Duration,
    /// Blobs whose files are kept open. Default 128.
    pub open_files: NonZeroUsize,
    /// Changes that are kept for those who are told of them. Default 1024.
    pub changes_kept: NonZeroUsize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            max_blob: 1 << 40,
            max_attachment: super::protocol::BLOB_ATTACHMENT_MAX as usize,
            max_uploads: 64,
            upload_idle: Duration::from_secs(600),
            open_files: const { NonZeroUsize::new(128).unwrap() },
            changes_kept: const { NonZeroUsize::new(1024).unwrap() },
        }
    }
}

impl StoreOptions {
    /// With this as the size of the largest blob, in octets.
    #[must_use]
    pub fn with_max_blob(mut self, octets: u64) -> Self {
        self.max_blob = octets;
        self
    }

    /// With so many changes kept for those who are told of them.
    #[must_use]
    pub fn with_changes_kept(mut self, changes: NonZeroUsize) -> Self {
        self.changes_kept = changes;
        self
    }
}

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No blob of that name.
    #[error("no such blob")]
    NoSuchBlob,
    /// No upload of that number.
    #[error("no such upload: it was never begun, is over, or was idle for too long")]
    NoSuchUpload,
    /// The data is not what the digest says.
    #[error("the data does not have the digest that was named")]
    BadDigest,
    /// A write beyond the size that was announced.
    #[error("{len} octets at {offset} end beyond the announced size of {size}")]
    BadRange {
        /// First octet.
        offset: u64,
        /// Octets.
        len: usize,
        /// Announced size.
        size: u64,
    },
    /// Larger than allowed.
    #[error("larger than this store takes ({limit} octets)")]
    TooLarge {
        /// What is allowed.
        limit: u64,
    },
    /// Too many uploads.
    #[error("as many uploads as this store allows are under way")]
    Busy,
    /// Another process has the directory.
    #[error("{} is in use by another blobstore", .0.display())]
    InUse(PathBuf),
    /// The file system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is known about a blob: `blob_stat` of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Octets of data.
    pub size: u64,
    /// Octets of the attachment.
    pub attachment_len: u32,
    /// When it was stored, in nanoseconds since 1970; different for each blob stored.
    pub modified: u64,
    /// Digest of the data.
    pub digest: Digest,
}

impl Stat {
    /// Length of the file; `None` where that is more than a file can have.
    fn file_len(&self) -> Option<u64> {
        self.size.checked_add(u64::from(self.attachment_len))?.checked_add(RECORD_LEN as u64)
    }
}

/// A blob's content, which stays readable when the blob is replaced or deleted.
#[derive(Debug)]
pub struct Blob {
    file: File,
    stat: Stat,
}

impl Blob {
    /// What is known about it.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Reads data into `buf` and says how many octets: fewer than it holds only at the end.
    ///
    /// # Errors
    /// The file system's.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_range(buf, offset.min(self.stat.size), self.stat.size)
    }

    /// Reads the beginning of the attachment into `buf` and says how many octets.
    ///
    /// # Errors
    /// The file system's.
    pub fn read_attachment(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_range(buf, self.stat.size, self.stat.size.saturating_add(u64::from(self.stat.attachment_len)))
    }

    fn read_range(&self, buf: &mut [u8], from: u64, to: u64) -> io::Result<usize> {
        let len = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).min(buf.len());
        let read = read_full_at(&self.file, &mut buf[..len], from)?;
        if read < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
    }
}

/// A change to a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which blob.
    pub name: Name,
    /// What is known about it now; `None` when it has been deleted.
    pub stat: Option<Stat>,
}

/// A page of names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Blobs in the order of their names.
    pub entries: Vec<(Name, Stat)>,
    /// Whether there are no more.
    pub end: bool,
}

/// What is in `blobs`. Changed together with the directory, under one lock.
struct Catalog {
    index: BTreeMap<Name, Stat>,
    open: LruCache<Name, Arc<Blob>>,
}

/// A directory of blobs.
pub struct Store {
    blobs: PathBuf,
    uploads: PathBuf,
    options: StoreOptions,
    catalog: Mutex<Catalog>,
    under_way: Mutex<HashMap<UploadId, Arc<Upload>>>,
    last_modified: AtomicU64,
    /// Sent to while the catalog is locked, so they are in the order in which they happened.
    changes: broadcast::Sender<Change>,
    _lock: File,
}

impl Store {
    /// Opens the store in `root`, which is created if need be, and removes uploads that an earlier run left.
    ///
    /// A file in `blobs` that is not a whole blob is left alone and reported in the log.
    ///
    /// # Errors
    /// The file system's, and [`StoreError::InUse`].
    pub fn open(root: &Path, options: StoreOptions) -> Result<Self, StoreError> {
        let (blobs, uploads) = (root.join("blobs"), root.join("uploads"));
        fs::create_dir_all(&blobs)?;
        fs::create_dir_all(&uploads)?;
        sync_dir(root)?;
        let lock = File::create(root.join("lock"))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StoreError::InUse(root.to_owned()),
            TryLockError::Error(error) => StoreError::Io(error),
        })?;
        for entry in fs::read_dir(&uploads)? {
            let path = entry?.path();
            tracing::info!(path = %path.display(), "removing an upload that was not finished");
            fs::remove_file(path)?;
        }
        let index = load_index(&blobs)?;
        let last_modified = index.values().map(|stat| stat.modified).max().unwrap_or(0);
        let open = LruCache::new(options.open_files);
        let changes = broadcast::Sender::new(options.changes_kept.get());
        Ok(Self {
            blobs,
            uploads,
            options,
            catalog: Mutex::new(Catalog { index, open }),
            under_way: Mutex::default(),
            last_modified: AtomicU64::new(last_modified),
            changes,
            _lock: lock,
        })
    }

    /// Stores a whole blob.
    ///
    /// # Errors
    /// [`StoreError::BadDigest`], [`StoreError::TooLarge`], the file system's; then nothing has changed.
    pub fn put(&self, name: Name, data: &[u8], attachment: &[u8], digest: &Digest) -> Result<Stat, StoreError> {
        self.check_size(data.len() as u64, attachment)?;
        if blake3::hash(data).as_bytes() != digest {
            return Err(StoreError::BadDigest);
        }
        let (_, upload) = self.create_upload(name, data.len() as u64, attachment)?;
        upload.write(0, data)?;
        self.publish(&upload, digest)
    }

    /// Begins an upload of `size` octets.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], [`StoreError::Busy`], the file system's.
    pub fn begin(&self, name: Name, size: u64, attachment: &[u8]) -> Result<UploadId, StoreError> {
        self.check_size(size, attachment)?;
        // What is dropped at the end removes its file, which is not to be done under the lock: hence the order.
        let (id, upload) = self.create_upload(name, size, attachment)?;
        let upload = Arc::new(upload);
        let mut expired = Vec::new();
        let mut under_way = lock(&self.under_way);
        if under_way.len() >= self.options.max_uploads {
            let idle = self.options.upload_idle.as_secs();
            expired.extend(under_way.extract_if(|_, upload| upload.idle_secs() >= idle));
            if expired.is_empty() {
                return Err(StoreError::Busy);
            }
        }
        under_way.insert(id, upload);
        Ok(id)
    }

    /// Writes a range of an upload.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`], [`StoreError::BadRange`], the file system's.
    pub fn write(&self, id: UploadId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let upload = lock(&self.under_way).get(&id).cloned().ok_or(StoreError::NoSuchUpload)?;
        upload.write(offset, data)
    }

    /// Ends an upload: makes it the blob of its name if it has the digest. If not, it is gone.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`], [`StoreError::BadDigest`], the file system's.
    pub fn commit(&self, id: UploadId, digest: &Digest) -> Result<Stat, StoreError> {
        let upload = lock(&self.under_way).remove(&id).ok_or(StoreError::NoSuchUpload)?;
        upload.seal();
        if digest_of(&upload.file, upload.size)? != *digest {
            return Err(StoreError::BadDigest);
        }
        self.publish(&upload, digest)
    }

    /// Drops an upload.
    ///
    /// # Errors
    /// [`StoreError::NoSuchUpload`].
    pub fn abort(&self, id: UploadId) -> Result<(), StoreError> {
        let upload = lock(&self.under_way).remove(&id).ok_or(StoreError::NoSuchUpload)?;
        upload.seal();
        Ok(())
    }

    /// What is known about a blob.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBlob`].
    pub fn stat(&self, name: &Name) -> Result<Stat, StoreError> {
        lock(&self.catalog).index.get(name).copied().ok_or(StoreError::NoSuchBlob)
    }

    /// A blob's content.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBlob`], the file system's.
    pub fn get(&self, name: &Name) -> Result<Arc<Blob>, StoreError> {
        let mut catalog = lock(&self.catalog);
        let stat = catalog.index.get(name).copied().ok_or(StoreError::NoSuchBlob)?;
        if let Some(blob) = catalog.open.get(name) {
            return Ok(blob.clone());
        }
        let file = File::open(self.blob_path(name)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StoreError::NoSuchBlob,
            _ => StoreError::Io(error),
        })?;
        let blob = Arc::new(Blob { file, stat });
        catalog.open.put(name.clone(), blob.clone());
        Ok(blob)
    }

    /// At most `count` blobs, in the order of their names, from the first one after `after` on.
    #[must_use]
    pub fn list(&self, after: &str, count: usize) -> Page {
        let catalog = lock(&self.catalog);
        let mut rest = catalog.index.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let entries = rest.by_ref().take(count).map(|(name, stat)| (name.clone(), *stat)).collect();
        Page { entries, end: rest.next().is_none() }
    }

    /// The changes from now on, as they are to be seen. Who takes them too slowly is told how many it has missed.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Deletes a blob.
    ///
    /// # Errors
    /// [`StoreError::NoSuchBlob`], the file system's.
    pub fn remove(&self, name: &Name) -> Result<(), StoreError> {
        let mut catalog = lock(&self.catalog);
        if !catalog.index.contains_key(name) {
            return Err(StoreError::NoSuchBlob);
        }
        match fs::remove_file(self.blob_path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        catalog.index.remove(name);
        catalog.open.pop(name);
        // Nobody may be listening.
        let _ = self.changes.send(Change { name: name.clone(), stat: None });
        drop(catalog);
        sync_dir(&self.blobs)?;
        Ok(())
    }

    fn check_size(&self, size: u64, attachment: &[u8]) -> Result<(), StoreError> {
        if size > self.options.max_blob {
            return Err(StoreError::TooLarge { limit: self.options.max_blob });
        }
        if attachment.len() > self.options.max_attachment {
            return Err(StoreError::TooLarge { limit: self.options.max_attachment as u64 });
        }
        Ok(())
    }

    fn create_upload(&self, name: Name, size: u64, attachment: &[u8]) -> Result<(UploadId, Upload), StoreError> {
        let id = getrandom::u64().map_err(io::Error::other)?;
        let upload = Upload::create(self.uploads.join(format!("{id:016x}")), name, size, attachment)?;
        Ok((id, upload))
    }

    /// Makes a complete upload the blob of its name, durably.
    fn publish(&self, upload: &Upload, digest: &Digest) -> Result<Stat, StoreError> {
        let stat = Stat {
            size: upload.size,
            attachment_len: upload.attachment_len,
            modified: self.next_modified(),
            digest: *digest,
        };
        let end = stat.size.saturating_add(u64::from(stat.attachment_len));
        write_all_at(&upload.file, &record::encode(&upload.name, &stat), end)?;
        upload.file.sync_all()?;
        let blob = Arc::new(Blob { file: upload.file.try_clone()?, stat });
        let mut catalog = lock(&self.catalog);
        fs::rename(&upload.path, self.blob_path(&upload.name))?;
        catalog.index.insert(upload.name.clone(), stat);
        catalog.open.put(upload.name.clone(), blob);
        let _ = self.changes.send(Change { name: upload.name.clone(), stat: Some(stat) });
        drop(catalog);
        sync_dir(&self.blobs)?;
        Ok(stat)
    }

    /// The time, made greater than any given before.
    fn next_modified(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self.last_modified.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(now, |last| now.max(last.saturating_add(1)))
    }

    fn blob_path(&self, name: &Name) -> PathBuf {
        self.blobs.join(file_name(name))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("blobs", &self.blobs).finish_non_exhaustive()
    }
}

fn file_name(name: &Name) -> String {
    blake3::hash(name.as_str().as_bytes()).to_hex().to_string()
}

fn load_index(blobs: &Path) -> Result<BTreeMap<Name, Stat>, StoreError> {
    let mut index = BTreeMap::new();
    for entry in fs::read_dir(blobs)? {
        let path = entry?.path();
        match read_record(&path)? {
            Some((name, stat)) if path.file_name().is_some_and(|file| *file == *file_name(&name)) => {
                index.insert(name, stat);
            }
            _ => tracing::warn!(path = %path.display(), "not a blob, left alone"),
        }
    }
    Ok(index)
}

fn read_record(path: &Path) -> Result<Option<(Name, Stat)>, StoreError> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let Some(at) = meta.len().checked_sub(RECORD_LEN as u64).filter(|_| meta.is_file()) else { return Ok(None) };
    let mut octets = [0; RECORD_LEN];
    if read_full_at(&file, &mut octets, at)? < RECORD_LEN {
        return Ok(None);
    }
    Ok(record::decode(&octets, meta.len()))
}

/// BLAKE3 of the first `len` octets of a file.
fn digest_of(file: &File, len: u64) -> Result<Digest, StoreError> {
    let mut hasher = blake3::Hasher::new();
    let mut step = vec![0; HASH_STEP.min(usize::try_from(len).unwrap_or(HASH_STEP))];
    let mut at = 0;
    while at < len {
        let want = usize::try_from(len - at).unwrap_or(HASH_STEP).min(HASH_STEP);
        let read = read_full_at(file, &mut step[..want], at)?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        hasher.update(&step[..read]);
        at += read as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// No invariant of the store is broken half-way by a panic, so a poisoned lock is as good as any.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
