//! The servers under attack: child processes, their addresses and their memory.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use rpcrdma_trials::process::{ChildProcess, program};
use tempfile::TempDir;
use tokio::process::Command;

/// Allowed growth of a server's memory beyond its limit, in bytes. Buffers, tables and threads are not counted by the
/// limit.
const ALLOWED_GROWTH: u64 = 64 << 20;

/// A running server process. Dropping this value kills the process, and removes the files of the server.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: ChildProcess,
    folder: TempDir,
    memory_at_start: u64,
    max_memory: u64,
}

impl ServerProcess {
    /// Starts a program whose files are in `folder`, and waits until the program has printed `count` URLs.
    pub(crate) async fn start(
        command: Command,
        folder: TempDir,
        count: usize,
        max_memory: u64,
    ) -> anyhow::Result<Self> {
        let child = ChildProcess::start(command, count, Some(folder.path().join("stderr"))).await?;
        let memory_at_start = child.memory()?.resident;
        Ok(Self { child, folder, memory_at_start, max_memory })
    }

    /// Returns the address of the printed URL with this index.
    pub(crate) fn address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        self.child.address(index)
    }

    /// Returns the directory of the server's files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the peak growth of the server's memory since its start, and the limit of this growth, in bytes.
    pub(crate) fn growth(&self) -> anyhow::Result<(u64, u64)> {
        let memory = self.child.memory()?;
        let peak = memory.peak.max(memory.resident);
        Ok((peak.saturating_sub(self.memory_at_start), self.max_memory + ALLOWED_GROWTH))
    }

    /// Checks that the server runs, and that nothing in it has panicked.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.child.check()
    }

    /// Kills the server with SIGKILL, and returns its directory.
    pub(crate) async fn kill(mut self) -> anyhow::Result<TempDir> {
        self.child.kill().await?;
        Ok(self.folder)
    }
}

/// A running `nfs3d`.
#[derive(Debug)]
pub(crate) struct NfsServer {
    pub(crate) process: ServerProcess,
    /// The exported directory.
    pub(crate) root: PathBuf,
    pub(crate) tcp: SocketAddr,
    pub(crate) iwarp: SocketAddr,
    pub(crate) mount: SocketAddr,
}

/// Size of [`VICTIM_FILE`] and of [`LARGE_FILE`], in bytes.
pub(crate) const FILE_LEN: usize = 4 << 20;
/// The file that the victim reads and writes.
pub(crate) const VICTIM_FILE: &str = "victim";
/// The file that attackers read. A client writes it in the attack on STags.
pub(crate) const LARGE_FILE: &str = "large";

impl NfsServer {
    /// Starts `nfs3d` with a memory limit of `max_memory` bytes and other options.
    pub(crate) async fn start(programs: &Path, max_memory: u64, options: &[&str]) -> anyhow::Result<Self> {
        let (folder, root) = prepare_export()?;
        let mut command = program(programs, "nfs3d");
        command.arg("--root").arg(&root).arg("--state").arg(folder.path().join("state"));
        command.args(["--no-root-squash", "--mount", "tcp://127.0.0.1:0", "--max-memory", &max_memory.to_string()]);
        command.args(["--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0"]).args(options);
        let process = ServerProcess::start(command, folder, 3, max_memory).await?;
        let (tcp, iwarp, mount) = (process.address(0)?, process.address(1)?, process.address(2)?);
        Ok(Self { process, root, tcp, iwarp, mount })
    }

    /// Returns the address of a transport: `tcp` or `iwarp`.
    pub(crate) fn address(&self, transport: &str) -> SocketAddr {
        if transport == "tcp" { self.tcp } else { self.iwarp }
    }
}

/// Creates a directory to export, with the files of the victim and of the attackers. The directory is inside a
/// temporary directory, which is removed on drop.
pub(crate) fn prepare_export() -> anyhow::Result<(TempDir, PathBuf)> {
    let folder = tempfile::tempdir().context("cannot create a directory for a server")?;
    let root = folder.path().canonicalize()?.join("root");
    fs::create_dir(&root)?;
    // Anonymous callers may create files, so that their calls get as far as possible.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777))?;
    for file in [VICTIM_FILE, LARGE_FILE] {
        fs::write(root.join(file), vec![7; FILE_LEN])?;
        fs::set_permissions(root.join(file), fs::Permissions::from_mode(0o644))?;
    }
    Ok((folder, root))
}

/// A running `blobstore serve`.
#[derive(Debug)]
pub(crate) struct BlobServer {
    pub(crate) process: ServerProcess,
    pub(crate) tcp: SocketAddr,
}

impl BlobServer {
    /// Starts `blobstore serve` with a memory limit of `max_memory` bytes.
    pub(crate) async fn start(programs: &Path, max_memory: u64) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("cannot create a directory for a server")?;
        let mut command = program(programs, "blobstore");
        command.arg("serve").arg("--root").arg(folder.path().join("root"));
        command.args(["--listen", "tcp://127.0.0.1:0", "--max-memory", &max_memory.to_string()]);
        let process = ServerProcess::start(command, folder, 1, max_memory).await?;
        let tcp = process.address(0)?;
        Ok(Self { process, tcp })
    }
}
