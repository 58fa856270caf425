//! Preprocessor lines in any order, between and inside definitions. Each input byte selects a line or a fragment.
#![no_main]

use rpcrdma_xdrgen::{
    Compiler,
    fmt::{FormatError, FormatOptions, format},
};

const PIECES: &[&str] = &[
    "\n#if A\n",
    "\n#if !defined(B) || C > 2 && (1 << 3) / 0\n",
    "\n#ifdef A\n",
    "\n#ifndef B\n",
    "\n#elif C == 3\n",
    "\n#else\n",
    "\n#endif\n",
    "\n#define A\n",
    "\n#define B 3 /* b */\n",
    "\n#define C (B * 2)\n",
    "\n#define C D\n",
    "\n#define D C\n",
    "\n#define T unsigned int\n",
    "\n#define F(x) x\n",
    "\n#define S \"text\"\n",
    "\n#undef A\n",
    "\n#include \"other.x\"\n",
    "\n#include <rpc/rpc.h>\n",
    "\n#pragma once\n",
    "\n#define L 1 \\\n + 2\n",
    "\n  #  define M /* goes\non */ 4\n",
    "\n%#define G 1\n",
    "/*",
    "*/",
    "//",
    "\\\n",
    "\r",
    "\"",
    "'",
    "struct s { int x; };",
    "struct s {",
    "int y[C];",
    "T z;",
    "};",
    "const K = B + L;",
    "typedef opaque d<B>;",
    "\n",
    " ",
    "{",
    "}",
    ";",
];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let text: String = bytes.iter().map(|byte| PIECES[usize::from(*byte) % PIECES.len()]).collect();
    for defined in [false, true] {
        let mut compiler = Compiler::new().source("fuzz.x", text.as_str());
        if defined {
            compiler = compiler.define("A", None).define("C", Some("3")).strict();
        }
        let diagnostics = match compiler.compile() {
            Ok(compiled) => compiled.warnings,
            Err(diagnostics) => diagnostics,
        };
        for diagnostic in diagnostics.iter() {
            for label in diagnostic.primary.iter().chain(&diagnostic.secondary) {
                let source = diagnostics.sources().get(label.span.file).expect("diagnostic in an unknown file");
                assert!(source.text().get(label.span.range.clone()).is_some(), "{label:?} is outside of the text");
            }
        }
        drop(diagnostics.to_string());
    }
    // Formatting keeps the order of the branches.
    match format("fuzz.x", &text, &FormatOptions::default()) {
        Ok(once) => {
            let twice = format("fuzz.x", &once, &FormatOptions::default());
            assert!(twice.is_ok_and(|twice| twice == once), "{once}");
        }
        Err(FormatError::Syntax(_)) => {}
        Err(other) => panic!("{other}\n{text}"),
    }
});
