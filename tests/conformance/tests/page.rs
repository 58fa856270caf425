//! Checks of the tables in `tests/conformance/tables`, which list the requirements of each specification with their
//! code, tests and faults.
//!
//! The named items have to exist in files that cite the section, and the named tests have to exist. If `SPEC_TEXTS`
//! names the directory with the specifications, no requirement may be missing.
//!
//! This command writes `CONFORMANCE.md` and the pages of the specifications from the tables:
//! `UPDATE_CONFORMANCE=1 cargo test -p rpcrdma-conformance --test page`.
#![deny(warnings, missing_docs)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use rpcrdma_conformance::{
    copy::manifest_of,
    items::{SourceItem, items},
    keywords,
    mutants::record::Record,
    page::{index, page},
    plant::planted,
    programs::CitedTest,
    record, repository,
    table::{Fault, Table, read_tables},
};

fn tables() -> Vec<Table> {
    read_tables(&repository().join("tests/conformance/tables")).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Panics with all problems at once, if there are any.
#[track_caller]
fn fail_if_any(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} problem(s):\n{}", complaints.len(), complaints.join("\n"));
}

/// The files that rules name. Each is read and parsed once.
#[derive(Default)]
struct Files(BTreeMap<String, Option<SourceFile>>);

struct SourceFile {
    text: String,
    /// The items of a Rust file.
    items: Vec<SourceItem>,
}

impl Files {
    /// Returns a file, or `None` if it does not exist.
    fn get(&mut self, file: &str) -> Option<&SourceFile> {
        let read = || {
            let text = fs::read_to_string(repository().join(file)).ok()?;
            let parsed = if file.ends_with(".rs") { items(&text) } else { Ok(Vec::new()) };
            Some(SourceFile { items: parsed.unwrap_or_else(|error| panic!("{file}: {error}")), text })
        };
        self.0.entry(file.to_owned()).or_insert_with(read).as_ref()
    }
}

#[test]
fn the_code_named_exists_and_cites_the_section() {
    let (mut files, mut complaints) = (Files::default(), Vec::new());
    for table in tables() {
        for (rule, cited) in table.rules.iter().flat_map(|rule| rule.code.iter().map(move |cited| (rule, cited))) {
            let name = format!("{} {}", table.name, rule.id());
            let (file, item) = cited.split_once("::").map_or((cited.as_str(), None), |(file, item)| (file, Some(item)));
            let Some(source) = files.get(file) else {
                complaints.push(format!("{name}: there is no file {file}"));
                continue;
            };
            if !table.is_cited(rule, file, &source.text) {
                complaints.push(format!("{name}: {file} does not cite {} §{}", table.cite, rule.section));
            }
            match item {
                Some(item) if !source.items.iter().any(|found| found.is_named(item)) => {
                    complaints.push(format!("{name}: {file} has no item {item}"));
                }
                None if file.ends_with(".rs") => complaints.push(format!("{name}: name an item in {file}")),
                _ => {}
            }
        }
    }
    fail_if_any(&complaints);
}

#[test]
fn the_tests_named_exist() {
    let (mut files, mut complaints) = (Files::default(), Vec::new());
    for table in tables() {
        for (rule, test) in table.rules.iter().flat_map(|rule| rule.tests.iter().map(move |test| (rule, test))) {
            let cited = CitedTest::parse(test);
            let is_test = |item: &SourceItem| item.function.as_ref().is_some_and(|function| function.is_test);
            // A file without a function name stands for all of its tests, for example those of a suite that a macro
            // defines.
            let found = files.get(&cited.file.to_string_lossy()).is_some_and(|source| match &cited.function {
                Some(name) => source.items.iter().any(|item| item.is_named(name) && is_test(item)),
                None => true,
            });
            if !found || cited.target(&repository()).is_err() {
                complaints.push(format!("{} {}: no test {test}", table.name, rule.id()));
            }
        }
    }
    fail_if_any(&complaints);
}

/// Every rule has code and a test, or a note with the reason for their absence. If it has both, it also has either
/// faults or the reason for their lack. Each rule of a table has its own ID.
#[test]
fn every_rule_is_kept_or_explained() {
    let mut complaints = Vec::new();
    for table in tables() {
        let mut ids = BTreeSet::new();
        for rule in &table.rules {
            let name = format!("{} {}", table.name, rule.id());
            if !ids.insert(rule.id()) {
                complaints.push(format!("{name}: two rows"));
            }
            let kept = !rule.code.is_empty() && !rule.tests.is_empty();
            if !kept && rule.note.is_empty() {
                complaints.push(format!("{name}: no code and test, and no note: {}", rule.what));
            }
            if kept && rule.faults.is_empty() == rule.no_fault.is_empty() {
                complaints.push(format!("{name}: needs either a fault, or a reason in no_fault"));
            }
            if rule.n.is_empty() == rule.part.is_empty() || rule.n.is_empty() != rule.level.is_empty() {
                complaints.push(format!("{name}: needs either numbers and a level, or a part"));
            }
            if !kept && !rule.faults.is_empty() {
                complaints.push(format!("{name}: has a fault without code or without a test"));
            }
        }
    }
    fail_if_any(&complaints);
}

/// The summary of each table has two to four sentences, for readers who do not know the specification.
#[test]
fn every_table_has_a_summary() {
    let mut complaints = Vec::new();
    for table in tables() {
        let sentences = table.summary.split_whitespace().filter(|word| word.ends_with('.')).count();
        if !(2..=4).contains(&sentences) {
            complaints.push(format!("{}: the summary has {sentences} sentences, not two to four", table.name));
        }
    }
    fail_if_any(&complaints);
}

/// All faults can be planted, and their files belong to packages.
#[test]
fn every_fault_has_its_place() {
    let tables = tables();
    let mut by_file: BTreeMap<&str, Vec<(u32, &Fault)>> = BTreeMap::new();
    let mut complaints = Vec::new();
    for fault in tables.iter().flat_map(|table| &table.rules).flat_map(|rule| &rule.faults) {
        match fault.place() {
            Ok((file, _)) => by_file.entry(file).or_default().push((1, fault)),
            Err(error) => complaints.push(error.to_string()),
        }
    }
    for (file, faults) in by_file {
        let text = fs::read_to_string(repository().join(file)).unwrap_or_default();
        if let Err(error) = planted(&text, &faults).and_then(|_| manifest_of(&repository(), Path::new(file))) {
            complaints.push(format!("{file}: {error:#}"));
        }
    }
    fail_if_any(&complaints);
}

/// The tables list every requirement of the covered sections exactly once, and no others.
#[test]
fn every_requirement_has_a_row() {
    let Some(texts) = env::var_os("SPEC_TEXTS").map(PathBuf::from) else {
        println!("skipped, SPEC_TEXTS is not set to the directory with the specifications");
        return;
    };
    let mut complaints = Vec::new();
    for table in tables() {
        let text = fs::read(texts.join(&table.text)).expect("cannot read the specification");
        let found = keywords::of(&String::from_utf8_lossy(&text), &table.sections, table.lowercase);
        assert!(!found.is_empty(), "{}: no requirement found", table.text);
        complaints.extend(table.compare(&found));
    }
    fail_if_any(&complaints);
}

#[test]
fn the_pages_are_up_to_date() {
    let (root, tables) = (repository(), tables());
    let run = record::read(&root.join("tests/conformance/last_run.toml")).unwrap_or_else(|error| panic!("{error:#}"));
    let mutants =
        Record::read(&root.join("tests/conformance/mutants.toml")).unwrap_or_else(|error| panic!("{error:#}"));
    let mut pages = BTreeMap::from([(root.join("CONFORMANCE.md"), index(&tables, run.as_ref(), &mutants))]);
    for table in &tables {
        pages.insert(root.join(format!("tests/conformance/{}.md", table.name)), page(table, run.as_ref()));
    }
    let mut stale = BTreeSet::new();
    for (path, page) in &pages {
        if env::var_os("UPDATE_CONFORMANCE").is_some() {
            fs::write(path, page).expect("cannot write the page");
        } else if fs::read_to_string(path).unwrap_or_default() != *page {
            stale.insert(path);
        }
    }
    assert!(stale.is_empty(), "out of date, run with UPDATE_CONFORMANCE=1: {stale:?}");
}
