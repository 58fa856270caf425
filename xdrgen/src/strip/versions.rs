//! Expansion of versions that take over the procedures of other versions, for tools that support only RFC 5531.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
};

use crate::fmt::{FmtToken, FmtTokenKind, lex};

/// A version of a program, as ranges of the text.
struct VersionText<'a> {
    name: &'a str,
    /// The name of the base version, with the range from the end of this version's name to the end of the base's name.
    base: Option<(&'a str, Range<usize>)>,
    /// The text between the braces.
    body: Range<usize>,
    /// The name of each procedure, and its range, which includes the comments before it and beside it. The last entry
    /// has no name. Its range is the text that follows the procedures.
    procedures: Vec<(&'a str, Range<usize>)>,
}

/// Maximum number of versions from which a version takes over procedures, directly or through other versions, as in the
/// compiler.
const MAX_LEVELS: usize = 32;

/// Maximum total length of the procedures that are written out, in bytes.
const MAX_LEN: usize = 64 << 20;

/// The error for versions that take over more procedures than can be written out, or through too many other versions.
pub(super) struct TooMany;

/// Writes the procedures that versions take over into these versions, and removes the names of the base versions.
/// `text` has no annotations. Fails if a version takes over procedures through more than [`MAX_LEVELS`] versions, or if
/// the written procedures are longer than [`MAX_LEN`].
pub(super) fn expand(text: &str) -> Result<String, TooMany> {
    let tokens = lex(text);
    let code: Vec<&FmtToken<'_>> = tokens.iter().filter(|token| token.is_code()).collect();
    let mut out = String::with_capacity(text.len());
    let mut changes: Vec<(Range<usize>, String)> = Vec::new();
    let mut len = 0;
    for program in programs(text, &code) {
        let by_name: HashMap<&str, &VersionText<'_>> =
            program.iter().rev().map(|version| (version.name, version)).collect();
        for version in &program {
            let Some((_, base)) = &version.base else { continue };
            changes.push((base.clone(), String::new()));
            let procedures = complete(text, version, &by_name, MAX_LEVELS)?;
            let written: String = procedures.into_iter().map(|(_, text)| text).collect();
            len += written.len();
            if len > MAX_LEN {
                return Err(TooMany);
            }
            changes.push((version.body.clone(), written));
        }
    }
    changes.sort_by_key(|(range, _)| range.start);
    let mut at = 0;
    for (range, new) in changes {
        out.push_str(text.get(at..range.start).unwrap_or_default());
        out.push_str(&new);
        at = range.end;
    }
    out.push_str(text.get(at..).unwrap_or_default());
    Ok(out)
}

/// Returns the names and texts of all procedures of `version`. The procedures of its base come first. A procedure that
/// `version` declares anew replaces the inherited procedure of the same name. The other procedures that `version`
/// declares follow.
///
/// `depth` is the maximum number of bases to follow. The bases may form a cycle, because the compiler may not have
/// checked the text.
fn complete<'a>(
    text: &str,
    version: &VersionText<'a>,
    by_name: &HashMap<&str, &VersionText<'a>>,
    depth: usize,
) -> Result<Vec<(&'a str, String)>, TooMany> {
    let own = version.procedures.iter();
    let own: Vec<(&str, String)> =
        own.map(|(name, range)| (*name, text.get(range.clone()).unwrap_or_default().to_owned())).collect();
    let base = version.base.as_ref().and_then(|(base, _)| by_name.get(base));
    let Some(base) = base else { return Ok(own) };
    let depth = depth.checked_sub(1).ok_or(TooMany)?;
    let mut replacements: HashMap<&str, String> = HashMap::new();
    let base = complete(text, base, by_name, depth)?;
    let taken: HashSet<&str> = base.iter().map(|(name, _)| *name).collect();
    let (replacing, own): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|(name, _)| !name.is_empty() && taken.contains(name));
    replacements.extend(replacing);
    let inherited = base.into_iter().map(|(name, text)| match replacements.remove(name) {
        // A condition that begins before a replaced procedure may end after another one.
        Some(new) => (name, directives(&text) + &new),
        None if name.is_empty() => (name, directives(&text)),
        None => (name, text),
    });
    Ok(inherited.chain(own).collect())
}

/// Returns the preprocessor lines of `text`, with a line break before each.
fn directives(text: &str) -> String {
    text.lines().filter(|line| line.trim_start().starts_with('#')).map(|line| format!("\n{line}")).collect()
}

/// Returns the versions of each program in `text`, whose XDR tokens are `code`.
fn programs<'a>(text: &str, code: &[&FmtToken<'a>]) -> Vec<Vec<VersionText<'a>>> {
    let (mut programs, mut at, mut is_start) = (Vec::new(), 0, true);
    while let Some(token) = code.get(at) {
        let opens = is_start && token.text == "program" && code.get(at + 2).is_some_and(|open| open.text == "{");
        is_start = token.text == ";";
        if opens {
            let (versions, end) = versions(text, code, at + 3);
            programs.push(versions);
            at = end;
        } else if token.text == "{" {
            at = closing(code, at);
        }
        at += 1;
    }
    programs
}

/// Returns the versions that begin at `at`, and the index of the brace that closes their program.
fn versions<'a>(text: &str, code: &[&FmtToken<'a>], mut at: usize) -> (Vec<VersionText<'a>>, usize) {
    let mut versions = Vec::new();
    while let Some(token) = code.get(at).filter(|token| token.text != "}") {
        let name = code.get(at + 1).filter(|name| token.text == "version" && name.kind == FmtTokenKind::Word);
        let Some(name) = name else {
            at += 1;
            continue;
        };
        let base = code.get(at + 3).filter(|_| code.get(at + 2).is_some_and(|colon| colon.text == ":"));
        let base = base.map(|base| (base.text, end(name)..end(base)));
        let open = at + if base.is_some() { 4 } else { 2 };
        let close = closing(code, open);
        let (Some(first), Some(last)) = (code.get(open), code.get(close)) else { break };
        let body = end(first)..last.at.max(end(first));
        let procedures = procedures(text, code.get(open + 1..close).unwrap_or_default(), &body);
        versions.push(VersionText { name: name.text, base, body, procedures });
        at = close + 1;
    }
    (versions, at)
}

/// Returns the procedures in the body of a version, in the form of [`VersionText::procedures`].
fn procedures<'a>(text: &str, code: &[&FmtToken<'a>], body: &Range<usize>) -> Vec<(&'a str, Range<usize>)> {
    let mut found = Vec::new();
    let (mut start, mut name, mut before) = (body.start, None, None);
    let mut at = 0;
    while let Some(token) = code.get(at) {
        match token.text {
            // The body of a type within the declaration.
            "{" => at = closing(code, at),
            "(" if name.is_none() => name = before,
            ";" => {
                // A comment beside a declaration belongs to it.
                let rest = text.get(end(token)..body.end).unwrap_or_default();
                let line = rest.split('\n').next().unwrap_or_default();
                let beside = line.trim_start();
                let is_comment = beside.starts_with("//") || (beside.starts_with("/*") && beside.ends_with("*/"));
                let end = end(token) + if is_comment { line.len() } else { 0 };
                if let Some(name) = name.take() {
                    found.push((name, start..end));
                }
                start = end;
            }
            _ => {}
        }
        before = (token.kind == FmtTokenKind::Word).then_some(token.text);
        at += 1;
    }
    found.push(("", start..body.end.max(start)));
    found
}

/// Returns the index of the brace that closes the brace at `open`, or the number of tokens if there is none.
fn closing(code: &[&FmtToken<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" if depth <= 1 => return at,
            "}" => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

fn end(token: &FmtToken<'_>) -> usize {
    token.at + token.text.len()
}
