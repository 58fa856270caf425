//! A builder for HTML and SVG. Markup must be known at compile time; all other text is escaped.

use std::fmt::{self, Write as _};

/// A builder of HTML text.
#[derive(Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// Adds markup. The `'static` lifetime ensures that text from the specification is never used as markup.
    pub(super) fn raw(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Adds escaped text, in an element or in a quoted attribute value. Replaces direction overrides, and control
    /// characters except line feeds and tabs, with U+FFFD.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                // HTML does not allow control characters, and direction overrides could make text misleading.
                c if c.is_control() || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}') => {
                    self.0.push('\u{FFFD}');
                }
                c => self.0.push(c),
            }
        }
        self
    }

    /// Adds formatted values as escaped text.
    pub(super) fn show(&mut self, values: fmt::Arguments<'_>) -> &mut Self {
        self.text(&values.to_string())
    }

    /// Adds a number.
    pub(super) fn number(&mut self, number: impl Into<i64>) -> &mut Self {
        let _ = write!(self.0, "{}", number.into());
        self
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Truncates `text` to `max` characters. The last character of a truncated text is an ellipsis.
pub(super) fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut html = Html::default();
        html.raw("<b title=\"").text("\"><script>'&\u{202E}\0").raw("\">");
        assert_eq!(html.finish(), "<b title=\"&quot;&gt;&lt;script&gt;&#39;&amp;\u{FFFD}\u{FFFD}\">");
    }

    #[test]
    fn long_text_is_truncated_between_characters() {
        assert_eq!((cut("äöü", 3), cut("äöüß", 3)), ("äöü".to_owned(), "äö…".to_owned()));
    }
}
