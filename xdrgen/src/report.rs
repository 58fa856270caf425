//! The upper-layer binding as a table: the DDP-eligible items of each procedure, and the maximum sizes of its arguments
//! and results.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use crate::{
    ir::{Expr, Field, ItemKind, Procedure, Program, Spec, Type},
    resolve::sizes,
    ulb::{contents, parts, show},
};

/// The maximum number of eligible items that [`eligible_items`] returns.
const MAX_LISTED: usize = 64;

/// Formats the binding of each version of each program as a table of at most `width` columns. `None` means any width.
#[must_use]
pub fn table(spec: &Spec, width: Option<u16>) -> String {
    let mut out = String::new();
    for program in &spec.programs {
        for version in &program.versions {
            let port = program.port.map_or("no port assigned".to_owned(), |port| format!("port {port}"));
            let _ = writeln!(
                out,
                "{} ({:#x}), {} (version {}), {port}",
                program.name.text, program.number, version.name.text, version.number
            );
            let mut table = Table::new();
            table.load_style(presets::UTF8_FULL);
            match width {
                Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
                None => table.set_content_arrangement(ContentArrangement::Disabled),
            };
            table.set_header(["no.", "procedure", "eligible arguments", "eligible results", "call", "reply"]);
            for procedure in &version.procedures {
                table.add_row([
                    Cell::new(procedure.number).set_alignment(CellAlignment::Right),
                    Cell::new(name(program, procedure)),
                    Cell::new(arguments(spec, procedure)),
                    Cell::new(results(spec, procedure)),
                    Cell::new(call(spec, procedure)),
                    Cell::new(reply(spec, procedure)),
                ]);
            }
            let _ = writeln!(out, "{table}\n");
        }
    }
    if out.is_empty() {
        out.push_str("no program\n");
    } else {
        out.push_str(
            "Maximum sizes of arguments and results in bytes, without RPC and transport headers. `inline` is the part that\n\
             stays in the message if every eligible item moves in a chunk, `whole` is the total size.\n",
        );
    }
    out
}

/// Returns the name of a procedure. Further lines follow if the procedure is idempotent, and if it is taken over from
/// another version.
fn name(program: &Program, procedure: &Procedure) -> String {
    let mut lines = vec![procedure.name.text.clone()];
    lines.extend(procedure.idempotent.then(|| "idempotent".to_owned()));
    let declared_in = procedure.declared_in.and_then(|index| program.versions.get(index));
    lines.extend(declared_in.map(|version| format!("from {}", version.name.text)));
    lines.join("\n")
}

fn arguments(spec: &Spec, procedure: &Procedure) -> String {
    let mut lines = Vec::new();
    for argument in &procedure.args {
        for item in eligible_items(spec, argument) {
            lines.push(match item.max {
                Some(max) => format!("{}\n  at most {}", item.path, bytes(max)),
                None => format!("{}\n  unbounded", item.path),
            });
        }
    }
    lines.join("\n")
}

fn results(spec: &Spec, procedure: &Procedure) -> String {
    if procedure.bounds.computed {
        let items = procedure.result.iter().flat_map(|result| eligible_items(spec, result));
        return items.map(|item| format!("{}\n  computed for each call", item.path)).collect::<Vec<_>>().join("\n");
    }
    let maxima = maxima(spec, procedure).into_iter();
    maxima
        .map(|Maximum { path, len, repeats }| format!("{path}\n  at most {len}{repeats}"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The maximum length of an eligible item of a result, as text.
pub(crate) struct Maximum {
    pub(crate) path: String,
    /// The maximum length in bytes: a number, or a formula over the arguments.
    pub(crate) len: String,
    /// The text after the length that states how often the item repeats. Empty if it does not repeat.
    pub(crate) repeats: String,
}

/// Returns the maximum length of each eligible item in the result of `procedure`, in encoding order.
pub(crate) fn maxima(spec: &Spec, procedure: &Procedure) -> Vec<Maximum> {
    let runs = procedure.bounds.chunks.iter();
    let all = runs.flat_map(|run| {
        let repeats = run.count.as_ref().map_or(String::new(), |count| {
            let count = match count {
                Expr::Const(n) => n.to_string(),
                count => show(spec, procedure, count),
            };
            format!(", {count} times")
        });
        run.items.iter().map(move |(path, max)| Maximum {
            path: path.clone(),
            len: formula(spec, procedure, max),
            repeats: repeats.clone(),
        })
    });
    all.collect()
}

pub(crate) fn formula(spec: &Spec, procedure: &Procedure, expr: &Expr) -> String {
    match expr {
        Expr::Const(n) => bytes(*n),
        other => show(spec, procedure, other),
    }
}

fn call(spec: &Spec, procedure: &Procedure) -> String {
    let mut inline = Some(0_u64);
    let mut whole = Some(0_u64);
    for argument in &procedure.args {
        let facts = sizes::field(spec, argument);
        let add = |sum: Option<u64>, max: Option<u64>| sum.zip(max).and_then(|(a, b)| a.checked_add(b));
        inline = add(inline, facts.max_inline);
        whole = add(whole, facts.max_len);
    }
    if inline == whole { limited(whole) } else { format!("inline {}\nwhole {}", limited(inline), limited(whole)) }
}

fn reply(spec: &Spec, procedure: &Procedure) -> String {
    if procedure.bounds.computed {
        return "computed for each call".to_owned();
    }
    let inline = formula(spec, procedure, &procedure.bounds.inline);
    let whole = procedure.result.as_ref().map_or(Some(0), |result| sizes::field(spec, result).max_len);
    if procedure.bounds.chunks.is_empty() { inline } else { format!("inline {inline}\nwhole {}", limited(whole)) }
}

/// Formats a bound. A bound that no message can reach is shown as unbounded.
pub(crate) fn limited(max: Option<u64>) -> String {
    max.filter(|max| *max <= u64::from(u32::MAX)).map_or("unbounded".to_owned(), bytes)
}

/// Formats a number of bytes. Round numbers are also shown in larger units.
pub(crate) fn bytes(n: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if n >= 1 << shift && n.trailing_zeros() >= shift {
            return format!("{n} ({} {unit})", n >> shift);
        }
    }
    n.to_string()
}

/// An eligible item within a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Eligible {
    /// The path of the item, such as `ok.data` or `entries[].blob`.
    pub(crate) path: String,
    /// The maximum length of the contents that the type allows, in bytes. `None` means unbounded.
    pub(crate) max: Option<u64>,
}

/// Returns at most [`MAX_LISTED`] eligible items within `field`, in encoding order. An item within an array or a list
/// is returned once.
pub(crate) fn eligible_items(spec: &Spec, field: &Field) -> Vec<Eligible> {
    let mut found = Vec::new();
    let mut open = vec![Step { field, path: field.name.text.clone() }];
    while let Some(step) = open.pop() {
        if found.len() >= MAX_LISTED {
            break;
        }
        if step.field.ddp.is_some() {
            found.push(Eligible { path: step.path, max: contents(spec, &step.field.ty) });
            continue;
        }
        let Some(id) = step.field.ty.target() else { continue };
        // The loop ends, because recursive types with eligible items are rejected: the number of items would be
        // unbounded.
        if sizes::ty(spec, &step.field.ty).max_ddp_items == Some(0) {
            continue;
        }
        let mark = match step.field.ty {
            Type::Array(..) | Type::ArrayFixed(..) | Type::List(_) | Type::NonEmptyList(_) => "[]",
            _ => "",
        };
        let typedef = matches!(spec.items.get(id.0).map(|item| &item.kind), Some(ItemKind::Typedef(_)));
        let inner = parts(spec, id).into_iter().rev().map(|(_, field)| {
            // A typedef adds no path component.
            let path = if typedef {
                format!("{}{mark}", step.path)
            } else {
                format!("{}{mark}.{}", step.path, field.name.text)
            };
            Step { field, path }
        });
        open.extend(inner);
    }
    found
}

struct Step<'a> {
    field: &'a Field,
    path: String,
}
