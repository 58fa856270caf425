//! Hints for undeclared names. Most of these names come from C headers.

use std::{collections::HashMap, path::Path};

use crate::{
    ast::File,
    c_lines::{SUN_TYPES, defined, included},
    diag::{Code, Diagnostic},
    lexer::is_of_word,
    source::{self, Sources},
};

/// Merges the errors about each unknown name into one error that states the number of uses, and adds hints.
pub(super) fn complete(files: &[File], sources: &Sources, out: &mut Vec<Diagnostic>) {
    let mut uses: HashMap<(Code, String), usize> = HashMap::new();
    let is_unknown = |diagnostic: &Diagnostic| {
        matches!(diagnostic.code, Code::UnknownType | Code::UnknownConstant) && diagnostic.message.starts_with("no ")
    };
    out.retain(|diagnostic| {
        if !is_unknown(diagnostic) {
            return true;
        }
        let count = uses.entry((diagnostic.code, diagnostic.message.clone())).or_default();
        *count += 1;
        *count == 1
    });
    for diagnostic in out.iter_mut().filter(|diagnostic| is_unknown(diagnostic)) {
        if let Some(count) = uses.get(&(diagnostic.code, diagnostic.message.clone())).filter(|count| **count > 1) {
            diagnostic.notes.push(format!("it is used {count} times"));
        }
        let Some(name) = diagnostic.message.split('`').nth(1).map(str::to_owned) else { continue };
        let file = diagnostic.primary.as_ref().map(|label| label.span.file);
        let Some(file) = files.iter().find(|tree| Some(tree.source) == file) else { continue };
        let help = if diagnostic.code == Code::UnknownType {
            type_hint(&name, file, sources)
        } else {
            constant_hint(&name, file, sources)
        };
        diagnostic.helps.extend(help);
    }
}

fn type_hint(name: &str, file: &File, sources: &Sources) -> Option<String> {
    if let Some((_, definition, header)) = SUN_TYPES.iter().find(|(known, ..)| *known == name) {
        return Some(format!(
            "`{name}` is a type of <{header}>: add `{definition}`, or give a Rust type with `--extern {name}=PATH`"
        ));
    }
    if let Some(value) = defined(name, file) {
        return Some(format!("a `%` line defines it for C: define it with `-D '{name}={value}'`"));
    }
    sibling_hint(name, file, sources).or_else(|| {
        let header = included(file).next()?;
        Some(format!(
            "if `{header}` declares it for C: declare it in XDR, or give a Rust type with `--extern {name}=PATH`"
        ))
    })
}

fn constant_hint(name: &str, file: &File, sources: &Sources) -> Option<String> {
    if let Some(value) = defined(name, file) {
        return Some(format!("a `%` line defines it for C: define it with `-D '{name}={value}'`"));
    }
    sibling_hint(name, file, sources).or_else(|| {
        let header = included(file).next()?;
        Some(format!("if `{header}` defines it for C: give its value with `-D {name}=VALUE`"))
    })
}

/// Returns a hint if a C header that `file` includes has a `.x` file of the same stem in the directory of `file`, and
/// this `.x` file contains the word `name`.
fn sibling_hint(name: &str, file: &File, sources: &Sources) -> Option<String> {
    let directory = Path::new(sources.get(file.source)?.name()).parent()?;
    included(file).find_map(|header| {
        let path = directory.join(Path::new(header).file_name()?).with_extension("x");
        let text = source::read(&path).ok()?;
        let text = String::from_utf8_lossy(&text);
        let shown = path.file_name()?.to_string_lossy();
        text.split(|c| !is_of_word(c)).any(|word| word == name).then(|| {
            format!("`{shown}` next to this file declares it: write `#include \"{shown}\"`, with `-I DIR` if it is elsewhere")
        })
    })
}
