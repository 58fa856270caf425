//! Conversion of the statements in a `.ulb` file, and of hints, to facts.
//!
//! ```text
//! ddp get_ok.data max = args.count;              // an item, as a type followed by fields or arms
//! ddp BLOBSTORE_V1.GET: get_ok.data max = 64K;   // the maximum of the item in results of one procedure
//! max list_ok.entries = len(args.names);          // an item that is not eligible: its elements, or its bytes
//! reply_max BLOBSTORE_V1.LIST = args.count * 312 + 12;
//! port BLOBSTORE = 20100;
//! idempotent BLOBSTORE_V1.GET, BLOBSTORE_V1.LIST;
//! limit BLOBSTORE_V1.GET chunks = 1;
//! ```
//!
//! A procedure is named `VERSION.PROCEDURE` or `PROGRAM.VERSION.PROCEDURE`. If its result or an argument is itself
//! eligible, the item is named `VERSION.PROCEDURE.result` or `VERSION.PROCEDURE.args.NAME`.

use std::collections::HashMap;

use super::{FactKind, ProcedureId, StatedFact, annotation, procedure};
use crate::{
    ast::{ExprNode, Ident, Path, Statement},
    diag::{Code, Diagnostic},
    ir::{Field, ItemId, ItemKind, Spec},
    resolve::AnnotationPlace,
};

type SidecarResult<T> = Result<T, Box<Diagnostic>>;

pub(super) fn facts(
    spec: &Spec,
    statements: &[Statement],
    constants: &HashMap<String, i128>,
    out: &mut Vec<Diagnostic>,
) -> Vec<StatedFact> {
    let mut binder = Binder::new(spec, constants);
    binder.suggests = statements.len().saturating_mul(spec.items.len()) <= MAX_PAIRS;
    let mut facts = Vec::new();
    for statement in statements {
        match binder.statement(statement) {
            Ok(found) => facts.extend(found),
            Err(diagnostic) => out.push(*diagnostic),
        }
    }
    facts
}

/// Returns the facts of `hints`. A hint with an error, for example an unknown name, causes a warning and has no other
/// effect.
pub(super) fn hinted(
    spec: &Spec,
    hints: &[Statement],
    constants: &HashMap<String, i128>,
    out: &mut Vec<Diagnostic>,
) -> Vec<StatedFact> {
    let mut problems = Vec::new();
    let mut found = facts(spec, hints, constants, &mut problems);
    found.iter_mut().for_each(|fact| fact.is_hint = true);
    out.extend(problems.into_iter().map(|problem| Diagnostic { code: Code::NoEffect, ..problem }));
    found
}

struct Binder<'a> {
    spec: &'a Spec,
    constants: &'a HashMap<String, i128>,
    items: HashMap<&'a str, ItemId>,
    /// `true` to suggest similar names of types and procedures in errors. Each unknown name is then compared with every
    /// known name.
    suggests: bool,
}

/// Maximum product of the numbers of statements and items at which errors suggest similar names of types and
/// procedures.
const MAX_PAIRS: usize = 10_000_000;

impl<'a> Binder<'a> {
    fn new(spec: &'a Spec, constants: &'a HashMap<String, i128>) -> Self {
        let types = spec.items.iter().enumerate().filter(|(_, item)| !matches!(item.kind, ItemKind::Const(_)));
        Self {
            spec,
            constants,
            suggests: true,
            items: types.map(|(id, item)| (item.name.text.as_str(), ItemId(id))).collect(),
        }
    }

    fn statement(&self, statement: &Statement) -> SidecarResult<Vec<StatedFact>> {
        let keyword = statement.keyword.text.as_str();
        let setting = |name: Option<&str>| setting(statement, name);
        if let Some(procedure) = statement.procedure.as_ref().filter(|_| !matches!(keyword, "ddp" | "max")) {
            let message = format!("`{keyword}` does not accept `PROCEDURE:` before the item");
            return Err(Box::new(Diagnostic::new(Code::BadArguments, message).at(&procedure.span, "")));
        }
        let fact = |place, kind| StatedFact { kind, place, span: statement.span.clone(), is_hint: false };
        let each = |place: &dyn Fn(&Path) -> SidecarResult<AnnotationPlace>, kind: FactKind| {
            statement.paths.iter().map(|path| Ok(fact(place(path)?, kind.clone()))).collect()
        };
        match keyword {
            "ddp" => {
                let max = if statement.setting.is_some() { Some(setting(Some("max"))?.clone()) } else { None };
                let kind = match (&statement.procedure, max) {
                    (Some(path), Some(max)) => FactKind::DdpFor(self.procedure(path)?, max),
                    (Some(path), None) => {
                        return Err(Box::new(
                            Diagnostic::new(Code::BadArguments, "an item's maximum for one procedure is missing")
                                .at(&path.span, "")
                                .help("write `ddp VERSION.PROCEDURE: type.field max = ...;`"),
                        ));
                    }
                    (None, max) => FactKind::Ddp(max),
                };
                each(&|path| self.item(path), kind)
            }
            "max" => {
                let max = setting(None)?.clone();
                let kind = match &statement.procedure {
                    Some(path) => FactKind::MaxFor(self.procedure(path)?, max),
                    None => FactKind::Max(max),
                };
                each(&|path| self.item(path), kind)
            }
            "reply_max" => each(&|path| self.procedure_place(path), FactKind::ReplyMax(setting(None)?.clone())),
            "port" => {
                each(&|path| self.program(path), FactKind::Port(annotation::port(setting(None)?, self.constants)?))
            }
            "limit" => {
                let limit = annotation::limit(setting(Some("chunks"))?, self.constants)?;
                each(&|path| self.calls(path), FactKind::Limit(limit))
            }
            "idempotent" => {
                if let Some((_, value)) = &statement.setting {
                    let message = "`idempotent` takes no value";
                    return Err(Box::new(Diagnostic::new(Code::BadArguments, message).at(&value.span, "")));
                }
                each(&|path| self.procedure_place(path), FactKind::Idempotent)
            }
            _ => Err(Box::new(
                Diagnostic::new(Code::BadAnnotation, format!("there is no statement `{keyword}`"))
                    .at(&statement.keyword.span, "unknown")
                    .note("statements are ddp, max, reply_max, port, idempotent and limit")
                    .did_you_mean(keyword, &statement.keyword.span, annotation::ANNOTATIONS.into_iter()),
            )),
        }
    }

    /// Finds an item by its path, for example `type`, `type.field`, `type.field.field`, `VERSION.PROCEDURE.result` or
    /// `VERSION.PROCEDURE.args.NAME`.
    fn item(&self, path: &Path) -> SidecarResult<AnnotationPlace> {
        let (first, rest) = split(path)?;
        let Some(&id) = self.items.get(first.text.as_str()) else {
            return self.signature_item(path);
        };
        if rest.is_empty() {
            return match self.spec.items.get(id.0).map(|item| &item.kind) {
                Some(ItemKind::Typedef(_)) => Ok(AnnotationPlace::Item(id)),
                Some(ItemKind::Union(union)) => {
                    Err(Box::new(super::eligible::union(&first.text, union.opaque, &path.span)))
                }
                _ => Err(Box::new(
                    unknown(path, format!("`{}` is a type: name a field of it", first.text))
                        .help(format!("write `ddp {}.FIELD;`", first.text)),
                )),
            };
        }
        self.member(id, rest)
    }

    /// Finds the field or arm that the last of `parts` names. Each part is a field or arm of the type of the part
    /// before it.
    fn member(&self, mut id: ItemId, parts: &[Ident]) -> SidecarResult<AnnotationPlace> {
        let mut place = AnnotationPlace::Item(id);
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                let field = super::field(self.spec, place);
                id = field
                    .and_then(|field| field.ty.target())
                    .ok_or_else(|| unknown_part(part, "a type without fields"))?;
            }
            id = self.through(id);
            place = self.child(id, part)?;
        }
        Ok(place)
    }

    /// Returns the item that `id` stands for after resolving typedefs. The typedef of an array, a list or an optional
    /// value stands for the type of the elements.
    fn through(&self, mut id: ItemId) -> ItemId {
        // Each step resolves one typedef.
        for _ in 0..self.spec.items.len() {
            match self.spec.items.get(id.0).map(|item| &item.kind) {
                Some(ItemKind::Typedef(field)) => match field.ty.target() {
                    Some(next) => id = next,
                    None => break,
                },
                _ => break,
            }
        }
        id
    }

    fn child(&self, id: ItemId, part: &Ident) -> SidecarResult<AnnotationPlace> {
        let Some(item) = self.spec.items.get(id.0) else { return Err(unknown_part(part, "nothing")) };
        let named = |field: &Field| field.name.text == part.text;
        let place = match &item.kind {
            ItemKind::Struct { fields, .. } => {
                fields.iter().position(named).map(|index| AnnotationPlace::Field(id, index))
            }
            ItemKind::Union(union) => {
                let arm = union.arms.iter().position(|arm| arm.field.as_ref().is_some_and(named));
                let default = union.default.as_ref().and_then(Option::as_ref).is_some_and(named);
                arm.map(|index| AnnotationPlace::Arm(id, index)).or(default.then_some(AnnotationPlace::Default(id)))
            }
            _ => None,
        };
        place.ok_or_else(|| {
            let diagnostic = unknown_part(part, &format!("`{}`", item.name.text));
            let members = || item.fields().map(|field| field.name.text.as_str());
            let diagnostic = diagnostic.also(&item.name.span, "declared here").list("its members", members());
            Box::new(diagnostic.did_you_mean(&part.text, &part.span, members()))
        })
    }

    fn signature_item(&self, path: &Path) -> SidecarResult<AnnotationPlace> {
        let at = |name: &str| path.parts.iter().position(|part| part.text == name);
        let (cut, is_result) = match (at("result"), at("args")) {
            (Some(cut), None) => (cut, true),
            (_, Some(cut)) => (cut, false),
            (None, None) => {
                let first = path.parts.first().map_or("", |part| part.text.as_str());
                let at = path.parts.first().map_or(&path.span, |part| &part.span);
                let diagnostic = unknown(path, format!("no type is named `{first}`"));
                return Err(Box::new(diagnostic.did_you_mean(
                    first,
                    at,
                    self.items.keys().copied().filter(|_| self.suggests),
                )));
            }
        };
        let parts: Vec<Ident> = path.parts.iter().take(cut).cloned().collect();
        let id = self.procedure(&Path { parts, span: path.span.clone() })?;
        let procedure = procedure(self.spec, id);
        let rest = path.parts.get(cut + 1..).unwrap_or_default();
        let arguments = || procedure.iter().flat_map(|p| &p.args).map(|arg| arg.name.text.as_str());
        let (place, rest) = match (is_result, rest) {
            (true, rest) => (AnnotationPlace::Procedure(id.0, id.1, id.2), rest),
            (false, [name, rest @ ..]) => {
                let index = arguments().position(|argument| argument == name.text).ok_or_else(|| {
                    let diagnostic = unknown_argument(name).list("its arguments", arguments());
                    Box::new(diagnostic.did_you_mean(&name.text, &name.span, arguments()))
                })?;
                (AnnotationPlace::Argument(id.0, id.1, id.2, index), rest)
            }
            (false, []) if arguments().nth(1).is_some() => {
                let diagnostic = unknown(path, "the procedure has several arguments: add the name of one");
                return Err(Box::new(diagnostic.list("its arguments", arguments())));
            }
            (false, []) => (AnnotationPlace::Argument(id.0, id.1, id.2, 0), rest),
        };
        let Some(field) = super::field(self.spec, place) else {
            return Err(Box::new(unknown(path, "the procedure has none")));
        };
        match (rest, field.ty.target()) {
            ([], _) => Ok(place),
            (rest, Some(id)) => self.member(id, rest),
            ([part, ..], None) => Err(unknown_part(part, "a type without fields")),
        }
    }

    fn program(&self, path: &Path) -> SidecarResult<AnnotationPlace> {
        let found = match path.parts.as_slice() {
            [name] => self.spec.programs.iter().position(|program| program.name.text == name.text),
            _ => None,
        };
        found.map(AnnotationPlace::Program).ok_or_else(|| {
            let programs = self.spec.programs.iter().map(|program| program.name.text.as_str());
            Box::new(similar(unknown(path, "no program has this name"), path, programs))
        })
    }

    fn procedure_place(&self, path: &Path) -> SidecarResult<AnnotationPlace> {
        self.procedure(path).map(|id| AnnotationPlace::Procedure(id.0, id.1, id.2))
    }

    /// Finds the program, version or procedure for which a statement sets a limit.
    fn calls(&self, path: &Path) -> SidecarResult<AnnotationPlace> {
        if let Ok(program) = self.program(path) {
            return Ok(program);
        }
        let names: Vec<&str> = path.parts.iter().map(|part| part.text.as_str()).collect();
        for (p, program) in self.spec.programs.iter().enumerate() {
            for (v, version) in program.versions.iter().enumerate() {
                if names == [version.name.text.as_str()] || names == [&program.name.text, &version.name.text] {
                    return Ok(AnnotationPlace::Version(p, v));
                }
            }
        }
        self.procedure_place(path)
    }

    fn procedure(&self, path: &Path) -> SidecarResult<ProcedureId> {
        let names: Vec<&str> = path.parts.iter().map(|part| part.text.as_str()).collect();
        for (p, program) in self.spec.programs.iter().enumerate() {
            for (v, version) in program.versions.iter().enumerate() {
                let name = match names.as_slice() {
                    [first, second, third] if *first == program.name.text && *second == version.name.text => third,
                    [first, second] if *first == version.name.text => second,
                    _ => continue,
                };
                if let Some(q) = version.procedures.iter().position(|procedure| procedure.name.text == *name) {
                    return Ok((p, v, q));
                }
            }
        }
        let programs = self.spec.programs.iter().map(|program| &program.name);
        let versions = self.spec.programs.iter().flat_map(|program| &program.versions);
        let procedures = versions.clone().flat_map(|version| &version.procedures).map(|procedure| &procedure.name);
        let known = programs.chain(versions.map(|version| &version.name)).chain(procedures);
        Err(Box::new(
            similar(
                unknown(path, "no procedure has this name"),
                path,
                known.map(|name| name.text.as_str()).filter(|_| self.suggests),
            )
            .help("a procedure is named VERSION.PROCEDURE or PROGRAM.VERSION.PROCEDURE"),
        ))
    }
}

fn split(path: &Path) -> SidecarResult<(&Ident, &[Ident])> {
    path.parts.split_first().ok_or_else(|| Box::new(unknown(path, "a name is missing")))
}

/// Returns the value that a statement sets. If there is a `name`, it must precede the `=`.
fn setting<'s>(statement: &'s Statement, name: Option<&str>) -> SidecarResult<&'s ExprNode> {
    let keyword = &statement.keyword.text;
    let form = match name {
        Some(name) => format!("`{keyword} PATH {name} = ...;`"),
        None => format!("`{keyword} PATH = ...;`"),
    };
    let bad = |span, message: String| {
        Box::new(Diagnostic::new(Code::BadArguments, message).at(span, "").help(format!("write {form}")))
    };
    match &statement.setting {
        None => Err(bad(&statement.span, format!("`{keyword}` needs a value"))),
        Some((found, value)) if found.as_ref().map(|ident| ident.text.as_str()) == name => Ok(value),
        Some((Some(found), _)) => Err(bad(&found.span, format!("`{keyword}` has no `{}`", found.text))),
        Some((None, value)) => Err(bad(&value.span, format!("`{keyword}` has no value of its own"))),
    }
}

fn unknown(path: &Path, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::UnknownItem, message).at(&path.span, "")
}

fn unknown_part(part: &Ident, of: &str) -> Box<Diagnostic> {
    Box::new(Diagnostic::new(Code::UnknownItem, format!("{of} has no `{}`", part.text)).at(&part.span, ""))
}

fn unknown_argument(name: &Ident) -> Diagnostic {
    let message = format!("the procedure has no argument `{}`", name.text);
    Diagnostic::new(Code::UnknownItem, message).at(&name.span, "")
}

/// Suggests a known name for the first part of `path` that is unknown.
fn similar<'k>(diagnostic: Diagnostic, path: &Path, known: impl Iterator<Item = &'k str>) -> Diagnostic {
    let known: Vec<&str> = known.collect();
    match path.parts.iter().find(|part| !known.contains(&part.text.as_str())) {
        Some(part) => diagnostic.did_you_mean(&part.text, &part.span, known.into_iter()),
        None => diagnostic,
    }
}
