//! The table of requirements of one specification.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Context as _;
use serde::Deserialize;

use crate::{citations, keywords::Keywords};

/// One file of `tests/conformance/tables`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Name of the file, without its extension.
    #[serde(skip)]
    pub name: String,
    /// Heading of the page.
    pub title: String,
    /// Two to four sentences in plain words: the subject of the specification, the parts that this project implements,
    /// and those that it leaves out.
    pub summary: String,
    /// Name of the specification in citations, such as `RFC 8166`.
    pub cite: String,
    /// A folder in which a citation without a name, such as `§4.5`, means this specification.
    #[serde(default)]
    pub home: Option<String>,
    /// File name of the specification's text.
    pub text: String,
    /// `true` if the text states requirements in lower case.
    #[serde(default)]
    pub lowercase: bool,
    /// Covered sections. They include their subsections.
    pub sections: Vec<String>,
    /// The requirements.
    #[serde(rename = "rule")]
    pub rules: Vec<Rule>,
}

/// A requirement that a section states, with one or several key words or without any.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The section that states the requirement.
    pub section: String,
    /// Numbers of the key words in the section that state the requirement, counted from one.
    #[serde(default)]
    pub n: Vec<usize>,
    /// A letter that identifies a requirement without key words.
    #[serde(default)]
    pub part: String,
    /// The strongest key word of the requirement.
    #[serde(default)]
    pub level: String,
    /// The requirement in the words of this project.
    pub what: String,
    /// The section of another specification that states the same requirement, as the code cites it: `RFC 8166 §4.5`.
    #[serde(default)]
    pub same_as: Option<String>,
    /// Items that implement the requirement: `file::item`, or a file that is not Rust.
    #[serde(default)]
    pub code: Vec<String>,
    /// Tests of the requirement: `file::function`, or a file for all of its tests.
    #[serde(default)]
    pub tests: Vec<String>,
    /// Faults that break the requirement. The tests have to notice each of them.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
    /// The reason for the lack of a fault.
    #[serde(default)]
    pub no_fault: String,
    /// The reason for missing code or tests, or the deviation.
    #[serde(default)]
    pub note: String,
}

/// A change in one place of one function that breaks a requirement.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The function: `file::function` or `file::Type::function`.
    #[serde(rename = "in")]
    pub within: String,
    /// The text to replace. The function contains it once.
    pub replace: String,
    /// The text that replaces it.
    pub with: String,
}

impl Fault {
    /// Returns the file and the path of the function in it.
    ///
    /// # Errors
    ///
    /// Fails if no function is named.
    pub fn place(&self) -> anyhow::Result<(&str, &str)> {
        self.within.split_once("::").with_context(|| format!("names no function: {}", self.within))
    }
}

impl Rule {
    /// Returns the section and the numbers of the key words: `3.3.1#1,2`. A requirement without key words has a letter.
    pub fn id(&self) -> String {
        format!("{}#{}", self.section, self.numbers(","))
    }

    /// Returns the numbers of the key words, joined by `separator`, or the letter.
    pub fn numbers(&self, separator: &str) -> String {
        let numbers: Vec<_> = self.n.iter().map(ToString::to_string).collect();
        if numbers.is_empty() { self.part.clone() } else { numbers.join(separator) }
    }
}

/// Reads all tables, in the order of their names.
///
/// # Errors
///
/// Fails if the folder or a file cannot be read, or if a file is not a table.
pub fn read_tables(folder: &Path) -> anyhow::Result<Vec<Table>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to list {}", folder.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths.iter().map(|path| Table::read(path)).collect()
}

impl Table {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("failed to read {}", path.display()))?;
        let mut table: Self = toml::from_str(&text).with_context(|| format!("{} is not a table", path.display()))?;
        table.name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(table)
    }

    /// Returns `true` if `text`, the contents of `file`, cites the section of a rule. If another specification states
    /// the same requirement, its section must be cited instead.
    pub fn is_cited(&self, rule: &Rule, file: &str, text: &str) -> bool {
        let is_own = self.home.as_ref().is_some_and(|home| file.starts_with(home.as_str()));
        match rule.same_as.as_ref().and_then(|same| same.split_once(" §")) {
            Some((cite, section)) => citations::cites(text, cite, section),
            None => {
                citations::cites(text, &self.cite, &rule.section)
                    || (is_own && citations::cites_bare(text, &rule.section))
            }
        }
    }

    /// Compares the rows with the key words of the text. Returns descriptions of missing, superfluous and repeated
    /// rows, and of rows with one key word and a wrong level.
    pub fn compare(&self, found: &Keywords) -> Vec<String> {
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
