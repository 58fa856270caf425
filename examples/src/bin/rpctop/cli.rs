//! The command-line arguments of `rpctop`.

use std::time::Duration;

use clap::{Parser, builder::ValueParser};
use rpcrdma_examples::command::{ClientSec, Logging, RpcRdmaVersion, parse_seconds};

/// Show the procedures, connections, memory and slowest calls of a running RPC server
#[derive(Debug, Parser)]
#[command(name = "rpctop", version, after_help = AFTER)]
pub(crate) struct Cli {
    /// URL of the server, e.g. iwarp://localhost:20100
    pub(crate) url: String,
    /// Seconds between updates
    #[arg(short, long, value_name = "S", default_value = "1", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) interval: Duration,
    /// Time limit for connecting and for each call, in seconds
    #[arg(short, long, value_name = "S", default_value = "5", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) timeout: Duration,
    /// Print the state of the server as JSON, once
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one screen as text, after one interval
    #[arg(long, conflicts_with = "json")]
    pub(crate) plain: bool,
    /// Width of the screen of --plain, in columns
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(40..=1000), requires = "plain")]
    pub(crate) width: u16,
    /// Height of the screen of --plain, in lines
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(12..=1000), requires = "plain")]
    pub(crate) height: u16,
    #[command(flatten)]
    pub(crate) sec: ClientSec,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

const AFTER: &str = "\
The server must offer the program INTROSPECTION: start blobstore or nfs3d with
--introspection, or call ServerBuilder::introspection in your own server.

Keys: q or Esc quits.

Examples:
  rpctop iwarp://localhost:20100
  rpctop tcp://server:2049 --json

Exit status: 0 on success; 1 if the server cannot be inspected; 2 if the command
line is invalid.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
