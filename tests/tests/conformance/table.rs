//! The table of requirements of one specification.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Deserialize;

use crate::{citations, keywords::Keywords};

/// One file of `tests/conformance`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// Heading of the section on the page.
    pub(crate) title: String,
    /// Name of the specification in citations, such as `RFC 8166`.
    pub(crate) cite: String,
    /// A folder in which a citation without a name, such as `§4.5`, means this specification.
    #[serde(default)]
    pub(crate) home: Option<String>,
    /// File name of the specification's text.
    pub(crate) text: String,
    /// `true` for a text that states requirements in lower case.
    #[serde(default)]
    pub(crate) lowercase: bool,
    /// Covered sections. They include their subsections.
    pub(crate) sections: Vec<String>,
    /// The requirements.
    #[serde(rename = "rule")]
    pub(crate) rules: Vec<Rule>,
}

/// One requirement. One or several key words of its section state it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// The section that states the requirement.
    pub(crate) section: String,
    /// Numbers of the key words in the section that state the requirement, counted from one.
    pub(crate) n: Vec<usize>,
    /// The strongest of these key words.
    pub(crate) level: String,
    /// The requirement in the words of this project.
    pub(crate) what: String,
    /// The same requirement in another specification, which the code cites: `RFC 8166 §4.5`.
    #[serde(default)]
    pub(crate) same_as: Option<String>,
    /// Files that implement it.
    #[serde(default)]
    pub(crate) code: Vec<String>,
    /// Tests of it: `file::function`, or a file that contains nothing else.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    /// The reason for missing code or tests, or the deviation.
    #[serde(default)]
    pub(crate) note: String,
}

impl Table {
    /// Reads a table.
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("readable");
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Returns whether `text`, the contents of `file`, cites a rule.
    pub(crate) fn is_cited(&self, rule: &Rule, file: &str, text: &str) -> bool {
        let is_own = self.home.as_ref().is_some_and(|home| file.starts_with(home.as_str()));
        match rule.same_as.as_ref().and_then(|same| same.split_once(" §")) {
            Some((cite, section)) => citations::cites(text, cite, section),
            None => {
                citations::cites(text, &self.cite, &rule.section)
                    || (is_own && citations::cites_bare(text, &rule.section))
            }
        }
    }

    /// Returns missing and superfluous rows, compared with the key words of the text.
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
