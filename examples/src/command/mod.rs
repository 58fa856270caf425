//! Code shared by the commands, such as logging, command-line options, error messages, shutdown, and notifications of
//! the service manager.

mod connect;
mod connections;
mod generate;
#[cfg_attr(not(feature = "introspection"), path = "no_introspection.rs")]
mod introspection;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
mod metrics;
mod progress;
#[cfg(unix)]
mod register;
mod sec;
mod service_manager;
mod stop;
mod threads;
#[cfg_attr(not(feature = "tls"), path = "no_tls.rs")]
mod tls;
mod units;
mod version;

use std::{
    error::Error,
    fmt,
    io::{IsTerminal as _, Write as _},
    net::IpAddr,
    process::{ExitCode, Termination},
    time::Duration,
};

use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;

#[cfg(unix)]
pub use self::register::{RegisterArgs, Registered};
pub use self::{
    connect::explain_connect_error,
    connections::{ConnectionArgs, raise_descriptor_limit},
    introspection::IntrospectionArgs,
    metrics::{Health, MetricsArgs},
    progress::{human_bytes, progress_bar},
    sec::{ClientSec, Flavor, Flavors, Kerberos, SecError, ServerSec},
    stop::{DrainArgs, Stop, serve, unless_stopped},
    threads::{RuntimeThreads, ThreadArgs},
    tls::{ClientTls, ServerTls, TlsClientArgs, TlsServerArgs},
    units::{parse_seconds, parse_size},
    version::RpcRdmaVersion,
};

/// Maximum time that background threads have to finish after a command ends, for example to remove partial files. The
/// wait is bounded because a read from standard input may block forever.
const LINGER: Duration = Duration::from_secs(2);

/// The option `-v`.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Logging {
    /// Increase log verbosity: -v info, -vv debug, -vvv trace. RUST_LOG overrides it
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
}

impl Logging {
    /// Starts logging to standard error. Call it once per process.
    pub fn start(self) {
        let level = match self.verbose {
            0 => "warn",
            1 => "info",
            2 => "debug",
            _ => "trace",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .init();
    }
}

/// Text that a server sent, to be shown in a terminal. Control characters and marks of text direction are escaped,
/// because they could change what the terminal shows.
#[derive(Debug, Clone, Copy)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            // The marks of text direction reorder what surrounds them.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                write!(f, "{}", c.escape_unicode())
            }
            c if c.is_control() => write!(f, "{}", c.escape_debug()),
            c => write!(f, "{c}"),
        })
    }
}

/// Parses the command line. Adds the option `--generate`, which prints shell completions or the man page. Exits the
/// process after printing, and on wrong usage.
#[must_use]
pub fn parse<C: clap::Parser>() -> C {
    generate::parse().unwrap_or_else(|error| {
        print_error(C::command().get_name(), format_args!("cannot write to standard output: {error}"));
        std::process::exit(1)
    })
}

/// Runs a command on a multi-threaded runtime. If `work` fails, prints the error and returns exit code 1.
pub fn run<T: Termination>(name: &str, work: impl Future<Output = anyhow::Result<T>>) -> ExitCode {
    run_on(&mut Builder::new_multi_thread(), name, work)
}

/// Runs a command as [`run`] does, on a runtime built from `runtime`.
pub fn run_on<T: Termination>(
    runtime: &mut Builder,
    name: &str,
    work: impl Future<Output = anyhow::Result<T>>,
) -> ExitCode {
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(name, format_args!("cannot start the async runtime: {}", chain(&error)));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(LINGER);
    match outcome {
        Ok(done) => done.report(),
        Err(error) => {
            print_error(name, format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error message to standard error, as `NAME: MESSAGE`.
pub fn print_error(name: &str, what: impl fmt::Display) {
    // Ignore write errors, which must not cause a panic: the reader of standard error may have exited.
    let _ = writeln!(std::io::stderr(), "{name}: {what}");
}

/// Prints a line to standard output, like `println!`, but ignores write errors. If the reader exits, as `head` does,
/// the command completes normally and does not panic.
#[macro_export]
macro_rules! say {
    ($($what:tt)*) => { $crate::command::print_line(format_args!($($what)*)) };
}

#[doc(hidden)]
pub fn print_line(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{what}");
}

/// Returns the address under which per-host limits count a client: its IPv4 address, or the first 64 bits of its IPv6
/// address. A host can often use all addresses with these 64 bits (RFC 4291 §2.5.4).
pub(crate) fn limited_host(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(addr) => IpAddr::V6((addr.to_bits() & !u128::from(u64::MAX)).into()),
        addr => addr,
    }
}

/// Returns the messages of an error and of its causes in one line, separated by colons, as `{:#}` does for
/// [`anyhow::Error`].
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line = format!("{line}: {error}");
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn causes_follow_their_error() {
        let error = anyhow::Error::new(std::io::Error::other("disk removed")).context("cannot write a");
        assert_eq!(chain(error.as_ref()), "cannot write a: disk removed");
        assert_eq!(chain(error.as_ref()), format!("{error:#}"));
        assert_eq!(chain(anyhow!("alone").as_ref()), "alone");
    }

    #[test]
    fn outcome_determines_the_exit_code() {
        let code = |outcome: anyhow::Result<ExitCode>| format!("{:?}", run("test", async { outcome }));
        assert_eq!(code(Ok(ExitCode::from(3))), format!("{:?}", ExitCode::from(3)));
        assert_eq!(code(Err(anyhow!("on purpose"))), format!("{:?}", ExitCode::FAILURE));
    }
}
