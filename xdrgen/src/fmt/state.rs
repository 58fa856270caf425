//! Tracking of the syntactic state that the layout depends on: the current body and the position within a statement.
//!
//! The state is derived from brackets and the words before them. The grammar cannot be used, because it does not see
//! inactive branches of conditions.

use super::lex::{FmtToken, FmtTokenKind};

/// The construct that a bracket opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BracketBody {
    /// No construct: the file itself.
    Top,
    Struct,
    Union,
    Enum,
    /// The body of a program or a version.
    Program,
    Namespace,
    /// The arguments of an annotation.
    Annotation,
    /// Parentheses that do not enclose the arguments of an annotation.
    Round,
    /// `[` or `<`.
    Length,
}

impl BracketBody {
    fn is_braces(self) -> bool {
        !matches!(self, Self::Annotation | Self::Round | Self::Length)
    }
}

/// A bracket that is still open.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenBracket {
    pub(super) body: BracketBody,
    /// Indentation level of the contents. Labels in a union are indented by one level less.
    level: usize,
    pub(super) one_line: bool,
    /// `true` if the contents are expressions.
    value: bool,
}

const TOP: OpenBracket = OpenBracket { body: BracketBody::Top, level: 0, one_line: false, value: false };

/// Maximum number of open brackets. Only inactive text can nest deeper, because the compiler rejects active text that
/// does.
const MAX_OPEN_BRACKETS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AnnotationState {
    None,
    At,
    Name,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelState {
    None,
    Open,
    Ended,
}

/// The effect of a token on the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LayoutAction {
    /// Starts a statement.
    Statement,
    /// Starts the declaration after a label.
    Arm,
    /// Starts a declaration after its annotations.
    Marked,
    /// Starts an argument other than the first.
    Argument,
    /// A `;` or `,`.
    Separator,
    /// A `;` without a statement.
    Stray,
    /// Ends a body. The value is `true` if the body is on one line.
    Close(bool),
    /// Continues a statement. The value is `true` if a blank precedes the token.
    Within(bool),
}

/// The syntactic state before the next token: the open brackets and the position within the current statement.
#[derive(Debug, Clone)]
pub(super) struct LayoutState {
    frames: Vec<OpenBracket>,
    /// `true` if the next token starts a statement.
    start: bool,
    /// `true` if the current statement has tokens other than annotations.
    has_started: bool,
    /// The construct that a `{` in the current statement opens.
    head: Option<BracketBody>,
    /// `true` if an expression is allowed at this position.
    value: bool,
    annotation: AnnotationState,
    label: LabelState,
    /// Indentation level of the current statement.
    level: usize,
    /// The previous token.
    last: LastToken,
}

#[derive(Debug, Clone, Copy, Default)]
struct LastToken {
    word: bool,
    /// `true` if the token is `switch` or `case`.
    keyword: bool,
    first: u8,
    joined: bool,
}

impl LayoutState {
    pub(super) fn new() -> Self {
        Self {
            frames: vec![TOP],
            start: true,
            has_started: false,
            head: None,
            value: false,
            annotation: AnnotationState::None,
            label: LabelState::None,
            level: 0,
            last: LastToken::default(),
        }
    }

    pub(super) fn frame(&self) -> OpenBracket {
        self.frames.last().copied().unwrap_or(TOP)
    }

    /// Returns the indentation level of a line that starts with `text`.
    pub(super) fn indentation(&self, text: &str) -> usize {
        let frame = self.frame();
        if text == "}" {
            let body = self.frames.iter().rev().find(|frame| frame.body.is_braces());
            let indented = body.is_some_and(|frame| frame.body != BracketBody::Namespace);
            return self.inner_indentation().saturating_sub(usize::from(indented));
        }
        if self.start {
            let label = matches!(text, "case" | "default") && frame.body == BracketBody::Union;
            return frame.level.saturating_sub(usize::from(label));
        }
        let marked = frame.body.is_braces() && !self.has_started && self.annotation != AnnotationState::At;
        self.level + usize::from(!marked)
    }

    /// Returns the indentation level of the contents of the current body.
    pub(super) fn inner_indentation(&self) -> usize {
        self.frames.iter().rev().find(|frame| frame.body.is_braces()).map_or(0, |frame| frame.level)
    }

    /// Returns the construct that a `{` would open at the current position.
    pub(super) fn head(&self) -> Option<BracketBody> {
        self.head
    }

    /// Returns `true` if the current position is outside all definitions.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.frame().body, BracketBody::Top | BracketBody::Namespace)
    }

    /// Advances the state by an XDR token. For a `{`, `one_line` is `true` if its body is on one line.
    pub(super) fn take(&mut self, token: &FmtToken<'_>, one_line: bool) -> LayoutAction {
        if self.annotation == AnnotationState::Name && token.text != "(" {
            self.annotation = AnnotationState::Ended;
        }
        let frame = self.frame();
        match token.text {
            "}" => return self.close_body(),
            ";" => {
                let stray = self.start && self.label == LabelState::None;
                self.end_statement();
                return if stray { LayoutAction::Stray } else { LayoutAction::Separator };
            }
            "," => {
                if frame.body == BracketBody::Enum {
                    self.end_statement();
                }
                self.last = LastToken { first: b',', ..LastToken::default() };
                return LayoutAction::Separator;
            }
            _ => {}
        }
        let want = if self.start {
            self.level = self.indentation(token.text);
            let label = matches!(token.text, "case" | "default") && frame.body == BracketBody::Union;
            if self.label == LabelState::Ended && !label { LayoutAction::Arm } else { LayoutAction::Statement }
        } else if self.annotation == AnnotationState::Ended && frame.body.is_braces() && !self.has_started {
            LayoutAction::Marked
        } else if self.last.first == b',' && frame.body == BracketBody::Round && !frame.value {
            LayoutAction::Argument
        } else {
            LayoutAction::Within(self.blank(token))
        };
        self.follow(token, one_line, frame);
        want
    }

    fn close_body(&mut self) -> LayoutAction {
        while self.frames.len() > 1 && !self.frame().body.is_braces() {
            self.frames.pop();
        }
        let frame = self.frame();
        self.level = self.indentation("}");
        if self.frames.len() > 1 {
            self.frames.pop();
        }
        self.end_statement();
        // No `;` follows the body of a namespace.
        self.start = frame.body == BracketBody::Namespace;
        self.has_started = !self.start;
        self.last = LastToken { first: b'}', ..LastToken::default() };
        LayoutAction::Close(frame.one_line)
    }

    fn end_statement(&mut self) {
        while self.frames.len() > 1 && !self.frame().body.is_braces() {
            self.frames.pop();
        }
        self.start = true;
        self.has_started = false;
        self.head = None;
        self.value = false;
        self.annotation = AnnotationState::None;
        self.label = LabelState::None;
        self.last = LastToken { first: b';', ..LastToken::default() };
    }

    /// Updates the state after a token that is neither a separator nor a `}`.
    fn follow(&mut self, token: &FmtToken<'_>, one_line: bool, frame: OpenBracket) {
        let value = self.value || frame.value || self.label == LabelState::Open;
        let joined = self.is_prefix(token, value) || token.text == "::";
        let first_word = self.start || (!self.has_started && self.annotation == AnnotationState::Ended);
        self.start = false;
        let annotation = match (self.annotation, token.text) {
            (_, "@") => AnnotationState::At,
            (AnnotationState::At, _) if token.kind == FmtTokenKind::Word => AnnotationState::Name,
            (AnnotationState::Name, "(") => AnnotationState::None,
            (_, ")") if frame.body == BracketBody::Annotation => AnnotationState::Ended,
            _ => AnnotationState::None,
        };
        let in_annotation = frame.body == BracketBody::Annotation || self.annotation == AnnotationState::Name;
        let opens_annotation = self.annotation == AnnotationState::Name && token.text == "(";
        self.annotation = annotation;
        let brackets = self.frames.iter().rev().take_while(|frame| !frame.body.is_braces());
        if annotation == AnnotationState::None
            && !in_annotation
            && brackets.clone().all(|f| f.body != BracketBody::Annotation)
        {
            self.has_started = true;
        }
        match token.text {
            "struct" => self.head = Some(BracketBody::Struct),
            "enum" => self.head = Some(BracketBody::Enum),
            "union" => self.head = Some(BracketBody::Union),
            // In other positions, these words are names.
            "opaque_union" if first_word => self.head = Some(BracketBody::Union),
            "program" | "version" if first_word => self.head = Some(BracketBody::Program),
            "namespace" if first_word => self.head = Some(BracketBody::Namespace),
            "case" | "default" if first_word && frame.body == BracketBody::Union => self.label = LabelState::Open,
            ":" if self.label == LabelState::Open => {
                self.end_statement();
                self.label = LabelState::Ended;
            }
            "=" => self.value = true,
            "{" => {
                let body = self.head.take().unwrap_or(BracketBody::Struct);
                // The contents of a namespace have the indentation of the enclosing scope.
                let level = self.level + usize::from(body != BracketBody::Namespace);
                self.push(OpenBracket { body, level, one_line, value: false });
                self.end_statement();
            }
            "(" if opens_annotation => self.push(OpenBracket { body: BracketBody::Annotation, value: true, ..frame }),
            "(" => self.push(OpenBracket { body: BracketBody::Round, value, ..frame }),
            "[" | "<" => self.push(OpenBracket { body: BracketBody::Length, value: true, ..frame }),
            ")" if matches!(frame.body, BracketBody::Annotation | BracketBody::Round) => drop(self.frames.pop()),
            "]" | ">" if frame.body == BracketBody::Length => drop(self.frames.pop()),
            _ => {}
        }
        self.last = LastToken {
            word: token.kind == FmtTokenKind::Word,
            keyword: matches!(token.text, "switch" | "case"),
            // `<<` is not a bracket, so only single-character tokens count.
            first: token.text.bytes().next().filter(|_| token.text.len() == 1).unwrap_or_default(),
            joined,
        };
    }

    fn push(&mut self, frame: OpenBracket) {
        if self.frames.len() < MAX_OPEN_BRACKETS {
            self.frames.push(frame);
        }
    }

    /// Returns `true` if `token` is an operator that is attached to the next token, such as a sign or the `*` of an
    /// optional type.
    fn is_prefix(&self, token: &FmtToken<'_>, value: bool) -> bool {
        match token.text {
            "*" => !value,
            "~" | "!" => true,
            "-" | "+" => !((self.last.word && !self.last.keyword) || matches!(self.last.first, b')' | b']')),
            _ => false,
        }
    }

    /// Returns `true` if a blank precedes a token that continues a statement.
    fn blank(&self, token: &FmtToken<'_>) -> bool {
        if self.last.joined || matches!(self.last.first, b'@' | b'.') {
            return false;
        }
        match token.text {
            // `version NAME : BASE`, and not the end of a label.
            ":" => self.head == Some(BracketBody::Program),
            ")" | "]" | ">" | "." | "[" | "<" => false,
            "(" if self.last.word => self.last.keyword,
            "::" if self.last.word => self.last.keyword,
            _ => !matches!(self.last.first, b'(' | b'[' | b'<'),
        }
    }
}
