//! The meaning of a specification in a comparable form: the whole IR including documentation, without source positions.

use rpcrdma_xdrgen::{
    Compiler,
    diag::Diagnostics,
    ir::{Field, ItemKind, Procedure, ReplyBounds, Spec, TypeFacts},
};

/// Maximum reply size in bytes of procedures that have no other bound.
const REPLY_MAX: u64 = 4096;

/// Compiles a specification and its binding to the IR.
pub(crate) fn compile(text: &str, binding: &str) -> Result<Spec, Diagnostics> {
    let compiler = Compiler::new().source("t.x", text).ulb_source("t.ulb", binding);
    Ok(compiler.default_reply_max(REPLY_MAX).compile()?.spec)
}

/// Returns the meaning of `spec` as text.
pub(crate) fn of(mut spec: Spec) -> String {
    // The text of a declaration contains the original white space, which formatting changes. These are all characters
    // that the grammar accepts as white space.
    let blank = |c: char| c.is_whitespace() || matches!(c, '\u{1a}' | '\u{feff}');
    let unspaced = |text: &mut String| text.retain(|c| !blank(c));
    spec.items.iter_mut().for_each(|item| unspaced(&mut item.text));
    procedures(&mut spec).for_each(|procedure| unspaced(&mut procedure.text));
    let mut meaning = String::new();
    let shown = format!("{spec:#?}");
    let mut lines = shown.lines();
    while let Some(line) = lines.next() {
        // span: Span {
        //     file: 0,
        //     range: 1..2,
        // },
        if line.trim() == "span: Span {" {
            assert!(lines.by_ref().take(3).last().is_some_and(|line| line.trim() == "},"));
        } else {
            meaning.push_str(line.trim_start());
            meaning.push('\n');
        }
    }
    meaning
}

/// Returns the meaning of `spec` without annotations and base versions, and without the facts that follow from them.
pub(crate) fn without_annotations(mut spec: Spec) -> String {
    for item in &mut spec.items {
        // The minimum length and the counts depend on which items are eligible.
        item.facts = TypeFacts::default();
        match &mut item.kind {
            ItemKind::Struct { fields, .. } => fields.iter_mut().for_each(unmarked),
            ItemKind::Union(union) => {
                union.arms.iter_mut().filter_map(|arm| arm.field.as_mut()).for_each(unmarked);
                union.default.iter_mut().flatten().for_each(unmarked);
            }
            ItemKind::Typedef(field) => unmarked(field),
            _ => {}
        }
    }
    for program in &mut spec.programs {
        program.port = None;
        program.versions.iter_mut().for_each(|version| version.base = None);
    }
    for procedure in procedures(&mut spec) {
        procedure.args.iter_mut().chain(&mut procedure.result).for_each(unmarked);
        // Without an annotation between them, the comment before a procedure documents its result as well.
        procedure.result.iter_mut().for_each(|result| result.doc.clear());
        procedure.idempotent = false;
        procedure.declared_in = None;
        procedure.bounds = ReplyBounds::default();
    }
    of(spec)
}

fn procedures(spec: &mut Spec) -> impl Iterator<Item = &mut Procedure> {
    let versions = spec.programs.iter_mut().flat_map(|program| &mut program.versions);
    versions.flat_map(|version| &mut version.procedures)
}

fn unmarked(field: &mut Field) {
    field.ddp = None;
}

/// Returns the first line that differs, with the lines around it, from both texts.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let at = before.lines().zip(after.lines()).position(|(a, b)| a != b).unwrap_or_default();
    let near = |said: &str| said.lines().skip(at.saturating_sub(8)).take(14).collect::<Vec<_>>().join("\n");
    format!("--- before\n{}\n--- after\n{}", near(before), near(after))
}

/// Asserts that two texts are equal. A failure prints the first difference only.
pub(crate) fn assert_same(before: &str, after: &str, name: &str) {
    assert!(before == after, "{name}\n{}", difference(before, after));
}
