//! The compiler, `strip` and the extractor on arbitrary text. The compiler reports diagnostics or generates Rust. None
//! of them panics, overflows the stack, or loops endlessly.
#![no_main]

use rpcrdma_xdrgen::{Compiler, emit, extract, strip};

libfuzzer_sys::fuzz_target!(|text: &str| {
    // A specification, followed by its binding if there is a line of dashes.
    let (text, binding) = text.split_once("\n---\n").map_or((text, None), |(text, binding)| (text, Some(binding)));
    let mut compiler = Compiler::new().source("fuzz.x", text);
    if let Some(binding) = binding {
        compiler = compiler.ulb_source("fuzz.ulb", binding);
    }
    match compiler.compile() {
        Ok(compiled) => {
            let rust = emit::emit(&compiled.spec, &emit::EmitOptions::default());
            assert!(rust.is_ok(), "accepted specification does not generate Rust: {:?}", rust.err());
        }
        // Displaying diagnostics looks up the source text.
        Err(diagnostics) => drop(diagnostics.to_string()),
    }
    let _ = strip("fuzz.x", text);
    if let Ok(amendments) = extract::Amendments::parse(text) {
        let _ = extract::extract(text, &amendments);
    }
    let _ = extract::extract(text, &extract::Amendments::default());
});
