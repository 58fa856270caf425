//! Parser for the statements of `.ulb` files.

use pest::{Parser as _, iterators::Pair};

use super::{Builder, Rule, comments::Comments, grammar::Grammar, syntax_error};
use crate::{
    ast::{Path, Statement},
    diag::Diagnostic,
    scan,
};

/// Parses the statements of `text`, which is the source with index `file`.
pub(crate) fn parse(file: usize, text: &str, diagnostics: &mut Vec<Diagnostic>) -> Vec<Statement> {
    let scan = scan::scan(file, text);
    diagnostics.extend(scan.diagnostics);
    let comments = Comments::new(text, &scan.comments);
    let mut statements = Vec::new();
    let mut errors = 0;
    for unit in scan.units {
        match Grammar::parse(Rule::binding, text.get(unit.clone()).unwrap_or_default()) {
            Ok(mut pairs) => {
                let (annotations, hints) = (&mut Vec::new(), &mut Vec::new());
                let mut builder = Builder {
                    file,
                    base: unit.start,
                    comments: &comments,
                    annotations,
                    hints,
                    operators: 0,
                    diagnostics,
                };
                let statement = pairs.next().and_then(|pair| pair.into_inner().next());
                statements.extend(statement.and_then(|pair| builder.statement(pair)));
            }
            Err(error) => {
                diagnostics.push(syntax_error::describe(file, text, &comments, &unit, &error));
                errors += 1;
                if errors >= super::MAX_SYNTAX_ERRORS {
                    break;
                }
            }
        }
    }
    statements
}

impl Builder<'_, '_> {
    fn statement(&mut self, pair: Pair<'_, Rule>) -> Option<Statement> {
        let span = self.span(&pair);
        let (mut keyword, mut procedure, mut setting) = (None, None, None);
        let mut paths = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::word => keyword = Some(self.ident(&part)),
                Rule::path => paths.push(self.path(part)),
                Rule::colon => procedure = paths.pop(),
                Rule::setting => {
                    let mut name = None;
                    for inner in part.into_inner() {
                        match inner.as_rule() {
                            Rule::setting_name => name = Some(self.ident(&inner)),
                            Rule::expr => setting = Some((name.take(), self.expr(inner)?)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Some(Statement { keyword: keyword?, procedure, paths, setting, span })
    }

    pub(super) fn path(&self, pair: Pair<'_, Rule>) -> Path {
        let span = self.span(&pair);
        let parts = pair.into_inner().filter(|inner| inner.as_rule() == Rule::word);
        Path { parts: parts.map(|inner| self.ident(&inner)).collect(), span }
    }
}
