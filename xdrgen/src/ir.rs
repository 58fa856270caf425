//! The typed intermediate representation (IR), the input of the back end.
//!
//! Names are resolved, constants are computed, recursion is detected, and the upper-layer binding (ULB) is applied and
//! checked.

use std::sync::Arc;

use crate::source::Span;

/// A name and the position of its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name as written in the XDR source. For an unnamed argument or result, a name that the compiler chose.
    pub text: String,
    /// The position of the name in the source.
    pub span: Span,
}

/// Index of an [`Item`] in [`Spec::items`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId(pub usize);

/// A whole specification: the constants, types and programs of all input files.
#[derive(Debug, Clone, Default)]
pub struct Spec {
    /// Constants and types, in order of declaration. The compiler gives names to anonymous types.
    pub items: Vec<Item>,
    /// Programs, in order of declaration.
    pub programs: Vec<Program>,
    /// The comment at the start of the first file (licence, title), without comment marks.
    pub header: Vec<String>,
}

impl Spec {
    /// Returns the type that `base` stands for after resolving typedefs that are plain aliases.
    pub(crate) fn resolve(&self, mut base: Base) -> Base {
        // Circular typedefs are rejected earlier. The bound ensures termination in any case.
        for _ in 0..self.items.len() {
            let Base::Item(id) = base else { return base };
            let ItemKind::Typedef(Field { ty: Type::Base(target), ddp: None, boxed: false, .. }) =
                &self.items[id.0].kind
            else {
                return base;
            };
            base = *target;
        }
        base
    }
}

/// A constant or a type.
#[derive(Debug, Clone)]
pub struct Item {
    /// The name of the item.
    pub name: Name,
    /// The comment of the item, without comment marks.
    pub doc: Vec<String>,
    /// The XDR declaration without annotations. The documentation of the generated type shows it.
    pub text: String,
    /// The kind of item, with its definition.
    pub kind: ItemKind,
    /// The bounds of the encoding of the item. They have no meaning for a constant.
    pub facts: TypeFacts,
    /// `true` if the type contains itself other than as a list. Its encoder and decoder then count the nesting levels.
    pub recursive: bool,
}

impl Item {
    /// Returns all fields of the item: the fields of a struct, the arms of a union, or the target of a typedef.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        let (fields, union, typedef) = match &self.kind {
            ItemKind::Struct { fields, .. } => (fields.as_slice(), None, None),
            ItemKind::Union(union) => (&[][..], Some(union), None),
            ItemKind::Typedef(field) => (&[][..], None, Some(field)),
            ItemKind::Const(_) | ItemKind::Enum(_) | ItemKind::Extern(_) => (&[][..], None, None),
        };
        let arms = union.into_iter().flat_map(|union| {
            let arms = union.arms.iter().filter_map(|arm| arm.field.as_ref());
            arms.chain(union.default.iter().flatten())
        });
        fields.iter().chain(arms).chain(typedef)
    }

    /// Returns mutable references to the fields that [`Self::fields`] returns.
    pub(crate) fn fields_mut(&mut self) -> impl Iterator<Item = &mut Field> {
        let (fields, union, typedef) = match &mut self.kind {
            ItemKind::Struct { fields, .. } => (fields.as_mut_slice(), None, None),
            ItemKind::Union(union) => (&mut [][..], Some(union), None),
            ItemKind::Typedef(field) => (&mut [][..], None, Some(field)),
            ItemKind::Const(_) | ItemKind::Enum(_) | ItemKind::Extern(_) => (&mut [][..], None, None),
        };
        let arms = union.into_iter().flat_map(|union| {
            let arms = union.arms.iter_mut().filter_map(|arm| arm.field.as_mut());
            arms.chain(union.default.iter_mut().flatten())
        });
        fields.iter_mut().chain(arms).chain(typedef)
    }
}

/// The bounds of the encoding of a type, for all its values. See `XdrType` of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TypeFacts {
    /// The minimum number of bytes in the payload stream if all DDP-eligible items are reduced.
    pub min_len: u64,
    /// The maximum number of bytes if no item is reduced. `None` means unbounded.
    pub max_len: Option<u64>,
    /// The maximum number of bytes that stay in the payload stream if all DDP-eligible items are reduced. `None` means
    /// unbounded.
    pub max_inline: Option<u64>,
    /// The maximum number of DDP-eligible items. `None` means unbounded.
    pub max_ddp_items: Option<u32>,
}

/// The kind of an item.
#[derive(Debug, Clone)]
pub enum ItemKind {
    /// `const N = value;`
    Const(ConstValue),
    /// `enum`
    Enum(Vec<Enumerator>),
    /// `struct`. The self-reference of a list node is removed.
    Struct {
        /// The fields, without `void` ones.
        fields: Vec<Field>,
        /// `true` for the node of a linked list: `struct n { ...; n *next; }`. `fields` does not contain `next`.
        list_node: bool,
    },
    /// `union`
    Union(Union),
    /// `typedef`
    Typedef(Field),
    /// The path of an existing Rust type. The compiler does not know its encoding, except that it contains no items
    /// that are eligible for direct data placement.
    Extern(String),
}

/// The value of a constant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConstValue {
    /// A number of at most 64 bits that is not declared with a boolean or integer type.
    Int(i128),
    /// A number with its declared type, which is a boolean or integer type. The number is in the range of the type.
    Typed(i128, Base),
    /// A string constant.
    Str(String),
    /// A number of more than 64 bits that nothing uses. No code is generated for it.
    TooLarge,
}

/// An enumerator of an enumeration, with its value.
#[derive(Debug, Clone)]
pub struct Enumerator {
    /// The name of the enumerator.
    pub name: Name,
    /// The name without the prefix that it shares with other enumerators. `None` if no prefix is stripped: see
    /// [`Compiler::strip_enum_prefix`](crate::Compiler::strip_enum_prefix).
    pub short: Option<String>,
    /// The value of the enumerator.
    pub value: i32,
    /// The comment of the enumerator, without comment marks.
    pub doc: Vec<String>,
}

/// A struct field, union arm, typedef target, argument or result.
#[derive(Debug, Clone)]
pub struct Field {
    /// The name of the field. The compiler makes a name for an unnamed argument and for a result.
    pub name: Name,
    /// The comment of the field, without comment marks.
    pub doc: Vec<String>,
    /// The type of the field.
    pub ty: Type,
    /// The DDP annotation, if the field is DDP-eligible.
    pub ddp: Option<Ddp>,
    /// `true` if the value must be boxed to have a finite size.
    pub boxed: bool,
    /// The constant that the declaration names as its length or maximum, if any.
    pub length: Option<ItemId>,
}

/// The annotation of an item that is eligible for direct data placement (RFC 8166 §6.1).
#[derive(Debug, Clone)]
pub struct Ddp {
    /// The maximum length of the contents, in bytes, computed from the call's arguments. `None` if the ULB states no
    /// maximum.
    pub max: Option<Expr>,
    /// The position of the annotation in the source.
    pub span: Span,
}

/// A type with its declarator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// A basic XDR type or a named type.
    Base(Base),
    /// `opaque x[len]`
    OpaqueFixed(u32),
    /// `opaque x<max>`. `u32::MAX` means that there is no maximum.
    Opaque(u32),
    /// `string x<max>`. `u32::MAX` means that there is no maximum.
    String(u32),
    /// `T x[len]`
    ArrayFixed(Base, u32),
    /// `T x<max>`. `u32::MAX` means that there is no maximum.
    Array(Base, u32),
    /// `T *x`
    Optional(Base),
    /// `node *x`, where `node` is a list node: the whole list.
    List(ItemId),
    /// `node x`, where `node` is a list node: a list of at least one node.
    NonEmptyList(ItemId),
}

impl Type {
    /// Returns the declared type of the value, the elements or the nodes. Returns `None` for basic types, opaque items
    /// and strings.
    pub(crate) fn target(&self) -> Option<ItemId> {
        match self {
            Self::Base(base) | Self::ArrayFixed(base, _) | Self::Array(base, _) | Self::Optional(base) => match base {
                Base::Item(id) => Some(*id),
                _ => None,
            },
            Self::List(id) | Self::NonEmptyList(id) => Some(*id),
            Self::OpaqueFixed(_) | Self::Opaque(_) | Self::String(_) => None,
        }
    }
}

/// A type without a declarator.
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
    /// An integer of C that is shorter than `int`. It is encoded as `int` or `unsigned int`.
    Short(ShortInt),
    /// `float`
    Float,
    /// `double`
    Double,
    /// `quadruple`
    Quadruple,
    /// A declared type.
    Item(ItemId),
}

/// An integer of C that is shorter than `int`. RFC 4506 has no such types, but other XDR compilers accept them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortInt {
    /// `char`, `int8_t`
    Char,
    /// `unsigned char`, `u_char`, `uint8_t`
    UChar,
    /// `short`, `int16_t`
    Short,
    /// `unsigned short`, `u_short`, `uint16_t`
    UShort,
}

impl ShortInt {
    /// Returns `true` if the type has no negative values.
    #[must_use]
    pub const fn is_unsigned(self) -> bool {
        matches!(self, Self::UChar | Self::UShort)
    }

    /// Returns `true` if `value` is a value of the type.
    #[must_use]
    pub fn holds(self, value: i128) -> bool {
        match self {
            Self::Char => i8::try_from(value).is_ok(),
            Self::UChar => u8::try_from(value).is_ok(),
            Self::Short => i16::try_from(value).is_ok(),
            Self::UShort => u16::try_from(value).is_ok(),
        }
    }

    /// Returns the type as written in C.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Char => "char",
            Self::UChar => "unsigned char",
            Self::Short => "short",
            Self::UShort => "unsigned short",
        }
    }
}

impl Base {
    /// Returns the type in XDR syntax.
    pub(crate) fn text(self, spec: &Spec) -> &str {
        match self {
            Self::Bool => "bool",
            Self::Int => "int",
            Self::UInt => "unsigned int",
            Self::Hyper => "hyper",
            Self::UHyper => "unsigned hyper",
            Self::Short(short) => short.text(),
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
    /// The name and type of the discriminant.
    pub discriminant: Box<Field>,
    /// The arms, in order of declaration. An arm may have several cases.
    pub arms: Vec<Arm>,
    /// The `default` arm. `Some(None)` means `default: void`.
    pub default: Option<Option<Field>>,
    /// `true` if the union accepts a discriminant that selects no arm. The encoding may then end after the
    /// discriminant.
    pub open: bool,
    /// `true` for an `opaque_union` (xdrzcc). Each arm is the contents of a variable-length opaque item, so the length
    /// of the arm in bytes precedes it. The length of a void arm is 0. An arm that is itself a variable-length opaque
    /// item has only its own length.
    pub opaque: bool,
}

/// A union arm.
#[derive(Debug, Clone)]
pub struct Arm {
    /// The discriminant values that select the arm. There is at least one.
    pub cases: Vec<Case>,
    /// The declaration of the arm. `None` means `void`.
    pub field: Option<Field>,
}

/// A discriminant value.
#[derive(Debug, Clone)]
pub struct Case {
    /// The name of an enumerator or constant, without a scope, or a decimal number.
    pub label: String,
    /// The value. For a discriminant of type `unsigned hyper`, this is the `u64` with its bits reinterpreted as an
    /// `i64`.
    pub value: i64,
}

/// An RPC program (RFC 5531 §12).
#[derive(Debug, Clone)]
pub struct Program {
    /// The name of the program.
    pub name: Name,
    /// The program number.
    pub number: u32,
    /// The comment of the program, without comment marks.
    pub doc: Vec<String>,
    /// The versions, in order of declaration.
    pub versions: Vec<Version>,
    /// The port of the program on RDMA (`@port(N)`, RFC 8166 §6). `None` if no port is stated.
    pub port: Option<u16>,
}

/// A version of a program, with all its procedures.
#[derive(Debug, Clone)]
pub struct Version {
    /// The name of the version.
    pub name: Name,
    /// The version number.
    pub number: u32,
    /// The comment of the version, without comment marks.
    pub doc: Vec<String>,
    /// The base version, whose procedures this version takes over (`version NAME : BASE`), as an index in
    /// [`Program::versions`]. `None` if this version has no base.
    pub base: Option<usize>,
    /// The procedures. The procedures of the base version come first, in the order of that version. The others follow
    /// in order of declaration.
    pub procedures: Vec<Procedure>,
}

/// A procedure of a version.
#[derive(Debug, Clone)]
pub struct Procedure {
    /// The name of the procedure.
    pub name: Name,
    /// The procedure number.
    pub number: u32,
    /// The index in [`Program::versions`] of the version that declares the procedure. `None` if this version itself
    /// declares the procedure.
    pub declared_in: Option<usize>,
    /// The comment of the procedure, without comment marks.
    pub doc: Vec<String>,
    /// The XDR declaration without annotations.
    pub text: String,
    /// The arguments. Empty for `void`. The encoding of several arguments is the concatenation of their encodings.
    pub args: Vec<Field>,
    /// The result. `None` means `void`.
    pub result: Option<Field>,
    /// `true` if executing the procedure twice has the same effect as executing it once (`@idempotent`).
    pub idempotent: bool,
    /// The maximum size of the result.
    pub bounds: ReplyBounds,
}

/// The maximum size of the result of a procedure, computed from the arguments (RFC 8166 §6.2).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyBounds {
    /// `true` if the user's code computes the bounds from the arguments of each call (`@reply_max(computed)`). The
    /// other fields are then unused.
    pub computed: bool,
    /// The maximum number of bytes that stay in the payload stream if every DDP-eligible item is reduced.
    pub inline: Expr,
    /// The DDP-eligible items, in encoding order.
    pub chunks: Vec<ChunkRun>,
    /// The maximum length of all DDP-eligible items together, in bytes with padding, if it is less than the sum over
    /// [`chunks`](Self::chunks). An item that may be missing needs room for the items after it, which take its chunk
    /// (RFC 8166 §4.3.2.2).
    pub total: Option<Expr>,
}

impl ReplyBounds {
    /// Returns the path and the maximum length in bytes of each DDP-eligible item, in encoding order. Each item that
    /// repeats is returned once.
    pub fn items(&self) -> impl Iterator<Item = &(String, Expr)> {
        self.chunks.iter().flat_map(|run| &run.items)
    }
}

/// Consecutive DDP-eligible items of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkRun {
    /// The path, for diagnostics, and the maximum length in bytes of each item, in encoding order.
    pub items: Vec<(String, Expr)>,
    /// The number of times that the items repeat. `None` means once.
    pub count: Option<Expr>,
}

/// An expression over the arguments of a call, with saturating unsigned 64-bit arithmetic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A constant number.
    Const(u64),
    /// The value of an integer item of the arguments: `args.count`, `args.range.len`.
    Arg(ArgPath),
    /// The length of an array (in elements), opaque item or string (in bytes) of the arguments: `len(args.names)`.
    Len(ArgPath),
    /// Addition.
    Add(Arc<Expr>, Arc<Expr>),
    /// Subtraction. The result is at least zero.
    Sub(Arc<Expr>, Arc<Expr>),
    /// Multiplication.
    Mul(Arc<Expr>, Arc<Expr>),
    /// Division. Division by zero gives `u64::MAX`.
    Div(Arc<Expr>, Arc<Expr>),
    /// The smaller of two values.
    Min(Arc<Expr>, Arc<Expr>),
    /// The larger of two values.
    Max(Arc<Expr>, Arc<Expr>),
}

impl Default for Expr {
    fn default() -> Self {
        Self::Const(0)
    }
}

/// The path from the arguments to one of their items, through structs and typedefs only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgPath {
    /// The index of the argument.
    pub arg: usize,
    /// The indices of struct fields. A step through a typedef adds no index.
    pub fields: Vec<usize>,
}
