//! Common parts of the programs that test processes under faults: named trials with a verdict on each, child processes,
//! namespaces, proxies, and a counters server.
#![forbid(unsafe_code)]

pub mod counters;
pub mod namespace;
pub mod process;
pub mod proxy;

use std::{
    collections::BTreeSet,
    fmt,
    pin::Pin,
    process::ExitCode,
    time::{Duration, Instant},
};

use rpcrdma_examples::say;
use tokio::time::timeout;

/// The result of a trial that measures `M`.
#[derive(Debug, Clone, Default)]
pub struct Findings<M> {
    /// The measurements of the trial.
    pub measured: M,
    /// Description of the results that are not measured.
    pub outcome: String,
    /// Descriptions of faults, which must not happen.
    pub faults: Vec<String>,
    /// The reason why the trial was not played. `None` if it was played.
    pub not_run: Option<String>,
}

/// The verdict on a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The trial had no faults.
    Passed,
    /// The trial had faults, which the text describes.
    Failed(String),
    /// The trial was not played, for this reason.
    NotRun(String),
}

impl<M: Default> Findings<M> {
    /// Returns the result of a trial that could not be played to its end.
    #[must_use]
    pub fn failed(reason: String) -> Self {
        Self { faults: vec![reason], ..Self::default() }
    }

    /// Returns the result of a trial that this machine cannot play.
    pub fn not_run(reason: impl Into<String>) -> Self {
        Self { not_run: Some(reason.into()), ..Self::default() }
    }
}

impl<M> Findings<M> {
    /// Returns the verdict on the trial.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match &self.not_run {
            _ if !self.faults.is_empty() => Verdict::Failed(self.faults.join("; ")),
            Some(reason) => Verdict::NotRun(reason.clone()),
            None => Verdict::Passed,
        }
    }

    /// Returns the outcome for a table, or `-` if the outcome is empty.
    #[must_use]
    pub fn shown_outcome(&self) -> &str {
        if self.outcome.is_empty() { "-" } else { &self.outcome }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Failed(reasons) => write!(f, "FAIL: {reasons}"),
            Self::NotRun(reason) => write!(f, "NOT RUN: {reason}"),
        }
    }
}

/// The future of a trial in progress.
pub type Played<'a, M> = Pin<Box<dyn Future<Output = anyhow::Result<Findings<M>>> + Send + 'a>>;

/// A trial: its name, and a function that runs it according to a plan.
#[derive(Debug)]
pub struct Trial<P, M> {
    /// Name of the trial, which is unique in its list.
    pub name: &'static str,
    /// The function that plays the trial.
    pub play: for<'a> fn(&'a P) -> Played<'a, M>,
}

/// Defines a list of [`Trial`]s by their names, functions and arguments.
#[macro_export]
macro_rules! trials {
    ($($name:literal: $play:path $(, $argument:expr)*;)*) => {
        &[$($crate::Trial { name: $name, play: |plan| Box::pin($play(plan $(, $argument)*)) }),*]
    };
}

/// The choice of trials on a command line.
#[derive(Debug, clap::Args)]
pub struct Choice {
    /// Play only the trials whose name contains this text. May be repeated
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// List the names of the chosen trials and exit
    #[arg(long)]
    pub list: bool,
}

impl Choice {
    /// Returns the chosen trials. With `--list`, prints their names and returns `None`.
    ///
    /// # Errors
    /// Fails if no trial is chosen.
    pub fn of<P, M>(&self, all: &'static [Trial<P, M>]) -> anyhow::Result<Option<Vec<&'static Trial<P, M>>>> {
        let is_chosen = |name: &str| self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()));
        let chosen: Vec<_> = all.iter().filter(|trial| is_chosen(trial.name)).collect();
        anyhow::ensure!(!chosen.is_empty(), "nothing has such a name: see --list");
        if self.list {
            chosen.iter().for_each(|trial| say!("{}", trial.name));
            return Ok(None);
        }
        Ok(Some(chosen))
    }
}

/// Plays trials, each for at most `limit`. Prints a line for each trial with `print_row`, and a summary at the end.
/// `kind` names the trials in the summary, in the plural. Returns a failure exit code if a trial failed.
pub async fn play<P, M: Default>(
    kind: &str,
    trials: &[&Trial<P, M>],
    plan: &P,
    limit: Duration,
    print_row: impl Fn(&str, &Findings<M>),
) -> ExitCode {
    let (started, mut failed) = (Instant::now(), 0);
    for trial in trials {
        let findings = match timeout(limit, (trial.play)(plan)).await {
            Ok(played) => played.unwrap_or_else(|error| Findings::failed(format!("{error:#}"))),
            Err(_) => Findings::failed(format!("it was not over after {} s", limit.as_secs())),
        };
        failed += usize::from(matches!(findings.verdict(), Verdict::Failed(_)));
        print_row(trial.name, &findings);
    }
    let (count, seconds) = (trials.len(), started.elapsed().as_secs());
    say!("{count} {kind} in {seconds} s, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replaces each number in an error with `#`, so that errors which differ only in times and ports are counted together.
#[must_use]
pub fn without_numbers(error: &str) -> String {
    let mut text = String::with_capacity(error.len());
    for char in error.chars() {
        match char {
            '0'..='9' if text.ends_with('#') => {}
            '0'..='9' => text.push('#'),
            other => text.push(other),
        }
    }
    text
}

/// Checks that the names of the trials are unique, and that each has at most `width` bytes.
///
/// # Panics
/// Panics if two names are equal, or if a name is too long. This is meant for tests.
pub fn assert_names<P, M>(trials: &[Trial<P, M>], width: usize) {
    let names: BTreeSet<&str> = trials.iter().map(|trial| trial.name).collect();
    assert_eq!(names.len(), trials.len());
    assert!(names.iter().all(|name| name.len() <= width));
}

#[cfg(test)]
mod tests {
    use super::*;

    type Nothing = Findings<()>;

    #[test]
    fn any_fault_fails() {
        assert_eq!(Nothing::default().verdict(), Verdict::Passed);
        assert_eq!(Nothing::not_run("no root").verdict(), Verdict::NotRun("no root".to_owned()));
        let mut findings = Nothing::failed("first".to_owned());
        findings.faults.push("second".to_owned());
        assert_eq!(findings.verdict(), Verdict::Failed("first; second".to_owned()));
        assert_eq!(findings.verdict().to_string(), "FAIL: first; second");
    }

    #[test]
    fn errors_that_differ_in_numbers_are_the_same() {
        assert_eq!(without_numbers("port 4711: after 12 s"), without_numbers("port 1: after 3 s"));
        assert_eq!(without_numbers("port 4711"), "port #");
    }
}
