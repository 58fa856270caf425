//! The workload of a mounted file system, with the kernel's client: files are created, written in ranges, synchronized,
//! renamed, read back from the server, listed and removed. A name is used for one content only.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Advice, fadvise};
use tokio::task::spawn_blocking;

use crate::{
    content::Content,
    ledger::{Ledger, Trouble},
    work::{Surroundings, Work},
};

/// Number of files that a worker keeps. With more, it removes the oldest.
const MAX_STORED: usize = 10;
/// Sizes of single reads and writes, in bytes.
const RANGES: [usize; 3] = [4 << 10, 60_000, 1 << 20];

/// A worker that uses files in a mounted file system.
#[derive(Debug)]
pub(crate) struct MountedWork {
    surroundings: Surroundings,
    folder: PathBuf,
    next: u64,
    /// Files whose data and names are on the server.
    stored: VecDeque<Content>,
}

impl MountedWork {
    /// Creates a worker, and its directory in the mounted file system.
    pub(crate) fn new(surroundings: Surroundings, mounted: &Path) -> io::Result<Self> {
        let folder = mounted.join(format!("mounted-{}", surroundings.id));
        fs::create_dir(&folder)?;
        Ok(Self { surroundings, folder, next: 0, stored: VecDeque::new() })
    }

    /// Runs a blocking function with the worker's directory. Every error is a fault, because a hard mount waits for its
    /// server.
    async fn run<T: Send + 'static>(
        &self,
        what: &str,
        function: impl FnOnce(&Path, &Ledger) -> Result<T, String> + Send + 'static,
    ) -> Result<T, Trouble> {
        let (folder, ledger) = (self.folder.clone(), std::sync::Arc::clone(&self.surroundings.ledger));
        let done = spawn_blocking(move || function(&folder, &ledger)).await.map_err(|error| error.to_string());
        done.flatten()
            .map_err(|error| Trouble::Wrong(format!("cannot {what} at {}: {error}", self.surroundings.progress.name)))
    }

    async fn store(&mut self) -> Result<(), Trouble> {
        let random = &mut self.surroundings.random;
        let len = if random.u8(..4) == 0 { random.usize(..4 << 20) } else { random.usize(..100 << 10) };
        let range = RANGES[random.usize(..RANGES.len())];
        let content = Content { key: (self.surroundings.id << 32) | self.next, version: 0, len };
        self.next += 1;
        self.run("store a file", move |folder, ledger| {
            write(folder, ledger, content, range).map_err(|error| error.to_string())
        })
        .await?;
        self.stored.push_back(content);
        self.surroundings.ledger.acknowledged();
        Ok(())
    }

    async fn read(&self, content: Content, range: usize) -> Result<(), Trouble> {
        self.run("read a file", move |folder, ledger| read(folder, ledger, content, range)).await
    }

    async fn list(&self) -> Result<(), Trouble> {
        let stored = self.stored.clone();
        self.run("list a directory", move |folder, ledger| {
            ledger.called();
            let listed: Result<Vec<_>, _> = fs::read_dir(folder).and_then(Iterator::collect);
            let listed = listed.map_err(|error| error.to_string())?;
            let is_listed = |content: &Content| listed.iter().any(|entry| entry.file_name() == *name(*content));
            match stored.iter().find(|content| !is_listed(content)) {
                Some(content) => Err(format!("{} is not listed", name(*content))),
                None => Ok(()),
            }
        })
        .await
    }
}

fn name(content: Content) -> String {
    format!("file-{}", content.key)
}

/// Writes a file under another name, waits until the server has its data, and renames it.
fn write(folder: &Path, ledger: &Ledger, content: Content, range: usize) -> io::Result<()> {
    let unfinished = folder.join("unfinished");
    let mut file = File::create(&unfinished)?;
    for offset in (0..content.len).step_by(range) {
        ledger.called();
        file.write_all(&content.bytes(offset, range))?;
    }
    file.sync_all()?;
    let renamed = folder.join(name(content));
    match fs::rename(unfinished, &renamed) {
        // The kernel has sent the call twice, because the server was killed before its reply (RFC 1813 §4.5).
        Err(error) if error.kind() == io::ErrorKind::NotFound && renamed.try_exists()? => Ok(()),
        result => result,
    }
}

/// Reads a file from the server instead of the page cache, and compares all of it with `content`.
fn read(folder: &Path, ledger: &Ledger, content: Content, range: usize) -> Result<(), String> {
    let failed = |error: io::Error| format!("{}: {error}", name(content));
    let mut file = File::open(folder.join(name(content))).map_err(failed)?;
    // Without this, the kernel would read what it has written from its own memory.
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|error| failed(error.into()))?;
    let (mut offset, mut data) = (0, vec![0; range]);
    loop {
        ledger.called();
        let len = file.read(&mut data).map_err(failed)?;
        content.check(offset, &data[..len])?;
        ledger.compared(len);
        offset += len;
        if len == 0 {
            let is_complete = offset == content.len;
            return if is_complete { Ok(()) } else { Err(format!("{} ends at {offset}: {content:?}", name(content))) };
        }
    }
}

impl Work for MountedWork {
    fn surroundings(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }

    async fn step(&mut self) -> Result<(), Trouble> {
        if self.stored.len() > MAX_STORED
            && let Some(oldest) = self.stored.pop_front()
        {
            let remove = move |folder: &Path, ledger: &Ledger| {
                ledger.called();
                fs::remove_file(folder.join(name(oldest))).map_err(|error| error.to_string())
            };
            return self.run("remove a file", remove).await;
        }
        let stored = self.stored.len();
        match self.surroundings.random.u8(..40) {
            0 => self.list().await,
            1..20 if stored > 0 => {
                let content = self.stored[self.surroundings.random.usize(..stored)];
                let range = RANGES[self.surroundings.random.usize(..RANGES.len())];
                self.read(content, range).await
            }
            _ => self.store().await,
        }
    }

    fn effects(&self) -> usize {
        self.stored.len()
    }

    async fn check(&mut self, effect: usize) -> Result<(), Trouble> {
        self.read(self.stored[effect], 1 << 20).await
    }

    fn regions(&self) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_were_written() {
        let (folder, ledger) = (tempfile::tempdir().unwrap(), Ledger::default());
        let content = Content { key: 1, version: 0, len: 150_001 };
        let file = folder.path().join(name(content));
        for range in RANGES {
            write(folder.path(), &ledger, content, range).unwrap();
            assert_eq!(read(folder.path(), &ledger, content, range), Ok(()));
        }
        let data = fs::read(&file).unwrap();
        fs::write(&file, &data[..150_000]).unwrap();
        assert!(read(folder.path(), &ledger, content, 4096).unwrap_err().contains("ends at 150000"));
        let mut wrong = data.clone();
        wrong[140_000] ^= 1;
        fs::write(&file, wrong).unwrap();
        assert!(read(folder.path(), &ledger, content, 4096).unwrap_err().starts_with("1 wrong bytes"));
        fs::remove_file(&file).unwrap();
        assert!(read(folder.path(), &ledger, content, 4096).unwrap_err().starts_with("file-1: "));
    }
}
