//! The findings of an attack, and the table of all attacks.

use std::time::Duration;

use rpcrdma_examples::say;

/// Width of the column with the names of attacks, in characters.
pub(crate) const NAME_WIDTH: usize = 50;
/// Width of the column with the attackers' outcome, in characters.
const OUTCOME_WIDTH: usize = 52;

/// The measurements of an attack. `None` stands for a value that the attack does not measure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    /// The victim's p99 latency alone and during the attack.
    pub(crate) latency: Option<(Duration, Duration)>,
    /// The growth of the server's memory and its limit, in bytes.
    pub(crate) memory: Option<(u64, u64)>,
}

/// The findings of an attack, with its measurements.
pub(crate) type Findings = rpcrdma_trials::Findings<Measured>;

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
    let [alone, attacked] = pair(findings.measured.latency.map(|(alone, attacked)| [millis(alone), millis(attacked)]));
    let [growth, limit] = pair(findings.measured.memory.map(|(growth, limit)| [mib(growth), mib(limit)]));
    let verdict = findings.verdict();
    let outcome = findings.shown_outcome();
    say!("{name:NAME_WIDTH$} {alone:>9} {attacked:>9} {growth:>9} {limit:>9}  {outcome:OUTCOME_WIDTH$} {verdict}");
}
