//! RFC 2119 key words, except MAY and OPTIONAL, in the text of a specification.

use std::collections::BTreeMap;

/// Key words by section and by their number in it, counted from one.
pub type Keywords = BTreeMap<(String, usize), String>;

const WORDS: [&str; 8] =
    ["MUST NOT", "MUST", "SHALL NOT", "SHALL", "SHOULD NOT", "SHOULD", "NOT RECOMMENDED", "RECOMMENDED"];

/// Returns the key words of `sections` and their subsections. REQUIRED counts as MUST. If `lowercase` is `true`, `must`
/// and `should` in lower case count as well, as needed for texts from before RFC 2119.
pub fn of(text: &str, sections: &[String], lowercase: bool) -> Keywords {
    let mut found = Keywords::new();
    for (section, body) in split(text) {
        let covered =
            |of: &String| section == *of || section.strip_prefix(of.as_str()).is_some_and(|r| r.starts_with('.'));
        if sections.iter().any(covered) {
            let body = if lowercase { raised(&body) } else { body };
            for (n, word) in words(&body).into_iter().enumerate() {
                found.insert((section.clone(), n + 1), word.to_owned());
            }
        }
    }
    found
}

/// Returns the text with `must` and `should` in upper case.
fn raised(body: &str) -> String {
    let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
    ["must not", "must", "should not", "should"]
        .iter()
        .fold(body, |body, word| body.replace(word, &word.to_uppercase()))
}

/// Returns the bodies of the sections, without page headers and footers. The entries of the table of contents come
/// first, and the sections replace them.
fn split(text: &str) -> BTreeMap<String, String> {
    let mut sections = BTreeMap::new();
    let mut current = None;
    for line in text.lines().map(|line| line.trim_end().trim_start_matches('\u{c}')) {
        if is_furniture(line) {
            continue;
        }
        if let Some(number) = heading(line) {
            sections.insert(number.clone(), String::new());
            current = Some(number);
        } else if let Some(body) = current.as_ref().and_then(|number| sections.get_mut(number)) {
            body.push(' ');
            body.push_str(line.trim());
        }
    }
    sections
}

/// Returns `true` if a line is a page header or footer.
fn is_furniture(line: &str) -> bool {
    let ends_with_year = line.len() > 4 && line[line.len().saturating_sub(4)..].bytes().all(|b| b.is_ascii_digit());
    (line.ends_with(']') && line.contains("[Page "))
        || (ends_with_year && (line.starts_with("RFC ") || line.starts_with("Internet-Draft ")))
}

/// Returns the number of the section that begins on this line, or `None` if the line is no heading.
fn heading(line: &str) -> Option<String> {
    let (number, title) = line.split_once(' ')?;
    let number = number.trim_end_matches('.');
    let numeric = !number.is_empty() && number.split('.').all(|part| part.parse::<u8>().is_ok());
    (numeric && !title.trim().is_empty() && !title.contains("...") && !title.contains(". .")).then(|| number.to_owned())
}

/// Returns the key words of a section, in the order of the text. If two start at one place, as MUST and MUST NOT do,
/// the longer one counts.
fn words(body: &str) -> Vec<&'static str> {
    let body = body.split_whitespace().collect::<Vec<_>>().join(" ").replace("REQUIRED", "MUST");
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = body.get(at..) {
        let boundary = at == 0 || !body[..at].ends_with(|c: char| c.is_alphanumeric());
        let word = WORDS.into_iter().find(|word| {
            rest.strip_prefix(*word).is_some_and(|after| boundary && !after.starts_with(|c: char| c.is_alphanumeric()))
        });
        match word {
            Some(word) => {
                found.push(word);
                at += word.len();
            }
            None => match rest.chars().next() {
                Some(c) => at += c.len_utf8(),
                None => break,
            },
        }
    }
    found
}

#[test]
fn key_words_of_a_text() {
    let text = "1.  Contents ......... 3\n\n1.  First\n\n   It MUST NOT do so.  It\n   SHOULD\n   NOT, and is REQUIRED.\n\
                \u{c}RFC 1 Title   May 2020\n1.1.  Inner\n   MUST.  MUSTARD\n2.  Other\n   MUST\n";
    let found = of(text, &["1".into()], false);
    let rows: Vec<_> = found.iter().map(|((section, n), word)| (section.as_str(), *n, word.as_str())).collect();
    assert_eq!(rows, [("1", 1, "MUST NOT"), ("1", 2, "SHOULD NOT"), ("1", 3, "MUST"), ("1.1", 1, "MUST")]);
}

#[test]
fn key_words_in_lower_case() {
    let text = "1. First\n\n   It must\n   not, and it should. Mustard is required.\n";
    assert!(of(text, &["1".into()], false).is_empty());
    let found = of(text, &["1".into()], true);
    assert_eq!(found.values().collect::<Vec<_>>(), ["MUST NOT", "SHOULD"]);
}
