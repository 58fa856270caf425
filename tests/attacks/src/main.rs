//! `rpcrdma-attacks`: runs attacks against nfs3d, blobstore and a counters server. In most attacks, a well-behaved
//! client at another address measures the latencies of its own calls. See `README.md`.
#![forbid(unsafe_code)]

mod connections;
mod counters;
mod identity;
mod memory;
mod messages;
mod raw;
mod raw_iwarp;
mod replies;
mod report;
mod server;
mod stags;
mod trial;
mod uploads;
mod victim;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};
use rpcrdma_examples::command::{self, Logging, unless_stopped};
use rpcrdma_trials::{Choice, Trial, process::programs, trials};

use self::{
    report::{Measured, print_head, print_row},
    trial::{Form, Plan},
};

/// Maximum duration of one attack, with the start of its server.
const MAX_DURATION: Duration = Duration::from_secs(240);
/// Maximum duration of one attack in the short form.
const MAX_SHORT_DURATION: Duration = Duration::from_secs(60);
/// Number of file descriptors that this program needs: for the connections of the largest attack, and for files.
const DESCRIPTORS: u64 = 4096;

/// Run attacks against nfs3d, blobstore and a counters server, each on the loopback interface
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-attacks", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    play: PlayArgs,
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Args)]
struct PlayArgs {
    /// Make fewer calls, and do not check latencies. For machines whose speed varies
    #[arg(long)]
    short: bool,
    /// Directory of the programs nfs3d and blobstore. Default: that of this program
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    #[command(flatten)]
    choice: Choice,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Internal: the counters server that the attacks target
    #[command(hide = true)]
    ServeCounters(rpcrdma_trials::counters::ServeArgs),
}

/// All attacks, in the order in which they run.
const ATTACKS: &[Trial<Plan, Measured>] = trials! {
    "nfs3d/tcp: 64 record marks of 65 MiB": memory::announced_records, 0;
    "nfs3d/tcp: the same, with 16 KiB of each record": memory::announced_records, 16 << 10;
    "nfs3d/iwarp: 16 Read chunks of 64 MiB, unserved": memory::unserved_chunks, 0;
    "nfs3d/iwarp: the same, 4 bytes of each served": memory::unserved_chunks, 4;
    "nfs3d/tcp: 512 results of 1 MiB, unread": memory::unread_results, 1 << 20;
    "nfs3d/tcp: 512 results of 4 MiB, unread": memory::unread_results, 4 << 20;
    "blobstore/tcp: 24 connections, 4 MiB GETs, unread": memory::unread_blobs;
    "nfs3d/tcp: 64 READDIRs of a large directory": memory::large_directories;
    "nfs3d/tcp: idle connections beyond the limit": connections::idle, "tcp";
    "nfs3d/iwarp: idle connections beyond the limit": connections::idle, "iwarp";
    "nfs3d/tcp: half-open connections": connections::half_open, "tcp";
    "nfs3d/iwarp: half of an MPA request": connections::half_open, "iwarp";
    "nfs3d/iwarp: a byte of an MPA request each second": connections::slow_handshakes;
    "nfs3d/tcp: 16400 failing calls, then a replay": replies::failing_calls;
    "nfs3d/tcp: one call on 16 connections at once": replies::replayed_call;
    "blobstore/tcp: all uploads, commits and watches": uploads::all_slots;
    "nfs3d/tcp: malformed records": messages::malformed, "tcp";
    "nfs3d/iwarp: malformed frames and headers": messages::malformed, "iwarp";
    "nfs3d/tcp: garbage arguments, unknown programs": messages::garbage, "tcp";
    "nfs3d/iwarp: garbage arguments, unknown programs": messages::garbage, "iwarp";
    "nfs3d/iwarp: STags of another connection, invented": stags::foreign;
    "nfs3d: capabilities that override permissions": identity::capabilities;
    "nfs3d/tcp: LOOKUP .. without search permission": identity::closed_directory;
    "counters/tcp: one call on 16 connections, SIGKILL": counters::replayed_call;
    "counters: a damaged store after SIGKILL": counters::damaged_store;
};

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    match cli.command {
        Some(Command::ServeCounters(arguments)) => {
            command::run("rpcrdma-attacks", rpcrdma_trials::counters::serve(arguments))
        }
        None => command::run("rpcrdma-attacks", unless_stopped(play(cli.play))),
    }
}

/// Runs the chosen attacks, and prints a table with one line for each.
async fn play(arguments: PlayArgs) -> anyhow::Result<ExitCode> {
    let Some(chosen) = arguments.choice.of(ATTACKS)? else { return Ok(ExitCode::SUCCESS) };
    let descriptors = command::raise_descriptor_limit(DESCRIPTORS);
    anyhow::ensure!(
        descriptors >= DESCRIPTORS,
        "the attacks need {DESCRIPTORS} open files, and the limit is {descriptors}: raise it (ulimit -Hn)"
    );
    let programs = programs(arguments.programs)?;
    let (form, limit) = if arguments.short { (Form::Short, MAX_SHORT_DURATION) } else { (Form::Full, MAX_DURATION) };
    let plan = Plan { programs, form };
    print_head();
    Ok(rpcrdma_trials::play("attacks", &chosen, &plan, limit, print_row).await)
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
    fn names_are_unique_and_fit_into_their_column() {
        rpcrdma_trials::assert_names(ATTACKS, report::NAME_WIDTH);
    }
}
