//! Conversion of failed matches of the grammar to readable diagnostics.

use std::ops::Range;

use pest::error::{Error, ErrorVariant, InputLocation};

use super::{Rule, comments::Comments};
use crate::{
    diag::{Code, Diagnostic},
    did_you_mean,
    lexer::{is_of_word, word_len},
    source::span,
};

/// Maximum number of expected tokens to list.
const MAX_LISTED: usize = 6;

pub(super) fn describe(
    file: usize,
    text: &str,
    comments: &Comments<'_>,
    unit: &Range<usize>,
    error: &Error<Rule>,
) -> Diagnostic {
    let offset = match error.location {
        InputLocation::Pos(at) | InputLocation::Span((at, _)) => at,
    };
    let at = unit.start + offset;
    let found = found(text, at, unit.end);
    let mut expected: Vec<&'static str> = Vec::new();
    let mut missing_semicolon = false;
    if let ErrorVariant::ParsingError { positives, .. } = &error.variant {
        for rule in positives {
            missing_semicolon |= *rule == Rule::semi;
            let words = words(*rule);
            if !words.is_empty() && !expected.contains(&words) {
                expected.push(words);
            }
        }
    }
    let last = comments.last_of_code(unit.start, at);
    let before = last.end;
    let other_line = text.get(before..at).is_some_and(|between| between.contains('\n'));
    // If a missing semicolon is the likely cause, do not list the alternatives.
    if missing_semicolon && (other_line || !expected.contains(&"`=`")) {
        expected = vec!["`;`"];
    }
    expected.truncate(MAX_LISTED);
    let wanted = match expected.as_slice() {
        [] => None,
        [one] => Some((*one).to_owned()),
        [many @ .., last] => Some(format!("{} or {last}", many.join(", "))),
    };
    let message = match &wanted {
        Some(wanted) => format!("expected {wanted}, found {}", found.1),
        None => format!("unexpected {}", found.1),
    };
    let mut diagnostic = Diagnostic::new(Code::Syntax, message);
    if expected == ["`;`"] && (other_line || found.0.is_empty()) && before > unit.start {
        diagnostic = diagnostic.at(&span(file, last), "expected `;` after this");
        diagnostic = diagnostic.suggest(&span(file, before..before), ";");
        if !found.0.is_empty() {
            diagnostic = diagnostic.also(&span(file, found.0), "unexpected");
        }
    } else {
        if expected == ["`;`"] && text.get(found.0.clone()) == Some("}") {
            diagnostic = diagnostic.suggest(&span(file, before..before), ";");
        }
        let place = if found.0.is_empty() { last } else { found.0 };
        diagnostic =
            diagnostic.at(&span(file, place), wanted.map_or("unexpected".to_owned(), |w| format!("expected {w}")));
    }
    let word = text.get(at..).unwrap_or_default();
    let len = word_len(word);
    let word = word.get(..len).unwrap_or_default();
    if expected.contains(&"a name") && is_reserved(word) {
        diagnostic = diagnostic.note(format!("`{word}` is a reserved word (RFC 4506 §6.4)"));
    }
    if found.1 == "`@`" {
        return diagnostic.help("an annotation precedes the item that it marks");
    }
    if expected == ["`;`"] {
        return diagnostic;
    }
    let first = first_word_before(text, unit.start, before);
    for place in std::iter::once(at..at + len).chain(first) {
        let word = text.get(place.clone()).unwrap_or_default();
        if let Some(keyword) = did_you_mean::of(word, KEYWORDS.into_iter()).filter(|_| !is_reserved(word)) {
            let place = span(file, place);
            return diagnostic.help(format!("did you mean `{keyword}`?")).suggest(&place, keyword);
        }
    }
    diagnostic
}

/// Returns the range of the word that ends at `end`, if no other word directly precedes it. The parser took this word
/// for a type name. An example is `unsinged int`.
fn first_word_before(text: &str, from: usize, end: usize) -> Option<Range<usize>> {
    let before = text.get(from..end)?;
    let rest = before.trim_end_matches(is_of_word);
    let first = !rest.trim_end().ends_with(is_of_word);
    first.then(|| from + rest.len()..end)
}

/// The keywords to suggest in place of a misspelled word.
const KEYWORDS: [&str; 17] = [
    "case", "const", "default", "enum", "hyper", "int", "long", "opaque", "program", "short", "string", "struct",
    "switch", "typedef", "union", "unsigned", "version",
];

/// Returns the range and the description of the token at `at`.
fn found(text: &str, at: usize, end: usize) -> (Range<usize>, String) {
    let rest = text.get(at..end).unwrap_or_default();
    let word = word_len(rest);
    let len = if word > 0 { word } else { rest.chars().next().map_or(0, char::len_utf8) };
    match rest.get(..len) {
        Some(token) if !token.is_empty() => (at..at + len, format!("`{token}`")),
        _ if end >= text.trim_end().len() => (at..at, "the end of the file".to_owned()),
        _ => (at..at, "the next definition".to_owned()),
    }
}

fn is_reserved(word: &str) -> bool {
    use pest::Parser as _;
    super::grammar::Grammar::parse(Rule::reserved, word).is_ok()
}

/// Returns the description of a grammar rule for users. The description is empty for rules that would confuse them.
fn words(rule: Rule) -> &'static str {
    match rule {
        Rule::at | Rule::annotation | Rule::reserved | Rule::EOI | Rule::digits => "",
        Rule::colon => "`:`",
        Rule::comma => "`,`",
        Rule::dot => "`.`",
        Rule::equals => "`=`",
        Rule::langle => "`<`",
        Rule::lbrace => "`{`",
        Rule::lbracket => "`[`",
        Rule::lparen => "`(`",
        Rule::minus => "`-`",
        Rule::plus => "`+`",
        Rule::rangle => "`>`",
        Rule::rbrace => "`}`",
        Rule::rbracket => "`]`",
        Rule::rparen => "`)`",
        Rule::semi => "`;`",
        Rule::slash => "`/`",
        Rule::star => "`*`",
        Rule::void => "`void`",
        Rule::kw_case => "`case`",
        Rule::kw_const => "`const`",
        Rule::kw_default => "`default`",
        Rule::kw_enum => "`enum`",
        Rule::kw_program => "`program`",
        // A pragma is never suggested, because most users do not know pragmas.
        Rule::kw_pragma | Rule::pragma_def => "",
        Rule::directive => "the name of a pragma",
        Rule::kw_struct => "`struct`",
        Rule::kw_switch => "`switch`",
        Rule::kw_typedef => "`typedef`",
        Rule::kw_union => "`union`",
        Rule::kw_unsigned => "`unsigned`",
        Rule::kw_version => "`version`",
        Rule::kw_char => "`char`",
        Rule::kw_hyper => "`hyper`",
        Rule::kw_int => "`int`",
        Rule::kw_long => "`long`",
        Rule::kw_short => "`short`",
        Rule::name | Rule::word => "a name",
        Rule::number | Rule::size => "a number",
        Rule::value | Rule::character | Rule::scoped => "a constant",
        Rule::text => "a string",
        Rule::expr | Rule::term | Rule::factor | Rule::call | Rule::path => "an expression",
        Rule::annotation_arg => "an argument",
        Rule::unit => "a definition",
        Rule::binding | Rule::statement => "a statement",
        Rule::setting => "`=`",
        Rule::setting_name => "`max` or `chunks`",
        Rule::const_def => "`const`",
        Rule::typedef_def => "`typedef`",
        Rule::enum_def | Rule::constants => "`enum`",
        Rule::struct_def => "`struct`",
        Rule::union_def => "`union`",
        Rule::program_def => "`program`",
        Rule::version_def => "`version`",
        Rule::procedure => "a procedure",
        Rule::enum_body | Rule::struct_body => "`{`",
        Rule::union_body => "`switch`",
        Rule::enumerator => "a name",
        Rule::arm | Rule::label => "`case`",
        Rule::fixed => "`[`",
        Rule::counted => "`<`",
        Rule::member | Rule::declaration | Rule::parameter | Rule::result => "a declaration",
        Rule::inverted
        | Rule::type_spec
        | Rule::const_type
        | Rule::primitive
        | Rule::word_type
        | Rule::c_type
        | Rule::unsigned_of => "a type",
        Rule::enum_type | Rule::struct_type | Rule::union_type => "a type",
        // Trivia and parts of tokens are never listed.
        _ => "",
    }
}
