//! Uploads in progress.

use std::{
    fs::File,
    io,
    path::PathBuf,
    sync::{
        PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::{StoreError, file::write_all_at};
use crate::blobstore::{ValidName, slots::Slot};

/// A file that receives an upload. Dropping the `Upload` removes the file, unless the file was published as a blob.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) name: ValidName,
    pub(super) size: u64,
    pub(super) attachment_len: u32,
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// `true` once no more writes are accepted. Writers hold a read lock, and sealing takes the write lock. No write is
    /// therefore in progress while the digest is computed, and none follows.
    sealed: RwLock<bool>,
    started: Instant,
    /// Time of the last write, in milliseconds since the upload began. 0 before the first write.
    last_used: AtomicU64,
    /// Sum of the lengths of all writes, in bytes.
    written: AtomicU64,
    /// The slot and the end signal of the upload. They are kept until the upload ends, even while it is committed.
    held: Option<(Slot, oneshot::Sender<()>)>,
}

impl Upload {
    /// Creates the file at `path`, which must not exist. The file starts with `size` zero bytes for the data, and the
    /// attachment follows.
    pub(super) fn create(path: PathBuf, name: ValidName, size: u64, attachment: &[u8]) -> Result<Self, StoreError> {
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        let attachment_len =
            u32::try_from(attachment.len()).map_err(|_| StoreError::TooLarge { limit: u64::from(u32::MAX) })?;
        let upload = Self {
            name,
            size,
            attachment_len,
            file,
            path,
            sealed: RwLock::new(false),
            started: Instant::now(),
            last_used: AtomicU64::new(0),
            written: AtomicU64::new(0),
            held: None,
        };
        // From here on, dropping `upload` removes the file.
        upload.file.set_len(size)?;
        write_all_at(&upload.file, attachment, size)?;
        Ok(upload)
    }

    /// Writes a range of the data. Fails if the range exceeds the announced size, or if the upload is sealed.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > self.size) {
            return Err(StoreError::BadRange { offset, len: data.len(), size: self.size });
        }
        let sealed = self.sealed.read().unwrap_or_else(PoisonError::into_inner);
        if *sealed {
            return Err(StoreError::NoSuchUpload);
        }
        self.touch();
        write_all_at(&self.file, data, offset)?;
        self.written.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the sum of the lengths of all writes, in bytes. Bytes that were written several times count several
    /// times.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Keeps `slot` until the upload ends. The returned receiver completes at that time.
    pub(super) fn hold(&mut self, slot: Slot) -> oneshot::Receiver<()> {
        let (alive, ended) = oneshot::channel();
        self.held = Some((slot, alive));
        ended
    }

    /// Waits for writes in progress and rejects later ones.
    pub(super) fn seal(&self) {
        *self.sealed.write().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn touch(&self) {
        self.last_used.store(self.age(), Ordering::Relaxed);
    }

    /// Returns the time since the upload began, in milliseconds.
    fn age(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the time since the last write or, if there was none, since the upload began.
    pub(super) fn idle_time(&self) -> Duration {
        Duration::from_millis(self.age().saturating_sub(self.last_used.load(Ordering::Relaxed)))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        match std::fs::remove_file(&self.path) {
            // The file has been renamed: it is a blob now.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.path.display(), %error, "cannot remove a dropped upload");
            }
            _ => {}
        }
    }
}
