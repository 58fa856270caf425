//! What the compiler has to say about a source: errors and warnings with their places, many per run.

mod code;
mod render;

pub use code::Code;

use std::{fmt, sync::Arc};

use crate::source::{Sources, Span};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Output can be used.
    Warning,
    /// There is no output.
    Error,
}

/// A place, and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What; may be empty for the primary label.
    pub text: String,
}

/// A change of a text that would make it right, likely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What to replace; empty where something is to be added.
    pub span: Span,
    /// By what.
    pub replacement: String,
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Its code: what a search finds, and what a test compares.
    pub code: Code,
    /// What is wrong, in a line.
    pub message: String,
    /// Where. No place when the trouble is outside of the texts, as a file that cannot be read.
    pub primary: Option<Label>,
    /// Other places that have to do with it.
    pub secondary: Vec<Label>,
    /// Why: what a specification requires.
    pub notes: Vec<String>,
    /// What to do.
    pub helps: Vec<String>,
    /// What an editor can offer to do.
    pub suggestions: Vec<Suggestion>,
}

impl Diagnostic {
    /// A diagnostic without a place.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
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

    /// Sets the place it is about.
    #[must_use]
    pub fn at(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.primary = Some(Label { span: span.clone(), text: text.into() });
        self
    }

    /// Adds another place.
    #[must_use]
    pub fn also(mut self, span: &Span, text: impl Into<String>) -> Self {
        self.secondary.push(Label { span: span.clone(), text: text.into() });
        self
    }

    /// Adds a reason.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.helps.push(text.into());
        self
    }

    /// Adds a change that an editor can make.
    #[must_use]
    pub fn suggest(mut self, span: &Span, replacement: impl Into<String>) -> Self {
        self.suggestions.push(Suggestion { span: span.clone(), replacement: replacement.into() });
        self
    }

    /// Error or warning.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }
}

/// All diagnostics of a run, with the texts they are about. Displayed as rustc's are, without colour.
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

    /// In order of their places.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// The texts that their spans are places of.
    #[must_use]
    pub fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }

    /// How many errors there are, warnings not counted.
    #[must_use]
    pub fn error_count(&self) -> usize {
        self.list.iter().filter(|d| d.severity() == Severity::Error).count()
    }

    /// Whether there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// As text, with the source lines; with colours for a terminal.
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

/// Cuts what a message quotes from a text between backticks, if it is long.
fn shorten(message: &mut String) {
    /// The most characters that are quoted whole.
    const WHOLE: usize = 80;
    /// The characters that are left at the beginning and at the end of a longer quotation.
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
    fn only_long_quotations_are_cut() {
        let long = "1".repeat(60) + &"2".repeat(60);
        let mut message = format!("`short` and `{long}` in {long}");
        shorten(&mut message);
        assert_eq!(message, format!("`short` and `{}...{}` in {long}", "1".repeat(40), "2".repeat(10)));
        let mut path = format!("cannot read {long}");
        shorten(&mut path);
        assert_eq!(path, format!("cannot read {long}"));
    }
}
