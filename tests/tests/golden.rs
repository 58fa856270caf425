//! The compiler's golden files compile without warnings, and what they generate does what XDR says.
#![deny(warnings, missing_docs, rust_2018_idioms, unreachable_pub)]
#![deny(clippy::all)]

/// Declares a module of each golden file.
macro_rules! golden {
    ($($name:ident),*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            /// Generated.
            pub mod $name {
                include!(concat!(env!("CARGO_MANIFEST_DIR"), "/../xdrgen/tests/golden/", stringify!($name), ".rs"));
            }
        )*
    };
}

golden!(
    blobstore,
    borrowed,
    c_types,
    comments,
    conditions,
    constants,
    declarators,
    defines,
    dialects,
    eligible,
    latin1,
    line_ends_cr,
    line_ends_crlf,
    line_ends_mixed,
    lists,
    names,
    namespaces,
    nested,
    procedures,
    programs,
    punctuation,
    scalars,
    switches,
    typedefs,
    unions
);

mod generated;

#[test]
fn every_golden_file_is_compiled() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../xdrgen/tests/golden")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        found.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    found.sort_unstable();
    assert_eq!(found, NAMES);
}
