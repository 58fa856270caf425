//! A minimal HTML parser, sufficient for the pages of `xdrgen explain`.

/// A start tag, an end tag, or the text between two tags.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    Open { name: &'a str, attributes: Vec<(&'a str, &'a str)> },
    Close(&'a str),
    Text(&'a str),
}

/// Returns the parts of `page`, in order.
pub(crate) fn parts(page: &str) -> Vec<Part<'_>> {
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (text, tag) = rest.split_once('<').unwrap_or((rest, ""));
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if tag.is_empty() {
            break;
        }
        let (tag, after) = tag.split_once('>').unwrap();
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            parts.push(Part::Close(name));
            continue;
        }
        let name = tag.split([' ', '/']).next().unwrap();
        parts.push(Part::Open { name, attributes: attributes(&tag[name.len()..]) });
        // The contents of these elements are not markup.
        if matches!(name, "script" | "style") {
            let end = rest.find(&format!("</{name}>")).unwrap();
            parts.push(Part::Text(&rest[..end]));
            rest = &rest[end..];
        }
    }
    parts
}

fn attributes(mut rest: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    loop {
        rest = rest.trim_start().trim_end_matches('/');
        if rest.is_empty() {
            return found;
        }
        let end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let name = &rest[..end];
        rest = &rest[end..];
        let mut value = "";
        if let Some(quoted) = rest.strip_prefix("=\"") {
            (value, rest) = quoted.split_once('"').unwrap();
        }
        found.push((name, value));
    }
}
