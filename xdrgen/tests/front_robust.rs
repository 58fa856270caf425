//! Tests that no input makes the compiler panic, hang or overflow its stack, and that all positions in diagnostics are
//! valid. The tests run on threads with a stack of 2 MiB, as build scripts and macros may.

use std::{
    fmt::Write as _,
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use rpcrdma_xdrgen::{
    Compiler,
    diag::{Code, Diagnostics},
    fmt::{FormatError, FormatOptions, format},
    strip,
};

/// Compiles a text and returns the number of errors. Panics if the position of a label is not in its text.
fn compile(text: &str, binding: &str) -> usize {
    let checked = |diagnostics: &Diagnostics| {
        for diagnostic in diagnostics.iter() {
            for label in diagnostic.primary.iter().chain(&diagnostic.secondary) {
                let source = diagnostics.sources().get(label.span.file).expect("a label refers to an unknown file");
                assert!(source.text().get(label.span.range.clone()).is_some(), "{label:?} is outside of the text");
            }
        }
        let _ = diagnostics.render(true);
        diagnostics.error_count()
    };
    let _ = strip("t.x", text);
    match Compiler::new().source("t.x", text).ulb_source("t.ulb", binding).compile() {
        Ok(compiled) => checked(&compiled.warnings),
        Err(diagnostics) => {
            let errors = checked(&diagnostics);
            assert!(errors > 0, "compilation failed without an error");
            errors
        }
    }
}

/// The compiler rejects a specification whose versions take over too many procedures in total, or form too long a chain
/// of bases. `strip` rejects such a chain, and a specification whose output would be too long.
#[test]
fn versions_do_not_multiply_procedures() {
    let codes = |text: &str| -> Vec<Code> {
        let refused = Compiler::new().source("t.x", text).compile().unwrap_err();
        refused.iter().map(|diagnostic| diagnostic.code).collect()
    };
    let mut text = String::from("program P { version V { ");
    (0..1000).for_each(|number| write!(text, "void P{number}(void) = {number};").unwrap());
    text.push_str("} = 1;");
    (2..5000).for_each(|number| write!(text, "version V{number} : V {{}} = {number};").unwrap());
    text.push_str("} = 1;");
    assert_eq!(codes(&text), [Code::TooDeep]);
    // Each version is based on the one before.
    let mut text = String::from("program P { version V1 { void NULL(void) = 0; } = 1;");
    (2..=40).for_each(|number| write!(text, "version V{number} : V{} {{}} = {number};", number - 1).unwrap());
    text.push_str("} = 1;");
    assert_eq!(codes(&text), [Code::TooDeep]);
    assert!(strip("t.x", text.as_str()).is_err());
    let long = format!("program P {{ version V {{ /* {} */ void NULL(void) = 0; }} = 1;", "x".repeat(1 << 20));
    let versions: String = (2..100).map(|number| format!("version V{number} : V {{}} = {number};")).collect();
    assert!(strip("t.x", format!("{long}{versions}}} = 1;")).is_err());
}

/// Words of the language. The parser gets past the first token of random texts that consist of these words.
const WORDS: &[&str] = &[
    "struct",
    "union",
    "enum",
    "typedef",
    "const",
    "program",
    "version",
    "switch",
    "case",
    "default",
    "void",
    "int",
    "unsigned",
    "hyper",
    "opaque",
    "string",
    "bool",
    "quadruple",
    "a",
    "b",
    "c",
    "a_b",
    "args",
    "max",
    "len",
    "min",
    "ddp",
    "reply_max",
    "limit",
    "port",
    "idempotent",
    "pragma",
    "pages",
    "zcopaque",
    "@ddp",
    "@ddp(max = args.a)",
    "@reply_max(",
    "@limit(3)",
    "@port(1)",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ";",
    ";",
    ";",
    ":",
    ",",
    ".",
    "=",
    "*",
    "+",
    "-",
    "/",
    "0",
    "1",
    "7",
    "0x10",
    "010",
    "-1",
    "99999999999999999999",
    "64K",
    "\"text\"",
    "\"",
    "/*",
    "*/",
    "// x\n",
    "\n",
    "\n%y\n",
    "#z\n",
    "\n#define a b\n",
    "\n#define b (a << 1)\n",
    "\n#define c struct a\n",
    "\n#if a ? 1 : b\n",
    "\n#else\n",
    "\n#endif\n",
    "'a'",
    "'",
    "<<",
    "~",
    "|",
    "long",
    "char",
    "\r",
    "namespace a {",
    "struct a { int b; };",
    "struct b { a *next; };",
    "typedef b c<4>;",
    "\u{e9}",
    "\u{2028}",
];

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(WORDS), 0..120).prop_map(|words| words.join(" "))
}

fn samples() -> Vec<String> {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let files = ["front_bad", "golden", "constructs"].map(|name| fs::read_dir(tests.join(name)).unwrap());
    let files = files.into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|x| x == "x" || x == "ulb")).collect();
    files.sort();
    files.into_iter().map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()).collect()
}

/// Returns a strategy for samples in which words replace up to five ranges.
fn mutated() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0..40_usize, prop::sample::select(WORDS));
    let changes = prop::collection::vec(change, 1..6);
    (prop::sample::select(samples()), changes).prop_map(|(mut text, changes)| {
        for (at, len, word) in changes {
            let boundary = |mut at: usize| {
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let start = boundary(at.index(text.len() + 1));
            let end = boundary((start + len).min(text.len())).max(start);
            text.replace_range(start..end, word);
        }
        text
    })
}

/// Preprocessor lines and other lines, for random texts.
const LINES: &[&str] = &[
    "#if A",
    "#if !defined(B) || C > 2 && (1 << 3) / 0",
    "#ifdef A",
    "#ifndef B",
    "#elif C == 3",
    "#else",
    "#endif",
    "#define A",
    "#define B 3 /* b */",
    "#define C (B * 2)",
    "#define C D",
    "#define D C",
    "#define T unsigned int",
    "#define F(x) x",
    "#define L 1 \\\n + 2",
    "  #  define M /* goes\non */ 4",
    "#undef A",
    "#include \"other.x\"",
    "#pragma once",
    "%#define G 1",
    "/*",
    "*/",
    "// x",
    "\\",
    "don't \"",
    "struct s { int x; };",
    "struct s {",
    "int y[C]; T z;",
    "};",
    "const K = B + L;",
];

fn preprocessed() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(LINES), 0..40).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in ".{0,200}", binding in ".{0,60}") {
        compile(&text, &binding);
    }

    #[test]
    fn any_words(text in soup(), binding in soup()) {
        compile(&text, &binding);
    }

    #[test]
    fn any_change(text in mutated(), binding in mutated()) {
        compile(&text, &binding);
    }

    #[test]
    fn any_preprocessor_lines(text in preprocessed()) {
        compile(&text, "");
        if let Ok(once) = format("t.x", &text, &FormatOptions::default()) {
            prop_assert_eq!(format("t.x", &once, &FormatOptions::default()).unwrap(), once);
        }
    }

    #[test]
    fn formatting_twice_is_formatting_once(text in mutated()) {
        match format("t.x", &text, &FormatOptions::default()) {
            Ok(once) => prop_assert_eq!(format("t.x", &once, &FormatOptions::default()).unwrap(), once),
            Err(error) => prop_assert!(matches!(error, FormatError::Syntax(_)), "{}", error),
        }
    }

    #[test]
    fn stripping_twice_is_stripping_once(text in mutated()) {
        if let Ok(plain) = strip("t.x", text.as_str()) {
            prop_assert_eq!(strip("t.x", plain.as_str()).unwrap(), plain);
        }
    }
}

/// Compiles a hostile text and returns the number of errors. Panics if the compilation takes 60 seconds or longer,
/// which indicates a hang or quadratic time.
fn hostile(text: &str) -> usize {
    let start = Instant::now();
    let errors = compile(text, "");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?} for {} bytes", start.elapsed(), text.len());
    errors
}

#[test]
fn deep_nesting() {
    let n = 100_000;
    assert!(hostile(&format!("struct a {}", "{".repeat(n))) > 0);
    assert!(hostile(&format!("struct a {}int x;{}", "{ struct ".repeat(n), "} y;".repeat(n))) > 0);
    assert!(hostile(&format!("struct a {{ @ddp(max = {}1{}) opaque d<>; }};", "(".repeat(n), ")".repeat(n))) > 0);
    assert!(hostile(&format!("struct a {{ @ddp(max = 1{}) opaque d<>; }};", " + 1".repeat(n))) > 0);
    assert!(hostile(&"[".repeat(n)) > 0);
    assert!(hostile(&format!("const A = {}1{};", "(".repeat(n), ")".repeat(n))) > 0);
    assert!(hostile(&format!("const A = {}1;", "- ".repeat(n))) > 0);
    assert!(hostile(&format!("const A = 1{};", " + 1".repeat(n))) > 0);
    assert!(hostile(&format!("const A = {};", "'{' + ".repeat(n))) > 0);
    assert_eq!(hostile(&format!("#define A {}1{}\n#if {}1\n#endif\n", "(".repeat(n), ")".repeat(n), "!".repeat(n))), 0);
    assert_eq!(hostile(&format!("const A = {}1{};", "(".repeat(47), ")".repeat(47))), 0);
    // The maximum depth.
    assert_eq!(hostile(&format!("struct a {{ {}int x;{} }};", "struct {".repeat(47), "} y;".repeat(47))), 0);
    assert_eq!(hostile(&format!("struct a {{ @ddp(max = {}1{}) opaque d<>; }};", "(".repeat(46), ")".repeat(46))), 0);
}

#[test]
fn long_chains_and_cycles() {
    let n = 5_000;
    let chain = |first: &str, link: &dyn Fn(usize, usize) -> String| {
        (0..n).fold(first.to_owned(), |text, i| text + &link(i, (i + 1) % n) + "\n")
    };
    assert_eq!(hostile(&chain("", &|i, next| format!("const c{i} = c{next};"))), 1);
    assert_eq!(
        hostile(&chain("const c = 1;", &|i, _| match i {
            0 => "const c0 = c;".to_owned(),
            _ => format!("const c{i} = c{};", i - 1),
        })),
        0
    );
    assert_eq!(hostile(&chain("", &|i, next| format!("typedef t{i} t{next};"))), 1);
    assert!(
        hostile(&chain("typedef int t;", &|i, _| match i {
            0 => "typedef t t0;".to_owned(),
            _ => format!("typedef t{} t{i};", i - 1),
        })) > 0
    );
    // Each constant refers twice to the next one.
    let sums = chain("", &|i, next| {
        format!("const c{i} = {};", if next == 0 { "1".into() } else { format!("c{next} - 0 * c{next}") })
    });
    assert_eq!(hostile(&sums), 0);
    assert!(hostile(&chain("", &|i, next| format!("const c{i} = c{next} + c{next};"))) > 0);
    let names = (0..n).map(|i| format!(" + c{i}")).collect::<String>();
    assert_eq!(hostile(&chain(&format!("const a = 0{names};"), &|i, _| format!("const c{i} = {i};"))), 0);
    // Macros that refer to each other in a cycle are ignored.
    assert_eq!(hostile(&chain("", &|i, next| format!("#define m{i} m{next}"))), 0);
    // A chain of macros for types has a maximum length.
    assert_eq!(hostile(&chain("#define m0 int\n", &|i, _| format!("#define m{} m{i}", i + 1))), 1);
    assert!(hostile(&chain("", &|i, next| format!("struct s{i} {{ s{next} x; }};"))) > 0);
    assert!(hostile(&chain("", &|i, next| format!("struct s{i} {{ s{next} *x; int y; }};"))) > 0);
}

#[test]
fn sizes_that_double() {
    let mut text = "struct s0 { opaque d<10>; };".to_owned();
    for i in 0..25 {
        let _ = write!(text, "struct s{} {{ s{i} a; s{i} b; s{i} c[4294967295]; s{i} d<4294967295>; }};", i + 1);
    }
    text += "@port(9) program P { version V { s25 A(s25) = 1; } = 1; } = 1;";
    assert_eq!(hostile(&text), 1);
}

#[test]
fn formulas_that_grow() {
    let product = vec!["1"; 60].join(" * ");
    let nested = (0..46).fold("1".to_owned(), |inner, _| format!("({inner}) + {product}"));
    assert!(hostile(&format!("struct a {{ @ddp(max = {nested}) opaque d<>; }};")) > 0);
    let n = 5_000;
    let arms: String = (0..n).map(|i| format!("case {i}: @ddp(max = args.f{i}) opaque d{i}<>;\n")).collect();
    let fields: String = (0..n).map(|i| format!("int f{i};\n")).collect();
    let program = "program P { version V { u A(args) = 1; } = 1; } = 1;";
    let text = format!("union u switch (int x) {{ {arms} }}; struct args {{ {fields} }}; {program}");
    assert_eq!(hostile(&text), 1);
}

#[test]
fn cycles_with_eligible_items() {
    let n = 40;
    let mut text: String = (0..n).map(|i| format!("struct t{i} {{ t{} *x; t{} *y; }};\n", i + 1, i + 1)).collect();
    text += "struct t40 { t0 *x; t0 *y; @ddp opaque d<>; };";
    text += "program P { version V { t0 A(t0) = 1; } = 1; } = 1;";
    assert_eq!(hostile(&text), 2);
}

#[test]
fn constants_that_double() {
    // Each constant is twice the previous one, until the value is out of range.
    let n = 1_000;
    let sums = |n: usize| {
        (0..n).fold("const c0 = 1;\n".to_owned(), |text, i| text + &format!("const c{} = c{i} + c{i};\n", i + 1))
    };
    assert_eq!(hostile(&sums(60)), 0);
    assert!(hostile(&sums(n)) > 0);
    let defines =
        (0..n).fold("#define C0 1\n".to_owned(), |text, i| text + &format!("#define C{} (C{i} + C{i})\n", i + 1));
    hostile(&format!("{defines}#if C{n}\nstruct a {{ int x; }};\n#endif\n"));
    let parentheses = format!("const A = {}1{};", "(".repeat(20_000), ")".repeat(20_000));
    assert!(hostile(&parentheses) > 0);
    assert_eq!(hostile(&format!("const A = 0{};", " + 1".repeat(50))), 0);
    hostile(&format!("const A = 0{};", " + 1".repeat(20_000)));
    hostile(&format!("const A = {}1;", "- ".repeat(20_000)));
    hostile(&format!("#if {}1\n#endif\n", "!".repeat(20_000)));
    assert_eq!(hostile(&"#if 1\n".repeat(20_000)), 20_000);
}

#[test]
fn a_megabyte() {
    let repeated = |n: usize, one: &dyn Fn(usize) -> String| (0..n).map(one).collect::<String>();
    assert_eq!(hostile(&repeated(6_000, &|i| format!("/* one */\nstruct s{i} {{ int x; /* two */ }};\n"))), 0);
    assert_eq!(hostile(&format!("struct s {{ {} }};", repeated(50_000, &|i| format!("int field{i}; ")))), 0);
    assert_eq!(hostile(&format!("enum e {{ {} }};", repeated(20_000, &|i| format!("E{i} = {i}, ")))), 0);
    assert_eq!(hostile(&repeated(5_000, &|i| format!("struct s{i} {{ missing{i} x; }};\n"))), 5_000);
    // Stray semicolons are a dialect.
    assert_eq!(hostile(&";".repeat(1_000_000)), 0);
    assert!(hostile(&"{};\n".repeat(250_000)) > 0);
    assert!(hostile(&"\"".repeat(500_000)) > 0);
    assert!(hostile(&format!("/*{}", " /*".repeat(300_000))) > 0);
    assert!(hostile(&format!("struct s {{ bad x; }};{}", " ".repeat(1_000_000))) > 0);
    assert!(hostile(&"case 1: ".repeat(100_000)) > 0);
    assert!(hostile(&format!("union u switch (int a) {{ {} void; }};", "case 1: ".repeat(20_000))) > 0);
}
