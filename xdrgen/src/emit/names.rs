//! Conversion of XDR names to Rust names: case, keywords, collisions, and shadowed names of the standard library.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashSet},
};

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// The case conventions of Rust names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LetterCase {
    /// Types, variants, traits: `GetArgs`.
    Camel,
    /// Fields, functions, modules: `get_args`.
    Snake,
    /// Constants: `GET_ARGS`.
    Shouty,
}

/// Words that are not valid as plain identifiers in some edition up to 2024.
const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "Self", "static", "struct", "super", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "_",
];

/// Keywords that are not valid as raw identifiers.
const NEVER_RAW: [&str; 5] = ["self", "Self", "super", "crate", "_"];

/// Converts `text` to the letter case `case`. Does not check for keywords and collisions.
pub(crate) fn convert(text: &str, case: LetterCase) -> String {
    let mut name = match case {
        LetterCase::Camel => text.to_upper_camel_case(),
        LetterCase::Snake => text.to_snake_case(),
        LetterCase::Shouty => text.to_shouty_snake_case(),
    };
    // The conversion drops leading and trailing underscores. The rest may be empty or begin with a digit.
    if !name.starts_with(|first: char| first.is_alphabetic()) {
        name.insert(0, if case == LetterCase::Snake { 'x' } else { 'X' });
    }
    name
}

/// Returns `name` as an identifier. A keyword becomes a raw identifier or gets a trailing underscore.
pub(crate) fn ident(name: &str) -> Ident {
    if NEVER_RAW.contains(&name) {
        Ident::new(&format!("{name}_"), Span::call_site())
    } else if KEYWORDS.contains(&name) {
        Ident::new_raw(name, Span::call_site())
    } else {
        Ident::new(name, Span::call_site())
    }
}

/// A Rust name, with the plain name that it replaces in case of a collision.
#[derive(Debug, Clone)]
pub(crate) struct RustName {
    /// The identifier.
    pub(crate) ident: Ident,
    /// The plain name, if `ident` replaces it because it was already in use.
    pub(crate) instead_of: Option<String>,
}

/// The names of one scope of the generated code. Each name is assigned once.
#[derive(Debug, Default)]
pub(crate) struct NameScope {
    taken: HashSet<String>,
    /// Runtime names that the scope imports, because the generated code uses their short forms.
    imports: RefCell<BTreeSet<&'static str>>,
}

/// The import of all names in the runtime's `xdr::prelude`.
const PRELUDE: &str = "xdr::prelude::*";

impl NameScope {
    /// Creates a scope in which `names` are reserved.
    pub(crate) fn reserving(names: &[&str]) -> Self {
        Self { taken: names.iter().map(|&name| name.to_owned()).collect(), ..Self::default() }
    }

    /// Assigns a name for `text`. Appends a number if the plain name is in use.
    pub(crate) fn claim(&mut self, text: &str, case: LetterCase) -> RustName {
        self.claim_with(text, case, &[])
    }

    /// Assigns a name like [`claim`](Self::claim), and reserves the name with each of `suffixes` as well.
    pub(crate) fn claim_with(&mut self, text: &str, case: LetterCase, suffixes: &[&str]) -> RustName {
        let plain = convert(text, case);
        let free = |name: &str, taken: &HashSet<String>| {
            !taken.contains(name) && suffixes.iter().all(|suffix| !taken.contains(&format!("{name}{suffix}")))
        };
        let mut name = plain.clone();
        let mut number = 2_u64;
        while !free(&name, &self.taken) {
            name = format!("{plain}{number}");
            number += 1;
        }
        for suffix in suffixes {
            self.taken.insert(format!("{name}{suffix}"));
        }
        self.taken.insert(name.clone());
        let instead_of = (name != plain).then_some(plain);
        RustName { ident: ident(&name), instead_of }
    }

    /// Returns the `use` declarations of the scope.
    pub(crate) fn imports(&self, runtime: &TokenStream) -> TokenStream {
        let imports = self.imports.borrow();
        let modules: Vec<Ident> =
            imports.iter().filter(|&&import| import != PRELUDE).map(|module| ident(module)).collect();
        let modules = match modules.as_slice() {
            [] => TokenStream::new(),
            [module] => quote!(use #runtime::#module;),
            modules => quote!(use #runtime::{#(#modules),*};),
        };
        let prelude = self.imports_prelude().then(|| quote!(use #runtime::xdr::prelude::*;));
        quote!(#modules #prelude)
    }

    /// Returns `true` if the scope imports the runtime's `xdr::prelude`.
    pub(crate) fn imports_prelude(&self) -> bool {
        self.imports.borrow().contains(PRELUDE)
    }

    /// Returns `true` if `name` is in use.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.taken.contains(name)
    }
}

/// The form of standard library and runtime names in the generated code.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Std<'a> {
    /// Short names of the prelude, except those that the scope has redefined.
    Prelude(&'a NameScope),
    /// Absolute paths, because the surrounding scope may have redefined the short names.
    Absolute,
}

impl Std<'_> {
    /// Returns the path of a name in the runtime's `xdr::prelude`. `path` is its absolute path. If the returned path is
    /// short, the scope imports the prelude.
    pub(crate) fn short(&self, name: &str, path: TokenStream) -> TokenStream {
        match self {
            Std::Prelude(scope) if !scope.has(name) => {
                scope.imports.borrow_mut().insert(PRELUDE);
                let name = ident(name);
                quote!(#name)
            }
            _ => path,
        }
    }

    /// Returns the path of a runtime module. If the returned path is short, the scope imports the module.
    pub(crate) fn module(&self, runtime: &TokenStream, name: &'static str) -> TokenStream {
        let module = ident(name);
        match self {
            Std::Prelude(scope) => {
                scope.imports.borrow_mut().insert(name);
                quote!(#module)
            }
            Std::Absolute => quote!(#runtime::#module),
        }
    }

    /// Returns the `use` declarations of the scope. Empty if all paths are absolute.
    pub(crate) fn imports(&self, runtime: &TokenStream) -> TokenStream {
        match self {
            Std::Prelude(scope) => scope.imports(runtime),
            Std::Absolute => TokenStream::new(),
        }
    }

    /// Returns the path of a name in the prelude of the standard library.
    pub(crate) fn path(&self, name: &str) -> TokenStream {
        let id = ident(name);
        match self {
            Std::Prelude(scope) if !scope.has(name) => quote!(#id),
            _ => match name {
                "Option" => quote!(::core::option::Option),
                "Result" => quote!(::core::result::Result),
                "From" | "TryFrom" => quote!(::core::convert::#id),
                "AsRef" => quote!(::core::convert::AsRef),
                "Default" => quote!(::core::default::Default),
                "Clone" => quote!(::core::clone::Clone),
                "Fn" => quote!(::core::ops::Fn),
                _ => quote!(::core::marker::#id),
            },
        }
    }
}
