//! `CONFORMANCE.md`.

use std::fmt::Write as _;

use crate::table::{Rule, Table};

const INTRODUCTION: &str = "# Conformance\n\n\
    Each MUST and SHOULD of RFC 8166, RFC 8167, RFC 8797 and the draft of version 2, in the sections named, the code that keeps it\n\
    and the test that shows it. Written from `tests/conformance/*.toml` by\n\
    `UPDATE_CONFORMANCE=1 cargo test -p rpcrdma-tests --test conformance`; without the variable the same command checks that the\n\
    code named cites the section, that the tests named exist, and, with `SPEC_TEXTS` naming a directory of the specifications'\n\
    texts, that no requirement of those sections is missing. `#` counts the section's key words.\n\
    [DEVIATIONS.md](DEVIATIONS.md) has where we differ, and why.\n";

/// Writes the page.
pub(crate) fn write(tables: &[Table]) -> String {
    let mut page = INTRODUCTION.to_owned();
    for table in tables {
        let kept = table.rules.iter().filter(|rule| !rule.code.is_empty()).count();
        let total = table.rules.len();
        let _ = write!(
            page,
            "\n## {}\n\nSections {}; {kept} of {total} rules are kept by code here",
            table.title,
            table.sections.join(", ")
        );
        page += if kept == total { ".\n\n" } else { ", the others by others, as their notes say.\n\n" };
        page += "| § | # | | what | kept by | shown by |\n| --- | --- | --- | --- | --- | --- |\n";
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
        Some(same) => format!("{what} As {same}."),
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
    // The path says enough without the parts that all have in common.
    let text = text.strip_prefix("runtime/src/").unwrap_or(text);
    format!("[`{text}`]({file})")
}
