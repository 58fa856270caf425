//! Tests of the program in the README and of the ways to generate code in the guide. As a reader would, the tests
//! create packages outside of the workspace, build and run them with cargo, and run the `xdrgen` commands.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

const README: &str = "README.md";
const GENERATING: &str = "examples/guide/src/generating.md";

/// A fenced code block of a document.
struct Block {
    language: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

fn blocks(document: &Path) -> Vec<Block> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let mut parts = text.split("```");
    let mut blocks = Vec::new();
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (language, text) = block.split_once('\n').unwrap();
        blocks.push(Block { language: language.to_owned(), text: text.to_owned() });
    }
    blocks
}

/// Returns the texts of the code blocks in `language` that begin with `head`. Panics if there is none.
fn find(document: &str, language: &str, head: &str) -> Vec<String> {
    let blocks = blocks(document.as_ref())
        .into_iter()
        .filter(|block| block.language == language && block.text.starts_with(head));
    let found: Vec<String> = blocks.map(|block| block.text).collect();
    assert!(!found.is_empty(), "{document} has no {language} block that begins with {head}");
    found
}

/// Returns a manifest from the documents, in which the path of this checkout replaces `../rpcrdma`.
fn in_this_checkout(manifest: &str) -> String {
    assert!(manifest.contains("\"../rpcrdma/"), "no dependency on a checkout: {manifest}");
    manifest.replace("\"../rpcrdma/", &format!("\"{}/", root().display()))
}

/// The `main` function of the packages that are made from the guide.
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

/// Runs an `xdrgen` command line and returns its output.
fn xdrgen(line: &str, directory: &Path) -> String {
    let words = line.split('#').next().unwrap().split_whitespace().skip(1);
    let output = Command::new(env!("CARGO_BIN_EXE_xdrgen")).args(words).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_way_to_generate_code_builds_and_runs() {
    let place = tempfile::tempdir().unwrap();
    let specification = find(GENERATING, "xdr", "struct read_args").remove(0);
    let mains = find(GENERATING, "rust,ignore", "// src/main.rs");
    let [by_macro, by_script] = mains.as_slice() else { panic!("{mains:?}") };
    let script = find(GENERATING, "rust,no_run", "// build.rs").remove(0);
    let dependencies = find(GENERATING, "toml", "# Cargo.toml");
    let [dependency, without_std] = dependencies.as_slice() else { panic!("{dependencies:?}") };
    let library = find(GENERATING, "rust,ignore", "// src/lib.rs").remove(0);
    let commands = find(GENERATING, "sh", "xdrgen ").remove(0);
    let runtime = root().join("runtime");

    // The program in the README, pasted into an empty crate.
    let manifest = find(README, "toml", "# Cargo.toml").remove(0);
    let program = find(README, "rust", "// src/main.rs").remove(0);
    let manifest = in_this_checkout(&manifest).replace("name = \"files\"", "name = \"by-paste\"");
    write(&place.path().join("by-paste/Cargo.toml"), &manifest);
    write(&place.path().join("by-paste/src/main.rs"), &program);

    let dependency = in_this_checkout(dependency);
    for (name, main, build) in [
        ("by-macro", by_macro.as_str(), ""),
        ("by-script", by_script, dependency.as_str()),
        ("by-command", "mod files;\n", ""),
    ] {
        let package = place.path().join(name);
        let head = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
        let manifest = format!("{head}\n[dependencies]\nrpcrdma = {{ path = {runtime:?} }}\n\n{build}");
        write(&package.join("Cargo.toml"), &manifest);
        write(&package.join("files.x"), &specification);
        write(&package.join("src/main.rs"), &format!("{main}{MAIN}"));
    }
    write(&place.path().join("by-script/build.rs"), &script);
    let package = place.path().join("by-macro-no-std");
    let without_std = in_this_checkout(without_std);
    let head = "[package]\nname = \"by-macro-no-std\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
    write(&package.join("Cargo.toml"), &format!("{head}\n{without_std}"));
    write(&package.join("files.x"), &specification);
    write(&package.join("src/lib.rs"), &library);
    commands.lines().for_each(|line| drop(xdrgen(line, &place.path().join("by-command"))));
    let page = fs::read_to_string(place.path().join("by-command/files.html")).unwrap();
    assert!(page.contains("FILES_V1"));

    // The lock file and the profile of this workspace let cargo reuse what is already built.
    let workspace =
        "[workspace]\nresolver = \"3\"\nmembers = [\"by-*\"]\n\n[profile.dev]\ndebug = \"line-tables-only\"\n";
    write(&place.path().join("Cargo.toml"), workspace);
    fs::copy(root().join("Cargo.lock"), place.path().join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let cargo = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).arg("--offline").current_dir(place.path()).env("CARGO_TARGET_DIR", target);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        text(&output)
    };
    cargo(&["build"]);
    // Built separately: feature unification would enable the features of the other packages.
    cargo(&["build", "-p", "by-macro-no-std"]);
    for package in ["by-macro", "by-script", "by-command"] {
        // A string of 1 byte and a number.
        assert_eq!(cargo(&["run", "-q", "-p", package]).lines().next(), Some("12"), "{package}");
    }
    assert_eq!(cargo(&["run", "-q", "-p", "by-paste"]).lines().next(), Some("read 1048576 bytes"));
    // Without changes, nothing is rebuilt.
    assert!(!cargo(&["build"]).contains("Compiling"));
    // A change of the specification changes the program.
    for package in ["by-macro", "by-script"] {
        let wider = specification.replace("unsigned int count", "unsigned hyper count");
        write(&place.path().join(package).join("files.x"), &wider);
        assert_eq!(cargo(&["run", "-q", "-p", package]).lines().next(), Some("16"), "{package}");
    }
}

/// Runs the `xdrgen` commands of each page of the guide, except `xdrgen new`, with the page's own XDR, ULB and
/// messages.
#[test]
fn commands_of_the_guide_run() {
    let mut count = 0;
    for page in fs::read_dir(root().join("examples/guide/src")).unwrap() {
        let blocks = blocks(&page.unwrap().path());
        let first = |language: &str| blocks.iter().find(|block| block.language == language).map(|block| &block.text);
        let lines = blocks.iter().filter(|block| block.language == "sh").flat_map(|block| block.text.lines());
        // `new_package.rs` runs `xdrgen new`.
        for line in lines.filter(|line| line.starts_with("xdrgen ") && !line.starts_with("xdrgen new ")) {
            let place = tempfile::tempdir().unwrap();
            fs::create_dir(place.path().join("src")).unwrap();
            let words: Vec<&str> = line.split('#').next().unwrap().split_whitespace().collect();
            let specification = words.iter().find(|word| word.ends_with(".x")).unwrap();
            fs::write(place.path().join(specification), first("xdr").unwrap()).unwrap();
            if let Some(binding) = words.iter().find(|word| word.ends_with(".ulb")) {
                fs::write(place.path().join(binding), first("ulb").unwrap()).unwrap();
            }
            let texts = || blocks.iter().filter(|block| block.language == "text").map(|block| &block.text);
            if let Some(messages) = words.iter().find(|word| word.ends_with(".hex")) {
                let is_hex = |text: &&String| text.starts_with("# ");
                fs::write(place.path().join(messages), texts().find(is_hex).unwrap()).unwrap();
            }
            let output = xdrgen(line, place.path());
            // The page shows the output of this command.
            if words[1] == "decode" {
                assert!(texts().any(|text| *text == output), "{line} prints:\n{output}");
            }
            count += 1;
        }
    }
    assert!(count >= 8, "only {count} commands were found");
}

/// `xdrgen gen --help` lists all flags of the table of options in the guide.
#[test]
fn options_of_the_guide_exist() {
    let output = Command::new(env!("CARGO_BIN_EXE_xdrgen")).args(["gen", "--help"]).output().unwrap();
    let help = text(&output);
    let page = fs::read_to_string(root().join(GENERATING)).unwrap();
    let (_, table) = page.split_once("| purpose | macro | `Build` | command |").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let words = table.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    let flags: Vec<&str> = words.filter(|word| word.starts_with('-') && !word.trim_matches('-').is_empty()).collect();
    assert!(flags.len() >= 9, "{flags:?}");
    for flag in flags {
        assert!(help.contains(flag), "`xdrgen gen` has no flag {flag}");
    }
}
