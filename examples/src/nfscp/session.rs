//! A connection to a server, with its mounted exports, for copies from and to the server.

use std::{
    fs,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::command::{ClientSec, Flavor, Kerberos};

use super::{
    client::{Nfs, Options},
    copy::{Copier, CopyObserver, CopyOptions, Counts, Task},
    error::CopyError,
    location::{NfsUrl, base_name, os_name, os_path},
    mount::{MountOptions, Mounted, nfs_url},
    resolve::{Resolved, resolve},
};

/// A connected server and its mounted exports.
#[derive(Debug)]
pub struct Session {
    /// The transport URL of the server as the user named it, without the port that rpcbind lists.
    named: String,
    /// The URL of the connections, with the port that rpcbind lists if the user gave none.
    transport: String,
    server: Nfs,
    exports: Vec<MountedExport>,
    mount: MountOptions,
    sec: ClientSec,
    /// The security flavor of the calls.
    flavor: Flavor,
}

/// A mounted export, with a client that uses the limits of its file system.
#[derive(Debug)]
struct MountedExport {
    nfs: Nfs,
    mounted: Mounted,
}

impl Session {
    /// Connects to the server in `url`. If `url` has no port, rpcbind is asked for it. If `root` is given, it is the
    /// root handle of the only export, and MOUNT is not used.
    ///
    /// Without a security flavor in `sec`, the session uses the first flavor from MOUNT that this program supports, or
    /// AUTH_SYS if MOUNT is not used. All exports use the same flavor.
    ///
    /// # Errors
    /// Fails if the server is unreachable or does not offer NFS version 3, if Kerberos is requested but not built in,
    /// or if FSINFO fails for `root`.
    pub async fn connect(
        url: &NfsUrl,
        mut options: Options,
        mount: MountOptions,
        sec: ClientSec,
        root: Option<Bytes>,
    ) -> Result<Self, CopyError> {
        let flavor = sec.sec.unwrap_or(Flavor::Sys);
        options.kerberos = kerberos(flavor, &sec, url)?;
        let transport = nfs_url(url, &mount).await;
        let server = Nfs::connect(&transport, options).await?;
        let mut exports = Vec::new();
        if let Some(data) = root {
            let mounted = Mounted::known(rpcrdma_specs::nfs3::NfsFh3 { data });
            exports.push(MountedExport { nfs: server.for_file_system(&mounted.root).await?, mounted });
        }
        Ok(Self { named: url.transport_url(), transport, server, exports, mount, sec, flavor })
    }

    /// Returns the URL of the server, with the port of its connections.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.transport
    }

    /// Returns the client of the server.
    #[must_use]
    pub fn server(&self) -> &Nfs {
        &self.server
    }

    /// Returns the index of the export that contains `url`, and the path within the export. Mounts the export if
    /// necessary. If the first export needs another security flavor than the current one, connects to the server again.
    async fn export(&mut self, url: &NfsUrl) -> Result<(usize, Vec<u8>), CopyError> {
        if url.transport_url() != self.named {
            return Err(CopyError::InvalidTarget("all remote paths must be on the same server and transport".into()));
        }
        for (index, export) in self.exports.iter().enumerate() {
            if let Some(path) = export.mounted.inside(url.path()) {
                return Ok((index, path));
            }
        }
        let mounted = Mounted::mount(url, self.mount.clone()).await?;
        let path = mounted.inside(url.path()).unwrap_or_default();
        // The first export decides.
        let wanted = if self.exports.is_empty() { self.sec.sec } else { Some(self.flavor) };
        let flavor = mounted.flavor(wanted)?;
        if flavor != self.flavor {
            let mut options = self.server.options().clone();
            options.kerberos = kerberos(flavor, &self.sec, url)?;
            self.server.channels().close().await;
            self.server = Nfs::connect(&self.transport, options).await?;
            self.flavor = flavor;
        }
        self.exports.push(MountedExport { nfs: self.server.for_file_system(&mounted.root).await?, mounted });
        Ok((self.exports.len() - 1, path))
    }

    async fn resolve(&mut self, url: &NfsUrl) -> Result<(usize, Resolved), CopyError> {
        let (index, path) = self.export(url).await?;
        let export = &self.exports[index];
        Ok((index, resolve(&export.nfs, &export.mounted, &path).await?))
    }

    /// Copies local `sources` to the server. If `target` is a directory, the copies are created in it. Otherwise,
    /// `target` is the path of the copy.
    ///
    /// # Errors
    /// Fails if the target is unusable, or is no directory although there are several sources. Failures of single files
    /// are counted and reported to `watcher`.
    pub async fn upload(
        &mut self,
        sources: &[PathBuf],
        target: &NfsUrl,
        options: CopyOptions,
        watcher: &dyn CopyObserver,
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

    /// Copies `sources` from the server. If the local `target` is a directory, the copies are created in it. Otherwise,
    /// `target` is the path of the copy.
    ///
    /// # Errors
    /// Fails if a source does not exist or the target is unusable. Failures of single files are counted and reported to
    /// `watcher`.
    pub async fn download(
        &mut self,
        sources: &[NfsUrl],
        target: &Path,
        options: CopyOptions,
        watcher: &dyn CopyObserver,
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
                return Err(CopyError::InvalidTarget(format!("no such file or directory: {}", shown.display())));
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

    /// Returns the largest number of READs and WRITEs that were in flight at the same time.
    #[must_use]
    pub fn most_in_flight(&self) -> usize {
        self.server.max_in_flight()
    }

    /// Unmounts all exports and closes the connections.
    pub async fn close(self) {
        for export in self.exports {
            export.mounted.unmount().await;
        }
        self.server.channels().close().await;
    }
}

fn kerberos(flavor: Flavor, sec: &ClientSec, url: &NfsUrl) -> Result<Option<Kerberos>, CopyError> {
    Ok(Kerberos::new(flavor, sec.service("nfs", url.host()))?)
}

fn not_a_directory() -> CopyError {
    CopyError::InvalidTarget("with several sources, the destination must be an existing directory".into())
}

/// Returns the file name of `source`. Paths without a file name, such as `.`, are canonicalized first.
fn name_of(source: &Path) -> Result<Bytes, CopyError> {
    let real;
    let name = match source.file_name() {
        Some(name) => Some(name),
        None => {
            real = fs::canonicalize(source)?;
            real.file_name()
        }
    };
    let name = name.ok_or_else(|| CopyError::InvalidTarget(format!("{} has no file name", source.display())))?;
    Ok(Bytes::copy_from_slice(name.as_encoded_bytes()))
}

/// Resolves the symbolic links in a target path, so that the copy is written where they lead. If the path does not
/// exist, returns it unchanged.
fn followed(target: &Path) -> PathBuf {
    fs::canonicalize(target).unwrap_or_else(|_| target.to_owned())
}
