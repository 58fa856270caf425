//! The record of the last run of all faults. `CONFORMANCE.md` and the pages of the specifications show it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

/// Figures of a run of all faults.
#[derive(Debug, Deserialize, Serialize)]
pub struct FullRun {
    /// Day of the run, such as `2026-11-28`.
    pub date: String,
    /// Commit that was checked out.
    pub commit: String,
    /// Number of faults.
    pub faults: usize,
    /// Duration of compiling, in seconds.
    pub build_seconds: u64,
    /// Duration of the tests, in seconds.
    pub test_seconds: u64,
    /// Names of the rules with a fault that no test noticed, or whose tests hung.
    pub missed: Vec<String>,
}

/// Reads a record. Returns `None` if the file cannot be read.
///
/// # Errors
///
/// Fails if the file is not a record.
pub fn read(path: &Path) -> anyhow::Result<Option<FullRun>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(toml::from_str(&text).with_context(|| format!("{} is not a record", path.display()))?)),
        Err(_) => Ok(None),
    }
}

/// Writes a record.
///
/// # Errors
///
/// Fails if the file cannot be written.
pub fn write(path: &Path, run: &FullRun) -> anyhow::Result<()> {
    let text = format!("# Written by `rpcrdma-faults --record`.\n{}", toml::to_string(run)?);
    fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
}

/// Returns the day, such as `2026-11-28`, and the commit that is checked out.
///
/// # Errors
///
/// Fails if git or date cannot be run, or fails.
pub fn date_and_commit(root: &Path) -> anyhow::Result<(String, String)> {
    Ok((output(root, "date", &["+%F"])?, output(root, "git", &["rev-parse", "--short=12", "HEAD"])?))
}

/// Runs a program, and returns its trimmed output.
///
/// # Errors
///
/// Fails if the program cannot be run, or fails.
pub fn output(folder: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).current_dir(folder).output()?;
    ensure!(output.status.success(), "{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
