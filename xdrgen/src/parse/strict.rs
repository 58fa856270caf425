//! Detection of constructs in a definition that the grammar accepts, but that RFC 4506 and RFC 5531 do not define.

use pest::iterators::Pair;

use super::Rule;
use crate::{ast::Dialect, source::span};

const XDR: &str = "RFC 4506 §6.3";
/// The section that defines comments, identifiers and numbers.
const LEXICAL: &str = "RFC 4506 §6.2";
const RPC: &str = "RFC 5531 §12.2";

/// Records each dialect construct in `unit`, which starts at byte offset `base` of the source with index `file`.
pub(super) fn unit(file: usize, base: usize, unit: Pair<'_, Rule>, out: &mut Vec<Dialect>) {
    let at = unit.as_span();
    let mut pairs = vec![unit.clone()];
    pairs.extend(unit.into_inner().flatten());
    for pair in pairs {
        let Some((what, rule)) = dialect(&pair) else { continue };
        let place = pair.as_span();
        let start = place.start().saturating_sub(at.start());
        let end = start + pair.as_str().trim_end().len();
        out.push(Dialect::new(&span(file, base + start..base + end), what, rule));
    }
}

fn dialect(pair: &Pair<'_, Rule>) -> Option<(&'static str, &'static str)> {
    let has = |rule: Rule| pair.clone().into_inner().any(|inner| inner.as_rule() == rule);
    let declared = has(Rule::star) || has(Rule::fixed) || has(Rule::counted);
    Some(match pair.as_rule() {
        Rule::stray => ("a `;` with nothing before it", XDR),
        Rule::inverted => ("a typedef with the new name first", XDR),
        Rule::constants => ("an enumeration without a name", XDR),
        Rule::const_type => ("a constant with a type", XDR),
        Rule::text => ("a string constant", XDR),
        Rule::character => ("a character constant", XDR),
        Rule::scoped => ("a qualified enumerator", XDR),
        Rule::number | Rule::size if pair.as_str().contains('\'') => ("a number with digit separators", XDR),
        Rule::number if pair.as_str().contains("0X") => ("a number with the prefix `0X`", LEXICAL),
        Rule::number if pair.as_str().starts_with("-0") => {
            ("a minus sign before a number that is not decimal", LEXICAL)
        }
        // Other compilers may reserve them in specifications without programs, too (RFC 5531 §12).
        Rule::name if matches!(pair.as_str(), "program" | "version") => {
            ("a keyword of programs as a name", "RFC 5531 §12.3")
        }
        Rule::name if pair.as_str().starts_with('_') => ("a name that begins with an underscore", LEXICAL),
        Rule::value if has(Rule::operator) || has(Rule::sign) || has(Rule::open) => ("a computed constant", XDR),
        Rule::c_type => ("a C type", XDR),
        Rule::pragma_def => ("a `pragma`", XDR),
        Rule::kw_opaque_union => ("an `opaque_union`", XDR),
        Rule::const_def if value_is_name(pair) => ("a constant defined by another name", XDR),
        Rule::program_def | Rule::version_def | Rule::procedure if value_is_name(pair) => ("a name as a number", RPC),
        Rule::procedure if !has(Rule::parameter) && !has(Rule::void) => {
            ("an empty argument list in place of `void`", RPC)
        }
        Rule::base => ("a version that takes over the procedures of another", RPC),
        Rule::parameter if has(Rule::name) => ("an argument with a name", RPC),
        Rule::parameter | Rule::result if declared => ("an argument or result with a declarator", RPC),
        Rule::program_def if !has(Rule::version_def) => ("a program without versions", RPC),
        Rule::version_def if !has(Rule::procedure) => ("a version without procedures", RPC),
        Rule::primitive => unsigned(pair)?,
        Rule::enum_type | Rule::struct_type | Rule::union_type if has(Rule::name) => ("a tag in a type", XDR),
        Rule::enumerator if !has(Rule::value) => ("an enumerator without a value", XDR),
        Rule::enum_body if ends_with_comma(pair) => ("a comma after the last enumerator", XDR),
        Rule::declaration if is_string(pair) && !declared => ("a string without `<>`", XDR),
        Rule::parameter | Rule::result if is_string(pair) => ("a string as an argument or result", RPC),
        Rule::struct_body if !has(Rule::member) => ("a struct without fields", XDR),
        Rule::arm if is_mixed(pair) => ("`default` beside a `case`", XDR),
        Rule::union_body if default_is_not_last(pair) => ("arms after `default`", XDR),
        Rule::union_body if has(Rule::arm) && !has_case(pair) => ("a union without a `case`", XDR),
        _ => return None,
    })
}

fn value_is_name(pair: &Pair<'_, Rule>) -> bool {
    let values = pair.clone().into_inner().filter(|inner| inner.as_rule() == Rule::value);
    values.flat_map(Pair::into_inner).any(|inner| matches!(inner.as_rule(), Rule::name | Rule::scoped))
}

/// Returns the dialect of an `unsigned` type. RFC 4506 defines only `unsigned int` and `unsigned hyper`.
fn unsigned(pair: &Pair<'_, Rule>) -> Option<(&'static str, &'static str)> {
    if pair.clone().into_inner().next()?.as_rule() != Rule::kw_unsigned {
        return None;
    }
    let of = pair.clone().into_inner().find(|inner| inner.as_rule() == Rule::unsigned_of);
    match of.as_ref().map(|of| of.as_str().trim_end()) {
        Some("int" | "hyper") => None,
        Some(_) => Some(("a C type", XDR)),
        None => Some(("`unsigned` in place of `unsigned int`", XDR)),
    }
}

fn is_string(pair: &Pair<'_, Rule>) -> bool {
    let spec = pair.clone().into_inner().find(|inner| inner.as_rule() == Rule::type_spec);
    spec.is_some_and(|spec| spec.as_str().trim_end() == "string")
}

fn ends_with_comma(pair: &Pair<'_, Rule>) -> bool {
    pair.clone().into_inner().rev().nth(1).is_some_and(|inner| inner.as_rule() == Rule::comma)
}

fn labels(arm: &Pair<'_, Rule>) -> (usize, usize) {
    let labels = arm.clone().into_inner().filter(|inner| inner.as_rule() == Rule::label);
    let (defaults, cases): (Vec<_>, Vec<_>) =
        labels.partition(|label| label.clone().into_inner().all(|part| part.as_rule() != Rule::value));
    (defaults.len(), cases.len())
}

fn is_mixed(arm: &Pair<'_, Rule>) -> bool {
    let (defaults, cases) = labels(arm);
    defaults > 0 && cases > 0
}

fn has_case(body: &Pair<'_, Rule>) -> bool {
    body.clone().into_inner().filter(|inner| inner.as_rule() == Rule::arm).any(|arm| labels(&arm).1 > 0)
}

fn default_is_not_last(body: &Pair<'_, Rule>) -> bool {
    let arms: Vec<_> = body.clone().into_inner().filter(|inner| inner.as_rule() == Rule::arm).collect();
    arms.iter().rev().skip(1).any(|arm| labels(arm).0 > 0)
}
