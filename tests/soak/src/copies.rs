//! The workload of nfscp: directories are copied to nfs3d and back. A directory counts as copied if the exit status of
//! nfscp reports success.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::Child,
    sync::{Mutex, mpsc, oneshot},
    time::{sleep, timeout},
};

use crate::{
    content::Content,
    ledger::Trouble,
    server::{Scheme, Server, wrapped},
    work::{Surroundings, Work},
};

/// Maximum number of directories of a worker.
const MAX_STORED: usize = 3;
/// Maximum duration of a copy, even if the server is stopped or restarted in the meantime.
const MAX_COPY: Duration = Duration::from_secs(100);
/// Time limit of each call of nfscp, in seconds.
const CALL_SECONDS: &str = "5";
/// Time for which nfscp retries a call, in seconds.
const RETRY_SECONDS: &str = "20";
/// Maximum number of calls of nfscp in flight.
const JOBS: &str = "8";
/// Maximum number of bytes that each READ or WRITE of nfscp transfers. With larger calls, the server's pool of buffers
/// would grow for an hour.
const CHUNK: &str = "256KiB";

/// An order to disturb a running nfscp. The worker that executes it reports the execution to the sender of the order.
#[derive(Debug)]
pub(crate) enum Order {
    Kill(oneshot::Sender<()>),
    Stop(Duration, oneshot::Sender<()>),
}

/// A queue of orders to disturb copies in progress. Each order is executed by one of the workers.
pub(crate) type Orders = Mutex<mpsc::Receiver<Order>>;

/// A copied directory: its name, and its files.
#[derive(Debug, Clone)]
struct Copied {
    name: String,
    files: Vec<(String, Content)>,
}

/// A worker that copies directories with `nfscp`.
#[derive(Debug)]
pub(crate) struct CopyWork {
    surroundings: Surroundings,
    server: Arc<Server>,
    scheme: Scheme,
    orders: Arc<Orders>,
    program: PathBuf,
    /// Directory for local files.
    folder: PathBuf,
    next: u64,
    stored: VecDeque<Copied>,
}

impl CopyWork {
    pub(crate) fn new(
        surroundings: Surroundings,
        (server, scheme): (Arc<Server>, Scheme),
        programs: &Path,
        folder: &Path,
        orders: Arc<Orders>,
    ) -> anyhow::Result<Self> {
        let folder = folder.join(format!("copies-{}", surroundings.id));
        fs::create_dir(&folder).context("cannot create a directory for copies")?;
        let (program, stored) = (programs.join("nfscp"), VecDeque::new());
        Ok(Self { surroundings, server, scheme, orders, program, folder, next: 0, stored })
    }

    /// Runs nfscp.
    ///
    /// # Errors
    /// Returns [`Trouble::Failed`] with the last line of its error messages if it fails, and [`Trouble::Wrong`] if it
    /// cannot be run, panics or takes longer than [`MAX_COPY`].
    async fn run(&self, source: &str, target: &str, mount_port: u16) -> Result<(), Trouble> {
        let failed = |error: String| Trouble::Wrong(format!("nfscp cannot be run: {error}"));
        let mut command = wrapped(&self.program).map_err(|error| failed(format!("{error:#}")))?;
        command.args(["-r", "--quiet", "--timeout", CALL_SECONDS, "--retry", RETRY_SECONDS]);
        command.args(["--jobs", JOBS, "--chunk-size", CHUNK]);
        command.args(["--mount-port", &mount_port.to_string(), source, target]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let errors = child.stderr.take();
        let read = async move {
            let mut said = String::new();
            if let Some(mut errors) = errors {
                let _ = tokio::io::AsyncReadExt::read_to_string(&mut errors, &mut said).await;
            }
            said
        };
        let ended = timeout(MAX_COPY, async { tokio::join!(self.wait(&mut child), read) }).await;
        self.surroundings.ledger.called();
        let Ok((status, said)) = ended else {
            return Err(Trouble::Wrong(format!("nfscp goes on after {} s", MAX_COPY.as_secs())));
        };
        if said.contains("panicked at") {
            return Err(Trouble::Wrong(format!("nfscp has panicked: {said}")));
        }
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let line = said.lines().next_back().unwrap_or_default();
                Err(Trouble::Failed(format!("{status}: {line}")))
            }
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Waits for the end of nfscp, and executes orders in the meantime.
    async fn wait(&self, child: &mut Child) -> std::io::Result<std::process::ExitStatus> {
        loop {
            let order = tokio::select! {
                ended = child.wait() => return ended,
                Some(order) = async { self.orders.lock().await.recv().await } => order,
            };
            let Some(process) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else {
                continue;
            };
            match order {
                Order::Kill(done) => {
                    child.start_kill()?;
                    let _ = done.send(());
                }
                Order::Stop(duration, done) => {
                    // Not waited for meanwhile, so that the number remains that of the process.
                    kill_process(process, Signal::STOP)?;
                    sleep(duration).await;
                    kill_process(process, Signal::CONT)?;
                    let _ = done.send(());
                }
            }
        }
    }

    /// Copies a new directory to the server. Removes the oldest directory if there are more than [`MAX_STORED`].
    async fn upload(&mut self) -> Result<(), Trouble> {
        let (id, number) = (self.surroundings.id, self.next);
        self.next += 1;
        let name = format!("copy-{id}-{number}");
        let source = self.folder.join(&name);
        let random = &mut self.surroundings.random;
        let files: Vec<(String, Content)> = (0..random.u64(1..6))
            .map(|file| {
                let len = if random.u8(..3) == 0 { random.usize(..1 << 20) } else { random.usize(..64 << 10) };
                (format!("file-{file}"), Content { key: (id << 32) | number, version: file, len })
            })
            .collect();
        local(fs::create_dir(&source))?;
        for (file, content) in &files {
            local(fs::write(source.join(file), content.all()))?;
        }
        let (url, mount_port) = self.server.nfs_url(self.scheme, "");
        let copied = self.run(&source.to_string_lossy(), &url, mount_port).await;
        local(fs::remove_dir_all(&source))?;
        match copied {
            Ok(()) => {
                self.stored.push_back(Copied { name, files });
                self.surroundings.ledger.acknowledged();
            }
            Err(_) => self.remove(&name),
        }
        if self.stored.len() > MAX_STORED
            && let Some(oldest) = self.stored.pop_front()
        {
            self.remove(&oldest.name);
        }
        copied
    }

    /// Removes a directory from the server's disk, because nfscp cannot remove directories. The server may still be
    /// creating files in the directory. If the server does not run as root, it keeps up to 256 removed files open,
    /// which take room on its disk.
    fn remove(&self, name: &str) {
        let _ = fs::remove_dir_all(self.server.export().join(name));
    }

    /// Copies a directory back and compares all of its files.
    async fn download(&self, copied: &Copied) -> Result<(), Trouble> {
        let (url, mount_port) = self.server.nfs_url(self.scheme, &copied.name);
        let target = self.folder.join("back");
        local(fs::create_dir(&target))?;
        let result = self.run(&url, &target.to_string_lossy(), mount_port).await;
        let compared = result.and_then(|()| {
            for (file, content) in &copied.files {
                let path = target.join(&copied.name).join(file);
                let data = fs::read(&path);
                let data = data.map_err(|error| Trouble::Wrong(format!("{}/{file}: {error}", copied.name)))?;
                if data.len() != content.len {
                    let (is, should) = (data.len(), content.len);
                    return Err(Trouble::Wrong(format!("{}/{file} has {is} bytes instead of {should}", copied.name)));
                }
                content.check(0, &data).map_err(Trouble::Wrong)?;
                self.surroundings.ledger.compared(data.len());
            }
            Ok(())
        });
        local(fs::remove_dir_all(&target))?;
        match compared {
            Err(Trouble::Failed(error))
                if ["NOENT", "STALE", "no such file"].iter().any(|lost| error.contains(lost)) =>
            {
                Err(Trouble::Wrong(format!("the copied directory {} is lost: {error}", copied.name)))
            }
            compared => compared,
        }
    }
}

/// Converts an error of a local file to a trouble that no disturbance explains.
fn local<T>(result: std::io::Result<T>) -> Result<T, Trouble> {
    result.map_err(|error| Trouble::Wrong(format!("a local file cannot be used: {error}")))
}

impl Work for CopyWork {
    fn surroundings(&mut self) -> &mut Surroundings {
        &mut self.surroundings
    }

    async fn step(&mut self) -> Result<(), Trouble> {
        let stored = self.stored.len();
        if stored > 0 && self.surroundings.random.u8(..2) == 0 {
            let copied = self.stored[self.surroundings.random.usize(..stored)].clone();
            return self.download(&copied).await;
        }
        self.upload().await
    }

    fn effects(&self) -> usize {
        self.stored.len()
    }

    async fn check(&mut self, effect: usize) -> Result<(), Trouble> {
        let copied = self.stored[effect].clone();
        self.download(&copied).await
    }

    fn regions(&self) -> u32 {
        0
    }
}
