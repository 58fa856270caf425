//! The program `nfs3d`, which exports a directory tree with NFS version 3, over RDMA and TCP. See `nfs3d --help`.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod cli;
#[cfg(target_os = "linux")]
mod locks;
#[cfg(target_os = "linux")]
mod serve;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let cli: cli::Cli = rpcrdma_examples::command::parse();
    cli.logging.start();
    rpcrdma_examples::command::run_on(&mut cli.threads.runtime(), "nfs3d", serve::run(cli))
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    rpcrdma_examples::command::print_error(
        "nfs3d",
        "this program runs on Linux only, where the kernel confines path names (openat2) and checks each caller's permissions",
    );
    ExitCode::FAILURE
}
