//! Insertion of mutants into a source file. A switch selects one of them at run time.

use std::{collections::BTreeSet, ops::Range};

use super::mutate::{Form, Mutation};
use crate::items::items;

/// Path of the function that returns `true` if a mutant is selected.
const SWITCH: &str = "::rpcrdma_planted::planted";

/// A source file with mutants, and the places of the mutants in it.
#[derive(Debug)]
pub struct Spliced {
    /// The text of the file, with the mutants.
    pub text: String,
    places: Vec<Place>,
}

/// The place of a mutant in the new text.
#[derive(Debug)]
struct Place {
    number: u32,
    /// Byte range of the mutant's code together with the code that it replaces.
    all: Range<usize>,
    /// Byte range of the code of the mutant alone.
    own: Range<usize>,
}

/// Returns `text` with these numbered mutations. They must be in the order in which
/// [`mutations`](super::mutate::mutations) returns them.
pub fn splice(text: &str, mutations: &[(u32, &Mutation)]) -> Spliced {
    let mut spliced = Spliced { text: String::new(), places: Vec::new() };
    let mut copied = 0;
    // Places whose end is ahead, the innermost one last.
    let mut open: Vec<(usize, usize, String)> = Vec::new();
    let close = |spliced: &mut Spliced, copied: &mut usize, (end, place, after): (usize, usize, String)| {
        spliced.text += &text[*copied..end];
        *copied = end;
        spliced.text += &after;
        spliced.places[place].all.end = spliced.text.len();
    };
    for (number, mutation) in mutations {
        while let Some(last) = open.pop_if(|(end, ..)| *end <= mutation.range.start) {
            close(&mut spliced, &mut copied, last);
        }
        spliced.text += &text[copied..mutation.range.start];
        copied = mutation.range.start;
        let start = spliced.text.len();
        let is_selected = format!("{SWITCH}({number})");
        let (before, after) = match &mutation.form {
            Form::Replaced(with) => (format!("(if {is_selected} {{ {with} }} else {{ "), " })".to_owned()),
            Form::Constant(true) => (format!("({is_selected} || ("), "))".to_owned()),
            Form::Constant(false) => (format!("(!{is_selected} && ("), "))".to_owned()),
            Form::Never => (format!("!{is_selected} && "), String::new()),
            Form::Deleted => (format!("if !{is_selected} {{ "), " }".to_owned()),
            Form::Returns(statement) => (String::new(), format!(" if {is_selected} {{ {statement} }}")),
        };
        spliced.text += &before;
        let own = match mutation.form {
            // Its text is behind the brace.
            Form::Returns(_) => start + 1..start + 1 + after.len(),
            _ => start..spliced.text.len(),
        };
        spliced.places.push(Place { number: *number, all: start..start, own });
        open.push((mutation.range.end, spliced.places.len() - 1, after));
    }
    while let Some(last) = open.pop() {
        close(&mut spliced, &mut copied, last);
    }
    spliced.text += &text[copied..];
    spliced
}

impl Spliced {
    /// Returns the mutants that may cause compiler errors at these byte ranges of the new text. If errors are in the
    /// own code of mutants, returns these mutants. Otherwise, returns the innermost mutants around an error, or else
    /// all mutants of a function that contains an error.
    pub fn culprits(&self, errors: &[Range<usize>]) -> BTreeSet<u32> {
        let contains =
            |outer: &Range<usize>, inner: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
        let select = |is_culprit: &dyn Fn(&Place) -> bool| -> BTreeSet<u32> {
            self.places.iter().filter(|place| is_culprit(place)).map(|place| place.number).collect()
        };
        let own = select(&|place| errors.iter().any(|error| contains(&place.own, error)));
        if !own.is_empty() {
            return own;
        }
        let innermost = |error: &Range<usize>| {
            self.places.iter().filter(|place| contains(&place.all, error)).map(|place| place.all.len()).min()
        };
        let around = select(&|place| {
            errors.iter().any(|error| contains(&place.all, error) && innermost(error) == Some(place.all.len()))
        });
        if !around.is_empty() {
            return around;
        }
        let functions: Vec<_> = items(&self.text).unwrap_or_default();
        select(&|place| {
            functions.iter().any(|item| {
                item.function.is_some()
                    && contains(&item.range, &place.all)
                    && errors.iter().any(|error| contains(&item.range, error))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::mutate::mutations;

    fn spliced(text: &str) -> Spliced {
        let mutations = mutations(text, &[]).unwrap();
        let numbered: Vec<_> = (1..).zip(&mutations).collect();
        splice(text, &numbered)
    }

    #[test]
    fn mutants_nest() {
        let text = spliced("fn a(x: u8, y: u8) -> bool { x < y + 2 }").text.replace("::rpcrdma_planted::", "");
        assert_eq!(
            text,
            "fn a(x: u8, y: u8) -> bool { (planted(1) || ((!planted(2) && ((if planted(3) { x <= (y + 2) } else { \
             x < (if planted(4) { y - 2 } else { y + 2 }) }))))) }"
        );
    }

    #[test]
    fn statements_and_bodies() {
        let text = spliced("fn a(&mut self) { self.b(); if let Some(c) = self.d && c { self.e = c; } }").text;
        assert_eq!(
            text.replace("::rpcrdma_planted::", ""),
            "fn a(&mut self) { if planted(1) { return; } if !planted(2) { self.b(); } if !planted(3) && let Some(c) = self.d \
             && (planted(4) || (c)) { if !planted(5) { self.e = c; } } }"
        );
        assert!(syn::parse_file(&text).is_ok());
    }

    #[test]
    fn an_error_has_culprits() {
        let spliced = spliced("fn a(x: S, y: S) -> S { b(); x + (y + z) }\nfn c() { d(); e(); }");
        let culprits = |part: &str| {
            let start = spliced.text.find(part).unwrap();
            spliced.culprits(std::slice::from_ref(&(start..start + part.len()))).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(culprits("x - (y + z)"), culprits("x - "));
        assert_eq!((culprits("x - "), culprits("y - z"), culprits("y + z })")), (vec![2], vec![3], vec![3]));
        // Not in a mutant, but in the same function.
        assert_eq!((culprits("-> S"), culprits("fn c")), (vec![1, 2, 3], vec![4, 5, 6]));
    }
}
