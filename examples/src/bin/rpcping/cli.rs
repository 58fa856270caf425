//! The command-line arguments of `rpcping`.

use std::{path::PathBuf, time::Duration};

use clap::{
    ArgAction, Parser,
    builder::{ArgPredicate, ValueParser},
};
use rpcrdma_examples::command::{ClientSec, Logging, RpcRdmaVersion, parse_seconds};

/// Call the null procedure of an RPC service, and show the negotiated parameters and the latency
#[derive(Debug, Parser)]
#[command(name = "rpcping", disable_version_flag = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// URL of the service, e.g. iwarp://localhost:20049 or tcp://localhost:111. Without a port, rpcbind on the host is
    /// asked for it
    pub(crate) url: String,
    /// Program: a decimal number, a hexadecimal number with 0x, or one of portmapper, rpcbind, nfs, mount, nlm, status,
    /// nfsacl
    #[arg(short, long, value_name = "P", value_parser = ValueParser::new(parse_program))]
    #[arg(required = false, required_unless_present_any = MODES, conflicts_with = "call")]
    #[arg(default_value_if("mode", ArgPredicate::IsPresent, "0"))]
    pub(crate) program: u32,
    /// Version of the program
    #[arg(short = 'V', long = "version", id = "program-version", value_name = "V")]
    #[arg(required = false, required_unless_present_any = MODES)]
    #[arg(default_value_if("mode", ArgPredicate::IsPresent, "0"))]
    pub(crate) version: u32,
    /// Show the health of the server, or of the given program and version, as reported by its program HEALTH
    #[arg(long, group = "mode", conflicts_with_all = ["count", "quiet"])]
    pub(crate) health: bool,
    /// With --health: show each change, until the connection is lost or the program is interrupted
    #[arg(long, requires = "health")]
    pub(crate) watch: bool,
    /// Call a procedure of the specification FILE, PROGRAM.PROCEDURE or PROGRAM.VERSION.PROCEDURE, and print its result
    /// as JSON. The arguments are JSON as well; @FILE reads them from a file, and - reads them from standard input.
    /// Opaque data is hexadecimal, or "@FILE"
    #[arg(
        long,
        group = "mode",
        action = ArgAction::Set,
        num_args = 2..=3,
        value_names = ["FILE", "PROCEDURE", "JSON"],
        allow_negative_numbers = true,
        conflicts_with_all = ["count", "interval", "quiet"]
    )]
    pub(crate) call: Vec<String>,
    /// With --call: file with the Upper-Layer Binding of the specification
    #[arg(long, value_name = "FILE", requires = "call")]
    pub(crate) ulb: Vec<PathBuf>,
    /// With --call: directory to search for files that the specification includes. May be given several times
    #[arg(short = 'I', long, value_name = "DIR", requires = "call")]
    pub(crate) include: Vec<PathBuf>,
    /// List the programs of a server that offers the program INTROSPECTION, in place of calling one
    #[cfg(feature = "introspection")]
    #[arg(short, long, group = "mode", conflicts_with_all = ["program", "program-version", "count", "interval", "quiet"])]
    pub(crate) list: bool,
    /// Number of calls
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) count: u32,
    /// Seconds between calls. Default: 0.2. With --watch, seconds between queries. Default: 10. A server that supports
    /// callbacks also reports changes between the queries
    #[arg(short, long, value_name = "S", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) interval: Option<Duration>,
    /// Time limit for connecting and for each call, in seconds
    #[arg(short, long, value_name = "S", default_value = "5", value_parser = ValueParser::new(parse_seconds))]
    pub(crate) timeout: Duration,
    #[command(flatten)]
    pub(crate) sec: ClientSec,
    #[command(flatten)]
    pub(crate) rpcrdma: RpcRdmaVersion,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print only the connection's parameters and the summary
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

const EXAMPLES: &str = "\
Examples:
  rpcping tcp://localhost:111 --program portmapper --version 2
  rpcping tcp://server --program mount --version 3
  rpcping iwarp://server:20049 --program nfs --version 3 -c 100 -i 0
  rpcping tcp://server:2049 --program nfs --version 3 --sec krb5
  rpcping iwarp://localhost:20100 --program 0x20100b10 --version 1 --json
  rpcping iwarp://localhost:20100 --health --watch
  rpcping iwarp://localhost:20100 --call blobstore.x BLOBSTORE.STAT '\"name\"'

Exit status: 0 if every call succeeded; 1 if the server rejected a call, or does
not offer the program or version; 2 if the command line is invalid; 3 if there
is no connection, or no reply in time; 4 if the service does not speak RPC over
this transport; 5 with --health, if the service is not serving.";

/// Name of the argument group of the options that replace the calls of the null procedure. It is in an array because
/// `required_unless_present_any` expects one.
const MODES: [&str; 1] = ["mode"];

/// Names of well-known programs (RFC 5531 and the IANA registry).
const PROGRAMS: &[(&str, u32)] = &[
    ("portmapper", 100_000),
    ("rpcbind", 100_000),
    ("nfs", 100_003),
    ("mount", 100_005),
    ("nlm", 100_021),
    ("status", 100_024),
    ("nfsacl", 100_227),
];

/// Returns the name of a program, or `None` if it is not in [`PROGRAMS`]. If the program has several names, returns the
/// first one.
pub(crate) fn program_name(program: u32) -> Option<&'static str> {
    PROGRAMS.iter().find(|(_, number)| *number == program).map(|(name, _)| *name)
}

fn parse_program(text: &str) -> Result<u32, String> {
    if let Some((_, number)) = PROGRAMS.iter().find(|(name, _)| *name == text) {
        return Ok(*number);
    }
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a 32-bit number (decimal or 0x hexadecimal) or a name from --help".to_owned())
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
    fn programs() {
        assert_eq!(parse_program("nfs"), Ok(100_003));
        assert_eq!(parse_program("100005"), Ok(100_005));
        assert_eq!(parse_program("0x20000001"), Ok(0x2000_0001));
        for bad in ["", "0x", "-1", "4294967296", "NFS4"] {
            assert!(parse_program(bad).is_err(), "{bad}");
        }
        assert_eq!(program_name(100_000), Some("portmapper"));
        assert_eq!(program_name(1), None);
    }
}
