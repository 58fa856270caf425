//! Names that specifications for rpcgen take from C: `%` lines, and types of Sun's headers.

use crate::ast::{File, Ident};

/// Types from Sun's headers. Each entry has the name of the type, its definition in XDR, and the name of the header.
pub(crate) const SUN_TYPES: [(&str, &str, &str); 2] = [
    ("netobj", "typedef opaque netobj<1024>;", "rpc/xdr.h"),
    ("des_block", "typedef opaque des_block[8];", "rpc/auth.h"),
];

/// Returns the text that the `%#define` lines define for `name`. Returns `None` if there is no such line, or if two
/// lines define different texts.
pub(crate) fn defined<'a>(name: &str, file: &'a File) -> Option<&'a str> {
    definition(name, file).map(|(_, text)| text)
}

/// Returns the first `%#define` line of `name` and the text that it defines. Returns `None` if there is no such line,
/// or if another line defines a different text.
pub(crate) fn definition<'a>(name: &str, file: &'a File) -> Option<(&'a Ident, &'a str)> {
    let mut lines = file.passed_through.iter().filter_map(|line| {
        let rest = line.text.trim().strip_prefix('#')?.trim_start().strip_prefix("define")?;
        let value = rest.trim_start().strip_prefix(name)?;
        let value = value.strip_prefix([' ', '\t'])?.split("/*").next()?.trim();
        (!value.is_empty()).then_some((line, value))
    });
    let first = lines.next()?;
    lines.all(|(_, text)| text == first.1).then_some(first)
}

/// Returns the names of the files in `%#include` lines.
pub(crate) fn included(file: &File) -> impl Iterator<Item = &str> {
    file.passed_through.iter().filter_map(|line| {
        let rest = line.text.trim().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim();
        let rest = rest.strip_prefix(['"', '<'])?;
        rest.split(['"', '>']).next()
    })
}
