//! Checks of the source of the runtime for code that would make simulated runs irreproducible. All random numbers must
//! come from one source, and the time from tokio's clock. Nothing may depend on a random order, such as that of the
//! branches of an unbiased `select!`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::{fs, path::Path};

/// The folders whose code a simulation runs.
const FOLDERS: [&str; 2] = ["runtime/src", "runtime/proto/src"];

/// Parts of the paths of files that are not checked: the source of the random numbers, the place where the runtime uses
/// threads for blocking work, and tests.
const EXCEPTIONS: [&str; 3] = ["runtime/src/random.rs", "runtime/src/blocking.rs", "/tests"];

/// Calls `check` with the path and the code of each Rust file below `folder`, except [`EXCEPTIONS`]. Comment lines and
/// the unit tests at the end of a file are left out of the code.
fn each_file(folder: &Path, check: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.to_str().unwrap().to_owned();
        if EXCEPTIONS.iter().any(|exception| name.contains(exception)) {
            continue;
        } else if entry.is_dir() {
            each_file(&entry, check);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&entry).unwrap();
            let code = text.split_once("#[cfg(test)]\nmod tests {").map_or(&*text, |(code, _)| code);
            let lines: Vec<_> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            check(&name, &lines.join("\n"));
        }
    }
}

/// Returns the reasons for which runs of `code` may not repeat.
fn violations(code: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for (what, why) in [
        ("RandomState", "takes random numbers from the standard library instead of `random`"),
        ("getrandom::fill", "takes random numbers from the system instead of `random`"),
        ("getrandom::u", "takes random numbers from the system instead of `random`"),
        ("std::time::Instant::now", "reads the system's clock instead of tokio's"),
        ("SystemTime::now", "reads the system's clock instead of tokio's"),
        ("thread::sleep", "sleeps in real time"),
        ("spawn_blocking(", "runs work on another thread instead of by `blocking`"),
        ("watch::Sender::new", "has a `watch` channel, which wakes several receivers in a random order"),
        (".subscribe()", "has a channel with several receivers, which are woken in a random order"),
    ] {
        if code.contains(what) {
            found.push(why);
        }
    }
    if code.split("select! {").skip(1).any(|branches| !branches.trim_start().starts_with("biased;")) {
        found.push("has a `select!` that polls its branches in a random order: begin it with `biased;`");
    }
    found
}

#[test]
fn runs_of_the_runtime_can_repeat() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut wrong = Vec::new();
    let mut files = 0;
    for folder in FOLDERS {
        each_file(&root.join(folder), &mut |name, code| {
            files += 1;
            wrong.extend(violations(code).into_iter().map(|why| format!("{name} {why}")));
        });
    }
    assert!(files > 150, "{files} files");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_finds_violations() {
    for code in [
        "let x = RandomState::new();",
        "getrandom::fill(&mut bytes)?;",
        "let x = getrandom::u32();",
        "let now = std::time::Instant::now();",
        "let now = SystemTime::now();",
        "let phase = watch::Sender::new(0);",
        "let phase = sender.subscribe();",
        "runtime.spawn_blocking(work);",
        "tokio::select! {\n    () = a => {}\n}",
        "select! {\n    biased;\n    () = a => {}\n} tokio::select! {\n () = a => {}\n}",
    ] {
        assert_eq!(violations(code).len(), 1, "{code}");
    }
    for code in ["tokio::select! {\n    biased;\n    () = a => {}\n}", "tokio::time::Instant::now()"] {
        assert_eq!(violations(code), [""; 0], "{code}");
    }
}
