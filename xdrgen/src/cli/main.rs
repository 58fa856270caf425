//! The `xdrgen` command.
#![forbid(unsafe_code)]
#![warn(clippy::too_many_lines)]

mod args;
mod commands;
mod compile;
mod decode;
mod diagnostics;
mod difference;
mod error;
mod format;
mod generate;
mod output;
mod template;

use std::process::ExitCode;

use self::{
    args::{Cli, Command, Format},
    diagnostics::DiagnosticFormat,
    error::{CliError, NO_FILE},
};

/// `syn` and `proc-macro2` allocate several times per token. With the C library's allocator, this takes a third of the
/// run time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli: Cli = match generate::parse() {
        Ok(cli) => cli,
        Err(error) => {
            eprintln!("error: cannot write to standard output: {error}");
            return ExitCode::from(NO_FILE);
        }
    };
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{}", error.message);
            ExitCode::from(error.code)
        }
    }
}

fn run(cli: &Cli) -> Result<(), CliError> {
    let format = match cli.format {
        Format::Human => DiagnosticFormat::Text { colour: cli.color.on_stderr() },
        Format::Json => DiagnosticFormat::Json,
    };
    match &cli.command {
        Command::Check(check) => commands::check(check, format),
        Command::Decode(decode) => decode::run(decode, format),
        Command::Gen(generate) => commands::generate(generate, format),
        Command::Extract(extract) => commands::extract(extract),
        Command::Strip(strip) => commands::strip(strip, format),
        Command::Explain(explain) => commands::explain(explain, format),
        Command::Fmt(fmt) => format::run(fmt, format),
        Command::New(new) => template::run(new),
        Command::Ulb(ulb) => commands::ulb(ulb, format),
        Command::Wireshark(wireshark) => commands::wireshark(wireshark, format),
    }
}
