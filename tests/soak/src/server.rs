//! The servers: child processes, each with a directory or small disk of its own, behind proxies.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command as StdCommand,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use rpcrdma_trials::{
    process::{ChildProcess, clean_environment, end_with_parent},
    proxy::{Link, Proxy},
};
use tokio::{
    process::Command,
    sync::{Mutex, MutexGuard},
    task::JoinSet,
};

use crate::{disk::SmallDisk, ledger::Ledger, work::Progress};

/// Memory limit of each server that has the option for it: blobstore and nfs3d.
const MAX_MEMORY: &str = "256MiB";
/// Maximum time for a server to end after SIGTERM.
const MAX_SHUTDOWN: Duration = Duration::from_secs(30);
/// The path under which `nfs3d` exports its directory.
pub(crate) const EXPORT: &str = "/soak";
/// The text that `nfs3d` prints at its end after `memory: ` if it holds no memory.
const NOTHING_HELD: &str = "0 buffers still held, 0 regions still exposed, 0 bytes still registered";

/// A service. `nfscp` copies files from and to `nfs3d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Service {
    Blobstore,
    Nfs3d,
    Nfscp,
    Counters,
}

impl Service {
    pub(crate) const ALL: [Self; 4] = [Self::Blobstore, Self::Nfs3d, Self::Nfscp, Self::Counters];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Blobstore => "blobstore",
            Self::Nfs3d => "nfs3d",
            Self::Nfscp => "nfscp",
            Self::Counters => "counters",
        }
    }
}

/// A transport. The order of the variants is the order in which servers print the URLs of their listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Tcp,
    Iwarp,
}

impl Scheme {
    pub(crate) fn name(self) -> &'static str {
        if self == Self::Tcp { "tcp" } else { "iwarp" }
    }
}

/// Options of the wrapper that starts a program.
#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Replaces this process with a program that ends with the parent of this process. Returns only if the program cannot
/// be started.
pub(crate) fn start(arguments: StartArgs) -> anyhow::Result<()> {
    end_with_parent()?;
    let (program, arguments) = arguments.command.split_first().context("there is no program")?;
    let error = StdCommand::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}, build it or use --programs", program.display()))
}

/// Returns a command that starts a program through the wrapper ([`start`]).
pub(crate) fn wrapped(program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    clean_environment(&mut command);
    command.args(["start", "--"]).arg(program);
    Ok(command)
}

/// The path to one listener of a server, through a proxy.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) link: Arc<Link>,
    /// The address of the proxy.
    pub(crate) address: SocketAddr,
    /// `true` if a checksum protects the data: iWARP's CRC (RFC 5044 §4.4). A proxy recomputes the checksums of plain
    /// TCP.
    pub(crate) is_checked: bool,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) service: Service,
    /// Progress of the server. Its name consists of the service and a number.
    pub(crate) progress: Arc<Progress>,
    /// `true` if the server is killed and restarted from time to time. The resources of other servers are sampled.
    pub(crate) is_killed: bool,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) disk: Option<SmallDisk>,
    /// The ways to the listeners for TCP and iWARP, and to MOUNT.
    pub(crate) ways: Vec<Way>,
    folder: PathBuf,
    programs: PathBuf,
    process: Mutex<ChildProcess>,
    _proxies: JoinSet<()>,
}

impl Server {
    /// Starts a server in a directory of its own. The directory is on a small disk if `has_disk` is `true`.
    pub(crate) async fn start(
        (service, number): (Service, u32),
        is_killed: bool,
        programs: &Path,
        folder: PathBuf,
        has_disk: bool,
        ledger: Arc<Ledger>,
    ) -> anyhow::Result<Self> {
        let data = folder.join("data");
        fs::create_dir_all(&data).context("cannot create a directory for a server")?;
        let disk = if has_disk { Some(SmallDisk::mount(&data)?) } else { None };
        fs::create_dir(data.join("root"))?;
        let process = Self::spawn(service, programs, &folder).await?;
        let (mut ways, mut proxies) = (Vec::new(), JoinSet::new());
        for index in 0..process.urls().len() {
            let link = Arc::new(Link::new());
            let proxy = Proxy::bind(Arc::clone(&link)).context("cannot start a proxy")?;
            ways.push(Way { link, address: proxy.address()?, is_checked: index == Scheme::Iwarp as usize });
            let ledger = Arc::clone(&ledger);
            proxies.spawn(async move {
                if let Err(error) = proxy.serve(|| ()).await {
                    ledger.fault(format!("a proxy has failed: {error}"));
                }
            });
        }
        let this = Self {
            service,
            progress: Arc::new(Progress::new(format!("{} {number}", service.name()))),
            is_killed,
            ledger,
            disk,
            ways,
            folder,
            programs: programs.to_owned(),
            process: Mutex::new(process),
            _proxies: proxies,
        };
        this.lead_ways(&*this.process().await)?;
        Ok(this)
    }

    /// Starts the process of a server, and waits until it has printed its URLs.
    async fn spawn(service: Service, programs: &Path, folder: &Path) -> anyhow::Result<ChildProcess> {
        let data = folder.join("data");
        let listen = ["--listen", "tcp://127.0.0.1:0", "--listen", "iwarp://127.0.0.1:0"];
        let limits = ["--max-memory", MAX_MEMORY];
        let (mut command, count) = match service {
            Service::Blobstore => {
                let mut command = wrapped(&programs.join("blobstore"))?;
                command.arg("serve").arg("--root").arg(data.join("root")).args(listen).args(limits);
                (command, 2)
            }
            Service::Nfs3d | Service::Nfscp => {
                let mut command = wrapped(&programs.join("nfs3d"))?;
                command.arg("--root").arg(data.join("root")).arg("--state").arg(folder.join("state"));
                command.args(["--no-root-squash", "--export", EXPORT, "--mount", "tcp://127.0.0.1:0"]);
                command.args(listen).args(limits);
                (command, 3)
            }
            Service::Counters => {
                let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
                clean_environment(&mut command);
                let store = data.join("root/counters.redb");
                let is_new = !store.try_exists()?;
                command.arg("serve-counters").arg("--report").arg("--store").arg(store).args(listen);
                command.args(is_new.then_some("--create"));
                (command, 2)
            }
        };
        if cfg!(feature = "introspection") && service != Service::Counters {
            command.args(["--introspection", "local"]);
        }
        ChildProcess::start(command, count, Some(folder.join("stderr"))).await
    }

    pub(crate) fn name(&self) -> &str {
        &self.progress.name
    }

    fn lead_ways(&self, process: &ChildProcess) -> anyhow::Result<()> {
        for (index, way) in self.ways.iter().enumerate() {
            way.link.lead_to(Some(process.address(index)?));
        }
        Ok(())
    }

    /// Locks and returns the process. Waits while the server is killed and restarted.
    pub(crate) async fn process(&self) -> MutexGuard<'_, ChildProcess> {
        self.process.lock().await
    }

    /// Returns the URL of a transport, through its proxy.
    pub(crate) fn url(&self, scheme: Scheme) -> String {
        format!("{}://{}", scheme.name(), self.ways[scheme as usize].address)
    }

    /// Returns the URL of a path in the export of `nfs3d`, through the proxy, and the port of MOUNT's proxy.
    pub(crate) fn nfs_url(&self, scheme: Scheme, path: &str) -> (String, u16) {
        let mount = self.ways.get(2).map_or(0, |way| way.address.port());
        (format!("nfs3+{}{EXPORT}/{path}", self.url(scheme)), mount)
    }

    /// Returns the directory that `nfs3d` exports.
    pub(crate) fn export(&self) -> PathBuf {
        self.folder.join("data/root")
    }

    /// Kills the server, and starts it again after `down`.
    pub(crate) async fn restart(&self, down: Duration) -> anyhow::Result<()> {
        let mut process = self.process().await;
        process.kill().await?;
        tokio::time::sleep(down).await;
        self.start_again(&mut process).await
    }

    async fn start_again(&self, process: &mut ChildProcess) -> anyhow::Result<()> {
        let again = Self::spawn(self.service, &self.programs, &self.folder).await;
        *process = again.with_context(|| format!("{} does not start again", self.name()))?;
        self.lead_ways(process)?;
        self.progress.restarted();
        Ok(())
    }

    /// Shuts the server down and starts it again. Checks that `nfs3d` has reported that it holds no memory. The
    /// counters server is killed, because it does not catch SIGTERM.
    pub(crate) async fn shut_down_and_start(&self) -> anyhow::Result<()> {
        let mut process = self.process().await;
        if self.service == Service::Counters {
            // It does not catch SIGTERM.
            process.kill().await?;
        } else {
            process.terminate(MAX_SHUTDOWN).await?;
        }
        let held = process.last_line("memory: ");
        self.start_again(&mut process).await?;
        let is_clean = self.service != Service::Nfs3d || held.as_deref() == Some(NOTHING_HELD);
        anyhow::ensure!(is_clean, "{} ends with memory: {held:?}", self.name());
        Ok(())
    }
}
