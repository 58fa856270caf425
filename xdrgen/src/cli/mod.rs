//! The command line of `xdrgen`.

mod args;
mod commands;
mod decode;
mod difference;
mod format;
mod generate;
mod json;
mod output;

use std::process::ExitCode;

use rpcrdma_xdrgen::diag::Diagnostics;

use self::args::{Cli, Command, Format};

/// Success.
const GOOD: u8 = 0;
/// The input has errors, which the diagnostics describe.
const WRONG_INPUT: u8 = 1;
// clap exits with 2 for wrong usage.
/// A file cannot be read or written.
const NO_FILE: u8 = 3;

/// Failure of a command: text that is still to be printed, and the exit code.
struct CliError {
    message: String,
    code: u8,
}

/// Output format of diagnostics.
#[derive(Debug, Clone, Copy)]
enum DiagnosticFormat {
    /// Text for humans.
    Text {
        /// Enables colours.
        colour: bool,
    },
    /// JSON for editors.
    Json,
}

impl DiagnosticFormat {
    fn render(self, diagnostics: &Diagnostics) -> String {
        match self {
            Self::Text { colour } => diagnostics.render(colour),
            Self::Json => json::render(diagnostics),
        }
    }
}

pub(crate) fn run() -> ExitCode {
    let cli: Cli = match generate::parse() {
        Ok(cli) => cli,
        Err(error) => {
            eprintln!("error: cannot write to standard output: {error}");
            return ExitCode::from(NO_FILE);
        }
    };
    let form = match cli.format {
        Format::Human => DiagnosticFormat::Text { colour: cli.color.on_stderr() },
        Format::Json => DiagnosticFormat::Json,
    };
    let outcome = match &cli.command {
        Command::Check(check) => commands::check(check, form),
        Command::Decode(decode) => decode::run(decode, form),
        Command::Gen(generate) => commands::generate(generate, form),
        Command::Extract(extract) => commands::extract(extract),
        Command::Strip(strip) => commands::strip(strip, form),
        Command::Explain(explain) => commands::explain(explain, form),
        Command::Fmt(fmt) => format::run(fmt, form),
        Command::Ulb(ulb) => commands::ulb(ulb, form),
    };
    match outcome {
        Ok(()) => ExitCode::from(GOOD),
        Err(failure) => {
            eprint!("{}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}
