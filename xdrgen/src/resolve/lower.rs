//! Lowering of definitions to items of the IR.

use std::collections::HashMap;

use super::{
    errors::duplicate,
    names::{ItemBody, NameEntry},
    place::AnnotationPlace,
    types::{Discriminant, TypeResolver, word},
};
use crate::{
    ast::{Annotation, Declaration, Dialect, EnumBody, File, TypeSpec, UnionBody, Value, ValueKind},
    diag::{Code, Diagnostic},
    ir::{Arm, Base, Case, ConstValue, Enumerator, Field, Item, ItemId, ItemKind, Name, Type, TypeFacts, Union},
    source::{Sources, Span, dedent, without},
};

pub(super) struct Lowering<'a> {
    pub(super) types: TypeResolver<'a>,
    pub(super) files: &'a [File],
    pub(super) sources: &'a Sources,
    pub(super) marks: Vec<(AnnotationPlace, Annotation)>,
    /// Number of procedures that versions have taken over from their base versions so far.
    pub(super) taken_over: usize,
}

impl<'a> Lowering<'a> {
    pub(super) fn new(types: TypeResolver<'a>, files: &'a [File], sources: &'a Sources) -> Self {
        Self { types, files, sources, marks: Vec::new(), taken_over: 0 }
    }

    pub(super) fn items(&mut self) -> Vec<Item> {
        let names = self.types.names;
        names.entries.iter().enumerate().map(|(index, entry)| self.item(ItemId(index), entry)).collect()
    }

    fn item(&mut self, id: ItemId, entry: &NameEntry<'_>) -> Item {
        self.mark(AnnotationPlace::Item(id), entry.annotations);
        let kind = match entry.body {
            ItemBody::Const(ty, value) => ItemKind::Const(self.constant(ty, value)),
            ItemBody::Enum(body) => ItemKind::Enum(self.enumerators(id, &entry.name, body)),
            ItemBody::Struct(body) => {
                let fields = self.fields(&body.fields, |index| AnnotationPlace::Field(id, index));
                ItemKind::Struct { fields, list_node: false }
            }
            ItemBody::Union(body) => ItemKind::Union(self.union(id, &entry.name, body)),
            ItemBody::Extern(path) => ItemKind::Extern(path.to_owned()),
            ItemBody::Typedef(declaration) => ItemKind::Typedef(self.field(declaration, String::new)),
        };
        Item {
            name: entry.name.clone(),
            doc: entry.doc.to_vec(),
            text: self.text(&entry.text),
            kind,
            facts: TypeFacts::default(),
            recursive: false,
        }
    }

    /// Returns the text at `span` without annotations, preprocessor directives and inactive lines. A macro keeps its
    /// own directive. Also removes the common indentation if `span` is the first text on its line.
    pub(super) fn text(&self, span: &Span) -> String {
        let Some(source) = self.sources.get(span.file) else { return String::new() };
        let text = source.text();
        let file = self.files.iter().find(|file| file.source == span.file);
        let (annotations, excluded) =
            file.map(|file| (file.annotations.as_slice(), file.excluded.as_slice())).unwrap_or_default();
        // A macro is itself a preprocessor line, which must be kept.
        let within = |removed: &&Span| removed.range.start > span.range.start && removed.range.end <= span.range.end;
        let first = excluded.partition_point(|removed| removed.range.end <= span.range.start);
        let excluded = excluded.get(first..).unwrap_or_default().iter();
        let excluded: Vec<&Span> =
            excluded.take_while(|removed| removed.range.start < span.range.end).filter(within).collect();
        let merged: Vec<Span>;
        let annotations = if excluded.is_empty() {
            annotations
        } else {
            let mut both: Vec<Span> = annotations.iter().chain(excluded).cloned().collect();
            both.sort_by_key(|span| span.range.start);
            merged = both;
            &merged
        };
        // A search for the start of the line would take quadratic time if all definitions are on one.
        let (_, start) = source.line_start(span.range.start);
        let indent = text.get(start..span.range.start).unwrap_or_default();
        let text = without(text, &span.range, annotations);
        // White space before the definition is the indentation of its first line.
        if indent.trim().is_empty() { dedent(&text) } else { text }
    }

    pub(super) fn mark(&mut self, place: AnnotationPlace, annotations: &[Annotation]) {
        self.marks.extend(annotations.iter().map(|annotation| (place, annotation.clone())));
    }

    fn constant(&mut self, ty: Option<&TypeSpec>, value: &Value) -> ConstValue {
        let text = match &value.kind {
            ValueKind::Text(text) => Some(text.as_str()),
            ValueKind::Name(name) => self.types.constants.text(name),
            _ => None,
        };
        if let Some(text) = text {
            return ConstValue::Str(text.to_owned());
        }
        // An invalid value has already been reported.
        let Some(number) = self.types.constants.number(value, &mut Vec::new()) else { return ConstValue::TooLarge };
        if u64::try_from(number).is_err() && i64::try_from(number).is_err() {
            return ConstValue::TooLarge;
        }
        let Some(base) = ty.and_then(|ty| self.types.constant_type(ty)) else { return ConstValue::Int(number) };
        let fits = match base {
            Base::Bool => (0..=1).contains(&number),
            Base::Int => i32::try_from(number).is_ok(),
            Base::UInt => u32::try_from(number).is_ok(),
            Base::Hyper => i64::try_from(number).is_ok(),
            Base::UHyper => u64::try_from(number).is_ok(),
            Base::Short(short) => short.holds(number),
            Base::Float | Base::Double | Base::Quadruple | Base::Item(_) => return ConstValue::Int(number),
        };
        if !fits {
            self.types.out.push(
                Diagnostic::new(Code::OutOfRange, format!("{number} is not a value of the constant's type"))
                    .at(&value.span, "does not fit")
                    .also(&ty.map(|ty| ty.span.clone()).unwrap_or_default(), "its type"),
            );
        }
        ConstValue::Typed(number, base)
    }

    fn enumerators(&mut self, id: ItemId, name: &Name, body: &EnumBody) -> Vec<Enumerator> {
        if body.enumerators.is_empty() {
            self.types.out.push(
                Diagnostic::new(Code::WrongType, format!("enum `{}` has no values", name.text))
                    .at(&name.span, "")
                    .note("an enumeration lists at least one (RFC 4506 §6.3)"),
            );
        }
        let mut enumerators = Vec::with_capacity(body.enumerators.len());
        for (index, enumerator) in body.enumerators.iter().enumerate() {
            let name = Name { text: enumerator.name.text.clone(), span: enumerator.name.span.clone() };
            let Some(value) = self.types.constants.enumerator(id.0, index) else { continue };
            let at = enumerator.value.as_ref().map_or(&name.span, |value| &value.span);
            if i32::try_from(value).is_err() {
                self.types.dialects.push(Dialect::new(at, "a value that needs the 32nd bit", "RFC 4506 §4.3"));
            }
            match word(value) {
                Some(value) => enumerators.push(Enumerator { name, short: None, value, doc: enumerator.doc.clone() }),
                None => self.types.out.push(
                    Diagnostic::new(Code::OutOfRange, format!("the value {value} of `{}` is not an `int`", name.text))
                        .at(at, "")
                        .note("enumerations are encoded as signed 32-bit integers (RFC 4506 §4.3)"),
                ),
            }
        }
        enumerators
    }

    /// Lowers the fields of a struct, and reports duplicate names. `place` returns the annotation place of a field,
    /// given the index of the field.
    pub(super) fn fields(
        &mut self,
        declarations: &[Declaration],
        place: impl Fn(usize) -> AnnotationPlace,
    ) -> Vec<Field> {
        let mut seen: HashMap<&str, &Span> = HashMap::new();
        let mut fields = Vec::with_capacity(declarations.len());
        for (index, declaration) in declarations.iter().enumerate() {
            if let Some(name) = &declaration.name
                && let Some(first) = seen.insert(&name.text, &name.span)
            {
                self.types.out.push(duplicate("field", &name.text, first, &name.span));
            }
            self.mark(place(index), &declaration.annotations);
            fields.push(self.field(declaration, String::new));
        }
        fields
    }

    /// Lowers a field. `made` creates a name if the declaration has none.
    pub(super) fn field(&mut self, declaration: &Declaration, made: impl FnOnce() -> String) -> Field {
        let name = match &declaration.name {
            Some(name) => Name { text: name.text.clone(), span: name.span.clone() },
            None => Name { text: made(), span: declaration.span.clone() },
        };
        // After an error, the type does not matter.
        let ty = self.types.ty(declaration).unwrap_or(Type::Base(Base::Int));
        let length = self.types.length_constant(declaration);
        Field { name, doc: declaration.doc.clone(), ty, ddp: None, boxed: false, length }
    }

    fn union(&mut self, id: ItemId, name: &Name, body: &UnionBody) -> Union {
        let mut discriminant = self.field(&body.discriminant, String::new);
        let kind = self.types.discriminant(body);
        match kind {
            // The size of a union depends on this type. The size of a typedef is not yet known here.
            Some(Discriminant::UHyper) => discriminant.ty = Type::Base(Base::UHyper),
            // No case selects the other values, so the decoder need not refuse them earlier.
            Some(Discriminant::Short(short)) => {
                discriminant.ty = Type::Base(if short.is_unsigned() { Base::UInt } else { Base::Int });
            }
            _ => {}
        }
        let mut arms = Vec::new();
        let mut default = None;
        let mut default_at: Option<&Span> = None;
        let mut values: HashMap<i64, &Span> = HashMap::new();
        let mut field_names: HashMap<&str, &Span> = HashMap::new();
        for arm in &body.arms {
            let cases =
                arm.cases.iter().filter_map(|case| self.case(kind.as_ref(), case, &mut values)).collect::<Vec<_>>();
            if let Some(at) = &arm.default
                && let Some(first) = default_at.replace(at)
            {
                self.types.out.push(duplicate("arm", "default", first, at));
            }
            if let Some(declared) = arm.declaration.as_ref().and_then(|declaration| declaration.name.as_ref())
                && let Some(first) = field_names.insert(&declared.text, &declared.span)
            {
                self.types.out.push(duplicate("arm", &declared.text, first, &declared.span));
            }
            // RFC 4506 §6.4 (4): names are unique within a union. An arm of a Rust enum has no such name.
            if let Some(declared) = arm.declaration.as_ref().and_then(|declaration| declaration.name.as_ref())
                && body.discriminant.name.as_ref().is_some_and(|name| name.text == declared.text)
            {
                let what = "an arm with the name of the discriminant";
                self.types.dialects.push(Dialect::new(&declared.span, what, "RFC 4506 §6.4"));
            }
            let annotations = arm.declaration.as_ref().map_or(&arm.void_annotations, |found| &found.annotations);
            let field = arm.declaration.as_ref().map(|declaration| self.field(declaration, String::new));
            if arm.default.is_some() {
                self.mark(AnnotationPlace::Default(id), annotations);
                default = Some(field.clone());
            }
            if !cases.is_empty() {
                self.mark(AnnotationPlace::Arm(id, arms.len()), annotations);
                arms.push(Arm { cases, field });
            }
        }
        if body.arms.is_empty() {
            self.types.out.push(
                Diagnostic::new(Code::WrongType, format!("union `{}` has no arms", name.text))
                    .at(&name.span, "")
                    .note("a union has at least one `case` (RFC 4506 §6.3)"),
            );
        }
        Union { discriminant: Box::new(discriminant), arms, default, open: false, opaque: body.opaque }
    }

    fn case<'b>(
        &mut self,
        kind: Option<&Discriminant<'_>>,
        case: &'b Value,
        values: &mut HashMap<i64, &'b Span>,
    ) -> Option<Case> {
        let number = match (kind, &case.kind) {
            (Some(Discriminant::Enum(_, of)), ValueKind::Name(name)) => self.types.constants.enumerator_named(of, name),
            _ => None,
        };
        let number = match number {
            Some(number) => number,
            None => {
                let mut found = Vec::new();
                let number = self.types.constants.number(case, &mut found);
                for mut error in found {
                    if error.code == Code::UnknownConstant && matches!(kind, Some(Discriminant::Enum(..))) {
                        // An enumerator of another type would not help.
                        error.suggestions.clear();
                        error.helps.clear();
                        error = self.with_enumerators(error, kind, case);
                    }
                    self.types.out.push(error);
                }
                number?
            }
        };
        let label = match &case.kind {
            ValueKind::Name(name) => name.rsplit("::").next().unwrap_or(name).to_owned(),
            _ => number.to_string(),
        };
        // Without a valid discriminant, there is nothing to compare with.
        let (fits, what) = match kind.as_ref()? {
            Discriminant::Int => (word(number).map(i64::from), "`int`".to_owned()),
            Discriminant::Short(short) => {
                let value = i64::try_from(number).ok().filter(|_| short.holds(number));
                (value, format!("`{}`", short.text()))
            }
            Discriminant::UInt => (u32::try_from(number).ok().map(i64::from), "`unsigned int`".to_owned()),
            // The value uses all 64 bits.
            Discriminant::UHyper => (u64::try_from(number).ok().map(u64::cast_signed), "`unsigned hyper`".to_owned()),
            Discriminant::Bool => (i64::try_from(number).ok().filter(|n| (0..=1).contains(n)), "`bool`".to_owned()),
            Discriminant::Enum(known, name) => {
                (word(number).filter(|n| known.contains(n)).map(i64::from), format!("`{name}`"))
            }
        };
        let Some(value) = fits else {
            let which = if label == number.to_string() { String::new() } else { format!(" (which is {number})") };
            let diagnostic = Diagnostic::new(Code::BadCase, format!("`{label}`{which} is not a value of {what}"))
                .at(&case.span, "not a value of the discriminant")
                .note("each case is a value of the discriminant's type (RFC 4506 §4.15)");
            let diagnostic = self.with_enumerators(diagnostic, kind, case);
            self.types.out.push(diagnostic);
            return None;
        };
        // An enumerator out of range has already been reported.
        if i128::from(value) != number && !matches!(kind, Some(Discriminant::Enum(..) | Discriminant::UHyper)) {
            self.types.dialects.push(Dialect::new(&case.span, "a value that needs the 32nd bit", "RFC 4506 §4.15"));
        }
        // RFC 4506 §6.4 (5): a value has one arm.
        if let Some(first) = values.insert(value, &case.span) {
            self.types.out.push(
                Diagnostic::new(Code::Duplicate, format!("case {label} occurs twice"))
                    .at(&case.span, "again")
                    .also(first, "first here"),
            );
            return None;
        }
        Some(Case { label, value })
    }

    /// Adds a list of the discriminant's enumerators to the error about a case, and suggests a similar enumerator. Adds
    /// nothing if the discriminant is not an enumeration, or after many diagnostics.
    fn with_enumerators(&self, error: Diagnostic, kind: Option<&Discriminant<'_>>, case: &Value) -> Diagnostic {
        /// Number of reported diagnostics after which no more lists of enumerators are added, because each list visits
        /// all constants.
        const MAX_LISTS: usize = 50;
        match kind {
            Some(Discriminant::Enum(_, of)) if self.types.out.len() < MAX_LISTS => {
                let name = match &case.kind {
                    ValueKind::Name(name) => name,
                    _ => "",
                };
                self.types.constants.list_enumerators(error, of, name, &case.span)
            }
            _ => error,
        }
    }
}
