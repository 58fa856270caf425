//! XDR text of a declaration, for documentation.

use crate::ir::{Base, Field, Spec, Type};

/// `field` as XDR declares it: `opaque data<1024>`.
pub(crate) fn declaration(spec: &Spec, field: &Field) -> String {
    let name = &field.name.text;
    match &field.ty {
        Type::Base(of) => format!("{} {name}", base(spec, *of)),
        Type::OpaqueFixed(len) => format!("opaque {name}[{len}]"),
        Type::Opaque(max) => format!("opaque {name}<{}>", maximum(*max)),
        Type::String(max) => format!("string {name}<{}>", maximum(*max)),
        Type::ArrayFixed(of, len) => format!("{} {name}[{len}]", base(spec, *of)),
        Type::Array(of, max) => format!("{} {name}<{}>", base(spec, *of), maximum(*max)),
        Type::Optional(of) => format!("{} *{name}", base(spec, *of)),
        Type::List(id) => format!("{} *{name}", base(spec, Base::Item(*id))),
        Type::NonEmptyList(id) => format!("{} {name}", base(spec, Base::Item(*id))),
    }
}

fn base(spec: &Spec, base: Base) -> &str {
    match base {
        Base::Bool => "bool",
        Base::Int => "int",
        Base::UInt => "unsigned int",
        Base::Hyper => "hyper",
        Base::UHyper => "unsigned hyper",
        Base::Float => "float",
        Base::Double => "double",
        Base::Quadruple => "quadruple",
        Base::Item(id) => spec.items.get(id.0).map_or("", |item| &item.name.text),
    }
}

fn maximum(max: u32) -> String {
    if max == u32::MAX { String::new() } else { max.to_string() }
}
