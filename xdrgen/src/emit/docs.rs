//! Conversion of specification comments to rustdoc. The text is kept, and markup is escaped.

use proc_macro2::TokenStream;
use quote::quote;

use super::names::RustName;

/// Returns one `#[doc]` attribute for each line. The printer writes such attributes as `///` comments.
pub(crate) fn attributes(lines: &[String]) -> TokenStream {
    let lines = lines.iter().map(|line| if line.is_empty() { String::new() } else { format!(" {line}") });
    quote!(#(#[doc = #lines])*)
}

/// A builder of documentation, with empty lines between paragraphs.
#[derive(Debug, Default)]
pub(crate) struct Docs {
    lines: Vec<String>,
}

impl Docs {
    /// Creates documentation from a comment. If the comment is empty, uses the Markdown text `otherwise`.
    pub(crate) fn new(comment: &[String], otherwise: &str) -> Self {
        let mut docs = Self::default();
        docs.comment(comment);
        if docs.lines.is_empty() {
            docs.paragraph(otherwise);
        }
        docs
    }

    /// Appends a paragraph of Markdown.
    pub(crate) fn paragraph(&mut self, markdown: &str) -> &mut Self {
        self.separate();
        self.lines.extend(markdown.lines().map(str::to_owned));
        self
    }

    /// Appends the text of a comment. Escapes prose. A paragraph whose layout is significant becomes a code block.
    pub(crate) fn comment(&mut self, comment: &[String]) -> &mut Self {
        // The width of a tab in a doc comment is undefined.
        let comment: Vec<String> = comment.iter().map(|line| expand(line)).collect();
        for block in comment.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
            let margin = block.iter().map(|line| indentation(line)).min().unwrap_or(0);
            let block: Vec<&str> = block.iter().map(|line| line.get(margin..).unwrap_or(line).trim_end()).collect();
            if block.iter().any(|line| is_laid_out(line)) {
                self.fenced("text", &block);
            } else {
                self.separate();
                self.lines.extend(block.iter().map(|line| escape(line)));
            }
        }
        self
    }

    /// Appends `lines` as a code block. Expands tabs, and removes control characters.
    pub(crate) fn fenced(&mut self, language: &str, lines: &[&str]) -> &mut Self {
        self.separate();
        let longest = lines.iter().map(|line| longest_run(line, '`')).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        self.lines.push(format!("{fence}{language}"));
        self.lines.extend(lines.iter().map(|&line| expand(line)));
        self.lines.push(fence);
        self
    }

    /// Appends an XDR declaration as a code block. Appends nothing if `text` is blank.
    pub(crate) fn xdr(&mut self, text: &str) -> &mut Self {
        let lines: Vec<&str> = text.lines().map(str::trim_end).skip_while(|line| line.is_empty()).collect();
        let end = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
        if end > 0 {
            self.fenced("xdr", &lines[..end]);
        }
        self
    }

    /// Appends an explanation if the Rust name of `xdr` ends in a number because of a collision.
    pub(crate) fn rename(&mut self, xdr: &str, name: &RustName) {
        if let Some(plain) = &name.instead_of {
            let xdr = xdr.replace('`', "");
            self.paragraph(&format!("The Rust name of `{xdr}` ends in a number because `{plain}` is already in use."));
        }
    }

    /// Returns the `#[doc]` attributes of the documentation.
    pub(crate) fn attributes(&self) -> TokenStream {
        attributes(&self.lines)
    }

    fn separate(&mut self) {
        if !self.lines.is_empty() {
            self.lines.push(String::new());
        }
    }
}

/// Expands tabs to multiples of eight columns, removes other control characters, and escapes characters that change the
/// direction of text.
fn expand(line: &str) -> String {
    let mut expanded = String::with_capacity(line.len());
    for c in line.chars() {
        match c {
            '\t' => {
                let column = expanded.chars().count();
                expanded.extend(std::iter::repeat_n(' ', 8 - column % 8));
            }
            // rustc rejects characters that change the direction of source text.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => expanded.extend(c.escape_unicode()),
            c if c.is_control() => {}
            c => expanded.push(c),
        }
    }
    expanded
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns `true` if the layout of a comment line is significant, as in tables, diagrams or code.
fn is_laid_out(line: &str) -> bool {
    let text = line.trim_start();
    // Two spaces after a full stop are not significant.
    let inner = text.replace(".  ", ". ");
    indentation(line) >= 2 || inner.contains("  ") || longest_run(text, '-') > 3 || longest_run(text, '=') > 2
}

fn longest_run(line: &str, of: char) -> usize {
    line.split(|c| c != of).map(|run| run.chars().count()).max().unwrap_or(0)
}

/// Escapes everything in a line of prose that Markdown or rustdoc would interpret, except code between backticks. Trims
/// the line, and turns bare URLs into links.
pub(crate) fn escape(line: &str) -> String {
    let line = line.trim();
    let mut escaped = String::with_capacity(line.len() + 8);
    let parts: Vec<&str> = line.split('`').collect();
    // A single backtick may be a quotation mark, as in `this', and two have no code between them.
    let is_code = |index: usize| {
        let inner = parts.get(index).copied().unwrap_or_default();
        index % 2 == 1 && index + 1 < parts.len() && !inner.is_empty() && inner == inner.trim()
    };
    let are_codes = parts.len() > 1 && (1..parts.len()).step_by(2).all(is_code);
    if !are_codes {
        escape_words(line, true, &mut escaped);
        return escaped;
    }
    for (index, part) in parts.iter().enumerate() {
        if is_code(index) {
            escaped.push_str(&format!("`{part}`"));
        } else {
            escape_words(part, index == 0, &mut escaped);
        }
    }
    escaped
}

/// Escapes words of prose. `first` is `true` if the first word begins a line.
fn escape_words(words: &str, first: bool, escaped: &mut String) {
    for (at, word) in words.split(' ').enumerate() {
        if at > 0 {
            escaped.push(' ');
        }
        escape_word(word, first && at == 0, escaped);
    }
}

fn escape_word(word: &str, first: bool, escaped: &mut String) {
    // Turn a bare URL into a link, because rustdoc warns about bare URLs.
    for scheme in ["http://", "https://"] {
        if let Some(start) = word.find(scheme) {
            let url = word[start..].trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '/');
            if url.len() > scheme.len() && !url.contains(['<', '>', '`', '\\', '"']) {
                escape_word(&word[..start], first, escaped);
                escaped.push_str(&format!("<{url}>"));
                escape_word(&word[start + url.len()..], false, escaped);
                return;
            }
        }
    }
    // At the start of a line these make headings, lists, quotes.
    if first && word.starts_with(['#', '+', '-', '=', '>', ':']) {
        escaped.push('\\');
    }
    let numbered = first && {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < word.len() && (digits == "." || digits == ")")
    };
    let chars: Vec<char> = word.chars().collect();
    for (i, &c) in chars.iter().enumerate() {
        let within = i > 0 && chars[i - 1].is_alphanumeric() && chars.get(i + 1).is_some_and(|c| c.is_alphanumeric());
        let special = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '|' | '~' | '&' => true,
            '_' => !within,
            '.' | ')' => numbered && i + 1 == chars.len(),
            _ => false,
        };
        if special {
            escaped.push('\\');
        }
        escaped.push(c);
    }
}
