//! Tests of the layout that `fmt` produces.

use std::fs;

use rpcrdma_xdrgen::fmt::{FormatError, FormatOptions, format, format_bytes};

use super::formatted;

fn check(text: &str, expected: &str) {
    let result = formatted(text).unwrap();
    assert_eq!(result, expected, "\n{result}");
    assert_eq!(formatted(&result).unwrap(), expected);
}

#[test]
fn every_construct() {
    check(
        "%#include <a.h>\n\n\n\n  #define N 3   /* three */\n\
         const A=0x10;const uint32  B = -1;\n\n\n/* A point. */\nstruct point{int x;// east\nunsigned hyper y;};\n\
         typedef struct{int a;} inner;typedef opaque data<N>;typedef int * maybe;typedef number unsigned  hyper;\n\
         enum color{\nRED,GREEN=5,\n\nBLUE\n};\n\
         union u switch(color c){case RED:case GREEN:int a;default:void;};\n\
         opaque_union v switch(int opaque_union){case 0:opaque_union a;default:void;};\n\
         namespace a::b{\nstruct empty { };\n}\n\
         @port(2049)program P{version V{void NULL(void)=0;@idempotent\n@reply_max( 4+min(args.n ,6)*2 )int GET(int*,string name<9>)=1;}=1;}=0x20000000;",
        "%#include <a.h>\n\
         \n\
         #define N 3   /* three */\n\
         const A = 0x10;\n\
         const uint32 B = -1;\n\
         \n\
         /* A point. */\n\
         struct point {\n    int x;  // east\n    unsigned hyper y;\n};\n\
         typedef struct { int a; } inner;\n\
         typedef opaque data<N>;\n\
         typedef int *maybe;\n\
         typedef number unsigned hyper;\n\
         enum color {\n    RED,\n    GREEN = 5,\n\n    BLUE\n};\n\
         union u switch (color c) {\ncase RED:\ncase GREEN: int a;\ndefault: void;\n};\n\
         opaque_union v switch (int opaque_union) {\ncase 0: opaque_union a;\ndefault: void;\n};\n\
         namespace a::b {\nstruct empty {};\n}\n\
         @port(2049) program P {\n    version V {\n        void NULL(void) = 0;\n        @idempotent\n        \
         @reply_max(4 + min(args.n, 6) * 2) int GET(int *, string name<9>) = 1;\n    } = 1;\n} = 0x20000000;\n",
    );
}

#[test]
fn the_base_of_a_version_is_set_off_by_blanks() {
    check(
        "program P { version V:W\n{ void A(void)=1; }=2; version W{ } = 1; } = 1; union u switch (int a) { case 1 :int x; };",
        "program P {\n    version V : W {\n        void A(void) = 1;\n    } = 2;\n    version W {} = 1;\n} = 1;\n\
         union u switch (int a) {\ncase 1: int x;\n};\n",
    );
}

#[test]
fn single_line_bodies_stay_on_one_line_if_they_fit() {
    check("struct a { int x; int y; };", "struct a { int x; int y; };\n");
    check("struct a { int x;\nint y; };", "struct a {\n    int x;\n    int y;\n};\n");
    let long = format!("struct a {{ int {}; int y; }};", "x".repeat(90));
    check(&long, &format!("struct a {{\n    int {};\n    int y;\n}};\n", "x".repeat(90)));
    check(
        "union u switch (int a) { case 1: @ddp opaque x<4>; case 2:\nint y; };",
        "union u switch (int a) {\ncase 1: @ddp opaque x<4>;\ncase 2:\n    int y;\n};\n",
    );
    // A nested body has a layout of its own.
    check(
        "struct a { struct { int x; } b;\nunion switch (int c) { default: void; } d; };",
        "struct a {\n    struct { int x; } b;\n    union switch (int c) {\n    default: void;\n    } d;\n};\n",
    );
}

#[test]
fn long_lines_are_broken() {
    let arguments = ["struct some_arguments"; 7].join(", ");
    check(
        &format!("program P {{ version V {{ @idempotent void LONG({arguments}) = 1; }} = 1; }} = 1;"),
        "program P {\n    version V {\n        @idempotent\n        void LONG(struct some_arguments, \
         struct some_arguments, struct some_arguments,\n                struct some_arguments, \
         struct some_arguments, struct some_arguments,\n                struct some_arguments) = 1;\n    } = 1;\n} = 1;\n",
    );
    let arm = "x".repeat(100);
    check(
        &format!("union u switch (int a) {{ case 1: int {arm}; }};"),
        &format!("union u switch (int a) {{\ncase 1:\n    int {arm};\n}};\n"),
    );
    let mut options = FormatOptions::default();
    options.width = 20;
    let narrow = format("t.x", "struct point { int x; int y; };", &options).unwrap();
    assert_eq!(narrow, "struct point {\n    int x;\n    int y;\n};\n");
}

#[test]
fn comments_stay_with_their_items() {
    check(
        "struct a { /* opens */\nint x; /* x */\nint longer;   // longer\n\n\n  /* above\n   *   y\n   */\nint y;\n\
         /* last */\n};  /* a */\n/* the end\n  of it */",
        "struct a { /* opens */\n    int x;       /* x */\n    int longer;  // longer\n\n    /* above\n     *   y\n     */\n    \
         int y;\n    /* last */\n};  /* a */\n/* the end\n  of it */\n"
            .replace("{ /* opens", "{  /* opens")
            .as_str(),
    );
    // A comment in this position documents nothing.
    check("struct a { int /* c */ x; };", "struct a { int /* c */ x; };\n");
    check(
        "union u switch (int a) {\n/* one */\ncase 1:\n/* x */\nint x;\n/* none */\ndefault: void; };",
        "union u switch (int a) {\n/* one */\ncase 1:\n    /* x */\n    int x;\n/* none */\ndefault: void;\n};\n",
    );
}

#[test]
fn conditions_and_excluded_text() {
    // Each branch is formatted with the indentation at the start of the first one.
    check(
        "#ifdef A\nstruct a{\n#else\nstruct b{\n#endif\nint x;\n};\n#if 0\nDon't  read\n   this \"either.\n#endif\nconst B = 1;",
        "#ifdef A\nstruct a {\n#else\nstruct b {\n#endif\n    int x;\n};\n#if 0\nDon't  read\n   this \"either.\n#endif\n\
         const B = 1;\n",
    );
    check("struct a {\nint x;\n  %c code\nint y; };", "struct a {\n    int x;\n%c code\n    int y;\n};\n");
}

#[test]
fn line_ends_and_non_utf8_bytes() {
    check("const A = 1;\r\n\r\nconst B = 2;\r\n", "const A = 1;\n\nconst B = 2;\n");
    check("const A = 1;\rconst B = 2;\r", "const A = 1;\nconst B = 2;\n");
    check("", "");
    check("\n\n/* all */", "/* all */\n");
    let bytes = b"/* \xE9t\xE9 */ const A=1;";
    let options = FormatOptions::default();
    assert_eq!(format_bytes("t.x", bytes, &options).unwrap(), b"/* \xE9t\xE9 */ const A = 1;\n");
}

#[test]
fn syntax_errors_leave_a_file_alone() {
    let error = formatted("struct a { int x }; const B = ;").unwrap_err();
    assert!(matches!(&error, FormatError::Syntax(diagnostics) if diagnostics.error_count() == 2), "{error}");
    // Formatting does not resolve names.
    check("struct a { unknown x<N>; };", "struct a { unknown x<N>; };\n");
}

#[test]
fn the_examples_are_formatted() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/xdr/blobstore.x");
    let text = fs::read_to_string(path).unwrap();
    assert!(formatted(&text).unwrap() == text, "xdrgen fmt {path}");
}

#[test]
fn formatting_time_is_not_quadratic() {
    let start = std::time::Instant::now();
    let one = "/* one */\nstruct s { int x; union switch (int a) { case 0: void; } u; };\n";
    assert!(formatted(&one.repeat(2_000)).is_ok());
    // Lookahead does not scan the same text repeatedly.
    for text in [
        format!("#if 0\n{}\n#endif\n", "{".repeat(200_000)),
        format!("#if 0\n{}\n#endif\n", "default: x ".repeat(8_000)),
        format!("#if 0\n{}\n#endif\n", "( < [".repeat(8_000)),
        "#if 0\n".repeat(6_000) + &"#endif\n".repeat(6_000),
        format!("struct s {{ {} }};", "int field; ".repeat(8_000)),
        format!("program P {{ version V {{ void A({}) = 1; }} = 1; }} = 1;", "int argument, ".repeat(6_000) + "int x"),
        format!("struct a {{ {} int x; }};", "@ddp ".repeat(8_000)),
        "/* c */ ".repeat(20_000),
    ] {
        let result = formatted(&text).unwrap_or_else(|error| panic!("{error}"));
        assert!(result == formatted(&result).unwrap());
    }
    assert!(start.elapsed() < std::time::Duration::from_secs(60), "{:?}", start.elapsed());
}
