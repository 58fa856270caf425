//! The client side: files to blobs and blobs to files, in ranges, as many at a time as pay.

use std::{
    fs::File,
    io::{self, Read as _, Write},
};

use bytes::Bytes;
use futures_util::{
    StreamExt as _,
    stream::{FuturesOrdered, FuturesUnordered},
};
use rpcrdma::{
    client::{CallError, CallOptions},
    memory::{BufferPool, LandingPool},
};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    Name,
    protocol::{
        BLOB_ATTACHMENT_MAX, BLOB_DATA_MAX, BLOB_LIST_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStat,
        BlobStatus, CommitArgs, FetchArgs, FetchRes, GetArgs, GetRes, ListArgs, ListRes, PutArgs, StatRes, WatchArgs,
        WriteArgs, blobstore_v1::BlobstoreV1Client,
    },
};

/// How blobs are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferOptions {
    /// Octets in one call, at most `BLOB_DATA_MAX`. Default 1 MiB.
    pub range: u32,
    /// Calls under way at a time; the credits that the server grants limit it further. Default 8.
    pub depth: usize,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self { range: 1 << 20, depth: 8 }
    }
}

impl TransferOptions {
    /// With this many octets in one call, at least 1 and at most `BLOB_DATA_MAX`.
    #[must_use]
    pub fn with_range(mut self, range: u64) -> Self {
        self.range = u32::try_from(range).unwrap_or(u32::MAX).clamp(1, BLOB_DATA_MAX);
        self
    }

    /// With this many calls under way, at least 1.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }
}

/// Why a blob was not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The store said no.
    #[error(transparent)]
    Refused(Refusal),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The file on this side.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// The file became shorter while it was being stored.
    #[error("the file is being changed: it has fewer than the {0} octets it had")]
    SourceChanged(u64),
    /// What arrived is not what was stored.
    #[error("the data that arrived does not have the blob's digest")]
    BadDigest,
    /// The server broke the blobstore protocol.
    #[error("the server answered against the protocol: {0}")]
    Protocol(String),
}

/// A status other than `BLOB_OK`, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", refusal_text(.0))]
pub struct Refusal(pub BlobStatus);

fn refusal_text(status: &BlobStatus) -> &'static str {
    match status {
        BlobStatus::BlobOk => "the server reported success as a failure",
        BlobStatus::BlobNoSuchBlob => "no such blob",
        BlobStatus::BlobBadName => "a blob cannot have this name",
        BlobStatus::BlobChanged => "the blob was replaced meanwhile",
        BlobStatus::BlobNoSuchUpload => {
            "the server no longer knows the upload; it was idle for too long or the server restarted"
        }
        BlobStatus::BlobBadDigest => {
            "the data that arrived at the server does not have the right digest; nothing was stored"
        }
        BlobStatus::BlobBadRange => "the server did not expect data at this offset",
        BlobStatus::BlobTooLarge => "larger than the server takes",
        BlobStatus::BlobNoSpace => "the server's disk is full; nothing was stored",
        BlobStatus::BlobBusy => "the server has as many uploads, or watchers, as it allows",
        BlobStatus::BlobIoError => "the server's disk failed; its log says how",
    }
}

impl From<BlobStatus> for TransferError {
    fn from(status: BlobStatus) -> Self {
        Self::Refused(Refusal(status))
    }
}

/// Moves files and blobs over one connection.
#[derive(Debug, Clone)]
pub struct BlobClient {
    rpc: BlobstoreV1Client,
    pool: BufferPool,
    /// Buffers for the ranges of blobs that are read. Each is used again once its range has been written to the file.
    landing: LandingPool,
    options: TransferOptions,
}

impl BlobClient {
    /// Over `rpc`, with memory from `pool`.
    #[must_use]
    pub fn new(rpc: BlobstoreV1Client, pool: BufferPool, options: TransferOptions) -> Self {
        let options = options.with_range(options.range.into()).with_depth(options.depth);
        let landing = LandingPool::new(&pool, options.range as usize);
        Self { rpc, pool, landing, options }
    }

    /// The plain calls.
    #[must_use]
    pub fn rpc(&self) -> &BlobstoreV1Client {
        &self.rpc
    }

    /// Stores `source` from its present position to its end, `size` octets, as `name`. `progress` is told of
    /// octets as they are stored.
    ///
    /// # Errors
    /// Nothing has been stored then; except that after a lost connection the blob may have been.
    pub async fn upload(
        &self,
        name: &Name,
        source: File,
        size: u64,
        attachment: Bytes,
        progress: impl Fn(u64),
    ) -> Result<BlobStat, TransferError> {
        if size <= u64::from(self.options.range) {
            let (data, digest) = self.read_whole(source, size).await?;
            let args = PutArgs { name: wire_name(name), digest, attachment, data };
            let stat = stat_of(self.rpc.put(&args).await?)?;
            progress(size);
            return Ok(stat);
        }
        let args = BeginArgs { name: wire_name(name), size, attachment };
        let upload = match self.rpc.begin(&args).await? {
            BeginRes::BlobOk(upload) => upload,
            BeginRes::Default(status) => return Err(status.into()),
        };
        match self.write_ranges(upload, source, size, progress).await {
            Ok(digest) => stat_of(self.rpc.commit(&CommitArgs { upload, digest }).await?),
            Err(error) => {
                // Why it failed is worth telling; whether this works is not, as the server drops idle uploads anyway.
                let _ = self.rpc.abort(upload).await;
                Err(error)
            }
        }
    }

    async fn read_whole(&self, mut source: File, size: u64) -> Result<(Bytes, BlobDigest), TransferError> {
        let pool = self.pool.clone();
        let read = move || {
            let data = read_range(&mut source, &pool, size, size)?;
            let digest = BlobDigest(*blake3::hash(&data).as_bytes());
            Ok((data, digest))
        };
        spawn_blocking(read).await.map_err(io::Error::other)?
    }

    /// One thread reads ahead and takes the digest, while the ranges before are on their way.
    async fn write_ranges(
        &self,
        upload: u64,
        mut source: File,
        size: u64,
        progress: impl Fn(u64),
    ) -> Result<BlobDigest, TransferError> {
        let (ready, mut ranges) = mpsc::channel(self.options.depth.div_ceil(2));
        let (pool, range) = (self.pool.clone(), u64::from(self.options.range));
        let reader = spawn_blocking(move || {
            let mut hasher = blake3::Hasher::new();
            let mut offset = 0;
            while offset < size {
                let data = read_range(&mut source, &pool, range.min(size - offset), size)?;
                hasher.update(&data);
                let len = data.len() as u64;
                if ready.blocking_send((offset, data)).is_err() {
                    break; // The writer gave up, and has the reason.
                }
                offset += len;
            }
            Ok::<_, TransferError>(BlobDigest(*hasher.finalize().as_bytes()))
        });
        let mut under_way = FuturesUnordered::new();
        let mut written = Ok(());
        loop {
            let room = under_way.len() < self.options.depth && written.is_ok();
            tokio::select! {
                Some((offset, data)) = ranges.recv(), if room => {
                    under_way.push(self.write_range(WriteArgs { upload, offset, data }));
                }
                Some(result) = under_way.next() => match result {
                    Ok(len) => progress(len),
                    // No more are begun, but those under way are waited for: a call that is dropped takes its memory
                    // back at once, and a server that is just reading it loses the connection over that.
                    Err(error) => written = written.and(Err(error)),
                },
                else => break,
            }
        }
        drop(ranges);
        let digest = reader.await.map_err(io::Error::other)?;
        written.and(digest)
    }

    async fn write_range(&self, args: WriteArgs) -> Result<u64, TransferError> {
        match self.rpc.write(&args).await? {
            BlobStatus::BlobOk => Ok(args.data.len() as u64),
            status => Err(status.into()),
        }
    }

    /// Has the server call this client back for each change to a blob whose name begins with `prefix`. The channel serves a
    /// [`Watcher`](super::watch::Watcher).
    ///
    /// # Errors
    /// When the server has as many watchers as it allows, or the call fails.
    pub async fn watch(&self, prefix: &str) -> Result<(), TransferError> {
        match self.rpc.watch(&WatchArgs { prefix: prefix.into() }).await? {
            BlobStatus::BlobOk => Ok(()),
            status => Err(status.into()),
        }
    }

    /// Writes the data of `name` to `sink`, in order, and gives back what is known about the blob, and its attachment.
    /// `progress` is told the blob's size and of octets as they arrive.
    ///
    /// # Errors
    /// What has been written to `sink` by then is to be thrown away.
    pub async fn download<W: Write + Send + 'static>(
        &self,
        name: &Name,
        mut sink: W,
        progress: impl Fn(u64, u64),
    ) -> Result<(W, BlobStat, Bytes), TransferError> {
        let range = self.options.range;
        let args = FetchArgs { name: wire_name(name), attachment_count: BLOB_ATTACHMENT_MAX, count: range };
        let first = match self.rpc.fetch(&args).await? {
            FetchRes::BlobOk(ok) => ok,
            FetchRes::Default(status) => return Err(status.into()),
        };
        let stat = first.stat;
        check_len("FETCH", first.data.len(), stat.size.min(range.into()))?;
        check_len("FETCH", first.attachment.len(), stat.attachment_len.into())?;

        let (arrived, mut in_order) = mpsc::channel::<Bytes>(self.options.depth);
        let writer = spawn_blocking(move || {
            let mut hasher = blake3::Hasher::new();
            while let Some(data) = in_order.blocking_recv() {
                hasher.update(&data);
                sink.write_all(&data)?;
            }
            sink.flush()?;
            Ok::<_, io::Error>((sink, *hasher.finalize().as_bytes()))
        });
        let read = self.get_ranges(name, &stat, first.data, arrived, progress).await;
        let written = writer.await.map_err(io::Error::other)?;
        read?;
        let (sink, digest) = written?;
        if digest != stat.digest.0 {
            return Err(TransferError::BadDigest);
        }
        Ok((sink, stat, first.attachment))
    }

    /// Hands the data to the writer in order, `first` and the ranges after it.
    async fn get_ranges(
        &self,
        name: &Name,
        stat: &BlobStat,
        first: Bytes,
        writer: mpsc::Sender<Bytes>,
        progress: impl Fn(u64, u64),
    ) -> Result<(), TransferError> {
        let mut done = first.len() as u64;
        progress(stat.size, done);
        // When the writer is gone, it has the reason.
        let mut go_on = writer.send(first).await.is_ok();
        let mut next = done;
        let mut under_way = FuturesOrdered::new();
        let mut read = Ok(());
        loop {
            while go_on && next < stat.size && under_way.len() < self.options.depth {
                under_way.push_back(self.get_range(name, stat, next));
                next = next.saturating_add(self.options.range.into());
            }
            // As in `write_ranges`, those under way are waited for even after a failure.
            match under_way.next().await {
                None => break,
                Some(Ok(data)) if go_on => {
                    done += data.len() as u64;
                    progress(stat.size, done);
                    go_on = writer.send(data).await.is_ok();
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    go_on = false;
                    read = read.and(Err(error));
                }
            }
        }
        read
    }

    async fn get_range(&self, name: &Name, stat: &BlobStat, offset: u64) -> Result<Bytes, TransferError> {
        let args = GetArgs { name: wire_name(name), offset, count: self.options.range, expect: stat.modified };
        let options = CallOptions::new().landing_from(&self.landing);
        match self.rpc.get_with(&args, options).await? {
            GetRes::BlobOk(ok) => {
                check_len("GET", ok.data.len(), (stat.size - offset).min(self.options.range.into()))?;
                Ok(ok.data)
            }
            GetRes::Default(status) => Err(status.into()),
        }
    }

    /// What is known about a blob.
    ///
    /// # Errors
    /// As the server says, or the call's.
    pub async fn stat(&self, name: &Name) -> Result<BlobStat, TransferError> {
        stat_of(self.rpc.stat(&wire_name(name)).await?)
    }

    /// Deletes a blob.
    ///
    /// # Errors
    /// As the server says, or the call's.
    pub async fn delete(&self, name: &Name) -> Result<(), TransferError> {
        match self.rpc.delete(&wire_name(name)).await? {
            BlobStatus::BlobOk => Ok(()),
            status => Err(status.into()),
        }
    }

    /// The page of blobs after `cookie`, which is `""` for the first page, and the next page's cookie, if there is one.
    ///
    /// # Errors
    /// As the server says, or the call's; and [`TransferError::Protocol`] for names that no blob may have, which would not
    /// be safe to print, and for a page that does not go on from the cookie, which might never end.
    pub async fn list(&self, cookie: &str) -> Result<(Vec<(Name, BlobStat)>, Option<String>), TransferError> {
        let args = ListArgs { cookie: cookie.into(), count: BLOB_LIST_MAX };
        let page = match self.rpc.list(&args).await? {
            ListRes::BlobOk(page) => page,
            ListRes::Default(status) => return Err(status.into()),
        };
        let broken = |what: String| TransferError::Protocol(format!("LIST: {what}"));
        let mut last = cookie.to_owned();
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let name = Name::parse(entry.name.0.as_bytes()).map_err(|error| broken(error.to_string()))?;
            if *name.as_str() <= *last {
                return Err(broken(format!("{:?} comes after {last:?}", name.as_str())));
            }
            name.as_str().clone_into(&mut last);
            entries.push((name, entry.stat));
        }
        if entries.is_empty() && !page.end {
            return Err(broken("a page without entries is not the last".into()));
        }
        Ok((entries, (!page.end).then_some(last)))
    }
}

fn stat_of(result: StatRes) -> Result<BlobStat, TransferError> {
    match result {
        StatRes::BlobOk(stat) => Ok(stat),
        StatRes::Default(status) => Err(status.into()),
    }
}

fn check_len(procedure: &str, is: usize, should: u64) -> Result<(), TransferError> {
    if is as u64 == should {
        return Ok(());
    }
    Err(TransferError::Protocol(format!("{procedure} returned {is} octets where there are {should}")))
}

fn read_range(source: &mut File, pool: &BufferPool, len: u64, size: u64) -> Result<Bytes, TransferError> {
    let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let mut memory = pool.alloc(len);
    source.read_exact(&mut memory).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => TransferError::SourceChanged(size),
        _ => TransferError::Local(error),
    })?;
    Ok(memory.freeze())
}

fn wire_name(name: &Name) -> BlobName {
    BlobName(name.as_str().into())
}
