//! Lowering of programs, versions and procedures (RFC 5531 §12).

use std::collections::HashMap;

use super::{errors::duplicate, lower::Lowering, place::AnnotationPlace};
use crate::{
    ast::{self, DefinitionKind, Dialect, TypeKind, Value},
    diag::{Code, Diagnostic},
    ir::{Name, Procedure, Program, ReplyBounds, Version},
    source::Span,
};

/// Maximum number of versions from which a version takes over procedures, directly or through other versions.
const MAX_LEVELS: usize = 32;

/// Maximum total number of procedures that the versions of a specification take over. Each takes as much memory as a
/// declared procedure.
const MAX_TAKEN_OVER: usize = 65_536;

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
            let versions = self.versions(at, program);
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

    fn versions(&mut self, at: usize, program: &ast::ProgramNode) -> Vec<Version> {
        let mut seen = UsedNumbers::default();
        let bases = self.bases(program);
        let nodes = program.versions.iter().zip(&bases).enumerate();
        let mut versions: Vec<Version> = nodes
            .map(|(index, (version, base))| Version { base: *base, ..self.version((at, index), version, &mut seen) })
            .collect();
        for index in base_first(&bases) {
            let Some(node) = program.versions.get(index) else { continue };
            let base = bases.get(index).copied().flatten();
            let base = base.and_then(|base| Some((base, versions.get(base)?.procedures.as_slice())));
            let inherited = base.map(|(base, procedures)| self.take_over(node, base, procedures)).unwrap_or_default();
            let procedures = self.procedures((at, index), node, inherited);
            if let Some(version) = versions.get_mut(index) {
                version.procedures = procedures;
            }
        }
        versions
    }

    /// Returns the index of the base of each version. Reports bases that do not exist, cycles, and versions that take
    /// over procedures through more than [`MAX_LEVELS`] versions. A version with such an error has no base.
    fn bases(&mut self, program: &ast::ProgramNode) -> Vec<Option<usize>> {
        let position = |name: &str| program.versions.iter().position(|version| version.name.text == name);
        let mut bases = Vec::with_capacity(program.versions.len());
        for version in &program.versions {
            let Some(base) = &version.base else {
                bases.push(None);
                continue;
            };
            let found = position(&base.text);
            if found.is_none() {
                let error = self.unknown_base(program, base);
                self.types.out.push(error);
            }
            bases.push(found);
        }
        let levels = |bases: &[Option<usize>], start: usize| {
            let step = |at: &usize| bases.get(*at).copied().flatten();
            std::iter::successors(step(&start), step).take(MAX_LEVELS + 1).collect::<Vec<_>>()
        };
        for (start, version) in program.versions.iter().enumerate() {
            if levels(&bases, start).contains(&start) {
                self.types.out.push(cycle(version));
                bases[start] = None;
            }
        }
        for (start, version) in program.versions.iter().enumerate() {
            if levels(&bases, start).len() > MAX_LEVELS {
                let message = format!("more than {MAX_LEVELS} versions take over one another's procedures");
                self.types.out.push(Diagnostic::new(Code::TooDeep, message).at(&version.name.span, ""));
                bases[start] = None;
            }
        }
        bases
    }

    /// Returns the procedures that `version` takes over from the version with the index `base`, whose procedures are
    /// `procedures`. Returns no procedures if the versions of the specification take over more than [`MAX_TAKEN_OVER`]
    /// procedures in total. This error is reported once.
    fn take_over(&mut self, version: &ast::VersionNode, base: usize, procedures: &[Procedure]) -> Vec<Procedure> {
        let before = self.taken_over;
        self.taken_over = before.saturating_add(procedures.len());
        if self.taken_over > MAX_TAKEN_OVER {
            if before <= MAX_TAKEN_OVER {
                let message = format!("versions take over more than {MAX_TAKEN_OVER} procedures");
                self.types.out.push(Diagnostic::new(Code::TooDeep, message).at(&version.name.span, ""));
            }
            return Vec::new();
        }
        let taken = |procedure: &Procedure| {
            let declared_in = Some(procedure.declared_in.unwrap_or(base));
            Procedure { declared_in, ..procedure.clone() }
        };
        procedures.iter().map(taken).collect()
    }

    /// Creates the error for a base that `program` does not have.
    fn unknown_base(&self, program: &ast::ProgramNode, base: &ast::Ident) -> Diagnostic {
        let of = &program.name.text;
        let programs = self.files.iter().flat_map(|file| &file.definitions).filter_map(|definition| {
            let DefinitionKind::Program(other) = &definition.kind else { return None };
            Some(other)
        });
        let mut elsewhere = programs.flat_map(|other| other.versions.iter().map(move |version| (other, version)));
        if let Some((other, version)) = elsewhere.find(|(_, version)| version.name.text == base.text) {
            let message = format!("`{}` is a version of another program, `{}`", base.text, other.name.text);
            return Diagnostic::new(Code::UnknownBase, message)
                .at(&base.span, format!("not a version of `{of}`"))
                .also(&version.name.span, "declared here")
                .note("a version takes over procedures of its own program");
        }
        let versions = || program.versions.iter().map(|version| version.name.text.as_str());
        Diagnostic::new(Code::UnknownBase, format!("no version of `{of}` is named `{}`", base.text))
            .at(&base.span, "")
            .list("its versions", versions())
            .did_you_mean(&base.text, &base.span, versions())
    }

    /// Lowers a version without its procedures. `at` contains the indices of the program and the version.
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
        let number = number.unwrap_or_default();
        Version { name: name(&version.name), number, doc: version.doc.clone(), base: None, procedures: Vec::new() }
    }

    /// Returns the procedures of a version that takes over `procedures`. A procedure that the version declares replaces
    /// the procedure with the same name and number. If only the name or only the number is equal, reports an error.
    /// `at` contains the indices of the program and the version.
    fn procedures(
        &mut self,
        at: (usize, usize),
        version: &ast::VersionNode,
        mut procedures: Vec<Procedure>,
    ) -> Vec<Procedure> {
        let numbered = procedures.iter().enumerate();
        let (by_name, by_number): (HashMap<String, usize>, HashMap<u32, usize>) =
            numbered.map(|(index, known)| ((known.name.text.clone(), index), (known.number, index))).unzip();
        let mut seen = UsedNumbers::default();
        for node in &version.procedures {
            let number = self.number(&node.number);
            seen.check("procedure", &node.name, number, self.types.out);
            let named = by_name.get(&node.name.text).copied();
            let index = match (named, number.and_then(|number| by_number.get(&number).copied())) {
                (Some(named), Some(numbered)) if named == numbered => named,
                // The error has been reported.
                (Some(named), None) if number.is_none() => named,
                (Some(known), _) | (None, Some(known)) => {
                    self.types
                        .out
                        .extend(procedures.get(known).map(|known| replaces_in_part(version, node, number, known)));
                    procedures.len()
                }
                (None, None) => procedures.len(),
            };
            let procedure = self.procedure((at.0, at.1, index), node, number);
            match procedures.get_mut(index) {
                Some(replaced) => *replaced = procedure,
                None => procedures.push(procedure),
            }
        }
        procedures
    }

    fn procedure(
        &mut self,
        at: (usize, usize, usize),
        procedure: &ast::ProcedureNode,
        number: Option<u32>,
    ) -> Procedure {
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
            declared_in: None,
            doc: procedure.doc.clone(),
            text: self.text(&procedure.span),
            args,
            result,
            idempotent: false,
            bounds: ReplyBounds::default(),
        }
    }

    /// Evaluates the number of a program, version or procedure, which is an unsigned 32-bit number (RFC 5531 §12.3).
    /// Returns `None` after reporting an error.
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

/// Returns the indices of versions in an order in which each version follows its base. The bases must have no cycles.
fn base_first(bases: &[Option<usize>]) -> Vec<usize> {
    let depth = |mut at: usize| {
        let mut depth = 0_usize;
        while let Some(base) = bases.get(at).copied().flatten().filter(|_| depth < bases.len()) {
            (at, depth) = (base, depth + 1);
        }
        depth
    };
    let mut order: Vec<usize> = (0..bases.len()).collect();
    order.sort_by_cached_key(|&at| depth(at));
    order
}

/// Creates the error for a version that takes over its own procedures.
fn cycle(version: &ast::VersionNode) -> Diagnostic {
    let base = version.base.as_ref().map_or(&version.name.span, |base| &base.span);
    Diagnostic::new(Code::Cycle, format!("version `{}` takes over its own procedures", version.name.text))
        .at(base, "takes them over from the version itself, or from one that is based on it")
        .help("name an earlier version that has no base, or whose base is not this version")
}

/// Creates the error for a procedure that shares only its name or only its number with a procedure that its version
/// takes over.
fn replaces_in_part(
    version: &ast::VersionNode,
    node: &ast::ProcedureNode,
    number: Option<u32>,
    known: &Procedure,
) -> Diagnostic {
    let base = version.base.as_ref().map_or("", |base| base.text.as_str());
    let (name, known_name, known_number) = (&node.name.text, &known.name.text, known.number);
    let message = if Some(known_number) == number {
        format!("`{base}` has another procedure with the number {known_number}, `{known_name}`")
    } else {
        format!("`{base}` has a procedure `{known_name}` with another number, {known_number}")
    };
    Diagnostic::new(Code::Duplicate, message)
        .at(&node.name.span, format!("`{}` takes it over", version.name.text))
        .also(&known.name.span, "declared here")
        .note("a procedure replaces the one with its name and its number")
        .help(format!("give `{name}` another name and another number, or those of the procedure that it replaces"))
}

/// Warns about programs with equal program numbers that have a version number in common.
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

/// Returns the name for an unnamed argument: the name of its type, or `arg` if the type is built in or defined in
/// place.
fn made_name(parameter: &ast::Declaration) -> String {
    match &parameter.ty.kind {
        TypeKind::Named(name) => name.text.clone(),
        _ => "arg".to_owned(),
    }
}

/// The names and numbers of versions or procedures. Both must be unique within their program or version (RFC 5531
/// §12.3).
#[derive(Default)]
struct UsedNumbers<'a> {
    names: HashMap<&'a str, &'a Span>,
    numbers: HashMap<u32, &'a ast::Ident>,
}

impl<'a> UsedNumbers<'a> {
    /// Reports a name or number that is already in use. `number` is `None` if the number is invalid.
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
