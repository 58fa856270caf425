//! Formatting of tokens as readable text.

use proc_macro2::TokenStream;

use super::options::EmitError;

/// Returns `tokens` as formatted text, without empty lines between items.
///
/// # Errors
/// Returns an error if the tokens are not valid Rust, which is a bug in the compiler.
pub(crate) fn print(tokens: TokenStream) -> Result<String, EmitError> {
    let file = syn::parse2::<syn::File>(tokens).map_err(EmitError::NotRust)?;
    Ok(join_generics(&prettyplease::unparse(&file)))
}

/// Maximum length of a line that results from [`join_generics`], in bytes.
const MAX_JOINED: usize = 120;

/// Joins generic arguments that the printer puts on separate lines. For example, the lines `invoke::<`, `Marker,` and
/// `>(&self.channel)` become one line.
fn join_generics(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut joined = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        let (whole, count) = joined_generics(&lines[at..]).unwrap_or_else(|| ((*line).to_owned(), 1));
        joined.push_str(&whole);
        joined.push('\n');
        at += count;
    }
    joined
}

/// Returns the line that joins the generic arguments at the beginning of `lines`, and the number of lines that it
/// replaces. Returns `None` if `lines` do not begin with generic arguments, if there are too many, or if the line would
/// be too long.
fn joined_generics(lines: &[&str]) -> Option<(String, usize)> {
    /// Maximum number of arguments to join.
    const MAX_ARGUMENTS: usize = 4;
    let first = lines.first().filter(|line| line.ends_with("::<"))?;
    let end = lines.iter().take(MAX_ARGUMENTS + 2).position(|line| line.trim_start().starts_with('>'))?;
    let arguments: Vec<&str> = lines[1..end].iter().map(|line| line.trim().strip_suffix(',')).collect::<Option<_>>()?;
    let whole = format!("{first}{}{}", arguments.join(", "), lines[end].trim_start());
    (whole.len() <= MAX_JOINED).then_some((whole, end + 1))
}

/// Inserts an empty line between items, because the printer inserts none.
pub(super) fn space(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len() + text.len() / 32);
    let mut previous: Option<&str> = None;
    for line in text.lines() {
        if previous.is_some_and(|previous| is_boundary(previous, line)) {
            spaced.push('\n');
        }
        spaced.push_str(line);
        spaced.push('\n');
        previous = Some(line);
    }
    spaced
}

/// Returns `true` if an item ends with `previous` and another begins with `line`.
fn is_boundary(previous: &str, line: &str) -> bool {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    if indentation(previous) != indentation(line) {
        return false;
    }
    let (previous, line) = (previous.trim_start(), line.trim_start());
    let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
    let item = begins(&["///", "#[", "pub ", "impl", "mod ", "fn ", "async fn ", "struct ", "enum ", "trait "]);
    match previous {
        _ if previous.starts_with("//") => false,
        _ if line.starts_with("const _:") => true,
        "}" | "};" => item || begins(&["const ", "type ", "use "]),
        _ if previous.ends_with(';') => item && !(previous.starts_with("let ") || previous.starts_with("return ")),
        _ if previous.ends_with('}') => item,
        _ => false,
    }
}

/// Returns `lines` as `//` comment lines, without control characters.
pub(crate) fn comment(lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        text.push_str(format!("// {line}").trim_end());
        text.push('\n');
    }
    text
}
