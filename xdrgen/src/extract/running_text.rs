//! Extraction of declarations from running text. RFCs older than the `///` convention have their XDR between paragraphs
//! of prose.
//!
//! A declaration starts at a line with a suitable beginning (`struct name {`, `const name =`) in one of the requested
//! sections. It ends at its `;`, possibly on a later page. Comments at the start of a line are also code. All other
//! text is prose.

use super::{
    ExtractError,
    marked_text::{Found, heading_number, indent_of, without_page_breaks},
};
use crate::lexer::{Lexer, TokenKind, word_len};

/// Extracts the declarations in `sections` and their subsections.
pub(super) fn find(document: &str, sections: &[String]) -> Result<Found, ExtractError> {
    let mut found = Found { code: String::new(), sections: Vec::new(), repairs: Vec::new() };
    let mut here: Option<&str> = None;
    let mut open: Option<OpenDeclaration> = None;
    // Whether to insert a blank line before the next line of code.
    let mut gap = false;
    for (number, line) in without_page_breaks(document) {
        if open.is_none()
            && let Some(section) = heading_number(line)
        {
            here = Some(section);
            continue;
        }
        let Some(section) = here.filter(|here| sections.iter().any(|wanted| is_within(here, wanted))) else { continue };
        if line.trim().is_empty() {
            gap = true;
            continue;
        }
        let current = match open.take() {
            Some(open) => open,
            None if starts_code(line) => {
                OpenDeclaration { line: number, indent: indent_of(line), state: DeclarationState::default() }
            }
            None => {
                gap = true;
                continue;
            }
        };
        if gap && !found.code.is_empty() {
            found.code.push('\n');
        }
        gap = false;
        // Keep all text of a line that has less indentation than the first.
        let cut = current.indent.min(indent_of(line));
        found.code.push_str(line.get(cut..).unwrap_or_default().trim_end());
        found.code.push('\n');
        if !found.sections.iter().any(|known| known == section) {
            found.sections.push(section.to_owned());
        }
        let state = current.state.after(line);
        open = (!state.is_complete()).then_some(OpenDeclaration { state, ..current });
    }
    if let Some(OpenDeclaration { line, .. }) = open {
        return Err(ExtractError::UnclosedDeclaration { line });
    }
    match sections.iter().find(|wanted| !found.sections.iter().any(|section| is_within(section, wanted))) {
        Some(empty) => Err(ExtractError::EmptySection { section: empty.clone() }),
        None => Ok(found),
    }
}

struct OpenDeclaration {
    /// Line number of the start. Counts from 1.
    line: usize,
    indent: usize,
    state: DeclarationState,
}

/// Returns `true` if section `number` is `wanted` or one of its subsections.
fn is_within(number: &str, wanted: &str) -> bool {
    number.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns `true` if a declaration or comment starts on this line. A keyword alone is not enough, because prose also
/// contains words such as `struct`.
fn starts_code(line: &str) -> bool {
    let text = line.trim_start();
    if text.starts_with("/*") {
        return true;
    }
    let Some((keyword, rest)) = text.split_once(' ') else { return false };
    // RFC 1833 §3.1 contains `struct *name {`.
    let rest = rest.trim_start().trim_start_matches('*');
    let (name, after) = rest.split_at(word_len(rest));
    let is_named = !name.is_empty();
    let next = after.trim_start();
    match keyword {
        "const" => is_named && next.starts_with('='),
        "enum" | "struct" | "program" => is_named && next.starts_with('{'),
        "union" | "opaque_union" => is_named && next.starts_with("switch"),
        "typedef" => {
            let code = rest.split("/*").next().unwrap_or_default().trim_end();
            is_named && code.ends_with([';', '{'])
        }
        _ => false,
    }
}

/// Parser state within a declaration.
#[derive(Default, Clone, Copy)]
struct DeclarationState {
    /// Number of open braces.
    depth: u32,
    in_comment: bool,
    /// `true` if the declaration contains anything except comments so far.
    has_code: bool,
    /// `true` if the `;` outside all braces was found.
    is_closed: bool,
}

impl DeclarationState {
    fn after(mut self, line: &str) -> Self {
        let mut code = line;
        if self.in_comment {
            let Some((_, after)) = line.split_once("*/") else { return self };
            self.in_comment = false;
            code = after;
        }
        for token in Lexer::of_grammar(code) {
            match (token.kind, token.text) {
                (TokenKind::OpenComment, _) => self.in_comment = true,
                (TokenKind::Punct, "{") => self.depth += 1,
                (TokenKind::Punct, "}") => self.depth = self.depth.saturating_sub(1),
                (TokenKind::Punct, ";") => self.is_closed |= self.depth == 0,
                _ => {}
            }
            self.has_code |= !token.kind.is_trivia();
        }
        self
    }

    /// Returns `true` if the declaration has ended. A comment that is not within a declaration ends at its `*/`.
    fn is_complete(self) -> bool {
        !self.in_comment && (self.is_closed || !self.has_code)
    }
}
