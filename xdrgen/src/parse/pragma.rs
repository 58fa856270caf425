//! Pragmas of the Linux kernel's XDR compiler.
//!
//! Most pragmas concern the C code of the kernel. Only `pages` and `skip` matter here, because they name items that are
//! worth placing directly.

use pest::iterators::Pair;

use super::{Builder, Rule};
use crate::{
    ast::{Ident, Path, Statement},
    diag::{Code, Diagnostic},
};

/// The pragmas that the compiler accepts. All except `pages` and `skip` have no effect.
const PRAGMAS: [&str; 6] = ["big_endian", "exclude", "header", "public", "pages", "skip"];

/// The pragmas that mark an item as bulk data. Their arguments are a type and one of its items.
const HINTS: [&str; 2] = ["pages", "skip"];

impl Builder<'_, '_> {
    /// Checks a pragma, and records it if it is a hint. Returns `None` after reporting an error.
    pub(super) fn pragma(&mut self, pair: Pair<'_, Rule>) -> Option<()> {
        let span = self.span(&pair);
        let mut keyword: Option<Ident> = None;
        let mut parts: Vec<Ident> = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::directive => keyword = Some(self.ident(&part)),
                Rule::name => parts.push(self.ident(&part)),
                _ => {}
            }
        }
        let keyword = keyword?;
        let word = keyword.text.as_str();
        if !PRAGMAS.contains(&word) {
            self.diagnostics.push(
                Diagnostic::new(Code::BadAnnotation, format!("there is no pragma `{word}`"))
                    .at(&keyword.span, "unknown")
                    .list("pragmas", PRAGMAS.into_iter())
                    .did_you_mean(word, &keyword.span, PRAGMAS.into_iter()),
            );
            return None;
        }
        let is_hint = HINTS.contains(&word);
        if let ([_, second], false) = (parts.as_slice(), is_hint) {
            let message = format!("`pragma {word}` takes one name");
            self.diagnostics.push(Diagnostic::new(Code::BadArguments, message).at(&second.span, ""));
            return None;
        }
        if is_hint {
            let at = parts.first().zip(parts.last());
            let path = at.map_or_else(|| span.clone(), |(first, last)| crate::source::join(&first.span, &last.span));
            let keyword = Ident { text: "ddp".to_owned(), span: keyword.span };
            let paths = vec![Path { parts, span: path }];
            self.hints.push(Statement { keyword, procedure: None, paths, setting: None, span });
        }
        Some(())
    }
}
