//! The layers of the crates: every import points down, and no imports form a cycle.
//!
//! ARCHITECTURE.md lists the layers of each crate. The test reads the imports from the source: `use` items, and paths that start
//! with `crate`, `self` or `super`, in macro calls as well. Re-exports are followed to the file that defines the item. Code under
//! `#[cfg(test)]` is ignored.
#![allow(clippy::unwrap_used, missing_docs)]

mod imports;
mod rules;

use std::{collections::BTreeMap, fs, path::Path};

use self::{imports::Crate, rules::check};

/// The root file of each crate, and the text before its list of layers in ARCHITECTURE.md.
const CRATES: &[(&str, &str)] = &[
    ("xdrgen/src/lib.rs", "Layers of the compiler, lowest first:"),
    ("xdrgen/src/cli/main.rs", "Layers of the command, lowest first:"),
    ("macros/src/lib.rs", "Layers of the macros, lowest first:"),
    ("runtime/xdr/src/lib.rs", "Layers of the codec, lowest first:"),
    ("runtime/proto/src/lib.rs", "Layers of the protocol, lowest first:"),
    ("runtime/iwarp/src/lib.rs", "Layers of iWARP, lowest first:"),
    ("runtime/verbs/src/lib.rs", "Layers of the verbs provider, lowest first:"),
    ("runtime/src/lib.rs", "Layers of the runtime, lowest first:"),
];

/// The folders whose crates have layers.
const FOLDERS: [&str; 3] = ["xdrgen", "macros", "runtime"];

#[test]
fn imports_point_down() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let architecture = fs::read_to_string(repository.join("ARCHITECTURE.md")).unwrap();
    let mut wrong = Vec::new();
    for (root, heading) in CRATES {
        let found = Crate::read(&repository.join(root));
        wrong.extend(
            check(&found, &rules::layers(&architecture, heading)).into_iter().map(|rule| format!("{root}: {rule}")),
        );
    }
    assert!(wrong.is_empty(), "imports break the layers in ARCHITECTURE.md:\n  {}", wrong.join("\n  "));
}

#[test]
fn every_crate_has_layers() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut roots = Vec::new();
    for folder in FOLDERS {
        find_roots(repository, folder, &mut roots);
    }
    roots.sort_unstable();
    let mut listed: Vec<_> = CRATES.iter().map(|(root, _)| (*root).to_owned()).collect();
    listed.sort_unstable();
    assert_eq!(roots, listed, "the crates in {FOLDERS:?} are not those in CRATES");
}

/// Finds the root files of crates in the folders named `src` below a folder.
fn find_roots(repository: &Path, folder: &str, roots: &mut Vec<String>) {
    for entry in fs::read_dir(repository.join(folder)).unwrap().map(Result::unwrap) {
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        let is_root = ["/lib.rs", "/main.rs"].iter().any(|name| path.ends_with(name)) && path.contains("/src/");
        if is_root {
            roots.push(path);
        } else if entry.file_type().unwrap().is_dir() && !path.ends_with("/target") {
            find_roots(repository, &path, roots);
        }
    }
}

/// Checks a synthetic crate with the layers `low`, then `mid` and `side`, then `high`.
fn wrong(files: &[(&str, &str)]) -> Vec<String> {
    let root = [("lib.rs", "mod low; mod mid; mod side; mod high;")];
    let defaults = [("low.rs", ""), ("mid.rs", ""), ("side.rs", ""), ("high.rs", "")];
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in root.iter().chain(files) {
        all.insert((*name).into(), (*text).into());
    }
    for (name, text) in defaults {
        if !all.contains_key(&name.replace(".rs", "/mod.rs")) {
            all.entry(name.into()).or_insert(text.into());
        }
    }
    let layers =
        rules::layers("Layers, lowest first:\n\n```text\nlow\nmid, side\nhigh\n```\n", "Layers, lowest first:");
    check(&Crate::parse("lib.rs", &all), &layers)
}

#[test]
fn the_check_finds_imports_that_point_up() {
    let up = "low.rs imports high.rs: low is in a lower layer than high";
    for import in [
        "use crate::high;",
        "use crate::{mid::A, high::{self, B}};",
        "pub(crate) use super::high::C as D;",
        "mod inner { use super::super::high::*; }",
        "fn f() { crate::high::g(); }",
        "fn f() { println!(\"{}\", crate::high::g()); }",
        "#[cfg(any(test, feature = \"x\"))] use crate::high::A;",
    ] {
        let found = wrong(&[("low.rs", import)]);
        assert!(found.contains(&up.to_owned()), "{import}: {found:?}");
    }
    for import in [
        "use high::A;",
        "// use crate::high;",
        "#[cfg(test)] use crate::high;",
        "#[cfg(test)] mod tests { use crate::high::A; }",
        "const A: &str = \"crate::high\";",
    ] {
        assert_eq!(wrong(&[("low.rs", import)]), [""; 0], "{import}");
    }
    assert_eq!(
        wrong(&[("high.rs", "use crate::{low::A, mid::B};"), ("mid.rs", "use crate::{low, side::C};")]),
        [""; 0]
    );
    let unlisted = [("lib.rs", "mod low; mod mid; mod side; mod high; mod other;"), ("other.rs", "")];
    assert_eq!(wrong(&unlisted), ["other is in no layer"]);
    assert_eq!(wrong(&[("lib.rs", "mod low; mod side; mod high;")]), ["there is no module mid"]);
}

#[test]
fn the_check_follows_reexports() {
    let files = [
        ("mid/mod.rs", "mod deep; pub use self::deep::A; pub struct B;"),
        ("mid/deep.rs", "use super::B; pub struct A;"),
        ("low.rs", "use crate::mid::A;"),
    ];
    // An import of a re-exported child item through the parent is not a cycle.
    assert_eq!(wrong(&files), ["low.rs imports mid/deep.rs: low is in a lower layer than mid"]);
}

#[test]
fn the_check_ignores_paths_of_generated_code() {
    let files = [
        ("mid/mod.rs", "mod deep; fn f() { self::deep::g() }"),
        ("mid/deep.rs", "pub(super) fn g() { quote! { super::#name; crate::#name } }"),
    ];
    assert_eq!(wrong(&files), [""; 0]);
}

#[test]
fn the_check_finds_cycles() {
    let modules = [("mid.rs", "use crate::side::A;"), ("side.rs", "use crate::mid::B;")];
    assert_eq!(wrong(&modules), ["files import each other: mid.rs, side.rs", "modules import each other: mid, side"]);
    let nested = [
        ("mid/mod.rs", "mod x; mod sub;"),
        ("mid/x.rs", "use super::sub::y::A;"),
        ("mid/sub/mod.rs", "pub mod y;"),
        ("mid/sub/y.rs", "use crate::mid::x::B;"),
    ];
    assert_eq!(wrong(&nested), ["files import each other: mid/sub/y.rs, mid/x.rs"]);
    let folders = [
        ("mid/mod.rs", "mod a; mod b;"),
        ("mid/a/mod.rs", "mod one; pub mod two;"),
        ("mid/a/one.rs", "use crate::mid::b::one::X;"),
        ("mid/a/two.rs", ""),
        ("mid/b/mod.rs", "pub mod one; mod two;"),
        ("mid/b/one.rs", ""),
        ("mid/b/two.rs", "use crate::mid::a::two::X;"),
    ];
    assert_eq!(wrong(&folders), ["folders import each other: mid/a, mid/b"]);
}
