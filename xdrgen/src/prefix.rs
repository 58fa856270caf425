//! Short names of enumerators, without the prefix that the enumerators of an enumeration share. For example, the short
//! name of `NFS3ERR_NOENT` is `NOENT`.

use std::collections::HashMap;

use heck::ToUpperCamelCase as _;

use crate::{
    diag::{Code, Diagnostic},
    ir::{Enumerator, ItemKind, Spec},
};

/// The enumerations from whose enumerators the common prefix is stripped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Stripped {
    /// No enumerations.
    #[default]
    Nothing,
    /// The enumerations with these XDR names.
    Named(Vec<String>),
    /// All enumerations.
    All,
}

impl Stripped {
    fn includes(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Named(names) => names.iter().any(|named| named == name),
            Self::All => true,
        }
    }
}

/// Sets the short names of enumerators. Reports enumerators that cannot have one, and names in `stripped` that are not
/// enumerations.
pub(crate) fn strip(spec: &mut Spec, stripped: &Stripped, out: &mut Vec<Diagnostic>) {
    if let Stripped::Named(names) = stripped {
        let is_enum =
            |name: &str| spec.items.iter().any(|item| item.name.text == name && matches!(item.kind, ItemKind::Enum(_)));
        let unknown = names.iter().filter(|name| !is_enum(name));
        out.extend(unknown.map(|name| {
            Diagnostic::new(
                Code::UnknownItem,
                format!("no enumeration is named `{name}`, so it has no prefix to strip"),
            )
        }));
    }
    for item in &mut spec.items {
        if let ItemKind::Enum(enumerators) = &mut item.kind
            && stripped.includes(&item.name.text)
        {
            shorten(&item.name.text, enumerators, out);
        }
    }
}

fn shorten(enumeration: &str, enumerators: &mut [Enumerator], out: &mut Vec<Diagnostic>) {
    let lengths = prefixes(enumerators);
    let mut taken: HashMap<String, usize> = HashMap::new();
    for index in 0..enumerators.len() {
        let name = &enumerators[index].name;
        let length = lengths[index];
        let short = name.text[length..].to_owned();
        let without = format!("`{}` without the prefix `{}`", name.text, &name.text[..length]);
        let help = format!("strip only the prefixes of other enumerations: list them without `{enumeration}`");
        if short.starts_with(|first: char| first.is_ascii_digit()) {
            out.push(
                Diagnostic::new(Code::BadShortName, format!("{without} begins with a digit"))
                    .at(&name.span, "")
                    .help(help),
            );
            continue;
        }
        if let Some(&first) = taken.get(&short.to_upper_camel_case()) {
            let other = &enumerators[first].name;
            out.push(
                Diagnostic::new(Code::BadShortName, format!("{without} is the name of `{}`", other.text))
                    .at(&name.span, "")
                    .also(&other.span, "first used here")
                    .help(help),
            );
            continue;
        }
        taken.insert(short.to_upper_camel_case(), index);
        if length > 0 {
            enumerators[index].short = Some(short);
        }
    }
}

/// Returns the length of the prefix to strip from each enumerator, in bytes.
fn prefixes(enumerators: &[Enumerator]) -> Vec<usize> {
    let names: Vec<&str> = enumerators.iter().map(|enumerator| enumerator.name.text.as_str()).collect();
    let all = shared(&names);
    if all > 0 {
        return vec![all; names.len()];
    }
    // Status codes have two prefixes: NFS3_OK, but NFS3ERR_PERM, NFS3ERR_NOENT and so on.
    let is_success = |enumerator: &Enumerator| enumerator.value == 0;
    let mut successes = enumerators.iter().filter(|enumerator| is_success(enumerator));
    if let (Some(success), None) = (successes.next(), successes.next()) {
        let errors = enumerators.iter().filter(|enumerator| !is_success(enumerator));
        let errors: Vec<&str> = errors.map(|enumerator| enumerator.name.text.as_str()).collect();
        let of_errors = shared(&errors);
        let start = errors.first().map_or("", |error| &error[..of_errors]);
        let common = common_len(&success.name.text, start);
        let has_word = common > 0 && success.name.text[common..].starts_with('_');
        if has_word && success.name.text.len() > common + 1 {
            let length = |enumerator: &Enumerator| if is_success(enumerator) { common + 1 } else { of_errors };
            return enumerators.iter().map(length).collect();
        }
    }
    vec![0; names.len()]
}

/// Returns the length of the longest prefix of whole words that all names share, in bytes. The prefix is shorter than
/// every name.
fn shared(names: &[&str]) -> usize {
    let [first, others @ ..] = names else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let common = others.iter().fold(first.len(), |common, name| common.min(common_len(first, name)));
    // XDR names are ASCII, so every byte offset is a character boundary.
    (1..=common).rev().find(|&at| names.iter().all(|name| begins_word(name, at))).unwrap_or(0)
}

fn common_len(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
}

/// Returns `true` if a word of `name` begins at `at`: after `_`, after a digit (`NF3REG`) or at a capital letter
/// (`colorRed`).
fn begins_word(name: &str, at: usize) -> bool {
    let name = name.as_bytes();
    let (Some(before), Some(after)) = (name.get(at - 1), name.get(at)) else { return false };
    match before {
        b'_' => *after != b'_',
        b'0'..=b'9' => after.is_ascii_alphabetic(),
        _ => before.is_ascii_lowercase() && after.is_ascii_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compiler, diag::Diagnostics};

    fn short(body: &str) -> Result<Vec<String>, Diagnostics> {
        let compiler = Compiler::new().source("e.x", format!("enum e {{ {body} }};")).strip_enum_prefix();
        let spec = compiler.compile()?.spec;
        let ItemKind::Enum(enumerators) = &spec.items[0].kind else { panic!("an enumeration") };
        Ok(enumerators.iter().map(|e| e.short.clone().unwrap_or_else(|| e.name.text.clone())).collect())
    }

    #[test]
    fn prefixes_end_with_words() {
        for (body, expected) in [
            ("A_X = 1, A_Y = 2", "X Y"),
            ("NF3REG = 1, NF3DIR = 2", "REG DIR"),
            ("colorRed = 1, colorBlue = 2", "Red Blue"),
            ("READ = 1, RENAME = 2", "READ RENAME"),
            ("A_B_X = 1, A_B_Y = 2", "X Y"),
            ("A_B = 1, A_B_C = 2", "B B_C"),
            ("ALONE_HERE = 1", "ALONE_HERE"),
            ("NFS3_OK = 0, NFS3ERR_PERM = 1, NFS3ERR_IO = 5", "OK PERM IO"),
            ("SUCCESS = 0, PROG_UNAVAIL = 1, PROG_MISMATCH = 2", "SUCCESS PROG_UNAVAIL PROG_MISMATCH"),
            ("P_OK = 0, P_NO_A = 1, P_NO_B = 2", "OK NO_A NO_B"),
        ] {
            assert_eq!(short(body).unwrap().join(" "), expected, "{body}");
        }
    }

    #[test]
    fn names_that_cannot_be_short_are_errors() {
        for body in ["V_1 = 1, V_2 = 2", "A_ONE_TWO = 1, A_ONE__TWO = 2", "X_OK = 0, XERR_OK = 1, XERR_NO = 2"] {
            let diagnostics = short(body).unwrap_err();
            assert!(diagnostics.iter().all(|diagnostic| diagnostic.code == Code::BadShortName), "{diagnostics}");
        }
    }
}
