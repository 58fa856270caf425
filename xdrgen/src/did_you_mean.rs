//! What was meant, where a word is a letter or two from one that is known.

/// Longest word looked at.
const LONGEST: usize = 64;

/// The known word that `word` is likely a slip of.
pub(crate) fn of<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // One slip in short words, more in long ones; of a word of two letters every other is one slip away.
    if !(3..=LONGEST).contains(&word.len()) {
        return None;
    }
    let similar = known.filter(|other| other.len().abs_diff(word.len()) <= 2 && *other != word);
    // Names that differ in case alone are the most likely.
    let lower = word.to_ascii_lowercase();
    let scored = similar.map(|other| (strsim::damerau_levenshtein(&lower, &other.to_ascii_lowercase()), other));
    scored.min().filter(|(distance, _)| *distance <= word.len().div_ceil(6)).map(|(_, other)| other)
}
