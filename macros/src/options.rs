//! The options that `include_xdr!` and `xdr!` share.

use proc_macro2::Span;
use rpcrdma_xdrgen::{
    Compiler,
    emit::{Borrow, EmitOptions},
};
use syn::{
    Ident, LitBool, LitInt, LitStr, Path, Token,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

/// The parsed options of an invocation.
#[derive(Default)]
pub(crate) struct Options {
    /// Paths of Upper-Layer Binding files.
    pub(crate) ulb: Vec<LitStr>,
    /// User-defined types that replace types of the specification.
    externs: Vec<(Ident, Path)>,
    derives: Vec<Path>,
    derives_for: Vec<(Ident, Path)>,
    reply_max: Option<LitInt>,
    client: Option<LitBool>,
    server: Option<LitBool>,
    types_only: bool,
    runtime: Option<Path>,
    borrowed: Option<Borrow>,
    open: Vec<String>,
    /// Names of the enumerations that lose their prefix. `None` means no enumerations, and an empty list means all.
    strip_enum_prefix: Option<Vec<String>>,
}

impl Options {
    /// Parses one option of the form `name`, `name = value`, `name(values)` or `extern name = value`.
    pub(crate) fn parse_one(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let name = input.call(Ident::parse_any)?;
        let repeated = || syn::Error::new(name.span(), format!("`{name}` is given twice"));
        match name.to_string().as_str() {
            "derive" => {
                let content;
                syn::parenthesized!(content in input);
                for derive in Punctuated::<Derive, Token![,]>::parse_terminated(&content)? {
                    match derive.of {
                        Some(name) => self.derives_for.push((name, derive.path)),
                        None => self.derives.push(derive.path),
                    }
                }
            }
            "borrowed" if self.borrowed.is_none() => {
                let named = input.peek(syn::token::Paren);
                self.borrowed = Some(if named { Borrow::Types(names(input)?) } else { Borrow::All });
            }
            "strip_enum_prefix" if self.strip_enum_prefix.is_none() => {
                let named = input.peek(syn::token::Paren);
                self.strip_enum_prefix = Some(if named { names(input)? } else { Vec::new() });
            }
            "open" => self.open.extend(names(input)?),
            "extern" => {
                let name = input.call(Ident::parse_any)?;
                input.parse::<Token![=]>()?;
                self.externs.push((name, input.call(Path::parse_mod_style)?));
            }
            "default_reply_max" if self.reply_max.is_none() => self.reply_max = Some(value(input)?),
            "ulb" => self.ulb.push(value(input)?),
            "client" if self.client.is_none() => self.client = Some(value(input)?),
            "server" if self.server.is_none() => self.server = Some(value(input)?),
            "types_only" if !self.types_only => self.types_only = true,
            "crate" if self.runtime.is_none() => {
                input.parse::<Token![=]>()?;
                self.runtime = Some(input.call(Path::parse_mod_style)?);
            }
            "client" | "server" | "types_only" | "crate" | "borrowed" | "default_reply_max" | "strip_enum_prefix" => {
                return Err(repeated());
            }
            _ => {
                let message = format!(
                    "unknown option `{name}`, expected one of `ulb`, `derive`, `extern`, `default_reply_max`, `client`, `server`, \
                     `types_only`, `strip_enum_prefix`, `borrowed`, `open`, `crate`"
                );
                return Err(syn::Error::new(name.span(), message));
            }
        }
        Ok(())
    }

    /// Applies the options that the compiler itself handles, except `ulb`. Also requires a maximum for every reply,
    /// because a macro cannot show the warning about an assumed maximum.
    pub(crate) fn apply(&self, mut compiler: Compiler) -> syn::Result<Compiler> {
        for (name, path) in &self.externs {
            compiler = compiler.extern_type(name.unraw().to_string(), path);
        }
        match &self.strip_enum_prefix {
            None => {}
            Some(names) if names.is_empty() => compiler = compiler.strip_enum_prefix(),
            Some(names) => {
                compiler = names.iter().fold(compiler, |compiler, name| compiler.strip_enum_prefix_of(name));
            }
        }
        if !self.emit().client {
            compiler = compiler.no_client();
        }
        // A macro cannot show the warning about an assumed maximum.
        compiler = compiler.require_reply_max();
        match &self.reply_max {
            Some(bytes) => Ok(compiler.default_reply_max(bytes.base10_parse()?)),
            None => Ok(compiler),
        }
    }

    /// Returns the span of the type `name` in the option `derive(name = TRAIT)`.
    pub(crate) fn place_of(&self, name: &str) -> Option<Span> {
        self.derives_for.iter().find(|(of, _)| of.unraw() == name).map(|(of, _)| of.span())
    }

    /// Returns the options of the code generator.
    pub(crate) fn emit(&self) -> EmitOptions {
        let mut emit = EmitOptions::default();
        emit.absolute_paths = true;
        emit.derives.clone_from(&self.derives);
        emit.derives_for =
            self.derives_for.iter().map(|(name, path)| (name.unraw().to_string(), path.clone())).collect();
        let wanted = |stub: &Option<LitBool>| !self.types_only && stub.as_ref().is_none_or(LitBool::value);
        emit.client = wanted(&self.client);
        emit.server = wanted(&self.server);
        emit.open.clone_from(&self.open);
        emit.borrowed = self.borrowed.clone().unwrap_or_default();
        if let Some(runtime) = &self.runtime {
            emit.runtime = runtime.clone();
        }
        emit
    }
}

/// One entry of `derive(..)`: `TRAIT`, or `type = TRAIT`.
struct Derive {
    of: Option<Ident>,
    path: Path,
}

impl Parse for Derive {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let of = match input.peek2(Token![=]) {
            true => {
                let name = input.call(Ident::parse_any)?;
                input.parse::<Token![=]>()?;
                Some(name)
            }
            false => None,
        };
        Ok(Self { of, path: input.call(Path::parse_mod_style)? })
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> syn::Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

/// Parses a list of names of the specification, such as `(name, name)`.
fn names(input: ParseStream<'_>) -> syn::Result<Vec<String>> {
    let content;
    syn::parenthesized!(content in input);
    let names = Punctuated::<Ident, Token![,]>::parse_terminated_with(&content, Ident::parse_any)?;
    Ok(names.iter().map(|name| name.unraw().to_string()).collect())
}
