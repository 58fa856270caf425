//! The workload of nfs3d, with the client library of nfscp: files are created, written in ranges, committed, read by
//! their handles, listed and removed. A name is used for one content only.

use std::{collections::VecDeque, ffi::OsString, time::Duration};

use rpcrdma_examples::{
    command::chain,
    nfscp::{
        client::{Cookie, Nfs, Options},
        error::CopyError,
        location::{Location, NfsUrl},
        mount::{MountOptions, Mounted},
    },
};
use rpcrdma_specs::nfs3::{NfsFh3, Nfsstat3, StableHow, Writeverf3};

use crate::{
    content::Content,
    ledger::Trouble,
    work::{Surroundings, Work, own_credential},
};

/// Number of files of a worker above which the oldest is removed.
const MAX_STORED: usize = 10;
/// Time limit of each attempt of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a call is retried.
const RETRY_FOR: Duration = Duration::from_secs(10);
/// Maximum number of times that the data of a file is written. A restarted server may have lost the data.
const ROUNDS: usize = 5;

/// Numbers of bytes in a READ or WRITE. With few sizes, the server's pool of buffers soon reaches its final size.
const RANGES: [usize; 3] = [16 << 10, 64 << 10, 256 << 10];

/// A file that the server has committed.
#[derive(Debug, Clone)]
struct StoredFile {
    name: String,
    handle: NfsFh3,
    content: Content,
}

/// A connection to the server, with the handle of the worker's directory.
#[derive(Debug)]
struct Connected {
    nfs: Nfs,
    directory: NfsFh3,
}

/// A worker that creates, reads and removes files with the client library of `nfscp`.
#[derive(Debug)]
pub(crate) struct FileWork {
    surroundings: Surroundings,
    /// URL of the export.
    url: String,
    /// Port of MOUNT. `None` if rpcbind knows it.
    mount_port: Option<u16>,
    connected: Option<Connected>,
    next: u64,
    stored: VecDeque<StoredFile>,
    /// Names of incomplete files, and of files that are to be removed.
    doomed: VecDeque<String>,
}

/// Converts an error to the trouble that a worker reports. `must_exist` is `true` if it is a fault that a file does not
/// exist.
fn trouble(error: &CopyError, must_exist: bool) -> Trouble {
    let text = chain(error);
    match error {
        CopyError::Nfs { status, .. } => match status.0 {
            Nfsstat3::Nospc | Nfsstat3::Io | Nfsstat3::Jukebox | Nfsstat3::Serverfault => Trouble::Failed(text),
            Nfsstat3::Noent | Nfsstat3::Stale | Nfsstat3::Badhandle if !must_exist => Trouble::Failed(text),
            _ => Trouble::Wrong(text),
        },
        CopyError::Call(error) => error.into(),
        CopyError::Unresponsive { .. }
        | CopyError::Connect(_)
        | CopyError::NoMount { .. }
        | CopyError::NeverStable(_) => Trouble::Failed(text),
        _ => Trouble::Wrong(text),
    }
}

impl FileWork {
    pub(crate) fn new(surroundings: Surroundings, url: String, mount_port: Option<u16>) -> Self {
        let (stored, doomed) = Default::default();
        Self { surroundings, url, mount_port, connected: None, next: 0, stored, doomed }
    }

    /// Connects, mounts the export and creates the worker's directory. Does nothing if the worker is connected.
    async fn connect(&mut self) -> Result<(), Trouble> {
        if self.connected.is_some() {
            return Ok(());
        }
        let connected = self.mount().await.map_err(|error| match error.downcast_ref::<CopyError>() {
            Some(error) => trouble(error, false),
            None => Trouble::Wrong(format!("{error:#}")),
        })?;
        self.connected = Some(connected);
        Ok(())
    }

    async fn mount(&self) -> anyhow::Result<Connected> {
        let url: NfsUrl = match Location::parse(OsString::from(&self.url))? {
            Location::Remote(url) => url,
            Location::Local(path) => anyhow::bail!("{} is not on a server", path.display()),
        };
        let credential = own_credential(self.surroundings.id).to_opaque()?;
        let mut options = Options::default();
        options.jobs = 8;
        options.connect_timeout = CALL_TIMEOUT;
        options.call_timeout = CALL_TIMEOUT;
        options.retry_for = RETRY_FOR;
        options.credential = credential.clone();
        let mut mount = MountOptions::default();
        mount.port = self.mount_port;
        mount.timeout = CALL_TIMEOUT;
        mount.credential = credential;
        let ledger = &self.surroundings.ledger;
        ledger.called();
        let nfs = Nfs::connect(&url.transport_url(), options).await?;
        ledger.called();
        let mounted = Mounted::mount(&url, mount).await?;
        let nfs = nfs.for_file_system(&mounted.root).await?;
        ledger.called();
        let name = format!("files-{}", self.surroundings.id);
        let (directory, _) = nfs.mkdir(&mounted.root, name.as_bytes(), 0o755).await?;
        Ok(Connected { nfs, directory: directory.handle })
    }

    fn connected(&self) -> Result<&Connected, Trouble> {
        self.connected.as_ref().ok_or_else(|| Trouble::Failed("not connected".to_owned()))
    }

    /// Creates and writes a file, and waits until it is committed.
    async fn store(&mut self) -> Result<(), Trouble> {
        let random = &mut self.surroundings.random;
        let len = if random.u8(..4) == 0 { random.usize(..2 << 20) } else { random.usize(..100 << 10) };
        let range = RANGES[random.usize(..RANGES.len())];
        let key = (self.surroundings.id << 32) | self.next;
        self.next += 1;
        let (name, content) = (format!("file-{key}"), Content { key, version: 0, len });
        match self.write(&name, content, range).await {
            Ok(handle) => {
                self.stored.push_back(StoredFile { name, handle, content });
                self.surroundings.ledger.acknowledged();
                Ok(())
            }
            Err(error) => {
                self.doomed.push_back(name);
                Err(error)
            }
        }
    }

    async fn write(&self, name: &str, content: Content, range: usize) -> Result<NfsFh3, Trouble> {
        let (Connected { nfs, directory }, ledger) = (self.connected()?, &self.surroundings.ledger);
        let failed = |error: CopyError| trouble(&error, false);
        ledger.called();
        let file = nfs.create(directory, name.as_bytes(), 0o644).await.map_err(failed)?.handle;
        let mut missing: Vec<usize> = (0..content.len).step_by(range).collect();
        for _ in 0..ROUNDS {
            let mut written: Vec<(usize, Writeverf3)> = Vec::new();
            for &begin in &missing {
                let (mut offset, end) = (begin, content.len.min(begin + range));
                while offset < end {
                    ledger.called();
                    let data = content.bytes(offset, end - offset);
                    let result = nfs.write(&file, offset as u64, data, StableHow::Unstable).await.map_err(failed)?;
                    if result.committed == StableHow::Unstable {
                        written.push((begin, result.verf));
                    }
                    offset += result.count as usize;
                }
            }
            ledger.called();
            let committed = nfs.commit(&file).await.map_err(failed)?;
            // Another verifier means that the server has restarted and may have lost the data (RFC 1813 §3.3.7).
            missing = written.into_iter().filter(|(_, of)| *of != committed).map(|(begin, _)| begin).collect();
            missing.dedup();
            if missing.is_empty() {
                return Ok(file);
            }
        }
        Err(Trouble::Failed("the server has restarted before each COMMIT".to_owned()))
    }

    /// Reads a committed file by its handle, which stays valid after restarts, and compares all of its data.
    async fn read(&self, file: &StoredFile, range: usize) -> Result<(), Trouble> {
        let (Connected { nfs, .. }, ledger) = (self.connected()?, &self.surroundings.ledger);
        let (mut offset, content) = (0, file.content);
        loop {
            ledger.called();
            let read = nfs.read(&file.handle, offset as u64, range as u32).await;
            let (data, is_end) = read.map_err(|error| match trouble(&error, true) {
                Trouble::Wrong(text) => Trouble::Wrong(format!("the committed file {}: {text}", file.name)),
                failed => failed,
            })?;
            content.check(offset, &data).map_err(Trouble::Wrong)?;
            ledger.compared(data.len());
            offset += data.len();
            if is_end != (offset == content.len) || (data.is_empty() && !is_end) {
                return Err(Trouble::Wrong(format!("READ reports the end of {} at {offset}: {is_end}", file.name)));
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Lists the directory. Committed files must be in it.
    async fn list(&self) -> Result<(), Trouble> {
        let (Connected { nfs, directory }, ledger) = (self.connected()?, &self.surroundings.ledger);
        let (mut listed, mut cookie) = (Vec::new(), Some(Cookie::default()));
        while let Some(at) = cookie {
            ledger.called();
            let (entries, next) = nfs.list(directory, &at).await.map_err(|error| trouble(&error, true))?;
            listed.extend(entries.into_iter().map(|entry| entry.name));
            cookie = next;
        }
        match self.stored.iter().find(|file| !listed.iter().any(|name| *name == file.name.as_bytes())) {
            Some(file) => Err(Trouble::Wrong(format!("the committed file {} is not listed", file.name))),
            None => Ok(()),
        }
    }

    /// Removes the first file in `doomed`.
    async fn remove(&mut self) -> Result<(), Trouble> {
        let Some(name) = self.doomed.front() else { return Ok(()) };
        let Connected { nfs, directory } = self.connected()?;
        self.surroundings.ledger.called();
        nfs.remove(directory, name.as_bytes()).await.map_err(|error| trouble(&error, false))?;
        self.doomed.pop_front();
        Ok(())
    }
}

impl Work for FileWork {
    fn surroundings(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }

    async fn step(&mut self) -> Result<(), Trouble> {
        self.connect().await?;
        if self.stored.len() > MAX_STORED
            && let Some(file) = self.stored.pop_front()
        {
            self.doomed.push_back(file.name);
        }
        let stored = self.stored.len();
        match self.surroundings.random.u8(..40) {
            0 => self.list().await,
            1..20 if stored > 0 => {
                let file = self.stored[self.surroundings.random.usize(..stored)].clone();
                let range = RANGES[self.surroundings.random.usize(..RANGES.len())];
                self.read(&file, range).await
            }
            20..30 if !self.doomed.is_empty() => self.remove().await,
            _ => self.store().await,
        }
    }

    fn effects(&self) -> usize {
        self.stored.len()
    }

    async fn check(&mut self, effect: usize) -> Result<(), Trouble> {
        let file = self.stored[effect].clone();
        self.read(&file, 256 << 10).await
    }

    fn regions(&self) -> u32 {
        match &self.connected {
            Some(Connected { nfs, .. }) => nfs.channels().counters().exposed_regions,
            None => 0,
        }
    }
}
