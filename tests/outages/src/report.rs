//! The findings of a scenario, and the table of all scenarios.

use std::time::Duration;

use rpcrdma_examples::say;

use crate::calls::{Calls, Kind};

/// Width of the column with the names of scenarios.
pub(crate) const NAME_WIDTH: usize = 50;
/// Width of the column with descriptions of what happened.
const OUTCOME_WIDTH: usize = 54;

/// The result of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) calls: Calls,
    /// Number of TCP connections that the client tried to make. `None` if it could not be counted.
    pub(crate) connects: Option<u64>,
    /// The time from the end of the outage to the next successful call.
    pub(crate) healed: Option<Duration>,
    /// Description of what else happened.
    pub(crate) outcome: String,
    /// The expected result.
    pub(crate) expected: String,
    /// Descriptions of what must not have happened.
    pub(crate) faults: Vec<String>,
    /// The reason why the scenario was not played.
    pub(crate) not_run: Option<String>,
}

/// The verdict on a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// With the reasons.
    Failed(String),
    /// With the reason.
    NotRun(String),
}

impl Findings {
    /// The result of a scenario that could not be played to its end.
    pub(crate) fn failed(reason: String) -> Self {
        Self { faults: vec![reason], ..Self::default() }
    }

    /// The result of a scenario that this machine cannot play.
    pub(crate) fn not_run(reason: impl Into<String>) -> Self {
        Self { not_run: Some(reason.into()), ..Self::default() }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        match &self.not_run {
            _ if !self.faults.is_empty() => Verdict::Failed(self.faults.join("; ")),
            Some(reason) => Verdict::NotRun(reason.clone()),
            None => Verdict::Passed,
        }
    }
}

/// Prints the head of the table.
pub(crate) fn print_head() {
    say!(
        "{:NAME_WIDTH$} {:>12} {:>12} {:>12} {:>8} {:>8} {:>8} {:>8}  {:OUTCOME_WIDTH$} result; expected",
        "scenario",
        "deadline",
        "no deadline",
        "not idemp.",
        "longest",
        "gap",
        "connects",
        "healed",
        "outcome",
    );
}

/// Prints a line of the table.
pub(crate) fn print_row(name: &str, findings: &Findings) {
    let calls = &findings.calls;
    let counts = [Kind::Deadline, Kind::NoDeadline, Kind::NotIdempotent].map(|kind| match calls.count(kind) {
        (0, _) => "-".to_owned(),
        (made, failed) => format!("{made}/{failed}"),
    });
    let [deadline, no_deadline, not_idempotent] = counts;
    let seconds = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()));
    let (longest, gap, healed) = (seconds(calls.longest()), seconds(calls.gap()), seconds(findings.healed));
    let connects = findings.connects.map_or("-".to_owned(), |connects| connects.to_string());
    let outcome = if findings.outcome.is_empty() { "-" } else { &findings.outcome };
    let verdict = match findings.verdict() {
        Verdict::Passed => "pass".to_owned(),
        Verdict::Failed(reasons) => format!("FAIL: {reasons}"),
        Verdict::NotRun(reason) => format!("NOT RUN: {reason}"),
    };
    let expected = if findings.expected.is_empty() { String::new() } else { format!("; {}", findings.expected) };
    say!(
        "{name:NAME_WIDTH$} {deadline:>12} {no_deadline:>12} {not_idempotent:>12} {longest:>8} {gap:>8} {connects:>8} \
         {healed:>8}  {outcome:OUTCOME_WIDTH$} {verdict}{expected}"
    );
    for error in calls.errors() {
        say!("    {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_fault_fails() {
        assert_eq!(Findings::default().verdict(), Verdict::Passed);
        assert_eq!(Findings::not_run("no root").verdict(), Verdict::NotRun("no root".to_owned()));
        let mut findings = Findings::failed("first".to_owned());
        findings.faults.push("second".to_owned());
        assert_eq!(findings.verdict(), Verdict::Failed("first; second".to_owned()));
    }
}
