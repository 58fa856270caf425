//! To the server: a file's data, UNSTABLE and in parallel, and what COMMIT says of it (RFC 1813 §3.3.7, §3.3.21).

use std::{fs::File, io, sync::Arc};

use rpcrdma_specs::nfs3::{NfsFh3, StableHow, Writeverf3};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{
    attributes,
    client::Nfs,
    error::CopyError,
    extents::{extents, pieces},
    read::{in_order, read_at},
};

/// How often data that a server has lost is sent again.
const ROUNDS: u32 = 5;

/// WRITEs between one COMMIT and the next: what is remembered of them is bounded, and so is what has to be sent again.
const WRITES_PER_COMMIT: usize = 4096;

/// A range that the server has in its memory only, as far as is known.
#[derive(Debug)]
struct Unstable {
    range: (u64, u32),
    verifier: Writeverf3,
}

/// Stores the first `size` octets of `source` in the empty file `target`; `progress` is told of octets as the server
/// takes them. Holes are left out. When it returns, the server has all of it on its disk. Returns the octets that had
/// to be sent again because the server had lost them.
///
/// # Errors
/// As WRITE's, COMMIT's and the file's, and when the source gets shorter meanwhile.
pub async fn upload(
    nfs: &Nfs,
    source: &Arc<File>,
    size: u64,
    target: &NfsFh3,
    progress: impl Fn(u64) + Sync,
) -> Result<u64, CopyError> {
    if size > nfs.largest_file() {
        return Err(CopyError::Unfit(format!("the server has files of at most {} octets", nfs.largest_file())));
    }
    let upload = Upload { nfs, source, size, target };
    let file = Arc::clone(source);
    // If it has become shorter, what is missing would pass for a hole.
    let looking = spawn_blocking(move || Ok::<_, io::Error>((extents(&file, size), file.metadata()?.len())));
    let (extents, there) = looking.await.map_err(io::Error::other)??;
    if there < size {
        return Err(CopyError::SourceChanged(size));
    }
    let end = extents.last().map_or(0, |last| last.end);
    let mut todo = extents.into_iter().flat_map(|extent| pieces(extent, nfs.write_size())).peekable();
    let mut again = 0;
    // What is one WRITE is not worth a COMMIT.
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
    /// Writes `ranges` and has them on the server's disk, however often it takes.
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
            // RFC 1813 §3.3.7: with another verifier than the WRITE had, the server has started anew since, and may have
            // lost what it had in its memory.
            let lost: Vec<_> =
                unstable.iter().filter(|write| write.verifier != committed).map(|write| write.range).collect();
            let octets: u64 = lost.iter().map(|(_, len)| u64::from(*len)).sum();
            if octets > 0 {
                tracing::warn!(octets, "the server has lost what it had not yet written to its disk: sent again");
                again += octets;
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
        // Into memory from which the server fetches it.
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
