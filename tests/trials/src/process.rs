//! Child processes: the URLs and other lines that they print, the signals that they get, their panics, and their
//! memory.

use std::{
    collections::VecDeque,
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, bail};
use rpcrdma::transport::Url;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    task::JoinHandle,
    time::timeout,
};

/// Maximum time for a process to start and print its URLs.
const MAX_START: Duration = Duration::from_secs(20);
/// Maximum number of printed lines of a process that are kept.
const KEPT_LINES: usize = 16;

/// A child process. Dropping this value kills the process, even if it is stopped.
#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
    name: String,
    /// The URLs in the order in which the process printed them.
    urls: Vec<Url>,
    /// File with the standard error of the process, if it is stored.
    errors: Option<PathBuf>,
    printed: Arc<Mutex<Printed>>,
    /// The task that reads the lines of the process. It ends when the process closes its output.
    reading: Option<JoinHandle<()>>,
}

/// Lines that a process has printed to standard output after its URLs.
#[derive(Debug, Default)]
struct Printed {
    count: u64,
    last: VecDeque<String>,
}

/// The memory of a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident memory.
    pub resident: u64,
    /// The largest resident memory so far.
    pub peak: u64,
}

impl ChildProcess {
    /// Starts a program. Waits until the process has printed `count` lines that end in ` on URL`. Its standard error is
    /// appended to the file `errors`, if there is one.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, if the process cannot be started, or if it does not print its URLs in time,
    /// ends before, or prints an invalid URL.
    pub async fn start(mut command: Command, count: usize, errors: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(path) = &errors {
            let file = File::options().create(true).append(true).open(path);
            command.stderr(file.context("cannot store the messages of a process")?);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let name = command.as_std().get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().with_context(|| format!("cannot start {name}, build it or use --programs"))?;
        let stdout = child.stdout.take().context("the process has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut this = Self { child, name, urls: Vec::new(), errors, printed: Arc::default(), reading: None };
        let read = async {
            while this.urls.len() < count {
                let Some(line) = lines.next_line().await? else { bail!("it ended") };
                // `NFS on tcp://127.0.0.1:2049`
                if let Some((_, url)) = line.split_once(" on ") {
                    this.urls.push(url.parse()?);
                }
            }
            Ok(())
        };
        let started = timeout(MAX_START, read).await.unwrap_or_else(|_| bail!("it did not start in time"));
        if let Err(error) = started {
            return Err(error.context(format!("{} does not serve: {}", this.name, this.last_error())));
        }
        let printed = Arc::clone(&this.printed);
        this.reading = Some(tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
                printed.count += 1;
                printed.last.push_back(line);
                if printed.last.len() > KEPT_LINES {
                    printed.last.pop_front();
                }
            }
        }));
        Ok(this)
    }

    /// Returns the URL at `index`, in the order in which the process printed its URLs.
    ///
    /// # Errors
    /// Fails if the process has printed fewer URLs.
    pub fn url(&self, index: usize) -> anyhow::Result<&Url> {
        self.urls.get(index).context("the process has printed too few URLs")
    }

    /// Returns the URLs, in the order in which the process printed them.
    #[must_use]
    pub fn urls(&self) -> &[Url] {
        &self.urls
    }

    /// Returns the address of the URL at `index`.
    ///
    /// # Errors
    /// Fails if the process has printed fewer URLs, or if the URL has a host name instead of an IP address.
    pub fn address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        let url = self.url(index)?;
        Ok(format!("{}:{}", url.host(), url.port()).parse()?)
    }

    /// Returns the number of lines that the process has printed after its URLs.
    #[must_use]
    pub fn printed(&self) -> u64 {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    /// Returns the last line that the process has printed and that begins with `prefix`, without the prefix. Returns
    /// `None` if none of the last 16 lines after the URLs begins with `prefix`.
    #[must_use]
    pub fn last_line(&self, prefix: &str) -> Option<String> {
        let printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        printed.last.iter().rev().find_map(|line| line.strip_prefix(prefix).map(str::to_owned))
    }

    /// Returns the process ID.
    ///
    /// # Errors
    /// Fails if the process has ended and was reaped.
    pub fn pid(&self) -> anyhow::Result<Pid> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        id.context("the process has ended")
    }

    /// Sends SIGSTOP. The kernel continues to accept connections and data for the process.
    ///
    /// # Errors
    /// Fails if the process has ended and was reaped.
    pub fn stop(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Sends SIGCONT.
    ///
    /// # Errors
    /// Fails if the process has ended and was reaped.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// Fails if the process has ended and was reaped.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.pid()?, signal).context("cannot send a signal")
    }

    /// Sends SIGKILL, and waits for the end of the process.
    ///
    /// # Errors
    /// Fails if the process cannot be killed.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill a process")
    }

    /// Sends SIGTERM, and waits until the process and its output have ended.
    ///
    /// # Errors
    /// Fails if the process was reaped before, if the process or its output does not end within `limit`, or if the exit
    /// status reports a failure.
    pub async fn terminate(&mut self, limit: Duration) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let Ok(ended) = timeout(limit, self.child.wait()).await else {
            bail!("{} goes on {} s after SIGTERM", self.name, limit.as_secs());
        };
        let status = ended?;
        if let Some(reading) = self.reading.take() {
            timeout(limit, reading).await.with_context(|| format!("the output of {} does not end", self.name))??;
        }
        anyhow::ensure!(status.success(), "{} ended with {status} after SIGTERM: {}", self.name, self.last_error());
        Ok(())
    }

    /// Checks that the process runs, and that its standard error, if it is stored, reports no panic.
    ///
    /// # Errors
    /// Fails if the process has ended, or if its stored standard error reports a panic.
    pub fn check(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server has ended ({status}): {}", self.last_error());
        }
        self.check_errors()
    }

    /// Checks that the process has printed no panic to standard error, if that is stored. Also works after the process
    /// has ended.
    ///
    /// # Errors
    /// Fails with the line that reports the location of the first panic.
    pub fn check_errors(&self) -> anyhow::Result<()> {
        match self.standard_error().lines().find(|line| line.contains("panicked at")) {
            Some(line) => bail!("the server has panicked: {line}"),
            None => Ok(()),
        }
    }

    /// Returns the memory of the process.
    ///
    /// # Errors
    /// Fails if the process has ended.
    pub fn memory(&self) -> anyhow::Result<ProcessMemory> {
        let id = self.pid()?.as_raw_nonzero();
        let status = fs::read_to_string(format!("/proc/{id}/status")).context("cannot read the server's memory")?;
        parse_memory(&status).context("/proc/PID/status has no memory: the server has ended")
    }

    /// Returns the standard error of the process, or an empty string if it is not stored.
    fn standard_error(&self) -> String {
        let path = self.errors.as_deref();
        String::from_utf8_lossy(&path.and_then(|path| fs::read(path).ok()).unwrap_or_default()).into_owned()
    }

    /// Returns the last line that the process has printed to standard error. Returns `it printed nothing` if there is
    /// none, or if standard error is not stored.
    #[must_use]
    pub fn last_error(&self) -> String {
        self.standard_error().lines().next_back().unwrap_or("it printed nothing").to_owned()
    }
}

/// Makes the kernel kill this process when its parent ends, even if the parent is killed.
///
/// # Errors
/// Fails if the kernel refuses.
pub fn end_with_parent() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot tie this process to its parent")
}

/// Returns a command that starts the example program `name` in the directory `folder`. The command has the environment
/// of [`clean_environment`].
#[must_use]
pub fn program(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(folder.join(name));
    clean_environment(&mut command);
    command
}

/// Removes the variables of the user's environment that would change the output, the state directory or the service
/// notifications of a program.
pub fn clean_environment(command: &mut Command) {
    for variable in ["RUST_LOG", "RUST_BACKTRACE", "STATE_DIRECTORY", "NOTIFY_SOCKET"] {
        command.env_remove(variable);
    }
}

/// Returns the directory of the example programs: `chosen`, or the directory of this program.
///
/// # Errors
/// Fails if this program has no path.
pub fn programs(chosen: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(programs) = chosen {
        return Ok(programs);
    }
    let own = std::env::current_exe().context("cannot find this program, use --programs")?;
    Ok(own.parent().context("this program has no directory, use --programs")?.to_owned())
}

/// Reads the memory in `/proc/PID/status`. Returns `None` if the process has ended.
fn parse_memory(status: &str) -> Option<ProcessMemory> {
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    };
    Some(ProcessMemory { resident: of("VmRSS:")?, peak: of("VmHWM:")? })
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

    #[tokio::test]
    async fn output_and_errors_of_a_process_are_known() {
        let folder = std::env::temp_dir().join(format!("trials-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo NFS on tcp://127.0.0.1:7; echo tasks 5; echo bad >&2; exec cat /dev/zero"]);
        let mut process = ChildProcess::start(command, 1, Some(folder.clone())).await.unwrap();
        assert_eq!(process.address(0).unwrap().port(), 7);
        assert!(process.url(1).is_err());
        while process.last_line("tasks ").is_none() || process.last_error() != "bad" {
            tokio::task::yield_now().await;
        }
        assert_eq!(process.last_line("tasks ").as_deref(), Some("5"));
        process.check().unwrap();
        fs::write(&folder, "thread 'main' panicked at src/main.rs\n").unwrap();
        assert!(format!("{:#}", process.check().unwrap_err()).contains("panicked at src/main.rs"));
        process.kill().await.unwrap();
        assert!(process.pid().is_err());
        fs::remove_file(folder).unwrap();
    }

    #[tokio::test]
    async fn last_words_are_known_after_the_end() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap 'seq 9999; echo held: 7; exit' TERM; echo on tcp://[::]:1; while :; do :; done"]);
        let mut process = ChildProcess::start(command, 0, None).await.unwrap();
        // The shell has installed its handler when it prints.
        while process.printed() == 0 {
            tokio::task::yield_now().await;
        }
        process.terminate(Duration::from_secs(60)).await.unwrap();
        assert_eq!(process.last_line("held: ").as_deref(), Some("7"));
    }
}
