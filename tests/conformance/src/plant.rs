//! Planted faults: source text in which a switch selects one of several faults, or none.
//!
//! A function with faults gets one body for each of them, beside its own. Therefore, all faults of the project are
//! compiled at once.

use std::{
    collections::BTreeMap,
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};

use crate::{
    items::{FunctionParts, SourceItem, items},
    table::Fault,
};

/// Name of the crate with the switch.
pub const SWITCH_CRATE: &str = "rpcrdma-planted";

/// Manifest of the crate with the switch.
pub const SWITCH_MANIFEST: &str =
    "[package]\nname = \"rpcrdma-planted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[lib]\npath = \"lib.rs\"\n";

/// Source of the crate with the switch.
pub const SWITCH_SOURCE: &str = include_str!("switch.rs");

/// The place of a fault in one file.
struct Place<'a> {
    function: &'a FunctionParts,
    start: usize,
    /// Byte range of the text to replace.
    replaced: Range<usize>,
}

/// Returns the contents of all files that have faults, with these faults planted.
///
/// # Errors
///
/// Fails if a fault cannot be planted, or if a file cannot be read. The error names all such files, with the first
/// fault of each that cannot be planted.
pub fn planted_files(root: &Path, faults: &[(u32, &Fault)]) -> anyhow::Result<BTreeMap<PathBuf, String>> {
    let mut by_file: BTreeMap<&str, Vec<(u32, &Fault)>> = BTreeMap::new();
    for (number, fault) in faults {
        by_file.entry(fault.place()?.0).or_default().push((*number, fault));
    }
    let mut files = BTreeMap::new();
    let mut complaints = Vec::new();
    for (file, faults) in by_file {
        let text = fs::read_to_string(root.join(file)).with_context(|| format!("failed to read {file}"));
        match text.and_then(|text| planted(&text, &faults)) {
            Ok(text) => drop(files.insert(PathBuf::from(file), text)),
            Err(error) => complaints.push(format!("{file}: {error:#}")),
        }
    }
    ensure!(
        complaints.is_empty(),
        "{} files with faults that cannot be planted:\n{}",
        complaints.len(),
        complaints.join("\n")
    );
    Ok(files)
}

/// Returns `text`, the contents of one file, with all of these faults and their switch.
///
/// # Errors
///
/// Fails if `text` is not Rust, if a fault's function does not exist, or if it does not contain the text to replace
/// exactly once.
pub fn planted(text: &str, faults: &[(u32, &Fault)]) -> anyhow::Result<String> {
    let items = items(text).context("the file is not Rust")?;
    let mut functions: BTreeMap<usize, (Place<'_>, Vec<(u32, String)>)> = BTreeMap::new();
    for (number, fault) in faults {
        let place = place(text, &items, fault)?;
        let body = &place.function.body;
        let with = [&text[body.start..place.replaced.start], &fault.with, &text[place.replaced.end..body.end]].concat();
        functions.entry(body.start).or_insert_with(|| (place, Vec::new())).1.push((*number, with));
    }
    let mut output = String::new();
    let mut copied = 0;
    for (place, bodies) in functions.values() {
        output += &text[copied..place.start];
        // Code behind a fault may be unreachable, or its variables unused.
        output += "#[allow(warnings, clippy::all)] ";
        copied = place.start;
        if let Some(constness) = &place.function.constness {
            // The switch is read when the program runs.
            output += &text[copied..constness.start];
            copied = constness.end;
        }
        let body = &place.function.body;
        output += &text[copied..body.start];
        output += "{ match ::rpcrdma_planted::number() { ";
        for (number, faulty) in bodies {
            output += &format!("{number} => {faulty}, ");
        }
        output += &format!("_ => {} }} }}", &text[body.clone()]);
        copied = body.end;
    }
    output += &text[copied..];
    Ok(output)
}

fn place<'a>(text: &str, items: &'a [SourceItem], fault: &Fault) -> anyhow::Result<Place<'a>> {
    let (file, path) = fault.place()?;
    let named: Vec<_> = items.iter().filter(|item| item.is_named(path) && item.function.is_some()).collect();
    ensure!(!named.is_empty(), "{file} has no function {path} with a body");
    let mut found = Vec::new();
    for item in named {
        let Some(function) = &item.function else { continue };
        let body = &text[function.body.clone()];
        for (at, _) in body.match_indices(&fault.replace) {
            let start = function.body.start + at;
            found.push(Place { function, start: item.range.start, replaced: start..start + fault.replace.len() });
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => bail!("{path} in {file} does not contain the text to replace: {}", fault.replace),
        count => bail!("{path} in {file} contains the text to replace {count} times: {}", fault.replace),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        env,
        process::{self, Command},
    };

    use super::*;
    use crate::switch::{self, MAX_MUTANT};

    fn fault(path: &str, replace: &str, with: &str) -> Fault {
        Fault { within: format!("a.rs::{path}"), replace: replace.to_owned(), with: with.to_owned() }
    }

    #[test]
    fn every_fault_gets_a_body() {
        let text = "/// One.\nfn one(n: u8) -> u8 { n + 1 }\nimpl Two {\n    pub const fn get() -> u8 { 2 }\n}\n";
        let faults = [fault("one", "+ 1", "+ 2"), fault("one", "n + 1", "0"), fault("Two::get", "2", "3")];
        let numbered: Vec<_> = (1..).zip(&faults).collect();
        assert_eq!(
            planted(text, &numbered).unwrap(),
            "#[allow(warnings, clippy::all)] /// One.\nfn one(n: u8) -> u8 { match ::rpcrdma_planted::number() { \
             1 => { n + 2 }, 2 => { 0 }, _ => { n + 1 } } }\nimpl Two {\n    #[allow(warnings, clippy::all)] pub  fn get() \
             -> u8 { match ::rpcrdma_planted::number() { 3 => { 3 }, _ => { 2 } } }\n}\n"
        );
    }

    /// Runs this test again in a process in which the switch is set, and which aborts. The process must have recorded
    /// what it reached.
    #[test]
    fn the_switch_selects_and_records() {
        const NAME: &str = "plant::tests::the_switch_selects_and_records";
        if env::var_os(switch::REACHED).is_some() {
            assert_eq!(switch::number(), 259);
            let planted = [2, 259, 2, MAX_MUTANT].map(switch::planted);
            assert_eq!(planted, [false, true, false, false]);
            process::abort();
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("reached");
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", NAME]).env(switch::SELECTED, "259").env(switch::REACHED, &path);
        let output = command.output().unwrap();
        let written = fs::read(&path).unwrap();
        assert_eq!(output.status.code(), None, "{}", String::from_utf8_lossy(&output.stdout));
        assert_eq!(written, [2, 0, 0, 0, 3, 1, 0, 0, 255, 255, 0, 0]);
    }

    #[test]
    fn a_fault_has_exactly_one_place() {
        let text = "fn one() { two(); two(); }\nfn three();";
        let refused = |fault: Fault| planted(&text.replace("fn three();", ""), &[(1, &fault)]).unwrap_err().to_string();
        assert!(refused(fault("one", "two()", "")).contains("2 times"));
        assert!(refused(fault("one", "four()", "")).contains("does not contain"));
        assert!(refused(fault("two", "two()", "")).contains("no function two"));
    }
}
