//! The requirements of the specifications, the code that fulfills them, and the faults that their tests must notice.
//!
//! `tables` has a file for each specification. Each of its rules names functions of the code, tests, and a fault: a
//! replacement in one function that breaks the requirement.
//!
//! - The test `page` checks the tables, and writes the pages for readers: `CONFORMANCE.md` and one page per
//!   specification.
//! - The program `rpcrdma-faults` plants the faults in a copy of the project and runs the tests of each.
//! - The program `rpcrdma-bugs` plants the bugs of `tests/simulation/bugs.toml`, and searches for seeds of the
//!   simulation that find each.
//! - The program `rpcrdma-mutants` changes the code by rules, in many places, and runs the tests that reach each
//!   change.
#![forbid(unsafe_code)]

pub mod bugs;
pub mod citations;
pub mod copy;
pub mod items;
pub mod keywords;
pub mod mutants;
pub mod page;
pub mod plant;
pub mod programs;
pub mod record;
pub mod switch;
pub mod table;
pub mod trial;

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
};

use clap::Args;

/// The folders of a program that changes a copy of the project.
#[derive(Debug, Args)]
pub struct CopyFolders {
    /// Folder for the copy. Default: target/faults, target/bugs or target/mutants
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Target folder of cargo. Default: the folder build beside the copy. With the project's own target folder,
    /// dependencies are compiled once
    #[arg(long, value_name = "FOLDER")]
    target: Option<PathBuf>,
}

impl CopyFolders {
    /// Returns the folder for the copy, by default `target/KIND` in the repository `root`, and the target folder of
    /// cargo, by default `build` in the folder for the copy.
    pub fn of(&self, root: &Path, kind: &str) -> (PathBuf, PathBuf) {
        let folder = self.folder.clone().unwrap_or_else(|| root.join("target").join(kind));
        let target = self.target.clone().unwrap_or_else(|| folder.join("build"));
        (folder, target)
    }
}

/// Returns the exit code of a program: 0 if `outcome` is `true`, 1 if it is `false`, and 2 after an error, which this
/// function prints.
pub fn exit_code(program: &str, outcome: anyhow::Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns the default number of test programs or searches that run at a time: the number of processors.
pub fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Returns the root of the repository.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}
