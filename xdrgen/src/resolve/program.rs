//! Programs, versions and procedures (RFC 5531 §12).

use std::collections::HashMap;

use super::{errors::duplicate, lower::Lowering, place::AnnotationPlace};
use crate::{
    ast::{self, DefinitionKind, Dialect, TypeKind, Value},
    diag::{Code, Diagnostic},
    ir::{Expr, Name, Procedure, Program, ReplyBounds, Version},
    source::Span,
};

impl Lowering<'_> {
    pub(super) fn programs(&mut self) -> Vec<Program> {
        let mut programs = Vec::new();
        let mut names = HashMap::new();
        for definition in self.files.iter().flat_map(|file| &file.definitions) {
            let DefinitionKind::Program(program) = &definition.kind else { continue };
            let at = programs.len();
            if let Some(first) = names.insert(&program.name.text, &program.name.span) {
                self.types.out.push(duplicate("program", &program.name.text, first, &program.name.span));
            }
            self.mark(AnnotationPlace::Program(at), &definition.annotations);
            let mut seen = UsedNumbers::default();
            let versions = program.versions.iter().enumerate();
            let versions = versions.map(|(index, version)| self.version((at, index), version, &mut seen)).collect();
            programs.push(Program {
                name: name(&program.name),
                number: self.number(&program.number).unwrap_or_default(),
                doc: definition.doc.clone(),
                versions,
                port: None,
            });
        }
        same_programs(&programs, self.types.out);
        programs
    }

    fn version<'s>(
        &mut self,
        at: (usize, usize),
        version: &'s ast::VersionNode,
        seen: &mut UsedNumbers<'s>,
    ) -> Version {
        let number = self.number(&version.number);
        if number == Some(0) {
            self.types.dialects.push(Dialect::new(&version.name.span, "a version with the number 0", "RFC 5531 §8.1"));
        }
        seen.check("version", &version.name, number, self.types.out);
        self.mark(AnnotationPlace::Version(at.0, at.1), &version.annotations);
        let mut seen = UsedNumbers::default();
        let procedures = version.procedures.iter().enumerate();
        let procedures =
            procedures.map(|(index, procedure)| self.procedure((at.0, at.1, index), procedure, &mut seen)).collect();
        let number = number.unwrap_or_default();
        Version { name: name(&version.name), number, doc: version.doc.clone(), procedures }
    }

    fn procedure<'s>(
        &mut self,
        at: (usize, usize, usize),
        procedure: &'s ast::ProcedureNode,
        seen: &mut UsedNumbers<'s>,
    ) -> Procedure {
        let number = self.number(&procedure.number);
        seen.check("procedure", &procedure.name, number, self.types.out);
        self.mark(AnnotationPlace::Procedure(at.0, at.1, at.2), &procedure.annotations);
        let mut used: HashMap<String, Span> = HashMap::new();
        let mut args = Vec::with_capacity(procedure.parameters.len());
        for (index, parameter) in procedure.parameters.iter().enumerate() {
            self.mark(AnnotationPlace::Argument(at.0, at.1, at.2, index), &parameter.annotations);
            let mut field = self.field(parameter, || made_name(parameter));
            if let Some(first) = used.get(&field.name.text) {
                if parameter.name.is_some() {
                    self.types.out.push(duplicate("argument", &field.name.text, first, &field.name.span));
                }
                field.name.text = format!("{}{}", field.name.text, index + 1);
            }
            used.insert(field.name.text.clone(), field.name.span.clone());
            args.push(field);
        }
        let result = procedure.result.as_ref().map(|result| self.field(result, || "result".to_owned()));
        Procedure {
            name: name(&procedure.name),
            number: number.unwrap_or_default(),
            doc: procedure.doc.clone(),
            text: self.text(&procedure.span),
            args,
            result,
            idempotent: false,
            bounds: ReplyBounds { computed: false, inline: Expr::Const(0), chunks: Vec::new() },
        }
    }

    /// Evaluates the number of a program, version or procedure, which is an unsigned 32-bit number (RFC 5531 §12.3). Returns
    /// `None` after reporting an error.
    fn number(&mut self, value: &Value) -> Option<u32> {
        let n = self.types.constants.number(value, self.types.out)?;
        let number = u32::try_from(n).ok();
        if number.is_none() {
            self.types.out.push(
                Diagnostic::new(Code::OutOfRange, format!("{n} does not fit 32 bits"))
                    .at(&value.span, "")
                    .note("numbers of programs, versions and procedures are unsigned 32-bit (RFC 5531 §9)"),
            );
        }
        number
    }
}

/// Warns about programs with the same number and a version in common.
fn same_programs(programs: &[Program], out: &mut Vec<Diagnostic>) {
    let mut seen: HashMap<(u32, u32), &Program> = HashMap::new();
    for program in programs {
        let taken = program.versions.iter().find_map(|version| {
            let first = seen.get(&(program.number, version.number))?;
            Some((version.number, *first))
        });
        for version in &program.versions {
            seen.entry((program.number, version.number)).or_insert(program);
        }
        // The numbers of an invalid program are zero.
        let Some((version, first)) = taken.filter(|_| program.number != 0) else { continue };
        let message = format!("programs `{}` and `{}` have the same number", first.name.text, program.name.text);
        out.push(
            Diagnostic::new(Code::SameProgram, message)
                .at(&program.name.span, format!("also {}, version {version}", program.number))
                .also(&first.name.span, "first here")
                .note("the numbers of program and version identify the service of a call (RFC 5531 §8.1)"),
        );
    }
}

fn name(ident: &ast::Ident) -> Name {
    Name { text: ident.text.clone(), span: ident.span.clone() }
}

/// Returns a name for an unnamed argument, derived from its type.
fn made_name(parameter: &ast::Declaration) -> String {
    match &parameter.ty.kind {
        TypeKind::Named(name) => name.text.clone(),
        _ => "arg".to_owned(),
    }
}

/// Names and numbers in use. Both must be unique within their program or version (RFC 5531 §12.3).
#[derive(Default)]
struct UsedNumbers<'a> {
    names: HashMap<&'a str, &'a Span>,
    numbers: HashMap<u32, &'a ast::Ident>,
}

impl<'a> UsedNumbers<'a> {
    /// Reports a name or number that is already in use. An invalid number is `None`.
    fn check(&mut self, what: &str, ident: &'a ast::Ident, number: Option<u32>, out: &mut Vec<Diagnostic>) {
        if let Some(first) = self.names.insert(&ident.text, &ident.span) {
            out.push(duplicate(what, &ident.text, first, &ident.span));
        }
        let Some(number) = number else { return };
        if let Some(first) = self.numbers.insert(number, ident) {
            out.push(
                Diagnostic::new(Code::Duplicate, format!("two {what}s have the number {number}"))
                    .at(&ident.span, "this one too")
                    .also(&first.span, "first here")
                    .note(format!("a {what}'s number is unique (RFC 5531 §12.3)")),
            );
        }
    }
}
