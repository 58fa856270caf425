//! Output of a layout as lines. Breaks long lines and aligns trailing comments in columns.

use std::ops::Range;

use super::{
    layout::{Gap, Plan, SoftBreak, plan},
    lex::{FmtToken, FmtTokenKind, width},
};
use crate::scan::MAX_NESTING;

/// Width of an indentation level, in columns.
const INDENT: usize = 4;

/// Minimum distance between a line and its trailing comment, in columns.
const BESIDE: usize = 2;

/// Maximum width, in columns, of a line whose trailing comment is aligned with those of adjacent lines. The comment of
/// a longer line follows at the distance [`BESIDE`].
const MAX_ALIGNED_WIDTH: usize = 56;

/// White space that is removed at both ends of a comment's lines.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\u{0C}'];

/// A line of output.
struct OutputLine {
    empty_before: bool,
    indent: usize,
    tokens: Range<usize>,
    /// Index of the first trailing comment, or the end of `tokens` if there is none.
    comments: usize,
    /// Width of the line before the comments, in columns. `None` if that part contains a line break, for example within
    /// a comment.
    width: Option<usize>,
    /// `true` if the line, including its trailing comments, has no line break.
    single: bool,
}

/// Formats `tokens` with a maximum line width of `max_width` columns where possible.
pub(super) fn print(tokens: &[FmtToken<'_>], max_width: usize) -> String {
    let mut forced = vec![false; tokens.len()];
    loop {
        let plan = plan(tokens, &forced);
        let lines = lines(tokens, &plan);
        let mut again = false;
        for line in lines.iter().filter(|line| line.width.is_some_and(|width| width > max_width)) {
            again |= break_line(tokens, &plan, line, max_width, &mut forced);
        }
        if !again {
            return write(tokens, &plan, &lines);
        }
    }
}

fn lines(tokens: &[FmtToken<'_>], plan: &Plan) -> Vec<OutputLine> {
    let mut lines: Vec<OutputLine> = Vec::new();
    for (at, (token, gap)) in tokens.iter().zip(&plan.gaps).enumerate() {
        let begins = match gap {
            Gap::Line(level) => Some((false, *level)),
            Gap::EmptyLine(level) => Some((true, *level)),
            _ => None,
        };
        if at == 0 || begins.is_some() {
            let (empty_before, level) = begins.unwrap_or_default();
            // `%` lines and directives start in the first column, as rpcgen requires.
            let at_left = matches!(token.kind, FmtTokenKind::Verbatim | FmtTokenKind::Directive);
            let indent = if at_left { 0 } else { level.min(MAX_NESTING) * INDENT };
            lines.push(OutputLine { empty_before, indent, tokens: at..at, comments: at, width: None, single: true });
        }
        if let Some(line) = lines.last_mut() {
            line.tokens.end = at + 1;
            line.single &= !token.text.contains('\n');
            if !token.is_comment() {
                line.comments = at + 1;
            }
        }
    }
    for line in &mut lines {
        // A line that contains only comments has no trailing comment.
        if line.comments == line.tokens.start {
            line.comments = line.tokens.end;
        }
        let code = line.tokens.start..line.comments;
        let single =
            line.single || tokens.get(code.clone()).is_some_and(|code| code.iter().all(|t| !t.text.contains('\n')));
        line.width = single.then(|| width_of(tokens, plan, code, line.indent));
    }
    lines
}

fn width_of(tokens: &[FmtToken<'_>], plan: &Plan, range: Range<usize>, mut column: usize) -> usize {
    for at in range.clone() {
        column += usize::from(at > range.start && plan.gaps.get(at) == Some(&Gap::Blank));
        column += tokens.get(at).map_or(0, |token| token.text.chars().count());
    }
    column
}

/// Marks in `forced` the positions at which to break a line that is too long. Returns `true` if a new position was
/// marked.
fn break_line(tokens: &[FmtToken<'_>], plan: &Plan, line: &OutputLine, max_width: usize, forced: &mut [bool]) -> bool {
    let soft = |at: usize| plan.soft.get(at).copied().flatten();
    let first = line.tokens.start + 1;
    let Some(kind) = (first..line.comments).filter_map(soft).min() else { return false };
    let mut broken = false;
    let mut force = |at: usize| {
        if let Some(mark) = forced.get_mut(at).filter(|mark| !**mark) {
            *mark = true;
            broken = true;
        }
    };
    let places = (first..line.comments).filter(|at| soft(*at).is_some());
    match kind {
        SoftBreak::Arm | SoftBreak::Body => places.filter(|at| soft(*at) == Some(kind)).take(1).for_each(force),
        SoftBreak::Annotation => places.filter(|at| soft(*at) == Some(kind)).for_each(force),
        SoftBreak::Argument(level) => {
            // Put as many arguments on each line as fit.
            let (mut start, mut indent) = (line.tokens.start, line.indent);
            let places: Vec<usize> = places.collect();
            let ends = places.iter().skip(1).copied().chain([line.comments]);
            for (place, end) in places.iter().copied().zip(ends) {
                if width_of(tokens, plan, start..end, indent) > max_width {
                    force(place);
                    (start, indent) = (place, level * INDENT);
                }
            }
        }
    }
    broken
}

fn write(tokens: &[FmtToken<'_>], plan: &Plan, lines: &[OutputLine]) -> String {
    let mut out = String::new();
    let columns = columns(tokens, lines);
    for (line, comments) in lines.iter().zip(columns) {
        if line.empty_before {
            out.push('\n');
        }
        out.extend(std::iter::repeat_n(' ', line.indent));
        let mut column = line.indent;
        for at in line.tokens.clone() {
            let Some(token) = tokens.get(at) else { continue };
            let blanks = if at == line.comments {
                comments.saturating_sub(column).max(BESIDE)
            } else {
                usize::from(at > line.tokens.start && plan.gaps.get(at) == Some(&Gap::Blank))
            };
            out.extend(std::iter::repeat_n(' ', blanks));
            column += blanks;
            let start = out.len();
            if token.kind == FmtTokenKind::BlockComment {
                shifted(token, column, &mut out);
            } else {
                out.push_str(token.text);
            }
            let written = out.get(start..).unwrap_or_default();
            column = match written.rsplit_once('\n') {
                Some((_, last)) => width(last),
                None => column + written.chars().count(),
            };
        }
        out.push('\n');
    }
    out
}

/// Returns the minimum column of the trailing comment of each line. Adjacent lines with trailing comments share a
/// column, unless one of them is wider than [`MAX_ALIGNED_WIDTH`], ends in `{` before its comment, or contains a line
/// break.
fn columns(tokens: &[FmtToken<'_>], lines: &[OutputLine]) -> Vec<usize> {
    let own = |line: &OutputLine| line.width.map_or(0, |width| width + BESIDE);
    let opens =
        |line: &OutputLine| line.comments.checked_sub(1).and_then(|at| tokens.get(at)).is_some_and(|t| t.text == "{");
    let alike = |line: &OutputLine| {
        let narrow = line.width.is_some_and(|width| width <= MAX_ALIGNED_WIDTH);
        line.comments < line.tokens.end && line.single && narrow && !opens(line)
    };
    let mut columns = Vec::with_capacity(lines.len());
    for group in lines.chunk_by(|a, b| alike(a) && alike(b) && !b.empty_before) {
        let widest = group.iter().map(own).max().unwrap_or_default();
        columns.extend(group.iter().map(|_| widest));
    }
    columns
}

/// Moves a block comment to another column. If its lines start with `*`, aligns these lines below the first line.
/// Otherwise, keeps their relative indentation.
fn shifted(token: &FmtToken<'_>, column: usize, out: &mut String) {
    let rest = || token.text.split('\n').skip(1);
    let starred = rest().all(|line| line.trim().is_empty() || line.trim_start().starts_with('*'));
    for (index, line) in token.text.split('\n').enumerate() {
        if index == 0 {
            out.push_str(line.trim_end_matches(BLANKS));
            continue;
        }
        out.push('\n');
        let text = line.trim_matches(BLANKS);
        if text.is_empty() {
            continue;
        }
        let indent = width(line.get(..line.len() - line.trim_start_matches(BLANKS).len()).unwrap_or_default());
        let indent = if starred { column + 1 } else { (indent + column).saturating_sub(token.column) };
        out.extend(std::iter::repeat_n(' ', indent));
        out.push_str(text);
    }
}
