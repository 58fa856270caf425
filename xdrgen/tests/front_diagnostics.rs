//! Tests of every diagnostic, as users see it, except the warning about names found in other files, which
//! `front_elsewhere` tests. The input is `front_bad/CODE_name.x`, with an optional `.ulb` file, and
//! `front_bad/CODE_name.txt` contains the expected diagnostics. `BLESS=1` updates the `.txt` files. A test without such
//! files covers the error about a file that cannot be read.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use rpcrdma_xdrgen::{
    Compiler,
    diag::{Code, Diagnostics, Severity},
};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/front_bad")
}

fn cases() -> Vec<String> {
    let files = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = files.filter_map(|name| name.strip_suffix(".x").map(str::to_owned)).collect();
    names.sort();
    names
}

fn diagnose(case: &str) -> Diagnostics {
    let read = |extension: &str| fs::read_to_string(directory().join(format!("{case}.{extension}")));
    let mut compiler = Compiler::new().source(format!("{case}.x"), read("x").unwrap());
    if case.starts_with("E0006") {
        compiler = compiler.strict();
    }
    if case.starts_with("E0301") {
        compiler = compiler.strip_enum_prefix();
    }
    if let Ok(binding) = read("ulb") {
        compiler = compiler.ulb_source(format!("{case}.ulb"), binding);
    }
    match compiler.compile() {
        Ok(compiled) => compiled.warnings,
        Err(diagnostics) => diagnostics,
    }
}

#[test]
fn each_case_says_what_it_said_before() {
    let mut wrong = Vec::new();
    for case in cases() {
        let diagnostics = diagnose(&case);
        let code = case.split('_').next().unwrap();
        assert!(diagnostics.iter().any(|d| d.code.as_str() == code), "{case}: no {code} in\n{diagnostics}");
        let path = directory().join(format!("{case}.txt"));
        let said = diagnostics.render(false);
        if env::var_os("BLESS").is_some() {
            fs::write(&path, &said).unwrap();
        } else if fs::read_to_string(&path).unwrap_or_default() != said {
            wrong.push(format!("=== {case}\n{said}"));
        }
    }
    assert!(wrong.is_empty(), "{}\nBLESS=1 updates the expected diagnostics", wrong.join("\n"));
}

#[test]
fn every_code_has_a_case_and_an_explanation() {
    let tested: BTreeSet<String> = cases().iter().map(|case| case.split('_').next().unwrap().to_owned()).collect();
    let explained = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("ERRORS.md")).unwrap();
    for code in Code::ALL {
        assert!(explained.contains(&format!("\n## {code}: ")), "ERRORS.md does not explain {code}");
        assert!(code.explanation().starts_with(&format!("{code}: ")), "{code}: {}", code.explanation());
        // A file that cannot be read cannot be checked in: see `a_missing_file_is_named`. `front_elsewhere` has the
        // other.
        let elsewhere = matches!(code, Code::Unreadable | Code::FoundElsewhere);
        assert!(tested.contains(code.as_str()) || elsewhere, "no case for {code}");
    }
}

#[test]
fn a_missing_file_is_named() {
    let diagnostics = Compiler::new().file("no/such/file.x").compile().unwrap_err();
    let codes: Vec<Code> = diagnostics.iter().map(|d| d.code).collect();
    assert_eq!(codes, [Code::Unreadable]);
    assert!(diagnostics.to_string().contains("no/such/file.x"));
}

#[test]
fn spans_are_byte_ranges() {
    let text = "/* \u{e9} */ struct a { unknown b; };";
    let diagnostics = Compiler::new().source("a.x", text).compile().unwrap_err();
    let diagnostic = diagnostics.iter().next().unwrap();
    let label = diagnostic.primary.as_ref().unwrap();
    assert_eq!(&text[label.span.range.clone()], "unknown");
    assert_eq!(diagnostics.sources().get(label.span.file).unwrap().line_column(label.span.range.start), (1, 20));
    assert_eq!(diagnostic.severity(), Severity::Error);
}

#[test]
fn colour_is_only_on_request() {
    let diagnostics = Compiler::new().source("a.x", "struct a { unknown b; };").compile().unwrap_err();
    assert!(!diagnostics.render(false).contains('\u{1b}'));
    assert!(diagnostics.render(true).contains('\u{1b}'));
}
