//! The text of `CONFORMANCE.md` and of the page of each specification.

use std::fmt::Write as _;

use crate::{
    mutants::record::{AreaRun, Record},
    record::FullRun,
    table::{Fault, Rule, Table},
};

const INTRODUCTION: &str = "# Conformance\n\n\
    One page for each specification lists its requirements: each MUST and SHOULD, with the code that implements it, the tests\n\
    of it, and a fault. A fault is a change in one place of the code that breaks the requirement.\n\
    [DEVIATIONS.md](DEVIATIONS.md) lists the deliberate deviations with their reasons.\n";

const METHOD: &str = "\n\
    ## How this is tested\n\n\
    `cargo run -p rpcrdma-conformance` plants the faults in a copy of the project, and runs the tests of each:\n\
    at least one of them has to fail. `rpcrdma-faults` has options for some rules, or for a random choice.\n\n\
    The pages are generated from `tests/conformance/tables` by\n\
    `UPDATE_CONFORMANCE=1 cargo test -p rpcrdma-conformance --test page`. Without the variable, the command checks that the\n\
    code exists and cites the section, that the tests exist, and that the pages are up to date. If `SPEC_TEXTS` names a\n\
    directory with the texts of the specifications, it also checks that no requirement is missing.\n";

const MUTANTS: &str = "\n\
    ## Mutants\n\n\
    Faults are chosen by people. Mutants are made by a program: it changes each operator, condition and call of the code, one at a\n\
    time. `cargo run -p rpcrdma-conformance --bin rpcrdma-mutants` runs the tests that reach a change, and shows which changes no\n\
    test notices. Of these survivors, some are equivalent: the change has no effect. The score is the part of all other mutants that\n\
    tests notice. Only quick tests of the same package count, so a mutant that no such test reaches lowers the score.\n\
    [mutants.toml](tests/conformance/mutants.toml) lists the survivors, and the reasons of the equivalent ones. Date and commit are\n\
    those of the last complete run. Its survivors may have been tested again since then.\n\n\
    | part | mutants | noticed | survived | equivalent | not reached | score | date | commit |\n\
    | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";

/// Returns the text of `CONFORMANCE.md`.
pub fn index(tables: &[Table], run: Option<&FullRun>, mutants: &Record) -> String {
    let mut page = INTRODUCTION.to_owned();
    page +=
        "\n| specification | sections | requirements | implemented here | faults |\n| --- | --- | --- | --- | --- |\n";
    for table in tables {
        let faults: usize = table.rules.iter().map(|rule| rule.faults.len()).sum();
        let _ = writeln!(
            page,
            "| [{}](tests/conformance/{}.md) | {} | {} | {} | {faults} |",
            table.title,
            table.name,
            table.sections.join(", "),
            table.rules.len(),
            implemented(table),
        );
    }
    page += METHOD;
    if let Some(run) = run {
        let FullRun { date, commit, faults, build_seconds, test_seconds, missed } = run;
        let noticed = faults - missed.len();
        let _ = write!(
            page,
            "\nThe last run of all faults, on {date} at commit {commit}: {noticed} of {faults} were noticed. Compiling took \
             {build_seconds} s, the tests {test_seconds} s on two processors.\n"
        );
        if !missed.is_empty() {
            let _ = writeln!(page, "Missed: {}.", missed.join(", "));
        }
    }
    if !mutants.areas.is_empty() {
        page += MUTANTS;
        mutants.areas.iter().for_each(|area| page += &mutants_row(area, mutants.equivalent(&area.name)));
    }
    page
}

fn mutants_row(area: &AreaRun, equivalent: usize) -> String {
    let AreaRun { name, date, commit, caught, survived, not_reached, .. } = area;
    let survived = survived.saturating_sub(equivalent);
    let counted = caught + survived + not_reached;
    let percent = (100 * caught).checked_div(counted).unwrap_or(100);
    let all = counted + equivalent;
    format!(
        "| {name} | {all} | {caught} | {survived} | {equivalent} | {not_reached} | {percent} % | {date} | {commit} |\n"
    )
}

fn implemented(table: &Table) -> usize {
    table.rules.iter().filter(|rule| !rule.code.is_empty()).count()
}

/// Returns the text of the page of one specification.
pub fn page(table: &Table, run: Option<&FullRun>) -> String {
    let mut page = format!("# {}\n\n{}\n\n", table.title, table.summary.trim());
    let total = table.rules.len();
    let kept = implemented(table);
    let _ = write!(
        page,
        "Sections {}; {kept} of {total} requirements are implemented by code here{}\n\
         `#` is the number of the key word in its section, or a letter where a requirement has none. [CONFORMANCE.md](../../CONFORMANCE.md) explains how faults are planted.\n\n",
        table.sections.join(", "),
        if kept == total { "." } else { "; the notes explain the others." }
    );
    page += "| § | # | | requirement | code | tests | fault |\n| --- | --- | --- | --- | --- | --- | --- |\n";
    for rule in &table.rules {
        let missed = run.is_some_and(|run| run.missed.contains(&format!("{} {}", table.name, rule.id())));
        page += &row(rule, missed);
    }
    page
}

fn row(rule: &Rule, missed: bool) -> String {
    let what = if rule.note.is_empty() { rule.what.clone() } else { format!("{} *{}*", rule.what, rule.note) };
    let what = match &rule.same_as {
        Some(same) => format!("{what} Same as {same}."),
        None => what,
    };
    let links = |cited: &[String]| cited.iter().map(|cited| link(cited)).collect::<Vec<_>>().join("<br>");
    let mut faults: Vec<_> = rule.faults.iter().map(shown).collect();
    if missed {
        faults.push("**not noticed**".to_owned());
    }
    if !rule.no_fault.is_empty() {
        faults.push(format!("*{}*", rule.no_fault));
    }
    format!(
        "| {} | {} | {} | {} | {} | {} | {} |\n",
        rule.section,
        rule.numbers(", "),
        rule.level,
        what.replace('|', "\\|"),
        links(&rule.code),
        links(&rule.tests),
        faults.join("<br>"),
    )
}

/// Returns a fault on one line, shortened.
fn shown(fault: &Fault) -> String {
    // A code span in a table, which may contain quotes of its own.
    let code = |text: &str| format!("`` {} ``", shortened(text, 60).replace('|', "\\|"));
    match fault.with.trim() {
        "" => format!("without {}", code(&fault.replace)),
        with => format!("{} → {}", code(&fault.replace), code(with)),
    }
}

/// Joins code into one line. If the line is longer than `max` characters, replaces the rest with an ellipsis.
pub fn shortened(code: &str, max: usize) -> String {
    let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut short: String = code.chars().take(max).collect();
    if short.len() < code.len() {
        short.push('…');
    }
    short
}

fn link(cited: &str) -> String {
    let (file, name) = cited.split_once("::").unwrap_or((cited, cited));
    format!("[`{name}`](../../{file})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_mutants_do_not_count() {
        let (name, date, commit) = ("gss".to_owned(), "2026-11-28".to_owned(), "1234".to_owned());
        let area = AreaRun {
            name,
            date,
            commit,
            caught: 70,
            timed_out: 2,
            survived: 15,
            not_reached: 20,
            dropped: 1,
            seconds: 9,
        };
        assert_eq!(mutants_row(&area, 5), "| gss | 105 | 70 | 10 | 5 | 20 | 70 % | 2026-11-28 | 1234 |\n");
    }

    #[test]
    fn code_is_shortened_to_one_line() {
        assert_eq!((shortened("a\n    b", 3), shortened("a→b c", 3)), ("a b".to_owned(), "a→b…".to_owned()));
    }
}
