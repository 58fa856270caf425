//! The command-line arguments of `blobstore`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, builder::ValueParser};
#[cfg(unix)]
use rpcrdma_examples::command::RegisterArgs;
use rpcrdma_examples::{
    blobstore::ValidName,
    command::{
        ClientSec, ConnectionArgs, DrainArgs, IntrospectionArgs, Logging, MetricsArgs, RpcRdmaVersion, ServerSec,
        ThreadArgs, TlsClientArgs, TlsServerArgs, parse_size,
    },
};

/// Store and fetch named blobs over RPC-over-RDMA
#[derive(Debug, Parser)]
#[command(name = "blobstore", version, propagate_version = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) logging: Logging,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  blobstore demo
  blobstore serve --root /srv/blobs --listen iwarp://0.0.0.0:20100
  blobstore put iwarp://localhost:20100 docs/README.md README.md
  blobstore get iwarp://localhost:20100 docs/README.md /tmp/copy.md
  blobstore ls iwarp://localhost:20100
  blobstore watch iwarp://localhost:20100 docs/ --into /tmp/mirror
  blobstore bench iwarp://localhost:20100 --json

URLs have the form SCHEME://HOST:PORT. The scheme iwarp is a userspace
implementation of iWARP over TCP, which needs no RDMA hardware; tcp is plain
TCP; rdma uses RDMA devices, if built with the feature `verbs`. IPv6
addresses are written in brackets: iwarp://[::1]:20100.";

/// A subcommand of `blobstore`, with its arguments.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a directory of blobs
    Serve(ServeArgs),
    /// Store a file as a blob
    Put(PutArgs),
    /// Fetch a blob into a file
    Get(GetArgs),
    /// List blobs
    Ls(LsArgs),
    /// Show a blob's size, time and digest
    Stat(BlobArgs),
    /// Delete a blob
    Rm(BlobArgs),
    /// Print changes as the server reports them
    Watch(WatchArgs),
    /// Measure latency and throughput
    Bench(BenchArgs),
    /// Keep calls in flight, and show what each connection does while network paths fail and come back
    Load(LoadArgs),
    /// Check a server with many connections
    Many(ManyArgs),
    /// Serve benchmarks from memory, without files, to measure the transport alone
    BenchServer(BenchServerArgs),
    /// Start a server, store and fetch real files, and show how the data moved
    Demo(DemoArgs),
    /// Internal: the server process that `demo` starts
    #[command(hide = true)]
    DemoServer(DemoServerArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C stops the server once the calls in progress have completed; a second Ctrl-C stops it at once.\n\n\
                        Limits: the options bound connections, memory and time, and each client host gets a share. Besides, there are at \
                        most 64 uploads and commits, and 1024 watchers; one host has at most half of them. An upload ends 30 seconds after \
                        the connection of its client.\n\nExample:\n  \
                        blobstore serve --root /srv/blobs --listen iwarp://127.0.0.1:20100"
)]
pub(crate) struct ServeArgs {
    /// Directory for the blobs; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// URL to listen on, e.g. iwarp://127.0.0.1:20100; port 0 selects a free port. May be repeated
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) listen: Vec<String>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    /// Maximum size of a blob, e.g. 10GiB
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = size())]
    pub(crate) max_blob: u64,
    #[command(flatten)]
    pub(crate) sec: ServerSec,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
    #[command(flatten)]
    pub(crate) tls: TlsServerArgs,
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    #[command(flatten)]
    pub(crate) drain: DrainArgs,
    #[cfg(unix)]
    #[command(flatten)]
    pub(crate) register: RegisterArgs,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) introspection: IntrospectionArgs,
}

/// The options that limit the calls of a transfer: bytes per call, and number of calls in flight.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct TransferArgs {
    /// Bytes per call, e.g. 512KiB; at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size())]
    pub(crate) range: u64,
    /// Maximum number of calls in flight; the server's credits limit it further
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
}

/// Options for the connections of `put`, `get` and `load`.
#[derive(Debug, Args, Clone)]
pub(crate) struct PoolArgs {
    /// Number of connections that share the calls, for each URL
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: u16,
    /// Another URL of the same server, for connections over another network interface. May be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) path: Vec<String>,
}

impl PoolArgs {
    /// Returns the URL of each connection. `url` and the URLs of `--path` have `--connections` connections each.
    pub(crate) fn urls<'a>(&'a self, url: &'a str) -> impl Iterator<Item = &'a str> {
        let urls = std::iter::once(url).chain(self.path.iter().map(String::as_str));
        urls.flat_map(|url| std::iter::repeat_n(url, self.connections.into()))
    }
}

/// The URL of a server, and the options for connecting to it.
#[derive(Debug, Args, Clone)]
pub(crate) struct ServerArgs {
    /// Server URL, e.g. iwarp://localhost:20100
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) sec: ClientSec,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
    #[command(flatten)]
    pub(crate) tls: TlsClientArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  blobstore put iwarp://localhost:20100 docs/README.md README.md")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) blob: BlobArgs,
    /// File to store; `-` is standard input. Default: the file with the blob's name
    pub(crate) file: Option<PathBuf>,
    /// File of at most 1 MiB to attach to the blob, e.g. a manifest, thumbnail or signature
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) moving: TransferArgs,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  blobstore get iwarp://localhost:20100 docs/README.md -")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) blob: BlobArgs,
    /// File to write; it appears when it is complete. `-` is standard output. Default: the last part of the blob's name
    pub(crate) file: Option<PathBuf>,
    /// File to write the attachment to
    #[arg(long, value_name = "FILE")]
    pub(crate) attachment: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) moving: TransferArgs,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// List only names with this prefix
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Show size, time and digest
    #[arg(short, long)]
    pub(crate) long: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The server reports each change with a call in the reverse direction of this connection (RFC 8167).\n\n\
                        Example:\n  blobstore watch iwarp://localhost:20100 docs/ --into /tmp/mirror"
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Watch only names with this prefix
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Directory to keep in sync: stored blobs are fetched into it, deleted blobs are removed from it
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// Exit after this many changes
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) moving: TransferArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BlobArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Name of the blob: up to 255 bytes of UTF-8, with '/' between its parts
    pub(crate) name: ValidName,
}

#[derive(Debug, Args, Clone)]
#[command(
    after_help = "The benchmark stores one blob under a temporary name and deletes it afterwards.\n\nExample:\n  \
                        blobstore bench iwarp://localhost:20100 --size 64KiB --depth 16 --json"
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Bytes of data per GET or WRITE, at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size())]
    pub(crate) size: u64,
    /// Number of GETs or WRITEs in flight
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
    /// Number of connections. The calls in flight are per connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) connections: u16,
    /// Number of threads among which the connections are divided, at most one per connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Duration of each measurement, in seconds
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds())]
    pub(crate) seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every interval, a line for each connection shows its calls, its bytes and its path, and why a better path is not used. \
                  The command fails if a call has failed.\n\nExamples:\n  \
                  blobstore load rdma://server:20100,tcp://server:20101\n  \
                  blobstore load rdma://10.1.0.1:20100 --path rdma://10.2.0.1:20100 --seconds 60"
)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) pool: PoolArgs,
    /// Bytes of data per GET, at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = size())]
    pub(crate) size: u64,
    /// Number of GETs in flight on all connections together
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
    /// Duration in seconds. Default: until Ctrl-C
    #[arg(long, value_name = "S", value_parser = seconds())]
    pub(crate) seconds: Option<f64>,
    /// Time between reports, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = duration())]
    pub(crate) interval: Duration,
    /// Time limit of a call, in seconds. A call is retried until then
    #[arg(long, value_name = "S", default_value = "60", value_parser = duration())]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Each connection stores, fetches and deletes a blob of its own in each round, all connections at a time.\n\nExample:\n  \
                        blobstore many rdma://192.168.1.7:20100 --connections 1000"
)]
pub(crate) struct ManyArgs {
    /// Server URL, e.g. iwarp://localhost:20100
    pub(crate) url: String,
    /// Number of connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=16384))]
    pub(crate) connections: u16,
    /// Number of rounds
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rounds: u16,
    /// Size of the blobs, at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "2KiB", value_parser = size())]
    pub(crate) size: u64,
    /// Time to keep the connections idle before and after the rounds, in seconds
    #[arg(long, value_name = "S", default_value = "0", value_parser = idle())]
    pub(crate) idle: Duration,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Size of the file to generate
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "BLOBSTORE_DEMO_SIZE", value_parser = size())]
    pub(crate) size: u64,
    #[command(flatten)]
    pub(crate) moving: TransferArgs,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every blob exists, with the same contents from memory. Stored data is discarded.\n\nExample:\n  \
                        blobstore bench-server --listen iwarp://127.0.0.1:20100"
)]
pub(crate) struct BenchServerArgs {
    /// URL to listen on, e.g. iwarp://127.0.0.1:20100; port 0 selects a free port. May be repeated
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) listen: Vec<String>,
    /// Number of threads that serve connections
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
    /// Keep each connection on one thread
    #[arg(long)]
    runtime_per_thread: bool,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

impl BenchServerArgs {
    pub(crate) fn threads(&self) -> ThreadArgs {
        ThreadArgs::new(self.threads, self.runtime_per_thread)
    }
}

#[derive(Debug, Args)]
pub(crate) struct DemoServerArgs {
    /// Directory for the blobs
    #[arg(long)]
    pub(crate) root: PathBuf,
}

fn seconds() -> ValueParser {
    ValueParser::new(|text: &str| match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds from 0.01 to 3600".to_owned()),
    })
}

fn duration() -> ValueParser {
    ValueParser::new(|text: &str| match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0.1 to 3600".to_owned()),
    })
}

fn idle() -> ValueParser {
    ValueParser::new(|text: &str| match text.parse::<f64>() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0 to 3600".to_owned()),
    })
}

fn size() -> ValueParser {
    ValueParser::new(parse_size)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rpcrdma_examples::blobstore::{
        service::{ABANDONED_UPLOAD, MAX_WATCHERS},
        store::StoreOptions,
    };

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_states_the_limits() {
        let uploads = StoreOptions::default().max_uploads;
        let help = Cli::command().find_subcommand("serve").unwrap().get_after_help().unwrap().to_string();
        assert!(help.contains(&format!("most {uploads} uploads and commits, and {MAX_WATCHERS} watchers")), "{help}");
        assert!(help.contains(&format!("ends {} seconds after", ABANDONED_UPLOAD.as_secs())), "{help}");
    }

    #[test]
    fn invalid_names_are_usage_errors() {
        let parse = |name| Cli::try_parse_from(["blobstore", "rm", "iwarp://h:1", name]);
        assert!(parse("a/b").is_ok());
        let error = parse("../b").unwrap_err().to_string();
        assert!(error.contains("a part of a blob name cannot be"), "{error}");
    }
}
