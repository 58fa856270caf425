//! The `xdrgen` command.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

/// `syn` and `proc-macro2` allocate several times per token. With the C library's allocator, this takes a third of the run
/// time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
