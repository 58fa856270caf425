//! Which provider a URL names.

mod url;

pub use url::{Scheme, UrlError, Url};
