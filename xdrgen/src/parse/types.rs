//! Parsing of types and declarations (RFC 4506 §6.3).

use pest::iterators::Pair;

use super::{Builder, Rule};
use crate::{
    ast::{
        Annotation, ArmNode, Declaration, Declarator, EnumBody, EnumeratorNode, Primitive, StructBody, TypeKind,
        TypeSpec, UnionBody, Value,
    },
    ir::ShortInt,
    source::join,
};

impl Builder<'_, '_> {
    pub(super) fn enum_body(&mut self, pair: Pair<'_, Rule>) -> Option<EnumBody> {
        let mut enumerators = Vec::new();
        // A comment for an enumerator can follow the comma.
        for inner in pair.into_inner().filter(|inner| inner.as_rule() == Rule::enumerator) {
            let at = self.range(&inner);
            let doc = self.comments.of(at.start, at.end);
            let (mut name, mut value) = (None, None);
            for part in inner.into_inner() {
                match part.as_rule() {
                    Rule::name => name = Some(self.ident(&part)),
                    Rule::value => value = Some(self.value(part)?),
                    _ => {}
                }
            }
            enumerators.push(EnumeratorNode { name: name?, value, doc });
        }
        Some(EnumBody { enumerators })
    }

    pub(super) fn struct_body(&mut self, pair: Pair<'_, Rule>) -> Option<StructBody> {
        let mut fields = Vec::new();
        for member in pair.into_inner().filter(|inner| inner.as_rule() == Rule::member) {
            let (_, declaration) = self.member(member)?;
            fields.extend(declaration);
        }
        Some(StructBody { fields })
    }

    /// Returns the annotations and the declaration of a `member` or `arm`. The declaration is `None` for `void`.
    fn member(&mut self, pair: Pair<'_, Rule>) -> Option<(Vec<Annotation>, Option<Declaration>)> {
        let end = self.range(&pair).end;
        let mut annotations = Vec::new();
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::annotation => annotations.push(self.annotation(inner)?),
                Rule::declaration => {
                    return Some((Vec::new(), Some(self.declaration(inner, annotations, end)?)));
                }
                _ => {}
            }
        }
        Some((annotations, None))
    }

    pub(super) fn union_body(&mut self, pair: Pair<'_, Rule>) -> Option<UnionBody> {
        let mut discriminant = None;
        let mut arms = Vec::new();
        for inner in pair.into_inner() {
            match inner.as_rule() {
                Rule::declaration => {
                    let end = self.range(&inner).end;
                    discriminant = Some(self.declaration(inner, Vec::new(), end)?);
                }
                Rule::arm => arms.push(self.arm(inner)?),
                _ => {}
            }
        }
        Some(UnionBody { discriminant: discriminant?, arms, opaque: false })
    }

    fn arm(&mut self, pair: Pair<'_, Rule>) -> Option<ArmNode> {
        let mut cases: Vec<Value> = Vec::new();
        let mut default = None;
        for label in pair.clone().into_inner().filter(|inner| inner.as_rule() == Rule::label) {
            let at = self.span(&label);
            match label.into_inner().find(|part| part.as_rule() == Rule::value) {
                Some(value) => cases.push(self.value(value)?),
                None => default = Some(at),
            }
        }
        let (void_annotations, declaration) = self.member(pair)?;
        Some(ArmNode { cases, default, declaration, void_annotations })
    }

    /// Builds a declaration. `end` is the offset after its `;`, where a comment may follow.
    pub(super) fn declaration(
        &mut self,
        pair: Pair<'_, Rule>,
        annotations: Vec<Annotation>,
        end: usize,
    ) -> Option<Declaration> {
        let span = self.span(&pair);
        let start = annotations.first().map_or(span.range.start, |annotation| annotation.span.range.start);
        let doc = self.comments.of(start, end);
        let mut ty = None;
        let mut name = None;
        let mut declarator = Declarator::Plain;
        for part in pair.into_inner() {
            match part.as_rule() {
                Rule::type_spec => ty = Some(self.type_spec(part)?),
                // A typedef with the new name first.
                Rule::primitive | Rule::enum_type | Rule::struct_type | Rule::union_type => {
                    ty = Some(TypeSpec { span: self.span(&part), kind: self.type_kind(part)? });
                }
                Rule::star => declarator = Declarator::Pointer,
                Rule::name => name = Some(self.ident(&part)),
                Rule::fixed | Rule::counted => {
                    let fixed = part.as_rule() == Rule::fixed;
                    let value = match part.into_inner().find(|inner| inner.as_rule() == Rule::value) {
                        Some(value) => Some(self.value(value)?),
                        None => None,
                    };
                    if matches!(declarator, Declarator::Pointer) {
                        self.pointer_to_array(&span);
                        return None;
                    }
                    declarator = if fixed { Declarator::Fixed(value?) } else { Declarator::Counted(value) };
                }
                _ => {}
            }
        }
        Some(Declaration { annotations, doc, span, ty: ty?, name, declarator })
    }

    fn pointer_to_array(&mut self, at: &crate::source::Span) {
        use crate::diag::{Code, Diagnostic};
        self.diagnostics.push(
            Diagnostic::new(Code::Syntax, "a declaration is either optional (`*`) or an array, not both")
                .at(at, "")
                .help("give the array a name with a typedef, and make that optional"),
        );
    }

    pub(super) fn type_spec(&mut self, pair: Pair<'_, Rule>) -> Option<TypeSpec> {
        let span = self.span(&pair);
        let kind = self.type_kind(pair.into_inner().next()?)?;
        Some(TypeSpec { kind, span })
    }

    fn type_kind(&mut self, inner: Pair<'_, Rule>) -> Option<TypeKind> {
        Some(match inner.as_rule() {
            Rule::primitive => TypeKind::Primitive(primitive(&inner)?),
            Rule::name => TypeKind::Named(self.ident(&inner)),
            rule => {
                let mut name = None;
                let mut body = None;
                for part in inner.into_inner() {
                    match part.as_rule() {
                        Rule::name => name = Some(self.ident(&part)),
                        Rule::enum_body | Rule::struct_body | Rule::union_body => body = Some(part),
                        _ => {}
                    }
                }
                match (rule, body) {
                    (_, None) => TypeKind::Named(name?),
                    (Rule::enum_type, Some(body)) => TypeKind::Enum(name, self.enum_body(body)?),
                    (Rule::struct_type, Some(body)) => TypeKind::Struct(name, self.struct_body(body)?),
                    (_, Some(body)) => TypeKind::Union(name, Box::new(self.union_body(body)?)),
                }
            }
        })
    }
}

/// Returns the built-in type that consists of these words. `unsigned` means `unsigned int`, and `long` means `int`, as
/// in rpcgen. `long long`, which rpcgen does not support, has 64 bits as in other compilers.
fn primitive(pair: &Pair<'_, Rule>) -> Option<Primitive> {
    let leaves = pair.clone().into_inner().flatten().filter(|inner| inner.clone().into_inner().next().is_none());
    let words: Vec<&str> = leaves.map(|word| word.as_str()).collect();
    Some(match words.as_slice() {
        ["unsigned", "hyper"] | ["unsigned", "long", "long", ..] => Primitive::UHyper,
        ["unsigned", "char"] => Primitive::Short(ShortInt::UChar),
        ["unsigned", "short", ..] => Primitive::Short(ShortInt::UShort),
        ["unsigned", ..] => Primitive::UInt,
        ["hyper"] | ["long", "long", ..] => Primitive::Hyper,
        ["short", "int"] => Primitive::Short(ShortInt::Short),
        ["int"] | ["long", "int"] => Primitive::Int,
        ["float"] => Primitive::Float,
        ["double"] => Primitive::Double,
        ["quadruple"] => Primitive::Quadruple,
        ["bool"] => Primitive::Bool,
        ["opaque"] => Primitive::Opaque,
        ["string"] => Primitive::String,
        _ => return None,
    })
}

/// Parsing of parameters and results, which are [`Declaration`]s whose name may be missing.
impl Builder<'_, '_> {
    pub(super) fn bare_declaration(&mut self, pair: Pair<'_, Rule>) -> Option<Declaration> {
        let at = self.span(&pair);
        let mut annotations = Vec::new();
        for inner in pair.clone().into_inner().filter(|inner| inner.as_rule() == Rule::annotation) {
            annotations.push(self.annotation(inner)?);
        }
        let mut declaration = self.declaration(pair, annotations, at.range.end)?;
        // The pair includes the annotations. The declaration starts at its type.
        declaration.span = join(&declaration.ty.span, &at);
        Some(declaration)
    }
}
