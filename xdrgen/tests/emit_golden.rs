//! Each `golden/*.x` compiles to the `.rs` beside it, and where it is a dialect, `--strict` says what the `.strict` beside
//! it says. `UPDATE_GOLDEN=1` writes them anew. `rpcrdma-tests` compiles the results.

use std::{fs, path::Path};

use rpcrdma_xdrgen::{
    Compiler,
    emit::{Borrow, EmitOptions, emit},
};

fn compiler(path: &Path) -> (String, Compiler) {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    // One of them has comments that are no UTF-8.
    let text = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
    (name.clone(), Compiler::new().source(name, text))
}

fn generate(path: &Path) -> String {
    let (name, compiler) = compiler(path);
    let compiled = compiler.compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert_eq!(compiled.warnings.to_string(), "", "{name}");
    let mut options = EmitOptions::default();
    if name == "borrowed.x" {
        options.borrowed = Borrow::All;
        options.open = vec!["operation".to_owned()];
    }
    options.source = Some(name);
    emit(&compiled.spec, &options).unwrap()
}

/// What is refused of it, one by one; nothing of what is in RFC 4506 and RFC 5531.
fn refused(path: &Path) -> String {
    let diagnostics = compiler(path).1.strict().compile().err();
    diagnostics.map(|diagnostics| diagnostics.to_string()).unwrap_or_default()
}

#[test]
fn golden_files() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut compared = 0;
    let mut stale = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "x") {
            continue;
        }
        let generated = generate(&path);
        assert_eq!(generated, generate(&path), "{}: not stable from run to run", path.display());
        for (extension, text) in [("rs", generated), ("strict", refused(&path))] {
            let golden = path.with_extension(extension);
            let before = fs::read_to_string(&golden).unwrap_or_default();
            if update && text.is_empty() {
                let _ = fs::remove_file(&golden);
            } else if update {
                fs::write(&golden, text).unwrap();
            } else if before != text {
                stale.push(golden.display().to_string());
            }
        }
        compared += 1;
    }
    assert!(compared > 0);
    assert!(stale.is_empty(), "these differ from what is generated; UPDATE_GOLDEN=1 writes them: {stale:#?}");
}
