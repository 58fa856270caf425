//! The workload of blobstore: blobs are stored, read, listed and deleted. A name is used for one content only, so that
//! a call that a server executes late, or twice, changes nothing.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use rpcrdma::Channel;
use rpcrdma_examples::blobstore::{
    protocol::{
        BLOB_LIST_MAX, BeginArgs, BeginRes, BlobDigest, BlobName, BlobStat, BlobStatus, CommitArgs, FetchArgs,
        FetchRes, GetArgs, GetRes, ListArgs, ListRes, PutArgs, StatRes, WriteArgs, blobstore_v1::BlobstoreV1Client,
    },
    transfer::RefusedStatus,
};

use crate::{
    content::Content,
    ledger::Trouble,
    work::{Surroundings, Work},
};

/// Maximum number of acknowledged blobs of a worker.
const MAX_STORED: usize = 10;
/// Maximum number of uncertain blobs, whose calls have failed. If there are more, the oldest of them is deleted.
const MAX_UNCERTAIN: usize = 4;
/// Maximum number of bytes of a blob's data in a WRITE, FETCH or GET.
const RANGE: usize = 256 << 10;
/// Version of the contents of attachments. The version of the contents of blobs is 0.
const ATTACHMENT: u64 = 1;

/// The contents of a blob and of its attachment.
#[derive(Debug, Clone, Copy)]
struct Blob {
    data: Content,
    attachment: Content,
}

/// A worker that stores, reads, lists and deletes blobs.
#[derive(Debug)]
pub(crate) struct BlobWork {
    surroundings: Surroundings,
    channel: Channel,
    client: BlobstoreV1Client,
    next: u64,
    /// Blobs that the server has acknowledged.
    stored: VecDeque<Blob>,
    /// Blobs whose calls have failed. They may be stored now, later, or never.
    uncertain: VecDeque<Blob>,
    /// Names to delete. DELETE is repeated until the server confirms the deletion, or reports that the blob does not
    /// exist.
    doomed: VecDeque<String>,
}

impl BlobWork {
    pub(crate) fn new(surroundings: Surroundings, url: &str) -> anyhow::Result<Self> {
        let channel = surroundings.builder()?.connect_lazy(url)?;
        let client = BlobstoreV1Client::new(channel.clone());
        let (stored, uncertain, doomed) = Default::default();
        Ok(Self { surroundings, channel, client, next: 0, stored, uncertain, doomed })
    }

    fn prefix(&self) -> String {
        format!("soak-{}/", self.surroundings.id)
    }

    fn name(&self, blob: &Blob) -> String {
        format!("{}{}", self.prefix(), blob.data.key)
    }

    /// Returns a new blob with a random length. Nine of ten are shorter than 1 MiB.
    fn invent(&mut self) -> Blob {
        let random = &mut self.surroundings.random;
        let len = match random.u8(..10) {
            0 => 0,
            1..6 => random.usize(..64 << 10),
            6..9 => random.usize(..1 << 20),
            _ => random.usize(1 << 20..3 << 20),
        };
        let attachment = if random.u8(..3) == 0 { random.usize(..100 << 10) } else { 0 };
        let key = (self.surroundings.id << 32) | self.next;
        self.next += 1;
        Blob {
            data: Content { key, version: 0, len },
            attachment: Content { key, version: ATTACHMENT, len: attachment },
        }
    }

    /// Stores a new blob.
    async fn store(&mut self) -> Result<(), Trouble> {
        let blob = self.invent();
        match self.send(&blob).await {
            Ok(stat) => {
                let is_whole = stat.size == blob.data.len as u64 && stat.attachment_len as usize == blob.attachment.len;
                if !is_whole {
                    return Err(Trouble::Wrong(format!("{} was stored as {stat:?}", self.name(&blob))));
                }
                self.stored.push_back(blob);
                self.surroundings.ledger.acknowledged();
                Ok(())
            }
            Err(trouble) => {
                self.uncertain.push_back(blob);
                Err(trouble)
            }
        }
    }

    async fn send(&self, blob: &Blob) -> Result<BlobStat, Trouble> {
        let ledger = &self.surroundings.ledger;
        let (name, data, attachment) = (wire_name(&self.name(blob)), blob.data.all(), blob.attachment.all());
        let digest = BlobDigest(*blake3::hash(&data).as_bytes());
        let stored = if data.len() <= 1 << 20 {
            ledger.called();
            self.client.put(&PutArgs { name, digest, attachment, data }).await?
        } else {
            ledger.called();
            let begun = self.client.begin(&BeginArgs { name, size: data.len() as u64, attachment }).await?;
            let upload = match begun {
                BeginRes::BlobOk(upload) => upload,
                BeginRes::Default(status) => return Err(refused("BEGIN", status)),
            };
            for offset in (0..data.len()).step_by(RANGE) {
                let part = data.slice(offset..data.len().min(offset + RANGE));
                ledger.called();
                match self.client.write(&WriteArgs { upload, offset: offset as u64, data: part }).await? {
                    BlobStatus::BlobOk => {}
                    status => return Err(refused("WRITE", status)),
                }
            }
            ledger.called();
            self.client.commit(&CommitArgs { upload, digest }).await?
        };
        match stored {
            StatRes::BlobOk(stat) => Ok(stat),
            StatRes::Default(status) => Err(refused("PUT or COMMIT", status)),
        }
    }

    /// Reads a blob and compares all of it. Returns `false` if the server does not have it.
    async fn read(&self, blob: &Blob) -> Result<bool, Trouble> {
        let (ledger, name) = (&self.surroundings.ledger, wire_name(&self.name(blob)));
        let first = blob.data.len.min(RANGE);
        ledger.called();
        let args = FetchArgs { name: name.clone(), attachment_count: blob.attachment.len as u32, count: first as u32 };
        let fetched = match self.client.fetch(&args).await? {
            FetchRes::BlobOk(fetched) => fetched,
            FetchRes::Default(BlobStatus::BlobNoSuchBlob) => return Ok(false),
            FetchRes::Default(status) => return Err(refused("FETCH", status)),
        };
        self.compare(&blob.attachment, 0, blob.attachment.len, &fetched.attachment)?;
        self.compare(&blob.data, 0, first, &fetched.data)?;
        for offset in (first..blob.data.len).step_by(RANGE) {
            let len = RANGE.min(blob.data.len - offset);
            let args = GetArgs { name: name.clone(), offset: offset as u64, count: len as u32, expect: 0 };
            ledger.called();
            let got = match self.client.get(&args).await? {
                GetRes::BlobOk(got) => got,
                GetRes::Default(BlobStatus::BlobNoSuchBlob) => return Ok(false),
                GetRes::Default(status) => return Err(refused("GET", status)),
            };
            self.compare(&blob.data, offset, len, &got.data)?;
            if got.eof != (offset + len == blob.data.len) {
                return Err(Trouble::Wrong(format!("GET reports a wrong end of {}", self.name(blob))));
            }
        }
        Ok(true)
    }

    fn compare(&self, content: &Content, offset: usize, len: usize, data: &Bytes) -> Result<(), Trouble> {
        if data.len() != len {
            return Err(Trouble::Wrong(format!("{} bytes were read instead of {len} of {content:?}", data.len())));
        }
        content.check(offset, data).map_err(Trouble::Wrong)?;
        self.surroundings.ledger.compared(len);
        Ok(())
    }

    /// Reads an acknowledged blob. Fails with [`Trouble::Wrong`] if the server does not have it.
    async fn find(&self, blob: &Blob) -> Result<(), Trouble> {
        match self.read(blob).await? {
            true => Ok(()),
            false => Err(Trouble::Wrong(format!("the acknowledged blob {} is lost", self.name(blob)))),
        }
    }

    /// Deletes the oldest acknowledged blob.
    async fn delete_oldest(&mut self) -> Result<(), Trouble> {
        let Some(blob) = self.stored.pop_front() else { return Ok(()) };
        let name = self.name(&blob);
        self.surroundings.ledger.called();
        match self.client.delete(&wire_name(&name)).await {
            Ok(BlobStatus::BlobOk) => Ok(()),
            // Calls of DELETE that may have been executed are not repeated.
            Ok(BlobStatus::BlobNoSuchBlob) => Err(Trouble::Wrong(format!("the acknowledged blob {name} is lost"))),
            other => {
                self.doomed.push_back(name);
                Err(other.map_or_else(Trouble::from, |status| refused("DELETE", status)))
            }
        }
    }

    /// Reads the oldest uncertain blob if there are more than [`MAX_UNCERTAIN`], and adds its name to `doomed`. Then
    /// deletes the first name in `doomed`.
    async fn clean(&mut self) -> Result<(), Trouble> {
        if self.uncertain.len() > MAX_UNCERTAIN
            && let Some(blob) = self.uncertain.pop_front()
        {
            self.doomed.push_back(self.name(&blob));
            self.read(&blob).await?;
        }
        if let Some(name) = self.doomed.front() {
            self.surroundings.ledger.called();
            match self.client.delete(&wire_name(name)).await? {
                BlobStatus::BlobOk | BlobStatus::BlobNoSuchBlob => _ = self.doomed.pop_front(),
                status => return Err(refused("DELETE", status)),
            }
        }
        Ok(())
    }

    /// Lists all blobs of this worker. Acknowledged blobs must be listed. Blobs that the worker does not know are
    /// deleted later.
    async fn list(&mut self) -> Result<(), Trouble> {
        let prefix = self.prefix();
        let mut listed = BTreeMap::new();
        let mut cookie = prefix.clone();
        loop {
            self.surroundings.ledger.called();
            let args = ListArgs { cookie: cookie.as_str().into(), count: BLOB_LIST_MAX };
            let page = match self.client.list(&args).await? {
                ListRes::BlobOk(page) => page,
                ListRes::Default(status) => return Err(refused("LIST", status)),
            };
            let Some(last) = page.entries.last() else { break };
            cookie = last.name.0.to_string();
            let is_last = page.end || !cookie.starts_with(&prefix);
            listed.extend(page.entries.into_iter().map(|entry| (entry.name.0.to_string(), entry.stat.size)));
            if is_last {
                break;
            }
        }
        for blob in &self.stored {
            let (name, size) = (self.name(blob), blob.data.len as u64);
            match listed.remove(&name) {
                Some(is) if is == size => {}
                other => return Err(Trouble::Wrong(format!("{name} of {size} bytes is listed with {other:?} bytes"))),
            }
        }
        let known: Vec<String> = self.uncertain.iter().map(|blob| self.name(blob)).collect();
        let is_late = |name: &String| name.starts_with(&prefix) && !known.contains(name) && !self.doomed.contains(name);
        let late: Vec<String> = listed.into_keys().filter(is_late).collect();
        self.doomed.extend(late);
        Ok(())
    }
}

impl Work for BlobWork {
    fn surroundings(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }

    async fn step(&mut self) -> Result<(), Trouble> {
        let stored = self.stored.len();
        match self.surroundings.random.u8(..40) {
            0 => self.list().await,
            1..4 => self.clean().await,
            4..20 if stored > 0 => {
                let blob = self.stored[self.surroundings.random.usize(..stored)];
                self.find(&blob).await
            }
            _ if stored >= MAX_STORED => self.delete_oldest().await,
            _ => self.store().await,
        }
    }

    fn effects(&self) -> usize {
        self.stored.len()
    }

    async fn check(&mut self, effect: usize) -> Result<(), Trouble> {
        let blob = self.stored[effect];
        self.find(&blob).await
    }

    fn regions(&self) -> u32 {
        self.channel.counters().exposed_regions
    }
}

fn wire_name(name: &str) -> BlobName {
    BlobName(name.into())
}

/// Converts a status other than success to the trouble that a worker reports.
fn refused(procedure: &str, status: BlobStatus) -> Trouble {
    let text = format!("{procedure}: {}", RefusedStatus(status));
    match status {
        BlobStatus::BlobBusy | BlobStatus::BlobNoSpace | BlobStatus::BlobIoError | BlobStatus::BlobNoSuchUpload => {
            Trouble::Failed(text)
        }
        _ => Trouble::Wrong(text),
    }
}
