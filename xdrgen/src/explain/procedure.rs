//! The section of one procedure: its declaration, its comment, and its data transfers (RFC 8166 §3.4, §3.5).

use super::{
    code,
    flow::{self, Arrow, TransferMeans},
    html::Html,
    names::{ItemUsers, procedure_anchor},
    prose::prose,
    wire::grouped,
};
use crate::{
    ir::{Expr, Procedure, Program, Version},
    report::{Maximum, bytes, eligible_items, formula, limited, maxima},
    resolve::sizes,
};

/// The minimum inline threshold, in bytes (RFC 8166 §3.3.3).
const THRESHOLD: u64 = 1024;

/// The size of the headers before the arguments, in bytes, with an empty credential and an empty verifier. They are the
/// RPC header (RFC 5531 §9) and the transport header with empty chunk lists (RFC 8166 §4.1).
const BEFORE_ARGUMENTS: u64 = 40 + 28;
/// The size of the headers before the results, in bytes, with an empty verifier. They are the RPC header (RFC 5531 §9)
/// and the transport header with empty chunk lists (RFC 8166 §4.1).
const BEFORE_RESULTS: u64 = 24 + 28;

/// The size of a chunk with one segment in the transport header, in bytes.
const CHUNK: u64 = 24;

/// The DDP-eligible items of a procedure, and the maximum sizes of its messages.
pub(super) struct ProcedureData {
    /// The path and the maximum size of each DDP-eligible argument, as text.
    pub(super) read: Vec<(String, String)>,
    /// The path and the maximum size of each DDP-eligible result, as text.
    pub(super) write: Vec<(String, String)>,
    /// The maximum inline size and the maximum total size of the arguments, in bytes. `None` means unbounded.
    call: (Option<u64>, Option<u64>),
    /// The maximum inline size of the result, as text for the page, and its maximum total size, in bytes. `None` means
    /// unbounded.
    reply: (String, Option<u64>),
    /// The first value is `true` if the call always fits a Send of [`THRESHOLD`] bytes. The second value is `true` if
    /// the reply always fits such a Send, and `None` if this depends on the arguments.
    short: (bool, Option<bool>),
}

/// Returns the DDP-eligible items of `procedure`, and the maximum sizes of its arguments and of its result.
pub(super) fn procedure_data(names: &ItemUsers<'_>, procedure: &Procedure) -> ProcedureData {
    let spec = names.spec;
    let arguments = procedure.args.iter().flat_map(|argument| eligible_items(spec, argument));
    let max = |max: Option<u64>| max.map_or("unbounded".to_owned(), |max| format!("at most {}", in_bytes(&bytes(max))));
    let read: Vec<(String, String)> = arguments.map(|item| (item.path, max(item.max))).collect();
    let bounds = &procedure.bounds;
    let write: Vec<(String, String)> = if bounds.computed {
        let items = procedure.result.iter().flat_map(|result| eligible_items(spec, result));
        items.map(|item| (item.path, "computed for each call".to_owned())).collect()
    } else {
        let shown = |Maximum { path, len, repeats }| (path, format!("at most {}{repeats}", in_bytes(&len)));
        maxima(spec, procedure).into_iter().map(shown).collect()
    };
    let (mut inline, mut whole) = (Some(0_u64), Some(0_u64));
    for argument in &procedure.args {
        let facts = sizes::field(spec, argument);
        let add = |sum: Option<u64>, max: Option<u64>| sum.zip(max).and_then(|(a, b)| a.checked_add(b));
        (inline, whole) = (add(inline, facts.max_inline), add(whole, facts.max_len));
    }
    let chunks = |items: usize| CHUNK.saturating_mul(u64::try_from(items).unwrap_or(u64::MAX));
    let fits =
        |bytes: u64, before: u64, items: usize| bytes.saturating_add(before).saturating_add(chunks(items)) <= THRESHOLD;
    let reply = match &bounds.inline {
        _ if bounds.computed || bounds.chunks.iter().any(|run| run.count.is_some()) => None,
        Expr::Const(n) => Some(fits(*n, BEFORE_RESULTS, write.len())),
        _ => None,
    };
    let short = (inline.is_some_and(|n| fits(n, BEFORE_ARGUMENTS, read.len())), reply);
    let inline_reply = match bounds.computed {
        true => "computed for each call".to_owned(),
        false => format!("at most {}", in_bytes(&formula(spec, procedure, &bounds.inline))),
    };
    let whole_reply = procedure.result.as_ref().map_or(Some(0), |result| sizes::field(spec, result).max_len);
    ProcedureData { read, write, call: (inline, whole), reply: (inline_reply, whole_reply), short }
}

fn in_bytes(amount: &str) -> String {
    match amount {
        "0" => "nothing".to_owned(),
        "1" => "1 byte".to_owned(),
        amount => match amount.split_once(" (") {
            Some((n, unit)) => format!("{} bytes ({unit}", digits(n)),
            None => format!("{} bytes", digits(amount)),
        },
    }
}

fn digits(amount: &str) -> String {
    amount.parse().map_or(amount.to_owned(), grouped)
}

/// Writes the badges that summarize a procedure.
pub(super) fn badges(procedure: &Procedure, data: &ProcedureData, out: &mut Html) {
    if !data.read.is_empty() {
        out.raw("<span class=\"badge read\">RDMA Read</span> ");
    }
    if !data.write.is_empty() {
        out.raw("<span class=\"badge write\">RDMA Write</span> ");
    }
    if data.short.1 != Some(true) {
        out.raw("<span class=\"badge\" title=\"The reply may not fit a Send, so the call may need a Reply chunk\">Reply chunk</span> ");
    }
    if procedure.idempotent {
        out.raw("<span class=\"badge\" title=\"Executing it twice has the same effect as once\">idempotent</span> ");
    }
}

/// Writes the section of a procedure: the heading with badges, the declaration, the comment, the diagram of the data
/// transfers, and the facts about call and reply.
pub(super) fn section(
    names: &ItemUsers<'_>,
    program: &Program,
    version: &Version,
    procedure: &Procedure,
    out: &mut Html,
) {
    let data = procedure_data(names, procedure);
    out.raw("<section class=\"entry\" id=\"")
        .text(&procedure_anchor(program, version, procedure))
        .raw("\">\n<h3><span class=\"kind\">procedure ");
    out.show(format_args!("{}", procedure.number)).raw("</span> ").text(&procedure.name.text).raw(" ");
    badges(procedure, &data, out);
    out.raw("</h3>\n");
    code::procedure(names, &procedure.name.text, &procedure.text, out);
    prose(names, &procedure.doc, out);
    let mut arrows = vec![Arrow {
        means: TransferMeans::Call,
        what: if procedure.args.is_empty() { "call, no arguments".to_owned() } else { "call, arguments".to_owned() },
        max: limit(data.call.0),
    }];
    let arrow = |means: TransferMeans| {
        move |(what, max): &(String, String)| Arrow { means, what: what.clone(), max: max.clone() }
    };
    arrows.extend(data.read.iter().map(arrow(TransferMeans::Read)));
    arrows.extend(data.write.iter().map(arrow(TransferMeans::Write)));
    arrows.push(Arrow {
        means: TransferMeans::Reply,
        what: if procedure.result.is_none() { "reply, no result".to_owned() } else { "reply, result".to_owned() },
        max: if procedure.result.is_none() { String::new() } else { data.reply.0.clone() },
    });
    out.raw("<figure>");
    flow::draw(&procedure.name.text, &arrows, out);
    out.raw("</figure>\n<ul class=\"facts\">\n");
    call(&data, out);
    reply(procedure, &data, out);
    out.raw("</ul>\n</section>\n");
}

fn limit(max: Option<u64>) -> String {
    match limited(max).as_str() {
        "unbounded" => "unbounded".to_owned(),
        "0" => String::new(),
        amount => format!("at most {}", in_bytes(amount)),
    }
}

fn call(data: &ProcedureData, out: &mut Html) {
    out.raw("<li><b>Call.</b> ");
    if !data.read.is_empty() {
        out.raw("The server fetches DDP-eligible arguments by RDMA Read, with one Read chunk for each item. The total size of the arguments is ");
        out.text(&limit(data.call.1)).raw(". ");
    }
    out.raw(match data.short.0 {
        true => "The rest of the message always fits one Send, unless the credentials are too large.",
        false => {
            "The rest of the message may not fit a Send. In this case the whole message moves in a Read chunk at position \
             zero (RFC 8166 section 3.5.3)."
        }
    });
    out.raw("</li>\n");
}

fn reply(procedure: &Procedure, data: &ProcedureData, out: &mut Html) {
    out.raw("<li><b>Reply.</b> ");
    if !data.write.is_empty() {
        out.raw("The server places DDP-eligible results by RDMA Write. The client provides one Write chunk for each item. The total size of the result is ");
        out.text(&limit(data.reply.1)).raw(". ");
    }
    out.raw(match data.short.1 {
        Some(true) => "The rest of the message always fits one Send.",
        Some(false) => {
            "The rest of the message may not fit a Send. In this case the call provides a Reply chunk \
             (RFC 8166 section 3.5.3)."
        }
        None if procedure.bounds.computed => {
            "The maximum size is computed from the argument values of each call. If it exceeds a Send, the call \
             provides a Reply chunk (RFC 8166 section 3.5.3)."
        }
        None => {
            "The maximum size depends on the arguments. If it exceeds a Send, the call provides a Reply chunk \
             (RFC 8166 section 3.5.3)."
        }
    });
    out.raw("</li>\n");
}
