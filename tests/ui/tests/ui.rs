//! Wrong input to the macros is a compile error at the right place. `TRYBUILD=overwrite` updates the expected messages.

use std::{fs, path::Path};

#[test]
fn errors() {
    // trybuild creates this package for each case. Files are searched in its folder.
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tests/trybuild/rpcrdma-ui-tests");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("wrong.x"), "struct point { int x; coordinate y; };\n").unwrap();
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
