//! Tests that the lexer and the grammar agree on token boundaries.

use std::{fs, path::Path};

use pest::{Parser as _, error::InputLocation, iterators::Pair};

use super::{Rule, grammar::Grammar};
use crate::{
    const_expr::Defines,
    lexer::{Lexer, Token, TokenKind},
    scan::scan,
};

fn files(directory: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") {
                files(&path, found);
            }
        } else if name.ends_with(".x") || name.ends_with(".ulb") {
            found.push(path);
        }
    }
}

/// Returns the text without inactive branches of conditions and without continuation lines of directives.
fn preprocessed(text: &str) -> String {
    // The preprocessor is a higher layer than this module. Only tests may use it here.
    crate::preprocess::run(
        0,
        text,
        &mut Defines::new(),
        &mut |_, _, _| crate::preprocess::Included::Read,
        &mut Vec::new(),
    )
    .text
    .into_owned()
}

/// Checks that the tokens of a definition agree with the innermost rules that match it. Returns the number of matches
/// of these rules, or 0 without a check if the grammar does not accept the definition.
fn compare(rule: Rule, unit: &str, name: &str) -> usize {
    let Ok(pairs) = Grammar::parse(rule, unit) else { return 0 };
    let is_leaf = |pair: &Pair<'_, Rule>| pair.clone().into_inner().next().is_none() && !pair.as_str().is_empty();
    let leaves: Vec<Pair<'_, Rule>> = pairs.flatten().filter(is_leaf).collect();
    let tokens: Vec<Token<'_>> = Lexer::of_grammar(unit).filter(|token| !token.kind.is_trivia()).collect();
    let mut rest = tokens.as_slice();
    for leaf in &leaves {
        let at = leaf.as_span();
        assert_eq!(rest[0].at, at.start(), "{name}: {:?} `{}`", leaf.as_rule(), leaf.as_str());
        let count = rest.iter().take_while(|token| token.end() <= at.end()).count();
        assert!(count > 0, "{name}: {:?} `{}` ends within `{}`", leaf.as_rule(), leaf.as_str(), rest[0].text);
        assert_eq!(rest[count - 1].end(), at.end(), "{name}: {:?} `{}`", leaf.as_rule(), leaf.as_str());
        rest = &rest[count..];
    }
    assert!(rest.is_empty(), "{name}: the grammar skips {rest:?}");
    leaves.len()
}

#[test]
fn lexer_and_grammar_agree_on_all_specifications() {
    let mut paths = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut paths);
    let (mut units, mut leaves) = (0, 0);
    for path in &paths {
        let text = crate::source::unix_lines(String::from_utf8_lossy(&fs::read(path).unwrap()).into());
        let is_binding = path.extension().is_some_and(|extension| extension == "ulb");
        let (rule, text) =
            if is_binding { (Rule::binding, text.to_string()) } else { (Rule::unit, preprocessed(&text)) };
        assert_eq!(Lexer::of_grammar(&text).map(|token| token.text).collect::<String>(), text);
        for unit in scan(0, &text).units {
            leaves += compare(rule, &text[unit], &path.display().to_string());
            units += 1;
        }
    }
    assert!(units > 500 && leaves > 10_000, "{units} definitions, {leaves} tokens");
}

/// Returns all strings of one to four characters from a set of characters that the lexer treats specially.
fn strings() -> impl Iterator<Item = String> {
    const CHARACTERS: [char; 15] =
        ['\'', '"', '\\', '\n', 'n', '0', '7', '8', '_', '\u{e9}', '/', '*', ' ', '#', '\u{feff}'];
    (1..=4_u32).flat_map(|len| {
        (0..CHARACTERS.len().pow(len)).map(move |mut number| {
            let mut text = String::new();
            for _ in 0..len {
                text.push(CHARACTERS[number % CHARACTERS.len()]);
                number /= CHARACTERS.len();
            }
            text
        })
    })
}

/// Returns the length of the match of `rule` at the start of `text`.
fn matched(rule: Rule, text: &str) -> Option<usize> {
    Grammar::parse(rule, text).ok().map(|pairs| pairs.as_str().len())
}

#[test]
fn lexer_and_grammar_agree_on_short_texts() {
    for text in strings() {
        let mut tokens = Lexer::of_grammar(&text);
        let first = tokens.clone().next().unwrap();
        let length = |kind: TokenKind| (first.kind == kind).then_some(first.text.len());
        assert_eq!(length(TokenKind::Character), matched(Rule::character, &text), "{text:?}");
        assert_eq!(length(TokenKind::Text), matched(Rule::text, &text), "{text:?}");
        if let Some(word) = matched(Rule::word, &text) {
            assert_eq!(length(TokenKind::Word), Some(word), "{text:?}");
        }
        // Trivia before the first token.
        let skipped = tokens.find(|token| !token.kind.is_trivia() || token.kind == TokenKind::OpenComment);
        let skipped = skipped.map_or(text.len(), |token| token.at);
        // No definition starts with this token, so the error is reported at its position.
        let error = Grammar::parse(Rule::unit, &text).unwrap_err();
        let (InputLocation::Pos(at) | InputLocation::Span((at, _))) = error.location;
        assert_eq!(skipped, at, "{text:?}");
    }
}
