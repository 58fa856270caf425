//! The syntax tree, with source positions and comments. Names are not resolved.

use std::collections::HashSet;

use crate::{ir::ShortInt, source::Span};

/// A name as written in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ident {
    /// The text of the name.
    pub(crate) text: String,
    /// The position of the name in the source.
    pub(crate) span: Span,
}

/// The syntax tree of one source file.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    /// The definitions in the order of the source, without those that have a syntax error.
    pub(crate) definitions: Vec<Definition>,
    /// The comment at the start of the file, without comment marks.
    pub(crate) header: Vec<String>,
    /// The index of this file among the sources of the run. Included files precede this file among the trees and follow
    /// it among the sources.
    pub(crate) source: usize,
    /// The source ranges of preprocessor lines and of the text that conditions exclude, in the order of the source.
    pub(crate) excluded: Vec<Span>,
    /// The positions of annotations, in the order of the source. Annotations of definitions that could not be parsed
    /// are left out.
    pub(crate) annotations: Vec<Span>,
    /// `#define` lines that are not yet classified as constants or types.
    pub(crate) macros: Vec<Macro>,
    /// Macros for `opaque` or `string`, which are types only together with a declarator.
    pub(crate) spellings: Vec<(String, Primitive)>,
    /// The lines that begin with `%` and that rpcgen copies to its output, without the `%`.
    pub(crate) passed_through: Vec<Ident>,
    /// Hints of eligibility (`pragma pages`), as statements of a binding.
    pub(crate) hints: Vec<Statement>,
    /// The words in definitions that could not be parsed. The compiler does not report a name among these words as
    /// missing.
    pub(crate) failed_words: HashSet<String>,
    /// Uses of dialects. They are errors in strict mode, and are accepted otherwise.
    pub(crate) dialects: Vec<Dialect>,
    /// `true` if parsing stopped early because of too many syntax errors. Missing definitions are then not reported.
    pub(crate) stopped_early: bool,
}

/// A construct that other XDR compilers accept, but RFC 4506 and RFC 5531 do not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dialect {
    /// The position of the dialect in the source.
    pub(crate) span: Span,
    /// A short description of the construct.
    pub(crate) what: &'static str,
    /// The RFC section that defines the standard syntax.
    pub(crate) rule: &'static str,
}

impl Dialect {
    pub(crate) fn new(span: &Span, what: &'static str, rule: &'static str) -> Self {
        Self { span: span.clone(), what, rule }
    }
}

/// `#define NAME text`, which defines a constant or a type.
#[derive(Debug, Clone)]
pub(crate) struct Macro {
    /// The name of the macro.
    pub(crate) name: Ident,
    /// The comment before the macro, without comment marks.
    pub(crate) doc: Vec<String>,
    /// The source range of the line.
    pub(crate) span: Span,
    /// The text, parsed as a constant. `None` if it is not a constant.
    pub(crate) value: Option<Value>,
    /// The text, parsed as a type. `None` if it is not a type.
    pub(crate) ty: Option<TypeSpec>,
}

/// A definition, with the annotations and the comment before it.
#[derive(Debug, Clone)]
pub(crate) struct Definition {
    /// The annotations before the definition.
    pub(crate) annotations: Vec<Annotation>,
    /// The comment before the definition, without comment marks.
    pub(crate) doc: Vec<String>,
    /// The source range, including annotations and `;`.
    pub(crate) span: Span,
    /// The kind of definition, with its contents.
    pub(crate) kind: DefinitionKind,
}

#[derive(Debug, Clone)]
pub(crate) enum DefinitionKind {
    /// `const NAME = value`
    Const {
        /// The name of the constant.
        name: Ident,
        /// The type of the constant, if given. This is a dialect: RFC 4506 §4.17 defines constants without a type.
        ty: Option<TypeSpec>,
        /// The value of the constant.
        value: Value,
    },
    /// `typedef declaration`
    Typedef(Declaration),
    /// `enum name { ... }`
    Enum(Ident, EnumBody),
    /// `struct name { ... }`
    Struct(Ident, StructBody),
    /// `union name switch (...) { ... }` or `opaque_union name switch (...) { ... }`
    Union(Ident, UnionBody),
    /// `program name { ... } = value`
    Program(ProgramNode),
}

/// A constant value: a number, a string, the name of a constant, or an expression.
#[derive(Debug, Clone)]
pub(crate) struct Value {
    pub(crate) kind: ValueKind,
    /// The position of the value in the source.
    pub(crate) span: Span,
}

/// The kind of a [`Value`].
#[derive(Debug, Clone)]
pub(crate) enum ValueKind {
    /// A number of at most 128 bits.
    Int(i128),
    /// The name of a constant.
    Name(String),
    /// A string constant.
    Text(String),
    /// An expression with C operators, and the names in it.
    Computed(String, Vec<Ident>),
}

/// `@name(args)`
#[derive(Debug, Clone)]
pub(crate) struct Annotation {
    /// The name, without `@`.
    pub(crate) name: Ident,
    /// The arguments, each with its optional name.
    pub(crate) args: Vec<(Option<Ident>, ExprNode)>,
    /// The source range of the annotation.
    pub(crate) span: Span,
    /// `true` if another compiler's construct implies the annotation. Such an annotation has no effect where it is not
    /// allowed.
    pub(crate) is_hint: bool,
}

/// A statement of a `.ulb` file: `keyword [procedure:] path, ... [name] [= expr]`.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// The keyword, such as `ddp` or `reply_max`.
    pub(crate) keyword: Ident,
    /// The procedure that the statement applies to, if several procedures share the item.
    pub(crate) procedure: Option<Path>,
    /// The items that the statement applies to.
    pub(crate) paths: Vec<Path>,
    /// The value, with the optional name before it.
    pub(crate) setting: Option<(Option<Ident>, ExprNode)>,
    /// The source range of the statement.
    pub(crate) span: Span,
}

/// One or more names, separated by dots.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    /// The names, from left to right.
    pub(crate) parts: Vec<Ident>,
    /// The source range of the path.
    pub(crate) span: Span,
}

/// An expression over the arguments of a call.
#[derive(Debug, Clone)]
pub(crate) struct ExprNode {
    /// The kind of expression.
    pub(crate) kind: ExprKind,
    /// The position of the expression in the source.
    pub(crate) span: Span,
}

/// The kind of an [`ExprNode`].
#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    /// A number, with its suffix applied.
    Int(u64),
    /// The name of a constant, the path of an item of the arguments, such as `args.field` or `field`, or the operand of
    /// `max_len`: a type or a field.
    Path(Vec<Ident>),
    /// `min(...)`, `max(...)`, `len(...)`, `max_len(...)`
    Call(Ident, Vec<ExprNode>),
    /// An operator with two operands.
    Binary(BinaryOp, Box<ExprNode>, Box<ExprNode>),
}

/// A binary operator of an [`ExprNode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
}

/// A type, a name and a declarator. The name of a parameter or result is optional.
#[derive(Debug, Clone)]
pub(crate) struct Declaration {
    /// The annotations before the declaration.
    pub(crate) annotations: Vec<Annotation>,
    /// The comment before the declaration, without comment marks.
    pub(crate) doc: Vec<String>,
    /// The source range from the type to the declarator, without annotations.
    pub(crate) span: Span,
    /// The type of the declaration.
    pub(crate) ty: TypeSpec,
    /// The name of the declaration.
    pub(crate) name: Option<Ident>,
    /// The declarator, which tells a plain item, a pointer and an array apart.
    pub(crate) declarator: Declarator,
}

/// The declarator of a declaration: plain, pointer or array.
#[derive(Debug, Clone)]
pub(crate) enum Declarator {
    /// `T x`
    Plain,
    /// `T *x`
    Pointer,
    /// `T x[n]`
    Fixed(Value),
    /// `T x<n>`, `T x<>`
    Counted(Option<Value>),
}

/// A type specifier.
#[derive(Debug, Clone)]
pub(crate) struct TypeSpec {
    /// The kind of type specifier.
    pub(crate) kind: TypeKind,
    /// The position of the type specifier in the source.
    pub(crate) span: Span,
}

/// The kind of a [`TypeSpec`].
#[derive(Debug, Clone)]
pub(crate) enum TypeKind {
    /// A basic XDR type.
    Primitive(Primitive),
    /// A declared type: `x`, `struct x`, `enum x`, `union x`.
    Named(Ident),
    /// `enum { ... }`, with an optional name.
    Enum(Option<Ident>, EnumBody),
    /// `struct { ... }`, with an optional name.
    Struct(Option<Ident>, StructBody),
    /// `union switch ... { ... }`, with an optional name.
    Union(Option<Ident>, Box<UnionBody>),
}

/// The basic XDR types, and the short integer types of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Primitive {
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `unsigned int`
    UInt,
    /// An integer type of C that is shorter than 32 bits.
    Short(ShortInt),
    /// `hyper`
    Hyper,
    /// `unsigned hyper`
    UHyper,
    /// `float`
    Float,
    /// `double`
    Double,
    /// `quadruple`
    Quadruple,
    /// `opaque`
    Opaque,
    /// `string`
    String,
}

impl Primitive {
    /// Returns the XDR type for a type name of C or rpcgen, which public specifications use without declaring it.
    /// Returns `None` for other names.
    ///
    /// RFC 8166 §4.1 itself uses `uint32` and `uint64`. `long` is `int`: rpcgen encodes it in 32 bits.
    pub(crate) fn predeclared(name: &str) -> Option<Self> {
        Some(match name {
            "int8" | "int8_t" | "char" => Self::Short(ShortInt::Char),
            "uint8" | "uint8_t" | "u_int8_t" | "u_char" => Self::Short(ShortInt::UChar),
            "int16" | "int16_t" | "short" => Self::Short(ShortInt::Short),
            "uint16" | "uint16_t" | "u_int16_t" | "u_short" | "ushort" => Self::Short(ShortInt::UShort),
            "int32" | "int32_t" | "long" => Self::Int,
            "uint32" | "uint32_t" | "u_int32_t" | "u_int" | "u_long" | "uint" | "ulong" => Self::UInt,
            "int64" | "int64_t" | "quad_t" | "longlong_t" => Self::Hyper,
            "uint64" | "uint64_t" | "u_int64_t" | "u_quad_t" | "u_longlong_t" | "u_hyper" => Self::UHyper,
            "bool_t" => Self::Bool,
            _ => return None,
        })
    }
}

/// The body of an enumeration.
#[derive(Debug, Clone)]
pub(crate) struct EnumBody {
    /// The enumerators, in order of declaration.
    pub(crate) enumerators: Vec<EnumeratorNode>,
}

/// An enumerator, with its optional value.
#[derive(Debug, Clone)]
pub(crate) struct EnumeratorNode {
    /// The name of the enumerator.
    pub(crate) name: Ident,
    /// The value, if given. The default is the previous value plus 1, or 0 for the first enumerator.
    pub(crate) value: Option<Value>,
    /// The comment before the enumerator, without comment marks.
    pub(crate) doc: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct StructBody {
    /// The fields that are not `void`.
    pub(crate) fields: Vec<Declaration>,
}

#[derive(Debug, Clone)]
pub(crate) struct UnionBody {
    pub(crate) discriminant: Declaration,
    /// The arms, in order of declaration. They include the default arm.
    pub(crate) arms: Vec<ArmNode>,
    /// `true` for an `opaque_union` (xdrzcc).
    pub(crate) opaque: bool,
}

/// An arm of a union.
#[derive(Debug, Clone)]
pub(crate) struct ArmNode {
    /// The values of the `case` labels.
    pub(crate) cases: Vec<Value>,
    /// The position of the `default` label, if the arm has one.
    pub(crate) default: Option<Span>,
    /// The declaration of the arm. `None` means `void`.
    pub(crate) declaration: Option<Declaration>,
    /// The annotations before a `void`.
    pub(crate) void_annotations: Vec<Annotation>,
}

/// A `program` definition (RFC 5531 §12).
#[derive(Debug, Clone)]
pub(crate) struct ProgramNode {
    /// The name of the program.
    pub(crate) name: Ident,
    /// The versions, in order of declaration.
    pub(crate) versions: Vec<VersionNode>,
    /// The program number.
    pub(crate) number: Value,
}

/// A `version` definition within a program.
#[derive(Debug, Clone)]
pub(crate) struct VersionNode {
    /// The annotations before the version.
    pub(crate) annotations: Vec<Annotation>,
    /// The comment before the version, without comment marks.
    pub(crate) doc: Vec<String>,
    /// The name of the version.
    pub(crate) name: Ident,
    /// The base version, whose procedures this version inherits.
    pub(crate) base: Option<Ident>,
    /// The procedures that the version declares itself, in order of declaration.
    pub(crate) procedures: Vec<ProcedureNode>,
    /// The version number.
    pub(crate) number: Value,
}

/// The declaration of a procedure within a version.
#[derive(Debug, Clone)]
pub(crate) struct ProcedureNode {
    /// The annotations before the procedure.
    pub(crate) annotations: Vec<Annotation>,
    /// The comment before the procedure, without comment marks.
    pub(crate) doc: Vec<String>,
    /// The source range, including annotations and `;`.
    pub(crate) span: Span,
    /// The name of the procedure.
    pub(crate) name: Ident,
    /// The result. `None` means `void`.
    pub(crate) result: Option<Declaration>,
    /// The parameters. Empty for `void`.
    pub(crate) parameters: Vec<Declaration>,
    /// The procedure number.
    pub(crate) number: Value,
}
