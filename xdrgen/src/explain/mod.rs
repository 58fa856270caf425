//! The page of `xdrgen explain`, which documents a specification in HTML.
//!
//! The page is self-contained: it includes its style sheet, script and diagrams. All content from the specification is
//! escaped by `html`, and the content security policy of the page allows only the included script.
//!
//! | module | content |
//! | --- | --- |
//! | `page` | the page: contents, programs, types |
//! | `procedure` | the data transfers of one procedure |
//! | `flow` | the diagram of a call and its reply |
//! | `wire` | the encoding of a type, in 4-byte words |
//! | `diagram` | the diagram of a type's encoding |
//! | `prose`, `code` | comments and declarations |
//! | `names` | links between items, and the users of each item |
//! | `html` | escaped output |

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

/// Returns an HTML page that documents `spec`, with the title `title`.
///
/// ```
/// let specification = "/* On a map. */ struct point { int x; };";
/// let compiled = rpcrdma_xdrgen::Compiler::new().source("point.x", specification).compile()?;
/// let page = rpcrdma_xdrgen::explain(&compiled.spec, "point.x");
/// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("On a map."));
/// # Ok::<(), rpcrdma_xdrgen::diag::Diagnostics>(())
/// ```
#[must_use]
pub fn explain(spec: &Spec, title: &str) -> String {
    page::page(spec, title)
}
