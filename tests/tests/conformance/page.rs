//! The text of `CONFORMANCE.md`.

use std::fmt::Write as _;

use crate::table::{Rule, Table};

const INTRODUCTION: &str = "# Conformance\n\n\
    Each MUST and SHOULD in the listed sections of each specification, with the code that implements it and the\n\
    tests that check it. `#` is the number of the key word in its section.\n\
    [DEVIATIONS.md](DEVIATIONS.md) lists the deliberate deviations with their reasons.\n\n\
    This page is generated from `tests/conformance/*.toml` by\n\
    `UPDATE_CONFORMANCE=1 cargo test -p rpcrdma-tests --test conformance`. Without the variable, the command checks that the\n\
    code cites the section, that the tests exist, and that this page is up to date. If `SPEC_TEXTS` names a directory with the\n\
    texts of the specifications, it also checks that no requirement is missing.\n";

/// Returns the text of `CONFORMANCE.md`.
pub(crate) fn write(tables: &[Table]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for table in tables {
        let kept = table.rules.iter().filter(|rule| !rule.code.is_empty()).count();
        let total = table.rules.len();
        let _ = write!(
            page,
            "\n## {}\n\nSections {}; {kept} of {total} requirements are implemented by code here",
            table.title,
            table.sections.join(", ")
        );
        page += if kept == total { ".\n\n" } else { "; the notes explain the others.\n\n" };
        page += "| § | # | | requirement | code | tests |\n| --- | --- | --- | --- | --- | --- |\n";
        for rule in &table.rules {
            page += &row(rule);
        }
    }
    page
}

fn row(rule: &Rule) -> String {
    let numbers: Vec<_> = rule.n.iter().map(ToString::to_string).collect();
    let what = if rule.note.is_empty() { rule.what.clone() } else { format!("{} *{}*", rule.what, rule.note) };
    let what = match &rule.same_as {
        Some(same) => format!("{what} Same as {same}."),
        None => what,
    };
    let code: Vec<_> = rule.code.iter().map(|file| link(file, file)).collect();
    let tests: Vec<_> = rule
        .tests
        .iter()
        .map(|test| test.split_once("::").map_or_else(|| link(test, test), |(file, name)| link(file, name)))
        .collect();
    format!(
        "| {} | {} | {} | {} | {} | {} |\n",
        rule.section,
        numbers.join(", "),
        rule.level,
        what.replace('|', "\\|"),
        code.join("<br>"),
        tests.join("<br>")
    )
}

fn link(file: &str, text: &str) -> String {
    // Leave out the common part of the paths.
    let text = text.strip_prefix("runtime/src/").unwrap_or(text);
    format!("[`{text}`]({file})")
}
