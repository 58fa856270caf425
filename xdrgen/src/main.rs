//! The `xdrgen` command.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

/// A third of the command's time would be the C library's: `syn` and `proc-macro2` allocate for each token, several times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
