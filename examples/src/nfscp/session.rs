//! Which server, which export, from where to where.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use super::{
    client::{Nfs, Options},
    copy::{Copier, CopyOptions, Counts, Task, Watcher},
    error::CopyError,
    location::{NfsUrl, base_name, os_name, os_path},
    mount::{MountOptions, Mounted},
    resolve::{Resolved, resolve},
};

/// A server that is connected to, and those of its exports that are in use.
#[derive(Debug)]
pub struct Session {
    transport: String,
    server: Nfs,
    exports: Vec<Export>,
    mount: MountOptions,
}

/// A mounted export.
#[derive(Debug)]
struct Export {
    nfs: Nfs,
    mounted: Mounted,
}

impl Session {
    /// Connects to the server that `url` names. With `root`, that is the handle of the one export, and MOUNT is not asked.
    ///
    /// # Errors
    /// When it is not there, or no NFS 3 server.
    pub async fn connect(
        url: &NfsUrl,
        options: Options,
        mount: MountOptions,
        root: Option<Bytes>,
    ) -> Result<Self, CopyError> {
        let server = Nfs::connect(&url.transport(), options).await?;
        let mut exports = Vec::new();
        if let Some(data) = root {
            let mounted = Mounted::known(rpcrdma_specs::nfs3::NfsFh3 { data });
            exports.push(Export { nfs: server.for_file_system(&mounted.root).await?, mounted });
        }
        Ok(Self { transport: url.transport(), server, exports, mount })
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &Nfs {
        &self.server
    }

    /// The export that `url` is in, and its path there; mounts it if need be.
    async fn export(&mut self, url: &NfsUrl) -> Result<(usize, Vec<u8>), CopyError> {
        if url.transport() != self.transport {
            return Err(CopyError::Unfit("all that is remote must be on one server, by one transport".into()));
        }
        for (index, export) in self.exports.iter().enumerate() {
            if let Some(path) = export.mounted.inside(url.path()) {
                return Ok((index, path));
            }
        }
        let mounted = Mounted::mount(url, self.mount.clone()).await?;
        let path = mounted.inside(url.path()).unwrap_or_default();
        self.exports.push(Export { nfs: self.server.for_file_system(&mounted.root).await?, mounted });
        Ok((self.exports.len() - 1, path))
    }

    async fn resolve(&mut self, url: &NfsUrl) -> Result<(usize, Resolved), CopyError> {
        let (index, path) = self.export(url).await?;
        let export = &self.exports[index];
        Ok((index, resolve(&export.nfs, &export.mounted, &path).await?))
    }

    /// Copies `sources`, of this machine, to `target`: into it if it is a directory, else under its name.
    ///
    /// # Errors
    /// When the target cannot be what is wanted. What fails on the way is counted and told to `watcher`.
    pub async fn upload(
        &mut self,
        sources: &[PathBuf],
        target: &NfsUrl,
        options: CopyOptions,
        watcher: &dyn Watcher,
    ) -> Result<Counts, CopyError> {
        let (index, target) = self.resolve(target).await?;
        let nfs = self.exports[index].nfs.clone();
        let mut tasks = Vec::new();
        for source in sources {
            let (dir, name) = match &target {
                Resolved::Found { node, .. } if node.is_dir() => (node.handle.clone(), name_of(source)?),
                _ if sources.len() > 1 => return Err(not_a_directory()),
                Resolved::Found { entry: Some(entry), .. } => entry.clone(),
                Resolved::Found { entry: None, .. } => return Err(not_a_directory()),
                Resolved::Absent { dir, name } => (dir.handle.clone(), name.clone()),
            };
            tasks.push(Task::Upload { source: source.clone(), follow: true, dir, name });
        }
        Ok(Copier::new(&nfs, options, watcher).run(tasks).await)
    }

    /// Copies `sources`, of the server, to `target`: into it if it is a directory, else under its name.
    ///
    /// # Errors
    /// When a source or the target is not there. What fails on the way is counted and told to `watcher`.
    pub async fn download(
        &mut self,
        sources: &[NfsUrl],
        target: &Path,
        options: CopyOptions,
        watcher: &dyn Watcher,
    ) -> Result<Counts, CopyError> {
        let into_directory = fs::metadata(target).is_ok_and(|meta| meta.is_dir());
        if sources.len() > 1 && !into_directory {
            return Err(not_a_directory());
        }
        let mut tasks: Vec<Vec<Task>> = Vec::new();
        for url in sources {
            let (index, found) = self.resolve(url).await?;
            let shown = os_path(url.path());
            let Resolved::Found { node, .. } = found else {
                return Err(CopyError::Unfit(format!("there is no {}", shown.display())));
            };
            let target = match base_name(url.path()) {
                Some(name) if into_directory => target.join(os_name(name)),
                _ => followed(target),
            };
            tasks.resize_with(tasks.len().max(index + 1), Vec::new);
            let (dir, name) = (node.handle.clone(), Bytes::new());
            tasks[index].push(Task::Download { dir, name, node: Some(node), shown, target });
        }
        let mut total = Counts::default();
        for (export, tasks) in self.exports.iter().zip(tasks) {
            let counts = Copier::new(&export.nfs, options, watcher).run(tasks).await;
            total = total.plus(counts);
        }
        Ok(total)
    }

    /// The most calls with data that have been under way at a time.
    #[must_use]
    pub fn most_under_way(&self) -> usize {
        self.server.most_under_way()
    }

    /// Unmounts, and closes the connection in order.
    pub async fn close(self) {
        for export in self.exports {
            export.mounted.unmount().await;
        }
        self.server.channel().close().await;
    }
}

fn not_a_directory() -> CopyError {
    CopyError::Unfit("several sources need a directory to go to, which is there".into())
}

/// The name that `source` has; that of `.` is asked of the system.
fn name_of(source: &Path) -> Result<Bytes, CopyError> {
    let real;
    let name = match source.file_name() {
        Some(name) => Some(name),
        None => {
            real = fs::canonicalize(source)?;
            real.file_name()
        }
    };
    let name = name.ok_or_else(|| CopyError::Unfit(format!("{} has no name", source.display())))?;
    Ok(Bytes::copy_from_slice(name.as_encoded_bytes()))
}

/// A symbolic link to a file is written through, as long as it was named on the command line.
fn followed(target: &Path) -> PathBuf {
    fs::canonicalize(target).unwrap_or_else(|_| target.to_owned())
}
