//! The syntax tree, with source positions and comments. Names are not resolved.

use std::collections::HashSet;

use crate::source::Span;

/// A name as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// The text of the name.
    pub text: String,
    /// The position of the name in the source.
    pub span: Span,
}

/// One source file.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// The definitions, in order, without those that have a syntax error.
    pub definitions: Vec<Definition>,
    /// The comment at the start of the file, without comment marks.
    pub header: Vec<String>,
    /// The index of this file among the sources of the run. Included files precede this file among the trees and follow it among
    /// the sources.
    pub source: usize,
    /// The parts that conditions exclude, and the preprocessor lines, in order.
    pub left_out: Vec<Span>,
    /// The positions of annotations, in order, without those of definitions that could not be parsed.
    pub annotations: Vec<Span>,
    /// `#define` lines that are not yet classified as constants or types.
    pub macros: Vec<Macro>,
    /// Macros for `opaque` or `string`, which are types only together with a declarator.
    pub spellings: Vec<(String, Primitive)>,
    /// `%` lines, without the `%`.
    pub passed_through: Vec<Ident>,
    /// Words of definitions that could not be parsed. A missing name among them is not reported as another error.
    pub lost: HashSet<String>,
    /// Uses of dialects. They are accepted, and reported in strict mode.
    pub dialects: Vec<Dialect>,
    /// `true` if parsing stopped early because of too many syntax errors. Missing definitions are then not reported.
    pub given_up: bool,
}

/// A construct that other XDR compilers accept, but RFC 4506 and RFC 5531 do not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// The position of the dialect in the source.
    pub span: Span,
    /// A short description.
    pub what: &'static str,
    /// The RFC section that defines the standard syntax.
    pub rule: &'static str,
}

impl Dialect {
    pub(crate) fn new(span: &Span, what: &'static str, rule: &'static str) -> Self {
        Self { span: span.clone(), what, rule }
    }
}

/// `#define NAME text`, which defines a constant or a type.
#[derive(Debug, Clone)]
pub struct Macro {
    /// The name of the macro.
    pub name: Ident,
    /// The comment before the macro, without comment marks.
    pub doc: Vec<String>,
    /// The source range of the line.
    pub span: Span,
    /// The text as a constant, if it can be one.
    pub value: Option<Value>,
    /// The text as a type, if it can be one.
    pub ty: Option<TypeSpec>,
}

/// A definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The annotations before the definition.
    pub annotations: Vec<Annotation>,
    /// The comment before the definition, without comment marks.
    pub doc: Vec<String>,
    /// The source range, including annotations and `;`.
    pub span: Span,
    /// The kind of definition, with its contents.
    pub kind: DefinitionKind,
}

/// The kind of a definition.
#[derive(Debug, Clone)]
pub enum DefinitionKind {
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
    Program(Program),
}

/// A constant or the name of a constant.
#[derive(Debug, Clone)]
pub struct Value {
    /// The kind of value.
    pub kind: ValueKind,
    /// The position of the value in the source.
    pub span: Span,
}

/// The kind of a [`Value`].
#[derive(Debug, Clone)]
pub enum ValueKind {
    /// A number of at most 128 bits.
    Int(i128),
    /// A name.
    Name(String),
    /// A string constant.
    Text(String),
    /// An expression with C operators, and the names in it.
    Computed(String, Vec<Ident>),
}

/// `@name(args)`
#[derive(Debug, Clone)]
pub struct Annotation {
    /// The name, without `@`.
    pub name: Ident,
    /// The arguments, each with its optional name.
    pub args: Vec<(Option<Ident>, Expr)>,
    /// The source range of the annotation.
    pub span: Span,
}

/// A statement of a `.ulb` file: `keyword [procedure:] path, ... [name] [= expr]`.
#[derive(Debug, Clone)]
pub struct Statement {
    /// The keyword.
    pub keyword: Ident,
    /// The procedure that the statement applies to, if several procedures share the item.
    pub procedure: Option<Path>,
    /// The items that the statement applies to.
    pub paths: Vec<Path>,
    /// The value, with the optional name before it.
    pub setting: Option<(Option<Ident>, Expr)>,
    /// The source range of the statement.
    pub span: Span,
}

/// One or more names, separated by dots.
#[derive(Debug, Clone)]
pub struct Path {
    /// The names.
    pub parts: Vec<Ident>,
    /// The source range of the path.
    pub span: Span,
}

/// An expression over the arguments of a call.
#[derive(Debug, Clone)]
pub struct Expr {
    /// The kind of expression.
    pub kind: ExprKind,
    /// The position of the expression in the source.
    pub span: Span,
}

/// The kind of an [`Expr`].
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A number, with its suffix applied.
    Int(u64),
    /// The name of a constant, or `args.field`.
    Path(Vec<Ident>),
    /// `min(...)`, `max(...)`, `len(...)`
    Call(Ident, Vec<Expr>),
    /// An operator with two operands.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
}

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOp {
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
pub struct Declaration {
    /// The annotations before the declaration.
    pub annotations: Vec<Annotation>,
    /// The comment before the declaration, without comment marks.
    pub doc: Vec<String>,
    /// The source range from the type to the declarator, without annotations.
    pub span: Span,
    /// The type of the declaration.
    pub ty: TypeSpec,
    /// The name of the declaration.
    pub name: Option<Ident>,
    /// The declarator.
    pub declarator: Declarator,
}

/// The declarator of a declaration: plain, pointer or array.
#[derive(Debug, Clone)]
pub enum Declarator {
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
pub struct TypeSpec {
    /// The kind of type specifier.
    pub kind: TypeKind,
    /// The position of the type specifier in the source.
    pub span: Span,
}

/// The kind of a [`TypeSpec`].
#[derive(Debug, Clone)]
pub enum TypeKind {
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

/// The basic XDR types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Primitive {
    /// `bool`
    Bool,
    /// `int`, and shorter C types, which are encoded as `int`
    Int,
    /// `unsigned int`, and shorter unsigned C types
    UInt,
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
    /// Returns the type that public specifications mean by `name` without declaring it. These are type names of C and rpcgen.
    ///
    /// RFC 8166 §4.1 itself uses `uint32` and `uint64`. C's `char` and `short` are encoded as `int`, because RFC 4506 §4.1 has no
    /// shorter type. So is `long`, which rpcgen encodes in 32 bits.
    pub(crate) fn predeclared(name: &str) -> Option<Self> {
        Some(match name {
            "int8" | "int8_t" | "int16" | "int16_t" | "int32" | "int32_t" | "char" | "short" | "long" => Self::Int,
            "uint8" | "uint8_t" | "uint16" | "uint16_t" | "uint32" | "uint32_t" | "u_int8_t" | "u_int16_t"
            | "u_int32_t" | "u_char" | "u_short" | "u_int" | "u_long" | "uint" | "ushort" | "ulong" => Self::UInt,
            "int64" | "int64_t" | "quad_t" | "longlong_t" => Self::Hyper,
            "uint64" | "uint64_t" | "u_int64_t" | "u_quad_t" | "u_longlong_t" | "u_hyper" => Self::UHyper,
            "bool_t" => Self::Bool,
            _ => return None,
        })
    }
}

/// The body of an enumeration.
#[derive(Debug, Clone)]
pub struct EnumBody {
    /// The enumerators.
    pub enumerators: Vec<Enumerator>,
}

/// An enumerator.
#[derive(Debug, Clone)]
pub struct Enumerator {
    /// The name of the enumerator.
    pub name: Ident,
    /// The value, if given. The default is the previous value plus 1, or 0 for the first enumerator.
    pub value: Option<Value>,
    /// The comment before the enumerator, without comment marks.
    pub doc: Vec<String>,
}

/// The body of a struct.
#[derive(Debug, Clone)]
pub struct StructBody {
    /// The fields, without `void` ones.
    pub fields: Vec<Declaration>,
}

/// The body of a union.
#[derive(Debug, Clone)]
pub struct UnionBody {
    /// The discriminant.
    pub discriminant: Declaration,
    /// The arms.
    pub arms: Vec<Arm>,
    /// `true` for an `opaque_union` (xdrzcc).
    pub opaque: bool,
}

/// An arm of a union.
#[derive(Debug, Clone)]
pub struct Arm {
    /// The values of the `case` labels.
    pub cases: Vec<Value>,
    /// The position of the `default` label, if the arm has one.
    pub default: Option<Span>,
    /// The declaration of the arm. `None` means `void`.
    pub declaration: Option<Declaration>,
    /// The annotations before a `void`.
    pub void_annotations: Vec<Annotation>,
}

/// A program.
#[derive(Debug, Clone)]
pub struct Program {
    /// The name of the program.
    pub name: Ident,
    /// The versions, in order of declaration.
    pub versions: Vec<Version>,
    /// The program number.
    pub number: Value,
}

/// A version of a program.
#[derive(Debug, Clone)]
pub struct Version {
    /// The annotations before the version.
    pub annotations: Vec<Annotation>,
    /// The comment before the version, without comment marks.
    pub doc: Vec<String>,
    /// The name of the version.
    pub name: Ident,
    /// The procedures, in order of declaration.
    pub procedures: Vec<Procedure>,
    /// The version number.
    pub number: Value,
}

/// A procedure.
#[derive(Debug, Clone)]
pub struct Procedure {
    /// The annotations before the procedure.
    pub annotations: Vec<Annotation>,
    /// The comment before the procedure, without comment marks.
    pub doc: Vec<String>,
    /// The source range, including annotations and `;`.
    pub span: Span,
    /// The name of the procedure.
    pub name: Ident,
    /// The result. `None` means `void`.
    pub result: Option<Declaration>,
    /// The parameters; empty for `void`.
    pub parameters: Vec<Declaration>,
    /// The procedure number.
    pub number: Value,
}
