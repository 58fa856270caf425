//! Writing of file data to the server, with parallel UNSTABLE WRITEs and COMMIT (RFC 1813 §3.3.7, §3.3.21).

use std::{fs::File, io, sync::Arc};

use rpcrdma_specs::nfs3::{NfsFh3, StableHow, Writeverf3};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{
    attributes,
    client::Nfs,
    error::CopyError,
    extents::{chunks_of, extents},
    read::{in_order, read_at},
};

/// Maximum number of times that lost data is sent again.
const ROUNDS: u32 = 5;

/// Maximum number of WRITEs between two COMMITs. It bounds the bookkeeping and the amount of data that may have to be
/// sent again.
const WRITES_PER_COMMIT: usize = 4096;

/// A range of the file that the server may hold only in memory.
#[derive(Debug)]
struct Unstable {
    range: (u64, u32),
    verifier: Writeverf3,
}

/// Uploads the first `size` bytes of `source` to the empty file `target`. Returns the number of bytes that were sent
/// again because the server had lost them.
///
/// Calls `progress` with the number of bytes of each WRITE, except those that send data again. Holes are skipped. When
/// the function returns, all data is on the server's disk.
///
/// # Errors
/// Returns errors of WRITE, COMMIT, SETATTR and the local file. Returns [`CopyError::InvalidTarget`] if `size` exceeds
/// the server's limit, [`CopyError::SourceChanged`] if the source shrinks in the meantime, and
/// [`CopyError::NeverStable`] if the server keeps losing data.
pub async fn upload(
    nfs: &Nfs,
    source: &Arc<File>,
    size: u64,
    target: &NfsFh3,
    progress: impl Fn(u64) + Sync,
) -> Result<u64, CopyError> {
    if size > nfs.largest_file() {
        return Err(CopyError::InvalidTarget(format!("the server's file size limit is {} bytes", nfs.largest_file())));
    }
    let upload = Upload { nfs, source, size, target };
    let file = Arc::clone(source);
    // If the file has shrunk, the missing part would look like a hole.
    let looking = spawn_blocking(move || Ok::<_, io::Error>((extents(&file, size), file.metadata()?.len())));
    let (extents, there) = looking.await.map_err(io::Error::other)??;
    if there < size {
        return Err(CopyError::SourceChanged(size));
    }
    let end = extents.last().map_or(0, |last| last.end);
    let mut todo = extents.into_iter().flat_map(|extent| chunks_of(extent, nfs.write_size())).peekable();
    let mut again = 0;
    // A file that fits into one WRITE is written FILE_SYNC, which saves the COMMIT.
    let stable = if size <= u64::from(nfs.write_size()) { StableHow::FileSync } else { StableHow::Unstable };
    while todo.peek().is_some() {
        again += upload.store(todo.by_ref().take(WRITES_PER_COMMIT), stable, &progress).await?;
    }
    if end < size {
        nfs.setattr(target, attributes::size(size)).await?;
    }
    Ok(again)
}

struct Upload<'a> {
    nfs: &'a Nfs,
    source: &'a Arc<File>,
    size: u64,
    target: &'a NfsFh3,
}

impl Upload<'_> {
    /// Writes `ranges` and commits them. Sends lost data again until the commit succeeds, up to [`ROUNDS`] times.
    /// Returns the number of bytes sent again.
    async fn store(
        &self,
        ranges: impl Iterator<Item = (u64, u32)>,
        stable: StableHow,
        progress: &(impl Fn(u64) + Sync),
    ) -> Result<u64, CopyError> {
        let mut unstable = self.write_all(ranges, stable, progress).await?;
        let mut again = 0;
        for _ in 0..ROUNDS {
            if unstable.is_empty() {
                return Ok(again);
            }
            let committed = self.nfs.commit(self.target).await?;
            // A verifier other than that of the WRITE means that the server has restarted and may have lost the data
            // (RFC 1813 §3.3.7).
            let lost: Vec<_> =
                unstable.iter().filter(|write| write.verifier != committed).map(|write| write.range).collect();
            let bytes: u64 = lost.iter().map(|(_, len)| u64::from(*len)).sum();
            if bytes > 0 {
                tracing::warn!(bytes, "the server lost uncommitted data, sending it again");
                again += bytes;
            }
            unstable = self.write_all(lost.into_iter(), stable, &|_| ()).await?;
        }
        if unstable.is_empty() { Ok(again) } else { Err(CopyError::NeverStable(ROUNDS)) }
    }

    async fn write_all(
        &self,
        ranges: impl Iterator<Item = (u64, u32)>,
        stable: StableHow,
        progress: &(impl Fn(u64) + Sync),
    ) -> Result<Vec<Unstable>, CopyError> {
        let mut unstable = Vec::new();
        let work = |range, permit: OwnedSemaphorePermit| self.write(range, stable, progress, permit);
        let done = async |pieces: Vec<Unstable>| {
            unstable.extend(pieces);
            Ok(())
        };
        in_order(self.nfs, ranges, work, done).await?;
        Ok(unstable)
    }

    async fn write(
        &self,
        (at, len): (u64, u32),
        stable: StableHow,
        progress: &(impl Fn(u64) + Sync),
        _permit: OwnedSemaphorePermit,
    ) -> Result<Vec<Unstable>, CopyError> {
        let (source, pool, size) = (Arc::clone(self.source), self.nfs.pool().clone(), self.size);
        // Read into a buffer from which the server fetches the data.
        let reading = spawn_blocking(move || read_at(&source, &pool, at, len, size));
        let mut data = reading.await.map_err(io::Error::other)??;
        let mut at = at;
        let mut unstable = Vec::new();
        while !data.is_empty() {
            let written = self.nfs.write(self.target, at, data.clone(), stable).await?;
            if written.committed == StableHow::Unstable {
                unstable.push(Unstable { range: (at, written.count), verifier: written.verf });
            }
            progress(written.count.into());
            at += u64::from(written.count);
            data = data.split_off(written.count as usize);
        }
        Ok(unstable)
    }
}
