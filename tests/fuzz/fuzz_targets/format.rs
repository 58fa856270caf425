//! The formatter and `strip` on arbitrary text: the output has the same meaning, apart from the annotations that
//! `strip` removes, and formatting or stripping it again changes nothing.
#![no_main]

#[path = "../../../xdrgen/tests/fmt/meaning.rs"]
mod meaning;

use rpcrdma_xdrgen::{
    fmt::{FormatError, FormatOptions, format},
    strip,
};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let options = FormatOptions::default();
    let once = match format("fuzz.x", text, &options) {
        Ok(once) => once,
        // Displaying diagnostics looks up the source text.
        Err(FormatError::Syntax(diagnostics)) => return drop(diagnostics.to_string()),
        Err(other) => panic!("{other}"),
    };
    let twice = format("fuzz.x", &once, &options).unwrap_or_else(|error| panic!("{error}\n{once}"));
    assert!(twice == once, "--- once\n{once}\n--- twice\n{twice}");
    match (meaning::compile(text, ""), meaning::compile(&once, "")) {
        (Ok(before), Ok(after)) => meaning::assert_same(&meaning::of(before), &meaning::of(after), &once),
        (before, after) => assert!(before.is_err() && after.is_err(), "only one of two compiles\n{once}"),
    }
    let plain = strip("fuzz.x", text).unwrap_or_else(|error| panic!("{error}"));
    assert!(strip("fuzz.x", plain.as_str()).is_ok_and(|again| again == plain), "{plain}");
    if let (Ok(all), Ok(left)) = (meaning::compile(text, ""), meaning::compile(&plain, "")) {
        let (all, left) = (meaning::without_annotations(all), meaning::without_annotations(left));
        meaning::assert_same(&all, &left, &plain);
    }
});
