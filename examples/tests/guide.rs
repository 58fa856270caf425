//! Tests of the shell blocks in the documents: every flag and every subcommand of `blobstore` that they pass to a
//! program of this package exists, and the README begins with two fixed commands.
#![cfg(unix)]
#![allow(missing_docs, clippy::unwrap_used)]

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const PROGRAMS: &[(&str, &str)] = &[
    ("blobstore", env!("CARGO_BIN_EXE_blobstore")),
    ("iwping", env!("CARGO_BIN_EXE_iwping")),
    ("nfs3d", env!("CARGO_BIN_EXE_nfs3d")),
    ("nfs41cb", env!("CARGO_BIN_EXE_nfs41cb")),
    ("nfscp", env!("CARGO_BIN_EXE_nfscp")),
    ("rpcping", env!("CARGO_BIN_EXE_rpcping")),
    #[cfg(feature = "introspection")]
    ("rpctop", env!("CARGO_BIN_EXE_rpctop")),
];

fn documents() -> Vec<PathBuf> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = vec![package.join("../README.md"), package.join("README.md")];
    found.extend(fs::read_dir(package.join("guide/src")).unwrap().map(|entry| entry.unwrap().path()));
    found
}

/// Returns the lines of a document's `sh` blocks.
fn shell_lines(text: &str) -> impl Iterator<Item = &str> {
    let blocks = text.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| block.strip_prefix("sh\n")).flat_map(str::lines)
}

/// Returns the name, the path and the arguments of the program that a line runs. Returns `None` if this package does
/// not have the program.
fn invocation(line: &str) -> Option<(&'static str, &'static str, Vec<&str>)> {
    let words: Vec<&str> = line.split('#').next()?.split_whitespace().take_while(|word| *word != "&").collect();
    let (name, arguments) = match words.as_slice() {
        ["cargo", rest @ ..] => {
            let at = rest.iter().position(|word| *word == "--bin")?;
            let start = rest.iter().position(|word| *word == "--").map_or(rest.len(), |at| at + 1);
            (*rest.get(at + 1)?, rest[start..].to_vec())
        }
        [first, rest @ ..] => (first.trim_start_matches("./"), rest.to_vec()),
        [] => return None,
    };
    PROGRAMS.iter().find(|(program, _)| *program == name).map(|(program, path)| (*program, *path, arguments))
}

fn help(program: &str, subcommand: Option<&str>) -> String {
    let output = Command::new(program).args(subcommand).arg("--help").output().unwrap();
    assert!(output.status.success(), "{program} {subcommand:?} --help: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the words of a help text that look like flags.
fn flags(help: &str) -> Vec<&str> {
    help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).filter(|word| word.starts_with('-')).collect()
}

#[test]
fn flags_of_the_documents_exist() {
    let mut helps: HashMap<(&str, Option<String>), String> = HashMap::new();
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for line in shell_lines(&text) {
            let Some((name, program, arguments)) = invocation(line) else { continue };
            let subcommand = arguments.first().filter(|first| name == "blobstore" && !first.starts_with('-'));
            let subcommand = subcommand.map(|&word| word.to_owned());
            let help = helps.entry((name, subcommand.clone())).or_insert_with(|| help(program, subcommand.as_deref()));
            let known = flags(help);
            for argument in arguments.iter().filter(|argument| argument.starts_with('-') && **argument != "-") {
                let flag = argument.split('=').next().unwrap();
                let combined = !flag.starts_with("--") && flag.len() > 2;
                let all = match combined {
                    true => flag.chars().skip(1).map(|letter| format!("-{letter}")).collect(),
                    false => vec![flag.to_owned()],
                };
                for flag in all {
                    assert!(known.contains(&&*flag), "{}: {name} has no {flag}: {line}", document.display());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 20, "only {count} flags were found");
}

#[test]
fn the_first_two_commands_of_the_readme_stay() {
    let readme = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).unwrap();
    let commands: Vec<&str> = shell_lines(&readme).collect();
    let wanted = ["cargo run --release -p rpcrdma-examples --bin blobstore -- demo", "cargo test --workspace"];
    assert_eq!(commands[..2], wanted);
}
