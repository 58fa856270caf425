//! Each `golden/*.x` compiles to the `.rs` beside it. `UPDATE_GOLDEN=1` writes them anew.
//! `rpcrdma-tests` compiles the results.

use std::{fs, path::Path};

use rpcrdma_xdrgen::{
    Compiler,
    emit::{EmitOptions, emit},
};

fn generate(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(path).unwrap();
    let compiled = Compiler::new().source(&name, text).compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    let mut options = EmitOptions::default();
    options.source = Some(name);
    emit(&compiled.spec, &options).unwrap()
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
        let golden = path.with_extension("rs");
        if update {
            fs::write(&golden, generated).unwrap();
        } else if fs::read_to_string(&golden).unwrap_or_default() != generated {
            stale.push(golden.display().to_string());
        }
        compared += 1;
    }
    assert!(compared > 0);
    assert!(stale.is_empty(), "these differ from what is generated; UPDATE_GOLDEN=1 writes them: {stale:#?}");
}
