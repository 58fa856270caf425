//! Checks of the mutants of the project's own code, and of the record of survivors. The mutants are not compiled.
#![deny(warnings, missing_docs)]

use std::fs;

use rpcrdma_conformance::{
    mutants::{
        areas::{AREAS, Area},
        mutate::mutations,
        record::Record,
        splice::splice,
    },
    programs::features_of,
    repository,
};

#[test]
fn every_area_has_mutants_that_are_rust() {
    for (name, _) in AREAS {
        let area = Area::named(&repository(), name).unwrap();
        let features: Vec<_> = features_of(&area.manifest).unwrap_or("").split(',').collect();
        let mut count = 0;
        for file in area.source_files(&repository(), &features).unwrap() {
            let text = fs::read_to_string(repository().join(&file)).unwrap();
            let mutations = mutations(&text, &features).unwrap();
            let numbered: Vec<_> = (1..).zip(&mutations).collect();
            let spliced = splice(&text, &numbered).text;
            if let Err(error) = syn::parse_file(&spliced) {
                let at = error.span().start();
                let line = spliced.lines().nth(at.line - 1).unwrap_or_default();
                panic!("{}, in column {}: {error}: {line}", file.display(), at.column);
            }
            count += mutations.len();
        }
        assert!(count > 100, "{name} has {count} mutants");
    }
}

/// The record names areas that exist, and its figures fit its entries.
#[test]
fn the_record_is_consistent() {
    let record = Record::read(&repository().join("tests/conformance/mutants.toml")).unwrap();
    for survivor in &record.survivors {
        assert!(survivor.equivalent.as_ref().is_none_or(|reason| reason.len() > 10), "{survivor:?} has no reason");
        assert!(record.areas.iter().any(|area| area.name == survivor.area), "{survivor:?} is in no area");
    }
    for area in &record.areas {
        Area::named(&repository(), &area.name).unwrap();
        let survivors = record.survivors.iter().filter(|survivor| survivor.area == area.name).count();
        assert_eq!(survivors, area.survived, "survivors of {}", area.name);
    }
}
