//! Tests that `strip` removes annotations, writes out the procedures that versions take over, and changes nothing else.

use super::{formatted, meaning, specifications};

#[test]
fn stripped_text_has_the_same_meaning_without_annotations() {
    for (name, text, binding) in specifications() {
        let Ok(all) = meaning::compile(&text, &binding) else { continue };
        let plain = rpcrdma_xdrgen::strip(&name, text.as_str()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let left = meaning::compile(&plain, "").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!meaning::of(left.clone()).contains("ddp: Some("), "{name}");
        meaning::assert_same(&meaning::without_annotations(all), &meaning::without_annotations(left), &name);
        // Stripping and formatting commute.
        let one = formatted(&plain).unwrap();
        let other = rpcrdma_xdrgen::strip(&name, formatted(&text).unwrap()).unwrap();
        let (one, other) = (meaning::compile(&one, "").unwrap(), meaning::compile(&other, "").unwrap());
        meaning::assert_same(&meaning::of(one), &meaning::of(other), &name);
    }
}

#[test]
fn versions_are_written_out() {
    let text = "program P {
    version V1 {
        /* Does nothing. */
        void NULL(void) = 0;  /* beside */
        @idempotent
        struct { int a; } GET(union switch (int x) { default: void; }) = 1;
#ifdef MORE
        void MORE(void) = 2;
#endif
    } = 1;
    version V3 : V2 { int LAST(void) = 9; } = 3;
    /* The second. */
    version V2 : V1 {
        hyper GET(hyper) = 1;
        @idempotent int NEW(int) = 4;
    } = 2;
} = 1;
struct version { int V1; };
";
    let expected = "program P {
    version V1 {
        /* Does nothing. */
        void NULL(void) = 0;  /* beside */
        struct { int a; } GET(union switch (int x) { default: void; }) = 1;
#ifdef MORE
        void MORE(void) = 2;
#endif
    } = 1;
    version V3 {
        /* Does nothing. */
        void NULL(void) = 0;  /* beside */
        hyper GET(hyper) = 1;
#ifdef MORE
        void MORE(void) = 2;
#endif
        int NEW(int) = 4; int LAST(void) = 9; } = 3;
    /* The second. */
    version V2 {
        /* Does nothing. */
        void NULL(void) = 0;  /* beside */
        hyper GET(hyper) = 1;
#ifdef MORE
        void MORE(void) = 2;
#endif
        int NEW(int) = 4;
    } = 2;
} = 1;
struct version { int V1; };
";
    let plain = rpcrdma_xdrgen::strip("t.x", text).unwrap();
    assert_eq!(plain, expected);
    // The result is standard XDR, and has the procedures that the compiler takes over.
    let names = |text: &str| -> Vec<Vec<(String, u32)>> {
        let compiled = rpcrdma_xdrgen::Compiler::new().source("t.x", text).define("MORE", None).compile().unwrap();
        let versions = compiled.spec.programs[0].versions.iter();
        let of = |procedure: &rpcrdma_xdrgen::ir::Procedure| (procedure.name.text.clone(), procedure.number);
        versions.map(|version| version.procedures.iter().map(of).collect()).collect()
    };
    assert_eq!(names(text), names(&plain));
    // Text that does not compile.
    assert!(rpcrdma_xdrgen::strip("t.x", "program P { version A : B { } = 1; version B : A { } = 2; } = 1;").is_err());
    let unknown = rpcrdma_xdrgen::strip("t.x", "program P { version A : X { void B(void) = 3; } = 1; } = 1;");
    assert_eq!(unknown.unwrap(), "program P { version A { void B(void) = 3; } = 1; } = 1;");
}

#[test]
fn every_branch_of_a_condition_is_stripped() {
    let text = "#ifdef A\n@ddp(max = (1 + 2) * 3) typedef opaque a<>;\n#else\n@ddp\ntypedef opaque a<4>;\n#endif\n\
                /* @ddp */ const B = 1; /* @port(1) */\n";
    let plain = rpcrdma_xdrgen::strip("t.x", text).unwrap();
    let expected = "#ifdef A\ntypedef opaque a<>;\n#else\ntypedef opaque a<4>;\n#endif\n\
                    /* @ddp */ const B = 1; /* @port(1) */\n";
    assert_eq!(plain, expected);
}
