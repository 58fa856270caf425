//! The server, which implements the procedures of the protocol with a [`Store`].

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use rpcrdma::{
    memory::BufferPool,
    server::{Context, HandlerError},
};
use tokio::sync::oneshot;

use super::{
    ValidName,
    protocol::{
        BLOB_ATTACHMENT_MAX, BLOB_DATA_MAX, BLOB_LIST_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStat,
        BlobStatus, CommitArgs, FetchArgs, FetchOk, FetchRes, GetArgs, GetOk, GetRes, ListArgs, ListEntry, ListOk,
        ListRes, PutArgs, StatRes, WatchArgs, WriteArgs, blobstore_v1::BlobstoreV1,
    },
    slots::SlotShares,
    store::{Blob, StartedUpload, Stat, Store, StoreError, UploadId},
    watch,
};

/// Maximum number of concurrent watchers. One host has at most half of them.
pub const MAX_WATCHERS: usize = 1024;

/// Idle time after which an upload ends if its connection is closed. Until then, the client can continue the upload
/// over another connection.
pub const ABANDONED_UPLOAD: Duration = Duration::from_secs(30);

/// The service that gives clients access to one [`Store`].
///
/// Files are read and written on tokio's blocking threads. GET and FETCH read file data into buffers of the
/// connection's pool. RDMA Writes send the data from these buffers without another copy. PUT and WRITE write received
/// data to the file from the buffers in which the transport placed the data.
#[derive(Debug, Clone)]
pub struct BlobService {
    store: Arc<Store>,
    watchers: Arc<SlotShares>,
}

/// Result of a procedure, or the status that explains its failure.
type BlobResult<T> = Result<T, BlobStatus>;

impl BlobService {
    /// Creates a service for `store`.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, watchers: SlotShares::new(MAX_WATCHERS) }
    }

    /// Runs `work` on a blocking thread. If it panics, the reply is SYSTEM_ERR.
    async fn blocking<T, F>(&self, work: F) -> Result<BlobResult<T>, HandlerError>
    where
        T: Send + 'static,
        F: FnOnce(&Store) -> Result<T, BlobFailure> + Send + 'static,
    {
        let store = Arc::clone(&self.store);
        let outcome = tokio::task::spawn_blocking(move || work(&store)).await?;
        Ok(outcome.map_err(|refusal| refusal.0))
    }
}

impl BlobstoreV1 for BlobService {
    async fn stat(&self, _cx: &Context, name: BlobName) -> Result<StatRes, HandlerError> {
        // The lookup is in memory, but another thread may hold the lock while it waits for the disk.
        let work = move |store: &Store| Ok(store.stat(&parse(&name)?)?);
        Ok(stat_res(self.blocking(work).await?))
    }

    async fn put(&self, _cx: &Context, args: PutArgs) -> Result<StatRes, HandlerError> {
        let work = move |store: &Store| {
            let name = parse(&args.name)?;
            Ok(store.put(name, &args.data, &args.attachment, &args.digest.0)?)
        };
        Ok(stat_res(self.blocking(work).await?))
    }

    async fn begin(&self, cx: &Context, args: BeginArgs) -> Result<BeginRes, HandlerError> {
        let peer = cx.peer_addr();
        let work = move |store: &Store| Ok(store.begin(peer, parse(&args.name)?, args.size, &args.attachment)?);
        Ok(match self.blocking(work).await? {
            Ok(StartedUpload { id, ended }) => {
                tokio::spawn(end_abandoned(cx.clone(), Arc::clone(&self.store), id, ended));
                BeginRes::BlobOk(id)
            }
            Err(status) => BeginRes::Default(status),
        })
    }

    async fn write(&self, _cx: &Context, args: WriteArgs) -> Result<BlobStatus, HandlerError> {
        let work = move |store: &Store| Ok(store.write(args.upload, args.offset, &args.data)?);
        Ok(done(self.blocking(work).await?))
    }

    async fn commit(&self, cx: &Context, args: CommitArgs) -> Result<StatRes, HandlerError> {
        let has_left = Arc::new(AtomicBool::new(false));
        let is_wanted = {
            let has_left = Arc::clone(&has_left);
            move || !has_left.load(Ordering::Relaxed)
        };
        let work = move |store: &Store| Ok(store.commit(args.upload, &args.digest.0, is_wanted)?);
        tokio::select! {
            committed = self.blocking(work) => Ok(stat_res(committed?)),
            _ = cx.closed() => {
                has_left.store(true, Ordering::Relaxed);
                Err(HandlerError::Unavailable)
            }
        }
    }

    async fn abort(&self, _cx: &Context, upload: u64) -> Result<BlobStatus, HandlerError> {
        let work = move |store: &Store| Ok(store.abort(upload)?);
        Ok(done(self.blocking(work).await?))
    }

    async fn get(&self, cx: &Context, args: GetArgs) -> Result<GetRes, HandlerError> {
        let pool = cx.pool().clone();
        cx.reserve_results(most_data(args.count)).await?;
        let work = move |store: &Store| {
            let blob = store.get(&parse(&args.name)?)?;
            if args.expect != 0 && args.expect != blob.stat().modified {
                return Err(BlobFailure(BlobStatus::BlobChanged));
            }
            let data = read_data(&pool, &blob, args.offset, args.count)?;
            Ok(GetOk { eof: args.offset.saturating_add(data.len() as u64) >= blob.stat().size, data })
        };
        let got = self.blocking(work).await?;
        cx.shrink_results(got.as_ref().map_or(0, |ok| ok.data.len() as u64));
        Ok(got.map_or_else(GetRes::Default, GetRes::BlobOk))
    }

    async fn fetch(&self, cx: &Context, args: FetchArgs) -> Result<FetchRes, HandlerError> {
        let pool = cx.pool().clone();
        let most_attachment = args.attachment_count.min(BLOB_ATTACHMENT_MAX);
        cx.reserve_results(most_data(args.count) + u64::from(most_attachment)).await?;
        let work = move |store: &Store| {
            let blob = store.get(&parse(&args.name)?)?;
            let attachment_len = blob.stat().attachment_len.min(args.attachment_count);
            Ok(FetchOk {
                stat: wire_stat(blob.stat()),
                attachment: fill(&pool, attachment_len.into(), |memory| blob.read_attachment(memory))?,
                data: read_data(&pool, &blob, 0, args.count)?,
            })
        };
        let fetched = self.blocking(work).await?;
        cx.shrink_results(fetched.as_ref().map_or(0, |ok| (ok.data.len() + ok.attachment.len()) as u64));
        Ok(fetched.map_or_else(FetchRes::Default, FetchRes::BlobOk))
    }

    async fn list(&self, _cx: &Context, args: ListArgs) -> Result<ListRes, HandlerError> {
        let work = move |store: &Store| {
            let after = args.cookie.to_str().map_err(|_| BlobFailure(BlobStatus::BlobBadName))?;
            let page = store.list(after, args.count.min(BLOB_LIST_MAX) as usize);
            let entry = |(name, stat): &(ValidName, Stat)| ListEntry { name: wire_name(name), stat: wire_stat(stat) };
            Ok(ListOk { entries: page.entries.iter().map(entry).collect(), end: page.end })
        };
        Ok(self.blocking(work).await?.map_or_else(ListRes::Default, ListRes::BlobOk))
    }

    async fn delete(&self, _cx: &Context, name: BlobName) -> Result<BlobStatus, HandlerError> {
        let work = move |store: &Store| Ok(store.remove(&parse(&name)?)?);
        Ok(done(self.blocking(work).await?))
    }

    async fn watch(&self, cx: &Context, args: WatchArgs) -> Result<BlobStatus, HandlerError> {
        let Ok(prefix) = args.prefix.to_str().map(str::to_owned) else { return Ok(BlobStatus::BlobBadName) };
        let Some(place) = self.watchers.take(cx.peer_addr()) else { return Ok(BlobStatus::BlobBusy) };
        let peer = cx.peer_addr();
        // The subscription starts here, so no later change is lost. The first callback may arrive before this call's
        // reply.
        let (changes, watcher) = (self.store.changes(), cx.callback());
        tokio::spawn(async move {
            let end = watch::report_changes(changes, &prefix, &watcher).await;
            tracing::info!(%peer, prefix, %end, "watcher stopped");
            drop(place);
        });
        Ok(BlobStatus::BlobOk)
    }
}

/// Ends an upload whose connection is closed, once it has been idle for [`ABANDONED_UPLOAD`].
async fn end_abandoned(cx: Context, store: Arc<Store>, id: UploadId, mut ended: oneshot::Receiver<()>) {
    tokio::select! {
        _ = &mut ended => return,
        _ = cx.closed() => drop(cx),
    }
    loop {
        tokio::select! {
            _ = &mut ended => return,
            () = tokio::time::sleep(ABANDONED_UPLOAD) => {}
        }
        let store = Arc::clone(&store);
        // The file is removed on a blocking thread.
        match tokio::task::spawn_blocking(move || store.end_if_idle(id, ABANDONED_UPLOAD)).await {
            Ok(true) => {}
            Ok(false) => return tracing::info!(upload = format_args!("{id:016x}"), "an upload was abandoned"),
            Err(_) => return,
        }
    }
}

/// Returns the maximum length, in bytes, of the data in a result for which the client requests `count` bytes.
fn most_data(count: u32) -> u64 {
    count.min(BLOB_DATA_MAX).into()
}

/// Allocates `len` bytes for a result, at most [`BLOB_DATA_MAX`], and fills them with `read`. Truncates the result to
/// the number of bytes that `read` returns.
fn fill(
    pool: &BufferPool,
    len: u64,
    read: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
) -> Result<Bytes, BlobFailure> {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(BLOB_DATA_MAX as usize);
    if len == 0 {
        return Ok(Bytes::new());
    }
    let mut memory = pool.alloc(len);
    let read = read(&mut memory).map_err(StoreError::Io)?;
    memory.truncate(read);
    Ok(memory.freeze())
}

fn read_data(pool: &BufferPool, blob: &Blob, offset: u64, count: u32) -> Result<Bytes, BlobFailure> {
    let len = blob.stat().size.saturating_sub(offset).min(u64::from(count));
    fill(pool, len, |memory| blob.read_at(memory, offset))
}

/// The failure of a procedure: a status other than `BLOB_OK`.
struct BlobFailure(BlobStatus);

impl From<StoreError> for BlobFailure {
    fn from(error: StoreError) -> Self {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        Self(match error {
            StoreError::NoSuchBlob => BlobStatus::BlobNoSuchBlob,
            StoreError::NoSuchUpload => BlobStatus::BlobNoSuchUpload,
            StoreError::BadDigest => BlobStatus::BlobBadDigest,
            StoreError::BadRange { .. } => BlobStatus::BlobBadRange,
            StoreError::TooLarge { .. } => BlobStatus::BlobTooLarge,
            StoreError::Busy => BlobStatus::BlobBusy,
            StoreError::Abandoned => BlobStatus::BlobNoSuchUpload,
            StoreError::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) => {
                tracing::warn!(%error, "no space left for a blob");
                BlobStatus::BlobNoSpace
            }
            // The status only tells the caller that the store failed. The log has the cause.
            StoreError::Io(_) | StoreError::InUse(_) => {
                tracing::error!(%error, "store failure");
                BlobStatus::BlobIoError
            }
        })
    }
}

fn parse(name: &BlobName) -> Result<ValidName, BlobFailure> {
    ValidName::parse(name.0.as_bytes()).map_err(|_| BlobFailure(BlobStatus::BlobBadName))
}

fn stat_res(outcome: BlobResult<Stat>) -> StatRes {
    outcome.map_or_else(StatRes::Default, |stat| StatRes::BlobOk(wire_stat(&stat)))
}

fn done(outcome: BlobResult<()>) -> BlobStatus {
    outcome.err().unwrap_or(BlobStatus::BlobOk)
}

pub(super) fn wire_name(name: &ValidName) -> BlobName {
    BlobName(name.as_str().into())
}

pub(super) fn wire_stat(stat: &Stat) -> BlobStat {
    BlobStat {
        size: stat.size,
        attachment_len: stat.attachment_len,
        modified: stat.modified,
        digest: BlobDigest(stat.digest),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn full_disk_and_io_error_have_different_statuses() {
        let status = |kind: io::ErrorKind| BlobFailure::from(StoreError::Io(kind.into())).0;
        assert_eq!(status(io::ErrorKind::StorageFull), BlobStatus::BlobNoSpace);
        assert_eq!(status(io::ErrorKind::QuotaExceeded), BlobStatus::BlobNoSpace);
        assert_eq!(status(io::ErrorKind::UnexpectedEof), BlobStatus::BlobIoError);
        assert_eq!(BlobFailure::from(StoreError::Busy).0, BlobStatus::BlobBusy);
    }
}
