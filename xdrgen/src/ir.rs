//! The typed intermediate representation: names resolved, constants computed, recursion found, the ULB bound and
//! checked. What the back end reads, whichever front door the protocol came in by.

use std::sync::Arc;

pub use crate::source::Span;

/// A name and where it was declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// As the XDR has it.
    pub text: String,
    /// Where.
    pub span: Span,
}

/// Index of an [`Item`] in [`Spec::items`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub usize);

/// A whole specification.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// Constants and types, in order of declaration. Anonymous types have been given names.
    pub items: Vec<Item>,
    /// Programs, in order of declaration.
    pub programs: Vec<Program>,
    /// Comment at the head of the file (licence, title), without comment marks.
    pub header: Vec<String>,
}

/// A constant or a type.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its name.
    pub name: Name,
    /// Its comment, without comment marks.
    pub doc: Vec<String>,
    /// Its declaration as the XDR has it, annotations removed: shown above the generated type.
    pub text: String,
    /// What it is.
    pub kind: ItemKind,
    /// What is known of its encoding. All zero for a constant.
    pub facts: TypeFacts,
    /// Whether it contains itself other than as a list: its decoder counts levels.
    pub recursive: bool,
}

/// What is known of a type's encoding without a value: see `XdrType` of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeFacts {
    /// Fewest octets in the payload stream.
    pub min_len: u64,
    /// Most octets, nothing reduced; `None` is unbounded.
    pub max_len: Option<u64>,
    /// Most octets that stay in the payload stream when all eligible items are reduced.
    pub max_inline: Option<u64>,
    /// Most eligible items.
    pub max_ddp_items: Option<u32>,
}

/// What an item is.
#[derive(Debug, Clone)]
pub enum ItemKind {
    /// `const N = value;`
    Const(ConstValue),
    /// `enum`
    Enum(Vec<Enumerator>),
    /// `struct`, the self-reference of a list node removed.
    Struct {
        /// The fields; `void` ones are left out.
        fields: Vec<Field>,
        /// Whether this is the node of a linked list: `struct n { ...; n *next; }`. Its `next` is not among the fields.
        list_node: bool,
    },
    /// `union`
    Union(Union),
    /// `typedef`
    Typedef(Field),
    /// A type of the user's, by its path in Rust. Nothing is known of its encoding, save that no item of it is eligible
    /// for direct data placement.
    Extern(String),
}

/// A constant's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstValue {
    /// A number of at most 64 bits.
    Int(i128),
    /// A number with the type that it is declared to have: a boolean or an integer, which it fits.
    Typed(i128, Base),
    /// A string constant.
    Str(String),
    /// A number of more than 64 bits, which nothing uses. No code is generated for it.
    TooLarge,
}

/// One name of an enumeration.
#[derive(Debug, Clone)]
pub struct Enumerator {
    /// Its name.
    pub name: Name,
    /// The name without the prefix that all enumerators share: see
    /// [`Compiler::strip_enum_prefix`](crate::Compiler::strip_enum_prefix).
    pub short: Option<String>,
    /// Its value.
    pub value: i32,
    /// Its comment.
    pub doc: Vec<String>,
}

/// A field, an arm, a typedef's target, an argument or a result.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name; for a procedure's unnamed argument, one made from its type.
    pub name: Name,
    /// Its comment.
    pub doc: Vec<String>,
    /// Its type.
    pub ty: Type,
    /// Set when it is DDP-eligible.
    pub ddp: Option<Ddp>,
    /// Whether the value must be boxed to have a finite size.
    pub boxed: bool,
}

/// That an item is eligible for direct data placement.
#[derive(Debug, Clone)]
pub struct Ddp {
    /// Most octets of its contents, from the call's arguments, where the ULB says so.
    pub max: Option<Expr>,
    /// Where it was marked.
    pub span: Span,
}

/// A type with its declarator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// One of XDR's own types, or a named one.
    Base(Base),
    /// `opaque x[len]`
    OpaqueFixed(u32),
    /// `opaque x<max>`; `u32::MAX` when no maximum is given.
    Opaque(u32),
    /// `string x<max>`
    String(u32),
    /// `T x[len]`
    ArrayFixed(Base, u32),
    /// `T x<max>`
    Array(Base, u32),
    /// `T *x`
    Optional(Base),
    /// `node *x`, where `node` is a list node: the whole list.
    List(ItemId),
    /// `node x`, where `node` is a list node: a list of at least one.
    NonEmptyList(ItemId),
}

/// A type without declarator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `unsigned int`
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
    /// A declared type.
    Item(ItemId),
}

impl Base {
    /// As XDR writes it.
    pub(crate) fn text(self, spec: &Spec) -> &str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::UInt => "unsigned int",
            Self::Hyper => "hyper",
            Self::UHyper => "unsigned hyper",
            Self::Float => "float",
            Self::Double => "double",
            Self::Quadruple => "quadruple",
            Self::Item(id) => spec.items.get(id.0).map_or("", |item| &item.name.text),
        }
    }
}

/// A discriminated union.
#[derive(Debug, Clone)]
pub struct Union {
    /// Name and type of the discriminant: `bool`, `int`, `unsigned int` or an enumeration.
    pub discriminant: Box<Field>,
    /// Arms in order; an arm with several cases stands once for each case group.
    pub arms: Vec<Arm>,
    /// `default:`; `Some(None)` is `default: void`.
    pub default: Option<Option<Field>>,
    /// Whether a number that selects no arm is no error: then it may be all there is.
    pub open: bool,
}

/// One arm.
#[derive(Debug, Clone)]
pub struct Arm {
    /// The values that select it, at least one.
    pub cases: Vec<Case>,
    /// What it holds; `None` for `void`.
    pub field: Option<Field>,
}

/// A value of the discriminant.
#[derive(Debug, Clone)]
pub struct Case {
    /// As written: an enumerator's or constant's name, or the number.
    pub label: String,
    /// The value. Where the discriminant is an `unsigned hyper`, the bits of one.
    pub value: i64,
}

/// An `RPC` program (RFC 5531 §12).
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: u32,
    /// Its comment.
    pub doc: Vec<String>,
    /// Its versions.
    pub versions: Vec<Version>,
    /// `@port(N)`: the port its ULB assigns on RDMA (RFC 8166 §6).
    pub port: Option<u16>,
}

/// A version of a program.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: u32,
    /// Its comment.
    pub doc: Vec<String>,
    /// Its procedures.
    pub procedures: Vec<Procedure>,
}

/// A procedure.
#[derive(Debug, Clone)]
pub struct Procedure {
    /// Its name.
    pub name: Name,
    /// Its number.
    pub number: u32,
    /// Its comment.
    pub doc: Vec<String>,
    /// Its declaration as the XDR has it.
    pub text: String,
    /// Its arguments; empty for `void`. More than one travels as their concatenation.
    pub args: Vec<Field>,
    /// Its result; `None` for `void`.
    pub result: Option<Field>,
    /// `@idempotent`: carrying it out twice is as good as once.
    pub idempotent: bool,
    /// What the reply takes at most.
    pub bounds: ReplyBounds,
}

/// Most that a procedure's result takes, from its arguments (RFC 8166 §6.2).
#[derive(Debug, Clone)]
pub struct ReplyBounds {
    /// `@reply_max(computed)`: code of the arguments' own computes it from their values, call by call; then nothing else
    /// is stated here.
    pub computed: bool,
    /// Octets that stay in the payload stream when every eligible item is reduced.
    pub inline: Expr,
    /// Octets of the contents of each eligible item, in the order of the encoding, with its path for messages.
    pub chunks: Vec<(String, Expr)>,
}

/// An expression over a call's arguments. Computed in unsigned 64-bit arithmetic that saturates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A number.
    Const(u64),
    /// The value of an integer item of the arguments: `args.count`, `args.range.len`.
    Arg(ArgPath),
    /// The number of elements (octets) of a counted item of the arguments: `len(args.names)`.
    Len(ArgPath),
    /// Sum.
    Add(Arc<Expr>, Arc<Expr>),
    /// Difference, not below zero.
    Sub(Arc<Expr>, Arc<Expr>),
    /// Product.
    Mul(Arc<Expr>, Arc<Expr>),
    /// Quotient; division by zero gives the most there is.
    Div(Arc<Expr>, Arc<Expr>),
    /// The smaller.
    Min(Arc<Expr>, Arc<Expr>),
    /// The larger.
    Max(Arc<Expr>, Arc<Expr>),
}

/// The way from the arguments to one of their items, through structs and typedefs only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgPath {
    /// Index of the argument.
    pub arg: usize,
    /// Fields of structs, by index; a step through a typedef of a declarator takes none.
    pub fields: Vec<usize>,
}
