//! `xdrgen explain`: a specification as one HTML page that a person can read.
//!
//! The page needs nothing else: style, script and pictures are in it. What comes from the specification is text
//! everywhere (`html` lets nothing else in), and the page forbids every script but its own.
//!
//! | module | shows |
//! | --- | --- |
//! | `page` | the page: contents, programs, types |
//! | `procedure` | what one procedure moves, and how |
//! | `flow` | a call and its reply between two ends, drawn |
//! | `wire` | what a type is on the wire, in words of four octets |
//! | `diagram` | the same, drawn |
//! | `prose`, `code` | comments and declarations |

mod code;
mod diagram;
mod flow;
mod html;
mod names;
mod page;
mod procedure;
mod prose;
mod wire;

use crate::ir::Spec;

/// The page for `spec`, under the name `title`.
///
/// ```
/// let compiled = rpcrdma_xdrgen::Compiler::new().source("point.x", "/* On a map. */ struct point { int x; };").compile()?;
/// let page = rpcrdma_xdrgen::explain(&compiled.spec, "point.x");
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("On a map."));
/// # Ok::<(), rpcrdma_xdrgen::diag::Diagnostics>(())
/// ```
#[must_use]
pub fn explain(spec: &Spec, title: &str) -> String {
    page::page(spec, title)
}
