//! A table: the requirements of one specification.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use crate::{citations, keywords::Keywords};

/// One file of `tests/conformance`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Heading of its part of the page.
    pub(crate) title: String,
    /// How code cites it: `RFC 8166`.
    pub(crate) cite: String,
    /// A folder of which all that a citation without a name, `§4.5`, can mean is this.
    #[serde(default)]
    pub(crate) home: Option<String>,
    /// File name of its text.
    pub(crate) text: String,
    /// Sections covered, subsections included.
    pub(crate) sections: Vec<String>,
    /// Its requirements.
    #[serde(rename = "rule")]
    pub(crate) rules: Vec<Rule>,
}

/// One requirement, which one or several key words of its section state.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The section that states it.
    pub(crate) section: String,
    /// Which of the section's key words do, counted from one.
    pub(crate) n: Vec<usize>,
    /// The strongest of them.
    pub(crate) level: String,
    /// In our words.
    pub(crate) what: String,
    /// The same rule of another specification, which is what the code cites: `RFC 8166 §4.5`.
    #[serde(default)]
    pub(crate) same_as: Option<String>,
    /// Files that keep it.
    #[serde(default)]
    pub(crate) code: Vec<String>,
    /// Tests that show it: `file::function`, or a file of nothing else.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    /// Why there is no code or no test, or how we differ.
    #[serde(default)]
    pub(crate) note: String,
}

impl Table {
    /// Reads one.
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("readable");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Whether `text`, of `file`, cites a rule.
    pub(crate) fn is_cited(&self, rule: &Rule, file: &str, text: &str) -> bool {
        let at_home = self.home.as_ref().is_some_and(|home| file.starts_with(home.as_str()));
        match rule.same_as.as_ref().and_then(|same| same.split_once(" §")) {
            Some((cite, section)) => citations::cites(text, cite, section),
            None => {
                citations::cites(text, &self.cite, &rule.section)
                    || (at_home && citations::cites_bare(text, &rule.section))
            }
        }
    }

    /// What is missing or too much beside the key words of the text.
    pub(crate) fn compare(&self, found: &Keywords) -> Vec<String> {
        let mut rows: BTreeMap<(&str, usize), usize> = BTreeMap::new();
        let mut complaints = Vec::new();
        for rule in &self.rules {
            for &n in &rule.n {
                *rows.entry((&rule.section, n)).or_default() += 1;
                match found.get(&(rule.section.clone(), n)) {
                    None => complaints.push(format!("{} §{} has no key word {n}", self.cite, rule.section)),
                    Some(level) if rule.n.len() == 1 && *level != rule.level => {
                        let (section, stated) = (&rule.section, &rule.level);
                        complaints.push(format!("{} §{section} #{n} is {level}, not {stated}", self.cite));
                    }
                    Some(_) => {}
                }
            }
        }
        for ((section, n), level) in found {
            match rows.get(&(section.as_str(), *n)) {
                Some(1) => {}
                Some(times) => complaints.push(format!("{} §{section} #{n} has {times} rows", self.cite)),
                None => complaints.push(format!("{} §{section} #{n} ({level}) has no row", self.cite)),
            }
        }
        complaints
    }
}
