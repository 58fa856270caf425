//! Search for citations in source text.

/// Returns `true` if `text` cites the section `section` of `specification`, as `RFC 8166 §4.5` or in a list such as
/// `RFC 8166 §3.4.6, §4.5`. A list may continue on the next line of a comment.
pub fn cites(text: &str, specification: &str, section: &str) -> bool {
    let text = flat(text);
    text.match_indices(specification).any(|(at, _)| {
        let mut rest = &text[at + specification.len()..];
        loop {
            rest = rest.trim_start_matches([' ', ',', ';']);
            rest = rest.strip_prefix("and ").or_else(|| rest.strip_prefix("to ")).unwrap_or(rest);
            let Some(cited) = rest.strip_prefix('§') else { return false };
            let end = cited.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(cited.len());
            if cited[..end].trim_end_matches('.') == section {
                return true;
            }
            rest = &cited[end..];
        }
    })
}

/// Returns `true` if `text` has `§` followed by this section, whatever precedes it.
pub fn cites_bare(text: &str, section: &str) -> bool {
    text.split('§').skip(1).any(|cited| {
        let end = cited.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(cited.len());
        cited[..end].trim_end_matches('.') == section
    })
}

/// Joins the lines of comments into running text.
fn flat(text: &str) -> String {
    let line = |line: &str| line.trim_start().trim_start_matches(['/', '!']).trim_start().to_owned() + " ";
    text.lines().map(line).collect()
}

#[test]
fn citations() {
    let text = "// RFC 8166 §3.4.6, §4.5 and\n    /// §5: so.\n// RFC 8797 §4.1";
    for section in ["3.4.6", "4.5", "5"] {
        assert!(cites(text, "RFC 8166", section), "{section}");
    }
    assert!(cites_bare(text, "4.1") && !cites_bare(text, "4"));
    assert!(!cites(text, "RFC 8166", "3.4") && !cites(text, "RFC 8166", "4.1") && cites(text, "RFC 8797", "4.1"));
}
