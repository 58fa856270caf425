//! Reading of file data from the server in parallel, and digests of files on the server and of local files.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesOrdered};
use rpcrdma::memory::BufferPool;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{
    client::{Nfs, Node},
    error::CopyError,
    extents::{chunks_of, write_at},
};

/// Runs `work` concurrently for all `items`, which are pairs of an offset and a length. Passes the results to `done` in
/// the order of the items.
///
/// Each item takes permits for its data in memory. Permits are taken in item order, so the first item never waits for
/// later ones. After a failure, no more items are started, but items in progress complete. Dropping their calls would
/// invalidate memory, which may break the connection if the server is accessing that memory.
pub(super) async fn in_order<R, F>(
    nfs: &Nfs,
    items: impl Iterator<Item = (u64, u32)>,
    work: impl Fn((u64, u32), OwnedSemaphorePermit) -> F,
    mut done: impl AsyncFnMut(R) -> Result<(), CopyError>,
) -> Result<(), CopyError>
where
    F: Future<Output = Result<R, CopyError>>,
{
    let most = nfs.options().jobs.saturating_mul(2).max(2);
    let mut items = items.peekable();
    let mut in_flight = FuturesOrdered::new();
    let mut outcome = Ok(());
    loop {
        let next = items.peek().map(|(_, len)| nfs.options().permits(*len));
        let next = next.filter(|_| outcome.is_ok() && in_flight.len() < most);
        tokio::select! {
            permit = Arc::clone(nfs.memory()).acquire_many_owned(next.unwrap_or(0)), if next.is_some() => {
                let permit = permit.map_err(io::Error::other)?;
                if let Some(item) = items.next() {
                    in_flight.push_back(work(item, permit));
                }
            }
            Some(result) = in_flight.next() => match result {
                Ok(result) if outcome.is_ok() => outcome = done(result).await,
                Ok(_) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            },
            else => return outcome,
        }
    }
}

/// Downloads the data of `source` to `file`. Calls `progress` with the number of bytes of each write. If the source
/// takes less space on the server than its size, blocks of zeros become holes.
///
/// # Errors
/// Returns errors of READ and of the local file. Returns [`CopyError::SourceChanged`] if the source shrinks in the
/// meantime.
pub async fn download(
    nfs: &Nfs,
    source: &Node,
    file: &Arc<File>,
    progress: impl Fn(u64) + Sync,
) -> Result<(), CopyError> {
    let size = source.attributes.size;
    let sparse = source.attributes.used < size;
    file.set_len(size)?;
    let work = async |(mut at, len): (u64, u32), _permit: OwnedSemaphorePermit| {
        let end = at + u64::from(len);
        while at < end {
            let data = read_some(nfs, source, at, end).await?;
            let (file, len) = (Arc::clone(file), data.len() as u64);
            // Written from the buffer in which the server placed the data.
            spawn_blocking(move || write_at(&file, &data, at, sparse)).await.map_err(io::Error::other)??;
            progress(len);
            at += len;
        }
        Ok(())
    };
    in_order(nfs, chunks_of(0..size, nfs.read_size()), work, async |()| Ok(())).await
}

/// Reads at least one byte of `source` from offset `at` on, but not beyond `end`. Returns [`CopyError::SourceChanged`]
/// if the file ends at or before `at`.
async fn read_some(nfs: &Nfs, source: &Node, at: u64, end: u64) -> Result<Bytes, CopyError> {
    let count = u32::try_from(end - at).unwrap_or(u32::MAX);
    let (data, _eof) = nfs.read(&source.handle, at, count).await?;
    if data.is_empty() {
        return Err(CopyError::SourceChanged(source.attributes.size));
    }
    Ok(data)
}

/// Returns the BLAKE3 digest of a file on the server.
///
/// # Errors
/// Returns errors of READ. Returns [`CopyError::SourceChanged`] if the file shrinks in the meantime.
pub async fn remote_digest(nfs: &Nfs, source: &Node) -> Result<blake3::Hash, CopyError> {
    let mut hasher = blake3::Hasher::new();
    let work = async |(mut at, len): (u64, u32), permit: OwnedSemaphorePermit| {
        let end = at + u64::from(len);
        let mut parts = Vec::with_capacity(1);
        while at < end {
            let data = read_some(nfs, source, at, end).await?;
            at += data.len() as u64;
            parts.push(data);
        }
        Ok((parts, permit))
    };
    let done = async |(parts, permit): (Vec<Bytes>, OwnedSemaphorePermit)| {
        let mut taken = std::mem::take(&mut hasher);
        let hashing = spawn_blocking(move || {
            for part in parts {
                taken.update(&part);
            }
            drop(permit);
            taken
        });
        hasher = hashing.await.map_err(io::Error::other)?;
        Ok(())
    };
    in_order(nfs, chunks_of(0..source.attributes.size, nfs.read_size()), work, done).await?;
    Ok(hasher.finalize())
}

/// Returns the BLAKE3 digest of the first `size` bytes of a local file.
///
/// # Errors
/// Returns read errors. Returns [`CopyError::SourceChanged`] if the file is shorter.
pub async fn local_digest(pool: &BufferPool, file: &Arc<File>, size: u64) -> Result<blake3::Hash, CopyError> {
    let (file, pool) = (Arc::clone(file), pool.clone());
    let hashing = spawn_blocking(move || {
        let mut hasher = blake3::Hasher::new();
        for (at, len) in chunks_of(0..size, 1 << 20) {
            hasher.update(&read_at(&file, &pool, at, len, size)?);
        }
        Ok(hasher.finalize())
    });
    hashing.await.map_err(io::Error::other)?
}

/// Reads `len` bytes at offset `at` into a buffer of `pool`. `size` is the original size of the file, for the error if
/// the file has shrunk.
pub(super) fn read_at(file: &File, pool: &BufferPool, at: u64, len: u32, size: u64) -> Result<Bytes, CopyError> {
    let mut memory = pool.alloc(len as usize);
    file.read_exact_at(&mut memory, at).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => CopyError::SourceChanged(size),
        _ => CopyError::Local(error),
    })?;
    Ok(memory.freeze())
}
