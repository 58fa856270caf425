//! Tests of dialects, which are extensions of RFC 4506 and RFC 5531 in public use. The compiler accepts them by
//! default, and `strict` refuses them.

use std::fs;

use rpcrdma_xdrgen::{
    Compiler,
    diag::{Code, Diagnostics},
    emit::{EmitOptions, emit},
    ir::{Base, ConstValue, ItemId, ItemKind, Spec, Type},
};

fn compiler(text: &str) -> Compiler {
    Compiler::new().source("t.x", text).default_reply_max(1 << 20)
}

fn spec(compiler: &Compiler) -> Spec {
    let compiled = compiler.compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}"));
    assert_eq!(compiled.warnings.to_string(), "");
    compiled.spec
}

fn kind<'a>(spec: &'a Spec, name: &str) -> &'a ItemKind {
    let found = spec.items.iter().find(|item| item.name.text == name);
    &found.unwrap_or_else(|| panic!("no item {name}")).kind
}

fn types(spec: &Spec, name: &str) -> Vec<Type> {
    match kind(spec, name) {
        ItemKind::Struct { fields, .. } => fields.iter().map(|field| field.ty.clone()).collect(),
        ItemKind::Typedef(field) => vec![field.ty.clone()],
        other => panic!("{name} is {other:?}"),
    }
}

fn codes(diagnostics: &Diagnostics) -> Vec<Code> {
    diagnostics.iter().map(|diagnostic| diagnostic.code).collect()
}

/// Dialects, each with a sample text that `strict` refuses with exactly one error.
const DIALECTS: &[(&str, &str)] = &[
    ("pass-through", "%#include <rpc/rpc.h>\nconst A = 1;"),
    ("indented pass-through", "struct a {\n    %/* C only */\n    int x;\n};"),
    ("line comment", "const A = 1; // one"),
    ("define", "#define A 1\n"),
    ("stray semicolon", "const A = 1;;"),
    ("stray semicolon in a struct", "struct a { int x;; };"),
    ("stray semicolon in a union", "union a switch (int d) { case 0: void;; };"),
    ("stray semicolon in a program", "program P { version V { void N(void) = 0; } = 1;; } = 2;"),
    ("stray semicolon in a version", "program P { version V {; void N(void) = 0; } = 1; } = 2;"),
    (
        "version with a base",
        "program P { version V { void N(void) = 0; } = 1; version W : V { void A(void) = 1; } = 2; } = 2;",
    ),
    ("namespace", "namespace a::b { const A = 1; }"),
    ("bare unsigned", "struct a { unsigned x; };"),
    ("unsigned char", "struct a { unsigned char x; };"),
    ("char", "struct a { char x; };"),
    ("quad_t", "struct a { quad_t x; };"),
    ("tag", "struct a { struct b x; }; struct b { int y; };"),
    ("string alone", "struct a { string x; };"),
    ("inverted typedef", "typedef u unsigned hyper;"),
    ("typed constant", "const unsigned int A = 1;"),
    ("string constant", "const A = \"text\";"),
    ("constant of a name", "const A = 1; const B = A;"),
    ("enumerator without a value", "enum a { B };"),
    ("enumeration without a name", "enum { A = 4 };"),
    ("last comma", "enum a { B = 1, };"),
    ("default first", "union a switch (int d) { default: int x; case 0: void; };"),
    ("default and case", "union a switch (int d) { case 0: default: int x; };"),
    ("named argument", "program P { version V { void N(int x) = 0; } = 1; } = 2;"),
    ("string argument", "program P { version V { void N(string) = 0; } = 1; } = 2;"),
    ("no argument", "program P { version V { void N() = 0; } = 1; } = 2;"),
    ("computed constant", "const A = 1 << 4;"),
    ("computed length", "const A = 4; struct s { opaque x[A * 2]; };"),
    ("sign apart", "const A = - 5;"),
    ("brackets", "const A = (5);"),
    ("character", "const A = 'a';"),
    ("long int", "struct a { long int x; };"),
    ("long long", "struct a { long long x; };"),
    ("unsigned short int", "struct a { unsigned short int x; };"),
    ("type macro", "#define T int\nstruct a { T x; };"),
    ("opaque macro", "#define T opaque\nstruct a { T x[4]; };"),
    ("inverted typedef of a declared type", "struct old { int x; }; typedef new old;"),
    ("scoped enumerator", "enum a { B = 1 }; struct s { opaque x[a::B]; };"),
    ("global scope", "const A = 1; struct s { opaque x[::A]; };"),
    ("scoped case", "enum a { B = 1 }; union u switch (a d) { case a::B: void; };"),
    ("separated digits", "struct s { opaque x[1'000]; };"),
    ("separated hexadecimal digits", "struct s { opaque x[0x1'0]; };"),
    ("enumerators of one name", "enum a { B = 1 }; enum c { B = 2 };"),
    ("unsigned hyper", "union u switch (unsigned hyper d) { case 18446744073709551615: void; };"),
    ("opaque union", "opaque_union u switch (int d) { case 0: int x; default: void; };"),
    ("enumerator of 32 bits", "enum a { B = 0x80000000 };"),
    ("case of 32 bits", "union a switch (int d) { case 0x80000000: void; };"),
    ("hexadecimal prefix in upper case", "const A = 0X10;"),
    ("negative octal number", "const A = -010;"),
    ("negative hexadecimal number", "const A = -0x10;"),
    ("name that begins with an underscore", "struct _a { int x; };"),
    ("union without a case", "union a switch (int d) { default: void; };"),
    ("arm with the name of the discriminant", "union a switch (int d) { case 0: int d; };"),
    ("enumerator as a length", "enum a { B = 1 }; struct s { opaque x[B]; };"),
    ("length declared later", "struct s { opaque x<A>; }; const A = 4;"),
    (
        "name of a program as a length",
        "program P { version V { void N(void) = 0; } = 1; } = 2; struct s { int x<P>; };",
    ),
    ("boolean as a length", "struct s { opaque x[TRUE]; };"),
    ("constant with the name of a type", "struct a { int x; }; const a = 1;"),
    ("enumerator with the name of a type", "enum a { b = 1 }; typedef int b;"),
    ("program with the name of a type", "struct P { int x; }; program P { version V { void N(void) = 0; } = 1; } = 2;"),
    ("program with the name of a constant", "program P { version V { void N(void) = 0; } = 1; } = 2; const P = 2;"),
    ("program as a name", "struct a { int program; };"),
    ("version as a name", "struct version { int x; };"),
    ("pragma", "pragma public a; struct a { int x; };"),
    ("zcopaque", "struct a { zcopaque x<9>; };"),
    ("version 0", "program P { version V { void N(void) = 0; } = 0; } = 2;"),
    ("named number", "const TWO = 2; program P { version V { void N(void) = TWO; } = 1; } = 2;"),
];

#[test]
fn dialects_are_accepted_unless_strict() {
    for (what, text) in DIALECTS {
        spec(&compiler(text));
        let refused = compiler(text).strict().compile().expect_err(what);
        assert_eq!(codes(&refused), [Code::Dialect], "{what}:\n{refused}");
    }
}

#[test]
fn strict_accepts_the_language_of_the_rfcs() {
    let text = "/* c */ const A = 0x10; const B = -10; const O = 010; const ZERO = 0;
        enum e { X = 1, Y = A };
        struct s { int a; unsigned int b; unsigned hyper c; opaque d[4]; opaque e<>; string f<A>; s *next; };
        union u switch (e d) { case X: case Y: s both; default: void; };
        union opaque_union switch (int number) { case 0: s opaque_union; default: opaque_union *other; };
        union plain switch (int opaque_union) { case 0: void; }; struct outer { enum { Q = 1 } kind; }; const outer_kind = 2;
        typedef opaque_union renamed; struct v { renamed opaque_union; opaque_union list<>; };
        typedef struct { enum { Z = 1 } inner; } t;
        program P { version V { void N(void) = 0; u GET(s, int) = 1; } = 1; } = 2;";
    spec(&compiler(text).strict());
}

#[test]
fn conditions_and_definitions() {
    let text = "#define SIZE 0x10 /* bytes */\n#define NAME \"n\"\n#define TWICE (SIZE * 2)\n#define OTHER SIZE\n\
        #ifdef WIDE\ntypedef hyper number;\n#else\ntypedef int number;\n#endif\n\
        struct a {\n#if LEVEL >= 2\n    opaque fixed[SIZE];\n#endif\n    string text<GIVEN>;\n};\n";
    let narrow = spec(&compiler(text).define("GIVEN", Some("9")));
    assert_eq!(types(&narrow, "number"), [Type::Base(Base::Int)]);
    assert_eq!(types(&narrow, "a"), [Type::String(9)]);
    for (name, value) in [("SIZE", 16), ("TWICE", 32), ("OTHER", 16), ("GIVEN", 9)] {
        assert!(matches!(kind(&narrow, name), ItemKind::Const(ConstValue::Int(n)) if *n == value), "{name}");
    }
    assert!(matches!(kind(&narrow, "NAME"), ItemKind::Const(ConstValue::Str(text)) if text == "n"));
    let size = narrow.items.iter().find(|item| item.name.text == "SIZE").unwrap();
    assert_eq!((size.doc.join(" ").as_str(), size.text.as_str()), ("bytes", "#define SIZE 0x10 /* bytes */"));
    let wide = compiler(text).define("WIDE", None).define("LEVEL", Some("2")).define("GIVEN", Some("9"));
    let wide = spec(&wide);
    assert_eq!(types(&wide, "number"), [Type::Base(Base::Hyper)]);
    assert_eq!(types(&wide, "a"), [Type::OpaqueFixed(16), Type::String(9)]);
}

#[test]
fn included_files_are_found_and_read_once() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    fs::create_dir(place.path().join("sub")).unwrap();
    write("sub/base.x", "#ifndef N\n#define N 3\n#endif\n#include \"again.x\"\ntypedef opaque id[N];\n");
    write("sub/again.x", "#include \"base.x\"\ntypedef id *maybe;\n");
    write("main.x", "#include <base.x>\n#include \"sub/base.x\"\nstruct a { id x; maybe y; opaque z<N>; };\n");
    let main = place.path().join("main.x");
    let compiled = Compiler::new().file(&main).include_dir(place.path().join("sub")).compile().unwrap();
    assert_eq!((compiled.warnings.to_string(), compiled.files.len()), (String::new(), 3));
    let names: Vec<&str> = compiled.spec.items.iter().map(|item| item.name.text.as_str()).collect();
    assert_eq!(names, ["maybe", "N", "id", "a"]);
    write("lost.x", "#include \"base.x\"\nconst A = 1;\n");
    let lost = Compiler::new().file(place.path().join("lost.x")).compile().unwrap();
    assert_eq!(codes(&lost.warnings), [Code::Preprocessor]);
}

#[test]
fn typedefs_with_their_names_first() {
    let spec = spec(&compiler(
        "typedef u32 unsigned int; typedef id opaque[8]; typedef label string<9>; typedef point struct { int x; };
         typedef kind enum { A, B }; typedef point *where; typedef struct { int y; } plain;",
    ));
    assert_eq!(types(&spec, "u32"), [Type::Base(Base::UInt)]);
    assert_eq!(types(&spec, "id"), [Type::OpaqueFixed(8)]);
    assert_eq!(types(&spec, "label"), [Type::String(9)]);
    assert_eq!(types(&spec, "point"), [Type::Base(Base::Int)]);
    assert!(matches!(kind(&spec, "kind"), ItemKind::Enum(names) if names.len() == 2));
    assert!(matches!(types(&spec, "where")[..], [Type::Optional(_)]));
}

#[test]
fn macros_for_constants_types_and_keywords() {
    let text = "#define LATE (N * 2)\n#define word unsigned int\n#define thing struct s\n#define also thing\n\
        #define bytes opaque\n#define words string\n#define FIRST N\n#define TITLE NAME\n#define loop_a loop_b\n\
        #define loop_b loop_a\n#define main run_it\n\
        const N = 3; const NAME = \"n\"; struct s { word a; bytes b[FIRST]; bytes c<LATE>; words d<4>; also *e; };";
    let compiled = compiler(text).compile().unwrap();
    assert_eq!(codes(&compiled.warnings), [Code::Preprocessor; 3], "{}", compiled.warnings);
    let spec = compiled.spec;
    assert!(matches!(kind(&spec, "LATE"), ItemKind::Const(ConstValue::Int(6))));
    assert!(matches!(kind(&spec, "TITLE"), ItemKind::Const(ConstValue::Str(text)) if text == "n"));
    assert_eq!(types(&spec, "word"), [Type::Base(Base::UInt)]);
    let fields = types(&spec, "s");
    assert_eq!(fields[1..4], [Type::OpaqueFixed(3), Type::Opaque(6), Type::String(4)]);
    assert!(!spec.items.iter().any(|item| item.name.text == "bytes"), "a macro for `opaque` became a type");
    // A macro given as an option acts like a `#define` in the text.
    let given = compiler("struct s { T x; };").define("T", Some("unsigned hyper"));
    let given = given.compile().unwrap().spec;
    assert_eq!(types(&given, "T"), [Type::Base(Base::UHyper)]);
}

#[test]
fn computed_constants_have_one_value_or_an_error() {
    let value = |text: &str| compiler(&format!("const N = 5; const S = \"s\"; const A = {text};")).compile();
    for (text, expected) in [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("N - 1 - 1", 3),
        ("N-1", 4),
        ("1 << N | 1", 33),
        ("~0 & 0xFF ^ 1", 0xFE),
        ("-N", -5),
        ("- -N", 5),
        ("+N / 2", 2),
        ("B", 9),
        ("B + /* nine */ 1", 10),
        ("TRUE + 1", 2),
    ] {
        let text = format!("const B = C; const C = 9; const N = 5; const A = {text};");
        let spec = spec(&compiler(&text));
        let found = kind(&spec, "A");
        assert!(matches!(found, ItemKind::Const(ConstValue::Int(n)) if *n == expected), "{text}: {found:?}");
    }
    for (text, code) in [
        ("1 / 0", Code::OutOfRange),
        ("1 << 64", Code::OutOfRange),
        ("A + 1", Code::Cycle),
        ("S + 1", Code::WrongConstant),
        ("NOWHERE + N", Code::UnknownConstant),
        ("1 +", Code::Syntax),
        ("1 + (2", Code::Syntax),
        ("'\\q'", Code::OutOfRange),
    ] {
        assert_eq!(codes(&value(text).unwrap_err()), [code], "{text}");
    }
}

#[test]
fn constants_and_cases_of_shorter_integers_are_checked() {
    for (text, code) in [
        ("const unsigned char A = 256;", Code::OutOfRange),
        ("const short A = 32768;", Code::OutOfRange),
        ("union u switch (char k) { case 128: void; };", Code::BadCase),
        ("union u switch (u_char k) { case -1: void; };", Code::BadCase),
    ] {
        assert_eq!(codes(&compiler(text).compile().unwrap_err()), [code], "{text}");
    }
    spec(&compiler("const unsigned char A = 255; typedef char c; union u switch (c k) { case -128: void; };"));
}

#[test]
fn the_discriminant_decides_between_enumerators_of_one_name() {
    let enums = "enum a { RED = 0, BLUE = 5 }; enum b { RED = 1, GREEN = 2 }; typedef b c;";
    let labels = |discriminant: &str| {
        let spec = spec(&compiler(&format!(
            "{enums} union u switch ({discriminant} k) {{ case RED: int x; default: void; }};"
        )));
        let ItemKind::Union(union) = kind(&spec, "u") else { panic!() };
        union.arms[0].cases.iter().map(|case| (case.label.clone(), case.value)).collect::<Vec<_>>()
    };
    for (discriminant, value) in [("a", 0), ("b", 1), ("c", 1)] {
        assert_eq!(labels(discriminant), [("RED".to_owned(), value)], "{discriminant}");
    }
    // In other positions, no type selects an enumeration. A case cannot be an enumerator of another enumeration.
    for (text, code) in [
        ("union u switch (int k) { case RED: void; };", Code::UnknownConstant),
        ("struct s { opaque x[RED]; };", Code::UnknownConstant),
        ("union u switch (b k) { case BLUE: void; };", Code::BadCase),
    ] {
        assert_eq!(codes(&compiler(&format!("{enums} {text}")).compile().unwrap_err()), [code], "{text}");
    }
}

#[test]
fn an_enumeration_without_a_name_is_constants() {
    let spec = spec(&compiler("enum { A, B, C = 0x10, D }; const E = D; struct s { opaque x[D]; };"));
    for (name, value) in [("A", 0), ("B", 1), ("C", 16), ("D", 17), ("E", 17)] {
        assert!(matches!(kind(&spec, name), ItemKind::Const(ConstValue::Int(n)) if *n == value), "{name}");
    }
    assert_eq!(types(&spec, "s"), [Type::OpaqueFixed(17)]);
}

#[test]
fn a_constants_type_is_kept() {
    for (text, expected) in [
        ("const unsigned hyper A = 1;", ConstValue::Typed(1, Base::UHyper)),
        ("const t A = 1; typedef u t; typedef hyper u;", ConstValue::Typed(1, Base::Hyper)),
        ("const bool A = FALSE;", ConstValue::Typed(0, Base::Bool)),
        ("const nowhere A = 1;", ConstValue::Int(1)),
        ("const string A = \"a\";", ConstValue::Str("a".into())),
    ] {
        let spec = spec(&compiler(text));
        assert!(matches!(kind(&spec, "A"), ItemKind::Const(value) if *value == expected), "{text}");
    }
    let small = compiler("const unsigned int A = -1;").compile().unwrap_err();
    assert_eq!(codes(&small), [Code::OutOfRange]);
}

#[test]
fn excluded_text_is_not_in_declarations() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
    write("inner.x", "const INNER = 1;\n");
    write(
        "main.x",
        "#include \"inner.x\"\nstruct s {\n    int a;\n#ifdef B\n    int b;\n#endif\n    @ddp opaque data<>;\n};\n",
    );
    let compiled = Compiler::new().file(place.path().join("main.x")).compile().unwrap();
    let item = compiled.spec.items.iter().find(|item| item.name.text == "s").unwrap();
    // The annotations removed are those of this file, even though the included file was read first.
    assert_eq!(item.text, "struct s {\n    int a;\n    opaque data<>;\n};");
}

#[test]
fn namespaces_do_not_change_names() {
    let text = "namespace a { namespace b::c {\nstruct s { int namespace; };\n}\nconst A = 1;\n};\nconst B = 2;\n";
    assert_eq!(spec(&compiler(text)).items.len(), 3);
    let open = compiler("namespace a {\nconst A = 1;\n").compile().unwrap_err();
    assert_eq!(codes(&open), [Code::Unclosed]);
}

#[test]
fn line_ends_of_every_kind_and_other_encodings() {
    let text = "// first\rconst A = 1;\r%skipped\rconst B = 2; // b\r";
    assert_eq!(spec(&compiler(text)).items.len(), 2);
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("latin1.x");
    fs::write(&path, b"/* caf\xe9 */\nconst A = 1;\n").unwrap();
    let compiled = Compiler::new().file(&path).compile().unwrap();
    assert_eq!(compiled.spec.items[0].doc, ["caf\u{fffd}"]);
}

#[test]
fn extern_types() {
    let path = syn::parse_str("crate::types::Handle").unwrap();
    let text =
        "struct a { handle x; handle *y; handle z<4>; }; struct replaced { int gone; }; struct b { replaced r; };
        program P { version V { handle GET(handle) = 1; } = 1; } = 2;";
    let compiler = compiler(text).extern_type("handle", &path).extern_type("replaced", &syn::parse_quote!(Other));
    let spec = spec(&compiler);
    assert!(matches!(kind(&spec, "handle"), ItemKind::Extern(path) if path.replace(' ', "") == "crate::types::Handle"));
    assert!(matches!(kind(&spec, "replaced"), ItemKind::Extern(path) if path == "Other"));
    let handle = Base::Item(ItemId(spec.items.iter().position(|item| item.name.text == "handle").unwrap()));
    assert_eq!(types(&spec, "a"), [Type::Base(handle), Type::Optional(handle), Type::Array(handle, 4)]);
    let rust = emit(&spec, &EmitOptions::default()).unwrap();
    assert!(
        rust.contains("pub type Handle = crate::types::Handle;") && !rust.contains("pub struct Replaced"),
        "{rust}"
    );
}

#[test]
fn extern_types_have_no_known_maximum() {
    let text = "program P { version V { handle GET(void) = 1; } = 1; } = 2;";
    let compiler = Compiler::new().source("t.x", text).extern_type("handle", &syn::parse_quote!(Handle));
    assert_eq!(codes(&compiler.compile().unwrap().warnings), [Code::AssumedMaximum]);
    assert_eq!(codes(&compiler.require_reply_max().compile().unwrap_err()), [Code::UnboundedReply]);
}

#[test]
fn names_of_procedures_are_constants() {
    let text = "const LAST = GET; const G = V; program P { version V { void GET(void) = 7; } = 2;
        version W { void GET(void) = 8; void PUT(void) = LATER; } = P2; } = 3; const P2 = 9; const LATER = 4;";
    let spec = spec(&compiler(text));
    for (name, value) in [("LAST", 7), ("G", 2)] {
        assert!(matches!(kind(&spec, name), ItemKind::Const(ConstValue::Int(n)) if *n == value), "{name}");
    }
    assert_eq!(spec.programs[0].versions[1].number, 9);
    let circle = compiler("const A = GET; program P { version V { void GET(void) = A; } = 1; } = 1;");
    assert_eq!(codes(&circle.compile().unwrap_err()), [Code::Cycle]);
}

#[test]
fn an_enumerator_of_two_enumerations_needs_its_scope() {
    let enums = "enum color { RED = 1 }; enum wine { WHITE, RED };";
    let text = format!(
        "{enums} const A = color::RED; const B = (wine::RED + 4) << 1; union u switch (wine w) {{ case wine::RED: int x; default: void; }};"
    );
    let spec = spec(&compiler(&text));
    for (name, value) in [("A", 1), ("B", 10)] {
        assert!(matches!(kind(&spec, name), ItemKind::Const(ConstValue::Int(n)) if *n == value), "{name}");
    }
    for unclear in ["RED", "::RED"] {
        let error = compiler(&format!("{enums} const A = {unclear};")).compile().unwrap_err();
        assert_eq!(codes(&error), [Code::UnknownConstant]);
        let text = error.to_string();
        assert!(text.contains("`color::RED`") && text.contains("`wine::RED`"), "{text}");
    }
    assert_eq!(
        codes(&compiler(&format!("{enums} const A = color::WHITE;")).compile().unwrap_err()),
        [Code::UnknownConstant]
    );
}

#[test]
fn nested_arrays_have_a_maximum_depth() {
    let nested = |n: usize| {
        let arrays: String = (0..n).map(|i| format!("typedef t{i} t{}<>;", i + 1)).collect();
        compiler(&format!("struct t0 {{ int x; }}; {arrays}")).compile()
    };
    assert!(nested(27).is_ok());
    assert_eq!(codes(&nested(35).unwrap_err()), [Code::TooDeep]);
}
