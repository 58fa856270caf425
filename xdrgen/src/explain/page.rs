//! The page: head, contents, programs with their procedures, types, constants.

use super::{
    code, diagram,
    html::Html,
    names::{ItemUsers, item_anchor, procedure_anchor, version_anchor},
    procedure,
    prose::prose,
    wire::{self, grouped, plural, size},
};
use crate::ir::{ConstValue, Enumerator, Item, ItemId, ItemKind, Program, Spec, Version};

/// What the page looks like.
const STYLE: &str = include_str!("style.css");

/// Filters the contents, and nothing else. The policy of the page allows this script alone, by its digest.
const SCRIPT: &str = include_str!("script.js");
const SCRIPT_DIGEST: &str = include_str!("script.sha256");

pub(super) fn page(spec: &Spec, title: &str) -> String {
    let names = ItemUsers::new(spec);
    let mut out = Html::default();
    out.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-");
    out.raw(SCRIPT_DIGEST.trim_ascii()).raw("'; base-uri 'none'; form-action 'none'\">\n");
    out.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" content=\"xdrgen explain\">\n<title>");
    out.text(title).raw("</title>\n<style>\n").raw(STYLE).raw("</style>\n</head>\n<body>\n");
    contents(&names, title, &mut out);
    out.raw("<main>\n");
    head(&names, title, &mut out);
    for program in &spec.programs {
        self::program(&names, program, &mut out);
    }
    types(&names, &mut out);
    constants(&names, &mut out);
    out.raw("<footer>Written by <code>xdrgen explain</code>. Sizes are octets of XDR (RFC 4506); headers of RPC and of the transport are not counted.</footer>\n");
    out.raw("</main>\n<script>").raw(SCRIPT).raw("</script>\n</body>\n</html>\n");
    out.finish()
}

fn is_type(item: &Item) -> bool {
    !matches!(item.kind, ItemKind::Const(_))
}

fn contents(names: &ItemUsers<'_>, title: &str, out: &mut Html) {
    let spec = names.spec;
    out.raw("<nav>\n<a class=\"title\" href=\"#top\">").text(title).raw("</a>\n");
    out.raw("<input id=\"search\" type=\"search\" placeholder=\"Search  /\" aria-label=\"Search the contents\" autocomplete=\"off\">\n<div id=\"contents\">\n");
    for program in &spec.programs {
        for version in &program.versions {
            out.raw("<details open><summary><a href=\"#").text(&version_anchor(program, version)).raw("\">");
            out.text(&version.name.text).raw("</a></summary>\n<ol>\n");
            for procedure in &version.procedures {
                out.raw("<li><a href=\"#")
                    .text(&procedure_anchor(program, version, procedure))
                    .raw("\"><span class=\"number\">");
                out.show(format_args!("{}", procedure.number))
                    .raw("</span> ")
                    .text(&procedure.name.text)
                    .raw("</a></li>\n");
            }
            out.raw("</ol></details>\n");
        }
    }
    type Belongs = fn(&ItemKind) -> bool;
    let groups: [(&str, Belongs); 5] = [
        ("Structures", |kind| matches!(kind, ItemKind::Struct { .. })),
        ("Unions", |kind| matches!(kind, ItemKind::Union(_))),
        ("Enumerations", |kind| matches!(kind, ItemKind::Enum(_))),
        ("Other types", |kind| matches!(kind, ItemKind::Typedef(_) | ItemKind::Extern(_))),
        ("Constants", |kind| matches!(kind, ItemKind::Const(_))),
    ];
    for (title, belongs) in groups {
        let mut list: Vec<&str> =
            spec.items.iter().filter(|item| belongs(&item.kind)).map(|item| item.name.text.as_str()).collect();
        if list.is_empty() {
            continue;
        }
        list.sort_unstable_by_key(|name| name.to_ascii_lowercase());
        out.raw("<details open><summary>").text(title).raw(" <span class=\"number\">");
        out.show(format_args!("{}", list.len())).raw("</span></summary>\n<ul>\n");
        for name in list {
            out.raw("<li><a href=\"#").text(&item_anchor(name)).raw("\">").text(name).raw("</a></li>\n");
        }
        out.raw("</ul></details>\n");
    }
    out.raw("</div>\n</nav>\n");
}

fn head(names: &ItemUsers<'_>, title: &str, out: &mut Html) {
    let spec = names.spec;
    out.raw("<header id=\"top\">\n<h1>").text(title).raw("</h1>\n");
    let procedures: usize =
        spec.programs.iter().flat_map(|program| &program.versions).map(|v| v.procedures.len()).sum();
    let types = spec.items.iter().filter(|item| is_type(item)).count();
    let parts = [
        (spec.programs.len(), "program"),
        (procedures, "procedure"),
        (types, "type"),
        (spec.items.len() - types, "constant"),
    ];
    out.raw("<p class=\"counts\">");
    for (n, what) in parts.into_iter().filter(|(n, _)| *n > 0) {
        out.raw("<span>").text(&plural(u64::try_from(n).unwrap_or_default(), what)).raw("</span> ");
    }
    out.raw("</p>\n");
    prose(names, &spec.header, out);
    if !spec.programs.is_empty() {
        out.raw(
            "<aside class=\"legend\"><h2>How items travel</h2>\n<dl>\n\
             <dt><span class=\"swatch send\"></span>Send</dt><dd>In the message, as everything does that is not eligible, and \
             what is too short for the effort.</dd>\n\
             <dt><span class=\"swatch read\"></span>RDMA Read</dt><dd>An eligible argument: a Read chunk tells the server where it \
             lies in the caller's memory.</dd>\n\
             <dt><span class=\"swatch write\"></span>RDMA Write</dt><dd>An eligible result: a Write chunk tells the server where the \
             caller wants it. The caller has to know at most how much there is, before it calls.</dd>\n\
             <dt><span class=\"swatch\"></span>Reply chunk</dt><dd>Memory for a reply that may be longer than a Send takes; the caller \
             computes how long from the arguments.</dd>\n</dl></aside>\n",
        );
    }
    out.raw("</header>\n");
}

fn program(names: &ItemUsers<'_>, program: &Program, out: &mut Html) {
    for version in &program.versions {
        out.raw("<section class=\"program\" id=\"").text(&version_anchor(program, version)).raw("\">\n<h2>");
        out.text(&program.name.text)
            .raw(" <span class=\"kind\">")
            .text(&version.name.text)
            .raw("</span></h2>\n<p class=\"counts\"><span>program ");
        out.show(format_args!("{} ({:#x})", program.number, program.number)).raw("</span> <span>version ");
        out.show(format_args!("{}", version.number)).raw("</span> ");
        if let Some(port) = program.port {
            out.raw("<span>port ").show(format_args!("{port}")).raw(" on RDMA</span>");
        }
        out.raw("</p>\n");
        prose(names, &program.doc, out);
        prose(names, &version.doc, out);
        overview(names, program, version, out);
        for procedure in &version.procedures {
            procedure::section(names, program, version, procedure, out);
        }
        out.raw("</section>\n");
    }
}

/// The procedures of a version at a glance.
fn overview(names: &ItemUsers<'_>, program: &Program, version: &Version, out: &mut Html) {
    out.raw("<div class=\"wide\"><table class=\"overview\">\n<thead><tr><th>no.</th><th>procedure</th><th>arguments</th><th>result</th><th>travels by</th></tr></thead>\n<tbody>\n");
    for procedure in &version.procedures {
        let moves = procedure::moves(names, procedure);
        out.raw("<tr><td class=\"number\">").show(format_args!("{}", procedure.number)).raw("</td><td><a href=\"#");
        out.text(&procedure_anchor(program, version, procedure))
            .raw("\">")
            .text(&procedure.name.text)
            .raw("</a></td><td>");
        for (at, field) in procedure.args.iter().enumerate() {
            out.raw(if at > 0 { ", " } else { "" });
            field_type(names, field, out);
        }
        out.raw("</td><td>");
        if let Some(field) = &procedure.result {
            field_type(names, field, out);
        }
        out.raw("</td><td>");
        procedure::badges(procedure, &moves, out);
        out.raw("</td></tr>\n");
    }
    out.raw("</tbody></table></div>\n");
}

fn field_type(names: &ItemUsers<'_>, field: &crate::ir::Field, out: &mut Html) {
    match crate::resolve::graph_target(&field.ty) {
        Some(id) => names.link(id, names.name(id), out),
        None => {
            let declaration = crate::emit::declaration_text(names.spec, field);
            // Arguments without a name have been given one.
            let ty = declaration.replacen(&format!(" {}", field.name.text), "", 1);
            out.text(&ty);
        }
    }
}

fn types(names: &ItemUsers<'_>, out: &mut Html) {
    if !names.spec.items.iter().any(is_type) {
        return;
    }
    out.raw("<section>\n<h2>Types</h2>\n");
    for (id, item) in names.spec.items.iter().enumerate().filter(|(_, item)| is_type(item)) {
        entry(names, ItemId(id), item, out);
    }
    out.raw("</section>\n");
}

fn entry(names: &ItemUsers<'_>, id: ItemId, item: &Item, out: &mut Html) {
    out.raw("<section class=\"entry\" id=\"").text(&item_anchor(&item.name.text)).raw("\">\n<h3><span class=\"kind\">");
    out.raw(match &item.kind {
        ItemKind::Struct { list_node: true, .. } => "list of",
        ItemKind::Struct { .. } => "struct",
        ItemKind::Union(_) => "union",
        ItemKind::Enum(_) => "enum",
        ItemKind::Extern(_) => "type of another module",
        _ => "typedef",
    });
    out.raw("</span> ").text(&item.name.text).raw(" <span class=\"size\">");
    out.text(&size(item.facts.min_len, item.facts.max_len)).raw("</span>");
    if item.facts.max_ddp_items != Some(0) {
        out.raw(" <span class=\"badge eligible\">holds eligible items</span>");
    }
    if item.recursive {
        out.raw(" <span class=\"badge\">holds itself</span>");
    }
    out.raw("</h3>\n");
    prose(names, &item.doc, out);
    match &item.kind {
        ItemKind::Enum(enumerators) => values(names, enumerators, out),
        ItemKind::Extern(path) => {
            out.raw("<p>In Rust, <code>").text(path).raw("</code>.</p>\n");
        }
        _ => {
            out.raw("<figure>");
            diagram::draw(names, &item.name.text, &wire::item(names, item), out);
            out.raw("</figure>\n");
        }
    }
    if !item.text.is_empty() {
        out.raw("<details class=\"source\"");
        out.raw(if matches!(item.kind, ItemKind::Enum(_)) { "" } else { " open" });
        out.raw("><summary>XDR</summary>");
        code::declaration(names, &item.name.text, &item.text, out);
        out.raw("</details>\n");
    }
    let users = names.users(id);
    if !users.is_empty() {
        out.raw("<p class=\"users\">Used by ");
        for (at, user) in users.iter().enumerate() {
            out.raw(if at > 0 { ", " } else { "" });
            names.user(*user, out);
        }
        out.raw("</p>\n");
    }
    out.raw("</section>\n");
}

fn values(names: &ItemUsers<'_>, enumerators: &[Enumerator], out: &mut Html) {
    out.raw("<div class=\"wide\"><table class=\"values\"><tbody>\n");
    for enumerator in enumerators {
        out.raw("<tr><td class=\"number\">").show(format_args!("{}", enumerator.value)).raw("</td><td><code>");
        out.text(&enumerator.name.text).raw("</code></td><td>");
        for (at, line) in enumerator.doc.iter().enumerate() {
            out.raw(if at > 0 { " " } else { "" });
            super::prose::inline(names, line.trim(), out);
        }
        out.raw("</td></tr>\n");
    }
    out.raw("</tbody></table></div>\n");
}

fn constants(names: &ItemUsers<'_>, out: &mut Html) {
    let mut constants = names.spec.items.iter().filter(|item| !is_type(item)).peekable();
    if constants.peek().is_none() {
        return;
    }
    out.raw("<section>\n<h2>Constants</h2>\n<div class=\"wide\"><table class=\"values\"><tbody>\n");
    for item in constants {
        let ItemKind::Const(value) = &item.kind else { continue };
        out.raw("<tr id=\"")
            .text(&item_anchor(&item.name.text))
            .raw("\"><td><code>")
            .text(&item.name.text)
            .raw("</code></td><td class=\"number\">");
        match value {
            ConstValue::Int(n) | ConstValue::Typed(n, _) => match u64::try_from(*n) {
                Ok(n @ 10..) => {
                    out.text(&grouped(n)).raw("<br><span class=\"size\">").show(format_args!("{n:#x}")).raw("</span>")
                }
                _ => out.show(format_args!("{n}")),
            },
            ConstValue::TooLarge => out.text("more than 64 bits"),
            ConstValue::Str(text) => out.show(format_args!("{text:?}")),
        };
        out.raw("</td><td>");
        for (at, line) in item.doc.iter().enumerate() {
            out.raw(if at > 0 { " " } else { "" });
            super::prose::inline(names, line.trim(), out);
        }
        out.raw("</td></tr>\n");
    }
    out.raw("</tbody></table></div>\n</section>\n");
}
