//! What is generated, and how.

use crate::ir::{Item, ItemKind, Spec};

/// What is generated, and how it names what it uses.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmitOptions {
    /// Path of the runtime crate. Default `::rpcrdma`.
    pub runtime: syn::Path,
    /// Traits that every type derives beside those that it can always have.
    pub derives: Vec<syn::Path>,
    /// Traits that one type derives beside those, by the type's name in XDR.
    pub derives_for: Vec<(String, syn::Path)>,
    /// Whether each version of a program gets a typed client. Default yes.
    pub client: bool,
    /// Whether each version of a program gets a server's trait and dispatcher. Default yes.
    pub server: bool,
    /// Whether names of the standard library are spelled out, for code that lands in a scope where the short ones
    /// may mean something else. Default no.
    pub absolute_paths: bool,
    /// What the header names as the source, a file's name. Default none.
    pub source: Option<String>,
    /// Which types get a borrowed form as well. Default none.
    pub borrowed: Borrow,
    /// Unions, by their names in the specification, that hold a number that selects none of their arms: they have a variant
    /// `Unknown` for it, with which decoding ends. A server of NFS version 4 can so answer an operation that it does not know
    /// and those before it (RFC 8881 §15.1.3.4). Their discriminants are enumerations, and they have no default arm.
    /// Default none.
    pub open: Vec<String>,
}

impl EmitOptions {
    /// A name among the options that is no type of `spec`, or no union that can be open.
    #[must_use]
    pub fn unknown_type(&self, spec: &Spec) -> Option<&str> {
        let can_be_open = |item: &&Item| matches!(&item.kind, ItemKind::Union(union) if union.default.is_none());
        let open = |name: &str| spec.items.iter().filter(can_be_open).any(|item| item.name.text == name);
        self.borrowed.unknown(spec).or_else(|| self.open.iter().map(String::as_str).find(|name| !open(name)))
    }
}

/// Which types get a borrowed form beside the one that owns what it holds: named with `Ref`, its opaque items and strings
/// views of the message. Types that hold neither have the same form for both.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Borrow {
    /// None.
    #[default]
    Nothing,
    /// Those of these names in the specification, and those that they are made of.
    Types(Vec<String>),
    /// All.
    All,
}

impl Borrow {
    /// A name among these that is no type of `spec`.
    fn unknown<'b>(&'b self, spec: &Spec) -> Option<&'b str> {
        let Self::Types(names) = self else { return None };
        let is_type = |name: &str| {
            spec.items.iter().any(|item| item.name.text == name && !matches!(item.kind, ItemKind::Const(_)))
        };
        names.iter().map(String::as_str).find(|name| !is_type(name))
    }
}

impl Default for EmitOptions {
    fn default() -> Self {
        Self {
            runtime: syn::parse_quote!(::rpcrdma),
            derives: Vec::new(),
            derives_for: Vec::new(),
            client: true,
            server: true,
            absolute_paths: false,
            source: None,
            borrowed: Borrow::Nothing,
            open: Vec::new(),
        }
    }
}

impl EmitOptions {
    /// Types and codecs only, and what is known of each procedure (`Procedure`): neither clients nor servers. That needs of the
    /// runtime what it has without its feature `std`.
    #[must_use]
    pub fn types_only(mut self) -> Self {
        self.client = false;
        self.server = false;
        self
    }

    /// Generates no clients. A reply without a maximum is no error then, if the compiler knows it
    /// ([`Compiler::no_client`](crate::Compiler::no_client)).
    #[must_use]
    pub fn no_client(mut self) -> Self {
        self.client = false;
        self
    }

    /// Generates no server traits and dispatchers.
    #[must_use]
    pub fn no_server(mut self) -> Self {
        self.server = false;
        self
    }

    /// Has every type derive a trait, as `serde::Serialize`. One that a type has anyway is not derived twice. The types
    /// of the runtime have those of serde and arbitrary with its features of that name.
    #[must_use]
    pub fn derive(mut self, path: syn::Path) -> Self {
        self.derives.push(path);
        self
    }

    /// Has the type of that name in XDR derive a trait.
    #[must_use]
    pub fn derive_for(mut self, name: impl Into<String>, path: syn::Path) -> Self {
        self.derives_for.push((name.into(), path));
        self
    }

    /// Whether all types are there that the options name.
    ///
    /// # Errors
    /// [`EmitError::NoSuchType`], [`EmitError::NoTypeToDerive`]
    pub fn check(&self, spec: &Spec) -> Result<(), EmitError> {
        let declares = |name: &str| {
            spec.items.iter().any(|item| {
                let derives = !matches!(item.kind, ItemKind::Const(_) | ItemKind::Extern(_));
                item.name.text == name && derives
            })
        };
        if let Some(name) = self.unknown_type(spec) {
            return Err(EmitError::NoSuchType(name.to_owned()));
        }
        match self.derives_for.iter().find(|(name, _)| !declares(name)) {
            Some((name, _)) => Err(EmitError::NoTypeToDerive(name.clone())),
            None => Ok(()),
        }
    }
}

/// Why nothing could be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// What was generated is not Rust: a fault of the compiler, not of the specification.
    #[error("the generated code is not Rust, which is a fault of rpcrdma-xdrgen")]
    NotRust(#[source] syn::Error),
    /// A type that was to get a borrowed form is not there, or what was to be open is no union without a default arm.
    #[error("there is no type `{0}` to be borrowed, or no union without a default arm to be open")]
    NoSuchType(String),
    /// A trait is to be derived for a type that is not there.
    #[error("a trait is to be derived for `{0}`, but no struct, union, enumeration or typedef has that name")]
    NoTypeToDerive(String),
}
