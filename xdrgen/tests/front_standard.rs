//! Tests of the rules of RFC 4506 §6 and RFC 5531 §12 for specifications, with texts that break a rule and similar
//! texts that keep it.

use rpcrdma_xdrgen::{
    Compiler,
    diag::Code,
    ir::{Base, ConstValue, ItemKind, Spec, Type},
};

/// Returns the codes of the errors in `text`, dialects included.
fn errors(text: &str) -> Vec<Code> {
    match Compiler::new().source("t.x", text).default_reply_max(1 << 20).strict().compile() {
        Ok(_) => Vec::new(),
        Err(diagnostics) => diagnostics.iter().map(|diagnostic| diagnostic.code).collect(),
    }
}

/// Checks that the first text of each pair is refused with exactly one error, `code`, and that the second is accepted.
#[track_caller]
fn check(code: Code, cases: &[(&str, &str)]) {
    for (bad, good) in cases {
        assert_eq!(errors(bad), [code], "{bad}");
        assert_eq!(errors(good), [], "{good}");
    }
}

fn spec(text: &str) -> Spec {
    Compiler::new().source("t.x", text).strict().compile().unwrap_or_else(|diagnostics| panic!("{diagnostics}")).spec
}

fn constants(text: &str) -> Vec<i128> {
    let value = |kind: &ItemKind| match kind {
        ItemKind::Const(ConstValue::Int(value)) => *value,
        other => panic!("{other:?}"),
    };
    spec(text).items.iter().map(|item| value(&item.kind)).collect()
}

/// RFC 4506 §6.4 (1): a keyword is not an identifier.
#[test]
fn keywords_are_no_identifiers() {
    for keyword in [
        "bool",
        "case",
        "const",
        "default",
        "double",
        "quadruple",
        "enum",
        "float",
        "hyper",
        "int",
        "opaque",
        "string",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
    ] {
        for place in
            ["struct @ { int x; };", "struct s { int @; };", "const @ = 1;", "enum e { @ = 1 };", "typedef int @;"]
        {
            assert!(errors(&place.replace('@', keyword)).contains(&Code::Syntax), "{place} {keyword}");
            assert_eq!(errors(&place.replace('@', &format!("{keyword}s"))), [], "{place} {keyword}");
        }
    }
}

/// RFC 4506 §6.2 (1), (2), (3): the forms of comments, white space and identifiers.
#[test]
fn words_of_a_specification() {
    assert_eq!(spec("const/* one */A\t=\n/**/1;/* two\n*/const B_2c=2;").items.len(), 2);
    check(Code::Unclosed, &[("const A = 1; /* no end", "const A = 1; /* end */")]);
    // A comment ends at the first end mark.
    assert_eq!(errors("/* /* */ const A = 1; */ const B = 2;"), [Code::Syntax]);
    check(
        Code::Syntax,
        &[("const 2A = 1;", "const A2 = 1;"), ("const A-B = 1;", "const A_B = 1;"), ("constA = 1;", "const A = 1;")],
    );
    // The case of identifiers and of keywords counts.
    check(Code::UnknownType, &[("struct a { int x; }; struct b { A y; };", "struct a { int x; }; struct b { a y; };")]);
    check(Code::UnknownConstant, &[("const A = 1; typedef int b[a];", "const A = 1; typedef int b[A];")]);
    check(Code::Syntax, &[("Const A = 1;", "const A = 1;")]);
    assert_eq!(spec("struct a { int x; }; struct A { int X; int x; };").items.len(), 2);
}

/// RFC 4506 §6.2 (4), (5), (6): the forms of decimal, hexadecimal and octal constants.
#[test]
fn numbers_of_every_base() {
    assert_eq!(
        constants("const A = 10; const B = -10; const C = 0x1aF; const D = 010; const E = 0; const F = 0777;"),
        [10, -10, 0x1af, 8, 0, 0o777]
    );
    check(Code::OutOfRange, &[("const A = 08;", "const A = 07;")]);
    check(Code::Syntax, &[("const A = 0x;", "const A = 0x0;"), ("const A = 0xg;", "const A = 0xf;")]);
    check(Code::Syntax, &[("const A = 1a;", "const A = 1;")]);
}

/// RFC 4506 §6.3: the forms of a declaration. A body is not empty.
#[test]
fn declarations() {
    check(
        Code::WrongType,
        &[
            ("struct s { opaque x; };", "struct s { opaque x<>; };"),
            ("struct s { opaque *x; };", "struct s { opaque x[3]; };"),
            ("struct s { string x[3]; };", "struct s { string x<3>; };"),
            ("struct s { string *x; };", "struct s { string x<>; };"),
            ("enum e { };", "enum e { A = 1 };"),
            ("union u switch (int d) { };", "union u switch (int d) { case 1: void; };"),
        ],
    );
    check(
        Code::Syntax,
        &[
            ("struct s { int; };", "struct s { int x; };"),
            ("struct s { void x; };", "struct s { void; };"),
            ("struct s { int *x<3>; };", "struct s { int x<3>; };"),
            ("struct s { int x[]; };", "struct s { int x<>; };"),
            ("struct s { int x }; ", "struct s { int x; };"),
            ("struct s { int x; }", "struct s { int x; };"),
            ("const A = ;", "const A = 1;"),
            ("union u (int d) { case 1: void; };", "union u switch (int d) { case 1: case 2: void; };"),
        ],
    );
    check(Code::Dialect, &[("struct s { };", "struct s { void; };")]);
}

/// RFC 4506 §4.10, §4.11, §4.13: without a maximum, the length is at most 2^32 - 1.
#[test]
fn lengths_without_a_maximum() {
    let spec = spec("struct s { opaque a<>; string b<>; int c<>; opaque d<7>; string e<8>; int f<9>; };");
    let ItemKind::Struct { fields, .. } = &spec.items[0].kind else { panic!() };
    let types: Vec<_> = fields.iter().map(|field| field.ty.clone()).collect();
    let max = u32::MAX;
    let unbounded = [Type::Opaque(max), Type::String(max), Type::Array(Base::Int, max)];
    assert_eq!(types[..3], unbounded);
    assert_eq!(types[3..], [Type::Opaque(7), Type::String(8), Type::Array(Base::Int, 9)]);
}

/// RFC 4506 §6.4 (2): a size is an unsigned constant.
#[test]
fn sizes_are_unsigned_constants() {
    check(
        Code::OutOfRange,
        &[
            ("typedef opaque x[-1];", "typedef opaque x[0];"),
            ("typedef int x<-1>;", "typedef int x<1>;"),
            ("const A = -1; typedef string x<A>;", "const A = 1; typedef string x<A>;"),
            ("typedef int x<4294967296>;", "typedef int x<4294967295>;"),
        ],
    );
    check(
        Code::Dialect,
        &[
            ("typedef int x[A]; const A = 1;", "const A = 1; typedef int x[A];"),
            ("enum e { A = 1 }; typedef int x<A>;", "enum e { A = 1 }; typedef int x<1>;"),
        ],
    );
    check(Code::UnknownConstant, &[("typedef int x[A];", "const A = 1; typedef int x[A];")]);
}

/// RFC 4506 §6.4 (3): constants and types share one name space, in which each name is unique.
#[test]
fn names_of_a_specification_are_unique() {
    check(
        Code::Duplicate,
        &[
            (
                "struct a { int x; }; union a switch (int d) { case 1: void; };",
                "struct a { int x; }; enum b { A = 1 };",
            ),
            ("typedef int a; enum a { B = 1 };", "typedef int a; enum b { B = 1 };"),
            ("const A = 1; const A = 1;", "const A = 1; const B = 1;"),
            ("const A = 1; enum e { A = 1 };", "const A = 1; enum e { B = 1 };"),
            ("enum e { A = 1, A = 2 };", "enum e { A = 1, B = 1 };"),
        ],
    );
    check(
        Code::Dialect,
        &[
            ("enum e { A = 1 }; enum f { A = 1 };", "enum e { A = 1 }; enum f { B = 1 };"),
            ("typedef int a; const a = 1;", "typedef int a; const b = 1;"),
        ],
    );
}

/// RFC 4506 §6.4 (4): the names of variables are unique within a struct or union.
#[test]
fn names_of_a_body_are_unique() {
    check(
        Code::Duplicate,
        &[
            ("struct s { int a; hyper a; };", "struct s { int a; struct { hyper a; } b; };"),
            ("struct s { struct { int a; int a; } b; };", "struct s { struct { int a; } b; int a; };"),
            (
                "union u switch (int d) { case 1: int a; case 2: int a; };",
                "union u switch (int d) { case 1: int a; case 2: struct { int a; } b; };",
            ),
            (
                "union u switch (int d) { case 1: int a; default: int a; };",
                "union u switch (int d) { case 1: int a; default: int b; };",
            ),
        ],
    );
    check(
        Code::Dialect,
        &[("union u switch (int a) { case 1: hyper a; };", "union u switch (int a) { case 1: struct { int a; } b; };")],
    );
}

/// RFC 4506 §4.15, §6.4 (5): the type of a discriminant is `int`, `unsigned int`, `bool` or an enumeration, or a
/// typedef of one of these.
#[test]
fn discriminants_are_integers() {
    let declared = "enum e { A = 1 }; typedef e f; typedef int n; typedef bool t; typedef unsigned int w;
        typedef hyper h; typedef int many<4>; struct s { int x; };";
    let union = |ty: &str| format!("{declared} union u switch ({ty}) {{ case 1: void; }};");
    for good in ["int d", "unsigned int d", "bool d", "e d", "f d", "n d", "t d", "w d", "enum { B = 1 } d"] {
        assert_eq!(errors(&union(good)), [], "{good}");
    }
    for bad in
        ["hyper d", "float d", "double d", "quadruple d", "h d", "many d", "s d", "int d<1>", "e *d", "string d<4>"]
    {
        assert_eq!(errors(&union(bad)), [Code::WrongType], "{bad}");
    }
}

/// RFC 4506 §4.15, §6.4 (5): each case is a value of the discriminant's type, and occurs only once.
#[test]
fn cases_are_values_of_the_discriminant() {
    let union = |ty: &str, arms: &str| format!("enum e {{ A = 1, B = -2 }}; union u switch ({ty} d) {{ {arms} }};");
    for (ty, good, bad) in [
        ("e", "case A: case -2: void;", "case 2: void;"),
        ("bool", "case TRUE: case 0: void;", "case 2: void;"),
        ("bool", "case FALSE: void;", "case -1: void;"),
        ("unsigned int", "case 0: case 4294967295: void;", "case -1: void;"),
        ("unsigned int", "case 0: void;", "case 4294967296: void;"),
        ("int", "case -2147483648: case 2147483647: void;", "case -2147483649: void;"),
    ] {
        assert_eq!(errors(&union(ty, good)), [], "{ty} {good}");
        assert_eq!(errors(&union(ty, bad)), [Code::BadCase], "{ty} {bad}");
    }
    // A dialect.
    assert!(errors(&union("unsigned hyper", "case -1: void;")).contains(&Code::BadCase));
    for twice in
        ["case A: void; case 1: int x;", "case A: case A: void;", "default: void; default: void; case A: void;"]
    {
        assert!(errors(&union("e", twice)).contains(&Code::Duplicate), "{twice}");
    }
}

/// RFC 4506 §4.3: the values of enumerators are signed 32-bit integers.
#[test]
fn enumerators_are_integers() {
    let text = "enum e { A = -2147483648, B = 2147483647 };";
    assert_eq!(errors(text), []);
    for bad in ["-2147483649", "4294967296"] {
        assert!(errors(&text.replace("2147483647", bad)).contains(&Code::OutOfRange), "{bad}");
    }
    check(Code::Dialect, &[("enum e { A = 2147483648 };", text)]);
}

/// RFC 4506 §4.18: a typedef of an unnamed struct, enumeration or union declares the same type as a definition without
/// `typedef`. A typedef of an array has the type of this array.
#[test]
fn typedefs() {
    let [one, other] = ["typedef struct { int x; } s;", "struct s { int x; };"].map(spec);
    assert!(matches!(&one.items[0].kind, ItemKind::Struct { .. }), "{:?}", one.items[0]);
    assert_eq!((one.items.len(), &one.items[0].name.text), (1, &other.items[0].name.text));
    for (text, variant) in [("typedef enum { A = 1 } e;", 1), ("typedef union switch (int d) { case 1: void; } u;", 2)]
    {
        let found = match &spec(text).items[0].kind {
            ItemKind::Enum(_) => 1,
            ItemKind::Union(_) => 2,
            other => panic!("{other:?}"),
        };
        assert_eq!(found, variant, "{text}");
    }
    let ItemKind::Typedef(eggs) = spec("typedef int eggbox[12];").items[0].kind.clone() else { panic!() };
    assert_eq!((eggs.name.text.as_str(), eggs.ty), ("eggbox", Type::ArrayFixed(Base::Int, 12)));
}

/// RFC 5531 §12.2, §12.3: the rules for names and numbers of programs, versions and procedures.
#[test]
fn programs() {
    let good =
        "program P { version V { void A(void) = 0; int B(int) = 1; } = 1; version W { void A(void) = 0; } = 2; } = 3;";
    assert_eq!(errors(good), []);
    for (from, to, code) in [
        ("int B(", "int A(", Code::Duplicate),
        ("(int) = 1", "(int) = 0", Code::Duplicate),
        ("version W", "version V", Code::Duplicate),
        ("} = 2;", "} = 1;", Code::Duplicate),
        ("(int) = 1", "(int) = -1", Code::OutOfRange),
        ("(int) = 1", "(int) = 4294967296", Code::OutOfRange),
        ("} = 2;", "} = -2;", Code::OutOfRange),
        ("} = 3;", "} = -3;", Code::OutOfRange),
        ("} = 3;", "};", Code::Syntax),
        ("program P", "program", Code::Syntax),
        ("version V", "V", Code::Syntax),
        ("int B(int)", "int(int)", Code::Syntax),
        ("int B(int)", "int B(void, int)", Code::Syntax),
        ("int B(int)", "int B()", Code::Dialect),
        ("void A(void) = 0; } = 2;", "} = 2;", Code::Dialect),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(errors(&bad).contains(&code), "{bad}");
    }
    // Each version has its own procedures, and each program its own versions.
    assert_eq!(errors(&[good, &good.replace("P {", "Q {")].concat()), []);
    assert_eq!(errors(&[good, good].concat())[0], Code::Duplicate);
}
