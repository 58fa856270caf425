//! Generation of Lua tables for types and programs.

use std::{collections::BTreeMap, fmt::Write as _};

use crate::{
    ir::{Base, Field, Item, ItemKind, Procedure, Program, Spec, Type, Union},
    resolve::sizes,
};

/// Returns the Lua statements that add the types and programs of `spec` to the variable `specification`.
pub(super) fn specification(spec: &Spec) -> String {
    let mut out = String::new();
    for item in &spec.items {
        self::item(spec, item, &mut out);
    }
    for program in &spec.programs {
        self::program(spec, program, &mut out);
    }
    out
}

/// Returns `text` as a quoted Lua string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\{:03}", u32::from(c).min(255));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn item(spec: &Spec, item: &Item, out: &mut String) {
    let name = quoted(&item.name.text);
    let _ = match &item.kind {
        ItemKind::Const(_) => Ok(()),
        ItemKind::Enum(enumerators) => {
            let mut named = BTreeMap::new();
            for it in enumerators {
                named.entry(it.value).or_insert(&it.name.text);
            }
            let values = named.into_iter().map(|(value, name)| format!("  [{value}] = {},\n", quoted(name)));
            writeln!(out, "specification:enum({name}, {{\n{}}})", values.collect::<String>())
        }
        ItemKind::Struct { fields, .. } => {
            let fields = fields.iter().map(|field| format!("  {},\n", self::field(spec, field)));
            writeln!(out, "specification:struct({name}, {{\n{}}})", fields.collect::<String>())
        }
        ItemKind::Union(union) => {
            let discriminant = field(spec, &union.discriminant);
            writeln!(out, "specification:union({name}, {discriminant}, {{\n{}}})", arms(spec, union))
        }
        ItemKind::Typedef(target) => writeln!(out, "specification:typedef({})", field(spec, target)),
        ItemKind::Extern(_) => writeln!(out, "specification:unknown({name})"),
    };
}

fn arms(spec: &Spec, union: &Union) -> String {
    let case = |value: i64| match sizes::through_typedefs(spec, &union.discriminant.ty) {
        // Numbers of Lua have 53 bits.
        Type::Base(Base::UHyper) => format!("\"{}\"", value.cast_unsigned()),
        Type::Base(Base::UInt) => (value.cast_unsigned() & u64::from(u32::MAX)).to_string(),
        _ => value.to_string(),
    };
    let arm = |field: Option<&Field>| field.map(|field| arm_field(spec, union, field));
    let mut out = String::from("  arms = {\n");
    for it in &union.arms {
        let cases: Vec<String> = it.cases.iter().map(|it| case(it.value)).collect();
        let field = arm(it.field.as_ref()).map(|field| format!(", field = {field}")).unwrap_or_default();
        let _ = writeln!(out, "    {{ cases = {{ {} }}{field} }},", cases.join(", "));
    }
    out.push_str("  },\n");
    if let Some(default) = &union.default {
        let _ = writeln!(out, "  default = {},", arm(default.as_ref()).unwrap_or_else(|| "true".to_owned()));
    }
    if union.opaque {
        out.push_str("  opaque = true,\n");
    }
    out
}

fn arm_field(spec: &Spec, union: &Union, arm: &Field) -> String {
    let text = field(spec, arm);
    match text.strip_suffix(" }") {
        Some(start) if union.opaque && sizes::has_own_length(spec, &arm.ty) => format!("{start}, own_length = true }}"),
        _ => text,
    }
}

/// Returns the Lua table of a field: its name, its type, and its declarator.
fn field(spec: &Spec, field: &Field) -> String {
    let mut out = format!("{{ {}, ", quoted(&field.name.text));
    let max = |max: u32| if max == u32::MAX { String::new() } else { format!(", max = {max}") };
    let _ = match &field.ty {
        Type::Base(base) => write!(out, "{}", self::base(spec, *base)),
        Type::OpaqueFixed(len) => write!(out, "\"opaque\", length = {len}"),
        Type::Opaque(len) => write!(out, "\"opaque\"{}", max(*len)),
        Type::String(len) => write!(out, "\"string\"{}", max(*len)),
        Type::ArrayFixed(base, len) => write!(out, "{}, count = {len}", self::base(spec, *base)),
        Type::Array(base, len) => write!(out, "{}, elements = true{}", self::base(spec, *base), max(*len)),
        Type::Optional(base) => write!(out, "{}, optional = true", self::base(spec, *base)),
        Type::List(node) => write!(out, "{}, list = \"any\"", self::base(spec, Base::Item(*node))),
        Type::NonEmptyList(node) => write!(out, "{}, list = \"nonempty\"", self::base(spec, Base::Item(*node))),
    };
    if field.ddp.is_some() {
        out.push_str(", eligible = true");
    }
    out.push_str(" }");
    out
}

/// Returns the name of a type as a quoted Lua string. No declared type has the name of a basic type, because these
/// names are keywords or contain a space.
fn base(spec: &Spec, base: Base) -> String {
    match base {
        Base::Short(short) => quoted(&format!("C {}", short.text())),
        base => quoted(base.text(spec)),
    }
}

fn program(spec: &Spec, program: &Program, out: &mut String) {
    let _ = writeln!(out, "specification:program({}, {:#x}, {{", quoted(&program.name.text), program.number);
    for version in &program.versions {
        let name = quoted(&version.name.text);
        let _ = writeln!(out, "  {{ name = {name}, number = {}, procedures = {{", version.number);
        for it in &version.procedures {
            let _ = writeln!(out, "    {},", procedure(spec, it));
        }
        out.push_str("  } },\n");
    }
    out.push_str("})\n");
}

fn procedure(spec: &Spec, procedure: &Procedure) -> String {
    let args: Vec<String> = procedure.args.iter().map(|arg| field(spec, arg)).collect();
    let args = if args.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", args.join(", ")) };
    let result =
        procedure.result.as_ref().map(|result| format!(", result = {}", field(spec, result))).unwrap_or_default();
    format!("{{ name = {}, number = {}, args = {args}{result} }}", quoted(&procedure.name.text), procedure.number)
}
