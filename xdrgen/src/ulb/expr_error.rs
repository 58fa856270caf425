//! Errors in the expressions of annotations and `.ulb` files.

use crate::{
    diag::{Code, Diagnostic},
    source::Span,
};

/// A result with a boxed error, because a diagnostic is large and errors are rare.
pub(super) type ExprResult<T> = Result<T, Box<Diagnostic>>;

/// Maximum number of constants or types that an unknown name is compared with.
pub(super) const MAX_COMPARED: usize = 1000;

/// Creates the error for an invalid expression at `span`.
pub(super) fn bad(span: &Span, message: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::BadExpression, message).at(span, "")
}
