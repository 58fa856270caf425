//! The record of mutation scores and of mutants that survived.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::{areas::AREAS, compile::Mutant};

const HEADING: &str = "# Written by `rpcrdma-mutants --record`. A survivor that behaves like the code it replaces gets a line\n\
    # `equivalent = \"the reason\"`, which stays when the record is written anew.\n\n";

/// The last scores of the areas, and the mutants that survived.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The last complete run of each area.
    #[serde(default, rename = "area")]
    pub areas: Vec<AreaRun>,
    /// Mutants that no test noticed.
    #[serde(default, rename = "survivor")]
    pub survivors: Vec<Survivor>,
}

/// Figures of a run of all mutants of an area.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AreaRun {
    /// Name of the area.
    pub name: String,
    /// Day of the run, such as `2026-11-28`.
    pub date: String,
    /// Commit that was checked out.
    pub commit: String,
    /// Number of mutants that tests noticed.
    pub caught: usize,
    /// Number of mutants among the noticed ones with which a test timed out.
    pub timed_out: usize,
    /// Number of mutants that tests reached and did not notice.
    pub survived: usize,
    /// Number of mutants that no test reached.
    pub not_reached: usize,
    /// Number of mutants that do not compile.
    pub dropped: usize,
    /// Duration of the tests with mutants, in seconds.
    pub seconds: u64,
}

/// A mutant that no test noticed.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Survivor {
    /// Name of the mutant's area.
    pub area: String,
    /// File and line of the mutant.
    pub at: String,
    /// The function that the mutant changes.
    pub function: String,
    /// The change as code, such as `a + b → a - b`.
    pub mutation: String,
    /// The reason why no test can notice the mutant. `None` if a test could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equivalent: Option<String>,
}

impl Survivor {
    /// Creates an entry without a reason.
    pub fn new(mutant: &Mutant) -> Self {
        Self {
            area: mutant.area.clone(),
            at: format!("{}:{}", mutant.file.display(), mutant.mutation.lines.0),
            function: mutant.mutation.function.clone(),
            mutation: mutant.mutation.change.clone(),
            equivalent: None,
        }
    }

    /// Returns the properties that identify a mutant, even after lines were inserted above it.
    fn key(&self) -> [String; 3] {
        let file = self.at.rsplit_once(':').map_or(self.at.as_str(), |(file, _)| file);
        [file.to_owned(), self.function.clone(), self.mutation.clone()]
    }
}

impl Record {
    /// Reads a record. Returns an empty record if the file cannot be read, for example because there is none.
    ///
    /// # Errors
    ///
    /// Fails if the file is not a record.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).with_context(|| format!("{} is not a record", path.display())),
            Err(_) => Ok(Self::default()),
        }
    }

    /// Writes the record.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = format!("{HEADING}{}", toml::to_string(self)?);
        fs::write(path, text).with_context(|| format!("failed to write {}", path.display()))
    }

    /// Copies the reasons of equal entries of this record to survivors. Several equal mutants of a function get the
    /// reasons in the order of the entries.
    pub fn explain(&self, survivors: &mut [Survivor]) {
        let mut reasons: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for known in self.survivors.iter().rev() {
            reasons.entry(known.key()).or_default().push(&known.equivalent);
        }
        for survivor in survivors {
            let reason = reasons.get_mut(&survivor.key()).and_then(Vec::pop).cloned().flatten();
            survivor.equivalent = reason;
        }
    }

    /// Replaces the figures and the survivors of the areas in `runs` by `runs` and `survivors`.
    pub fn update(&mut self, runs: Vec<AreaRun>, survivors: Vec<Survivor>) {
        let names: BTreeSet<_> = runs.iter().map(|run| run.name.clone()).collect();
        self.areas.retain(|run| !names.contains(&run.name));
        self.areas.extend(runs);
        let order = |name: &str| AREAS.iter().position(|(known, _)| *known == name).unwrap_or(AREAS.len());
        self.areas.sort_by_key(|run| (order(&run.name), run.name.clone()));
        self.survivors.retain(|survivor| !names.contains(&survivor.area));
        self.survivors.extend(survivors);
        self.survivors.sort_by_key(|survivor| order(&survivor.area));
    }

    /// Returns `true` if a mutant like this one is among the survivors.
    pub fn has_survivor(&self, mutant: &Mutant) -> bool {
        let key = Survivor::new(mutant).key();
        self.survivors.iter().any(|survivor| survivor.key() == key)
    }

    /// Combines `run`, in which only the survivors of the area's last complete run were tested again, with the figures
    /// of that complete run. The date and the commit are those of the complete run.
    pub fn add_to_last(&self, run: &mut AreaRun) {
        if let Some(last) = self.areas.iter().find(|last| last.name == run.name) {
            let timed_out = last.timed_out + run.timed_out;
            let not_reached = last.not_reached + run.not_reached;
            // Not the number of the run, which also counts mutants that are equal to a survivor and were noticed
            // before.
            let caught = last.caught + last.survived.saturating_sub(run.survived + run.not_reached);
            *run = AreaRun { caught, timed_out, not_reached, survived: run.survived, ..last.clone() };
        }
    }

    /// Returns the number of survivors of an area for which a reason is recorded why no test can notice them.
    pub fn equivalent(&self, area: &str) -> usize {
        self.survivors.iter().filter(|survivor| survivor.area == area && survivor.equivalent.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survivor(area: &str, line: usize, mutation: &str, equivalent: Option<&str>) -> Survivor {
        Survivor {
            area: area.to_owned(),
            at: format!("{area}.rs:{line}"),
            function: "f".to_owned(),
            mutation: mutation.to_owned(),
            equivalent: equivalent.map(str::to_owned),
        }
    }

    fn run(name: &str, survived: usize) -> AreaRun {
        let (date, commit) = ("2026-11-28".to_owned(), "0".to_owned());
        let name = name.to_owned();
        AreaRun { name, date, commit, caught: 9, timed_out: 1, survived, not_reached: 2, dropped: 3, seconds: 4 }
    }

    #[test]
    fn reasons_stay() {
        let mut record = Record::default();
        let known = vec![survivor("gss", 1, "a → b", None), survivor("gss", 2, "a → b", Some("same"))];
        record.update(vec![run("gss", 2)], known);
        let mut found = [
            survivor("gss", 11, "a → b", None),
            survivor("gss", 12, "a → b", None),
            survivor("gss", 13, "a → b", None),
            survivor("client", 12, "a → b", None),
        ];
        record.explain(&mut found);
        assert_eq!(found.map(|found| found.equivalent), [None, Some("same".to_owned()), None, None]);
    }

    #[test]
    fn survivors_are_tested_again() {
        let mut record = Record::default();
        record.update(vec![run("gss", 2)], vec![survivor("gss", 1, "a → b", None), survivor("gss", 2, "a → b", None)]);
        let mut again = AreaRun { caught: 5, timed_out: 0, not_reached: 0, date: String::new(), ..run("gss", 1) };
        record.add_to_last(&mut again);
        assert_eq!(again, AreaRun { caught: 10, ..run("gss", 1) });
        let mutation = super::super::mutate::mutations("fn f() { b(); c(); }", &[]).unwrap().remove(0);
        let (area, manifest, file) = ("gss".to_owned(), "Cargo.toml".into(), "gss.rs".into());
        let mutant = Mutant { number: 1, area, manifest, file, mutation };
        assert!(!record.has_survivor(&mutant));
        record.survivors.push(survivor("gss", 9, &mutant.mutation.change, None));
        assert!(record.has_survivor(&mutant));
    }

    #[test]
    fn other_areas_stay() {
        let mut record = Record::default();
        record.update(
            vec![run("client", 1), run("engine", 1)],
            vec![
                survivor("client", 1, "a → b", Some("same")),
                survivor("client", 2, "a → c", None),
                survivor("engine", 1, "c → d", None),
            ],
        );
        let areas: Vec<_> = record.survivors.iter().map(|survivor| survivor.area.as_str()).collect();
        assert_eq!(areas, ["engine", "client", "client"]);
        record.update(vec![run("engine", 0)], Vec::new());
        assert_eq!(record.areas, [run("engine", 0), run("client", 1)]);
        assert_eq!((record.survivors.len(), record.equivalent("client"), record.equivalent("engine")), (2, 1, 0));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("record.toml");
        record.write(&path).unwrap();
        let read = Record::read(&path).unwrap();
        assert_eq!((read.areas, read.survivors), (record.areas, record.survivors));
    }
}
