//! The syntax tree: what is written, where, and the comments that belong to it. Nothing is resolved yet.

use std::collections::HashSet;

use crate::source::Span;

/// A name as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ident {
    /// Its text.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// One source file.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Definitions, in order; those with a syntax error are left out.
    pub definitions: Vec<Definition>,
    /// Comment at its head, without comment marks.
    pub header: Vec<String>,
    /// Which of the run's sources it is. Files that it includes come before it among the trees, after it among those.
    pub source: usize,
    /// What conditions leave out, and the lines for a preprocessor, in order.
    pub left_out: Vec<Span>,
    /// Where annotations stand, in order, those of definitions that could not be parsed left out.
    pub annotations: Vec<Span>,
    /// `#define` lines, until it is known what each stands for.
    pub macros: Vec<Macro>,
    /// Macros that stand for `opaque` or `string`, which are no types without a declarator.
    pub spellings: Vec<(String, Primitive)>,
    /// `%` lines, without the mark.
    pub passed_through: Vec<Ident>,
    /// Words of definitions that could not be parsed: a missing name among them is no second error.
    pub lost: HashSet<String>,
    /// What RFC 4506 and RFC 5531 do not have: accepted, and told to who asks for it.
    pub dialects: Vec<Dialect>,
    /// Whether the rest was not parsed, there being too many syntax errors: what is missing then says nothing.
    pub given_up: bool,
}

/// Something that other XDR compilers take but the RFCs do not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    /// Where.
    pub span: Span,
    /// What, in a few words.
    pub what: &'static str,
    /// The section that says otherwise.
    pub rule: &'static str,
}

impl Dialect {
    pub(crate) fn new(span: &Span, what: &'static str, rule: &'static str) -> Self {
        Self { span: span.clone(), what, rule }
    }
}

/// `#define NAME text`: a constant or a type, as its text turns out to be.
#[derive(Debug, Clone)]
pub struct Macro {
    /// Its name.
    pub name: Ident,
    /// Its comment.
    pub doc: Vec<String>,
    /// The whole line.
    pub span: Span,
    /// Its text as a constant, where it can be one.
    pub value: Option<Value>,
    /// Its text as a type, where it can be one.
    pub ty: Option<TypeSpec>,
}

/// A definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its comment.
    pub doc: Vec<String>,
    /// All of it, annotations and `;` included.
    pub span: Span,
    /// What is defined.
    pub kind: DefinitionKind,
}

/// What a definition defines.
#[derive(Debug, Clone)]
pub enum DefinitionKind {
    /// `const NAME = value`
    Const {
        /// Its name.
        name: Ident,
        /// Its type, where one is written: a dialect, as RFC 4506 §4.17 has none.
        ty: Option<TypeSpec>,
        /// Its value.
        value: Value,
    },
    /// `typedef declaration`
    Typedef(Declaration),
    /// `enum name { ... }`
    Enum(Ident, EnumBody),
    /// `struct name { ... }`
    Struct(Ident, StructBody),
    /// `union name switch (...) { ... }`
    Union(Ident, UnionBody),
    /// `program name { ... } = value`
    Program(Program),
}

/// A constant, or the name of one.
#[derive(Debug, Clone)]
pub struct Value {
    /// Which.
    pub kind: ValueKind,
    /// Where.
    pub span: Span,
}

/// What a [`Value`] is written as.
#[derive(Debug, Clone)]
pub enum ValueKind {
    /// A number that fits 128 bits.
    Int(i128),
    /// A name.
    Name(String),
    /// A string constant.
    Text(String),
    /// A computation in C's operators, and the names in it.
    Computed(String, Vec<Ident>),
}

/// `@name(args)`
#[derive(Debug, Clone)]
pub struct Annotation {
    /// Its name, without `@`.
    pub name: Ident,
    /// Its arguments, with the name of those that have one.
    pub args: Vec<(Option<Ident>, Expr)>,
    /// All of it.
    pub span: Span,
}

/// A statement of a `.ulb` file: `keyword [procedure:] path, ... [name] [= expr]`.
#[derive(Debug, Clone)]
pub struct Statement {
    /// What is stated.
    pub keyword: Ident,
    /// The procedure that it is stated for, of an item that several share.
    pub procedure: Option<Path>,
    /// Of what.
    pub paths: Vec<Path>,
    /// The value, and the name before it.
    pub setting: Option<(Option<Ident>, Expr)>,
    /// All of it.
    pub span: Span,
}

/// Names with dots between, at least one.
#[derive(Debug, Clone)]
pub struct Path {
    /// The names.
    pub parts: Vec<Ident>,
    /// All of it.
    pub span: Span,
}

/// An expression over a call's arguments.
#[derive(Debug, Clone)]
pub struct Expr {
    /// Which.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// What an [`Expr`] is.
#[derive(Debug, Clone)]
pub enum ExprKind {
    /// A number, its suffix applied.
    Int(u64),
    /// A constant's name, or `args.field`.
    Path(Vec<Ident>),
    /// `min(...)`, `max(...)`, `len(...)`
    Call(Ident, Vec<Expr>),
    /// Two operands.
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

/// A type, a name and how they combine; a parameter's or result's name may be missing.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its comment.
    pub doc: Vec<String>,
    /// Type to declarator, without annotations.
    pub span: Span,
    /// Its type.
    pub ty: TypeSpec,
    /// Its name.
    pub name: Option<Ident>,
    /// Array, pointer or neither.
    pub declarator: Declarator,
}

/// How a declaration's type and name combine.
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
    /// Which.
    pub kind: TypeKind,
    /// Where.
    pub span: Span,
}

/// What a [`TypeSpec`] is.
#[derive(Debug, Clone)]
pub enum TypeKind {
    /// A type of XDR's own.
    Primitive(Primitive),
    /// A declared type: `x`, `struct x`, `enum x`, `union x`.
    Named(Ident),
    /// `enum { ... }`, perhaps with a name.
    Enum(Option<Ident>, EnumBody),
    /// `struct { ... }`, perhaps with a name.
    Struct(Option<Ident>, StructBody),
    /// `union switch ... { ... }`, perhaps with a name.
    Union(Option<Ident>, Box<UnionBody>),
}

/// XDR's own types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Primitive {
    /// `bool`
    Bool,
    /// `int`, and C's shorter ones, which travel as one
    Int,
    /// `unsigned int`, likewise
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
    /// The type that public specifications mean by `name` where no declaration says otherwise: C's names, and rpcgen's.
    ///
    /// RFC 8166 §4.1 itself uses `uint32` and `uint64` so. C's `char` and `short` travel as `int` (RFC 4506 §4.1 has
    /// nothing shorter), and so does `long`, which is 32 bits on the wire to rpcgen.
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

/// Body of an enumeration.
#[derive(Debug, Clone)]
pub struct EnumBody {
    /// Its names.
    pub enumerators: Vec<Enumerator>,
}

/// A name of an enumeration.
#[derive(Debug, Clone)]
pub struct Enumerator {
    /// Its name.
    pub name: Ident,
    /// Its value; without one, the value before plus 1, the first 0.
    pub value: Option<Value>,
    /// Its comment.
    pub doc: Vec<String>,
}

/// Body of a struct.
#[derive(Debug, Clone)]
pub struct StructBody {
    /// Its fields, without `void` ones.
    pub fields: Vec<Declaration>,
}

/// Body of a union.
#[derive(Debug, Clone)]
pub struct UnionBody {
    /// The discriminant.
    pub discriminant: Declaration,
    /// The arms.
    pub arms: Vec<Arm>,
}

/// An arm of a union.
#[derive(Debug, Clone)]
pub struct Arm {
    /// Values of its `case` labels.
    pub cases: Vec<Value>,
    /// Its `default` label.
    pub default: Option<Span>,
    /// What it holds; `None` is `void`.
    pub declaration: Option<Declaration>,
    /// Annotations before a `void`.
    pub void_annotations: Vec<Annotation>,
}

/// A program.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name.
    pub name: Ident,
    /// Its versions.
    pub versions: Vec<Version>,
    /// Its number.
    pub number: Value,
}

/// A version of a program.
#[derive(Debug, Clone)]
pub struct Version {
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its comment.
    pub doc: Vec<String>,
    /// Its name.
    pub name: Ident,
    /// Its procedures.
    pub procedures: Vec<Procedure>,
    /// Its number.
    pub number: Value,
}

/// A procedure.
#[derive(Debug, Clone)]
pub struct Procedure {
    /// Annotations before it.
    pub annotations: Vec<Annotation>,
    /// Its comment.
    pub doc: Vec<String>,
    /// All of it, annotations and `;` included.
    pub span: Span,
    /// Its name.
    pub name: Ident,
    /// Its result; `None` is `void`.
    pub result: Option<Declaration>,
    /// Its arguments; none is `void`.
    pub parameters: Vec<Declaration>,
    /// Its number.
    pub number: Value,
}
