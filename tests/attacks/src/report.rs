//! The findings of an attack, and the table of all attacks.

use std::time::Duration;

use rpcrdma_examples::say;

/// Width of the column with the names of attacks.
pub(crate) const NAME_WIDTH: usize = 50;
/// Width of the column with the attackers' outcome.
const OUTCOME_WIDTH: usize = 52;

/// The result of an attack.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings {
    /// The victim's p99 latency alone and during the attack.
    pub(crate) latency: Option<(Duration, Duration)>,
    /// The growth of the server's memory and its limit, in bytes.
    pub(crate) memory: Option<(u64, u64)>,
    /// Description of what happened to the attackers.
    pub(crate) outcome: String,
    /// Descriptions of what must not have happened.
    pub(crate) faults: Vec<String>,
    /// The reason why the attack was not played.
    pub(crate) not_run: Option<String>,
}

/// The verdict on an attack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// With the reasons.
    Failed(String),
    /// With the reason.
    NotRun(String),
}

impl Findings {
    /// The result of an attack that could not be played to its end.
    pub(crate) fn failed(reason: String) -> Self {
        Self { faults: vec![reason], ..Self::default() }
    }

    /// The result of an attack that this machine cannot play.
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
    let (name, outcome) = ("attack", "attackers");
    say!(
        "{name:NAME_WIDTH$} {:>9} {:>9} {:>9} {:>9}  {outcome:OUTCOME_WIDTH$} result",
        "alone p99",
        "attacked",
        "memory",
        "limit"
    );
}

/// Prints a line of the table.
pub(crate) fn print_row(name: &str, findings: &Findings) {
    let millis = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mib = |bytes: u64| format!("{} MiB", bytes.div_ceil(1 << 20));
    let pair = |pair: Option<[String; 2]>| pair.unwrap_or_else(|| ["-".to_owned(), "-".to_owned()]);
    let [alone, attacked] = pair(findings.latency.map(|(alone, attacked)| [millis(alone), millis(attacked)]));
    let [growth, limit] = pair(findings.memory.map(|(growth, limit)| [mib(growth), mib(limit)]));
    let verdict = match findings.verdict() {
        Verdict::Passed => "pass".to_owned(),
        Verdict::Failed(reasons) => format!("FAIL: {reasons}"),
        Verdict::NotRun(reason) => format!("not run: {reason}"),
    };
    let outcome = if findings.outcome.is_empty() { "-" } else { &findings.outcome };
    say!("{name:NAME_WIDTH$} {alone:>9} {attacked:>9} {growth:>9} {limit:>9}  {outcome:OUTCOME_WIDTH$} {verdict}");
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
