//! Parsing of programs, versions and procedures (RFC 5531 §12.2).

use pest::iterators::Pair;

use super::{Builder, Rule};
use crate::ast::{ProcedureNode, ProgramNode, VersionNode};

impl Builder<'_, '_> {
    pub(super) fn program(&mut self, pair: Pair<'_, Rule>) -> Option<ProgramNode> {
        let (mut name, mut number) = (None, None);
        let mut versions = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::name => name = Some(self.ident(&part)),
                Rule::value => number = Some(self.value(part)?),
                Rule::version_def => versions.push(self.version(part)?),
                _ => {}
            }
        }
        Some(ProgramNode { name: name?, versions, number: number? })
    }

    fn version(&mut self, pair: Pair<'_, Rule>) -> Option<VersionNode> {
        let doc = self.comments.above(self.range(&pair).start);
        let (mut name, mut base, mut number) = (None, None, None);
        let mut annotations = Vec::new();
        let mut procedures = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::annotation => annotations.push(self.annotation(part)?),
                Rule::name => name = Some(self.ident(&part)),
                Rule::base => {
                    base = part.into_inner().find(|inner| inner.as_rule() == Rule::name).map(|name| self.ident(&name));
                }
                Rule::value => number = Some(self.value(part)?),
                Rule::procedure => procedures.push(self.procedure(part)?),
                _ => {}
            }
        }
        Some(VersionNode { annotations, doc, name: name?, base, procedures, number: number? })
    }

    fn procedure(&mut self, pair: Pair<'_, Rule>) -> Option<ProcedureNode> {
        let span = self.span(&pair);
        let doc = self.comments.of(span.range.start, span.range.end);
        let (mut name, mut number, mut result) = (None, None, None);
        let mut annotations = Vec::new();
        let mut parameters = Vec::new();
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::annotation => annotations.push(self.annotation(part)?),
                // `void` has no type.
                Rule::result if part.clone().into_inner().any(|inner| inner.as_rule() == Rule::type_spec) => {
                    result = Some(self.bare_declaration(part)?);
                }
                Rule::name => name = Some(self.ident(&part)),
                Rule::parameter => parameters.push(self.bare_declaration(part)?),
                Rule::value => number = Some(self.value(part)?),
                _ => {}
            }
        }
        Some(ProcedureNode { annotations, doc, span, name: name?, result, parameters, number: number? })
    }
}
