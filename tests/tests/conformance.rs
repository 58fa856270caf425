//! Checks of the tables in `tests/conformance`, which list each MUST and SHOULD of a specification with its code and its test.
//!
//! The named code has to cite the section, and the named tests have to exist. If `SPEC_TEXTS` names the directory with the
//! specifications, no requirement may be missing.
//!
//! This command writes `CONFORMANCE.md` from the tables:
//! `UPDATE_CONFORMANCE=1 cargo test -p rpcrdma-tests --test conformance`.
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
        .expect("cannot read tests/conformance")
        .map(|entry| entry.expect("unreadable directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    paths.sort();
    paths.iter().map(|path| Table::read(path)).collect()
}

/// Fails with all problems at once.
#[track_caller]
fn fail_if_any(complaints: &[String]) {
    assert!(complaints.is_empty(), "{} problem(s):\n{}", complaints.len(), complaints.join("\n"));
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
    fail_if_any(&complaints);
}

#[test]
fn the_tests_named_exist() {
    let mut complaints = Vec::new();
    for table in tables() {
        for (rule, test) in table.rules.iter().flat_map(|rule| rule.tests.iter().map(move |test| (rule, test))) {
            // A file without a function name stands for all of its tests, for example those of a suite that a macro defines.
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
    fail_if_any(&complaints);
}

/// Every rule has code and a test, or a note that says why not.
#[test]
fn every_rule_is_kept_or_explained() {
    let mut complaints = Vec::new();
    for table in tables() {
        for rule in &table.rules {
            let kept = !rule.code.is_empty() && !rule.tests.is_empty();
            if !kept && rule.note.is_empty() {
                let what = &rule.what;
                complaints.push(format!("{} §{}: no code and test, and no note: {what}", table.cite, rule.section));
            }
        }
    }
    fail_if_any(&complaints);
}

/// The tables list every requirement of the specifications exactly once, and no others.
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
fn the_page_is_up_to_date() {
    let path = root().join("CONFORMANCE.md");
    let page = page::write(&tables());
    if env::var_os("UPDATE_CONFORMANCE").is_some() {
        fs::write(&path, page).expect("cannot write CONFORMANCE.md");
    } else {
        let current = fs::read_to_string(&path).unwrap_or_default();
        assert!(current == page, "CONFORMANCE.md is out of date, run with UPDATE_CONFORMANCE=1");
    }
}
