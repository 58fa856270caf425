//! The warning about maxima that the compiler assumes because neither a type nor a binding states them.

use super::{DEFAULT_ITEM_MAX, DEFAULT_REPLY_MAX};
use crate::{
    diag::{Code, Diagnostic},
    source::Span,
};

/// Procedures whose replies get default maxima.
#[derive(Debug, Default)]
pub(super) struct Assumed {
    /// The names of the procedures, in the order in which they were added.
    procedures: Vec<String>,
    /// The position of the unbounded item of the first procedure, the reason why the item is unbounded, and the
    /// position of the procedure.
    first: Option<(Span, &'static str, Span)>,
}

impl Assumed {
    /// Adds the procedure `name`, whose result is unbounded because of `item`. `why` is the reason why the item is
    /// unbounded.
    pub(super) fn add(&mut self, name: String, procedure: &Span, item: &Span, why: &'static str) {
        if self.procedures.last() == Some(&name) {
            return;
        }
        self.procedures.push(name);
        self.first.get_or_insert_with(|| (item.clone(), why, procedure.clone()));
    }

    /// Returns one warning for all procedures, so that a specification without a binding does not cause hundreds of
    /// warnings.
    pub(super) fn warning(&self) -> Option<Diagnostic> {
        /// Maximum number of procedures to list.
        const MAX_LISTED: usize = 12;
        let (item, why, procedure) = self.first.as_ref()?;
        let (first, others) = self.procedures.split_first()?;
        let and_more = match others.len() {
            0 => String::new(),
            1 => " and one more".to_owned(),
            more => format!(" and {more} more"),
        };
        let message = format!("the reply of `{first}`{and_more} has no maximum: {DEFAULT_REPLY_MAX} bytes are assumed");
        let mut diagnostic = Diagnostic::new(Code::AssumedMaximum, message)
            .at(item, *why)
            .also(procedure, "returned by this procedure")
            .note(format!(
                "a client provides this memory before it calls (RFC 8166 §6.2), and {DEFAULT_ITEM_MAX} bytes for an item in \
                 a chunk; a call whose reply is larger fails"
            ));
        if !others.is_empty() {
            let mut names: Vec<String> = others.iter().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
            if others.len() > MAX_LISTED {
                names.push(format!("{} more", others.len() - MAX_LISTED));
            }
            diagnostic = diagnostic.note(format!("likewise {}", names.join(", ")));
        }
        let binding =
            format!("write `@reply_max(BYTES)` before the procedure, or `reply_max {first} = BYTES;` in a .ulb file");
        Some(
            diagnostic
                .help(binding)
                .help("`--default-reply-max BYTES` (`default_reply_max`) sets a maximum for all of them"),
        )
    }
}
