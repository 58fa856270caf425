//! A directory of blobs. A blob is stored completely or not at all, and is durable once the call that stores it
//! returns.
//!
//! ```text
//! ROOT/lock            locked while a store is open, so that two stores never share a directory
//! ROOT/uploads/ID      uploads in progress; all removed when the store is opened
//! ROOT/blobs/DIGEST    a blob; DIGEST is the digest of its name, so every name maps to a safe file name
//! ```
//!
//! A blob is written to `uploads`, synced and renamed to `blobs`; then the directory is synced. If the process or
//! machine crashes at any point, the old or the new content remains, and possibly an upload that the next start
//! removes.
//!
//! The functions that access blobs block. The service calls them on tokio's blocking threads.

mod file;
mod record;
mod upload;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, TryLockError},
    io,
    net::SocketAddr,
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
use tokio::sync::{broadcast, oneshot};

use self::{
    file::{read_full_at, sync_dir, write_all_at},
    record::RECORD_LEN,
    upload::Upload,
};
use super::{ValidName, slots::SlotShares};

/// The BLAKE3 digest of a blob's data.
pub type Digest = [u8; 32];

/// The identifier of an upload, which is a random number.
pub type UploadId = u64;

/// Number of bytes read at a time when computing a digest.
const HASH_STEP: usize = 1 << 20;

/// The limits of a store.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoreOptions {
    /// Maximum size of a blob, in bytes. The default is 1 TiB.
    pub max_blob: u64,
    /// Maximum size of an attachment, in bytes. The default is 1 MiB, which is the protocol's limit.
    pub max_attachment: usize,
    /// Maximum number of uploads in progress, including commits. One host has at most half of them, rounded up. The
    /// default is 64.
    pub max_uploads: usize,
    /// Idle time after which an upload may be dropped in favor of a new one. The default is 10 minutes.
    pub upload_idle: Duration,
    /// Maximum number of blob files that are kept open. The default is 128.
    pub open_files: NonZeroUsize,
    /// Number of the latest changes that are buffered for slow watchers, rounded up to a power of two. The default is
    /// 1024.
    pub change_buffer: NonZeroUsize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            max_blob: 1 << 40,
            max_attachment: super::protocol::BLOB_ATTACHMENT_MAX as usize,
            max_uploads: 64,
            upload_idle: Duration::from_secs(600),
            open_files: const { NonZeroUsize::new(128).unwrap() },
            change_buffer: const { NonZeroUsize::new(1024).unwrap() },
        }
    }
}

impl StoreOptions {
    /// Sets the maximum size of a blob, in bytes.
    #[must_use]
    pub fn with_max_blob(mut self, bytes: u64) -> Self {
        self.max_blob = bytes;
        self
    }

    /// Sets the number of the latest changes that are buffered for slow watchers, rounded up to a power of two.
    #[must_use]
    pub fn with_changes_kept(mut self, changes: NonZeroUsize) -> Self {
        self.change_buffer = changes;
        self
    }
}

/// The error type of store operations.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No blob has this name.
    #[error("no such blob")]
    NoSuchBlob,
    /// No upload has this identifier.
    #[error("no such upload: it does not exist, has ended, or was idle for too long")]
    NoSuchUpload,
    /// The data is incomplete, or does not match the digest.
    #[error("the data does not match the given digest")]
    BadDigest,
    /// A write exceeds the announced size.
    #[error("a write of {len} bytes at offset {offset} exceeds the announced size of {size} bytes")]
    BadRange {
        /// Offset of the write, in bytes.
        offset: u64,
        /// Length of the write, in bytes.
        len: usize,
        /// Announced size of the blob, in bytes.
        size: u64,
    },
    /// The blob or attachment exceeds the store's limit.
    #[error("size exceeds the store's limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The maximum number of uploads is in progress, or the host or connection has its share of them already.
    #[error("too many uploads in progress; try again later")]
    Busy,
    /// The client left before its upload was complete.
    #[error("the client left before its upload was complete")]
    Abandoned,
    /// Another store, usually that of another process, has the directory open.
    #[error("{} is in use by another blobstore process", .0.display())]
    InUse(PathBuf),
    /// A file system operation failed, or the system provided no random number.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The properties of a blob (`blob_stat` in the protocol).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Size of the data, in bytes.
    pub size: u64,
    /// Size of the attachment, in bytes.
    pub attachment_len: u32,
    /// Time of storage, in nanoseconds since 1970. While a store is open, every time that it assigns is later than all
    /// times that it assigned before.
    pub modified: u64,
    /// Digest of the data.
    pub digest: Digest,
}

impl Stat {
    /// Returns the length of the blob's file in bytes, or `None` if it exceeds 64 bits.
    fn file_len(&self) -> Option<u64> {
        self.size.checked_add(u64::from(self.attachment_len))?.checked_add(RECORD_LEN as u64)
    }
}

/// The contents of a blob. They remain readable after the blob is replaced or deleted.
#[derive(Debug)]
pub struct Blob {
    file: File,
    stat: Stat,
}

impl Blob {
    /// Returns the blob's properties.
    #[must_use]
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Reads data from `offset` into `buf` and returns the number of bytes read. It is less than the length of `buf`
    /// only at the end of the data.
    ///
    /// # Errors
    /// Returns file system errors.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_range(buf, offset.min(self.stat.size), self.stat.size)
    }

    /// Reads the start of the attachment into `buf` and returns the number of bytes read.
    ///
    /// # Errors
    /// Returns file system errors.
    pub fn read_attachment(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_range(buf, self.stat.size, self.stat.size.saturating_add(u64::from(self.stat.attachment_len)))
    }

    fn read_range(&self, buf: &mut [u8], from: u64, to: u64) -> io::Result<usize> {
        let len = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX).min(buf.len());
        let read = read_full_at(&self.file, &mut buf[..len], from)?;
        if read < len { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(read) }
    }
}

/// A change to a blob, as watchers receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Name of the blob.
    pub name: ValidName,
    /// Properties of the stored blob, or `None` if it was deleted.
    pub stat: Option<Stat>,
}

/// An upload that has begun.
#[derive(Debug)]
pub struct StartedUpload {
    /// Identifier of the upload.
    pub id: UploadId,
    /// Completes with an error when the upload ends, whether it succeeds or fails.
    pub ended: oneshot::Receiver<()>,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Blobs in name order.
    pub entries: Vec<(ValidName, Stat)>,
    /// `true` on the last page.
    pub end: bool,
}

/// The index of the directory `blobs`, and the blobs that are kept open. Directory and index change together, under one
/// lock.
struct Catalog {
    index: BTreeMap<ValidName, Stat>,
    open: LruCache<ValidName, Arc<Blob>>,
}

/// A store of blobs in a directory. The module documentation describes its layout.
pub struct Store {
    blobs: PathBuf,
    uploads: PathBuf,
    options: StoreOptions,
    catalog: Mutex<Catalog>,
    uploads_in_progress: Mutex<HashMap<UploadId, Arc<Upload>>>,
    upload_slots: Arc<SlotShares>,
    last_modified: AtomicU64,
    /// The channel for changes. They are sent while the catalog is locked, so that they are in the order in which they
    /// happened.
    changes: broadcast::Sender<Change>,
    _lock: File,
}

impl Store {
    /// Opens the store in `root`. Creates the directory if necessary, and removes unfinished uploads of an earlier run.
    ///
    /// Files in `blobs` that are not complete blobs are ignored with a warning.
    ///
    /// # Errors
    /// Returns [`StoreError::InUse`] if the store is already open, usually in another process, or a file system error.
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
            tracing::info!(path = %path.display(), "removing unfinished upload");
            fs::remove_file(path)?;
        }
        let index = load_index(&blobs)?;
        let last_modified = index.values().map(|stat| stat.modified).max().unwrap_or(0);
        let open = LruCache::new(options.open_files);
        let changes = broadcast::Sender::new(options.change_buffer.get());
        Ok(Self {
            blobs,
            uploads,
            catalog: Mutex::new(Catalog { index, open }),
            uploads_in_progress: Mutex::default(),
            upload_slots: SlotShares::new(options.max_uploads),
            options,
            last_modified: AtomicU64::new(last_modified),
            changes,
            _lock: lock,
        })
    }

    /// Stores a complete blob.
    ///
    /// # Errors
    /// Returns [`StoreError::BadDigest`], [`StoreError::TooLarge`] or a file system error. The store is then unchanged,
    /// unless the directory could not be synced after the blob was stored.
    pub fn put(&self, name: ValidName, data: &[u8], attachment: &[u8], digest: &Digest) -> Result<Stat, StoreError> {
        self.check_size(data.len() as u64, attachment)?;
        if blake3::hash(data).as_bytes() != digest {
            return Err(StoreError::BadDigest);
        }
        let (_, upload) = self.create_upload(name, data.len() as u64, attachment)?;
        upload.write(0, data)?;
        self.publish(&upload, digest)
    }

    /// Begins an upload of `size` bytes for the client at `peer`. If `peer` cannot take a slot, ends idle uploads of
    /// all clients first.
    ///
    /// # Errors
    /// Returns [`StoreError::TooLarge`], [`StoreError::Busy`] or a file system error.
    pub fn begin(
        &self,
        peer: SocketAddr,
        name: ValidName,
        size: u64,
        attachment: &[u8],
    ) -> Result<StartedUpload, StoreError> {
        self.check_size(size, attachment)?;
        let slot = self.upload_slots.take(peer).or_else(|| {
            self.end_idle_uploads();
            self.upload_slots.take(peer)
        });
        let slot = slot.ok_or(StoreError::Busy)?;
        let (id, mut upload) = self.create_upload(name, size, attachment)?;
        let ended = upload.hold(slot);
        lock(&self.uploads_in_progress).insert(id, Arc::new(upload));
        Ok(StartedUpload { id, ended })
    }

    /// Ends all uploads that have been idle for so long that new ones may replace them.
    fn end_idle_uploads(&self) {
        let idle = self.options.upload_idle;
        // Dropping an upload removes its file, which must not happen under the lock.
        let expired: Vec<_> =
            lock(&self.uploads_in_progress).extract_if(|_, upload| upload.idle_time() >= idle).collect();
        drop(expired);
    }

    /// Ends an upload if it has been idle for the time `idle`. Returns `true` if the upload continues.
    pub fn end_if_idle(&self, id: UploadId, idle: Duration) -> bool {
        let mut uploads = lock(&self.uploads_in_progress);
        if uploads.get(&id).is_some_and(|upload| upload.idle_time() < idle) {
            return true;
        }
        let expired = uploads.remove(&id);
        drop(uploads);
        drop(expired);
        false
    }

    /// Writes `data` at `offset` of an upload.
    ///
    /// # Errors
    /// Returns [`StoreError::NoSuchUpload`], [`StoreError::BadRange`] or a file system error.
    pub fn write(&self, id: UploadId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let upload = lock(&self.uploads_in_progress).get(&id).cloned().ok_or(StoreError::NoSuchUpload)?;
        upload.write(offset, data)
    }

    /// Completes an upload. Checks its digest, and publishes the blob. Computing the digest stops when `is_wanted`
    /// returns `false`. The upload is dropped on failure.
    ///
    /// If the client has sent less data than the announced size, the commit fails with [`StoreError::BadDigest`]
    /// without computing the digest. A client can thus make the server hash only as much data as it has sent.
    ///
    /// # Errors
    /// Returns [`StoreError::NoSuchUpload`], [`StoreError::BadDigest`], [`StoreError::Abandoned`] or a file system
    /// error.
    pub fn commit(&self, id: UploadId, digest: &Digest, is_wanted: impl Fn() -> bool) -> Result<Stat, StoreError> {
        let upload = lock(&self.uploads_in_progress).remove(&id).ok_or(StoreError::NoSuchUpload)?;
        upload.seal();
        if upload.written() < upload.size || digest_of(&upload.file, upload.size, is_wanted)? != *digest {
            return Err(StoreError::BadDigest);
        }
        self.publish(&upload, digest)
    }

    /// Drops an upload.
    ///
    /// # Errors
    /// Returns [`StoreError::NoSuchUpload`] if no upload has this identifier.
    pub fn abort(&self, id: UploadId) -> Result<(), StoreError> {
        let upload = lock(&self.uploads_in_progress).remove(&id).ok_or(StoreError::NoSuchUpload)?;
        upload.seal();
        Ok(())
    }

    /// Returns a blob's properties.
    ///
    /// # Errors
    /// Returns [`StoreError::NoSuchBlob`] if no blob has this name.
    pub fn stat(&self, name: &ValidName) -> Result<Stat, StoreError> {
        lock(&self.catalog).index.get(name).copied().ok_or(StoreError::NoSuchBlob)
    }

    /// Opens a blob for reading.
    ///
    /// # Errors
    /// Returns [`StoreError::NoSuchBlob`] or a file system error.
    pub fn get(&self, name: &ValidName) -> Result<Arc<Blob>, StoreError> {
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

    /// Returns up to `count` blobs in name order, starting after the name `after`.
    #[must_use]
    pub fn list(&self, after: &str, count: usize) -> Page {
        let catalog = lock(&self.catalog);
        let mut rest = catalog.index.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
        let entries = rest.by_ref().take(count).map(|(name, stat)| (name.clone(), *stat)).collect();
        Page { entries, end: rest.next().is_none() }
    }

    /// Subscribes to changes. A receiver that falls behind learns how many changes it has missed.
    #[must_use]
    pub fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Deletes a blob, and reports the change to watchers.
    ///
    /// # Errors
    /// Returns [`StoreError::NoSuchBlob`] or a file system error.
    pub fn remove(&self, name: &ValidName) -> Result<(), StoreError> {
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
        // Fails if there are no receivers.
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

    fn create_upload(&self, name: ValidName, size: u64, attachment: &[u8]) -> Result<(UploadId, Upload), StoreError> {
        let id = getrandom::u64().map_err(io::Error::other)?;
        let upload = Upload::create(self.uploads.join(format!("{id:016x}")), name, size, attachment)?;
        Ok((id, upload))
    }

    /// Publishes a complete upload as a durable blob, and reports the change to watchers.
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

    /// Returns the current time in nanoseconds since 1970, or one nanosecond after the previous result if that is
    /// later.
    fn next_modified(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self.last_modified.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.map_or(now, |last| now.max(last.saturating_add(1)))
    }

    fn blob_path(&self, name: &ValidName) -> PathBuf {
        self.blobs.join(file_name(name))
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("blobs", &self.blobs).finish_non_exhaustive()
    }
}

fn file_name(name: &ValidName) -> String {
    blake3::hash(name.as_str().as_bytes()).to_hex().to_string()
}

fn load_index(blobs: &Path) -> Result<BTreeMap<ValidName, Stat>, StoreError> {
    let mut index = BTreeMap::new();
    for entry in fs::read_dir(blobs)? {
        let path = entry?.path();
        match read_record(&path)? {
            Some((name, stat)) if path.file_name().is_some_and(|file| *file == *file_name(&name)) => {
                index.insert(name, stat);
            }
            _ => tracing::warn!(path = %path.display(), "ignoring a file that is not a blob"),
        }
    }
    Ok(index)
}

fn read_record(path: &Path) -> Result<Option<(ValidName, Stat)>, StoreError> {
    let file = File::open(path)?;
    let meta = file.metadata()?;
    let Some(at) = meta.len().checked_sub(RECORD_LEN as u64).filter(|_| meta.is_file()) else { return Ok(None) };
    let mut bytes = [0; RECORD_LEN];
    if read_full_at(&file, &mut bytes, at)? < RECORD_LEN {
        return Ok(None);
    }
    Ok(record::decode(&bytes, meta.len()))
}

/// Returns the BLAKE3 digest of the first `len` bytes of a file. Returns [`StoreError::Abandoned`] when `is_wanted`
/// returns `false`.
fn digest_of(file: &File, len: u64, is_wanted: impl Fn() -> bool) -> Result<Digest, StoreError> {
    let mut hasher = blake3::Hasher::new();
    let mut step = vec![0; HASH_STEP.min(usize::try_from(len).unwrap_or(HASH_STEP))];
    let mut at = 0;
    while at < len {
        if !is_wanted() {
            return Err(StoreError::Abandoned);
        }
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

/// Locks a mutex. Ignores poisoning, because a panic breaks no invariant of the store.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
