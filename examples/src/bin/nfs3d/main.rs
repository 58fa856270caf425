//! `nfs3d`: serves a directory tree by NFS version 3 over RDMA and TCP. `nfs3d --help` tells how.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod serve;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use std::io::Write as _;

    use clap::Parser as _;

    let cli = cli::Cli::parse();
    log_to_stderr(cli.verbose);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(anyhow::Error::from);
    let outcome = runtime.and_then(|runtime| {
        let outcome = runtime.block_on(serve::run(cli));
        // What is cut off may be waiting for a disk, and is not waited for long.
        runtime.shutdown_timeout(std::time::Duration::from_secs(2));
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Who reads standard error may have gone, which is no reason to panic.
            let _ = writeln!(std::io::stderr(), "nfs3d: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("nfs3d: needs Linux: it has the kernel confine path names (openat2) and check each caller's permissions");
    ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
fn log_to_stderr(verbose: u8) {
    use std::io::IsTerminal as _;

    use tracing_subscriber::EnvFilter;

    let level = match verbose {
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
