//! The layers of the crates: no import points up, and no imports form a cycle.
//!
//! ARCHITECTURE.md lists the layers of each crate in `CRATES`. The test reads the imports from the source: `use` items,
//! and paths that start with `crate`, `self` or `super`. In macro calls, it reads paths that start with `crate` or
//! `super`. Re-exports are followed to the file that defines the item. Code under `#[cfg(test)]` is ignored.
#![allow(clippy::unwrap_used, missing_docs)]

mod imports;
mod rules;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

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
    ("runtime/discover/src/lib.rs", "Layers of service discovery, lowest first:"),
    ("tests/peer/src/lib.rs", "Layers of the conformance peer, lowest first:"),
    ("tests/peer/src/cli/main.rs", "Layers of its command, lowest first:"),
];

/// The modules whose child modules have layers too: the root file of the crate, the module, and the text before its
/// list.
const MODULES: &[(&str, &str, &str)] = &[("runtime/proto/src/lib.rs", "engine", "Layers of the engine, lowest first:")];

/// The folders whose crates have layers.
const FOLDERS: [&str; 4] = ["xdrgen", "macros", "runtime", "tests/peer"];

#[test]
fn imports_point_down() {
    let repository = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let architecture = fs::read_to_string(repository.join("ARCHITECTURE.md")).unwrap();
    let mut wrong = BTreeSet::new();
    let crates = CRATES.iter().map(|&(root, heading)| (root, "", heading));
    for (root, module, heading) in crates.chain(MODULES.iter().copied()) {
        let found = Crate::read(&repository.join(root));
        let rules = check(&found, module, &rules::layers(&architecture, heading));
        wrong.extend(rules.into_iter().map(|rule| format!("{root}: {rule}")));
    }
    assert!(wrong.is_empty(), "imports break the layers in ARCHITECTURE.md:\n  {}", Vec::from_iter(wrong).join("\n  "));
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

/// Ends of the paths of folders that contain no crates of the project: build results, and the template of a user's
/// package.
const NO_CRATES: [&str; 2] = ["/target", "xdrgen/template"];

/// Finds the root files of crates in the folders named `src` below a folder.
fn find_roots(repository: &Path, folder: &str, roots: &mut Vec<String>) {
    for entry in fs::read_dir(repository.join(folder)).unwrap().map(Result::unwrap) {
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        let is_root = ["/lib.rs", "/main.rs"].iter().any(|name| path.ends_with(name)) && path.contains("/src/");
        if is_root {
            roots.push(path);
        } else if entry.file_type().unwrap().is_dir() && !NO_CRATES.iter().any(|end| path.ends_with(end)) {
            find_roots(repository, &path, roots);
        }
    }
}

/// Returns the violations in a synthetic crate with the layers `low`, then `mid` and `side`, then `high`.
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
    check(&Crate::parse("lib.rs", &all), "", &layers)
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
fn the_check_finds_imports_that_point_up_in_a_module() {
    let files = |low: &str| {
        let files = [
            ("lib.rs", "mod outer; mod other;"),
            ("other.rs", ""),
            ("outer/mod.rs", "mod low; mod high; pub use high::file::A;"),
            ("outer/low.rs", low),
            ("outer/high/mod.rs", "pub mod file;"),
            ("outer/high/file.rs", "use crate::outer::low::B; pub struct A;"),
        ];
        files.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect::<BTreeMap<_, _>>()
    };
    let list = |list: &str| rules::layers(&format!("Layers:\n```text\n{list}\n```\n"), "Layers:");
    let check = |low, layers| check(&Crate::parse("lib.rs", &files(low)), "outer", &list(layers));
    assert_eq!(check("use crate::other::C;", "low\nhigh"), [""; 0]);
    let up = "outer/low.rs imports outer/high/file.rs: low is in a lower layer than high";
    for import in ["use super::high::file::A;", "use super::A;", "use crate::outer::A;"] {
        assert!(check(import, "low\nhigh").contains(&up.to_owned()), "{import}");
    }
    assert_eq!(check("", "low"), ["high is in no layer"]);
    assert_eq!(check("", "low\nhigh\nother"), ["there is no module other"]);
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
    let globs = [
        ("mid/mod.rs", "mod deep; mod other; pub use self::deep::*; pub use self::other::*;"),
        ("mid/deep.rs", "use super::B; pub struct A;"),
        ("mid/other.rs", "use super::A; pub struct B;"),
    ];
    assert_eq!(wrong(&globs), ["files import each other: mid/deep.rs, mid/other.rs"]);
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
