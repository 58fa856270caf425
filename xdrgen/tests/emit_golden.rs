//! Tests with golden files: each `golden/*.x` contains one construct and compiles to the `.rs` file of the same name.
//!
//! The files `constructs/*.x` are larger. Their code is not checked in. Instead, `rpcrdma-tests` generates, compiles
//! and runs it. If such a file uses a dialect, the `.strict` file of the same name lists the text that `--strict`
//! refuses.
//!
//! `UPDATE_GOLDEN=1` rewrites the `.rs` and the `.strict` files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rpcrdma_xdrgen::{
    Compiler,
    emit::{Borrow, EmitOptions, emit},
};

/// Maximum length of a golden file, in lines. Reviewers do not read longer diffs.
const LONGEST: usize = 260;

/// Maximum length of all golden files together, in lines.
const MAX_LINES: usize = 2800;

/// Returns the sorted paths of the specifications in a subdirectory of `tests`.
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
    // `latin1.x` has comments that are not UTF-8.
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
        "procedure.x" | "repeated.x" => options = options.types_only(),
        "server.x" => options.client = false,
        _ => {}
    }
    options.source = Some(name);
    emit(&compiled.spec, &options).unwrap()
}

/// Returns a line for each use of a dialect that `--strict` refuses, with its position and a description.
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

/// Compares a checked-in file with the expected text. An absent file counts as empty. If the texts differ, updates the
/// file if `UPDATE_GOLDEN` is set, and otherwise adds its path to `stale`. An update with an empty text deletes the
/// file.
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
fn generated_code_matches_golden_files() {
    let (mut stale, mut lines) = (Vec::new(), 0);
    for path in specifications("golden") {
        let text = generate(&path);
        let length = text.lines().count();
        assert!(length <= LONGEST, "{}: {length} lines; shorten the construct", path.display());
        lines += length;
        compare(&path.with_extension("rs"), &text, &mut stale);
    }
    assert!(lines <= MAX_LINES, "the golden files have {lines} lines; move the large ones to `constructs`");
    assert!(stale.is_empty(), "these differ from the generated code; UPDATE_GOLDEN=1 updates them: {stale:#?}");
}

#[test]
fn generated_code_is_stable_from_run_to_run() {
    for path in specifications("golden").into_iter().chain(specifications("constructs")) {
        assert_eq!(generate(&path), generate(&path), "{}", path.display());
    }
}

/// RFC 8166 §3.4.2, §6.1: only marked items are encoded and decoded by the functions for eligible items.
#[test]
fn only_marked_items_can_be_reduced() {
    let eligible = ["opaque a<9>", "opaque a[9]", "string a<9>", "int a<9>", "int a[9]", "fixed a", "fixed a<9>"];
    // Items that cannot be marked.
    let others = ["varying a", "varying a[9]", "varying *a", "int *a", "node *a", "choice a"];
    for (item, borrow) in eligible.iter().chain(&others).flat_map(|item| [(item, Borrow::Nothing), (item, Borrow::All)])
    {
        let mut options = EmitOptions::default();
        options.borrowed = borrow;
        let code = |mark: &str| {
            let text = format!(
                "struct fixed {{ int x; opaque y[5]; }}; struct varying {{ string z<9>; int x; }};
                 struct node {{ opaque b<9>; node *next; }}; union choice switch (bool c) {{ case TRUE: varying d; default: void; }};
                 struct items {{ int before; {mark} {item}; }};"
            );
            let compiled = Compiler::new().source("a.x", text).compile().ok()?;
            Some(emit(&compiled.spec, &options).unwrap())
        };
        let unmarked = code("").unwrap_or_else(|| panic!("{item}"));
        assert!(!unmarked.contains("_ddp_"), "{item}: {unmarked}");
        let marked = code("@ddp");
        assert_eq!(marked.is_some(), eligible.contains(item), "{item}");
        let both = |code: String| code.contains("xdr::put_ddp_") && code.contains("xdr::take_ddp_");
        assert!(marked.is_none_or(both), "{item}");
    }
}

#[test]
fn strict_refuses_the_listed_dialects() {
    let mut stale = Vec::new();
    for path in specifications("constructs") {
        compare(&path.with_extension("strict"), &refused(&path), &mut stale);
    }
    assert!(stale.is_empty(), "these differ from the dialects refused; UPDATE_GOLDEN=1 updates them: {stale:#?}");
}
