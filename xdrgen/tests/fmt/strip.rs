//! `strip` removes annotations and nothing else.

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
fn every_branch_of_a_condition_is_stripped() {
    let text = "#ifdef A\n@ddp(max = (1 + 2) * 3) typedef opaque a<>;\n#else\n@ddp\ntypedef opaque a<4>;\n#endif\n\
                /* @ddp */ const B = 1; /* @port(1) */\n";
    let plain = rpcrdma_xdrgen::strip("t.x", text).unwrap();
    let expected = "#ifdef A\ntypedef opaque a<>;\n#else\ntypedef opaque a<4>;\n#endif\n\
                    /* @ddp */ const B = 1; /* @port(1) */\n";
    assert_eq!(plain, expected);
}
