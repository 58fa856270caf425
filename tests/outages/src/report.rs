//! The findings of a scenario, and the table of all scenarios.

use std::time::Duration;

use rpcrdma_examples::say;

use crate::calls::{Calls, Kind};

/// Width of the column with the names of scenarios.
pub(crate) const NAME_WIDTH: usize = 50;
/// Width of the column with descriptions of what happened.
const OUTCOME_WIDTH: usize = 54;

/// The measurements of a scenario.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub(crate) calls: Calls,
    /// Number of TCP connections that the client tried to make. `None` if it could not be counted.
    pub(crate) connects: Option<u64>,
    /// The time from the end of the outage to the next successful call.
    pub(crate) healed: Option<Duration>,
    /// The expected result.
    pub(crate) expected: String,
}

/// The result of a scenario.
pub(crate) type Findings = rpcrdma_trials::Findings<Measured>;

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

/// Prints a line of the table, followed by the most frequent errors.
pub(crate) fn print_row(name: &str, findings: &Findings) {
    let Measured { calls, connects, healed, expected } = &findings.measured;
    let counts = [Kind::Deadline, Kind::NoDeadline, Kind::NotIdempotent].map(|kind| match calls.count(kind) {
        (0, _) => "-".to_owned(),
        (made, failed) => format!("{made}/{failed}"),
    });
    let [deadline, no_deadline, not_idempotent] = counts;
    let seconds = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()));
    let (longest, gap, healed) = (seconds(calls.longest()), seconds(calls.gap()), seconds(*healed));
    let connects = connects.map_or("-".to_owned(), |connects| connects.to_string());
    let outcome = findings.shown_outcome();
    let verdict = findings.verdict();
    let expected = if expected.is_empty() { String::new() } else { format!("; {expected}") };
    say!(
        "{name:NAME_WIDTH$} {deadline:>12} {no_deadline:>12} {not_idempotent:>12} {longest:>8} {gap:>8} {connects:>8} \
         {healed:>8}  {outcome:OUTCOME_WIDTH$} {verdict}{expected}"
    );
    for error in calls.errors() {
        say!("    {error}");
    }
}
