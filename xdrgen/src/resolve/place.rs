//! The constructs to which annotations apply.

use crate::ir::ItemId;

/// The construct to which an annotation applies. The numbers are indices in lists of the IR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AnnotationPlace {
    /// A definition. For a typedef, the type that it declares.
    Item(ItemId),
    /// A field of a struct: item, field.
    Field(ItemId, usize),
    /// An arm of a union: item, arm.
    Arm(ItemId, usize),
    /// The default arm of a union.
    Default(ItemId),
    /// A program.
    Program(usize),
    /// A version: program, version.
    Version(usize, usize),
    /// A procedure or its result: program, version, procedure.
    Procedure(usize, usize, usize),
    /// An argument: program, version, procedure, argument.
    Argument(usize, usize, usize, usize),
}
