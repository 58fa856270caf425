//! The tables of `tests/conformance`: each MUST and SHOULD of a specification, the code that keeps it and the test that
//! shows it. They cannot go stale: the code named must cite the section, the tests named must exist, and, where the
//! specifications' texts are at hand (`SPEC_TEXTS`, a directory), no requirement of theirs may be missing.
//!
//! `CONFORMANCE.md` is written from them: `UPDATE_CONFORMANCE=1 cargo test -p rpcrdma-tests --test conformance`.
#![deny(warnings, missing_docs)]

#[path = "conformance/citations.rs"]
mod citations;
#[path = "conformance/keywords.rs"]
mod keywords;
#[path = "conformance/page.rs"]
mod page;
#[path = "conformance/table.rs"]
mod table;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use table::Table;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tables() -> Vec<Table> {
    let mut paths: Vec<_> = fs::read_dir(root().join("tests/conformance"))
        .expect("tests/conformance")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths.iter().map(|path| Table::read(path)).collect()
}

/// Fails with all complaints at once.
#[track_caller]
fn settle(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} complaint(s):\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn the_code_named_cites_the_section() {
    let mut complaints = Vec::new();
    for table in tables() {
        for (rule, file) in table.rules.iter().flat_map(|rule| rule.code.iter().map(move |file| (rule, file))) {
            match fs::read_to_string(root().join(file)) {
                Ok(text) if table.is_cited(rule, file, &text) => {}
                Ok(_) => complaints.push(format!("{file} does not cite {} §{}", table.cite, rule.section)),
                Err(error) => complaints.push(format!("{}: {file}: {error}", rule.section)),
            }
        }
    }
    settle(&complaints);
}

#[test]
fn the_tests_named_exist() {
    let mut complaints = Vec::new();
    for table in tables() {
        for (rule, test) in table.rules.iter().flat_map(|rule| rule.tests.iter().map(move |test| (rule, test))) {
            // A file alone stands for all its tests: those of a suite that a macro declares.
            let found = match test.split_once("::") {
                Some((file, name)) => {
                    fs::read_to_string(root().join(file)).map(|text| citations::has_test(&text, name))
                }
                None => Ok(root().join(test).is_file()),
            };
            if !found.is_ok_and(|found| found) {
                complaints.push(format!("{} §{}: no test {test}", table.cite, rule.section));
            }
        }
    }
    settle(&complaints);
}

/// A rule is kept by code and shown by a test, or it says why there is neither.
#[test]
fn every_rule_is_kept_or_explained() {
    let mut complaints = Vec::new();
    for table in tables() {
        for rule in &table.rules {
            let kept = !rule.code.is_empty() && !rule.tests.is_empty();
            if !kept && rule.note.is_empty() {
                let what = &rule.what;
                complaints.push(format!("{} §{}: neither code and test, nor a note: {what}", table.cite, rule.section));
            }
        }
    }
    settle(&complaints);
}

/// No requirement of a specification is missing from its table, or in it twice; none is invented.
#[test]
fn every_requirement_has_a_row() {
    let Some(texts) = env::var_os("SPEC_TEXTS").map(PathBuf::from) else {
        println!("skipped: SPEC_TEXTS does not name the directory of the specifications' texts");
        return;
    };
    let mut complaints = Vec::new();
    for table in tables() {
        let text = fs::read(texts.join(&table.text)).expect("the specification's text");
        let found = keywords::of(&String::from_utf8_lossy(&text), &table.sections);
        assert!(!found.is_empty(), "{}: no requirement found", table.text);
        complaints.extend(table.compare(&found));
    }
    settle(&complaints);
}

#[test]
fn the_page_is_up_to_date() {
    let path = root().join("CONFORMANCE.md");
    let page = page::write(&tables());
    if env::var_os("UPDATE_CONFORMANCE").is_some() {
        fs::write(&path, page).expect("written");
    } else {
        let current = fs::read_to_string(&path).unwrap_or_default();
        assert!(current == page, "CONFORMANCE.md is stale: run with UPDATE_CONFORMANCE=1");
    }
}
