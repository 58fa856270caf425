//! Resolution of type specifiers and declarators to types of the IR.

use std::collections::{HashMap, HashSet};

use super::{
    constants::Constants,
    errors::did_you_mean,
    names::{ItemBody, SpecNames},
};
use crate::{
    ast::{Declaration, Declarator, Dialect, Ident, Primitive, TypeKind, TypeSpec, UnionBody, Value, ValueKind},
    diag::{Code, Diagnostic},
    ir::{Base, ItemId, ShortInt, Type},
};

/// The type of a union's discriminant (RFC 4506 §4.15, §6.4).
pub(super) enum Discriminant<'a> {
    Int,
    UInt,
    /// An integer of C that is shorter than 32 bits.
    Short(ShortInt),
    /// `unsigned hyper`, which some dialects allow.
    UHyper,
    Bool,
    /// An enumeration: its values and its name.
    Enum(HashSet<i32>, &'a str),
}

/// A type specifier whose names are resolved. `opaque` and `string` are variants of their own, because their type also
/// depends on the declarator.
enum ResolvedSpecifier {
    Base(Base),
    Opaque,
    String,
}

/// A resolver of type specifiers and declarators.
pub(super) struct TypeResolver<'a> {
    pub(super) names: &'a SpecNames<'a>,
    pub(super) constants: &'a Constants<'a>,
    /// Words of definitions that could not be parsed. An undeclared type whose name is one of these words is not
    /// reported.
    failed_words: &'a HashSet<String>,
    pub(super) out: &'a mut Vec<Diagnostic>,
    /// Undeclared types that are interpreted as in C, and other uses of dialects.
    pub(super) dialects: Vec<Dialect>,
    /// The items of constants by name, without enumerators.
    constant_items: HashMap<&'a str, ItemId>,
}

impl<'a> TypeResolver<'a> {
    pub(super) fn new(
        names: &'a SpecNames<'a>,
        constants: &'a Constants<'a>,
        failed_words: &'a HashSet<String>,
        out: &'a mut Vec<Diagnostic>,
    ) -> Self {
        let mut constant_items = HashMap::new();
        for (index, entry) in names.entries.iter().enumerate() {
            if matches!(entry.body, ItemBody::Const(..)) {
                constant_items.entry(entry.name.text.as_str()).or_insert(ItemId(index));
            }
        }
        Self { names, constants, failed_words, out, dialects: Vec::new(), constant_items }
    }

    /// Returns the constant that a declaration names as its length or maximum. Returns `None` for enumerators, numbers
    /// and expressions.
    pub(super) fn length_constant(&self, declaration: &Declaration) -> Option<ItemId> {
        let (Declarator::Fixed(length) | Declarator::Counted(Some(length))) = &declaration.declarator else {
            return None;
        };
        match &length.kind {
            ValueKind::Name(name) => self.constant_items.get(name.as_str()).copied(),
            _ => None,
        }
    }

    /// Resolves the type of a declaration. Returns `None` after an error, which this function reports unless the name
    /// of an unknown type occurs in a definition that could not be parsed.
    pub(super) fn ty(&mut self, declaration: &Declaration) -> Option<Type> {
        let specified = self.specified(&declaration.ty);
        let declarator = &declaration.declarator;
        let number = match declarator {
            Declarator::Fixed(n) | Declarator::Counted(Some(n)) => Some(self.length(n)?),
            _ => None,
        };
        // RFC 4506 §4.10, §4.11, §4.13: without a maximum, it is 2^32 - 1.
        let max = number.unwrap_or(u32::MAX);
        let wrong =
            |message: &str, help: &str| Diagnostic::new(Code::WrongType, message).at(&declaration.span, "").help(help);
        match (specified?, declarator) {
            (ResolvedSpecifier::Base(base), Declarator::Plain) => Some(Type::Base(base)),
            (ResolvedSpecifier::Base(base), Declarator::Pointer) => Some(Type::Optional(base)),
            (ResolvedSpecifier::Base(base), Declarator::Fixed(_)) => Some(Type::ArrayFixed(base, max)),
            (ResolvedSpecifier::Base(base), Declarator::Counted(_)) => Some(Type::Array(base, max)),
            (ResolvedSpecifier::Opaque, Declarator::Fixed(_)) => Some(Type::OpaqueFixed(max)),
            (ResolvedSpecifier::Opaque, Declarator::Counted(_)) => Some(Type::Opaque(max)),
            (ResolvedSpecifier::Opaque, _) => {
                let help = "write `opaque name[n]` or `opaque name<n>` (RFC 4506 §4.9, §4.10)";
                self.out.push(wrong("`opaque` needs a length", help));
                None
            }
            // rpcgen accepts `string` without a declarator as a string of any length.
            (ResolvedSpecifier::String, Declarator::Counted(_) | Declarator::Plain) => Some(Type::String(max)),
            (ResolvedSpecifier::String, _) => {
                let help = "write `string name<n>` (RFC 4506 §4.11)";
                self.out.push(wrong("a string needs `<>`", help));
                None
            }
        }
    }

    /// Evaluates a length or maximum, which is an unsigned 32-bit number (RFC 4506 §6.4). Returns `None` after
    /// reporting an error.
    fn length(&mut self, value: &Value) -> Option<u32> {
        let n = self.constants.number(value, self.out)?;
        if let ValueKind::Name(name) = &value.kind
            && !name.contains("::")
            && let Some(what) = self.constants.dialect_of_length(name, &value.span)
        {
            self.dialects.push(Dialect::new(&value.span, what, "RFC 4506 §6.4"));
        }
        let length = u32::try_from(n).ok();
        if length.is_none() {
            self.out.push(
                Diagnostic::new(Code::OutOfRange, format!("{n} is not a valid length"))
                    .at(&value.span, "")
                    .note("lengths are unsigned 32-bit numbers (RFC 4506 §4.10)"),
            );
        }
        length
    }

    fn specified(&mut self, spec: &TypeSpec) -> Option<ResolvedSpecifier> {
        Some(match &spec.kind {
            TypeKind::Primitive(primitive) => of_primitive(*primitive),
            TypeKind::Named(name) => return self.named(name),
            TypeKind::Enum(..) | TypeKind::Struct(..) | TypeKind::Union(..) => {
                ResolvedSpecifier::Base(Base::Item(self.names.nested(spec)?))
            }
        })
    }

    fn named(&mut self, name: &Ident) -> Option<ResolvedSpecifier> {
        if let Some(id) = self.names.get(&name.text) {
            return Some(ResolvedSpecifier::Base(Base::Item(id)));
        }
        if let Some(primitive) = self.names.spellings.get(name.text.as_str()) {
            return Some(of_primitive(*primitive));
        }
        if let Some(primitive) = Primitive::predeclared(&name.text) {
            self.dialects.push(Dialect::new(&name.span, "an undeclared type", "RFC 4506 §6.3"));
            return Some(of_primitive(primitive));
        }
        if !self.failed_words.contains(&name.text) {
            let mut diagnostic = Diagnostic::new(Code::UnknownType, format!("no type is named `{}`", name.text))
                .at(&name.span, "not declared");
            if self.constants.get(&name.text).is_some() {
                diagnostic = diagnostic.note(format!("`{}` is a constant", name.text));
            }
            let diagnostic = did_you_mean(diagnostic, &name.text, self.names.all(), self.out);
            self.out.push(diagnostic);
        }
        None
    }

    /// Returns the basic type that a constant is declared with, after resolving typedefs. Returns `None` for other
    /// types. An undeclared type is not an error, because it does not affect the encoding.
    pub(super) fn constant_type(&self, spec: &TypeSpec) -> Option<Base> {
        let mut spec = spec;
        // Each step resolves one typedef.
        for _ in 0..=self.names.entries.len() {
            let primitive = match &spec.kind {
                TypeKind::Primitive(primitive) => Some(*primitive),
                TypeKind::Named(name) => match self.names.get(&name.text).and_then(|id| self.names.entries.get(id.0)) {
                    None => Primitive::predeclared(&name.text),
                    Some(entry) => match entry.body {
                        ItemBody::Typedef(Declaration { ty, declarator: Declarator::Plain, .. }) => {
                            spec = ty;
                            continue;
                        }
                        _ => None,
                    },
                },
                _ => None,
            };
            return match of_primitive(primitive?) {
                ResolvedSpecifier::Base(base) => Some(base),
                ResolvedSpecifier::Opaque | ResolvedSpecifier::String => None,
            };
        }
        None
    }

    /// Resolves the type of a union's discriminant, including typedefs. Returns `None` after an error, which this
    /// function reports unless the type is unknown.
    pub(super) fn discriminant(&mut self, body: &UnionBody) -> Option<Discriminant<'a>> {
        let names = self.names;
        let declaration = &body.discriminant;
        let mut spec = &declaration.ty;
        let mut plain = matches!(declaration.declarator, Declarator::Plain);
        // Each step resolves one typedef. More steps than types means a cycle, which is reported elsewhere.
        for _ in 0..=names.entries.len() {
            if !plain {
                break;
            }
            let primitive = match &spec.kind {
                TypeKind::Primitive(primitive) => Some(*primitive),
                TypeKind::Named(name) if names.get(&name.text).is_none() => {
                    // An unknown type is reported where it is resolved.
                    Some(Primitive::predeclared(&name.text)?)
                }
                _ => None,
            };
            match primitive {
                Some(Primitive::Int) => return Some(Discriminant::Int),
                Some(Primitive::UInt) => return Some(Discriminant::UInt),
                Some(Primitive::Short(short)) => return Some(Discriminant::Short(short)),
                Some(Primitive::UHyper) => {
                    let what = "a union switched by an `unsigned hyper`";
                    self.dialects.push(Dialect::new(&declaration.span, what, "RFC 4506 §4.15"));
                    return Some(Discriminant::UHyper);
                }
                Some(Primitive::Bool) => return Some(Discriminant::Bool),
                Some(_) => break,
                None => {}
            }
            let id = match &spec.kind {
                TypeKind::Named(name) => names.get(&name.text)?,
                _ => names.nested(spec)?,
            };
            let entry = names.entries.get(id.0)?;
            match entry.body {
                ItemBody::Enum(body) => {
                    let values = (0..body.enumerators.len()).filter_map(|n| self.constants.enumerator(id.0, n));
                    return Some(Discriminant::Enum(values.filter_map(word).collect(), &entry.name.text));
                }
                ItemBody::Typedef(declaration) => {
                    spec = &declaration.ty;
                    plain = matches!(declaration.declarator, Declarator::Plain);
                }
                _ => break,
            }
        }
        self.out.push(
            Diagnostic::new(Code::WrongType, "a union cannot be switched by this type")
                .at(&declaration.span, "")
                .note("a discriminant is an `int`, an `unsigned int`, a `bool` or an enumeration (RFC 4506 §4.15)"),
        );
        None
    }
}

/// Converts a number to a signed 32-bit integer. As in C, unsigned 32-bit values wrap to negative values.
pub(super) fn word(number: i128) -> Option<i32> {
    i32::try_from(number).ok().or_else(|| u32::try_from(number).ok().map(u32::cast_signed))
}

fn of_primitive(primitive: Primitive) -> ResolvedSpecifier {
    ResolvedSpecifier::Base(match primitive {
        Primitive::Bool => Base::Bool,
        Primitive::Int => Base::Int,
        Primitive::UInt => Base::UInt,
        Primitive::Hyper => Base::Hyper,
        Primitive::UHyper => Base::UHyper,
        Primitive::Short(short) => Base::Short(short),
        Primitive::Float => Base::Float,
        Primitive::Double => Base::Double,
        Primitive::Quadruple => Base::Quadruple,
        Primitive::Opaque => return ResolvedSpecifier::Opaque,
        Primitive::String => return ResolvedSpecifier::String,
    })
}
