//! Tests of the memory that the connections of a server share, and of the numbers in the source files.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

use super::{Connection, ConnectionSetup, Engine as _, EngineConfig, PrivateData, Role, Versions};
use crate::memory::{MemoryBudget, MemoryShare};

/// A connection that is closing leaves the queue for shared memory at once, however long its peer takes to close.
#[test]
fn closing_connection_leaves_the_queue_for_memory() {
    let budget = MemoryBudget::new(100);
    let _held = MemoryShare::of(Some(budget.account(1))).overcommit(100);
    let config = || EngineConfig { budget: Some(budget.account(2)), ..EngineConfig::default() };
    let says = PrivateData::new(&config(), true);
    let setup = ConnectionSetup { local: says, peer: says, xid_seed: 0 };
    for versions in [Versions::V1, Versions::V2] {
        let mut connection = Connection::new(Role::Server, EngineConfig { versions, ..config() }, setup);
        assert!(connection.core.shared.memory.take(50).is_none());
        assert_eq!(budget.waiting(), 1);
        connection.close();
        assert_eq!((budget.waiting(), connection.close_reason().is_some()), (0, true));
    }
}

/// Returns the integer literals above 2 in the code of a file, each with its line number. Comments, attributes,
/// strings, named constants and tests do not count.
fn numbers(text: &str) -> Vec<(usize, u64)> {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let mut found = Vec::new();
    for (at, line) in code.lines().enumerate() {
        let line = line.split("//").next().unwrap();
        if line.trim_start().starts_with("#[") || line.contains("const ") {
            continue;
        }
        let outside_texts: String = line.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        for token in outside_texts.split(|c: char| !c.is_alphanumeric() && c != '_') {
            let hex = token.strip_prefix("0x").map(|hex| u64::from_str_radix(&hex.replace('_', ""), 16).ok());
            let digits = token.trim_end_matches("usize").trim_end_matches("u64").trim_end_matches("u32");
            let number = hex.unwrap_or_else(|| digits.replace('_', "").parse().ok());
            found.extend(number.filter(|&number| number > 2).map(|number| (at + 1, number)));
        }
    }
    found
}

/// Code that reads or writes headers contains no unnamed numbers. Offsets, lengths and codes of a header are defined in
/// the `format.rs` of its version or of `common`.
#[test]
fn layout_numbers_stand_in_format() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/engine");
    let mut files: Vec<_> = [
        "common/lists",
        "connection/connection",
        "connection/negotiation",
        "core/wire",
        "responder/arrivals",
        "responder/responses",
        "responder/results",
    ]
    .map(|name| folder.join(name))
    .into();
    for version in ["v1", "v2"] {
        let entries = fs::read_dir(folder.join(version)).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path().with_extension("")));
    }
    assert!(files.len() > 15, "{files:?}");
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("format")) {
        let text = fs::read_to_string(file.with_extension("rs")).unwrap();
        found.extend(numbers(&text).into_iter().map(|(line, number)| format!("{}:{line}: {number}", file.display())));
    }
    assert_eq!(found, Vec::<String>::new());
    assert!(!numbers(&fs::read_to_string(folder.join("v1/format.rs")).unwrap().replace("const ", "")).is_empty());
}
