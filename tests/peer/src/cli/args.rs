//! The command line of `rpcrdma-peer`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};
use rpcrdma_peer::{Part, case::Limits, run::Choice, transport::PeerUrl};

/// Test an implementation of RPC-over-RDMA or iWARP over the wire
///
/// The exit status is 0 if nothing is wrong, 1 if something is, and 2 after an error or if no case could run.
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-peer", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Act as a client, and test a server
    Requester(Requester),
    /// Act as a server, and test a client
    Responder(Responder),
    /// Print the cases with their rules, what they send and what they expect
    List(Chosen),
}

#[derive(Debug, Args)]
pub(crate) struct Requester {
    /// URL of the server, such as iwarp://127.0.0.1:20049 or rdma://10.0.0.1:20049
    pub(crate) url: PeerUrl,
    /// Program whose NULL procedure is called. Any number works: every RPC reply counts as success
    #[arg(long, default_value_t = 100_003)]
    pub(crate) program: u32,
    /// Version of the program
    #[arg(long, default_value_t = 3)]
    pub(crate) version: u32,
    /// File of an NFS 3 server for the cases with data, as HOST:PORT:PATH of its MOUNT service over TCP. The file must
    /// have at least 256 KiB, and is overwritten
    #[arg(long, value_name = "HOST:PORT:PATH", conflicts_with = "handle")]
    pub(crate) mount: Option<String>,
    /// Handle of such a file, in hexadecimal
    #[arg(long, value_name = "HEX")]
    pub(crate) handle: Option<String>,
    #[command(flatten)]
    pub(crate) chosen: Chosen,
}

#[derive(Debug, Args)]
pub(crate) struct Responder {
    /// URL to listen on, such as iwarp://127.0.0.1:0. With --client, the port may be 0
    #[arg(long, default_value = "iwarp://127.0.0.1:0")]
    pub(crate) listen: PeerUrl,
    /// Command that runs the client once, by the shell. {addr}, {host} and {port} stand for the address of the peer.
    /// Without it, start clients yourself: each case waits for one
    #[arg(long, value_name = "COMMAND")]
    pub(crate) client: Option<String>,
    #[command(flatten)]
    pub(crate) chosen: Chosen,
}

#[derive(Debug, Args)]
pub(crate) struct Chosen {
    /// Only cases whose names contain one of these, such as v1/server/version
    pub(crate) cases: Vec<String>,
    /// Only cases of this part: v1-server, v1-nfs, v2-server, iwarp-server, v1-client, v2-client or iwarp-client. May
    /// be repeated
    #[arg(long, value_parser = part)]
    pub(crate) part: Vec<Part>,
    /// Run cases that have crashed an implementation, too
    #[arg(long)]
    pub(crate) dangerous: bool,
    /// Print the findings as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
    /// Print the findings as tables in Markdown
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Write the report to a file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Print all details of conforming findings, too
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Maximum time to wait for an answer, in seconds
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) patience: f64,
    /// Number of cases that run at a time
    #[arg(long, default_value_t = 1)]
    pub(crate) jobs: usize,
}

/// The format of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Markdown,
}

fn part(name: &str) -> Result<Part, String> {
    let found = Part::ALL.into_iter().find(|part| part.name() == name);
    found.ok_or_else(|| format!("no part of this name: {}", Part::ALL.map(Part::name).join(", ")))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    if (0.001..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("not between 0.001 and 3600".into()) }
}

impl Chosen {
    pub(crate) fn choice(&self) -> Choice {
        Choice { names: self.cases.clone(), parts: self.part.clone(), dangerous: self.dangerous }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits { patience: Duration::from_secs_f64(self.patience), ..Limits::default() }
    }

    pub(crate) fn format(&self) -> Format {
        match (self.json, self.markdown) {
            (true, _) => Format::Json,
            (_, true) => Format::Markdown,
            _ => Format::Text,
        }
    }
}
