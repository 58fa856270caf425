//! The client, which stores files as blobs and fetches blobs into files, several ranges at a time.

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
    client::{CallError, CallOptions, Channel, Invoke},
    memory::{BufferPool, LandingPool},
};
use tokio::{sync::mpsc, task::spawn_blocking};

use super::{
    ValidName,
    protocol::{
        BLOB_ATTACHMENT_MAX, BLOB_DATA_MAX, BLOB_LIST_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStat,
        BlobStatus, CommitArgs, FetchArgs, FetchRes, GetArgs, GetRes, ListArgs, ListRes, PutArgs, StatRes, WatchArgs,
        WriteArgs, blobstore_v1::BlobstoreV1Client,
    },
};

/// The limits of the calls that a transfer makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferOptions {
    /// Maximum number of data bytes in each call, at most `BLOB_DATA_MAX`. The default is 1 MiB.
    pub range: u32,
    /// Maximum number of calls in flight. The server's credits limit it further. The default is 8.
    pub depth: usize,
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self { range: 1 << 20, depth: 8 }
    }
}

impl TransferOptions {
    /// Sets the maximum number of data bytes in each call. Clamps it to 1..=`BLOB_DATA_MAX`.
    #[must_use]
    pub fn with_range(mut self, range: u64) -> Self {
        self.range = u32::try_from(range).unwrap_or(u32::MAX).clamp(1, BLOB_DATA_MAX);
        self
    }

    /// Sets the maximum number of calls in flight, at least 1.
    #[must_use]
    pub fn with_depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }
}

/// The error type of transfers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The server replied with a status other than `BLOB_OK`.
    #[error(transparent)]
    Refused(RefusedStatus),
    /// The call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Reading the source or writing to the sink failed, or the thread that does so panicked.
    #[error(transparent)]
    Local(#[from] io::Error),
    /// The local file shrank while it was being stored. The value is its original size in bytes.
    #[error("the file shrank while it was being read: it had {0} bytes before")]
    SourceChanged(u64),
    /// The fetched data does not match the blob's digest.
    #[error("the fetched data does not match the blob's digest")]
    BadDigest,
    /// The server violated the blobstore protocol.
    #[error("the server violated the blobstore protocol: {0}")]
    Protocol(String),
}

/// A status other than `BLOB_OK`, displayed as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", refusal_text(.0))]
pub struct RefusedStatus(pub BlobStatus);

fn refusal_text(status: &BlobStatus) -> &'static str {
    match status {
        BlobStatus::BlobOk => "the server reported success in place of an error",
        BlobStatus::BlobNoSuchBlob => "no such blob",
        BlobStatus::BlobBadName => "invalid blob name",
        BlobStatus::BlobChanged => "the blob was replaced during the transfer; try again",
        BlobStatus::BlobNoSuchUpload => {
            "the upload no longer exists: it was idle for too long, or the server restarted"
        }
        BlobStatus::BlobBadDigest => "the data that the server received does not match its digest; nothing was stored",
        BlobStatus::BlobBadRange => "the data exceeds the announced size",
        BlobStatus::BlobTooLarge => "size exceeds the server's limit",
        BlobStatus::BlobNoSpace => "the server's disk is full; nothing was stored",
        BlobStatus::BlobBusy => "the server has too many uploads or watchers; try again later",
        BlobStatus::BlobIoError => "the server's disk failed; see the server's log",
    }
}

impl From<BlobStatus> for TransferError {
    fn from(status: BlobStatus) -> Self {
        Self::Refused(RefusedStatus(status))
    }
}

/// A client that transfers blobs over a channel, or over another type that carries its calls, such as a pool of
/// channels.
#[derive(Debug, Clone)]
pub struct BlobClient<C = Channel> {
    rpc: BlobstoreV1Client<C>,
    pool: BufferPool,
    /// Buffers for the data in GET replies. Each buffer is reused after its data has been written to the sink.
    landing: LandingPool,
    options: TransferOptions,
}

impl<C: Invoke> BlobClient<C> {
    /// Creates a client on `rpc`, with buffers from `pool`.
    #[must_use]
    pub fn new(rpc: BlobstoreV1Client<C>, pool: BufferPool, options: TransferOptions) -> Self {
        let options = options.with_range(options.range.into()).with_depth(options.depth);
        let landing = LandingPool::new(&pool, options.range as usize);
        Self { rpc, pool, landing, options }
    }

    /// Returns the underlying RPC client.
    #[must_use]
    pub fn rpc(&self) -> &BlobstoreV1Client<C> {
        &self.rpc
    }

    /// Stores `source`, from its current position to its end, as `name`. `size` is the number of bytes to its end.
    /// Calls `progress` with the number of bytes of each range stored.
    ///
    /// # Errors
    /// Returns an error if the upload fails. The blob is then not stored, except possibly if a PUT or COMMIT call got
    /// no reply, or if the server's disk failed.
    pub async fn upload(
        &self,
        name: &ValidName,
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
                // The first error matters more. The server drops idle uploads anyway.
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

    /// Sends all ranges of an upload, and returns the digest of the data. A thread reads the file ahead and computes
    /// the digest while earlier ranges are in flight.
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
                    break; // The writer failed and reports the error.
                }
                offset += len;
            }
            Ok::<_, TransferError>(BlobDigest(*hasher.finalize().as_bytes()))
        });
        let mut in_flight = FuturesUnordered::new();
        let mut written = Ok(());
        loop {
            let room = in_flight.len() < self.options.depth && written.is_ok();
            tokio::select! {
                Some((offset, data)) = ranges.recv(), if room => {
                    in_flight.push(self.write_range(WriteArgs { upload, offset, data }));
                }
                Some(result) = in_flight.next() => match result {
                    Ok(len) => progress(len),
                    // Start no more calls, but wait for those in flight. Dropping a call invalidates its memory at
                    // once, which breaks the connection if the server is reading it.
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

    /// Asks the server to call this client for each change to a blob whose name begins with `prefix`. The channel must
    /// serve a [`Watcher`](super::watch::Watcher).
    ///
    /// # Errors
    /// Fails if the server refuses the watcher, for example because it has too many, or if the call fails.
    pub async fn watch(&self, prefix: &str) -> Result<(), TransferError> {
        match self.rpc.watch(&WatchArgs { prefix: prefix.into() }).await? {
            BlobStatus::BlobOk => Ok(()),
            status => Err(status.into()),
        }
    }

    /// Fetches the blob `name`, writes its data to `sink` in order, and returns `sink`, the blob's properties and its
    /// attachment. Calls `progress` with the blob's size and the number of bytes fetched so far.
    ///
    /// # Errors
    /// Returns an error if the transfer fails, or if the data does not match the digest of the blob. Discard the data
    /// written to `sink` then.
    pub async fn download<W: Write + Send + 'static>(
        &self,
        name: &ValidName,
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

    /// Passes `first`, the data of the first range, to the writer. Then fetches the other ranges, and passes their data
    /// to the writer in the order of their offsets.
    async fn get_ranges(
        &self,
        name: &ValidName,
        stat: &BlobStat,
        first: Bytes,
        writer: mpsc::Sender<Bytes>,
        progress: impl Fn(u64, u64),
    ) -> Result<(), TransferError> {
        let mut done = first.len() as u64;
        progress(stat.size, done);
        // If the writer has stopped, it reports the error.
        let mut go_on = writer.send(first).await.is_ok();
        let mut next = done;
        let mut in_flight = FuturesOrdered::new();
        let mut read = Ok(());
        loop {
            while go_on && next < stat.size && in_flight.len() < self.options.depth {
                in_flight.push_back(self.get_range(name, stat, next));
                next = next.saturating_add(self.options.range.into());
            }
            // As in `write_ranges`, wait for the calls in flight even after a failure.
            match in_flight.next().await {
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

    async fn get_range(&self, name: &ValidName, stat: &BlobStat, offset: u64) -> Result<Bytes, TransferError> {
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

    /// Returns a blob's properties.
    ///
    /// # Errors
    /// Fails if the server refuses the request, for example because the blob does not exist, or if the call fails.
    pub async fn stat(&self, name: &ValidName) -> Result<BlobStat, TransferError> {
        stat_of(self.rpc.stat(&wire_name(name)).await?)
    }

    /// Deletes a blob.
    ///
    /// # Errors
    /// Fails if the server refuses the request, for example because the blob does not exist, or if the call fails.
    pub async fn delete(&self, name: &ValidName) -> Result<(), TransferError> {
        match self.rpc.delete(&wire_name(name)).await? {
            BlobStatus::BlobOk => Ok(()),
            status => Err(status.into()),
        }
    }

    /// Returns the first page of blobs whose names follow `cookie`, and the cookie of the next page, or `None` if this
    /// page is the last one. The cookie of the first page is `""`.
    ///
    /// # Errors
    /// Fails if the server refuses the request, or if the call fails. Returns [`TransferError::Protocol`] for invalid
    /// names, which might be unsafe to print, and for pages that do not continue from the cookie, because the listing
    /// might never end.
    pub async fn list(&self, cookie: &str) -> Result<(Vec<(ValidName, BlobStat)>, Option<String>), TransferError> {
        let args = ListArgs { cookie: cookie.into(), count: BLOB_LIST_MAX };
        let page = match self.rpc.list(&args).await? {
            ListRes::BlobOk(page) => page,
            ListRes::Default(status) => return Err(status.into()),
        };
        let broken = |what: String| TransferError::Protocol(format!("LIST: {what}"));
        let mut last = cookie.to_owned();
        let mut entries = Vec::with_capacity(page.entries.len());
        for entry in page.entries {
            let name = ValidName::parse(entry.name.0.as_bytes()).map_err(|error| broken(error.to_string()))?;
            if *name.as_str() <= *last {
                return Err(broken(format!("{:?} is listed after {last:?}", name.as_str())));
            }
            name.as_str().clone_into(&mut last);
            entries.push((name, entry.stat));
        }
        if entries.is_empty() && !page.end {
            return Err(broken("an empty page is not the last".into()));
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
    Err(TransferError::Protocol(format!("{procedure} returned {is} bytes, expected {should}")))
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

fn wire_name(name: &ValidName) -> BlobName {
    BlobName(name.as_str().into())
}
