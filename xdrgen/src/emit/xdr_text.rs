//! XDR text of a declaration, for documentation.

use crate::ir::{Base, Field, Spec, Type};

/// Returns the XDR declaration of `field`, such as `opaque data<1024>`.
pub(crate) fn declaration(spec: &Spec, field: &Field) -> String {
    let name = &field.name.text;
    match &field.ty {
        Type::Base(of) => format!("{} {name}", of.text(spec)),
        Type::OpaqueFixed(len) => format!("opaque {name}[{len}]"),
        Type::Opaque(max) => format!("opaque {name}<{}>", maximum(*max)),
        Type::String(max) => format!("string {name}<{}>", maximum(*max)),
        Type::ArrayFixed(of, len) => format!("{} {name}[{len}]", of.text(spec)),
        Type::Array(of, max) => format!("{} {name}<{}>", of.text(spec), maximum(*max)),
        Type::Optional(of) => format!("{} *{name}", of.text(spec)),
        Type::List(id) => format!("{} *{name}", Base::Item(*id).text(spec)),
        Type::NonEmptyList(id) => format!("{} {name}", Base::Item(*id).text(spec)),
    }
}

fn maximum(max: u32) -> String {
    if max == u32::MAX { String::new() } else { max.to_string() }
}
