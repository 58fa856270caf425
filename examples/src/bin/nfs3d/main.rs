//! `nfs3d`: serves a directory tree by NFS version 3 over RDMA and TCP. `nfs3d --help` tells how.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod serve;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    use clap::Parser as _;

    let cli = cli::Cli::parse();
    cli.logging.start();
    rpcrdma_examples::command::run("nfs3d", serve::run(cli))
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    rpcrdma_examples::command::complain(
        "nfs3d",
        "needs Linux: it has the kernel confine path names (openat2) and check each caller's permissions",
    );
    ExitCode::FAILURE
}
