//! Choice of the white space between tokens: nothing, a blank, or a line break with indentation.
//!
//! The formatter keeps the author's choice where the style permits alternatives: short bodies or arms on one line,
//! annotations on separate lines, and empty lines.

use super::{
    lex::{FmtToken, FmtTokenKind},
    state::{BracketBody, LayoutAction, LayoutState},
};

/// The white space before a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    Nothing,
    Blank,
    /// A line break with this indentation level.
    Line(usize),
    /// An empty line, then a line with this indentation level.
    EmptyLine(usize),
}

impl Gap {
    fn lines(newlines: u8, level: usize) -> Self {
        if newlines > 1 { Self::EmptyLine(level) } else { Self::Line(level) }
    }

    fn is_line(self) -> bool {
        matches!(self, Self::Line(_) | Self::EmptyLine(_))
    }
}

/// The kind of position at which a line that is too long can be broken. The variants are in order of preference: a line
/// is broken at its positions of the first kind that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SoftBreak {
    /// Before an arm on the same line as its label.
    Arm,
    /// Within a body on one line.
    Body,
    /// After an annotation.
    Annotation,
    /// Before an argument. The value is the indentation level of the new line.
    Argument(usize),
}

/// The layout of a text. The vectors are indexed by token.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// White space before each token.
    pub(super) gaps: Vec<Gap>,
    /// The kind of line break that is possible before each token. `None` if no line break is possible.
    pub(super) soft: Vec<Option<SoftBreak>>,
}

/// Maximum number of saved states for nested conditions.
const MAX_CONDITIONS: usize = 64;

/// Maximum number of tokens in an arm on the same line as its label.
const MAX_ARM: usize = 200;

struct Planner<'a, 'b> {
    tokens: &'a [FmtToken<'b>],
    forced: &'a [bool],
    lookahead: Lookahead,
    state: LayoutState,
    /// The state at the start of each open condition.
    saved: Vec<LayoutState>,
    /// `true` if the line so far contains only white space and comments.
    blank: bool,
    /// `true` after a comment on a separate line, as long as only separators follow. The comment may then document the
    /// next token.
    chain: bool,
    plan: Plan,
}

/// Computes the layout of `tokens`. `forced` marks the tokens before which a long line is broken.
pub(super) fn plan(tokens: &[FmtToken<'_>], forced: &[bool]) -> Plan {
    let mut planner = Planner {
        tokens,
        forced,
        lookahead: Lookahead::new(tokens),
        state: LayoutState::new(),
        saved: Vec::new(),
        blank: true,
        chain: false,
        plan: Plan::default(),
    };
    for (at, token) in tokens.iter().enumerate() {
        planner.blank |= token.newlines > 0;
        let (gap, soft) = match token.kind {
            FmtTokenKind::LineComment | FmtTokenKind::BlockComment => (planner.comment(at, token), None),
            FmtTokenKind::Verbatim | FmtTokenKind::Directive => (planner.verbatim(token), None),
            _ => planner.code(at, token),
        };
        planner.plan.gaps.push(if at == 0 { Gap::Nothing } else { gap });
        planner.plan.soft.push(soft);
    }
    planner.plan
}

impl Planner<'_, '_> {
    /// Returns the token before the current one.
    fn before(&self) -> Option<&FmtToken<'_>> {
        self.plan.gaps.len().checked_sub(1).and_then(|last| self.tokens.get(last))
    }

    /// Returns the line breaks that the author has put before `token`, but no empty lines at the start and end of
    /// bodies.
    fn kept(&self, token: &FmtToken<'_>, level: usize) -> Gap {
        let opened = self.before().is_some_and(|before| before.is_code() && before.text == "{");
        match token.newlines {
            0 => Gap::Nothing,
            _ if opened || token.text == "}" => Gap::Line(level),
            newlines => Gap::lines(newlines, level),
        }
    }

    fn comment(&mut self, at: usize, token: &FmtToken<'_>) -> Gap {
        self.chain = self.blank;
        let next = self.lookahead.code.get(at).copied().flatten().and_then(|next| self.tokens.get(next));
        // A comment at the end of a body belongs to the body's contents.
        let next = next.map_or("", |next| next.text);
        let level = match next {
            "}" => self.state.inner_indentation(),
            _ => self.state.indentation(next),
        };
        match self.kept(token, level) {
            Gap::Nothing if self.before().is_some_and(|before| before.text == "(") => Gap::Nothing,
            Gap::Nothing => Gap::Blank,
            gap => gap,
        }
    }

    fn verbatim(&mut self, token: &FmtToken<'_>) -> Gap {
        self.chain = false;
        let gap = match self.kept(token, 0) {
            Gap::Nothing => Gap::Blank,
            gap => gap,
        };
        if token.kind == FmtTokenKind::Directive {
            self.blank = true;
            self.condition(token.text);
        }
        gap
    }

    /// Starts each branch of a condition with the state at the `#if`.
    fn condition(&mut self, directive: &str) {
        let words = directive.trim_start_matches('#').trim_start();
        let len = words.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(words.len());
        match words.get(..len).unwrap_or_default() {
            "if" | "ifdef" | "ifndef" if self.saved.len() < MAX_CONDITIONS => self.saved.push(self.state.clone()),
            "else" | "elif" => {
                if let Some(state) = self.saved.last() {
                    self.state = state.clone();
                }
            }
            "endif" => drop(self.saved.pop()),
            _ => {}
        }
    }

    fn code(&mut self, at: usize, token: &FmtToken<'_>) -> (Gap, Option<SoftBreak>) {
        let level = self.state.indentation(token.text);
        let outside = self.state.is_outside();
        let in_one_line = self.state.frame().one_line;
        let forced = self.forced.get(at).copied().unwrap_or(false);
        let opened = self.before().is_some_and(|before| before.is_code() && before.text == "{");
        let want = self.state.take(token, token.text == "{" && self.one_line(at));
        let (gap, soft) = match want {
            LayoutAction::Statement if in_one_line => (Gap::Blank, opened.then_some(SoftBreak::Body)),
            LayoutAction::Statement if opened => (Gap::Line(level), None),
            LayoutAction::Statement => (Gap::lines(token.newlines, level), None),
            LayoutAction::Arm if token.newlines == 0 && !forced && self.is_short(at) => {
                (Gap::Blank, Some(SoftBreak::Arm))
            }
            LayoutAction::Marked if (token.newlines == 0 && !forced) || in_one_line => {
                (Gap::Blank, Some(SoftBreak::Annotation))
            }
            LayoutAction::Arm | LayoutAction::Marked => (Gap::Line(level), None),
            LayoutAction::Argument if forced => (Gap::Line(level + 1), None),
            LayoutAction::Argument => (Gap::Blank, Some(SoftBreak::Argument(level + 1))),
            LayoutAction::Close(_) if opened => (Gap::Nothing, None),
            LayoutAction::Close(true) => (Gap::Blank, None),
            LayoutAction::Close(false) => (Gap::Line(level), None),
            LayoutAction::Separator | LayoutAction::Stray | LayoutAction::Within(false) => (Gap::Nothing, None),
            LayoutAction::Within(true) => (Gap::Blank, None),
        };
        let gap = self.beside_comments(at, token, want, gap, level);
        self.chain &= matches!(want, LayoutAction::Separator | LayoutAction::Stray);
        if !(want == LayoutAction::Stray && outside) {
            self.blank = false;
        }
        (gap, soft.filter(|_| gap == Gap::Blank))
    }

    /// Keeps line breaks near comments. The line breaks determine what a comment documents.
    fn beside_comments(&self, at: usize, token: &FmtToken<'_>, want: LayoutAction, gap: Gap, level: usize) -> Gap {
        let separates = matches!(want, LayoutAction::Separator | LayoutAction::Stray);
        let exact = match self.kept(token, level) {
            Gap::Nothing if separates => Gap::Nothing,
            Gap::Nothing => Gap::Blank,
            gap => gap,
        };
        let comment_follows = self.tokens.get(at + 1).is_some_and(|next| next.is_comment() && next.newlines == 0);
        match self.before() {
            None => gap,
            Some(before) if before.ends_line() => match gap {
                _ if self.chain && !matches!(want, LayoutAction::Close(_)) => exact,
                gap if gap.is_line() => gap,
                _ => Gap::lines(token.newlines, level),
            },
            Some(before) if before.is_comment() => match gap {
                gap if matches!(want, LayoutAction::Close(_)) => {
                    if gap == Gap::Nothing {
                        Gap::Blank
                    } else {
                        gap
                    }
                }
                _ if self.chain => exact,
                gap if gap.is_line() => gap,
                _ if separates && token.newlines > 0 && comment_follows => exact,
                Gap::Nothing if separates || token.text == ")" => Gap::Nothing,
                _ => Gap::Blank,
            },
            Some(_) if self.chain || want == LayoutAction::Stray => exact,
            Some(_) if separates && token.newlines > 0 && comment_follows => exact,
            Some(_) => gap,
        }
    }

    /// Returns `true` if the style permits the body that starts at the brace `open` to be on one line.
    fn one_line(&self, open: usize) -> bool {
        let Some(close) = self.lookahead.closing.get(open).copied().flatten() else { return false };
        let breaks = |at: usize| self.lookahead.breaks.get(at).copied().unwrap_or_default();
        let forced = self.forced.get(open + 1).copied().unwrap_or(false);
        !forced
            && breaks(open) == breaks(close)
            && !matches!(self.state.head(), Some(BracketBody::Union | BracketBody::Program | BracketBody::Namespace))
    }

    /// Returns `true` if the style permits the arm that starts at `at` to be on the line of its label: the arm ends on
    /// the same line, within [`MAX_ARM`] tokens, and contains no `switch`.
    fn is_short(&self, at: usize) -> bool {
        let mut depth = 0_usize;
        for token in self.tokens.iter().skip(at).take(MAX_ARM) {
            match token.text {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                ";" if depth == 0 => return true,
                "switch" => return false,
                _ => {}
            }
            if token.ends_line() || token.text.contains('\n') {
                return false;
            }
        }
        false
    }
}

/// Facts about each token that depend on later tokens.
struct Lookahead {
    /// The number of tokens, up to and including each token, that prevent a surrounding body from being on one line.
    breaks: Vec<usize>,
    /// The index of the closing brace for each opening brace. `None` for other tokens, and for a brace that is not
    /// closed.
    closing: Vec<Option<usize>>,
    /// The index of the next XDR token, starting with the token itself.
    code: Vec<Option<usize>>,
}

impl Lookahead {
    fn new(tokens: &[FmtToken<'_>]) -> Self {
        let mut breaks = Vec::with_capacity(tokens.len());
        let mut closing = vec![None; tokens.len()];
        let mut code = vec![None; tokens.len()];
        let (mut open, mut count, mut next) = (Vec::new(), 0, None);
        for (at, token) in tokens.iter().enumerate() {
            let keeps = token.newlines > 0 || token.ends_line() || token.text == "switch" || token.text.contains('\n');
            count += usize::from(keeps);
            breaks.push(count);
            if token.text == "{" {
                open.push(at);
            } else if token.text == "}"
                && let Some(brace) = open.pop().and_then(|brace| closing.get_mut(brace))
            {
                *brace = Some(at);
            }
        }
        for (at, token) in tokens.iter().enumerate().rev() {
            if token.is_code() {
                next = Some(at);
            }
            if let Some(code) = code.get_mut(at) {
                *code = next;
            }
        }
        Self { breaks, closing, code }
    }
}
