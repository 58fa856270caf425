//! Checks of the bugs that the simulation has to find, and of the record of the last search for them. The bugs are not
//! compiled.
#![deny(warnings, missing_docs)]

use std::{collections::BTreeMap, fs, path::Path};

use rpcrdma_conformance::{
    bugs::{self, Bug, BugRun, RECORD},
    copy::manifest_of,
    plant::planted,
    repository,
    table::Fault,
};

fn table() -> Vec<Bug> {
    bugs::read(&repository()).unwrap_or_else(|error| panic!("{error:#}"))
}

/// The text to replace is in one place of its function, and the code with the bug is Rust.
#[test]
fn every_bug_has_its_place() {
    let bugs = table();
    let mut by_file: BTreeMap<&str, Vec<(u32, &Fault)>> = BTreeMap::new();
    for (number, Bug { name, what, fault, .. }) in (1..).zip(&bugs) {
        assert!(what.ends_with('.') && !what.contains('\n'), "{name} needs a description of one line");
        assert_ne!(fault.replace, fault.with, "{name} changes nothing");
        by_file.entry(fault.place().unwrap().0).or_default().push((number, fault));
    }
    for (file, faults) in by_file {
        let text = fs::read_to_string(repository().join(file)).unwrap();
        let planted = planted(&text, &faults).unwrap_or_else(|error| panic!("{file}: {error:#}"));
        syn::parse_file(&planted).unwrap_or_else(|error| panic!("{file}: {error}"));
        manifest_of(&repository(), Path::new(file)).unwrap();
    }
}

/// The record names the bugs of the table. Bugs without a median have an explanation, and the others have none.
#[test]
fn the_record_fits_the_table() {
    let bugs = table();
    let run = BugRun::read(&repository().join(RECORD)).unwrap_or_else(|error| panic!("{error:#}"));
    let names = |names: &mut dyn Iterator<Item = &String>| names.cloned().collect::<Vec<_>>();
    assert_eq!(names(&mut run.results.iter().map(|found| &found.name)), names(&mut bugs.iter().map(|bug| &bug.name)));
    for (bug, found) in bugs.iter().zip(&run.results) {
        assert_eq!(bug.missed_because.is_empty(), found.median().is_some(), "{} is explained wrongly", bug.name);
    }
    let found = run.results.iter().filter(|found| found.median().is_some()).count();
    assert_eq!((run.bugs, run.found), (bugs.len(), found));
}
