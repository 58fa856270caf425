//! Golden files: each `golden/*.x` is one construct, and compiles to the `.rs` file beside it.
//!
//! `constructs/*.x` are larger. Their code is not checked in: `rpcrdma-tests` generates, compiles and runs it. Where such a
//! file is written in a dialect, the `.strict` file beside it lists what `--strict` refuses.
//!
//! `UPDATE_GOLDEN=1` writes both kinds of files anew.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rpcrdma_xdrgen::{
    Compiler,
    emit::{Borrow, EmitOptions, emit},
};

/// The longest golden file that a reviewer still reads in a diff, in lines.
const LONGEST: usize = 260;

/// Most lines of all golden files together.
const MOST: usize = 2400;

/// The specifications of a directory beside this file, sorted.
fn specifications(directory: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(directory);
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "x")).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn compiler(path: &Path) -> Compiler {
    // One of them has comments that are not UTF-8.
    let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    Compiler::new().source(file_name(path), text)
}

fn generate(path: &Path) -> String {
    let name = file_name(path);
    let mut compiler = compiler(path);
    if name == "prefix.x" {
        compiler = compiler.strip_enum_prefix();
    }
    let compiled = compiler.compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert_eq!(compiled.warnings.to_string(), "", "{name}");
    let mut options = EmitOptions::default();
    match name.as_str() {
        "borrowed.x" => options.borrowed = Borrow::All,
        "client.x" => options.server = false,
        "open_union.x" => options.open = vec!["request".to_owned()],
        "procedure.x" => options = options.types_only(),
        "server.x" => options.client = false,
        _ => {}
    }
    options.source = Some(name);
    emit(&compiled.spec, &options).unwrap()
}

/// One line for each dialect that `--strict` refuses: its place, and what it is.
fn refused(path: &Path) -> String {
    let Err(diagnostics) = compiler(path).strict().compile() else { return String::new() };
    let mut text = String::new();
    for diagnostic in diagnostics.iter() {
        let span = &diagnostic.primary.as_ref().unwrap().span;
        let source = diagnostics.sources().get(span.file).unwrap();
        let (line, column) = source.line_column(span.range.start);
        let slice = source.text()[span.range.clone()].lines().next().unwrap_or_default();
        let what = diagnostic.message.strip_suffix(": a dialect").unwrap();
        text.push_str(&format!("{line}:{column}: {what} ({}): {slice}\n", diagnostic.notes.join("; ")));
    }
    text
}

/// Compares a checked-in file with what it should be, or writes it.
fn compare(path: &Path, text: &str, stale: &mut Vec<String>) {
    let before = fs::read_to_string(path).unwrap_or_default();
    if before == text {
        return;
    }
    if std::env::var_os("UPDATE_GOLDEN").is_none() {
        stale.push(path.display().to_string());
    } else if text.is_empty() {
        fs::remove_file(path).unwrap();
    } else {
        fs::write(path, text).unwrap();
    }
}

#[test]
fn generated_code_is_as_checked_in() {
    let (mut stale, mut lines) = (Vec::new(), 0);
    for path in specifications("golden") {
        let text = generate(&path);
        let length = text.lines().count();
        assert!(length <= LONGEST, "{}: {length} lines; cut the construct down", path.display());
        lines += length;
        compare(&path.with_extension("rs"), &text, &mut stale);
    }
    assert!(lines <= MOST, "the golden files have {lines} lines; move the large ones to `constructs`");
    assert!(stale.is_empty(), "these differ from what is generated; UPDATE_GOLDEN=1 writes them: {stale:#?}");
}

#[test]
fn generated_code_is_stable_from_run_to_run() {
    for path in specifications("golden").into_iter().chain(specifications("constructs")) {
        assert_eq!(generate(&path), generate(&path), "{}", path.display());
    }
}

#[test]
fn strict_refuses_what_is_listed() {
    let mut stale = Vec::new();
    for path in specifications("constructs") {
        compare(&path.with_extension("strict"), &refused(&path), &mut stale);
    }
    assert!(stale.is_empty(), "these differ from what is refused; UPDATE_GOLDEN=1 writes them: {stale:#?}");
}
