//! Diagnostics that several parts of the resolver create.

use crate::{
    diag::{Code, Diagnostic},
    did_you_mean,
    ir::Name,
    source::Span,
};

/// Creates the error for a name that is declared twice. `what` is the kind of the name, and selects the rule in the
/// note.
pub(super) fn duplicate(what: &str, name: &str, first: &Span, second: &Span) -> Diagnostic {
    // RFC 4506 §6.4 (3), (4): a specification has one name space, and so has each struct and union.
    let note = match what {
        "type" | "constant" => "names of constants and types are unique within a specification (RFC 4506 §6.4)",
        "field" | "arm" => "names are unique within a struct or union (RFC 4506 §6.4)",
        _ => "names of programs, versions and procedures are unique within their program or version (RFC 5531 §12.3)",
    };
    Diagnostic::new(Code::Duplicate, format!("{what} `{name}` is declared twice"))
        .at(second, "declared again")
        .also(first, "first declared here")
        .note(note)
}

/// Creates the error for a cycle of names. `what` is the kind of the names. `how` completes the message "`NAME` is
/// defined ...".
pub(super) fn cycle(what: &str, how: &str, names_in_cycle: &[&Name]) -> Diagnostic {
    /// Maximum number of names to show.
    const MAX_NAMES: usize = 6;
    let mut names = names_in_cycle.iter().copied();
    let Some(first) = names.next() else { return Diagnostic::new(Code::Cycle, format!("a {what} is defined {how}")) };
    let mut diagnostic = Diagnostic::new(Code::Cycle, format!("{what} `{}` is defined {how}", first.text));
    let next = |at: usize| names_in_cycle.get(at + 1).unwrap_or(&first);
    diagnostic = diagnostic.at(&first.span, format!("stands for `{}`", next(0).text));
    for (at, name) in names.enumerate().take(MAX_NAMES - 1) {
        diagnostic = diagnostic.also(&name.span, format!("stands for `{}`", next(at + 1).text));
    }
    match names_in_cycle.len().saturating_sub(MAX_NAMES) {
        0 => diagnostic,
        more => diagnostic.note(format!("and {more} more until `{}` again", first.text)),
    }
}

/// Adds a suggestion if `name` is probably a misspelling of a known name. Adds none if there are already many
/// diagnostics in `reported`.
pub(super) fn did_you_mean<'a>(
    diagnostic: Diagnostic,
    name: &str,
    known: impl Iterator<Item = &'a str>,
    reported: &[Diagnostic],
) -> Diagnostic {
    /// Number of earlier diagnostics above which no suggestions are added, because each suggestion requires a
    /// comparison of `name` with every known name.
    const MAX_SUGGESTIONS: usize = 50;
    if reported.len() > MAX_SUGGESTIONS {
        return diagnostic;
    }
    match did_you_mean::of(name, known) {
        Some(other) => {
            let place = diagnostic.primary.as_ref().map(|label| label.span.clone());
            let diagnostic = diagnostic.help(format!("did you mean `{other}`?"));
            match place {
                Some(place) => diagnostic.suggest(&place, other),
                None => diagnostic,
            }
        }
        None => diagnostic,
    }
}
