//! Reports of findings, as text, JSON or Markdown.

use std::fmt::Write as _;

use crate::{
    case::{Part, Verdict},
    run::Ran,
};

/// The number of findings with each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of conforming findings.
    pub conforming: usize,
    /// Number of unusual findings.
    pub unusual: usize,
    /// Number of violations.
    pub wrong: usize,
    /// Number of cases that the implementation or the connection does not support.
    pub not_supported: usize,
    /// Number of cases that could not run.
    pub not_run: usize,
}

impl Totals {
    /// Counts the findings with each verdict.
    #[must_use]
    pub fn of(all: &[Ran]) -> Self {
        let mut totals = Self::default();
        for ran in all {
            *match ran.finding.verdict {
                Verdict::Conforming => &mut totals.conforming,
                Verdict::Unusual => &mut totals.unusual,
                Verdict::Wrong => &mut totals.wrong,
                Verdict::NotSupported => &mut totals.not_supported,
                Verdict::NotRun => &mut totals.not_run,
            } += 1;
        }
        totals
    }

    /// Returns the exit status of the program: 1 if anything is wrong, 2 if no case could run, otherwise 0.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        let judged = self.conforming + self.unusual + self.wrong + self.not_supported;
        match () {
            () if self.wrong > 0 => 1,
            () if judged == 0 => 2,
            () => 0,
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { conforming, unusual, wrong, not_supported, not_run } = self;
        write!(
            f,
            "{conforming} conforming, {unusual} unusual, {wrong} wrong, {not_supported} not supported, {not_run} not run"
        )
    }
}

/// Formats a finding as text. A conforming finding takes one line, unless `all` is `true`. Any other finding is printed
/// with its rules, what was sent, what was expected and what came.
#[must_use]
pub fn text(ran: &Ran, all: bool) -> String {
    let mut text = format!("{:14} {}\n", ran.finding.verdict.to_string(), ran.id);
    if all || !matches!(ran.finding.verdict, Verdict::Conforming) {
        let rules = ran.rules.join(", ");
        for (name, value) in
            [("rules", &rules[..]), ("sent", ran.sent), ("expected", &ran.expected), ("came", &ran.finding.came)]
        {
            let _ = writeln!(text, "{:14}   {name:9} {value}", "");
        }
    }
    text
}

/// Formats all findings as JSON, an array of objects.
#[must_use]
pub fn json(all: &[Ran]) -> String {
    serde_json::to_string_pretty(all).unwrap_or_default()
}

/// Formats all findings as Markdown: a table of totals, and a table for each part.
#[must_use]
pub fn markdown(all: &[Ran]) -> String {
    let of = |part| all.iter().filter(|ran: &&Ran| ran.part == part).cloned().collect::<Vec<_>>();
    let parts = || Part::ALL.into_iter().map(|part| (part, of(part))).filter(|(_, ran)| !ran.is_empty());
    let mut text = "| part | conforming | unusual | wrong | not supported | not run |\n".to_owned();
    text += "| --- | --- | --- | --- | --- | --- |\n";
    for (part, of_part) in parts() {
        let Totals { conforming, unusual, wrong, not_supported, not_run } = Totals::of(&of_part);
        let _ =
            writeln!(text, "| {} | {conforming} | {unusual} | {wrong} | {not_supported} | {not_run} |", part.title());
    }
    text += "\n";
    for (part, of_part) in parts() {
        let _ = writeln!(text, "### {}\n", part.title());
        text += "| case | rules | sent | came | verdict |\n| --- | --- | --- | --- | --- |\n";
        for ran in of_part {
            let (rules, came) = (ran.rules.join(", "), cell(&ran.finding.came));
            let _ =
                writeln!(text, "| `{}` | {rules} | {} | {came} | {} |", ran.id, cell(ran.sent), ran.finding.verdict);
        }
        text += "\n";
    }
    let _ = writeln!(text, "{}.", Totals::of(all));
    text
}

/// Escapes text for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Finding;

    fn ran(verdict: Verdict, came: &str) -> Ran {
        let finding = Finding::new(verdict, came);
        let (rules, expected) = (&["RFC 8166 4.5.1#1"], "ERR_VERS".to_owned());
        Ran { id: "v1/server/x", part: Part::V1Server, rules, sent: "a call", expected, finding, milliseconds: 3 }
    }

    #[test]
    fn reports_have_all_findings() {
        let all = [ran(Verdict::Conforming, "ERR_VERS"), ran(Verdict::Wrong, "a|b")];
        assert_eq!(text(&all[0], false), "conforming     v1/server/x\n");
        assert!(text(&all[1], false).contains("came      a|b"));
        assert!(text(&all[0], true).contains("rules     RFC 8166 4.5.1#1"));
        let page = markdown(&all);
        assert!(page.contains("| `v1/server/x` | RFC 8166 4.5.1#1 | a call | a\\|b | wrong |"), "{page}");
        assert!(page.contains("| RPC-over-RDMA version 1, server | 1 | 0 | 1 | 0 | 0 |"), "{page}");
        assert!(page.ends_with("1 conforming, 0 unusual, 1 wrong, 0 not supported, 0 not run.\n"), "{page}");
        let json: serde_json::Value = serde_json::from_str(&json(&all)).unwrap();
        assert_eq!((&json[1]["verdict"], &json[1]["came"]), (&"wrong".into(), &"a|b".into()));
    }

    #[test]
    fn exit_statuses() {
        for (verdicts, status) in [
            (vec![Verdict::Conforming, Verdict::Unusual, Verdict::NotRun], 0),
            (vec![Verdict::Conforming, Verdict::Wrong], 1),
            (vec![Verdict::NotRun], 2),
            (vec![], 2),
        ] {
            let all: Vec<Ran> = verdicts.into_iter().map(|verdict| ran(verdict, "")).collect();
            assert_eq!(Totals::of(&all).exit_status(), status);
        }
    }
}
