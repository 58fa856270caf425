//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, builder::ValueParser};
use rpcrdma_examples::{
    blobstore::Name,
    command::{Logging, RpcRdmaVersion, parse_size},
};

/// A store of named blobs whose data moves by RDMA Read and Write.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = EXAMPLES)]
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

URLs name a provider, a host and a port. iwarp://HOST:PORT is iWARP over TCP in
user space, which needs no RDMA hardware. IPv6 addresses stand in brackets:
iwarp://[::1]:20100.";

/// What to do.
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
    /// Show what is known about a blob
    Stat(BlobArgs),
    /// Delete a blob
    Rm(BlobArgs),
    /// Print changes as they happen: the server calls back
    Watch(WatchArgs),
    /// Measure latency and throughput
    Bench(BenchArgs),
    /// Serve what `bench` asks for, without files: what the transport can do
    BenchServer(BenchServerArgs),
    /// Start a server, store and fetch real files, and show what moved them
    Demo(DemoArgs),
    /// What `demo` starts.
    #[command(hide = true)]
    DemoServer(DemoServerArgs),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Ctrl-C ends it when the calls under way are answered; a second Ctrl-C at once.\n\nExample:\n  \
                        blobstore serve --root /srv/blobs --listen iwarp://127.0.0.1:20100"
)]
pub(crate) struct ServeArgs {
    /// Directory that holds the blobs; created if need be
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// Where to listen, e.g. iwarp://127.0.0.1:20100; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) listen: Vec<String>,
    /// Threads that serve; files are read and written by others. One is quickest to answer a single client, as nothing is
    /// handed from thread to thread. Default: one for each processor
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Largest blob taken, e.g. 10GiB
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = size())]
    pub(crate) max_blob: u64,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

/// How much at a time.
#[derive(Debug, Args, Clone, Copy)]
pub(crate) struct Moving {
    /// Octets in one call, e.g. 512KiB; at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size())]
    pub(crate) range: u64,
    /// Calls under way at a time; the server's credits limit it further
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
}

/// Whom to talk to, and how.
#[derive(Debug, Args)]
pub(crate) struct ServerArgs {
    /// The server, e.g. iwarp://localhost:20100
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  blobstore put iwarp://localhost:20100 docs/README.md README.md")]
pub(crate) struct PutArgs {
    #[command(flatten)]
    pub(crate) blob: BlobArgs,
    /// File to store; `-` is standard input. Without it, the file of the blob's name
    pub(crate) file: Option<PathBuf>,
    /// A file of at most 1 MiB to keep beside the data: a manifest, a thumbnail, a signature
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  blobstore get iwarp://localhost:20100 docs/README.md -")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) blob: BlobArgs,
    /// File to write, which appears when it is complete; `-` is standard output. Without it, the last part of the name
    pub(crate) file: Option<PathBuf>,
    /// File to write the attachment to
    #[arg(long, value_name = "FILE")]
    pub(crate) attachment: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Only names that begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Size, time and digest too
    #[arg(short, long)]
    pub(crate) long: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The server calls this client back for each change, over the client's own connection (RFC 8167).\n\n\
                        Example:\n  blobstore watch iwarp://localhost:20100 docs/ --into /tmp/mirror"
)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Only names that begin with this
    #[arg(default_value = "")]
    pub(crate) prefix: String,
    /// Directory to keep like the blobs: what is stored is fetched into it, what is deleted is removed from it
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// End after so many changes
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) moving: Moving,
}

#[derive(Debug, Args)]
pub(crate) struct BlobArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The blob's name: up to 255 octets of UTF-8; parts may be separated by '/'
    pub(crate) name: Name,
}

#[derive(Debug, Args)]
#[command(after_help = "It stores one blob under a name of its own, and deletes it in the end.\n\nExample:\n  \
                        blobstore bench iwarp://localhost:20100 --size 64KiB --depth 16 --json")]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Octets of data in one GET or WRITE, at most 4MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size())]
    pub(crate) size: u64,
    /// GETs and WRITEs under way at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) depth: u16,
    /// Seconds for each measurement
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds())]
    pub(crate) seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Size of the file it makes
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "BLOBSTORE_DEMO_SIZE", value_parser = size())]
    pub(crate) size: u64,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Every blob exists, of octets in memory; what is stored is forgotten. It serves on one thread.\n\nExample:\n  \
                        blobstore bench-server --listen iwarp://127.0.0.1:20100"
)]
pub(crate) struct BenchServerArgs {
    /// Where to listen, e.g. iwarp://127.0.0.1:20100; port 0 takes a free one. May be given several times
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) listen: Vec<String>,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
}

#[derive(Debug, Args)]
pub(crate) struct DemoServerArgs {
    /// Directory that holds the blobs
    #[arg(long)]
    pub(crate) root: PathBuf,
}

fn seconds() -> ValueParser {
    ValueParser::new(|text: &str| match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number from 0.01 to 3600".to_owned()),
    })
}

fn size() -> ValueParser {
    ValueParser::new(parse_size)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn names_are_checked_at_the_door() {
        let parse = |name| Cli::try_parse_from(["blobstore", "rm", "iwarp://h:1", name]);
        assert!(parse("a/b").is_ok());
        let error = parse("../b").unwrap_err().to_string();
        assert!(error.contains("no part of a blob's name may be"), "{error}");
    }
}
