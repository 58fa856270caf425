//! Output of diagnostics, for humans and for editors.

use rpcrdma_xdrgen::{
    diag::{Diagnostics, Label, Severity, Suggestion},
    source::Span,
};
use serde_json::{Value, json};

/// Output format of diagnostics.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DiagnosticFormat {
    /// Text for humans.
    Text {
        /// `true` to print ANSI colours.
        colour: bool,
    },
    /// JSON for editors.
    Json,
}

impl DiagnosticFormat {
    pub(crate) fn render(self, diagnostics: &Diagnostics) -> String {
        match self {
            Self::Text { colour } => diagnostics.render(colour),
            Self::Json => to_json(diagnostics),
        }
    }
}

/// Formats `diagnostics` as JSON for editors: one object per line.
///
/// ```json
/// {"severity":"error","code":"E0101","message":"no type is named `b`","primary":{"file":"a.x","line":1,"column":12,
///  "end_line":1,"end_column":13,"start":11,"end":12,"text":"not declared"},"secondary":[],"notes":[],"helps":[],
///  "suggestions":[{"file":"a.x",...,"replacement":"c"}]}
/// ```
///
/// Lines and columns count from 1, and columns count characters. `start` and `end` are byte offsets and count from 0.
/// Ends are exclusive. `primary` is null if the problem is outside the sources. A suggestion replaces the text at its
/// position.
fn to_json(diagnostics: &Diagnostics) -> String {
    let place = |span: &Span, key: &str, text: &str| -> Value {
        let source = diagnostics.sources().get(span.file);
        let place = |at: usize| source.map_or((0, 0), |source| source.line_column(at));
        let ((line, column), (end_line, end_column)) = (place(span.range.start), place(span.range.end));
        json!({
            "file": source.map(|source| source.name()),
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "start": span.range.start,
            "end": span.range.end,
            key: text,
        })
    };
    let label = |label: &Label| place(&label.span, "text", &label.text);
    let suggestion = |suggestion: &Suggestion| place(&suggestion.span, "replacement", &suggestion.replacement);
    let mut out = String::new();
    for diagnostic in diagnostics.iter() {
        let severity = match diagnostic.severity() {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let object = json!({
            "severity": severity,
            "code": diagnostic.code.as_str(),
            "message": diagnostic.message,
            "primary": diagnostic.primary.as_ref().map(label),
            "secondary": diagnostic.secondary.iter().map(label).collect::<Vec<_>>(),
            "notes": diagnostic.notes,
            "helps": diagnostic.helps,
            "suggestions": diagnostic.suggestions.iter().map(suggestion).collect::<Vec<_>>(),
        });
        out.push_str(&object.to_string());
        out.push('\n');
    }
    out
}
