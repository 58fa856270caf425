//! Wrong input to the macros is a compile error at the place that is wrong. `TRYBUILD=overwrite` writes the messages anew.

use std::{fs, path::Path};

#[test]
fn errors() {
    // The package that trybuild makes of each case; files are looked for in its folder.
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tests/trybuild/rpcrdma-tests");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("wrong.x"), "struct point { int x; coordinate y; };\n").unwrap();
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
