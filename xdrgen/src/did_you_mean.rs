//! Suggestions for misspelled names.

/// Maximum length of a word that is compared, in bytes.
const MAX_WORD_LEN: usize = 64;

/// Returns the known name that `word` most likely misspells. Returns `None` if no known name is similar enough, or if
/// `word` has fewer than 3 or more than [`MAX_WORD_LEN`] bytes.
pub(crate) fn of<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Allow one edit in short words and more in long ones. Every two-letter word is one edit from many others.
    if !(3..=MAX_WORD_LEN).contains(&word.len()) {
        return None;
    }
    let similar = known.filter(|other| other.len().abs_diff(word.len()) <= 2 && *other != word);
    // Names that differ only in case are the best match.
    let lower = word.to_ascii_lowercase();
    let scored = similar.map(|other| (strsim::damerau_levenshtein(&lower, &other.to_ascii_lowercase()), other));
    scored.min().filter(|(distance, _)| *distance <= word.len().div_ceil(6)).map(|(_, other)| other)
}
