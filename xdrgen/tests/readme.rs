//! The README's ways to generate, each as its reader would follow it: packages that cargo builds and runs, and commands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// A block of code of the README.
struct Block {
    language: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn blocks() -> Vec<Block> {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut parts = readme.split("```");
    let mut blocks = Vec::new();
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        blocks.push(Block { language: language.to_owned(), text: text.to_owned() });
    }
    blocks
}

/// The texts of the blocks in `language` that begin with `head`.
fn find(language: &str, head: &str) -> Vec<String> {
    let blocks = blocks().into_iter().filter(|block| block.language == language && block.text.starts_with(head));
    let found: Vec<String> = blocks.map(|block| block.text).collect();
    assert!(!found.is_empty(), "no {language} that begins with {head}");
    found
}

/// What the packages do with the code.
const MAIN: &str = "
fn main() {
    use rpcrdma::xdr::XdrEncode as _;
    let args = files::ReadArgs { path: \"a\".into(), count: 7 };
    println!(\"{}\", args.encoded_len());
}
";

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn xdrgen(line: &str, directory: &Path) {
    let words = line.split('#').next().unwrap().split_whitespace().skip(1);
    let output = Command::new(env!("CARGO_BIN_EXE_xdrgen")).args(words).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output));
}

#[test]
fn every_way_builds_and_runs() {
    let place = tempfile::tempdir().unwrap();
    let specification = find("xdr", "struct read_args").remove(0);
    let mains = find("rust,ignore", "// src/main.rs");
    let [by_macro, by_script] = mains.as_slice() else { panic!("{mains:?}") };
    let script = find("rust,ignore", "// build.rs").remove(0);
    let dependencies = find("toml", "# Cargo.toml");
    let [dependency, without_std] = dependencies.as_slice() else { panic!("{dependencies:?}") };
    let library = find("rust,ignore", "// src/lib.rs").remove(0);
    let commands = find("sh", "xdrgen ").remove(0);
    let root = root();
    let path = |package: &str| format!("path = {:?}", root.join(package));

    // What is published by version is here by path.
    assert!(dependency.contains("version = \"0.1\""), "{dependency}");
    let dependency = dependency.replace("version = \"0.1\"", &path("xdrgen"));
    for (name, main, build) in [
        ("by-macro", by_macro.as_str(), ""),
        ("by-script", by_script, dependency.as_str()),
        ("by-command", "mod files;\n", ""),
    ] {
        let package = place.path().join(name);
        let head = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        let manifest = format!("{head}\n[dependencies]\nrpcrdma = {{ {} }}\n\n{build}", path("runtime"));
        write(&package.join("Cargo.toml"), &manifest);
        write(&package.join("files.x"), &specification);
        write(&package.join("src/main.rs"), &format!("{main}{MAIN}"));
    }
    write(&place.path().join("by-script/build.rs"), &script);
    assert!(without_std.contains("version = \"0.1\""), "{without_std}");
    let package = place.path().join("by-macro-no-std");
    let without_std = without_std.replace("version = \"0.1\"", &path("runtime"));
    let head = "[package]\nname = \"by-macro-no-std\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    write(&package.join("Cargo.toml"), &format!("{head}\n{without_std}"));
    write(&package.join("files.x"), &specification);
    write(&package.join("src/lib.rs"), &library);
    commands.lines().for_each(|line| xdrgen(line, &place.path().join("by-command")));
    let page = fs::read_to_string(place.path().join("by-command/files.html")).unwrap();
    assert!(page.contains("FILES_V1"));

    // With the versions and the profile of this workspace, so that what is built already is not built again.
    let workspace =
        "[workspace]\nresolver = \"3\"\nmembers = [\"by-*\"]\n\n[profile.dev]\ndebug = \"line-tables-only\"\n";
    write(&place.path().join("Cargo.toml"), workspace);
    fs::copy(root.join("Cargo.lock"), place.path().join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).arg("--offline").current_dir(place.path()).env("CARGO_TARGET_DIR", target);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        text(&output)
    };
    cargo(&["build"]);
    // By itself: beside the others the runtime has the features that they ask for.
    cargo(&["build", "-p", "by-macro-no-std"]);
    for package in ["by-macro", "by-script", "by-command"] {
        // A string of 1 octet and a number.
        assert_eq!(cargo(&["run", "-q", "-p", package]).lines().next(), Some("12"), "{package}");
    }
    // Nothing has changed.
    assert!(!cargo(&["build"]).contains("Compiling"));
    // What the specification says is what is built.
    for package in ["by-macro", "by-script"] {
        let wider = specification.replace("unsigned int count", "unsigned hyper count");
        write(&place.path().join(package).join("files.x"), &wider);
        assert_eq!(cargo(&["run", "-q", "-p", package]).lines().next(), Some("16"), "{package}");
    }
}
