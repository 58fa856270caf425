//! Type names that public specifications use without declaring them: C's and rpcgen's. A declaration of the same name
//! goes before.

use crate::ast::Primitive;

/// The type that `name` stands for where no declaration says otherwise.
///
/// RFC 8166 §4.1 itself uses `uint32` and `uint64` so. C's `char` and `short` travel as `int` (RFC 4506 §4.1 has
/// nothing shorter), and so does `long`, which is 32 bits on the wire to rpcgen.
pub(crate) fn primitive(name: &str) -> Option<Primitive> {
    Some(match name {
        "int8" | "int8_t" | "int16" | "int16_t" | "int32" | "int32_t" | "char" | "short" | "long" => Primitive::Int,
        "uint8" | "uint8_t" | "uint16" | "uint16_t" | "uint32" | "uint32_t" | "u_int8_t" | "u_int16_t"
        | "u_int32_t" | "u_char" | "u_short" | "u_int" | "u_long" | "uint" | "ushort" | "ulong" => Primitive::UInt,
        "int64" | "int64_t" | "quad_t" | "longlong_t" => Primitive::Hyper,
        "uint64" | "uint64_t" | "u_int64_t" | "u_quad_t" | "u_longlong_t" | "u_hyper" => Primitive::UHyper,
        "bool_t" => Primitive::Bool,
        _ => return None,
    })
}
