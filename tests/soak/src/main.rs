//! `rpcrdma-soak`: runs the example servers and nfscp for a given time, with disturbances, and checks every byte, every
//! acknowledged effect and the growth of resources. See `README.md`.
#![forbid(unsafe_code)]

mod additions;
mod blobs;
mod content;
mod copies;
mod descriptors;
mod disk;
mod disturb;
mod files;
mod fit;
mod inspect;
mod ledger;
mod mounted;
mod outside;
mod report;
mod run;
mod samples;
mod server;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rpcrdma_examples::command::{self, Logging, unless_stopped};
use rpcrdma_trials::namespace::isolate;

/// Name of the program, for error messages.
const NAME: &str = "rpcrdma-soak";

/// Run the example servers and nfscp on the loopback interface for a given time, with disturbances
#[derive(Debug, Parser)]
#[command(name = "rpcrdma-soak", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(flatten)]
    soak: run::SoakArgs,
    #[command(flatten)]
    logging: Logging,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run workers at servers that something else starts and disturbs
    Outside(outside::OutsideArgs),
    /// Internal: the counters server
    #[command(hide = true)]
    ServeCounters(rpcrdma_trials::counters::ServeArgs),
    /// Internal: becomes a program that ends with the parent of this process
    #[command(hide = true)]
    Start(server::StartArgs),
}

fn main() -> ExitCode {
    let cli: Cli = command::parse();
    cli.logging.start();
    match cli.command {
        Some(Command::Outside(arguments)) => command::run(NAME, unless_stopped(outside::soak_outside(arguments))),
        Some(Command::ServeCounters(arguments)) => command::run(NAME, rpcrdma_trials::counters::serve(arguments)),
        Some(Command::Start(arguments)) => {
            if let Err(error) = server::start(arguments) {
                command::print_error(NAME, format_args!("{error:#}"));
            }
            ExitCode::FAILURE
        }
        None => {
            // Does not return if it succeeds.
            let reason = if cli.soak.isolated { String::new() } else { isolate("--mount") };
            // Removed when all tasks have ended, because their servers have disks in it.
            match tempfile::tempdir() {
                Ok(folder) => command::run(NAME, unless_stopped(run::soak(cli.soak, reason, folder.path()))),
                Err(error) => {
                    command::print_error(NAME, format_args!("cannot create a directory for servers: {error}"));
                    ExitCode::FAILURE
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
