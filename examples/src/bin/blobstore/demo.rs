//! `blobstore demo`, which transfers real files between a server process and a client process, and shows how the data
//! moved.

use std::{
    cell::Cell,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use indicatif::ProgressBar;
use rpcrdma::engine::ConnectionCounters;
use rpcrdma_examples::say;
use rpcrdma_examples::{
    blobstore::{ValidName, protocol::BlobChange, watch::Watcher},
    command::{ClientSec, TlsClientArgs},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    task::spawn_blocking,
    time::timeout,
};

use crate::{
    cli::{DemoArgs, ServerArgs},
    connect::{Connection, explain},
    show,
};

/// Time limit for each of three steps of the server process: its start, its report of all changes, and its exit.
const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of concurrent file transfers.
const FILES_AT_A_TIME: usize = 8;
/// Maximum number of repository files to transfer.
const MAX_SOURCES: usize = 2000;

/// Runs `blobstore demo`: starts a server process, stores files there, fetches them again, and prints the results.
pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<()> {
    say!("blobstore demo: a client process exchanges files with a server process, over RPC-over-RDMA on loopback\n");
    let work =
        tempfile::Builder::new().prefix("blobstore-demo-").tempdir().context("cannot create a temporary directory")?;
    let mut server = ServerProcess::start(&work.path().join("store")).await?;
    say!("server    process {}, {}", server.id, server.url);
    let (watcher, mut changes) = Watcher::new(MAX_SOURCES);
    let whom = ServerArgs {
        url: server.url.clone(),
        sec: ClientSec::default(),
        rpcrdma: args.rpcrdma,
        tls: TlsClientArgs::default(),
    };
    let connection = Connection::open_watching(&whom, args.moving, watcher).await?;
    connection
        .blobs()
        .watch("")
        .await
        .map_err(|error| explain(error, &server.url))
        .context("cannot watch for changes")?;
    say!("client    process {}\n", std::process::id());

    let groups = [
        Group { title: "repository files", files: repository_files()? },
        Group { title: "blobstore binary", files: vec![this_binary()?] },
        Group { title: "generated file", files: vec![make_file(work.path().join("made"), args.size).await?] },
    ];
    say!("{:26} {:>6} {:>12}   {:>24}   {:>24}", "", "files", "bytes", "stored in", "fetched in");
    let mut moved = Moved::default();
    for group in &groups {
        run_group(&connection, &server.url, group, &work.path().join("fetched"), &mut moved).await?;
    }
    say!("\ndigests   {} of {} files are unchanged after store and fetch", moved.files, moved.files);
    print_counters(&moved);
    let stored: usize = groups.iter().map(|group| group.files.len()).sum();
    let reported = timeout(PATIENCE, count_reports(&mut changes, stored))
        .await
        .context("the server did not report all changes in time")?;
    say!("\nwatch     the server reported {reported} changes with reverse-direction calls on the same connection");
    drop(connection);
    server.stop().await?;
    work.close().context("cannot remove the temporary files")?;
    say!("\nDone: the server has stopped, and the temporary files are removed.");
    Ok(())
}

/// A set of files that are transferred and timed together.
struct Group {
    title: &'static str,
    files: Vec<Source>,
}

/// A file and the name of its blob.
struct Source {
    name: ValidName,
    path: PathBuf,
}

/// Waits until the server has reported at least `wanted` changes, or the channel has ended. Returns the number of
/// changes, including those that the server has reported as missed.
async fn count_reports(changes: &mut mpsc::Receiver<BlobChange>, wanted: usize) -> u64 {
    let mut reported = 0;
    while reported < wanted as u64
        && let Some(change) = changes.recv().await
    {
        reported += 1 + change.missed;
    }
    reported
}

/// The number of files transferred, with the counters of storing and of fetching.
#[derive(Default)]
struct Moved {
    files: usize,
    store: Share,
    fetch: Share,
}

/// Sums over several transfers: the sizes of the files, and the client's transport counters. All are in bytes, except
/// for `calls`.
#[derive(Default, Clone, Copy)]
struct Share {
    payload: u64,
    calls: u64,
    sends: u64,
    read: u64,
    written: u64,
}

impl Share {
    fn add(&mut self, payload: u64, before: &ConnectionCounters, after: &ConnectionCounters) {
        self.payload += payload;
        self.calls += after.calls_sent - before.calls_sent;
        self.sends += (after.bytes_sent - before.bytes_sent) + (after.bytes_received - before.bytes_received);
        self.read += after.read_by_peer_bytes - before.read_by_peer_bytes;
        self.written += after.written_by_peer_bytes - before.written_by_peer_bytes;
    }
}

/// Stores the files of a group, fetches them, compares the digests, and prints the times. Adds the counters to `moved`.
async fn run_group(
    connection: &Connection,
    url: &str,
    group: &Group,
    fetched: &Path,
    moved: &mut Moved,
) -> anyhow::Result<()> {
    let mut payload = 0;
    for file in &group.files {
        payload += fs::metadata(&file.path).with_context(|| file.path.display().to_string())?.len();
    }
    let bar = show::progress_bar(group.title, payload * 2);

    let (counters, start) = (connection.channel().counters(), Instant::now());
    let store = |file| store(connection, url, file, &bar);
    stream::iter(&group.files).map(store).buffer_unordered(FILES_AT_A_TIME).try_collect::<()>().await?;
    let stored_in = start.elapsed();
    moved.store.add(payload, &counters, &connection.channel().counters());

    fs::create_dir_all(fetched)?;
    let (counters, start) = (connection.channel().counters(), Instant::now());
    let fetch = |(index, file): (usize, _)| fetch(connection, url, file, fetched.join(index.to_string()), &bar);
    let copies = stream::iter(group.files.iter().enumerate()).map(fetch).buffered(FILES_AT_A_TIME);
    let copies: Vec<PathBuf> = copies.try_collect().await?;
    let fetched_in = start.elapsed();
    moved.fetch.add(payload, &counters, &connection.channel().counters());
    bar.finish_and_clear();

    for (file, copy) in group.files.iter().zip(copies) {
        let (original, returned) = (digest_of(file.path.clone()).await?, digest_of(copy.clone()).await?);
        ensure!(
            original == returned,
            "{} has changed: digest {original} when stored, {returned} when fetched",
            file.name
        );
        fs::remove_file(copy)?;
        moved.files += 1;
    }
    let timing = |time| format!("{:>9}  {:>13}", show::duration(time), show::rate(payload, time));
    let (stored_in, fetched_in) = (timing(stored_in), timing(fetched_in));
    say!("{:26} {:>6} {payload:>12}   {stored_in:>24}   {fetched_in:>24}", group.title, group.files.len());
    Ok(())
}

async fn store(connection: &Connection, url: &str, file: &Source, bar: &ProgressBar) -> anyhow::Result<()> {
    let source = File::open(&file.path).with_context(|| file.path.display().to_string())?;
    let size = source.metadata()?.len();
    let stored = connection.blobs().upload(&file.name, source, size, Bytes::new(), |len| bar.inc(len)).await;
    stored.map_err(|error| explain(error, url)).with_context(|| format!("cannot store {}", file.name))?;
    Ok(())
}

async fn fetch(
    connection: &Connection,
    url: &str,
    file: &Source,
    target: PathBuf,
    bar: &ProgressBar,
) -> anyhow::Result<PathBuf> {
    let sink = File::create_new(&target).with_context(|| target.display().to_string())?;
    let seen = Cell::new(0);
    let progress = |_, done| bar.inc(done - seen.replace(done));
    let fetched = connection.blobs().download(&file.name, sink, progress).await;
    fetched.map_err(|error| explain(error, url)).with_context(|| format!("cannot fetch {}", file.name))?;
    Ok(target)
}

fn print_counters(moved: &Moved) {
    say!(
        "\ntransport counters  {:>8} {:>16} {:>16} {:>16} {:>16}",
        "calls",
        "payload",
        "Send",
        "RDMA Read",
        "RDMA Write"
    );
    for (title, share) in [("storing", moved.store), ("fetching", moved.fetch)] {
        let Share { payload, calls, sends, read, written } = share;
        say!("  {title:17} {calls:>8} {payload:>16} {sends:>16} {read:>16} {written:>16}");
    }
    say!(
        "  Sizes in bytes. Send: messages in both directions. RDMA Read: stored data that the server read from client memory."
    );
    say!("  RDMA Write: fetched data that the server wrote to client memory. Small files travel inside messages.");
}

/// The server process. It exits when its standard input is closed, so that it does not outlive this process.
struct ServerProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    id: u32,
    url: String,
}

impl ServerProcess {
    async fn start(root: &Path) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program's binary")?;
        let mut child = Command::new(program)
            .arg("demo-server")
            .arg("--root")
            .arg(root)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server process")?;
        let id = child.id().unwrap_or_default();
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the server process has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.context("the server process did not start in time")??;
        let Some(url) = line else { bail!("the server process exited during startup: {}", child.wait().await?) };
        Ok(Self { child, stdin, id, url })
    }

    async fn stop(&mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        let status =
            timeout(PATIENCE, self.child.wait()).await.context("the server process did not stop in time")??;
        ensure!(status.success(), "the server process failed: {status}");
        Ok(())
    }
}

/// Returns the files of the repository that this program was built in. If the repository does not exist, returns the
/// files of the current directory.
fn repository_files() -> anyhow::Result<Vec<Source>> {
    let built_in = Path::new(env!("CARGO_MANIFEST_DIR")).parent().filter(|root| root.join("Cargo.toml").is_file());
    let root = match built_in {
        Some(root) => root.to_owned(),
        None => std::env::current_dir()?,
    };
    let mut files = Vec::new();
    collect(&root, &root, &mut files).with_context(|| format!("cannot read {}", root.display()))?;
    Ok(files)
}

/// Collects the regular files under `dir`, at most [`MAX_SOURCES`] in all. Skips hidden files and directories,
/// directories with a `CACHEDIR.TAG`, such as build output, and files whose path is not a valid blob name.
fn collect(root: &Path, dir: &Path, files: &mut Vec<Source>) -> anyhow::Result<()> {
    let mut entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type()?);
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if files.len() >= MAX_SOURCES || hidden || path.join("CACHEDIR.TAG").exists() {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files)?;
        } else if kind.is_file() {
            let relative = path.strip_prefix(root)?.components().map(|c| c.as_os_str().to_string_lossy());
            // Skip files whose path is not a valid blob name.
            if let Ok(name) = relative.collect::<Vec<_>>().join("/").parse() {
                files.push(Source { name, path });
            }
        }
    }
    Ok(())
}

fn this_binary() -> anyhow::Result<Source> {
    let path = std::env::current_exe().context("cannot find this program's binary")?;
    Ok(Source { name: "demo/blobstore".parse()?, path })
}

/// Creates an incompressible file from the extended output of BLAKE3.
async fn make_file(path: PathBuf, size: u64) -> anyhow::Result<Source> {
    let name = "demo/made".parse()?;
    let make = move || {
        let mut file = File::create_new(&path)?;
        let mut source = blake3::Hasher::new().finalize_xof();
        let mut left = size;
        let mut step = vec![0; 1 << 20];
        while left > 0 {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(step.len());
            source.fill(&mut step[..len]);
            file.write_all(&step[..len])?;
            left -= len as u64;
        }
        Ok::<_, std::io::Error>(path)
    };
    let path = spawn_blocking(make).await?.context("cannot create the generated file")?;
    Ok(Source { name, path })
}

async fn digest_of(path: PathBuf) -> anyhow::Result<blake3::Hash> {
    let digest = move || {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(&path).with_context(|| path.display().to_string())?)?;
        Ok(hasher.finalize())
    };
    spawn_blocking(digest).await?
}
