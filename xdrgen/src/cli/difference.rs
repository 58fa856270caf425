//! Unified diff between a text and its formatted version, computed in linear time.
//!
//! Formatting only changes white space. Two lines are therefore the same line exactly if they have the same text and
//! the same number of non-blank characters before them. No search is necessary.

use std::{fmt::Write as _, ops::Range};

use similar::{DiffOp, group_diff_ops, udiff::UnifiedHunkHeader};

/// Number of unchanged lines to show around each change.
const CONTEXT: usize = 2;

/// A line, including its line terminator.
struct Line<'a> {
    text: &'a str,
    /// Number of non-blank characters before the line.
    before: usize,
    is_blank: bool,
}

/// Splits `text` into lines. Accepts Unix, Windows and classic Mac OS line terminators.
fn lines(text: &str) -> Vec<Line<'_>> {
    let (mut lines, mut at, mut before) = (Vec::new(), 0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let len = match rest.find(['\n', '\r']) {
            Some(end) if rest.get(end..).is_some_and(|end| end.starts_with("\r\n")) => end + 2,
            Some(end) => end + 1,
            None => rest.len(),
        };
        let line = rest.get(..len).unwrap_or(rest);
        // XDR treats the byte order mark and the old end-of-file mark as white space.
        let visible = line.chars().filter(|c| !c.is_whitespace() && !matches!(c, '\u{FEFF}' | '\u{1A}')).count();
        lines.push(Line { text: line, before, is_blank: visible == 0 });
        before += visible;
        at += len;
    }
    lines
}

/// Computes the operations that turn `old` into `new`.
fn operations(old: &[Line<'_>], new: &[Line<'_>]) -> Vec<DiffOp> {
    let mut operations = Vec::new();
    let (mut i, mut j) = (0, 0);
    // Start of the current run of changed lines.
    let (mut old_index, mut new_index) = (0, 0);
    while let (Some(a), Some(b)) = (old.get(i), new.get(j)) {
        if a.before == b.before && a.text == b.text {
            change(&mut operations, (old_index, i), (new_index, j));
            match operations.last_mut() {
                Some(DiffOp::Equal { len, .. }) => *len += 1,
                _ => operations.push(DiffOp::Equal { old_index: i, new_index: j, len: 1 }),
            }
            (i, j) = (i + 1, j + 1);
            (old_index, new_index) = (i, j);
        } else if a.before < b.before || a.before == b.before && (a.is_blank || !b.is_blank) {
            i += 1;
        } else {
            j += 1;
        }
    }
    change(&mut operations, (old_index, old.len()), (new_index, new.len()));
    operations
}

/// Adds the change from a range of old lines to a range of new lines. Does nothing if both ranges are empty. The end of
/// a range is exclusive.
fn change(operations: &mut Vec<DiffOp>, (old_index, old_end): (usize, usize), (new_index, new_end): (usize, usize)) {
    let (old_len, new_len) = (old_end - old_index, new_end - new_index);
    match (old_len, new_len) {
        (0, 0) => {}
        (_, 0) => operations.push(DiffOp::Delete { old_index, old_len, new_index }),
        (0, _) => operations.push(DiffOp::Insert { old_index, new_index, new_len }),
        _ => operations.push(DiffOp::Replace { old_index, old_len, new_index, new_len }),
    }
}

/// Returns the unified diff between `old` and the formatted text `new`.
pub(crate) fn unified(name: &str, old: &str, new: &str) -> String {
    let (old, new) = (lines(old), lines(new));
    let mut out = format!("--- {name}\n+++ {name}, formatted\n");
    for hunk in group_diff_ops(operations(&old, &new), CONTEXT) {
        let _ = writeln!(out, "{}", UnifiedHunkHeader::new(&hunk));
        for operation in hunk {
            let of = |lines: &[Line<'_>], range: Range<usize>, mark, out: &mut String| {
                for line in lines.get(range).unwrap_or_default() {
                    out.push(mark);
                    out.push_str(line.text);
                    if !line.text.ends_with(['\n', '\r']) {
                        out.push_str("\n\\ No newline at end of file\n");
                    }
                }
            };
            if let DiffOp::Equal { .. } = operation {
                of(&old, operation.old_range(), ' ', &mut out);
            } else {
                of(&old, operation.old_range(), '-', &mut out);
                of(&new, operation.new_range(), '+', &mut out);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rpcrdma_xdrgen::fmt::{FormatOptions, format};

    use super::*;

    /// Applies the operations to `old`, and checks that their ranges are consistent.
    fn applied(old: &str, new: &str) -> String {
        let (old, new) = (lines(old), lines(new));
        let (mut text, mut at) = (String::new(), 0);
        for operation in operations(&old, &new) {
            let range = operation.old_range();
            assert_eq!(range.start, at);
            at = range.end;
            let (from, range) = match operation {
                DiffOp::Equal { .. } => (&old, range),
                _ => (&new, operation.new_range()),
            };
            text.extend(from[range].iter().map(|line| line.text));
        }
        assert_eq!(at, old.len());
        text
    }

    #[test]
    fn operations_turn_the_old_text_into_the_new() {
        for old in [
            "struct a{int x;/* east */\nint y;};\n\n\nconst A=1;\n",
            "\n\n/* a\n   b */ const A = 1;\n\n \nstruct a { int x; };\n",
            "const A = 1;\r\nconst B =\r\n2;",
            "const A = 1;\rconst B =\r2;\r",
            "\u{FEFF}const A = 1;\u{1A}\n",
        ] {
            let new = format("t.x", old, &FormatOptions::default()).unwrap();
            assert_eq!(applied(old, &new), new, "{old:?}");
        }
        // Texts that differ in more than white space.
        for (old, new) in [("a\nb\n", "b\na\n"), ("a\n", "\n"), ("", "a"), ("a\nb\nc", "abcd\nc")] {
            assert_eq!(applied(old, new), new);
        }
    }

    #[test]
    fn unified_format_with_context() {
        let old = "const A = 1;\nconst B = 2;\nconst C = 3;\n\n\n\nconst D  = 4;\nconst E = 5;";
        let new = "const A = 1;\nconst B = 2;\nconst C = 3;\n\nconst D = 4;\nconst E = 5;\n";
        let expected = "--- a.x\n+++ a.x, formatted\n@@ -3,6 +3,4 @@\n const C = 3;\n \n-\n-\n-const D  = 4;\n-const E = 5;\n\
                        \\ No newline at end of file\n+const D = 4;\n+const E = 5;\n";
        assert_eq!(unified("a.x", old, new), expected);
    }

    #[test]
    fn changes_in_every_line_take_linear_time() {
        let text = |blanks: &str| (0..100_000).map(|n| format!("    int{blanks}x{n};\n")).collect::<String>();
        let start = Instant::now();
        let difference = unified("a.x", &text("  "), &text(" "));
        assert_eq!(difference.lines().count(), 200_003);
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    }
}
