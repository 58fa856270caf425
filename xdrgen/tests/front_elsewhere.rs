//! Tests of names that the input uses but does not declare. `%#define` lines, Sun's headers and files in the same
//! directory can define them.

use std::{fs, path::PathBuf};

use rpcrdma_xdrgen::{
    Compiled, Compiler,
    diag::{Code, Diagnostics},
    ir::{ItemKind, Type},
};
use tempfile::TempDir;

fn directory(files: &[(&str, &str)]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| fs::write(place.path().join(name), text).unwrap());
    place
}

fn compile(place: &TempDir, file: &str) -> Result<Compiled, Diagnostics> {
    Compiler::new().file(place.path().join(file)).compile()
}

fn codes(diagnostics: &Diagnostics) -> Vec<Code> {
    diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
}

fn names(compiled: &Compiled) -> Vec<&str> {
    compiled.spec.items.iter().map(|item| item.name.text.as_str()).collect()
}

fn types(compiled: &Compiled, name: &str) -> Vec<Type> {
    let item = compiled.spec.items.iter().find(|item| item.name.text == name).unwrap_or_else(|| panic!("no {name}"));
    match &item.kind {
        ItemKind::Struct { fields, .. } => fields.iter().map(|field| field.ty.clone()).collect(),
        ItemKind::Typedef(field) => vec![field.ty.clone()],
        other => panic!("{other:?}"),
    }
}

#[test]
fn lines_for_c_declare_constants_and_types() {
    let text = "%#define N 20\n%#define WORD unsigned int /* 32 bits */\n%#define TWICE (N * 2)\n%#define TWO 2\n%#define TWO 3\n\
        #ifdef RPC_HDR\n%#define M 7\n#ifdef RPC_XDR\n%#define L 5\n#endif\n#else\n%#define ELSE 1\n#endif\n\
        #ifdef OTHER\n%#define K 8\n#endif\n";
    let with = |fields: &str| Compiler::new().source("t.x", format!("{text}struct s {{ {fields} }};")).compile();
    let compiled = with("opaque a[N]; WORD b; opaque c<TWICE>; string d<M>; int e<L>; opaque f[ELSE];").unwrap();
    assert_eq!(compiled.warnings.to_string(), "");
    let found = types(&compiled, "s");
    assert_eq!([&found[0], &found[2], &found[3]], [&Type::OpaqueFixed(20), &Type::Opaque(40), &Type::String(7)]);
    assert!(matches!(found[4], Type::Array(_, 5)) && found[5] == Type::OpaqueFixed(1), "{found:?}");
    // Two values, and a condition of the user's own.
    for name in ["TWO", "K"] {
        assert_eq!(codes(&with(&format!("opaque a[{name}];")).unwrap_err()), [Code::UnknownConstant], "{name}");
    }
    // A declaration takes precedence, and nothing is declared that is not used.
    let plain = Compiler::new().source("t.x", "%#define N 20\nconst N = 3;\n%#define M 4\nstruct s { opaque a[N]; };");
    let plain = plain.compile().unwrap();
    assert_eq!((types(&plain, "s"), names(&plain)), (vec![Type::OpaqueFixed(3)], vec!["N", "s"]));
}

#[test]
fn types_of_suns_headers_are_known() {
    let compiled = Compiler::new().source("t.x", "struct s { netobj a; des_block b; };").compile().unwrap();
    assert_eq!(compiled.warnings.to_string(), "");
    assert_eq!(types(&compiled, "netobj"), [Type::Opaque(1024)]);
    assert_eq!(types(&compiled, "des_block"), [Type::OpaqueFixed(8)]);
    let own = Compiler::new().source("t.x", "typedef opaque netobj<9>; struct s { netobj a; };").compile().unwrap();
    assert_eq!(types(&own, "netobj"), [Type::Opaque(9)]);
    let strict = Compiler::new().source("t.x", "struct s { netobj a; };").strict().compile().unwrap_err();
    assert_eq!(codes(&strict), [Code::UnknownType]);
}

#[test]
fn files_in_the_same_directory_declare_names() {
    let place = directory(&[
        ("main.x", "struct s { id x; color y; opaque z<BLUE>; };\nconst SHARED = 1;\n"),
        (
            "types.x",
            "const LEN = 8; const SHARED = 2; typedef opaque id[LEN];\nenum color { RED = 1, BLUE = 3 };\n\
             program P { version V { unrelated N(void) = 0; } = 1; } = 2; struct unrelated { int x; };",
        ),
        ("other.x", "struct t { id x; };"),
    ]);
    let compiled = compile(&place, "main.x").unwrap();
    assert_eq!(codes(&compiled.warnings), [Code::FoundElsewhere]);
    let warning = compiled.warnings.to_string();
    let message = "warning[W0005]: `id` and one more name: taken from `types.x`, in the same directory";
    assert!(
        warning.contains(message) && warning.contains("types.x:1:") && warning.contains("declared here"),
        "{warning}"
    );
    // Only what the input needs is taken.
    let mut found = names(&compiled);
    found.sort_unstable();
    assert_eq!((found, compiled.spec.programs.len()), (vec!["LEN", "SHARED", "color", "id", "s"], 0));
    // A build script watches the file.
    let watched: Vec<PathBuf> = ["main.x", "types.x"].map(|name| place.path().join(name)).into();
    assert_eq!(compiled.files, watched);
    let strict = Compiler::new().file(place.path().join("main.x")).strict().compile().unwrap_err();
    assert!(codes(&strict).contains(&Code::UnknownType), "{strict}");
}

#[test]
fn a_name_that_files_declare_differently_is_unknown() {
    let files = [
        ("main.x", "struct s { id x; };"),
        ("one.x", "typedef opaque id[8];"),
        ("two.x", "typedef opaque id[4];"),
        // An included header decides.
        ("header.x", "%#include \"two.h\"\nstruct s { id x; };"),
        ("twin.x", "typedef opaque twin [ 8 ];"),
        ("twin2.x", "typedef opaque twin[8];"),
        ("twins.x", "struct t { twin x; };"),
    ];
    let place = directory(&files);
    assert_eq!(codes(&compile(&place, "main.x").unwrap_err()), [Code::UnknownType]);
    assert_eq!(types(&compile(&place, "header.x").unwrap(), "id"), [Type::OpaqueFixed(4)]);
    assert_eq!(types(&compile(&place, "twins.x").unwrap(), "twin"), [Type::OpaqueFixed(8)]);
    // A syntax error in the file, or a word that is not a declaration.
    let place =
        directory(&[("main.x", "struct s { id x; };"), ("bad.x", "typedef id;"), ("use.x", "struct t { id x; };")]);
    assert_eq!(codes(&compile(&place, "main.x").unwrap_err()), [Code::UnknownType]);
    // A typedef with the new name first does not use that name.
    let place = directory(&[("main.x", "struct old { int x; }; typedef id old;"), ("one.x", "typedef opaque id[8];")]);
    assert_eq!(compile(&place, "main.x").unwrap().warnings.to_string(), "");
}
