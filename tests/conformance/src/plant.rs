//! Planted faults: source text in which a switch selects one of several faults, or none.
//!
//! A function with faults gets one body for each of them, beside its own. So all faults of the project are compiled at once.

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

/// The environment variable that selects a fault by its number. No fault has the number 0.
pub const SWITCH_VARIABLE: &str = "RPCRDMA_FAULT";

/// Manifest of the crate with the switch.
pub const SWITCH_MANIFEST: &str =
    "[package]\nname = \"rpcrdma-planted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[lib]\npath = \"lib.rs\"\n";

/// The environment variable with the name of the file to which the switch appends the number of each mutant that is reached, as four
/// bytes, the lowest first.
pub const REACHED_VARIABLE: &str = "RPCRDMA_REACHED";

/// The highest number of a mutant.
pub const MAX_MUTANT: u32 = 65_535;

/// Source of the crate with the switch.
pub const SWITCH_SOURCE: &str = r#"//! The switch that selects a planted fault or a mutant.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

struct Switch {
    number: u32,
    reached: Option<File>,
}

fn switch() -> &'static Switch {
    static SWITCH: OnceLock<Switch> = OnceLock::new();
    SWITCH.get_or_init(|| Switch {
        number: std::env::var("RPCRDMA_FAULT").ok().and_then(|text| text.parse().ok()).unwrap_or(0),
        reached: std::env::var_os("RPCRDMA_REACHED")
            .and_then(|path| OpenOptions::new().append(true).create(true).open(path).ok()),
    })
}

/// Returns the number of the selected fault, or 0.
pub fn number() -> u32 {
    switch().number
}

/// Returns `true` if this mutant is selected. Records that it was reached.
pub fn planted(mutant: u32) -> bool {
    let switch = switch();
    if let Some(mut file) = switch.reached.as_ref() {
        static REACHED: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
        let bit = 1 << (mutant % 64);
        let is_first = REACHED.get(mutant as usize / 64).is_some_and(|word| {
            word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
        });
        // Written at once, because the process may be killed.
        if is_first {
            let _ = file.write_all(&mutant.to_le_bytes());
        }
    }
    switch.number == mutant
}
"#;

/// The function of a fault, in one file.
struct Place<'a> {
    function: &'a FunctionParts,
    start: usize,
    /// Byte range of the text to replace.
    replaced: Range<usize>,
}

/// Returns the contents of all files with faults, with these in them.
///
/// # Errors
///
/// If a fault cannot be planted; all such faults are named. If files cannot be read.
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
/// If a fault's function does not exist, or its text is not in exactly one place of it.
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
    use super::*;

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

    #[test]
    fn a_fault_has_exactly_one_place() {
        let text = "fn one() { two(); two(); }\nfn three();";
        let refused = |fault: Fault| planted(&text.replace("fn three();", ""), &[(1, &fault)]).unwrap_err().to_string();
        assert!(refused(fault("one", "two()", "")).contains("2 times"));
        assert!(refused(fault("one", "four()", "")).contains("does not contain"));
        assert!(refused(fault("two", "two()", "")).contains("no function two"));
    }
}
