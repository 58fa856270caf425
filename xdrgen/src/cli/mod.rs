//! Arguments and subcommands of `xdrgen`.

mod args;
mod commands;
mod output;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::{Cli, Command};

/// Everything is as it should be.
const GOOD: u8 = 0;
/// The input is wrong: diagnostics say how.
const WRONG_INPUT: u8 = 1;
// 2 is clap's, for wrong usage.
/// A file cannot be read or written.
const NO_FILE: u8 = 3;

/// How a command ends other than well: what remains to be said, and the exit code.
struct Failure {
    message: String,
    code: u8,
}

pub(crate) fn run() -> ExitCode {
    let cli = Cli::parse();
    let colour = cli.color.on_stderr();
    let outcome = match &cli.command {
        Command::Check(check) => commands::check(check, colour),
        Command::Gen(generate) => commands::generate(generate, colour),
        Command::Extract(extract) => commands::extract(extract),
        Command::Strip(strip) => commands::strip(strip),
        Command::Ulb(ulb) => commands::ulb(ulb, colour),
    };
    match outcome {
        Ok(()) => ExitCode::from(GOOD),
        Err(failure) => {
            eprint!("{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
