//! Text output of diagnostics with source lines, carets and notes.

use std::ops::Range;

use annotate_snippets::{Annotation, AnnotationKind, Level, Renderer, Snippet};

use super::{Diagnostic, Label, Severity};
use crate::source::{Source, Sources};

/// Maximum number of diagnostics to print. Further diagnostics are only counted.
const MAX_PRINTED: usize = 50;

/// Maximum distance from the primary label, in bytes, at which other labels are shown in the source. In a source
/// without the primary label, the distance is measured from the first label. Labels that are farther away are described
/// by line and column.
const NEAR: usize = 32 * 1024;

/// Maximum length of a source line that is shown, in bytes. Labels in longer lines are described by line and column.
const LONG_LINE: usize = 2000;

pub(super) fn render(list: &[Diagnostic], sources: &Sources, colour: bool) -> String {
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut out = String::new();
    for diagnostic in list.iter().take(MAX_PRINTED) {
        out.push_str(&one(diagnostic, sources, &renderer));
        out.push_str("\n\n");
    }
    let errors = list.iter().filter(|d| d.severity() == Severity::Error).count();
    let warnings = list.len() - errors;
    if list.len() > MAX_PRINTED {
        out.push_str(&format!("... and {} more\n", list.len() - MAX_PRINTED));
    }
    let mut counts = Vec::new();
    for (n, what) in [(errors, "error"), (warnings, "warning")] {
        if n > 0 {
            counts.push(format!("{n} {what}{}", if n == 1 { "" } else { "s" }));
        }
    }
    if !counts.is_empty() {
        out.push_str(&counts.join(", "));
        out.push('\n');
    }
    out
}

fn one(diagnostic: &Diagnostic, sources: &Sources, renderer: &Renderer) -> String {
    let level = match diagnostic.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = level
        .primary_title(diagnostic.message.as_str())
        .id(diagnostic.code.as_str())
        .elements(std::iter::empty::<Snippet<'_, Annotation<'_>>>());
    let mut far = Vec::new();
    if let Some(primary) = &diagnostic.primary {
        let labels = || std::iter::once(primary).chain(&diagnostic.secondary);
        for (index, source) in sources.iter().enumerate() {
            let here: Vec<(bool, &Label)> =
                labels().enumerate().filter(|(_, l)| l.span.file == index).map(|(n, l)| (n == 0, l)).collect();
            if let Some(snippet) = snippet(source, &here, &mut far) {
                group = group.element(snippet);
            }
        }
    }
    for note in far.iter().chain(&diagnostic.notes) {
        group = group.element(Level::NOTE.message(note.as_str()));
    }
    for help in &diagnostic.helps {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    renderer.render(&[group])
}

fn snippet<'a>(
    source: &'a Source,
    labels: &[(bool, &'a Label)],
    far: &mut Vec<String>,
) -> Option<Snippet<'a, Annotation<'a>>> {
    let text = source.text();
    let (_, anchor) = labels.first()?;
    let anchor = anchor.span.range.start.min(text.len());
    let readable = |at: usize| line_end(text, at) - line_start(text, at) <= LONG_LINE;
    let near = |label: &Label| {
        let at = label.span.range.start.min(text.len());
        at.abs_diff(anchor) <= NEAR && readable(at)
    };
    let (close, distant): (Vec<_>, Vec<_>) = labels.iter().partition(|(_, label)| near(label));
    for (_, label) in distant {
        let (line, column) = source.line_column(label.span.range.start);
        let colon = if label.text.is_empty() { "" } else { ": " };
        far.push(format!("{}:{line}:{column}{colon}{}", source.name(), label.text));
    }
    let first = close.iter().map(|(_, l)| l.span.range.start).min()?.min(text.len());
    let last = close.iter().map(|(_, l)| l.span.range.start).max()?.min(text.len());
    let (line, _) = source.line_column(first);
    let window = line_start(text, first)..line_end(text, last);
    let shown = text.get(window.clone())?;
    let mut snippet = Snippet::source(shown).line_start(line).path(source.name()).fold(true);
    for (is_primary, label) in close {
        let kind = if is_primary { AnnotationKind::Primary } else { AnnotationKind::Context };
        let span = clamp(text, &label.span.range, &window);
        let annotation = kind.span(span);
        snippet =
            snippet.annotation(if label.text.is_empty() { annotation } else { annotation.label(label.text.as_str()) });
    }
    Some(snippet)
}

fn line_start(text: &str, at: usize) -> usize {
    text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |n| n + 1)
}

fn line_end(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|after| after.find('\n')).map_or(text.len(), |n| at + n)
}

/// Returns the range of a label, relative to the start of `window`. The range ends at the end of the label's first
/// line, because carets below a whole body are not helpful. It does not extend beyond `window`.
fn clamp(text: &str, range: &Range<usize>, window: &Range<usize>) -> Range<usize> {
    // The renderer requires positions on character boundaries.
    let place = |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or_default();
    let start = place(range.start).clamp(window.start, window.end);
    let end = place(range.end).clamp(start, line_end(text, start).clamp(start, window.end));
    start - window.start..end - window.start
}

#[cfg(test)]
mod tests {
    use super::clamp;

    #[test]
    fn labels_within_characters_are_adjusted() {
        let text = "a\u{FEFF}b\nc";
        assert_eq!(clamp(text, &(3..5), &(0..5)), 1..5);
        assert_eq!(clamp(text, &(2..3), &(0..5)), 1..1);
        assert_eq!(clamp(text, &(9..12), &(0..7)), 7..7);
    }
}
