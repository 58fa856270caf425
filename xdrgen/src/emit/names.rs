//! From XDR's names to Rust's: case, keywords, collisions, and what of the standard library is shadowed.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashSet},
};

use heck::{ToShoutySnakeCase, ToSnakeCase, ToUpperCamelCase};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;

/// What Rust's convention for a name's case depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// Types, variants, traits: `GetArgs`.
    Camel,
    /// Fields, functions, modules: `get_args`.
    Snake,
    /// Constants: `GET_ARGS`.
    Shouty,
}

/// Words that cannot be used as identifiers as they are, in any edition up to 2024.
const KEYWORDS: [&str; 53] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "Self", "static", "struct", "super", "trait",
    "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield", "_",
];

/// Keywords that cannot be raw identifiers either.
const NEVER_RAW: [&str; 5] = ["self", "Self", "super", "crate", "_"];

/// `text` in Rust's case, before keywords and collisions are looked at.
pub(crate) fn convert(text: &str, case: Case) -> String {
    let mut name = match case {
        Case::Camel => text.to_upper_camel_case(),
        Case::Snake => text.to_snake_case(),
        Case::Shouty => text.to_shouty_snake_case(),
    };
    // Underscores around a name are dropped by the conversion, and may have been all of it or hidden a digit.
    if !name.starts_with(|first: char| first.is_alphabetic()) {
        name.insert(0, if case == Case::Snake { 'x' } else { 'X' });
    }
    name
}

/// `name` as an identifier: raw or with an underscore after it where it is a keyword.
pub(crate) fn ident(name: &str) -> Ident {
    if NEVER_RAW.contains(&name) {
        Ident::new(&format!("{name}_"), Span::call_site())
    } else if KEYWORDS.contains(&name) {
        Ident::new_raw(name, Span::call_site())
    } else {
        Ident::new(name, Span::call_site())
    }
}

/// A name in Rust, and whether it had to differ from what the case conversion gives.
#[derive(Debug, Clone)]
pub(crate) struct RustName {
    /// The identifier.
    pub(crate) ident: Ident,
    /// The name it would have had, where another had taken that one.
    pub(crate) instead_of: Option<String>,
}

/// The names of one scope of the generated code: each is given once.
#[derive(Debug, Default)]
pub(crate) struct NameScope {
    taken: HashSet<String>,
    /// Names of the runtime that the scope imports because the generated code uses their short forms.
    imports: RefCell<BTreeSet<&'static str>>,
}

/// The import of all names of the runtime's `xdr::prelude`.
const PRELUDE: &str = "xdr::prelude::*";

impl NameScope {
    /// A scope in which `names` are spoken for.
    pub(crate) fn reserving(names: &[&str]) -> Self {
        Self { taken: names.iter().map(|&name| name.to_owned()).collect(), ..Self::default() }
    }

    /// Gives `text` a name of the scope; a number follows it where the plain one is taken.
    pub(crate) fn claim(&mut self, text: &str, case: Case) -> RustName {
        self.claim_with(text, case, &[])
    }

    /// As [`claim`](Self::claim), and the name with each of `suffixes` is free as well and is taken with it.
    pub(crate) fn claim_with(&mut self, text: &str, case: Case, suffixes: &[&str]) -> RustName {
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

    /// The `use` declarations of the scope.
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

    /// Returns whether the scope imports the runtime's `xdr::prelude`.
    pub(crate) fn imports_prelude(&self) -> bool {
        self.imports.borrow().contains(PRELUDE)
    }

    /// Whether `name` is taken.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.taken.contains(name)
    }
}

/// How the generated code names what it uses of the standard library and of the runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Std<'a> {
    /// By the prelude's short names, save those that the scope has taken.
    Prelude(&'a NameScope),
    /// By absolute paths: the code lands in a scope that may have given the short names any meaning.
    Absolute,
}

impl Std<'_> {
    /// The path of a name of the runtime's `xdr::prelude`: `path` is its place elsewhere.
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

    /// The path of a module of the runtime.
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

    /// The imports of the scope.
    pub(crate) fn imports(&self, runtime: &TokenStream) -> TokenStream {
        match self {
            Std::Prelude(scope) => scope.imports(runtime),
            Std::Absolute => TokenStream::new(),
        }
    }

    /// The path of a prelude name.
    pub(crate) fn path(&self, name: &str) -> TokenStream {
        let id = ident(name);
        match self {
            Std::Prelude(scope) if !scope.has(name) => quote!(#id),
            _ => match name {
                "Option" | "Some" | "None" => quote!(::core::option::Option),
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
