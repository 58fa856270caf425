//! The encoding of a type (RFC 4506 §4) as rows of one or more 4-byte words.

use super::names::ItemUsers;
use crate::{
    ir::{Base, Field, Item, ItemId, ItemKind, Type, Union},
    resolve::sizes,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowStyle {
    /// A value of a scalar type or an enumeration, or a fixed-length opaque item.
    Value,
    /// A length, a count, a discriminant, or the boolean of an optional value or list. It determines how to decode the
    /// following rows.
    Control,
    /// A value of a struct, union or external type, or an array whose encoding has a fixed length.
    Type,
    /// Contents of variable length: bytes, elements, list nodes or an optional value.
    Variable,
    /// The heading of a union case.
    Case,
}

/// A row of the diagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) style: RowStyle,
    /// The text in the row.
    pub(super) label: String,
    /// The text beside the row.
    pub(super) note: String,
    /// The item that the row links to.
    pub(super) link: Option<ItemId>,
    /// The size in bytes, if it is the same for all values.
    pub(super) bytes: Option<u64>,
    /// `true` if the item is DDP-eligible.
    pub(super) eligible: bool,
}

/// The maximum number of union arms to show. The diagram states only the number of further arms.
const MAX_ARMS: usize = 200;

/// Returns the rows of an item. Constants and external types have no rows.
pub(super) fn item(names: &ItemUsers<'_>, item: &Item) -> Vec<Row> {
    match &item.kind {
        ItemKind::Struct { fields, .. } => fields.iter().flat_map(|field| rows(names, field)).collect(),
        ItemKind::Typedef(field) => rows(names, field),
        ItemKind::Union(union) => self::union(names, union),
        ItemKind::Enum(_) => vec![row(RowStyle::Value, &item.name.text, "one of the values below", Some(4))],
        ItemKind::Const(_) | ItemKind::Extern(_) => Vec::new(),
    }
}

fn row(style: RowStyle, label: &str, note: &str, bytes: Option<u64>) -> Row {
    Row { style, label: label.to_owned(), note: note.to_owned(), link: None, bytes, eligible: false }
}

fn union(names: &ItemUsers<'_>, union: &Union) -> Vec<Row> {
    let mut rows = self::rows(names, &union.discriminant);
    rows.iter_mut().for_each(|row| row.style = RowStyle::Control);
    for arm in union.arms.iter().take(MAX_ARMS) {
        let cases: Vec<&str> = arm.cases.iter().map(|case| case.label.as_str()).collect();
        rows.push(row(
            RowStyle::Case,
            &format!("case {}", cases.join(", ")),
            if arm.field.is_none() { "void" } else { "" },
            Some(0),
        ));
        rows.extend(self::arm(names, union, arm.field.as_ref()));
    }
    if union.arms.len() > MAX_ARMS {
        rows.push(row(RowStyle::Case, &format!("{} more cases", union.arms.len() - MAX_ARMS), "", Some(0)));
    }
    if let Some(default) = &union.default {
        rows.push(row(RowStyle::Case, "default", if default.is_none() { "void" } else { "" }, Some(0)));
        rows.extend(self::arm(names, union, default.as_ref()));
    }
    rows
}

/// Returns the rows of an arm, including the length that precedes an arm of an `opaque_union`.
fn arm(names: &ItemUsers<'_>, union: &Union, arm: Option<&Field>) -> Vec<Row> {
    let mut rows = Vec::new();
    if union.opaque && arm.is_none_or(|arm| !sizes::has_own_length(names.spec, &arm.ty)) {
        let note = if arm.is_none() { "unsigned int, 0" } else { "unsigned int, in bytes" };
        rows.push(row(RowStyle::Control, "length of the arm", note, Some(4)));
    }
    rows.extend(arm.iter().flat_map(|field| self::rows(names, field)));
    rows
}

fn rows(names: &ItemUsers<'_>, field: &Field) -> Vec<Row> {
    let spec = names.spec;
    let name = field.name.text.as_str();
    let typedef = match &field.ty {
        Type::Base(Base::Item(id)) => Some(*id),
        _ => None,
    };
    let ty = sizes::through_typedefs(spec, &field.ty);
    let mut rows = layout(names, name, ty);
    // Typedefs between the field and its type.
    if let Some(id) = typedef.filter(|id| ty.target() != Some(*id)) {
        for row in &mut rows {
            row.link = row.link.or(Some(id));
        }
        if let Some(last) = rows.last_mut() {
            last.note = format!("{} · {}", names.name(id), last.note);
        }
    }
    if field.ddp.is_some() {
        let counted = sizes::counted(spec, &field.ty);
        for row in rows.iter_mut().skip(usize::from(counted)) {
            row.eligible = true;
        }
    }
    rows
}

fn layout(names: &ItemUsers<'_>, name: &str, ty: &Type) -> Vec<Row> {
    let spec = names.spec;
    let count = |what: &str| row(RowStyle::Control, &format!("{what} of {name}"), "unsigned int", Some(4));
    match ty {
        Type::Base(base) => vec![value(names, name, *base)],
        Type::OpaqueFixed(len) => {
            let (len, padded) = (u64::from(*len), sizes::padded(u64::from(*len)));
            let padding = if padded > len { format!(", {} of padding", padded - len) } else { String::new() };
            vec![row(RowStyle::Value, name, &format!("opaque, {}{padding}", plural(len, "byte")), Some(padded))]
        }
        Type::Opaque(max) | Type::String(max) => {
            let what = if matches!(ty, Type::String(_)) { "string" } else { "opaque" };
            let note = format!("{what}, {}, padded to 4", up_to(*max, "byte"));
            vec![count("length"), row(RowStyle::Variable, name, &note, None)]
        }
        Type::ArrayFixed(base, len) => {
            let each = sizes::base(spec, *base);
            let bytes = (Some(each.min_len) == each.max_len).then(|| each.min_len.saturating_mul(u64::from(*len)));
            let label = format!("{name}[0] … {name}[{}]", len.saturating_sub(1));
            let note = format!("{} of {}", plural(u64::from(*len), "element"), base.text(spec));
            let style = if bytes.is_some() { RowStyle::Type } else { RowStyle::Variable };
            vec![Row { link: ty.target(), ..row(style, &label, &note, bytes) }]
        }
        Type::Array(base, max) => {
            let note = format!("{} of {}", up_to(*max, "element"), base.text(spec));
            vec![
                count("number"),
                Row { link: ty.target(), ..row(RowStyle::Variable, &format!("{name}[0] …"), &note, None) },
            ]
        }
        Type::Optional(base) => {
            let present = row(RowStyle::Control, &format!("{name} present?"), "bool", Some(4));
            let note = format!("{}, if TRUE", base.text(spec));
            vec![present, Row { link: ty.target(), ..row(RowStyle::Variable, name, &note, None) }]
        }
        Type::List(id) | Type::NonEmptyList(id) => {
            let more = row(RowStyle::Control, "next element?", "bool; FALSE ends the list", Some(4));
            let element = row(RowStyle::Variable, name, &format!("{}, repeated", names.name(*id)), None);
            let element = Row { link: Some(*id), ..element };
            if matches!(ty, Type::List(_)) { vec![more, element] } else { vec![element, more] }
        }
    }
}

/// Returns the row of a value of a scalar type, an enumeration, a struct, a union or an external type.
fn value(names: &ItemUsers<'_>, name: &str, base: Base) -> Row {
    let facts = sizes::base(names.spec, base);
    let bytes = (Some(facts.min_len) == facts.max_len).then_some(facts.min_len);
    let Base::Item(id) = base else { return row(RowStyle::Value, name, base.text(names.spec), bytes) };
    let kind = names.spec.items.get(id.0).map(|item| &item.kind);
    let (style, what) = match kind {
        Some(ItemKind::Enum(_)) => (RowStyle::Value, "enum"),
        Some(ItemKind::Union(_)) => (RowStyle::Type, "union"),
        Some(ItemKind::Extern(_)) => (RowStyle::Type, "external type"),
        _ => (RowStyle::Type, "struct"),
    };
    let size = match (bytes, style) {
        (_, RowStyle::Value) => String::new(),
        (Some(bytes), _) => format!(", {}", plural(bytes, "byte")),
        (None, _) => format!(", {}", size(facts.min_len, facts.max_len)),
    };
    Row { link: Some(id), ..row(style, name, &format!("{what} {}{size}", names.name(id)), bytes) }
}

/// Formats a range of sizes in bytes. `max` is `None` if there is no maximum.
pub(super) fn size(min: u64, max: Option<u64>) -> String {
    // A larger bound is shown as unbounded, because no message can reach it.
    match max.filter(|max| *max <= u64::from(u32::MAX)) {
        Some(max) if max == min => plural(max, "byte"),
        Some(max) => format!("{} to {} bytes", grouped(min), grouped(max)),
        None => format!("{} bytes or more", grouped(min)),
    }
}

fn up_to(max: u32, what: &str) -> String {
    if max == u32::MAX { format!("any number of {what}s") } else { format!("up to {}", plural(u64::from(max), what)) }
}

pub(super) fn plural(n: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// Formats a number in groups of three digits, separated by narrow no-break spaces.
pub(super) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202F}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Compiler;

    fn rows_of(text: &str, name: &str) -> Vec<String> {
        let spec = Compiler::new().source("t.x", text).compile().unwrap().spec;
        let names = ItemUsers::new(&spec);
        let item = &spec.items[names.find(name).unwrap().0];
        let shown = |row: Row| {
            let bytes = row.bytes.map_or("?".to_owned(), |n| n.to_string());
            format!("{:?} {bytes} {}{}", row.style, row.label, if row.eligible { " *" } else { "" })
        };
        super::item(&names, item).into_iter().map(shown).collect()
    }

    #[test]
    fn every_declarator() {
        let text = "struct s { bool a; hyper b; opaque c[5]; @ddp opaque d<9>; int e[3]; p f<2>; p *g; };
                    struct p { int x; int y; };";
        assert_eq!(
            rows_of(text, "s"),
            [
                "Value 4 a",
                "Value 8 b",
                "Value 8 c",
                "Control 4 length of d",
                "Variable ? d *",
                "Type 12 e[0] … e[2]",
                "Control 4 number of f",
                "Variable ? f[0] …",
                "Control 4 g present?",
                "Variable ? g",
            ]
        );
    }

    #[test]
    fn unions_and_lists() {
        let text =
            "struct n { int x; n *next; }; union u switch (int a) { case 1: n *l; case 2: void; default: n l2; };";
        assert_eq!(
            rows_of(text, "u"),
            [
                "Control 4 a",
                "Case 0 case 1",
                "Control 4 next element?",
                "Variable ? l",
                "Case 0 case 2",
                "Case 0 default",
                "Variable ? l2",
                "Control 4 next element?",
            ]
        );
    }

    #[test]
    fn opaque_unions() {
        let text = "typedef opaque raw<>;
                    opaque_union u switch (int a) { case 1: int x; case 2: void; case 3: raw own; default: string s<>; };";
        assert_eq!(
            rows_of(text, "u"),
            [
                "Control 4 a",
                "Case 0 case 1",
                "Control 4 length of the arm",
                "Value 4 x",
                "Case 0 case 2",
                "Control 4 length of the arm",
                "Case 0 case 3",
                "Control 4 length of own",
                "Variable ? own",
                "Case 0 default",
                "Control 4 length of the arm",
                "Control 4 length of s",
                "Variable ? s",
            ]
        );
    }
}
