//! The servers under attack: child processes, their addresses and their memory.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rpcrdma::transport::Url;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

/// Maximum time for a server to start.
const MAX_START: Duration = Duration::from_secs(20);
/// Growth of a server's memory beyond its limit that is allowed: buffers, tables and threads, which the limit does not count.
const ALLOWED_GROWTH: u64 = 64 << 20;

/// A running server. It is killed when this is dropped, and its files are removed.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    folder: TempDir,
    /// The addresses in the order in which the program prints them.
    addresses: Vec<SocketAddr>,
    memory_at_start: u64,
    max_memory: u64,
}

/// The memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessMemory {
    resident: u64,
    peak: u64,
}

impl ServerProcess {
    /// Starts a program in a directory of its own. Waits until it has printed `count` URLs.
    pub(crate) async fn start(
        mut command: Command,
        folder: TempDir,
        count: usize,
        max_memory: u64,
    ) -> anyhow::Result<Self> {
        let errors = fs::File::create(folder.path().join("stderr")).context("cannot store the server's messages")?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors).kill_on_drop(true);
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("cannot start {name}, build it or use --programs"))?;
        let stdout = child.stdout.take().context("the server has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut addresses = Vec::new();
        let read = async {
            while addresses.len() < count {
                let Some(line) = lines.next_line().await? else { bail!("it ended") };
                // `NFS on tcp://127.0.0.1:2049`
                if let Some((_, url)) = line.split_once(" on ") {
                    let url: Url = url.parse()?;
                    addresses.push(format!("{}:{}", url.host(), url.port()).parse()?);
                }
            }
            Ok(())
        };
        let started = timeout(MAX_START, read).await.unwrap_or_else(|_| bail!("it did not start in time"));
        if let Err(error) = started {
            return Err(error.context(format!("{name} does not serve: {}", last_line(folder.path()))));
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let mut this = Self { child, folder, addresses, memory_at_start: 0, max_memory };
        this.memory_at_start = this.memory()?.resident;
        Ok(this)
    }

    pub(crate) fn address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        self.addresses.get(index).copied().context("the server has printed too few URLs")
    }

    /// Returns the directory of the server's files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn memory(&self) -> anyhow::Result<ProcessMemory> {
        let id = self.child.id().context("the server has ended")?;
        let status = fs::read_to_string(format!("/proc/{id}/status")).context("cannot read the server's memory")?;
        parse_memory(&status).context("/proc/PID/status has no memory: the server has ended")
    }

    /// Returns the growth of the server's memory since its start, at its peak, and the limit for this.
    pub(crate) fn growth(&self) -> anyhow::Result<(u64, u64)> {
        let memory = self.memory()?;
        let peak = memory.peak.max(memory.resident);
        Ok((peak.saturating_sub(self.memory_at_start), self.max_memory + ALLOWED_GROWTH))
    }

    /// Checks that the server runs, and that nothing in it has panicked.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server has ended ({status}): {}", last_line(self.folder.path()));
        }
        let said = standard_error(self.folder.path());
        if let Some(line) = said.lines().find(|line| line.contains("panicked at")) {
            bail!("the server has panicked: {line}");
        }
        Ok(())
    }

    /// Kills the server with SIGKILL, and returns its directory.
    pub(crate) async fn kill(mut self) -> anyhow::Result<TempDir> {
        self.child.kill().await.context("cannot kill the server")?;
        Ok(self.folder)
    }
}

/// Returns what a server has printed to standard error.
fn standard_error(folder: &Path) -> String {
    String::from_utf8_lossy(&fs::read(folder.join("stderr")).unwrap_or_default()).into_owned()
}

/// Returns the last line that a server has printed to standard error.
fn last_line(folder: &Path) -> String {
    standard_error(folder).lines().next_back().unwrap_or("it printed nothing").to_owned()
}

/// Reads the memory in `/proc/PID/status`. `None` for a process that has ended.
fn parse_memory(status: &str) -> Option<ProcessMemory> {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    };
    Some(ProcessMemory { resident: of("VmRSS:")?, peak: of("VmHWM:")? })
}

/// Returns a command that starts one of the programs under attack.
pub(crate) fn program(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(folder.join(name));
    // Variables of the user's environment must not change the limits.
    for variable in ["RUST_LOG", "RUST_BACKTRACE", "STATE_DIRECTORY", "NOTIFY_SOCKET"] {
        command.env_remove(variable);
    }
    command
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

/// Size of the prepared files, in bytes.
pub(crate) const FILE_LEN: usize = 4 << 20;
/// The file that the victim reads and writes.
pub(crate) const VICTIM_FILE: &str = "victim";
/// The file that attackers read.
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

/// Creates a directory to export, in another one, which is removed on drop.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read() {
        let status = "Name:\tnfs3d\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_memory(status), Some(ProcessMemory { resident: 1 << 20, peak: 2 << 20 }));
        assert_eq!(parse_memory("Name:\tnfs3d\nState:\tZ (zombie)\n"), None);
    }
}
