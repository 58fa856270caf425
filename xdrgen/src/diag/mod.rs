//! Diagnostics: errors and warnings with their positions in the source. One run can report many.

mod code;
mod render;

pub use code::Code;

use std::{fmt, sync::Arc};

use crate::{
    did_you_mean,
    source::{Sources, Span},
};

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The compiler still produces output.
    Warning,
    /// The compiler produces no output.
    Error,
}

/// A position in the source with an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The position in the source.
    pub span: Span,
    /// The explanation. May be empty for the primary label.
    pub text: String,
}

/// A replacement of source text that is likely to fix the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The text to replace. An empty range marks an insertion.
    pub span: Span,
    /// The new text.
    pub replacement: String,
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The code, which identifies the rule behind the diagnostic. Users search for the code, and tests compare it.
    pub code: Code,
    /// The problem, in one line.
    pub message: String,
    /// The position of the problem. `None` if the problem is outside the sources, for example a file that cannot be
    /// read.
    pub primary: Option<Label>,
    /// Related positions, for example of an earlier declaration.
    pub secondary: Vec<Label>,
    /// Background facts, such as the requirement of a specification or a list of the known names.
    pub notes: Vec<String>,
    /// Instructions for the user.
    pub helps: Vec<String>,
    /// Replacements that an editor can offer.
    pub suggestions: Vec<Suggestion>,
}

impl Diagnostic {
    /// Creates a diagnostic without a position.
    #[must_use]
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            primary: None,
            secondary: Vec::new(),
            notes: Vec::new(),
            helps: Vec::new(),
            suggestions: Vec::new(),
        }
    }

    /// Sets the primary position, with the explanation `text`.
    #[must_use]
    pub(crate) fn at(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.primary = Some(Label { span: span.clone(), text: text.into() });
        self
    }

    /// Adds a related position, with the explanation `text`.
    #[must_use]
    pub(crate) fn also(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span: span.clone(), text: text.into() });
        self
    }

    /// Adds a background fact, such as the requirement of a specification.
    #[must_use]
    pub(crate) fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Adds an instruction for the user.
    #[must_use]
    pub(crate) fn help(mut self, text: impl Into<String>) -> Self {
        self.helps.push(text.into());
        self
    }

    /// Suggests replacing `word`, the text at `span`, with the most similar known name. Adds nothing if no known name
    /// is similar enough.
    #[must_use]
    pub(crate) fn did_you_mean<'a>(self, word: &str, span: &Span, known: impl Iterator<Item = &'a str>) -> Self {
        match did_you_mean::of(word, known) {
            Some(other) => self.help(format!("did you mean `{other}`?")).suggest(span, other),
            None => self,
        }
    }

    /// Adds a note that lists at most 12 of the known names after `what`, for example "its versions: `A`, `B` and `C`".
    /// Adds nothing if there are no known names.
    #[must_use]
    pub(crate) fn list<'a>(self, what: &str, known: impl Iterator<Item = &'a str>) -> Self {
        /// Maximum number of names to list.
        const MAX_LISTED: usize = 12;
        let names: Vec<String> = known.map(|name| format!("`{name}`")).collect();
        match names.as_slice() {
            [] => self,
            [one] => self.note(format!("{what}: {one}")),
            names if names.len() > MAX_LISTED => {
                let (shown, more) = (names[..MAX_LISTED].join(", "), names.len() - MAX_LISTED);
                self.note(format!("{what}: {shown} and {more} more"))
            }
            [names @ .., last] => self.note(format!("{what}: {} and {last}", names.join(", "))),
        }
    }

    /// Adds a replacement that an editor can offer.
    #[must_use]
    pub(crate) fn suggest(mut self, span: &Span, replacement: impl Into<String>) -> Self {
        self.suggestions.push(Suggestion { span: span.clone(), replacement: replacement.into() });
        self
    }

    /// Returns the severity of the code.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// All diagnostics of a run, with the sources that they refer to. `Display` formats them in rustc's style, without
/// colours.
#[derive(Debug, Clone, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
    sources: Arc<Sources>,
}

impl Diagnostics {
    pub(crate) fn new(mut list: Vec<Diagnostic>, sources: Arc<Sources>) -> Self {
        for diagnostic in &mut list {
            let labels = diagnostic.primary.iter_mut().chain(&mut diagnostic.secondary).map(|label| &mut label.text);
            let texts = labels.chain(&mut diagnostic.notes).chain([&mut diagnostic.message]);
            texts.for_each(shorten);
        }
        let key = |d: &Diagnostic| d.primary.as_ref().map(|l| (l.span.file, l.span.range.start));
        list.sort_by_key(key);
        list.dedup();
        Self { list, sources }
    }

    /// Returns the diagnostics in order of their positions. Diagnostics without a position come first.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// Returns the sources that the spans refer to.
    #[must_use]
    pub fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }

    /// Returns the number of errors, excluding warnings.
    #[must_use]
    pub fn error_count(&self) -> usize {
        self.list.iter().filter(|d| d.severity() == Severity::Error).count()
    }

    /// Returns `true` if there are no diagnostics.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Formats the diagnostics with their source lines. `colour` adds ANSI colours for a terminal.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        render::render(&self.list, &self.sources, colour)
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

/// Shortens the long quotations of source text in a message. Quotations are between backticks.
fn shorten(message: &mut String) {
    /// Maximum length, in characters, of a quotation that is not shortened.
    const WHOLE: usize = 80;
    /// Numbers of characters to keep at the beginning and at the end of a longer quotation.
    const ENDS: (usize, usize) = (40, 10);
    if message.len() <= WHOLE {
        return;
    }
    let parts = message.split('`').enumerate().map(|(index, part)| {
        let count = part.chars().count();
        if index % 2 == 0 || count <= WHOLE {
            return part.to_owned();
        }
        let head: String = part.chars().take(ENDS.0).collect();
        let tail: String = part.chars().skip(count - ENDS.1).collect();
        format!("{head}...{tail}")
    });
    *message = parts.collect::<Vec<_>>().join("`");
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn only_long_quotations_are_shortened() {
        let long = "1".repeat(60) + &"2".repeat(60);
        let mut message = format!("`short` and `{long}` in {long}");
        shorten(&mut message);
        assert_eq!(message, format!("`short` and `{}...{}` in {long}", "1".repeat(40), "2".repeat(10)));
        let mut path = format!("cannot read {long}");
        shorten(&mut path);
        assert_eq!(path, format!("cannot read {long}"));
    }
}
