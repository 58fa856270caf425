//! What a specification says, to be compared: all of the IR, documentation included, without its places.

use rpcrdma_xdrgen::{
    Compiler,
    diag::Diagnostics,
    ir::{Expr, Field, ItemKind, Procedure, ReplyBounds, Spec, TypeFacts},
};

/// Most octets of replies whose maximum only an annotation would tell.
const REPLY_MAX: u64 = 4096;

/// The IR.
pub(crate) fn compile(text: &str, binding: &str) -> Result<Spec, Diagnostics> {
    let compiler = Compiler::new().source("t.x", text).ulb_source("t.ulb", binding);
    Ok(compiler.default_reply_max(REPLY_MAX).compile()?.spec)
}

/// All that `spec` says.
pub(crate) fn of(mut spec: Spec) -> String {
    // What is shown as the declaration has its blanks, which are not the same: all that the grammar takes for one.
    let blank = |c: char| c.is_whitespace() || matches!(c, '\u{1a}' | '\u{feff}');
    let unspaced = |text: &mut String| text.retain(|c| !blank(c));
    spec.items.iter_mut().for_each(|item| unspaced(&mut item.text));
    procedures(&mut spec).for_each(|procedure| unspaced(&mut procedure.text));
    let mut said = String::new();
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
            said.push_str(line.trim_start());
            said.push('\n');
        }
    }
    said
}

/// All that it says apart from its annotations.
pub(crate) fn without_annotations(mut spec: Spec) -> String {
    for item in &mut spec.items {
        // What is eligible may be absent from the stream.
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
    }
    for procedure in procedures(&mut spec) {
        procedure.args.iter_mut().chain(&mut procedure.result).for_each(unmarked);
        // That of the procedure, if nothing stands between the two.
        procedure.result.iter_mut().for_each(|result| result.doc.clear());
        procedure.idempotent = false;
        procedure.bounds = ReplyBounds { computed: false, inline: Expr::Const(0), chunks: Vec::new() };
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

/// Where two texts begin to differ.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let at = before.lines().zip(after.lines()).position(|(a, b)| a != b).unwrap_or_default();
    let near = |said: &str| said.lines().skip(at.saturating_sub(8)).take(14).collect::<Vec<_>>().join("\n");
    format!("--- before\n{}\n--- after\n{}", near(before), near(after))
}

/// Compares two texts without printing all of them.
pub(crate) fn assert_same(before: &str, after: &str, name: &str) {
    assert!(before == after, "{name}\n{}", difference(before, after));
}
