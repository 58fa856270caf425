//! Options and errors of code generation.

use crate::ir::{Base, Item, ItemKind, Spec, Type};

/// Options of code generation, for example which stubs the code contains and which traits its types derive.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EmitOptions {
    /// The path of the runtime crate. The default is `::rpcrdma`.
    pub runtime: syn::Path,
    /// Traits that every type derives in addition to the standard ones.
    pub derives: Vec<syn::Path>,
    /// Traits that individual types derive in addition to those in [`derives`](Self::derives). Each entry is the XDR
    /// name of a type and the path of a trait.
    pub derives_for: Vec<(String, syn::Path)>,
    /// `true` if the code contains a typed client for each program version. The default is `true`.
    pub client: bool,
    /// `true` if the code contains a server trait and a dispatcher for each program version. The default is `true`.
    pub server: bool,
    /// `true` if the code uses absolute paths for items of the standard library, because the short names may have
    /// another meaning in the surrounding scope. The default is `false`.
    pub absolute_paths: bool,
    /// The name of the source file, for the header of the generated code. With `None`, the default, the header names no
    /// file.
    pub source: Option<String>,
    /// Types that also get a borrowed form. By default, none does.
    pub borrowed: Borrow,
    /// XDR names of the open unions. An open union accepts discriminants that select none of its arms. By default, no
    /// union is open.
    ///
    /// The union gets a variant `Unknown` for such a discriminant. Decoding ends after the discriminant, because the
    /// length of the arm is not known. An NFS version 4 server uses this to reply to an unknown operation and to the
    /// operations before it (RFC 8881 §15.1.3.4). In an `opaque_union`, the length of the arm is known, so the decoder
    /// skips the arm and continues.
    ///
    /// The discriminant of an open union must be an enumeration, and the union must have no default arm.
    pub open: Vec<String>,
}

impl EmitOptions {
    /// Returns an invalid name from the options, if there is one: a name from `borrowed` that is not a type of `spec`,
    /// or a name from `open` that is not a union that can be open.
    #[must_use]
    pub(crate) fn unknown_type(&self, spec: &Spec) -> Option<&str> {
        let open = |name: &str| spec.items.iter().any(|item| item.name.text == name && can_be_open(spec, item));
        self.borrowed.unknown(spec).or_else(|| self.open.iter().map(String::as_str).find(|name| !open(name)))
    }
}

/// Returns `true` if the item is a union over an enumeration, without a default arm.
pub(super) fn can_be_open(spec: &Spec, item: &Item) -> bool {
    let ItemKind::Union(union) = &item.kind else { return false };
    let Type::Base(base) = union.discriminant.ty else { return false };
    let Base::Item(id) = spec.resolve(base) else { return false };
    union.default.is_none() && matches!(spec.items[id.0].kind, ItemKind::Enum(_))
}

/// The types that get a borrowed form in addition to the owned one.
///
/// The name of a borrowed form ends in `Ref`. Its opaque items and strings are views of the message. A type that
/// contains neither has only one form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Borrow {
    /// No types.
    #[default]
    Nothing,
    /// The types with these XDR names, and the types that they contain.
    Types(Vec<String>),
    /// All types.
    All,
}

impl Borrow {
    /// Returns the first name that is not a type of `spec`, if there is one.
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
    /// Generates neither clients nor servers. The remaining code contains the constants, types, codecs and `Procedure`
    /// implementations. It needs only `rpcrdma-xdr`, which works without the standard library.
    #[must_use]
    pub fn types_only(mut self) -> Self {
        self.client = false;
        self.server = false;
        self
    }

    /// Generates no clients.
    ///
    /// Call [`Compiler::no_client`](crate::Compiler::no_client) as well to accept replies without a maximum.
    #[must_use]
    pub fn no_client(mut self) -> Self {
        self.client = false;
        self
    }

    /// Generates no server traits and no dispatchers.
    #[must_use]
    pub fn no_server(mut self) -> Self {
        self.server = false;
        self
    }

    /// Derives a trait for every type, for example `serde::Serialize`.
    ///
    /// A trait that a type already derives is not derived twice. The runtime types implement the traits of serde and
    /// arbitrary if the runtime's features `serde` and `arbitrary` are enabled.
    #[must_use]
    pub fn derive(mut self, path: syn::Path) -> Self {
        self.derives.push(path);
        self
    }

    /// Derives a trait for the type with the XDR name `name`.
    #[must_use]
    pub fn derive_for(mut self, name: impl Into<String>, path: syn::Path) -> Self {
        self.derives_for.push((name.into(), path));
        self
    }

    /// Checks that `spec` declares all types that the options name.
    ///
    /// # Errors
    /// Returns [`EmitError::NoSuchType`] for a name in [`borrowed`](Self::borrowed) that is not a type, and for a name
    /// in [`open`](Self::open) that is not a union over an enumeration, or whose union has a default arm. Returns
    /// [`EmitError::NoTypeToDerive`] for a name in [`derives_for`](Self::derives_for) that is not a type or is an
    /// external type.
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

/// The error type of code generation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmitError {
    /// The generated code is not valid Rust. This is a bug in the compiler, not an error in the specification.
    #[error("the generated code is not valid Rust, which is a bug in rpcrdma-xdrgen: please report it")]
    NotRust(#[source] syn::Error),
    /// A name in [`EmitOptions::borrowed`] is not a type of the specification, or a name in [`EmitOptions::open`] is
    /// not a union over an enumeration, or its union has a default arm.
    #[error(
        "cannot generate a borrowed type or open union for `{0}`: no type, or no union over an enumeration without a default arm, has that name"
    )]
    NoSuchType(String),
    /// A name in [`EmitOptions::derives_for`] is not a type that the specification declares.
    #[error("cannot derive a trait for `{0}`: no struct, union, enumeration or typedef has that name")]
    NoTypeToDerive(String),
}
