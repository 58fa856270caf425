//! From the server: a file's data, ranges in parallel, and digests.

use std::{fs::File, io, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesOrdered};
use rpcrdma::memory::BufferPool;
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};

use super::{
    client::{Nfs, Node},
    error::CopyError,
    extents::{pieces, write_at},
};

/// Does `work` for all `items`, several at a time, and hands the results to `done` in order.
///
/// For each there is a permit for one piece of data in memory, taken in order, so that the first never waits for those
/// behind it. After a failure no more is begun, but what is under way is waited for: a call that is dropped takes its
/// memory back, and a server that is just using it might end the connection over that.
pub(super) async fn in_order<T, R, F>(
    nfs: &Nfs,
    items: impl Iterator<Item = T>,
    work: impl Fn(T, OwnedSemaphorePermit) -> F,
    mut done: impl AsyncFnMut(R) -> Result<(), CopyError>,
) -> Result<(), CopyError>
where
    F: Future<Output = Result<R, CopyError>>,
{
    let most = nfs.options().jobs.saturating_mul(2).max(2);
    let mut items = items.peekable();
    let mut under_way = FuturesOrdered::new();
    let mut outcome = Ok(());
    loop {
        let room = outcome.is_ok() && under_way.len() < most && items.peek().is_some();
        tokio::select! {
            permit = Arc::clone(nfs.memory()).acquire_owned(), if room => {
                let permit = permit.map_err(io::Error::other)?;
                if let Some(item) = items.next() {
                    under_way.push_back(work(item, permit));
                }
            }
            Some(result) = under_way.next() => match result {
                Ok(result) if outcome.is_ok() => outcome = done(result).await,
                Ok(_) => {}
                Err(error) => outcome = outcome.and(Err(error)),
            },
            else => return outcome,
        }
    }
}

/// Fetches the data of `source` into `file`; `progress` is told of octets as they are written. Holes are made of blocks
/// of zeros if the source takes less space on the server than it is long.
///
/// # Errors
/// As READ's, the file's, and when the source gets shorter meanwhile.
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
            // From where the server has put it to the file.
            spawn_blocking(move || write_at(&file, &data, at, sparse)).await.map_err(io::Error::other)??;
            progress(len);
            at += len;
        }
        Ok(())
    };
    in_order(nfs, pieces(0..size, nfs.read_size()), work, async |()| Ok(())).await
}

/// At least an octet of `at..end`.
async fn read_some(nfs: &Nfs, source: &Node, at: u64, end: u64) -> Result<Bytes, CopyError> {
    let count = u32::try_from(end - at).unwrap_or(u32::MAX);
    let (data, _eof) = nfs.read(&source.handle, at, count).await?;
    if data.is_empty() {
        return Err(CopyError::SourceChanged(source.attributes.size));
    }
    Ok(data)
}

/// The BLAKE3 digest of a file on the server.
///
/// # Errors
/// As [`download`]'s.
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
    in_order(nfs, pieces(0..source.attributes.size, nfs.read_size()), work, done).await?;
    Ok(hasher.finalize())
}

/// The BLAKE3 digest of the first `size` octets of a file on this machine.
///
/// # Errors
/// As the file's, and when it is shorter.
pub async fn local_digest(pool: &BufferPool, file: &Arc<File>, size: u64) -> Result<blake3::Hash, CopyError> {
    let (file, pool) = (Arc::clone(file), pool.clone());
    let hashing = spawn_blocking(move || {
        let mut hasher = blake3::Hasher::new();
        for (at, len) in pieces(0..size, 1 << 20) {
            hasher.update(&read_at(&file, &pool, at, len, size)?);
        }
        Ok(hasher.finalize())
    });
    hashing.await.map_err(io::Error::other)?
}

/// `len` octets of a file at `at`, in memory of `pool`.
pub(super) fn read_at(file: &File, pool: &BufferPool, at: u64, len: u32, size: u64) -> Result<Bytes, CopyError> {
    let mut memory = pool.alloc(len as usize);
    file.read_exact_at(&mut memory, at).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => CopyError::SourceChanged(size),
        _ => CopyError::Local(error),
    })?;
    Ok(memory.freeze())
}
